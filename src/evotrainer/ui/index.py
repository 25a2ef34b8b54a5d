"""All rollouts of a run, or of anybody's files, to filter and search: columns in DuckDB, texts where they lie.

Of a rollout the table holds what is filtered by; its place (unit, row in it) leads to its text. A stored part is read
once; a tail, which grows, again whenever it has grown. Gate and cert are never in it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import ConfigError, EvoTrainerError, StoreError
from evotrainer.harness.columns.source import RolloutSource, StoredRollouts
from evotrainer.importers.base import Skipped
from evotrainer.records.arrow_schema import arrow_schema
from evotrainer.records.frames import read_tail
from evotrainer.records.ingest import batches
from evotrainer.records.reading import PART_GLOB, TAIL
from evotrainer.records.rollout import GROUPED_BY, Rollout, Turn, turn_text
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.text import clean, clean_text
from evotrainer.studies.audit.units import part_groups

if TYPE_CHECKING:
    import pyarrow as pa

PLAIN = ("id", "task", "run", "branch", "policy", "split", "step", "seed", "group", "k", "attempt", "reward",
         "outcome", "finish", "tokens", "entropy", "advantage", "error_kind")  # fmt: skip
"""Columns that are read; `components` beside them."""
COMPONENTS = 64
"""Reward components that have a column, in the order in which they are found."""
BIG = 2**32
SPAN = 400
"""Letters of what a search found."""
AROUND = 80
"""Letters before and after it."""
STRETCH = 2048
"""Rollouts that are searched at once."""
MEMORY = "2GB"
OPERATORS = {"<": "<", "<=": "<=", "=": "=", ">=": ">=", ">": ">"}
SORTS = {
    "new": "written DESC, place DESC",
    "flagged": "flagged DESC, written DESC, place DESC",
    "spread": "high - low DESC NULLS LAST, place",
    "best": "mean DESC NULLS LAST, place",
    "worst": "mean NULLS LAST, place",
}
"""How groups are ordered."""
_SEALED = " OR ".join(f"starts_with(split, '{s}')" for s in SealedSplits.SPLITS)

Unit = tuple[str, str, int, Callable[[], Iterable[RolloutSource]]]
"""(key: changes with the content, where it is from, when its file was last written in ns, what opens it)"""


@dataclass(frozen=True, slots=True)
class RolloutFilter:
    """What is asked for; an empty field asks for nothing."""

    branch: str = ""
    split: str = ""
    step: str = ""
    """`10`, `10:20`, `10:` or `:20`"""
    task: str = ""
    outcome: str = ""
    finding: str = ""
    component: str = ""
    """`name>=0.5`"""
    source: str = ""

    def where(self, names: Sequence[str]) -> tuple[str, list[Any]]:
        """An SQL condition and its values; ConfigError for a step or component that says nothing. `names`: of the
        components that have a column."""
        parts, given = ["true"], []
        for name in ("branch", "split", "task", "outcome", "source"):
            if value := getattr(self, name):
                parts.append(f"{name} = ?")
                given.append(value)
        if self.step:
            low, colon, high = self.step.partition(":")
            if not all(x.isdecimal() and len(x) < 10 for x in (low, high) if x) or not (low or high):
                raise ConfigError(f"step {clean(self.step, 40)}: give a number, 10:20, 10: or :20")
            for sign, x in ((">=", low), ("<=", high if colon else low)):
                if x:
                    parts.append(f"step {sign} ?")
                    given.append(int(x))
        if self.component:
            found = re.fullmatch(r"\s*(.+?)\s*(<=|>=|=|<|>)\s*(-?\d+(?:\.\d+)?)\s*", self.component)
            if not found:
                raise ConfigError(f"component {clean(self.component, 60)}: give NAME>=NUMBER, with <, <=, =, >= or >")
            if found[1] not in names:
                there = ", ".join(map(clean, names)) or "none"
                raise ConfigError(f"no rollout has a component {clean(found[1], 60)!r}; there are: {there}")
            parts.append(f"c{names.index(found[1])} {OPERATORS[found[2]]} ?")
            given.append(float(found[3]))
        if self.finding:
            parts.append("name IN (SELECT name FROM flagged WHERE detector = ?)")
            given.append(self.finding)
        return " AND ".join(parts), given


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Groups that hold a rollout that is asked for: `total` rollouts, `groups` groups of them, one page of these."""

    total: int
    groups: int
    shown: list[list[dict[str, Any]]] = field(default_factory=list)
    """Every rollout of each group, by attempt; `asked`: is it one that was asked for?"""


