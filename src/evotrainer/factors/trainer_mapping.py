"""What a trainer makes of a recipe, by the table of factors: configuration keys, refusals, its page of the
documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evotrainer.factors import FACTORS
from evotrainer.factors.table import DEFAULTS, TrainerSupport
from evotrainer.records.recipe import Recipe

Own = Mapping[str, TrainerSupport]
"""What a trainer of one's own carries out: factor -> how."""


def carried(trainer: str, own: Own = {}) -> dict[str, TrainerSupport]:  # noqa: B006
    """Factor -> how a trainer carries it out, in the recipe's order; those that it does not are left out."""
    known = {name: own.get(name) or (FACTORS[name].carried(trainer) if name in FACTORS else None) for name in FIELDS}
    return {name: how for name, how in known.items() if how is not None}


FIELDS = tuple(Recipe.model_fields)


def refusals(recipe: Recipe, trainer: str, own: Own = {}) -> list[str]:  # noqa: B006
    """Why a trainer cannot train a recipe: `factor: cause; remedy`, of every factor that it cannot carry out."""
    out = []
    ways = carried(trainer, own)
    for name in FIELDS:
        how = ways.get(name)
        if how is None and getattr(recipe, name) != getattr(DEFAULTS, name):
            out.append(f"{name}: the {trainer} trainer does not implement it; leave it out{_other(name, trainer)}")
        elif how is not None and how.why and how.refuses(recipe):
            out.append(f"{name}: {how.why}; {how.instead}{_other(name, trainer)}")
    return out


def _other(factor: str, trainer: str) -> str:
    """The trainer that carries a factor out, for the end of a remedy; `verl` is no trainer of a run."""
    there = factor in FACTORS and FACTORS[factor].embedded and trainer not in ("embedded", "verl")
    return ', or set trainer.name = "embedded"' if there else ""


def keys_of(recipe: Recipe, trainer: str) -> dict[str, tuple[str, Any]]:
    """Key of a trainer's configuration -> (factor, value)."""
    return {k: (name, v) for name, how in carried(trainer).items() for k, v in how.keys(recipe).items()}


def owners(trainer: str) -> dict[str, str]:
    """Every key of a trainer's configuration that belongs to a factor -> that factor."""
    return {key: name for name, how in carried(trainer).items() for key in how.sets}


def table(trainer: str) -> str:
    """Markdown: how a trainer carries out each factor."""
    rows = ["| factor | carried out by | remarks |", "|---|---|---|"]
    for name, how in carried(trainer).items():
        where = ", ".join(f"`{x}`" for x in (*how.sets, *how.plugins.split()))
        way = where or ("EvoTrainer" if not how.why else "")
        if how.why and not how.part:
            way, note = "refused", how.why
        else:
            note = how.note
        rows.append(f"| `{name}` | {way or '-'} | {note or '-'} |")
    return "\n".join(rows)
