"""`evotrainer rollouts`: those that meet conditions, whole groups of them, their text searched.

Columns are read first and text last: a condition on a step costs its column, a search the turns of what is left.
"""

from __future__ import annotations

import operator
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.harness.columns.numerics import Ints
from evotrainer.harness.columns.source import RolloutSource
from evotrainer.harness.registry import DETECTORS, FLAGGED
from evotrainer.importers.base import Skipped
from evotrainer.projections.rollouts import OPEN, stores_of
from evotrainer.records.findings import Finding
from evotrainer.records.ledger import Ledger
from evotrainer.records.rollout import GREEDY, GROUPED_BY, Rollout, Turn, turn_text
from evotrainer.records.text import clean, cut
from evotrainer.studies.audit.curve_file import read_curves
from evotrainer.studies.audit.engine import audit, open_all, sources_of
from evotrainer.studies.audit.fault_columns import value_at
from evotrainer.studies.audit.sources import open_stores
from evotrainer.studies.audit.units import OpenedSource

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "!=": operator.ne, "=": operator.eq, "<": operator.lt, ">": operator.gt,
    "~": lambda value, pattern: _search(re.compile(pattern), value) is not None,
}  # fmt: skip
_CONDITION = re.compile(r"\s*(.+?)\s*(<=|>=|!=|==|=|<|>|~)\s*(.*)", re.DOTALL)
NESTED = ("detail", "components", "knobs")
"""Where a name is looked for, in this order, as `--fault` does."""
PLAIN = {f.name for f in fields(Rollout)} - {*NESTED, "turns", "token_ids", "logprobs"}
COUNTED: dict[str, Callable[[Sequence[Turn]], float]] = {
    "turns": lambda turns: sum(t.role == "assistant" for t in turns),
    "calls": lambda turns: sum(len(t.tool_calls) for t in turns),
    "characters": lambda turns: sum(len(turn_text(t)) for t in turns if t.role == "assistant"),
}
"""What is counted in the turns of a rollout."""
PIECE = 256
"""Rollouts whose text is in memory at once while many are passed on."""
SEARCH_S = 2.0
"""CPU seconds that a regular expression may take in one text."""


@dataclass(frozen=True, slots=True)
class FieldCondition:
    """`NAME OP VALUE`: a rollout without NAME never meets it."""

    name: str
    sign: str
    value: str
    others: tuple[str, ...] = ()
    """Values that do as well."""

    @classmethod
    def of(cls, text: str) -> FieldCondition:
        """ConfigError where it is none."""
        if not (found := _CONDITION.fullmatch(text)):
            raise ConfigError(f"--where {text!r}: give NAME OP VALUE with OP one of {' '.join(OPERATORS)}")
        name, sign, value = found.groups()
        if sign == "~":
            pattern_of("--where", value)
        elif value[:1] in ("=", ">", "!", "~"):
            raise ConfigError(f"--where {text!r}: {sign}{value[0]} is no operator; OP is one of {' '.join(OPERATORS)}")
        return cls(name, "=" if sign == "==" else sign, value)

    def check(self, found: Sequence[Any]) -> None:
        """ConfigError where the operator or the value makes no sense for what the rollouts have."""
        some = [v for v in found if v is not None]
        number = _number(self.value) is not None
        if self.sign != "~" and not number and some and all(isinstance(v, int | float) for v in some):
            raise ConfigError(f"{self.name} holds numbers, such as {some[0]}; {self.value!r} is none")
        if self.sign[0] in "<>" and number and some and all(_number(v) is None for v in some):
            raise ConfigError(f"{self.name} holds words, such as {some[0]!r}; compare it with =, != or ~")

    def holds(self, value: Any) -> bool:
        """Numbers are compared as numbers, all else as text."""
        return value is not None and any(self._holds(value, x) for x in (self.value, *self.others))

    def _holds(self, value: Any, wanted: str) -> bool:
        a, b = (None, None) if self.sign == "~" else (_number(value), _number(wanted))
        return OPERATORS[self.sign](*((str(value), wanted) if a is None or b is None else (a, b)))

    def unmet(self, found: Sequence[Any]) -> list[str]:
        """A sentence for each of its values that no rollout meets: which ones there are."""
        there = Counter(v for v in found if isinstance(v, int | float | str) and v != "")
        names = [str(v) for v, _ in there.most_common()]
        known = ", ".join(names[:8]) + ", ..." * (len(names) > 8) or "none"
        if names and not any(isinstance(v, str) for v in there):
            known, names = f"{min(there):g} to {max(there):g}", []
        lacks = [x for x in (self.value, *self.others) if not any(self._holds(v, x) for v in there)]
        near = {x: f" did you mean {n}?" for x in lacks for n in get_close_matches(x, names, 1)}
        return [f"no rollout has {self.name} {self.sign} {x};{near.get(x, '')} there are: {known}" for x in lacks]