class RolloutIndex:
    """The rollouts of units, which `units` lists anew; `findings` (name of a rollout, detector) likewise; `sealed`: are
    gate and cert left out? `claims`: (source, detector) -> what the finding says, where no run's ledger says it."""

    def __init__(
        self,
        units: Callable[[], Sequence[Unit]],
        findings: Callable[[], Sequence[tuple[str, str]]] = tuple,
        sealed: bool = True,
        claims: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        import duckdb

        self._units, self._findings, self._open = units, findings, f"NOT ({_SEALED})" if sealed else "true"
        self.claims = claims or {}
        self._lock = threading.RLock()
        self._known: dict[str, list[int]] = {}
        self._held: dict[int, RolloutSource] = {}
        self._flagged: Sequence[tuple[str, str]] | None = None
        self._next = 0
        self._names: list[str] = []
        self.unread: dict[str, str] = {}
        """Where something could not be read, and why."""
        self._db = duckdb.connect(config={"enable_external_access": "false", "threads": "2"})
        self._db.execute(f"SET python_enable_replacements=false; SET memory_limit='{MEMORY}'")
        self._db.execute(
            "CREATE TABLE rollout(place BIGINT, written BIGINT, name VARCHAR, task VARCHAR, branch VARCHAR,"
            " split VARCHAR, step BIGINT, seed BIGINT, grp UBIGINT, k BIGINT, reward DOUBLE,"
            " outcome VARCHAR, finish VARCHAR, tokens BIGINT,"
            " entropy DOUBLE, advantage DOUBLE, fault VARCHAR, source VARCHAR);"
            "CREATE TABLE flagged(name VARCHAR, detector VARCHAR)"
        )

    def refresh(self) -> None:
        """Take up what was stored since the last time."""
        with self._lock:
            units = {unit[0]: unit for unit in self._units()}
            for key in [k for k in self._known if k not in units]:
                for number in self._known.pop(key):
                    del self._held[number]
                    span = [number * BIG, (number + 1) * BIG]
                    self._db.execute("DELETE FROM rollout WHERE place >= ? AND place < ?", span)
            for key, (_, source, written, opens) in units.items():
                if key in self._known:
                    continue
                numbers = self._known[key] = []
                try:
                    for unit in opens():
                        self._held[self._next] = unit
                        numbers.append(self._next)
                        self._next += 1
                        self._take_up(numbers[-1], source, written, unit)
                    self.unread.pop(source, None)
                except EvoTrainerError as e:
                    self.unread[source] = str(e)
            flagged = list(self._findings())
            if flagged != self._flagged:
                self._flagged = flagged
                names = _table({"name": [n for n, _ in flagged], "by": [d for _, d in flagged]})
                self._db.register("given", names)
                self._db.execute('DELETE FROM flagged; INSERT INTO flagged SELECT DISTINCT name, "by" FROM given')
                self._db.unregister("given")

    def _take_up(self, number: int, source: str, written: int, unit: RolloutSource) -> None:
        first, grouped = number * BIG, ", ".join(f'"{x}"' for x in GROUPED_BY)
        self._db.register("given", _columns(unit))
        self._db.execute(
            f"""CREATE OR REPLACE TEMP TABLE part AS SELECT spot, c.name AS name, c.value AS value FROM
                  (SELECT spot, unnest(components) AS c FROM given WHERE {self._open}) WHERE isfinite(c.value)"""
        )
        for r in self._rows("SELECT DISTINCT name FROM part ORDER BY name"):
            if r["name"] not in self._names and len(self._names) < COMPONENTS:
                self._db.execute(f"ALTER TABLE rollout ADD COLUMN c{len(self._names)} DOUBLE")
                self._names.append(r["name"])
        values = "".join(f", max(value) FILTER (name = ?) AS c{i}" for i in range(len(self._names)))
        self._db.execute(
            f"""INSERT INTO rollout BY NAME SELECT {first} + spot AS place, {written} AS written,
                  coalesce(nullif(id, ''), task || '#' || k) AS name, task, branch, split, step, seed,
                  hash(?, CASE WHEN "group" <> '' THEN "group" ELSE concat_ws(chr(31), {grouped}) END) AS grp, k,
                  CASE WHEN isfinite(reward) THEN reward END AS reward, outcome, finish, tokens,
                  CASE WHEN isfinite(entropy) THEN entropy END AS entropy,
                  CASE WHEN isfinite(advantage) THEN advantage END AS advantage, error_kind AS fault, ? AS source,
                  paid.* EXCLUDE (spot)
                FROM given LEFT JOIN (SELECT spot{values} FROM part GROUP BY spot) AS paid USING (spot)
                WHERE {self._open}""",
            [source, source, *self._names],
        )
        self._db.unregister("given")

    # -- columns ---------------------------------------------------------------------------------------------------

    def _rows(self, sql: str, given: Sequence[Any] = ()) -> list[dict[str, Any]]:
        with self._lock:
            done = self._db.execute(sql, list(given))
            names = [d[0] for d in done.description]
            return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

    @property
    def n(self) -> int:
        """Rollouts in all."""
        return int(self._rows("SELECT count(*) AS n FROM rollout")[0]["n"])

    def values(self, name: str, most: int = 200) -> list[tuple[str, int]]:
        """The values of a column, each with its rollouts; of `component` and `finding` the names."""
        if name == "component":
            return [(n, 0) for n in sorted(self._names)]
        flagged = "SELECT detector AS v, count(*) AS n FROM flagged GROUP BY v"
        sql = (
            flagged if name == "finding" else f"SELECT {name} AS v, count(*) AS n FROM rollout WHERE v <> '' GROUP BY v"
        )
        return [(r["v"], r["n"]) for r in self._rows(f"SELECT * FROM ({sql}) ORDER BY v LIMIT {most}")]

    def count(self, asked: RolloutFilter) -> int:
        """Rollouts that are asked for."""
        where, given = asked.where(self._names)
        return int(self._rows(f"SELECT count(*) AS n FROM rollout WHERE {where}", given)[0]["n"])

    def find(self, asked: RolloutFilter, sort: str = "new", start: int = 0, most: int = 20) -> GroupPage:
        """One page of the groups that hold a rollout which is asked for."""
        where, given = asked.where(self._names)
        with self._lock:
            self._db.execute(
                "CREATE OR REPLACE TEMP TABLE hit AS SELECT grp, count(*) AS n, max(written) AS written, "
                "bool_or(name IN (SELECT name FROM flagged)) AS flagged, max(place) AS place, "
                "min(reward) AS low, max(reward) AS high, avg(reward) AS mean FROM rollout "
                f"WHERE {where} GROUP BY grp",
                given,
            )
            total = self._rows("SELECT coalesce(sum(n), 0) AS n, count(*) AS groups FROM hit")[0]
            listed = self._rows(f"SELECT grp FROM hit ORDER BY {SORTS[sort]} LIMIT ? OFFSET ?", [most, start])
            groups = [r["grp"] for r in listed]
            rows = self._rows(
                f"SELECT *, ({where}) AS asked, (SELECT list(DISTINCT detector ORDER BY detector) FROM flagged WHERE "
                "flagged.name = rollout.name) AS detectors FROM rollout WHERE grp IN (SELECT unnest(?::UBIGINT[])) "
                "ORDER BY k, place",
                [*given, groups],
            )
        found: dict[int, dict[str, dict[str, Any]]] = {g: {} for g in groups}
        for r in rows:  # an interrupted seal shows its rows twice
            found[r["grp"]].setdefault(r["name"], r)
        return GroupPage(int(total["n"]), int(total["groups"]), [list(g.values()) for g in found.values()])

    def group_of(self, name: str) -> list[dict[str, Any]]:
        """The rows of the group of the rollout with this name, or the one whose name begins so; empty: none."""
        name = name.rstrip("…")  # findings cut long names
        rows = self._rows("SELECT grp, name FROM rollout WHERE name = ? LIMIT 1", [name])
        if not rows and len(name) >= 4:
            begun = self._rows("SELECT DISTINCT grp, name FROM rollout WHERE starts_with(name, ?) LIMIT 2", [name])
            rows = begun if len(begun) == 1 else []
        if not rows:
            return []
        found = self._rows(
            "SELECT *, (SELECT list(DISTINCT detector ORDER BY detector) FROM flagged WHERE flagged.name = rollout.name"
            ") AS detectors FROM rollout WHERE grp = ? ORDER BY k, place LIMIT 512",
            [rows[0]["grp"]],
        )
        return list({r["name"]: r for r in reversed(found)}.values())[::-1]

    def curve(self, branch: str, seed: int) -> list[dict[str, float]]:
        """A training's curve by its stored train rollouts, under the names that trainers log."""
        of = "split = 'train' AND branch = ? AND seed = ?"
        rows = self._rows(
            f"""SELECT step, avg(reward) AS reward, avg(CASE outcome WHEN 'correct' THEN 1 WHEN 'incorrect' THEN 0 END)
                  AS score, avg(entropy) AS entropy, avg(tokens) AS "completions/mean_length"
                FROM rollout WHERE {of} AND fault IS NULL GROUP BY step ORDER BY step""",
            [branch, seed],
        )
        dead = self._rows(
            "SELECT step, avg(CASE WHEN flat THEN 1 ELSE 0 END) AS share FROM (SELECT step, max(reward) = min(reward) "
            f"AS flat FROM rollout WHERE {of} AND fault IS NULL AND reward IS NOT NULL GROUP BY step, grp) "
            "GROUP BY step",
            [branch, seed],
        )
        means = ", ".join(f"avg(c{i}) AS c{i}" for i in range(len(self._names)))
        parts = self._rows(
            f"SELECT step, {means or '1'} FROM rollout WHERE {of} AND fault IS NULL GROUP BY step", [branch, seed]
        )
        points = {r["step"]: {k: float(v) for k, v in r.items() if v is not None} for r in rows}
        for r in dead:
            points[r["step"]]["frac_reward_zero_std"] = float(r["share"])
        for r in parts:
            paid = {f"rewards/{n}/mean": r[f"c{i}"] for i, n in enumerate(self._names) if r[f"c{i}"] is not None}
            points[r["step"]] |= paid
        return list(points.values())

    # -- texts -----------------------------------------------------------------------------------------------------

    def rollouts(self, rows: Sequence[Mapping[str, Any]]) -> list[Rollout]:
        """Whole rollouts of some rows, in their order."""
        out: dict[int, Rollout] = {}
        places = [r["place"] for r in rows]
        for number in dict.fromkeys(p // BIG for p in places):
            with self._lock:
                unit = self._held.get(number)
            mine = [p for p in places if p // BIG == number]
            if unit is not None:
                out |= zip(mine, unit.rollouts([p % BIG for p in mine]), strict=True)
        return [out[p] for p in places if p in out]

    def search(
        self, text: str, asked: RolloutFilter, regex: bool = False
    ) -> Iterator[tuple[dict[str, Any], tuple[str, str, str]] | int]:
        """(row, what was found in its text with what stands before and after) of rollouts that are asked for, as they
        are found, the last written first; between them, how many were read. Expressions are those of
        RE2, whose time grows with the text alone."""
        matches = _matcher(text, regex)
        where, given = asked.where(self._names)
        units = self._rows(
            f"SELECT DISTINCT place // {BIG} AS u, written FROM rollout WHERE {where} ORDER BY written DESC, u DESC",
            given,
        )
        read = 0
        for number in (u["u"] for u in units):
            span = f"place >= {number * BIG} AND place < {(number + 1) * BIG}"
            mine = self._rows(f"SELECT * FROM rollout WHERE {where} AND {span} ORDER BY place DESC", given)
            unit = self._held.get(number)
            for some in (mine[a : a + STRETCH] for a in range(0, len(mine), STRETCH)):
                turns = unit.turns([r["place"] % BIG for r in some]) if unit else []
                texts = ["\n".join(_texts(t)) for t in turns]
                for i in matches(texts):
                    yield some[i], _span(texts[i], text, regex)
                read += len(some)
                yield read


def _texts(turns: Sequence[Turn]) -> Iterator[str]:
    for t in turns:
        yield turn_text(t)
        yield from (f"{c.name} {c.arguments}" for c in t.tool_calls)


def _matcher(text: str, regex: bool) -> Callable[[list[str]], list[int]]:
    """Which of some texts hold it; ConfigError where it is no expression."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match = pc.match_substring_regex if regex else pc.match_substring

    def found(texts: list[str]) -> list[int]:
        mask = match(pa.array([clean_text(t) for t in texts], pa.large_string()), text, ignore_case=True)
        return [i for i, hit in enumerate(mask.to_pylist()) if hit]

    try:
        found([""])
    except pa.ArrowInvalid as e:
        raise ConfigError(f"{clean(text, 80)!r} is no expression: {clean(str(e), 200)}") from None
    return found


def _span(whole: str, text: str, regex: bool) -> tuple[str, str, str]:
    """What was found in a text, as it stands there, between what stands before and after; empty where an expression
    matches nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not regex:
        hit = re.search(re.escape(text), whole, re.IGNORECASE)
        return _around(whole, hit[0], hit.start()) if hit else ("", text, "")
    got = pc.extract_regex(pa.array([clean_text(whole)], pa.large_string()), f"(?i)(?P<hit>{text})")[0].as_py()
    span = str(got["hit"])[:SPAN] if got else ""
    return _around(whole, span, whole.find(span)) if span else ("", "", "")


def _around(whole: str, hit: str, at: int) -> tuple[str, str, str]:
    if at < 0:
        return "", hit, ""
    end = at + len(hit)
    before, after = whole[max(0, at - AROUND) : at], whole[end : end + AROUND]
    return "…" * (at > AROUND) + before, hit, after + "…" * (end + AROUND < len(whole))


def _table(columns: Mapping[str, list[Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.table({k: pa.array(v, pa.string()) for k, v in columns.items()})


def _columns(unit: RolloutSource) -> pa.Table:
    """The columns of a unit as a table, with the places of its rows."""
    import pyarrow as pa

    wanted = [*PLAIN, "components"]
    if isinstance(unit, StoredRollouts):
        table = unit.asked(wanted)
    else:
        table = pa.Table.from_batches(batches(unit.rollouts(range(unit.n)))).select(wanted)
    return table.append_column("spot", pa.array(range(table.num_rows), pa.int64()))


# -- what there is to index --------------------------------------------------------------------------------------------


def run_units(folder: Path) -> list[Unit]:
    """Parts and tails of a run's train and search rollouts. Tails are looked at first: a seal in between shows its
    rows twice, and never not at all."""
    stores = sorted(f for f in (folder / "rollouts").glob("*") if f.is_dir())
    tails = [(f, f / TAIL) for f in stores]
    found: list[Unit] = []
    for store, tail in tails:
        with suppress(OSError):
            stat = tail.stat()
            key = f"{store.name}/{stat.st_mtime_ns}/{stat.st_size}"
            found.append((key, store.name, stat.st_mtime_ns, partial(_tail, tail)))
    for store in stores:
        for part in sorted(store.glob(PART_GLOB)):
            with suppress(OSError):
                written = part.stat().st_mtime_ns
                found.append((f"{store.name}/{part.name}", store.name, written, partial(_part, part)))
    return found


def _tail(path: Path) -> Iterator[RolloutSource]:
    import pyarrow as pa

    tail = read_tail(path)
    if complaint := tail.complaint():
        raise StoreError(complaint)
    if held := list(tail.batches()):
        yield StoredRollouts(pa.Table.from_batches(held, arrow_schema()).combine_chunks())


def _part(path: Path) -> Iterator[RolloutSource]:
    skipped: list[Skipped] = []
    yield from part_groups(path, skipped)
    if skipped:
        raise StoreError(skipped[0].reason)
