"""Canaries of grading: an attempt that is known to be wrong and one that is known to be right,
graded together with the policy's.

Grades are given out only after a canary that follows them came out as it must. One that does not (it flipped) makes
void what was graded since the last good one: no attempt is paid for what another one left in the grader. The attempts
are then graded again one by one, each with a canary of its own, and the one after which a canary flips stays void.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from evotrainer.envs.swe.instances import InstanceRepo
from evotrainer.envs.swe.world import Grade
from evotrainer.errors import SandboxError
from evotrainer.sandbox.shell import Entry

EVERY = 32
"""Gradings between two canaries."""
_TRIES = 3
"""Repositories of unknown soundness that are tried as a canary at once."""


class WatchedRepository(Protocol):
    """A world whose grading is watched."""

    def open(self, repo: Any, knobs: Mapping[str, Any]) -> Any: ...

    def put(self, handle: Any, files: Mapping[str, Entry | None]) -> None: ...

    def close(self, handle: Any) -> None: ...

    def grade_unwatched(self, handles: Sequence[Any]) -> list[Grade]: ...

    def renew(self) -> None:
        """Give up every machine that a grading used."""
        ...


class CanaryGrader:
    """Grades in chunks between canaries."""

    def __init__(self, world: WatchedRepository, every: int = EVERY) -> None:
        self._world = world
        self._every = every
        self._sound: set[str] = set()
        self._unsound: set[str] = set()
        self._repo: InstanceRepo | None = None
        """Repository of the last canary that was right."""
        self._right = False
        """Was the last canary right?"""
        self._nothing: dict[str, Mapping[str, bool]] = {}
        """What passed with nothing mended, at the first canary of an instance."""
        self._random = random.SystemRandom()  # an attempt cannot tell which repository it has to spare
        self.gradings = 0
        """Gradings of canaries, two for each."""

    def trust(self, ids: Collection[str]) -> None:
        """Admission found these instances sound: a canary of theirs that comes out wrong has flipped."""
        self._sound |= set(ids)

    def grade(self, handles: Sequence[Any]) -> list[Grade]:
        """Grades in the order of the attempts. There is no canary where no given instance is known or found sound."""
        out: list[Grade] = []
        for at in range(0, len(handles), self._every):
            chunk = handles[at : at + self._every]
            try:
                out += self._chunk(chunk)
            except SandboxError as error:
                out += self._void(chunk, f"it could not be graded: {error}")
        return out

    def _chunk(self, handles: Sequence[Any]) -> list[Grade]:
        if not self._right and (wrong := self._opening(handles)):
            return self._void(handles, wrong)
        grades = self._world.grade_unwatched(handles)
        if not self._right:
            return grades
        self._repo = repo = self._pick(handles)
        if not (wrong := self._flipped(repo)):
            return grades
        self._world.renew()
        return self._void(handles, wrong) if self._flipped(repo) else self._one_by_one(handles, wrong)

    def _opening(self, handles: Sequence[Any]) -> str:
        """What is wrong about a first canary; empty where nothing is, or where no repository at hand can be one."""
        repos = {h.repo.id: h.repo for h in handles if h.repo.id not in self._unsound}
        for repo in [self._repo] if self._repo else [*repos.values()][:_TRIES]:
            if not (wrong := self._flipped(repo)):
                self._sound.add(repo.id)
                self._repo, self._right = repo, True
                return ""
            if repo.id in self._sound:
                return wrong
            self._unsound.add(repo.id)
        return ""

    def _pick(self, handles: Sequence[Any]) -> InstanceRepo:
        known = [h.repo for h in handles if h.repo.id in self._sound]
        assert self._repo is not None
        return self._random.choice(known) if known else self._repo

    def _flipped(self, repo: InstanceRepo) -> str:
        """What is wrong about the canary of a repository; empty where nothing is. SandboxError."""
        self.gradings += 2
        nothing, fix = self._attempt(repo, {}), self._attempt(repo, repo.fix)
        failed = [i for i, good in fix.hidden.items() if not good]
        if fault := nothing.fault or fix.fault:
            raise SandboxError(fault)
        before = self._nothing.setdefault(repo.id, nothing.hidden)
        passed = [i for i, good in nothing.hidden.items() if good and not before[i]]
        if passed or all(nothing.hidden.values()):
            return f"{repo.id} passes with nothing mended ({', '.join(passed[:1]) or 'every test'})"
        return f"{repo.id} fails with its reference fix ({failed[0]})" if failed else ""

    def _attempt(self, repo: InstanceRepo, change: Mapping[str, Entry | None]) -> Grade:
        handle = self._world.open(repo, {})
        try:
            self._world.put(handle, change)
            return self._world.grade_unwatched([handle])[0]
        finally:
            self._world.close(handle)

    def _one_by_one(self, handles: Sequence[Any], wrong: str) -> list[Grade]:
        """Every attempt again, with a canary after it; what cannot be graded any more is void."""
        out: list[Grade] = []
        for n, handle in enumerate(handles):
            grade = self._world.grade_unwatched([handle])[0]
            repo = self._pick([handle])
            if not (again := self._flipped(repo)):
                out.append(replace(grade, flip={"flip": wrong, "fate": "graded again"}))
                continue
            out.append(_void(again, "culprit"))
            self._world.renew()
            if self._flipped(repo):
                return [*out, *self._void(handles[n + 1 :], again)]
        return out

    def _void(self, handles: Sequence[Any], wrong: str) -> list[Grade]:
        """The grader is broken: the environment must be opened again before anything is graded."""
        self._world.renew()
        self._right = False
        return [_void(wrong, "void") for _ in handles]


def _void(wrong: str, fate: str) -> Grade:
    fault = f"a grading canary flipped: {wrong}; what was graded since the last good canary is void"
    return Grade({}, {}, False, (), "", fault, flip={"flip": wrong, "fate": fate})
