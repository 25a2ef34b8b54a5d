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
    from evotrainer.skills import read_library

    every = read_library(source).values()
    if as_json:
        print(json.dumps([_row(s) for s in every], indent=1))
        return
    for s in every:
        n = len(s.trials)
        print(s.name)
        print(
            f"  {s.claim}: {_effect(s)}, {n} trial{'s' * (n != 1)}, {s.scope} ({', '.join(s.domains)}), "
            f"valid until {s.expiry.until}"
        )
    if not every:
        print(no_skills(source))


def _effect(s: Skill) -> str:
    p = s.pooled
    return f"{100 * p.mean:+.1f} points [{100 * p.low:+.1f}, {100 * p.high:+.1f}]" if p else "nothing measured"


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
        "pooled": p.model_dump(mode="json") if p else None,
        "expiry": s.expiry.model_dump(mode="json"),
    }
