"""Reward components of repository tasks: each a function of one graded episode. None: does not apply, never 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evotrainer.envs.swe.world import CHANGING, Grade, Observation, ParsedAction, Repo

FULL_TURNS = 12
"""Turns at which brevity is 0."""


@dataclass(frozen=True, slots=True)
class SweRewardInput:
    """What a component sees: the repository, what was done, and how it stands."""

    repo: Repo
    actions: Sequence[ParsedAction]
    observations: Sequence[Observation]
    grade: Grade
    submitted: bool

    def passed(self, ids: Sequence[str]) -> float | None:
        """Share of hidden tests that pass."""
        return sum(self.grade.hidden.get(i, False) for i in ids) / len(ids) if ids else None


Component = Callable[[SweRewardInput], float | None]


def hidden(a: SweRewardInput) -> float | None:
    """1 when the episode was submitted and every hidden test passes."""
    return float(a.submitted and f2p_frac(a) == 1.0 and p2p_frac(a) in (None, 1.0))


def visible(a: SweRewardInput) -> float | None:
    """1 when the episode was submitted and the repository's tests pass as the policy left them."""
    return float(a.submitted and a.grade.own_visible)


def f2p_frac(a: SweRewardInput) -> float | None:
    """Share of the hidden tests that failed before and pass now."""
    return a.passed(a.repo.fail_to_pass)


def p2p_frac(a: SweRewardInput) -> float | None:
    """Share of the hidden tests that passed before and still do."""
    return a.passed(a.repo.pass_to_pass)


def visible_frac(a: SweRewardInput) -> float | None:
    """Share of the repository's own tests that pass, with its own test files put back."""
    tests = a.grade.visible
    return sum(tests.values()) / len(tests) if tests else None


def progress(a: SweRewardInput) -> float | None:
    """Hidden tests mended minus hidden tests broken, as shares; at least 0."""
    mended, kept = f2p_frac(a), p2p_frac(a)
    broken = 0.0 if kept is None else 1.0 - kept
    return max(0.0, (mended or 0.0) - broken)


def submitted(a: SweRewardInput) -> float | None:
    """1 when the episode ended with submit."""
    return float(a.submitted)


def tested(a: SweRewardInput) -> float | None:
    """1 when tests ran after the last edit, before submit; None without an edit."""
    edits = [i for i, (x, o) in enumerate(zip(a.actions, a.observations, strict=True)) if x.tool in CHANGING and o.ok]
    if not edits:
        return None
    return float(any(x.tool == "test" for x in a.actions[edits[-1] :]))


def no_tool_errors(a: SweRewardInput) -> float | None:
    """Share of the actions that worked."""
    return sum(o.ok for o in a.observations) / len(a.observations) if a.observations else None


def located(a: SweRewardInput) -> float | None:
    """1 when some edit touched a file that the fix changes."""
    return float(any(x.path in a.repo.gold for x, o in zip(a.actions, a.observations, strict=True) if _edit(x, o)))


def edited(a: SweRewardInput) -> float | None:
    """1 when some edit worked."""
    return float(any(_edit(x, o) for x, o in zip(a.actions, a.observations, strict=True)))


def tests_kept(a: SweRewardInput) -> float | None:
    """1 when the repository's test files are as they were."""
    return float(not a.grade.tests_changed)


def brevity(a: SweRewardInput) -> float | None:
    """1 minus turns over 12, at least 0; 0 where nothing was submitted."""
    return max(0.0, 1.0 - len(a.actions) / FULL_TURNS) if a.submitted else 0.0


def _edit(action: ParsedAction, observation: Observation) -> bool:
    return action.tool in CHANGING and observation.ok


COMPONENTS: dict[str, Component] = {
    f.__name__: f
    for f in (
        hidden,
        visible,
        f2p_frac,
        p2p_frac,
        visible_frac,
        progress,
        submitted,
        tested,
        no_tool_errors,
        located,
        edited,
        tests_kept,
        brevity,
    )
}
OUTCOME = ("hidden", "f2p_frac", "p2p_frac", "progress")
"""Components computed from the hidden tests."""