def _number(x: Any) -> float | None:
    try:
        return float({"true": 1, "false": 0}.get(str(x).lower(), x))
    except (TypeError, ValueError):
        return None


def _search(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """`pattern.search(text)`; ConfigError after SEARCH_S, as `(a+)+$` may search for ever. Without a limit outside the
    main thread, where no signal arrives."""

    def stop(*_: object) -> None:
        why = f"{pattern.pattern!r} takes more than {SEARCH_S:g} seconds in one text"
        raise ConfigError(f"{why}; give one that repeats no repetition, as (a+)+ does")

    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        return pattern.search(text)
    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, SEARCH_S)
        return pattern.search(text)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass(frozen=True, slots=True)
class TextSearch:
    """A search in the text of turns and calls; `role` None: of all turns."""

    pattern: re.Pattern[str]
    role: str | None = None

    def hit(self, turns: Sequence[Turn]) -> str:
        """The first span that it finds, with its role; empty where there is none."""
        for t in turns:
            for text in (turn_text(t), *(f"{c.name} {c.arguments}" for c in t.tool_calls)):
                if self.role in (None, t.role) and (m := _search(self.pattern, text)):
                    start = max(0, text.rfind("\n", 0, m.start()) + 1, m.start() - 60)
                    return f"{t.role}: {cut(' '.join(text[start : m.end() + 100].split()), 200)}"
        return ""


@dataclass(frozen=True, slots=True)
class FoundRollouts:
    """Rollouts, or groups of them, that were asked for."""

    read: int
    matched: int
    units: int
    """Groups, or rollouts, that were found."""
    shown: list[list[Rollout]]
    """Groups, each by attempt; without `groups` one rollout each."""
    hits: Mapping[str, str]
    """Rollout id -> the span that a search found, with its role."""
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...] = ()
    """Why nothing was found, or what a finding is about."""


def pattern_of(option: str, text: str) -> re.Pattern[str]:
    """A regular expression; ConfigError where it is none."""
    try:
        return re.compile(text)
    except re.error as e:
        raise ConfigError(f"{option} {text!r} is no regular expression: {e}; escape what is meant literally") from None


@dataclass(frozen=True, slots=True)
class ChosenRollouts:
    """Rollouts that meet conditions, before any of their text is loaded."""

    whole: OpenedSource
    every: list[int]
    """Rows of all rollouts that were read, each once."""
    rows: list[int]
    """Of those that were found."""
    hits: Mapping[str, str]
    notes: tuple[str, ...]

    def rollouts(self) -> Iterator[Rollout]:
        """Those that were found, loaded piece by piece."""
        for i in range(0, len(self.rows), PIECE):
            yield from self.whole.rollouts(self.rows[i : i + PIECE])


