"""A response surface: what trainings would score by a fitted or invented model, so that whole searches cost seconds.

A file holds one surface, or a list of them, as JSON:

    {"format": "evotrainer-surface-v1", "name": "maths", "base": 0.54, "seed_sd": 0.02,
     "effects": [{"factor": "lr", "value": 2e-4, "effect": 0.03}],
     "pairs": [{"a": {"factor": "lr", "value": 2e-4}, "b": {"factor": "group_size", "value": 4}, "effect": -0.02}]}

A value is in force where the recipe has it (`Recipe.factors`); composite factors are given by their fields.
"""

from __future__ import annotations

import hashlib
import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from bench.compare.paper import PaperExecutor, paper_result
from evotrainer.errors import ConfigError
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from evotrainer.records.findings import HealthReport
from evotrainer.records.frozen import Frozen, explain
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.records.regular_file import read_text


class Value(Frozen):
    """A value of a factor."""

    factor: str
    value: Any

    @property
    def key(self) -> tuple[str, str]:
        return self.factor, json.dumps(self.value, sort_keys=True)


class Main(Value):
    """What a value adds to the score, score units, where it is in force."""

    effect: float


class Pair(Frozen):
    """What two values add together, beyond their own effects."""

    a: Value
    b: Value
    effect: float


class Best(Frozen):
    """The best that is known to be within reach."""

    changes: dict[str, Any]
    gain: float


class Surface(Frozen):
    """What a training scores: `base`, the effects of all values in force, those of their pairs, and noise."""

    format: Literal["evotrainer-surface-v1"] = "evotrainer-surface-v1"
    name: str
    base: float = Field(gt=0, lt=1)
    """Score of a recipe of which no value has an effect: the starting recipe."""
    untrained: float = Field(0.3, gt=0, lt=1)
    """Score of the base policy."""
    link: Literal["linear", "logit"] = "linear"
    """logit: effects add up as log-odds, each worth what it says where the score is 50%; so that many together stay
    below 100%."""
    seed_sd: float = Field(0.02, ge=0)
    """Between trainings of one recipe, beyond the sampling of attempts, score units."""
    tasks: int = Field(300, ge=2)
    """Tasks of each split ..."""
    attempts: int = Field(4, ge=1)
    """... and attempts at each: together they make a reading's own noise."""
    effects: tuple[Main, ...] = ()
    pairs: tuple[Pair, ...] = ()
    fit: dict[str, float] = {}
    """Of a fitted one: trainings, leave-one-out error and the like; nothing depends on it."""
    best: Best | None = None

    @cached_property
    def _main(self) -> dict[tuple[str, str], float]:
        return {e.key: e.effect for e in self.effects}

    def gain(self, recipe: Recipe) -> float:
        """Sum of all effects in force."""
        now = {(f, json.dumps(v, sort_keys=True)) for f, v in recipe.factors().items()}
        both = sum(p.effect for p in self.pairs if p.a.key in now and p.b.key in now)
        return sum(self._main[x] for x in sorted(now & self._main.keys())) + both

    def score(self, recipe: Recipe) -> float:
        """Expected score of a training, kept within 2% and 98%."""
        if self.link == "linear":
            return min(0.98, max(0.02, self.base + self.gain(recipe)))
        odds = math.log(self.base / (1 - self.base)) + 4 * self.gain(recipe)  # the curve's slope at 50% is 1/4
        return 1 / (1 + math.exp(-odds))

    def luck(self, recipe: Recipe, seed: int) -> float:
        """Probability that the policy of this training solves a task: a function of recipe and seed alone."""
        import numpy as np

        rng = np.random.default_rng(_seed(self.name, recipe.hash, seed))
        return min(0.995, max(0.005, self.score(recipe) + self.seed_sd * float(rng.standard_normal())))

    def per_task(self, policy: str, p: float, split: str) -> dict[str, float]:
        """Task -> share of its attempts that succeed."""
        import numpy as np

        rng = np.random.default_rng(_seed(self.name, policy, split))
        right = rng.binomial(self.attempts, p, self.tasks) / self.attempts
        return {f"{split}-{i}": float(x) for i, x in enumerate(right)}

    def reading(self, recipe: Recipe, seed: int, split: str) -> float:
        """The score that a training of this recipe and seed is read with on a split, as `finish` has it."""
        found = self.per_task(_policy(recipe, seed), self.luck(recipe, seed), split)
        return sum(found.values()) / len(found)

    def finish(self, spec: TrialSpec) -> TrialFinished:
        """What a trial would come to, whoever asks for it."""
        policy, p = "base", self.untrained
        if spec.branch != "base":
            policy, p = _policy(spec.recipe, spec.seed), self.luck(spec.recipe, spec.seed)
        return paper_result(
            spec,
            {plan.split: self.per_task(policy, p, plan.split) for plan in spec.evals},
            self.attempts,
            spec.recipe.whole_steps,
            policy=f"drawn-{policy}",
            env_knobs={**spec.protocol.knobs, **spec.env_knobs},
            health=self._health(spec) if spec.train else (),
        )

    def _health(self, spec: TrialSpec) -> tuple[HealthReport, ...]:
        """What the harness reads of a training, which stores no rollouts."""
        return ()


def _policy(recipe: Recipe, seed: int) -> str:
    return f"{recipe.hash}-{seed}"


def _seed(*parts: Any) -> int:
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:8])


LONG = 100_000
"""Steps beside which any other value can stand: phases of many steps among them."""


def load_surfaces(path: Path) -> list[Surface]:
    """One or several surfaces from a file; ConfigError with cause and remedy."""
    try:
        raw = json.loads(read_text(path))
    except OSError as e:
        raise ConfigError(f"cannot read surface {path}: {e.strerror}; give a file of bench/claim/surface.py") from None
    except ValueError as e:
        raise ConfigError(f"{path} is no JSON: {e}; bench/compare/README.md has the form of a surface") from None
    rows = raw if isinstance(raw, list) else [raw]
    if not rows:
        raise ConfigError(f"{path} holds no surface; bench/compare/README.md has the form of one")
    try:
        made = [Surface.model_validate(r) for r in rows]
        for s in made:
            check_values(s)
    except ValidationError as e:
        raise ConfigError(f"{path}: {explain(e, Surface)}; bench/compare/README.md has the form") from None
    except ConfigError as e:
        raise ConfigError(f"{path}: {e}") from None
    return made


def check_values(surface: Surface) -> None:
    """ConfigError where a value is none that a recipe could have: it would never be in force."""
    said = [*surface.effects, *(v for p in surface.pairs for v in (p.a, p.b))]
    for v in said:
        if v.factor.startswith("knobs."):
            continue
        room = {} if v.factor == "steps" else {"steps": LONG}
        recipe = parse_recipe({**room, v.factor: v.value}) if v.factor in Recipe.model_fields else Recipe()
        now = recipe.factors().get(v.factor)
        if json.dumps(now, sort_keys=True) != v.key[1] and now is not None:
            raise ConfigError(f"effect of {v.factor} = {v.value!r}: a recipe has it as {json.dumps(now)}; give it so")
        if v.factor not in Recipe.model_fields:
            known = ", ".join(sorted(Recipe.model_fields))
            raise ConfigError(f"effect of unknown factor {v.factor!r}; one of: {known}, knobs.<name>")


def surface_executor(surface: Surface) -> PaperExecutor:
    """An executor that draws every trial from the surface; it keeps nothing of what it ran."""
    return PaperExecutor(surface.finish)
