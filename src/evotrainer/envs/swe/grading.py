"""What every world's grader does alike: which files it takes from the policy, and when it calls the tests passed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evotrainer.envs.swe.control import is_control
from evotrainer.envs.swe.world import Repo, TestResult


def taken(repo: Repo, path: str) -> bool:
    """Does grading take this file from the policy? Not tests with the repository's names, nor control files."""
    return path not in repo.visible and path not in repo.hidden and not is_control(path)


def graded_texts(repo: Repo, base: Mapping[str, str], tree: Mapping[str, str]) -> dict[str, str]:
    """The texts that are graded: the policy's, the base's control files, the repository's own visible tests."""
    kept = {p: t for p, t in tree.items() if taken(repo, p)}
    return kept | {p: t for p, t in base.items() if is_control(p)} | dict(repo.visible)


def control_changed(base: Mapping[str, str], tree: Mapping[str, str]) -> tuple[str, ...]:
    """Control files that the policy added, changed or removed, sorted."""
    return tuple(sorted(p for p in {*base, *tree} if is_control(p) and base.get(p) != tree.get(p)))


def own_visible(repo: Repo, results: Iterable[TestResult]) -> bool:
    """Do the repository's visible test files pass as they stand: at least one test, no failure?

    Test files that the policy added do not count, neither for it nor against it.
    """
    found = [not r.error for r in results if r.path in repo.visible]
    return bool(found) and all(found)