def select(
    paths: Sequence[Path],
    where: Sequence[FieldCondition] = (),
    *,
    grep: TextSearch | None = None,
    finding: str | None = None,
    sort: str | None = None,
    **reading: Any,
) -> ChosenRollouts:
    """The rollouts under `paths` (run folders, stores, files that an importer reads) that meet all conditions.

    `finding`: a detector that flags them. `sort`: a name as in a condition, with `-` before it the largest first.
    `reading`: format, map, cache, progress as of `audit`. ConfigError for a name that no rollout has and where nothing
    can be read; EncryptedError for gate and cert of a run that is not closed.
    """
    equal = {c.name: c.value for c in where if c.sign == "=" and not c.others}
    whole = _opened(paths, equal, **reading)
    ids = whole.column("id", range(whole.n))
    if not ids:
        curve = "a learning curve, which `evotrainer audit` reads"
        why = "; ".join(f"{s.where}: {curve if read_curves(Path(s.where)) else s.reason}" for s in whole.skipped[:3])
        why = why or f"it holds no texts of {equal.get('split', 'train and search')}"
        raise ConfigError(f"no rollout could be read of {', '.join(map(str, paths))}: {why}")
    rows = every = sorted({x or n: n for n, x in reversed(list(enumerate(ids)))}.values())
    for c in where:
        c.check(found := values(whole, c.name, rows))
        rows = [i for i, v in zip(rows, found, strict=True) if c.holds(v)]
    notes = [x for c in where if c.others or not rows for x in c.unmet(values(whole, c.name, every))]
    if finding is not None:
        about, note = _flagged(paths, finding, **reading)
        rows = [i for i in rows if clean(ids[i], 80) in about]
        notes += note
    hits: dict[str, str] = {}
    if grep is not None:
        spans = {i: hit for i, turns in zip(rows, whole.turns(rows), strict=True) if (hit := grep.hit(turns))}
        rows, hits = [*spans], {ids[i]: hit for i, hit in spans.items()}
    return ChosenRollouts(whole, every, _sorted(whole, sort, rows) if sort else rows, hits, tuple(notes))


def find(
    paths: Sequence[Path],
    where: Sequence[FieldCondition] = (),
    *,
    groups: bool = False,
    limit: int = 20,
    **asked: Any,
) -> FoundRollouts:
    """What `select` finds, loaded. `groups`: the whole groups of it. `limit`: rollouts, or groups; 0: all."""
    found = select(paths, where, **asked)
    whole = found.whole
    keys = _groups(whole, found.every) if groups else {i: i for i in found.rows}
    units: dict[Any, list[int]] = {keys[i]: [] for i in found.rows}
    for i, key in keys.items():
        if key in units:
            units[key].append(i)
    chosen = list(units.values())[: limit or None]
    places = [i for unit in chosen for i in unit]
    loaded = dict(zip(places, whole.rollouts(places), strict=True))
    shown = [sorted((loaded[i] for i in unit), key=lambda r: (r.k, r.attempt)) for unit in chosen]
    return FoundRollouts(
        len(found.every), len(found.rows), len(units), shown, found.hits, tuple(whole.skipped), found.notes
    )


def _opened(
    paths: Sequence[Path], equal: Mapping[str, str], cache: Path, progress: Any = None, **way: Any
) -> OpenedSource:
    """All sources as one; of a run of ours gate and cert where they are asked for."""
    found: list[OpenedSource] = []
    rest = list(paths)
    split = equal.get("split", OPEN[0])
    for run in [p for p in paths if (p / "ledger.db").is_file() and split.removesuffix(GREEDY) not in OPEN]:
        with Ledger.open(run / "ledger.db", readonly=True) as ledger:
            found.append(open_stores(stores_of(run, ledger.events(), split, equal.get("branch"), None), []))
        rest.remove(run)
    sources, unknown = sources_of(rest, way.get("format"), way.get("map") or ()) if rest else ([], [])
    found += [open_all(source, cache, None, progress) for source in sources]
    return OpenedSource([p for one in found for p in one.parts], [*unknown, *(s for one in found for s in one.skipped)])


