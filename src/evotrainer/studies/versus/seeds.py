"""One side of a comparison: the trainings (seeds) that its paths hold, read in whatever format they are in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.harness import Batch, Harness, HarnessContext
from evotrainer.harness.columns.numerics import Floats, group_means
from evotrainer.harness.columns.traits import Traits
from evotrainer.importers.base import Skipped
from evotrainer.records.findings import HealthReport
from evotrainer.records.output import Progress, line
from evotrainer.records.text import clean, counted
from evotrainer.studies.audit.curve import paid_weights, proxy_pair
from evotrainer.studies.audit.engine import SourceFiles, TemporaryFolder, open_all, sources_of, with_faults
from evotrainer.studies.audit.reading import batch_of, subjects_of, without_step
from evotrainer.studies.audit.trait_cache import read_traits
from evotrainer.studies.audit.units import OpenedSource
from evotrainer.studies.versus.trainings import FileRows, PathRows, UnknownColumnError, unmarked

NAMED = 5


@dataclass(frozen=True, slots=True)
class Selection:
    """How paths are read, and which of their rollouts are compared."""

    format: str | None = None
    map: Sequence[str] = ()
    faults: Sequence[str] = ()
    """Columns that make faults."""
    split: str | None = None
    policy: str | None = None
    steps: tuple[int, int] | None = None
    """First and last step that are read."""
    cache: Path | None = None
    workers: int | None = None
    seeds: str | None = None
    """What tells trainings of a path apart: one, file, folder or a column; None: found out."""


@dataclass(frozen=True, slots=True)
class SeedLog:
    """The rollouts of one training."""

    name: str
    path: str
    """To its files, as the user gave it."""
    batch: Batch
    health: HealthReport
    formats: tuple[str, ...]
    splits: frozenset[str]
    steps: tuple[int, int]
    skipped: tuple[Skipped, ...]

    @property
    def content(self) -> bytes:
        """What its rollouts hold, whatever their order and names."""
        b = self.batch
        order = np.lexsort((b.traits.solution, b.traits.keys["task"]))
        columns = (b.traits.keys["task"], b.traits.solution, b.reward, b.truth, b.trait("words"))
        return b"".join(np.ascontiguousarray(x[order]).tobytes() for x in columns)

    @property
    def faults(self) -> int:
        return self.batch.n_faults

    def by_task(self, values: Floats) -> dict[str, float]:
        """Task -> mean of what is known of its rollouts; tasks of which nothing is known are left out."""
        keys, code = np.unique(self.batch.traits.keys["task"], return_inverse=True)
        means = group_means(values, code, len(keys))
        return {str(k): float(m) for k, m in zip(keys.tolist(), means, strict=True) if np.isfinite(m)}

    def prompts(self, tasks: Sequence[str]) -> dict[str, str]:
        """Task key -> what the user says before the first answer to it; tasks without such a text are left out."""
        first = self._first()
        rows = [first[k] for k in tasks]
        asked = (
            " ".join(t.text for t in takewhile(lambda t: t.role != "assistant", turns) if t.role == "user")
            for turns in self.batch.turns(rows)
        )
        return {k: text for k, text in zip(tasks, asked, strict=True) if text.strip()}

    def _first(self) -> dict[str, int]:
        """Task key -> its first rollout."""
        first: dict[str, int] = {}
        for i, k in enumerate(self.batch.traits.keys["task"].tolist()):
            first.setdefault(str(k), i)
        return first

    def task_names(self, wanted: Sequence[str]) -> list[str]:
        """Names of tasks given by key."""
        first = self._first()
        rows = [first[k] for k in wanted if k in first]
        return [line(clean(t, 60)) for t in self.batch.column("task", rows)]


@dataclass(frozen=True, slots=True)
class SideLogs:
    """All trainings of one side."""

    seeds: tuple[SeedLog, ...]
    notes: tuple[str, ...] = ()
    unknown: str = ""
    """Why --seeds does not apply."""
    folder: TemporaryFolder | None = field(default=None, repr=False)
    """Where what was read lies when nothing is kept."""


def read_side(paths: Sequence[Path], wanted: Selection, side: str, say: Progress) -> SideLogs:
    """The trainings of a side; a path may hold several (`trainings`).

    Raises ConfigError for a path without a scored rollout, with several policies or splits, or given twice.
    """
    own = TemporaryFolder() if wanted.cache is None else None
    folder = own.path if own else wanted.cache
    assert folder is not None
    given: dict[tuple[str, ...], tuple[list[str], list[SourceFiles], list[Skipped]]] = {}
    for path in paths:
        sources, unknown = sources_of([path], wanted.format, wanted.map)
        sources = with_faults(sources, wanted.faults)
        # the files of one reading (a folder of completions_*.parquet) are read together, however they are named
        key = tuple(sorted({s.label for s in sources})) or (str(path),)
        names, held, strange = given.setdefault(key, ([], [], []))
        if any(Path(n).resolve() == path.resolve() for n in names):
            raise ConfigError(f"{path} is given twice as side {side}; a path is one training, give each once")
        names.append(str(path))
        held += sources
        strange += unknown
    harness = Harness.default()
    seeds: list[SeedLog] = []
    notes: list[str] = []
    missing = ""
    for i, (names, held, strange) in enumerate(given.values()):
        say(f"reading {names[0]}", i, len(given))
        found, note, why = _seeds(names, held, strange, wanted, folder, harness, say)
        seeds += found
        missing = missing or why
        notes += [f"{side}: {note}"] if note else []
        if strange:
            some = ", ".join(dict.fromkeys(Path(s.where).name for s in strange[:NAMED]))
            notes.append(f"{side}: {counted(len(strange), 'file')} without rollouts passed over: {clean(some, 160)}")
    _check_copies(seeds, side)
    return SideLogs(tuple(seeds), (*notes, *_notes(seeds, len(paths), side)), missing, own)


def _seeds(
    names: Sequence[str],
    held: Sequence[SourceFiles],
    strange: Sequence[Skipped],
    wanted: Selection,
    cache: Path,
    harness: Harness,
    say: Progress,
) -> tuple[list[SeedLog], str, str]:
    """(the trainings of a path, what was taken as what, why --seeds does not apply)."""
    whole, files = OpenedSource(), []
    for source in held:
        for place in source.paths:
            one = open_all(replace(source, paths=[place]), cache, wanted.workers, say)
            files.append(FileRows(place[0], source.label, source.importer, one.n))
            whole.parts += one.parts
            whole.skipped += one.skipped
    name = names[0] if len(names) == 1 else os.path.commonpath(names)
    if not whole.n:
        why = f": {skipped[0].reason}" if (skipped := [*strange, *whole.skipped]) else ""
        raise ConfigError(f"no rollout could be read of {name}{why}; evotrainer audit {names[0]} tells more")
    traits = read_traits(whole, cache, wanted.workers, say)
    rows, splits, policies = _chosen(name, whole, traits, wanted)
    path = PathRows(names, files, whole, traits, rows, policies)
    missing = ""
    try:
        trainings, note = path.trainings(wanted.seeds)
    except UnknownColumnError as e:
        trainings, note, missing = [(name, rows)], "", str(e)
    out: list[SeedLog] = []
    for training, mine in trainings:
        batch = batch_of(whole, traits, mine)
        if not batch.n:
            raise ConfigError(
                f"{training}: every rollout that is asked for is an infrastructure fault; nothing to compare"
            )
        step = np.nan_to_num(batch.trait("step"))
        context = HarnessContext(proxy=proxy_pair(batch), paid=paid_weights(batch))
        out.append(
            SeedLog(
                name=training,
                path=names[0],
                batch=batch,
                health=harness.read(batch, training, context),
                formats=tuple(sorted({s.importer.name for s in held})),
                splits=splits,
                steps=(int(step.min()), int(step.max())),
                skipped=tuple(whole.skipped) if not out else (),
            )
        )
    return out, note, missing


def _chosen(
    name: str, whole: OpenedSource, traits: Traits, wanted: Selection
) -> tuple[np.ndarray, frozenset[str], np.ndarray]:
    """(rows, their splits, policy of each row); ConfigError where they are of several splits or policies, names that
    differ in a seed alone being one."""
    # greedy attempts beside sampled ones are a second reading of them
    parts = [np.arange(traits.n) if rows is None else rows for _, rows in subjects_of(traits)]
    rows = np.sort(np.concatenate(parts)) if parts else np.arange(0)
    splits = _labels(whole, rows, "split")
    policies = np.array([without_step(p) for p in _labels(whole, rows, "policy")], dtype=object)
    branches = _labels(whole, rows, "branch")
    if any(branches):  # a run of ours names its policies by branch and step
        policies = branches
    kept = np.ones(len(rows), dtype=bool)
    lost = traits.fault.code[rows] >= 0  # what was lost may name no policy
    for option, asked, values in (("split", wanted.split, splits), ("policy", wanted.policy, policies)):
        if asked is not None:
            named = np.array([unmarked(v) for v in values], dtype=object) if option == "policy" else values
            if not ((values == asked) | (named == asked)).any():
                there = ", ".join(sorted({v or "(none)" for v in values})[:NAMED])
                raise ConfigError(f"--{option} {asked}: {name} has no rollout of it; it has {there}")
            kept &= (values == asked) | (named == asked) | ((values == "") & lost)
    if wanted.steps is not None:
        step = np.nan_to_num(traits.columns["step"].astype(float))[rows]
        kept &= (step >= wanted.steps[0]) & (step <= wanted.steps[1])
        if not kept.any():
            raise ConfigError(f"--steps: {name} has no rollout of these steps; it has {step.min():g} to {step.max():g}")
    for option, values in (("split", splits[kept]), ("policy", policies[kept])):
        found = sorted({v for v in values if v})
        if len({unmarked(v) if option == "policy" else v for v in found}) > 1:
            some = ", ".join(found[:NAMED]) + (", ..." if len(found) > NAMED else "")
            raise ConfigError(f"{name} holds rollouts of several {_MANY[option]}: {some}; choose one with --{option}")
    return rows[kept], frozenset(splits[kept]), policies[kept]


_MANY: Mapping[str, str] = {"split": "splits", "policy": "policies"}


def _labels(whole: OpenedSource, rows: np.ndarray, column: str) -> np.ndarray:
    return np.array([str(x or "") for x in whole.column(column, rows.tolist())], dtype=object)


def _check_copies(seeds: Sequence[SeedLog], side: str) -> None:
    """ConfigError where two trainings hold the same rollouts: copies look like trainings without any noise."""
    seen: dict[bytes, str] = {}
    for s in seeds:
        if (other := seen.setdefault(s.content, s.name)) != s.name:
            raise ConfigError(f"{other} and {s.name} of side {side} hold the same rollouts; give each training once")


def _notes(seeds: Sequence[SeedLog], paths: int, side: str) -> list[str]:
    out = []
    if len(seeds) < paths:
        out.append(
            f"{paths} paths of {side} are {counted(len(seeds), 'training')}: files of one folder that are read as one; "
            "where each is a training of its own: --seeds file"
        )
    for s in seeds:
        if s.skipped:
            out.append(f"{s.name}: {len(s.skipped):,} records not read: {clean(s.skipped[0].reason, 160)}")
    if courses := [s for s in seeds if s.steps[0] < s.steps[1]]:
        steps = ", ".join(dict.fromkeys(f"{s.steps[0]} to {s.steps[1]}" for s in courses))
        out.append(
            f"{side} holds steps {steps}: the course of a training is compared, not the policy at its end; choose with "
            "--steps FIRST-LAST"
        )
    return out
