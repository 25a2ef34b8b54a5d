"""A control agent: proposes a given list of changes in order, whatever the evidence says."""

from __future__ import annotations

import contextlib
from typing import Any

from pydantic import Field

from evotrainer.agents.base import Tools
from evotrainer.agents.changes import equal_values, trained_hashes, with_change
from evotrainer.agents.moves import in_words
from evotrainer.errors import AgentError, ConfigError
from evotrainer.factors.change_rules import ProposedChange, why_not
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.detectors import HarnessEdit
from evotrainer.records.frozen import Frozen
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.recipe import Recipe


class FixedChange(Frozen):
    """One entry of `run.agent_options.interventions`."""

    factor: str
    new: Any = None
    why: str = "the task file lists it"


class FixedEdit(HarnessEdit):
    """One entry of `run.agent_options.harness_edits`: proposed in one round."""

    round: int = Field(1, ge=1)


class FixedOptions(Frozen):
    """Options of the fixed agent."""

    harness_edits: tuple[FixedEdit, ...] = ()
    interventions: tuple[FixedChange, ...] = ()
    """Changes in the order in which they are tried; none: the start alone is trained, and certified."""


class FixedAgent:
    """Takes the next changes of its list that the run has not tried."""

    name = "fixed"

    def __init__(self, options: FixedOptions) -> None:
        self.options = options

    def recipes(self, start: Recipe) -> list[Recipe]:
        """What each entry makes of the starting recipe;
        ConfigError, with the diff, for one that changes not one factor."""
        out = []
        for i, c in enumerate(self.options.interventions):
            where = f"run.agent_options.interventions[{i}]"
            change = ProposedChange(start, {c.factor: c.new})
            with contextlib.suppress(ConfigError):  # the rules say why
                if change.recipe == start:
                    continue  # takes an earlier entry back, should that have been promoted
            if why := why_not(change):
                raise ConfigError(f"{where}, {c.factor}: {why}")
            out.append(change.recipe)
        return out

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        """The next changes in the list's order; AgentError for an entry that is no valid change of this recipe."""
        recipe, seen = briefing.champion.recipe, trained_hashes(briefing)
        done = [b.intervention for b in briefing.branches if b.intervention]
        out: list[Intervention] = []
        for c in self.options.interventions:
            if any(d.factor == c.factor and equal_values(d.new, c.new) for d in done):
                continue
            old = recipe.value(c.factor)
            if equal_values(old, c.new):
                continue
            child = with_change(recipe, c.factor, c.new)
            if child is None:
                raise AgentError(
                    f"fixed agent: {c.factor} = {c.new!r} is no valid single-factor change of "
                    f"{briefing.champion.branch}; correct run.agent_options.interventions"
                )
            if child.hash not in seen:
                out.append(plain(recipe.value(c.factor), c.factor, c.new, c.why, briefing.champion.branch, "fixed"))
        chosen = tuple(out[: briefing.branches_wanted])
        due = [e for e in self.options.harness_edits if e.round == briefing.round]
        return Proposal(
            agent=self.name,
            interventions=chosen,
            stop="" if chosen else "no change that run.agent_options.interventions lists is left to try",
            harness_edits=tuple(HarnessEdit(add=e.add, retire=e.retire, reason=e.reason) for e in due),
        )


def plain(old: Any, factor: str, new: Any, why: str, champion: str, move: str) -> Intervention:
    """An intervention that predicts nothing beyond a better score."""
    was = in_words(old)
    return Intervention(
        factor=factor,
        old=old,
        new=new,
        hypothesis=(
            f"if {factor} changes from {was} to {in_words(new)}, accuracy goes up by at least 0.01, because {why}"
        ),
        prediction=Prediction(metric="accuracy", direction="up", size=0.01),
        success_criterion=f"the judge's lower bound of the gate score over {champion} is above 0",
        rollback=f"keep {champion}: {factor} stays {was}",
        move=move,
    )