def values(whole: OpenedSource, name: str, rows: Sequence[int]) -> list[Any]:
    """What the rollouts at these rows have under a name: a field, a count, a key of `detail` (dots for nested ones),
    else a reward component, else a knob. ConfigError where no rollout has it, with the names that there are."""
    if name in PLAIN:
        found = whole.column(name, rows)
        if name == "tokens" and None in found:  # importers often count turns only
            counts = [[t.tokens for t in turns if t.role == "assistant"] for turns in whole.turns(rows)]
            found = [sum(filter(None, c)) if n is None and any(c) else n for n, c in zip(found, counts, strict=True)]
        return found
    if name in COUNTED:
        return [COUNTED[name](turns) for turns in whole.turns(rows)]
    outer, _, path = name.partition(".")
    known: set[str] = set()
    for place in NESTED:
        columns = [_by_name(x) for x in whole.column(place, rows)]
        out = [value_at(x, path if outer == place and path else name)[1] for x in columns]
        if any(v is not None for v in out):
            return out
        known |= {k for x in columns[:1000] for k in x}
    if not rows:
        return []
    raise ConfigError(f"no rollout has {name!r}; there are: {', '.join(sorted({*PLAIN, *COUNTED, *known}))}")


def _by_name(x: Any) -> Mapping[str, Any]:
    """Stored components are a list of names with values."""
    return x if isinstance(x, Mapping) else dict(tuple(pair.values()) for pair in x or ())


def _sorted(whole: OpenedSource, name: str, rows: Sequence[int]) -> list[int]:
    """Rows by a value, numbers before texts, those without it last."""
    down = name.startswith("-")
    keyed = list(zip(values(whole, name.removeprefix("-"), rows), rows, strict=True))
    ranked: list[int] = []
    for kind in ((int, float), str):
        some = [x for x in keyed if isinstance(x[0], kind)]
        ranked += [i for _, i in sorted(some, key=lambda x: x[0], reverse=down)]
    return [*ranked, *sorted({*rows}.difference(ranked))]


def _groups(whole: OpenedSource, rows: Sequence[int]) -> dict[int, Any]:
    """Row -> key of its group."""
    columns = [whole.column(name, rows) for name in ("group", *GROUPED_BY)]
    return {i: name or rest for i, name, rest in zip(rows, columns[0], zip(*columns[1:], strict=True), strict=True)}


Flagged = list[tuple[str, RolloutSource, Ints]]
"""(detector, source, rows in it) of what findings are about."""


@contextmanager
def flagged(wanted: bool = True) -> Iterator[Flagged]:
    """What the findings of audits in this block are about."""
    found: Flagged = []
    token = FLAGGED.set(found if wanted else None)
    try:
        yield found
    finally:
        FLAGGED.reset(token)


def _flagged(paths: Sequence[Path], name: str, **reading: Any) -> tuple[set[str], list[str]]:
    """Ids of the rollouts that a finding is about, read as an audit reads them; where it is about all of them together,
    of those that it quotes, and a sentence that says so."""
    by_detector, findings, read = flagged_by(paths, **reading)
    known = {*DETECTORS, "suspected_fault", "ungraded", *(f.detector for f in findings)}
    if name not in known:
        raise ConfigError(f"--finding {name}: no such detector; there are: {', '.join(sorted(known))}")
    ids = by_detector.get(name, set())
    about = [f for f in findings if f.detector == name]
    note = f"{name} is a finding about all {read:,} rollouts together; matched are those that it quotes"
    note = note if about else f"the audit has no finding {name} here"
    return ids or {q.rollout for f in about for q in f.quotes}, [] if ids else [note]


def flagged_by(paths: Sequence[Path], **reading: Any) -> tuple[dict[str, set[str]], list[Finding], int]:
    """({detector: ids of the rollouts that it flags}, all findings, rollouts read), read as an audit reads them."""
    with flagged() as found:
        done = audit(paths, **reading)
    ids: dict[str, set[str]] = {}
    for by, source, rows in found:
        ids.setdefault(by, set()).update(clean(i, 80) for i in source.column("id", rows.tolist()))
    findings = [f for s in done.sources for r in s.readings for f in r.health.findings if not f.missing]
    return ids, findings, done.rollouts
