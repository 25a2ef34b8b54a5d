"""Which trainings a path holds. Names of files, folders and policies, and columns, tell; what may as well be a second
evaluation, a shard or a resumed run is taken as one training, and said."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from evotrainer.errors import ConfigError
from evotrainer.harness.columns.traits import Traits
from evotrainer.importers.base import Importer, format_of
from evotrainer.importers.forms import FORMS, base_name
from evotrainer.records.output import line
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import clean, counted
from evotrainer.studies.audit.units import OpenedSource

MARK = re.compile(
    r"(?<![a-z0-9])(?:(seed|run|trial|rep|repeat|replicate)s?[ _=/-]?(\d{1,10})|(s)(\d{1,3}))(?![a-z0-9]|\.\d)", re.I
)
"""`seed_1`, `run-2`, `s3` in a name."""
COLUMNS = ("training", "train_seed", "seed", "run", "run_id", "trial", "trial_id", "replicate")
"""Columns that may name a training: fields of a rollout, or what a record has besides."""
MOST = 64
"""Trainings of one path; more names are names of something else."""
SHARED = 0.5
"""Share of a path's tasks that each of its trainings exceeds: shards hold other tasks."""
SHOWN = 5
ONE, FILE, FOLDER = "one", "file", "folder"
"""Values of --seeds; any other is a column."""
Values = np.ndarray
"""A text a row."""


