"""Kit for agents."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.agents.base import Sitter
from evotrainer.errors import ConfigError, SingleFactorError
from evotrainer.records.briefing import Briefing
from evotrainer.records.events import SeatAnswered, SeatAsked
from evotrainer.records.interventions import Backtest, Intervention
from evotrainer.records.lint import lint
from evotrainer.records.one_factor import check_bundle, single_factor
from evotrainer.records.recipe import BUNDLE
from evotrainer.records.seat import SeatBriefing, SeatTrial

if TYPE_CHECKING:
    from evotrainer.agents.base import Agent
    from evotrainer.records.rollout import Rollout


class NoTools:
    """Tools without data: every backtest says nothing, there are no rollouts."""

    def backtest(self, intervention: Intervention) -> Backtest:
        return Backtest(factor=intervention.factor, verdict="silent", reason="nothing stored")

    def rollouts(self, branch: str, limit: int = 100) -> Sequence[Rollout]:
        return ()


class SeatMemory:
    """What a seat may know of its run, kept in memory: agents that ask others can be asked outside of a run."""

    hidden: tuple[Path, ...] = ()
    """There is no run whose files must not be in reach."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: dict[str, Any] = {}

    def asked(self, key: str, make: Callable[[], SeatAsked]) -> SeatAsked:
        found: SeatAsked = self.events.setdefault(key, make())
        return found

    def answered(self, key: str, make: Callable[[], SeatAnswered]) -> SeatAnswered:
        if key not in self.events:
            self.events[key] = make()
        found: SeatAnswered = self.events[key]
        return found

    def past(self) -> Sequence[SeatAnswered]:
        return [e for e in self.events.values() if isinstance(e, SeatAnswered)]

    def refusal(self, request: SeatBriefing, trial: SeatTrial) -> str:
        return ""

    def note(self, text: str) -> None:
        """Nobody watches."""


def check_agent(agent: Agent, briefing: Briefing, tools: Any = None) -> None:
    """Every proposal is one factor of the champion's recipe, or a bundle as declared, passes the lint, and says what
    would refute it. An agent that asks others (`Sitter`) is seated and asked for real: an answer must have been taken
    at the first attempt."""
    if isinstance(agent, Sitter):
        with tempfile.TemporaryDirectory() as folder:
            log = SeatMemory(Path(folder))
            agent.sit(log)
            _check(agent, briefing, tools)
            answers = log.past()
            assert answers, "nobody was asked: give the seat a share of 1"
            bad = [a.problem for a in answers if a.problem]
            assert not bad, f"an answer was not taken: {bad[0]}"
        return
    _check(agent, briefing, tools)


def _check(agent: Agent, briefing: Briefing, tools: Any) -> None:
    proposal = agent.propose(briefing, tools or NoTools())
    assert proposal.agent, "a proposal names its agent"
    assert proposal.interventions or proposal.stop, "neither an intervention nor a reason to stop"
    hashes: set[str] = set()
    for iv in proposal.interventions:
        try:
            child = briefing.champion.recipe.with_factor(iv.factor, iv.new)
        except ConfigError as e:
            raise AssertionError(f"{iv.factor}: {e}") from None
        try:
            if iv.factor == BUNDLE:
                check_bundle(briefing.champion.recipe, child, iv.new, max(briefing.bundle, briefing.changes))
            else:
                found = single_factor(briefing.champion.recipe, child)
                assert found == iv.factor, f"{iv.factor} is not the factor that differs, {found} is"
        except SingleFactorError as e:
            raise AssertionError(f"{iv.factor}: {e}") from None
        bad = [x.message for x in lint(child) if x.level == "error"]
        assert not bad, f"{iv.factor}: {bad}"
        assert iv.hypothesis and iv.success_criterion and iv.rollback, (
            f"{iv.factor}: hypothesis, criterion and rollback"
        )
        assert child.hash not in hashes, f"{iv.factor}: the same recipe twice in one proposal"
        hashes.add(child.hash)
