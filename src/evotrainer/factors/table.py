"""The form of a row of the table of factors: what is known of one factor of a recipe, for all who ask.

`evotrainer.factors.FACTORS` holds the rows. The field itself, its type, bounds and meaning, is in `records/recipe.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from evotrainer.records.recipe import Recipe
from evotrainer.records.structured_factors import COMPOSITES

Family = Literal["reward", "signal", "data", "algorithm", "harness"]
FAMILIES: tuple[Family, ...] = ("reward", "signal", "data", "algorithm", "harness")
"""Parts of a recipe. harness: what the policy acts in, not what reads it."""
Direction = Literal["up", "down"]
Test = Callable[[Recipe], bool]


class Unset:
    """Of a key: a recipe that does not set it."""


UNSET = Unset()
Source = str | Callable[[Recipe], Any] | None
"""Where a trainer's key gets its value: a field of the recipe by its dotted name, a function of the recipe, or None:
the trainer computes it from more than the recipe."""


@dataclass(frozen=True, slots=True)
class TrainerSupport:
    """How one trainer carries a factor out: by keys of its configuration, by code of ours, or not."""

    sets: Mapping[str, Source] = field(default_factory=dict)
    """Key of the trainer's configuration -> its value; UNSET: left out."""
    note: str = ""
    """For the table of the documentation."""
    plugins: str = ""
    """Files that deliver it (verl)."""
    why: str = ""
    """Why some value cannot be had; empty: every value can."""
    instead: str = ""
    """What to do about it, for a message."""
    refuses: Test = lambda _: False
    part: bool = False
    """Of a factor with `why`: are some values other than the default carried out?"""

    def keys(self, recipe: Recipe) -> dict[str, Any]:
        """What it sets for a recipe."""
        read = {k: _read(recipe, s) for k, s in self.sets.items() if s is not None}
        return {k: v for k, v in read.items() if v is not UNSET}


def _read(recipe: Recipe, source: str | Callable[[Recipe], Any]) -> Any:
    if callable(source):
        return source(recipe)
    value: Any = recipe
    for part in source.split("."):
        value = getattr(value, part)
    return value


OURS = TrainerSupport()
"""Carried out by code that all trainers share, or by the trainer's own, for every value."""


@dataclass(frozen=True, slots=True)
class LintRule:
    """What the config lint says of a factor."""

    level: Literal["error", "warning"]
    when: Test
    message: str
    """`{r}` is the recipe: `{r.steps}`."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a factor asks of the environment, where it is used."""

    offer: str
    """Name among the environment's offers."""
    when: Test
    why: str
    """That the environment lacks it, and the remedy; its name goes before."""


@dataclass(frozen=True, slots=True)
class MoveContext:
    """What the values of a move may depend on."""

    recipe: Recipe
    symptoms: Mapping[str, float] = field(default_factory=dict)
    """Bottleneck -> severity in [0, 1]."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    components: Mapping[str, str] = field(default_factory=dict)
    """Reward components that may be paid -> what each measures."""
    knobs: Mapping[str, str] = field(default_factory=dict)
    score: float | None = None
    """Mean search score of the champion."""
    offers: tuple[str, ...] = ()
    """What else training may use of the environment."""
    train_tasks: int | None = None
    """Size of the train split, where it is known."""

    @property
    def headroom(self) -> float:
        """What is left to gain, score units; half where the score is unknown."""
        return 0.5 if self.score is None else max(0.0, 1.0 - self.score)

    @property
    def revisits(self) -> bool:
        """Whether training draws some task twice: only then is there a pass rate to choose by."""
        return self.train_tasks is None or self.recipe.steps * self.recipe.prompts_per_step > self.train_tasks

    def metric(self, name: str, default: float = 0.0) -> float:
        """A health metric, or the default where it was not seen."""
        return self.metrics.get(name, default)


@dataclass(frozen=True, slots=True)
class Variant:
    """One concrete value of a move."""

    value: Any
    detail: str = ""
    """Distinguishes variants in the move's name."""
    why: str = ""
    """In place of the move's."""
    factor: str = ""
    """Of a keyed factor: `knobs.<name>`."""


