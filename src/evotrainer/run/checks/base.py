"""What a check before a run is: one row, which looks at the run that is about to begin and yields what it found."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, NamedTuple

from evotrainer.config.bases import resolve_base
from evotrainer.config.task import TaskFile
from evotrainer.errors import EvoTrainerError, MissingDependencyError
from evotrainer.records.hub import looks_like_id
from evotrainer.records.output import DOING, print
from evotrainer.records.recipe import Recipe
from evotrainer.trainers import check_installed

if TYPE_CHECKING:
    from evotrainer.agents.base import Agent
    from evotrainer.envs.base import Environment

SLOW_S = 5.0
"""Seconds after which a check is announced; EVOTRAINER_SLOW_S: others."""
Found = Iterator[str | EvoTrainerError]
"""What a check finds: a note is text; an error refuses the run, yielded (the check goes on) or raised (it ends)."""


OWN = ("python:", "trl:", "trl-rewards:")
"""Beginnings of names of environments that are a user's own: shipped ones check their tasks themselves."""


@dataclass
class BeforeRun:
    """What checks look at. `agent`, `children` and `environment` are there once the check that makes them passed."""

    task: TaskFile
    new: bool = True
    """False: a run that began is taken up again, whatever would be refused today."""
    folder: Path | None = None
    """Of the new run, where it is known."""
    human: bool | None = None
    """Can a person be asked? None: not known."""
    dry: bool = False
    """Nothing is run after the checks."""
    agent: Agent | None = None
    children: Sequence[Recipe] = ()
    """Recipes of branches that are known already."""
    opened: Environment | None = None

    @property
    def environment(self) -> Environment:
        assert self.opened is not None
        return self.opened

    @property
    def own(self) -> bool:
        """Is the environment the user's own?"""
        return bool(self.task.environment["name"].startswith(OWN))

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """The starting recipe, and those of branches that are known already."""
        return (self.task.recipe, *self.children)

    @property
    def chain(self) -> list[Recipe]:
        """All of them, with what they go on from."""
        return [r for x in self.recipes for r in x.chain]

    @property
    def splits(self) -> dict[str, int]:
        """Split -> its tasks."""
        return dict(self.environment.describe()["splits"])

    @property
    def base(self) -> Path | None:
        """Folder of the base policy; None: it is made by a warm start."""
        return resolve_base(self.task.policy.base)

    @property
    def lacks(self) -> bool:
        """Is a library of the trainer missing?"""
        try:
            check_installed(self.task.trainer.name)
        except MissingDependencyError:
            return True
        return False

    @property
    def fetched(self) -> bool:
        """Would a base policy be downloaded that cannot be trained here? Nobody waits for that."""
        base = self.task.policy.base
        return self.lacks and bool(looks_like_id(base)) and not Path(base).expanduser().exists()


class RunCheck(NamedTuple):
    """A row of the registry."""

    name: str
    find: Callable[[BeforeRun], Found | None]
    needs: str = ""
    """Names of checks that must have been made and have refused nothing."""
    of: str = "new"
    """new: asked of new runs alone. any: of one that is taken up again as well."""
    doing: str = ""
    """What is announced where it takes long; `{task}` stands for the task file."""


def attempt(check: Callable[..., Any], *args: Any) -> Iterator[EvoTrainerError]:
    """The error with which a function refuses its arguments, if it does."""
    try:
        check(*args)
    except EvoTrainerError as e:
        yield e


def walk(checks: Sequence[RunCheck], at: BeforeRun, first: Sequence[str] = ()) -> list[str]:
    """Make the checks in their order; returns the notes. Raises the first error with the messages of all others, a
    missing library last, the notes attached: who corrects one need not come back for the next. Checks named in `first`
    end the walk at once.
    """
    notes: list[str] = []
    errors: dict[str, EvoTrainerError] = {}  # by message: one cause may stop several checks
    passed: set[str] = set()
    for row in checks:
        if (row.of == "new" and not at.new) or not set(row.needs.split()) <= passed:
            continue
        refused = False
        with announce_if_slow(row.doing.format(task=at.task)):
            try:
                for found in row.find(at) or ():
                    if isinstance(found, str):
                        notes.append(found)
                        continue
                    errors.setdefault(str(found), found)
                    refused = True
            except EvoTrainerError as e:
                errors.setdefault(str(e), e)
                refused = True
        if not refused:
            passed.add(row.name)
        elif row.name in first:
            break
    if not errors:
        return notes
    in_order = sorted(errors.values(), key=lambda e: isinstance(e, MissingDependencyError))
    error = in_order[0]
    error.args = ("\n  also: ".join(map(str, in_order)),)
    for note in notes:
        error.add_note(note)
    raise error


@contextmanager
def announce_if_slow(what: str) -> Iterator[None]:
    """A line on standard error where something takes long: nobody waits in silence while libraries load."""
    if not what:
        yield
        return
    asked = os.environ.get("EVOTRAINER_SLOW_S", "")
    seconds = float(asked) if asked.replace(".", "", 1).isdecimal() else SLOW_S
    timer = Timer(seconds, print, (f"evotrainer: {what} ...",), {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    DOING.append(what)
    try:
        yield
    finally:
        DOING.pop()
        timer.cancel()
