"""`evotrainer skills list`: the skills of a library or run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from evotrainer.cli._common import AsJson, SkillSource, no_skills
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.projections.skills import Skill


def skills_list(source: SkillSource, *, as_json: AsJson = False) -> None:
    """Skills with claim, pooled effect, scope and expiry.

    Example: evotrainer skills list runs/mine
    """
    from evotrainer.records.skills import CLAIMS
    from evotrainer.skills import read_library
    from evotrainer.skills.text import effect_text

    every = read_library(source).values()
    if as_json:
        print(json.dumps([_row(s) for s in every], indent=1))
        return
    for s in every:
        print(s.name)
        print(
            f"  {CLAIMS[s.claim]}: {effect_text(s.trials)}, {s.scope} ({', '.join(s.domains)}), "
            f"valid until {s.expiry.until}"
        )
    if not every:
        print(no_skills(source))


def _row(s: Skill) -> dict[str, Any]:
    p = s.pooled
    return {
        "name": s.name,
        "bottleneck": s.bottleneck,
        "factor": s.factor,
        "direction": s.direction,
        "claim": s.claim,
        "scope": s.scope,
        "domains": list(s.domains),
        "validated": list(s.validated),
        "trials": len(s.trials),
        "trainings": sum(t.trainings for t in s.trials),
        "pooled": p.model_dump(mode="json") if p else None,
        "expiry": s.expiry.model_dump(mode="json"),
    }
