"""Which tests of an instance are graded across the boundary, found once with the reference fix,
never by a policy's patch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from evotrainer.envs.swe.boundary import BoundaryRun, CheckoutParts, cross, parted
from evotrainer.envs.swe.instances import InstanceRepo
from evotrainer.envs.swe.test_commands import TestCommand, passed
from evotrainer.sandbox.shell import Entry, EpisodeShell

Files = Mapping[str, Entry]
MAX_KEPT = 100_000
"""Places of one instance; with more of them nothing is graded across the boundary."""


@dataclass(frozen=True, slots=True)
class Guard:
    """`ids` pass across the boundary with the reference fix (and fail there without it where they must)."""

    ids: frozenset[str] = frozenset()
    decided: frozenset[str] = frozenset()
    """Those in which objects of the code under test decide something: their own `==`, order, arithmetic."""
    places: frozenset[str] = frozenset()
    """Where they do; nowhere else are they believed."""

    def as_json(self) -> dict[str, list[str]]:
        """JSON-able; `Guard.read` makes it a guard again."""
        return {"ids": sorted(self.ids), "decided": sorted(self.decided), "places": sorted(self.places)}

    @classmethod
    def read(cls, kept: Any) -> Guard | None:
        """None for what `kept` did not make."""
        names = ("ids", "decided", "places")
        if not isinstance(kept, dict) or not all(isinstance(kept.get(n), list) for n in names):
            return None
        return cls(*(frozenset(map(str, kept[n])) for n in names))


class GuardedRepository(Protocol):
    """What is needed of a world."""

    command: TestCommand

    def base(self, repo: InstanceRepo) -> Files: ...

    def graded_files(
        self, repo: InstanceRepo, base: Files, left: Files
    ) -> tuple[dict[str, Entry], tuple[str, ...]]: ...

    def test_paths(self, repo: InstanceRepo, files: Files) -> list[str]: ...


class Guards:
    """Guards by instance. `shells`: two shells that hold these files, of which no policy's code ran in the first."""

    def __init__(
        self, world: GuardedRepository, shells: Callable[[Files, Files], tuple[EpisodeShell, EpisodeShell]]
    ) -> None:
        self._world = world
        self._shells = shells
        self._known: dict[str, Guard] = {}

    def keep(self, instance: str, guard: Guard) -> None:
        """Found by an earlier run."""
        self._known[instance] = guard

    def forget(self, instance: str) -> None:
        """Try it again when it is next asked for."""
        self._known.pop(instance, None)

    def of(self, repo: InstanceRepo) -> Guard:
        """Tried where it is not known: three runs of the tests. SandboxError."""
        if repo.id not in self._known:
            self._known[repo.id] = self._found(repo)
        return self._known[repo.id]

    def _found(self, repo: InstanceRepo) -> Guard:
        if self._world.command.kind not in ("pytest", "unittest"):
            return Guard()
        base = self._world.base(repo)
        after = {p: e for p, e in {**base, **repo.fix}.items() if e is not None}
        fixed, _ = self._world.graded_files(repo, base, after)
        ids = frozenset((*repo.fail_to_pass, *repo.pass_to_pass))
        noted = self.run(repo, fixed, ids, None)
        good = {i for i in ids if passed(noted.results, i)}
        if not good or len(noted.places) > MAX_KEPT:
            return Guard()
        again = self.run(repo, fixed, good, noted.places)
        before = self.run(repo, self._world.graded_files(repo, base, base)[0], good, noted.places)
        good = {i for i in good if passed(again.results, i)}
        good -= {i for i in repo.fail_to_pass if passed(before.results, i)}
        decided = {i for i in good if passed(dict.fromkeys(noted.decided, True), i)}
        return Guard(frozenset(good), frozenset(decided), noted.places)

    def run(self, repo: InstanceRepo, files: Files, ids: Collection[str], places: frozenset[str] | None) -> BoundaryRun:
        """These tests of the instance across the boundary, with the code of `files`. SandboxError."""
        sides = replace(self.sides(repo, files), only=frozenset(ids))
        tests, solution = self._shells(sides.tests, sides.solution)
        return cross(tests, solution, sides, self._world.command, places)

    def sides(self, repo: InstanceRepo, files: Files) -> CheckoutParts:
        base = self._world.base(repo)
        trusted = {p: e for p, e in {**base, **repo.tests}.items() if e is not None and e.kind in ("f", "l")}
        served = [p for p, e in {**base, **repo.fix}.items() if e is not None]
        return parted(trusted, files, served, repo.is_test, self._world.test_paths(repo, files))
