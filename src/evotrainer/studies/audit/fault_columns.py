"""Columns of foreign rollouts that speak of faults: which ones an audit asks about, and what `--fault COLUMN` does.

A column is a field of the rollout's `detail` (dots lead into mappings), else a reward component; `COLUMN=VALUE` is
where it holds that value, `COLUMN=VALUE*` where it begins so, `COLUMN=` where it holds nothing.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.harness import Batch
from evotrainer.harness.columns.numerics import Ints, at_least
from evotrainer.harness.registry import flag_rows
from evotrainer.importers.common import NO, kind_of, short, signals_error, words_of
from evotrainer.importers.faults import BROKE, EVERY_REPLY, as_fault
from evotrainer.records.findings import Finding, Quote
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import clean, quoted

ASKED = 20_000
"""Rollouts of a subject, the first ones, in which suspicious columns are looked for."""
NOTED = 0.02
"""Share of rollouts above which such a column, or a missing reward, is a warning and no note."""
CHANCE = 0.05
"""Chance above which rollouts with a flag would all be unpaid without any bond between the two."""
OWN = frozenset((
    "code", "program", "solution", "tool", "answer", "format", "syntax", "compile", "execution", "parse", "parsing",
    "test", "tests", "context", "length", "assertion", "action", "no", "count", "num", "n", "rate",
))  # fmt: skip
"""Words of what the policy made, and of names that count."""
KINDS = frozenset({"mode", "reason", "type", "kind", "status", "state", "class", "category"})
"""Words of fields whose values, not they themselves, may speak of an error."""
NAMES = frozenset({"id", "name", "model", "task", "prompt", "question", "input", "source", "record", "path", "file"})
"""Words of fields that name something."""
TESTS = frozenset({"test", "tests", "cases", "rubric", "rubrics", "assertions"})
"""Words of fields that hold results of tests, one by one."""
JUDGE = frozenset({"judge", "grader", "verifier", "scorer"})
REPLY = frozenset({"response", "reply", "output", "completion", "verdict"})
"""Words of a judge's fields that hold what it said."""
PLAIN = ("true", "yes", "1", *NO)


def value_of(r: Rollout, column: str) -> tuple[bool, Any]:
    """(does the rollout have the column?, its value): of its detail, else of its components."""
    found, value = value_at(r.detail, column)
    return (True, value) if found else (column in r.components, r.components.get(column))


def value_at(values: Mapping[str, Any], column: str) -> tuple[bool, Any]:
    """(is it there?, the value) of a key, or of a path of keys with dots between; keys may hold dots themselves."""
    if column in values:
        return True, values[column]
    head, dot, rest = column.partition(".")
    inner = values.get(head)
    return value_at(inner, rest) if dot and isinstance(inner, Mapping) else (False, None)


def split(given: str) -> tuple[str, str | None]:
    """(column, value or None) of `COLUMN` or `COLUMN=VALUE`."""
    column, eq, value = given.partition("=")
    return column.strip(), value.strip() if eq else None


def is_fault(r: Rollout, given: str) -> bool:
    """Does the column say that this rollout is a fault?"""
    column, value = split(given)
    found, x = value_of(r, column)
    if not found or value is None:
        return found and signals_error(x)
    if not value:
        return _blank(x)
    word, sought = _as_word(x), value.lower()
    return word.startswith(sought[:-1]) if sought.endswith("*") else word == sought


def marked(r: Rollout, columns: Sequence[str]) -> Rollout:
    """The rollout as a fault where one of the columns says so."""
    given = next((c for c in columns if is_fault(r, c)), None) if not r.error_kind else None
    if given is None:
        return r
    column, value = split(given)
    content = str(value_of(r, column)[1] or "")
    # the column's own name before what it says, in words: a name is written in one
    kind = kind_of(*(" ".join(re.split(r"[\W_]+", x)) for x in (column, value or "", content[:400])))
    return as_fault(r, kind, f"--fault {column}: {short(content, 200) or 'empty'}")


def _blank(x: Any) -> bool:
    return x is None or (isinstance(x, str) and not x.strip())


def _mentions_error(words: frozenset[str]) -> bool:
    """Do the words of a name or of a short value speak of an error that need not be the policy's own?"""
    return bool(words & BROKE) and not words & OWN


def _as_word(x: Any) -> str:
    if x is None:
        return ""
    return f"{x:g}" if isinstance(x, float) else str(x).strip().lower()


def _says_yes_or_no(column: str, x: Any) -> bool:
    return _boolean(x) or column == EVERY_REPLY or (isinstance(x, str) and _mentions_error(words_of(column)))


