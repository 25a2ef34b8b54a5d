"""The config lint: recipes without any gradient are refused, known harmful ones warned of, by the table of factors."""

from __future__ import annotations

from typing import Literal

from evotrainer.factors import FACTORS
from evotrainer.factors.table import DEFAULTS
from evotrainer.records.frozen import Frozen
from evotrainer.records.recipe import Recipe


class LintIssue(Frozen):
    """One complaint of the config lint; `level` error refuses the recipe."""

    level: Literal["error", "warning"]
    factor: str
    message: str


def lint(recipe: Recipe) -> list[LintIssue]:
    """Refuse combinations without any gradient and factors that nothing implements, warn of known harmful ones."""
    before = lint(recipe.start) if recipe.start else []
    out = [
        LintIssue(level=x.level, factor="start", message=f"{x.factor} of the earlier recipe: {x.message}")
        for x in before
    ]
    for name in type(recipe).model_fields:
        if name in FACTORS:
            found = [c for c in FACTORS[name].lint if c.when(recipe)]
            out += [LintIssue(level=c.level, factor=name, message=c.message.format(r=recipe)) for c in found]
        elif getattr(recipe, name) != getattr(DEFAULTS, name):
            message = "it has no row in the table of factors (evotrainer/factors), so that nothing implements it"
            out.append(LintIssue(level="error", factor=name, message=message))
    return out
