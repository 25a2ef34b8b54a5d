"""Optuna's tree-structured Parzen estimator (Bergstra et al. 2011) over the same changes: a categorical parameter per
factor, one of whose values leaves it as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from pydantic import Field

from bench.compare.agents.control import ArmTraining, ControlArm, Space, fresh_recipes
from bench.compare.agents.simple import random_recipe
from evotrainer.agents.base import AgentSpec
from evotrainer.agents.moves import CandidateMove
from evotrainer.errors import ConfigError, install
from evotrainer.records.frozen import Frozen

KEEP = 0
"""The value of a parameter that leaves its factor as it is; its changes are 1, 2, ..."""


class TpeOptions(Frozen):
    """What a task file may set under `run.agent_options`."""

    startup: int = Field(10, ge=1)
    """Random recipes before the first that the estimator draws; Optuna's own default."""


def check_optuna() -> None:
    """ConfigError with the remedy where Optuna is not installed."""
    if find_spec("optuna") is None:
        raise ConfigError(f"agent tpe needs Optuna, which is not installed; run: {install('tpe')}")


class Tpe(ControlArm):
    """`TPESampler` over the changes on offer. Every call tells a new study all trainings so far, so nothing is kept.

    Recipes whose values do not go together are mended (the later factor stays as it is), and the study is told what
    was really trained.
    """

    name = "tpe"

    def __init__(self, seed: int, options: TpeOptions | None = None) -> None:
        super().__init__(seed)
        self.options = options or TpeOptions()
        check_optuna()

    def draw(
        self, space: Space, seen: Sequence[ArmTraining], rng: np.random.Generator, wanted: int
    ) -> list[dict[str, CandidateMove]]:
        if not space.factors:
            return []
        if len(seen) <= self.options.startup:  # the champion is the first of them
            return fresh_recipes(space, seen, wanted, lambda: random_recipe(space, rng))
        ask = self._study(space, seen, int(rng.integers(2**31)))
        return fresh_recipes(space, seen, wanted, lambda: legal_changes(space, ask(), rng))

    def _study(self, space: Space, seen: Sequence[ArmTraining], seed: int) -> Any:
        """A function that asks the sampler for the next parameters."""
        import optuna
        from optuna.distributions import BaseDistribution, CategoricalDistribution
        from optuna.trial import create_trial

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        over: dict[str, BaseDistribution] = {
            f: CategoricalDistribution(tuple(range(len(cs) + 1))) for f, cs in space.factors.items()
        }
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for t in seen:
            if np.isfinite(t.score):
                made = space.changes(t.changes)
                params = {f: space.factors[f].index(made[f]) + 1 if f in made else KEEP for f in over}
                study.add_trial(create_trial(params=params, distributions=over, value=t.score))
        return lambda: study.ask(over).params


def legal_changes(space: Space, params: Mapping[str, int], rng: np.random.Generator) -> dict[str, CandidateMove]:
    """The changes that the parameters name, in random order as many as go together."""
    picked = [cs[params[f] - 1] for f, cs in space.factors.items() if params[f] != KEEP]
    return space.fit(picked[i] for i in rng.permutation(len(picked)))


SPEC = AgentSpec(Tpe, TpeOptions)