def check_columns(rollouts: Iterator[Rollout], columns: Sequence[str]) -> None:
    """ConfigError where no rollout has a column, or where it holds no yes and no."""
    left = dict.fromkeys(columns, False)
    names: Counter[str] = Counter()
    for r in rollouts:
        names.update(k for k in (*r.detail, *r.components) if _mentions_error(words_of(str(k))))
        for given in columns:
            column, value = split(given)
            found, x = value_of(r, column)
            left[given] |= found
            if found and value is None and not _says_yes_or_no(column, x):
                raise ConfigError(
                    f"--fault {column}: it holds {quoted(x, 40)}, which is no yes or no; name the value that is a "
                    f"fault: --fault '{column}=VALUE' (VALUE* for a beginning)"
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


def ungraded(batch: Batch) -> list[Finding]:
    """A finding where some rollouts have no reward and others have one: they are in no mean, and somebody should know.
    Those that hold something unreadable there (a word, NaN) are counted by themselves."""
    without = np.flatnonzero(np.isnan(batch.reward))
    if not len(without) or len(without) == batch.n:
        return []
    flag_rows("ungraded", batch, batch.rows[without])
    some = without[:ASKED]
    unread = sum("reward" in (d.get("unread") or ()) for d in batch.column("detail", some.tolist()))
    of = f" of the first {ASKED:,} of them" if len(without) > ASKED else ""
    remark = f"; {unread:,}{of} hold something that is no number (a word, NaN)" if unread else ""
    share = len(without) / batch.n
    return [
        Finding(
            detector="ungraded",
            kind="infrastructure",
            severity="warn" if len(without) > 1 and share > NOTED else "info",
            claim=f"{len(without):,} of {batch.n:,} rollouts have no reward and are in none of its means{remark}",
            numbers={"share": round(share, 6), "hits": float(len(without)), "unread": float(unread)},
            quotes=tuple(_quotes(batch, without, "no reward")),
        )
    ]


def suspects(batch: Batch, limit: int = 5) -> list[Finding]:
    """A finding that asks for each column, at most `limit`, by which unpaid rollouts may be faults: it speaks of an
    error, or is a judge's reply without a word, all that have it earn the lowest reward, others earn more, and chance
    does not explain that. Errors of an API that answered all actions are asked about wherever nothing was earned."""
    # by their place in the source, so that of a large one only its beginning is opened
    some = np.sort(np.argsort(batch.rows, kind="stable")[:ASKED])
    paid, counts = batch.reward[some], "and all of them reward {low:g}"
    if not np.isfinite(paid).any():  # a verdict alone, or none: then behaviour is all that counts
        paid, counts = batch.truth[some], "and all of them are incorrect"
    if not np.isfinite(paid).any():
        paid, counts = np.zeros(len(some)), "and nobody graded them"
    graded = np.isfinite(paid)
    low = float(paid[graded].min()) if len(some) else 0.0
    lowest = graded & (paid <= low + 1e-9)
    share = float(lowest.sum()) / max(float(graded.sum()), 1.0)
    found: dict[bytes, tuple[str, np.ndarray]] = {}
    for name, places in _flags(batch, some).items():
        rows = np.array(places)
        if name == EVERY_REPLY:
            rows = rows[lowest[rows]] if low <= 0.0 else rows[:0]
        elif not lowest[rows].all() or share == 1.0 or share ** len(rows) > CHANCE:
            continue
        if len(rows):
            # one question for columns that say the same of the same rollouts
            found.setdefault(rows.tobytes(), (name, rows))
    few = sorted(found.values(), key=lambda x: (x[0] != EVERY_REPLY, -len(x[1]), x[0]))[:limit]
    return [_asking(batch, name, some[rows], len(some), counts.format(low=low)) for name, rows in few]


def _flags(batch: Batch, some: Ints) -> dict[str, list[int]]:
    """COLUMN or COLUMN=VALUE, in the order of the alphabet -> places in `some` at which it speaks of an error."""
    out: dict[str, list[int]] = {}
    for i, detail in enumerate(batch.column("detail", some.tolist())):
        for key, x in _fields(detail):
            if (name := _flag(key, x)) is not None:
                out.setdefault(name, []).append(i)
    for name in batch.component_names:
        x = batch.component(name)[some]
        if _mentions_error(words_of(name)) and np.isin(x[np.isfinite(x)], (0.0, 1.0)).all() and (x == 1).any():
            out.setdefault(name, np.flatnonzero(x == 1).tolist())
    return dict(sorted(out.items()))


def _flag(key: str, x: Any) -> str | None:
    """COLUMN or COLUMN=VALUE of a field that may tell of a fault; None of any other."""
    words = words_of(key.replace(".", " "))
    if words & JUDGE and words & REPLY and _blank(x):
        return f"{key}="
    if _boolean(x):
        return key if _mentions_error(words) and signals_error(x) else None
    if not isinstance(x, str) or not x.strip() or words & NAMES:
        return None
    if key == EVERY_REPLY or (_mentions_error(words) and not words & KINDS):
        return key
    return f"{key}={x.strip()}" if len(x.split()) < 6 and _mentions_error(words_of(x)) else None


def _fields(detail: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, x in detail.items():
        if words_of(str(key)) & TESTS:  # what failed there is the answer
            continue
        yield from ((f"{key}.{k}", v) for k, v in x.items()) if isinstance(x, Mapping) else ((str(key), x),)


def _asking(batch: Batch, name: str, rows: np.ndarray, n: int, counts: str) -> Finding:
    hits = len(rows)
    least = at_least(hits, n, 0.95)
    of = f" of the first {n:,}" if n < batch.n else f" of {n:,}"
    flag_rows("suspected_fault", batch, batch.rows[rows])
    column, value = split(name)
    has = f"have no {column}" if value == "" else f"have {column}" + (f" = {quoted(value, 80)}" if value else "")
    if column == EVERY_REPLY:
        example = value_of(batch.rollout(int(rows[0])), column)[1]
        has = f"had their actions answered by an error of the infrastructure ({quoted(example, 80)})"
    claim = (
        f"{hits:,} rollouts{of} {has} {counts}: is this a fault? If so, they belong in no rate: "
        f"--fault {shlex.quote(name)}"
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
        for r in batch.rollouts_at([int(i) for i in rows[:2]])
    ]