class UnknownColumnError(ConfigError):
    """No rollout has the column that --seeds names."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """A file of a path, the reading it belongs to, and how many rollouts are its."""

    path: Path
    reading: str
    importer: Importer
    n: int


@dataclass(frozen=True, slots=True)
class Clue:
    """What may tell trainings apart. `option`: the value of --seeds that takes it for certain."""

    what: str
    values: Values
    option: str = ""
    sure: bool = True

    @property
    def label(self) -> str:
        return f"{self.what} " if self.option else ""


def marks(name: str) -> str:
    """What a name says of seeds: `new/seed_1/run2.jsonl` -> `seed 1, run 2`."""
    found = MARK.finditer(name)
    return ", ".join(f"{(m[1] or m[3]).lower()} {int(m[2] or m[4])}" for m in found)


def unmarked(name: str) -> str:
    """A name without what it says of seeds."""
    return MARK.sub("", name)


@dataclass(frozen=True)
class PathRows:
    """The rollouts of a path that are compared."""

    given: Sequence[str]
    files: Sequence[FileRows]
    whole: OpenedSource
    traits: Traits
    rows: np.ndarray
    policies: Values

    @property
    def name(self) -> str:
        return self.given[0] if len(self.given) == 1 else os.path.commonpath(self.given)

    @cached_property
    def file(self) -> np.ndarray:
        """Number of a row's file."""
        return np.repeat(np.arange(len(self.files)), [f.n for f in self.files])[self.rows]

    @cached_property
    def steps(self) -> np.ndarray:
        return np.nan_to_num(self.traits.columns["step"].astype(float))[self.rows]

    @cached_property
    def tasks(self) -> np.ndarray:
        return self.traits.keys["task"][self.rows]

    @cached_property
    def columns(self) -> list[str]:
        """What the first record of each file has besides the fields of a rollout."""
        first = self.rows[np.unique(self.file, return_index=True)[1]]
        return sorted({k for d in self.whole.column("detail", first.tolist()) for k in d})

    def trainings(self, asked: str | None) -> tuple[list[tuple[str, np.ndarray]], str]:
        """(name, rows) of each, and what was taken as what, "" where nothing was open. `asked`: --seeds.

        UnknownColumnError where no rollout has the column that was asked for.
        """
        if asked == ONE:
            return [(self.name, self.rows)], ""
        chosen = self._found() if asked is None else self._asked(asked)
        if isinstance(chosen, str):
            return [(self.name, self.rows)], chosen
        found = [(v, chosen.values == v) for v in _sorted(chosen.values)]
        places = [f.reading if Path(f.reading).is_dir() else str(f.path) for f in self.files]
        own = [os.path.commonpath([places[i] for i in np.unique(self.file[mine])]) for _, mine in found]
        if len(set(own)) < len(own):
            own = [f"{self.name} ({chosen.label}{v})" for v, _ in found]
        told = f"{self.name} is {counted(len(own), 'training')}, told apart by {chosen.what} ({_some(chosen.values)})"
        note = told + ("" if asked else f"; if they are one training: --seeds {ONE}")
        return [(n, self.rows[mine]) for n, (_, mine) in zip(own, found, strict=True)], note

    def _asked(self, option: str) -> Clue:
        if option == FILE:
            return self._by_file(FILE, [str(f.path) for f in self.files], FILE)
        if option == FOLDER:
            return self._by_file(FOLDER, [str(f.path.parent) for f in self.files], FOLDER)
        values = self._values(option)
        if values is None:
            raise UnknownColumnError(
                f"--seeds {option}: no rollout of {self.name} has it; give {ONE}, {FILE}, {FOLDER}, seed, run or a "
                f"column ({', '.join(self.columns[:12])})"
            )
        return Clue(option, values, option)

    def _found(self) -> Clue | str:
        """What tells trainings apart, or what leaves that open."""
        clues = [c for c in self._clues() if self._apart(c.values)]
        sure = [c for c in clues if c.sure]
        both = [", ".join(filter(None, x)) for x in zip(*(c.values for c in sure), strict=True)]
        if len(set(both)) > max((len(set(c.values)) for c in sure), default=0) and self._apart(np.array(both, object)):
            return Clue(" and ".join(c.what for c in sure), np.array(both, object))
        if sure:
            return max(sure, key=lambda c: len(set(c.values)))
        return next((self._open(c) for c in clues), "")

    def _open(self, c: Clue) -> str:
        return (
            f"{self.name} is taken as one training: whether each {c.what} ({_some(c.values)}) is one, and not another "
            f"evaluation of the same policy, cannot be known; if so: --seeds {c.option}"
        )

    def _clues(self) -> Iterator[Clue]:
        """The surest first."""
        for column in COLUMNS:
            if (values := self._values(column)) is not None:
                yield Clue(column, values, column, self._names_trainings(column, values))
        names = [marks(self._inside(f)) for f in self.files]
        # three runs of an evaluation are called so, too; only a training's rollouts have steps
        if self.steps.any() or any(part.split()[0] in ("seed", "s") for n in names if n for part in n.split(", ")):
            yield self._by_file("names of files", names)
        yield Clue("names of policies", _filled(np.array([marks(p) for p in self.policies], dtype=object)))
        whole = all(format_of(f.importer).one_reading(f.path) is not None for f in self.files)
        readings = [f.reading if whole else str(f.path.parent) for f in self.files]
        yield self._by_file(FOLDER, readings, FOLDER, sure=whole and bool(self.steps.any()))
        yield self._by_file(FILE, [str(f.path) for f in self.files], FILE, sure=False)

    def _names_trainings(self, column: str, values: Values) -> bool:
        """Not where each value has one attempt at a task, as seeds of sampling have, nor the run of an evaluation."""
        places = set(zip(values, self.tasks.tolist(), self.steps.tolist(), strict=True))
        plain = all(base_name(f.importer.name) in ("jsonl", "table") for f in self.files)
        return len(places) < len(self.rows) and (not column.startswith("run") or plain or bool(self.steps.any()))

    def _values(self, column: str) -> Values | None:
        """Of a field of a rollout that varies, or of a column that its record has besides."""
        rows = self.rows.tolist()
        if column in {f.name for f in fields(Rollout)}:
            values = np.array(["" if x is None else str(x) for x in self.whole.column(column, rows)], dtype=object)
            if len(set(values)) > 1:
                return values
        if column not in self.columns:
            return None
        return np.array([str(d.get(column, "")) for d in self.whole.column("detail", rows)], dtype=object)

    def _by_file(self, what: str, values: Sequence[str], option: str = "", sure: bool = True) -> Clue:
        return Clue(what, np.array(values, dtype=object)[self.file], option, sure)

    def _inside(self, f: FileRows) -> str:
        """A file's name below the path, without the name that its tool gave it."""
        root = Path(self.name) if Path(self.name).is_dir() else Path(self.name).parent
        form = FORMS.get(base_name(f.importer.name))
        return os.path.relpath(f.path.parent if form and form.benchmark else f.path, root)

    def _apart(self, values: Values) -> bool:
        """May these be several trainings: of the same tasks, and of steps that do not follow one another?"""
        names, code = np.unique(values, return_inverse=True)
        if not 2 <= len(names) <= MOST:
            return False
        least = SHARED * len(np.unique(self.tasks))
        each = [(np.unique(self.tasks[code == i]), self.steps[code == i]) for i in range(len(names))]
        return all(len(t) > least for t, _ in each) and max(s.min() for _, s in each) <= min(s.max() for _, s in each)


def _filled(values: Values) -> Values:
    """What was lost names no policy: it has that of the row before."""
    known = np.flatnonzero(values != "")
    if not len(known):
        return values
    return values[known[np.maximum(np.searchsorted(known, np.arange(len(values)), "right") - 1, 0)]]


def _sorted(values: Values) -> list[str]:
    """Each once, numbers by their size."""
    return sorted(
        set(values), key=lambda v: [(int(x), "") if x.isdecimal() else (-1, x) for x in re.split(r"(\d+)", v)]
    )


def _some(values: Values) -> str:
    names = _sorted(values)
    return ", ".join(line(clean(v, 40)) for v in names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
