"""One table of the factors of a recipe, a row each: who asks anything of a factor reads it here (docs/recipe.md)."""

from __future__ import annotations

from dataclasses import replace

from evotrainer.factors import algorithm, data, harness, reward, signal
from evotrainer.factors.table import FAMILIES as FAMILIES
from evotrainer.factors.table import Factor, Family
from evotrainer.records.factor_aliases import NAMES, VALUES
from evotrainer.records.recipe import Recipe
from evotrainer.records.structured_factors import COMPOSITES

_FILES: dict[Family, tuple[Factor, ...]] = {
    "reward": reward.ROWS,
    "signal": signal.ROWS,
    "data": data.ROWS,
    "algorithm": algorithm.ROWS,
    "harness": harness.ROWS,
}
_ROWS = {row.name: replace(row, family=family) for family, rows in _FILES.items() for row in rows}
FACTORS: dict[str, Factor] = {name: _ROWS[name] for name in (*Recipe.model_fields, *COMPOSITES) if name in _ROWS}
"""Factor -> its row, in the order of the recipe's fields, composite ones last."""
if missing := _ROWS.keys() - FACTORS.keys():
    raise TypeError(f"rows of the table of factors without a field of the recipe: {', '.join(sorted(missing))}")
for _row in FACTORS.values():
    NAMES.update(_row.elsewhere())
    VALUES.update({(at, value): meant for value, meant in _row.meant.items() for at in (_row.name, "kind")})


def row_of(factor: str) -> Factor | None:
    """The row of a factor, of `knobs.<name>` that of `knobs`; None where there is none."""
    return FACTORS.get(factor.partition(".")[0])


def family_of(factor: str) -> Family:
    """The part of the recipe that a factor belongs to."""
    row = row_of(factor)
    return row.family if row else "algorithm"


def family_members(family: str) -> list[str]:
    """The factors of a part of the recipe."""
    return [name for name, row in FACTORS.items() if row.family == family]


def remedies(symptom: str) -> tuple[str, ...]:
    """Fields of the recipe that may mend a symptom, those that answer it fully first."""
    found: dict[str, bool] = {}
    for name, row in FACTORS.items():
        if name in COMPOSITES:
            continue
        fits = [fit for m in row.all_moves() if (fit := m.symptoms().get(symptom)) is not None]
        if name == "rewards" and symptom in reward.FITS:
            fits.append(reward.FITS[symptom])
        if fits:
            found[name] = max(fits)
    return tuple(sorted(found, key=lambda name: not found[name]))