@dataclass(frozen=True, slots=True)
class Move:
    """One change worth trying: its values, the symptoms that it may mend, the effect that it predicts."""

    name: str
    values: tuple[Any, ...] | Callable[[MoveContext], Iterable[Any]]
    """Values offered where the factor is at its default, or a function of what was observed, which gives none where a
    precondition is not met."""
    why: str
    """Goes on from `because`."""
    addresses: str = ""
    """Symptoms; behind a semicolon those that it may mend in part only."""

    def symptoms(self) -> dict[str, bool]:
        """Symptom -> is it answered fully?"""
        return symptoms_of(self.addresses)


def symptoms_of(addresses: str) -> dict[str, bool]:
    """Symptom -> is it answered fully?"""
    first, _, second = addresses.partition(";")
    return {**dict.fromkeys(second.split(), False), **dict.fromkeys(first.split(), True)}


DEFAULTS = Recipe()


@dataclass(frozen=True, slots=True)
class Factor:
    """A row: all that is known of a factor besides its field."""

    name: str
    """Field of the recipe, or a composite factor of `structured_factors.COMPOSITES`."""
    names: Mapping[str, str] | str = ""
    """What TRL, verl and others call it, blank-separated; with several parts: `.part` or ` (what it counts)` ->
    names. The keys of `trl` need no repeating."""
    meant: Mapping[str, str] = field(default_factory=dict)
    """Value elsewhere -> what to write instead."""
    lint: tuple[LintRule, ...] = ()
    need: Need | None = None
    legal: str = ""
    """Legal values in words, for a seat, where the field's type does not say them; `{components}` are those that may
    be paid."""
    moves: tuple[Move, ...] = ()
    """Changes worth trying."""
    off: str = ""
    """Why the move back to the default may be worth trying, from any other value; empty: it is none of its own."""
    off_addresses: str = ""
    off_when: Test = lambda _: True
    replay: Literal["", "advantages"] = ""
    """advantages: those of stored rollouts can be computed anew under another value (`algorithm/`), which gives a
    forecast. Other replays register with `harness.whatif.replay.replays`; without either it acts through training."""
    embedded: bool = False
    """Does the embedded trainer carry it out?"""
    trl: TrainerSupport | str | None = None
    """How the trl trainer carries it out, a remark alone where code of ours does; None: it refuses all but the
    default."""
    verl: TrainerSupport | str | None = None
    family: Family = "algorithm"
    """That of the file where its row stands."""

    def carried(self, trainer: str) -> TrainerSupport | None:
        """How a trainer carries the factor out; None: it refuses all but the default."""
        how = {"embedded": OURS if self.embedded else None, "trl": self.trl, "verl": self.verl}.get(trainer)
        return TrainerSupport(note=how) if isinstance(how, str) else how

    def all_moves(self) -> tuple[Move, ...]:
        """The changes worth trying, that back to the default last."""
        if not self.off:
            return self.moves
        back = lambda s: () if self.idle(s.recipe) or not self.off_when(s.recipe) else (Variant(self.default),)  # noqa: E731
        return (*self.moves, Move(f"{self.name}_off", back, self.off, self.off_addresses))

    @property
    def default(self) -> Any:
        """JSON value of the default; of a composite factor an object of its fields."""
        return Recipe().value(self.name)

    def idle(self, recipe: Recipe) -> bool:
        """Is the factor at its default?"""
        fields = COMPOSITES.get(self.name, (self.name,))
        return all(getattr(recipe, f) == getattr(DEFAULTS, f) for f in fields)

    def elsewhere(self) -> dict[str, str]:
        """Name in another library -> ours."""
        listed = {"": self.names} if isinstance(self.names, str) else self.names
        own = self.trl.sets if isinstance(self.trl, TrainerSupport) else {}
        found = {**dict.fromkeys(own, ""), **{n: k for k, names in listed.items() for n in names.split()}}
        return {n: f"{self.name}{k}" for n, k in found.items() if n != self.name}


def refused(why: str, instead: str, refuses: Test, note: str = "", part: bool = False, **sets: Any) -> TrainerSupport:
    """A factor of which a trainer cannot carry out all values."""
    return TrainerSupport(note=note, why=why, instead=instead, refuses=refuses, part=part, **sets)


def error(when: Test, message: str) -> LintRule:
    return LintRule("error", when, message)


def warning(when: Test, message: str) -> LintRule:
    return LintRule("warning", when, message)


def tag(value: Any) -> str:
    """A value in a move's name."""
    if isinstance(value, dict):
        return ",".join(str(v) for v in value.values())
    return f"{value:g}" if isinstance(value, float) else str(value)
