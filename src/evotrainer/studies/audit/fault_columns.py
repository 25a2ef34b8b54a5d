"""Columns of foreign rollouts that speak of faults: which ones an audit asks about, and what `--fault COLUMN` does.

A column is a field of the rollout's `detail` (dots lead into mappings) or a reward component; `COLUMN=VALUE` is where
it holds that value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.harness import Batch
from evotrainer.harness.columns.numerics import Ints, at_least
from evotrainer.importers.faults import as_fault, asked, broken, ending
from evotrainer.importers.foreign import NO, kind_of, says_so, short, words_of
from evotrainer.importers.judges import JUDGE, REPLY
from evotrainer.records.findings import Finding, Quote
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import clean, quoted

ASKED = 20_000
"""Rollouts of a subject, the first ones, in which suspicious columns are looked for."""
DISTINCT = 50
"""Values of a text column that are told apart."""
NOTED = 0.02
"""Share of rollouts above which such a column, or a missing reward, is a warning and no note."""
CHANCE = 0.05
"""Chance above which rollouts with a flag would all be unpaid without any bond between the two."""
TESTS = frozenset({"test", "tests", "cases", "rubric", "rubrics", "assertions"})
"""Words of fields that hold results of tests, one by one."""
ORDINARY = frozenset({"failed", "failure"})
"""Values by which a bad attempt ends like any other."""
YES = frozenset({"true", "yes", "1"})
PLAIN = (*YES, *NO)


def value_of(r: Rollout, column: str) -> tuple[bool, Any]:
    """(does the rollout have the column?, its value)."""
    found, value = _within(r.detail, column)
    return (True, value) if found else (column in r.components, r.components.get(column))


def _within(values: Mapping[str, Any], column: str) -> tuple[bool, Any]:
    if column in values:
        return True, values[column]
    head, dot, rest = column.partition(".")
    inner = values.get(head)
    return _within(inner, rest) if dot and isinstance(inner, Mapping) else (False, None)


def split(given: str) -> tuple[str, str | None]:
    """(column, value or None) of `COLUMN` or `COLUMN=VALUE`."""
    column, eq, value = given.partition("=")
    return column.strip(), value.strip() if eq else None


def is_fault(r: Rollout, given: str) -> bool:
    """Does the column say that this rollout is a fault?"""
    column, value = split(given)
    found, x = value_of(r, column)
    if value is None:
        return found and says_so(x)
    return found and _as_word(x) == value.lower()


def marked(r: Rollout, columns: Sequence[str]) -> Rollout:
    """The rollout as a fault where one of the columns says so."""
    given = next((c for c in columns if is_fault(r, c)), None) if not r.error_kind else None
    if given is None:
        return r
    column, value = split(given)
    words = words_of(f"{column} {value or ''}")
    kind = broken(words, whole=True) or ending(words) or kind_of(" ".join(sorted(words)))
    return as_fault(r, kind, f"--fault {column}: {short(_as_word(value_of(r, column)[1]) or 'empty', 200)}")


def _as_word(x: Any) -> str:
    if x is None:
        return ""
    return f"{x:g}" if isinstance(x, float) else str(x).strip().lower()


def check_columns(rollouts: Iterator[Rollout], columns: Sequence[str]) -> None:
    """ConfigError where no rollout has a column, or where it holds no yes and no."""
    left = dict.fromkeys(columns, False)
    names: Counter[str] = Counter()
    for r in rollouts:
        names.update(k for k in (*r.detail, *r.components) if asked(words_of(str(k))))
        for given in columns:
            column, value = split(given)
            found, x = value_of(r, column)
            left[given] |= found
            if found and value is None and not _boolean(x):
                raise ConfigError(
                    f"--fault {column}: it holds {quoted(x, 40)}, which is no yes or no; name the value that is a "
                    f"fault: --fault '{column}=VALUE'"
                )
    if unknown := [split(c)[0] for c, found in left.items() if not found]:
        known = ", ".join(k for k, _ in names.most_common(12)) or "none that speaks of errors"
        raise ConfigError(
            f"--fault {unknown[0]}: no rollout has such a column; those that speak of errors or timeouts: {known}"
        )


def _boolean(x: Any) -> bool:
    if isinstance(x, str):
        return x.strip().lower() in PLAIN
    return x is None or (isinstance(x, bool | int | float) and x in (0, 1)) or x in ([], {})


@dataclass
class _Flagged:
    """Rollouts in which a column says that something broke."""

    rows: list[int] = field(default_factory=list)


def ungraded(batch: Batch) -> list[Finding]:
    """A finding where some rollouts have no reward and others have one: they are in no mean, and somebody should know.
    Those that hold something unreadable there (a word, NaN) are counted by themselves."""
    without = np.flatnonzero(np.isnan(batch.reward))
    if not len(without) or len(without) == batch.n:
        return []
    some = without[:ASKED]
    unread = sum("reward" in (d.get("unread") or ()) for d in batch.column("detail", some.tolist()))
    of = f" of the first {ASKED:,} of them" if len(without) > ASKED else ""
    told = f"; {unread:,}{of} hold something that is no number (a word, NaN)" if unread else ""
    share = len(without) / batch.n
    return [
        Finding(
            detector="ungraded",
            kind="infrastructure",
            severity="warn" if len(without) > 1 and share > NOTED else "info",
            claim=f"{len(without):,} of {batch.n:,} rollouts have no reward and are in none of its means{told}",
            numbers={"share": round(share, 6), "hits": float(len(without)), "unread": float(unread)},
            quotes=tuple(_quotes(batch, without, "no reward")),
        )
    ]


def suspects(batch: Batch, limit: int = 5) -> list[Finding]:
    """A finding that asks for each column, at most `limit`, that speaks of an error or a timeout and is true, or that
    holds a judge's reply and is null, on rollouts of the lowest reward alone, where other rollouts earn more and chance
    does not explain it."""
    # by their place in the source, so that of a large one only its beginning is opened
    some = np.sort(np.argsort(batch.rows, kind="stable")[:ASKED])
    n = len(some)
    reward = batch.reward[some]
    graded = np.isfinite(reward)
    if not graded.any():
        return []
    low = float(reward[graded].min())
    lowest = graded & (reward <= low + 1e-9)
    share = float(lowest.sum()) / float(graded.sum())
    if share >= 1.0:
        return []
    found = _flags(batch, some)
    out, seen = [], set()
    for name, flag in sorted(found.items(), key=lambda kv: (-len(kv[1].rows), kv[0])):
        rows = np.array(flag.rows)
        # one question for columns that say the same of the same rollouts
        if tuple(flag.rows) in seen or not lowest[rows].all() or share ** len(rows) > CHANCE:
            continue
        seen.add(tuple(flag.rows))
        out.append(_asking(batch, name, some[rows], n, low))
    return out[:limit]


def _flags(batch: Batch, some: Ints) -> dict[str, _Flagged]:
    """COLUMN or COLUMN=VALUE -> places in `some` at which it says that something broke."""
    out: dict[str, _Flagged] = {}
    values: dict[str, set[str]] = {}
    for i, detail in enumerate(batch.column("detail", some.tolist())):
        for key, x in _fields(detail):
            words = words_of(key.rpartition(".")[2])
            if x is None and words & JUDGE and words & REPLY:
                # a judge that was not asked, or whose reply never came: the record alone does not tell
                out.setdefault(f"{key}=", _Flagged()).rows.append(i)
            elif isinstance(x, str) and x.strip().lower() not in PLAIN:
                word = x.strip()[:60]
                many = values.setdefault(key, set())
                # a word for why it ended: that very word is what may be a fault
                said = words_of(word)
                if len(many) < DISTINCT and asked(said) and len(word.split()) < 6 and not said <= ORDINARY:
                    many.add(word)
                    out.setdefault(f"{key}={word}", _Flagged()).rows.append(i)
            elif asked(words) and says_so(x) and _boolean(x):
                out.setdefault(key, _Flagged()).rows.append(i)
    for name in batch.component_names:
        if asked(words_of(name)):
            x = batch.component(name)[some]
            if np.isin(x[np.isfinite(x)], (0.0, 1.0)).all() and (x == 1).any():
                out.setdefault(name, _Flagged([int(i) for i in np.flatnonzero(x == 1)]))
    return out


def _fields(detail: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, x in detail.items():
        if words_of(str(key)) & TESTS:  # what failed there is the answer
            continue
        if isinstance(x, Mapping):
            yield from ((f"{key}.{k}", v) for k, v in x.items() if not isinstance(v, Mapping | list))
        elif not isinstance(x, list):
            yield key, x


def _asking(batch: Batch, name: str, rows: np.ndarray, n: int, low: float) -> Finding:
    hits = len(rows)
    least = at_least(hits, n, 0.95)
    of = f" of the first {n:,}" if n < batch.n else ""
    has = f"no {name[:-1]}" if name.endswith("=") else name
    claim = (
        f"{hits:,} rollouts{of} have {has} and all of them reward {low:g}: is this a fault? If so, they belong in no "
        f"rate: --fault '{name}'"
    )
    return Finding(
        detector="suspected_fault",
        kind="infrastructure",
        severity="warn" if hits > 1 and hits / n > NOTED else "info",
        claim=clean(claim, 400),
        numbers={"share": round(hits / n, 6), "hits": float(hits), "at_least": round(least, 6)},
        quotes=tuple(_quotes(batch, rows, name)),
    )


def _quotes(batch: Batch, rows: np.ndarray, note: str) -> list[Quote]:
    return [
        Quote(rollout=clean(r.id, 80), text=clean(r.completion or "(no word of the policy)"), note=clean(note, 160))
        for r in batch.some([int(i) for i in rows[:2]])
    ]
