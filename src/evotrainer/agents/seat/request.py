"""The request that a seat is asked: the briefing as text, factors with their legal values, what the statistical agent
thinks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from evotrainer.agents.briefing import render, trial_cost
from evotrainer.agents.changes import equal_values
from evotrainer.factors import FACTORS
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.recipe import COMPOSITES, KEYED, Recipe, fields_of
from evotrainer.records.scaffold import LABELS as SCAFFOLD_LABELS
from evotrainer.records.scaffold import PREFIX, Slot
from evotrainer.records.search import ProbeRecord, SearchPlan
from evotrainer.records.seat import Candidate, FactorOffer, SearchTraining, SeatBriefing

SHOWN = 24
"""Candidates of the statistical agent that a request names."""
WORDS = 300
"""Characters of a factor's legal values."""


def request(
    briefing: Briefing,
    step: str,
    number: int,
    places: int,
    thoughts: Iterable[Candidate],
    noise_sd: float = 0.0,
) -> SeatBriefing:
    """What is asked in one step. Costs and the run's name are told apart from the text: two runs that decide the same
    measure them otherwise."""
    costs = {"budget_left": {}, "trial_cost": 0.0, "trial_cpu_s": 0.0, "cost_unit": "cpu_s"}
    bare = briefing.model_copy(update={"run": "", **costs, "branches_wanted": 0})
    search = step == "search"
    mine = [p for p in briefing.probes if p.incumbent == briefing.champion.branch]
    return SeatBriefing(
        run=briefing.run,
        round=briefing.round,
        step="search" if search else "proposal",
        number=number,
        places=places,
        champion=briefing.champion.branch,
        factors=factors(briefing),
        at_most=briefing.changes if search else 1,
        trainings=tuple(map(_training, mine)),
        trainings_left=briefing.probes_left if search else None,
        champion_scores=tuple(map(_r, briefing.champion.scores)),
        noise_sd=_r(noise_sd),
        candidates=tuple(thoughts)[:SHOWN],
        reopenable=briefing.reopenable,
        budget_left=briefing.budget_left,
        training_cpu_s=round(briefing.trial_cpu_s, 1),
        training_cost=trial_cost(briefing),
        text=render(bare),
    )


def _training(p: ProbeRecord) -> SearchTraining:
    score = None if p.score is None else _r(p.score)
    return SearchTraining(training=p.probe, changes=p.changes, score=score, failed=p.failed, invalid=p.invalid)


def thoughts_of(plan: SearchPlan) -> list[Candidate]:
    """What the statistical agent would train next, and the effects it has measured."""
    out = [
        Candidate(changes=p.changes, mean=_r(p.gain), sd=_r(p.sd), note="it would train this next") for p in plan.probes
    ]
    return out + [
        Candidate(
            changes={e.factor: e.value}, mean=_r(e.mean), sd=_r(e.sd), note=f"measured in {e.trainings} trainings"
        )
        for e in plan.effects
    ]


def thoughts_on(proposal: Proposal) -> list[Candidate]:
    """What the statistical agent considered for a proposal."""
    return [
        Candidate(changes={c.factor: c.new}, mean=_r(c.mean), sd=_r(c.sd), note=c.fate) for c in proposal.considered
    ]


def _r(x: float) -> float:
    return round(x, 4)


def factors(briefing: Briefing) -> dict[str, FactorOffer]:
    """Every factor of the champion's recipe, composite ones and knobs included."""
    recipe = briefing.champion.recipe
    keyed = {f"knobs.{k}": v for k, v in briefing.knobs.items()}
    keyed |= {PREFIX + s.name: _slot(s) for s in briefing.slots}
    names = [*(f for f in FACTORS if f not in KEYED), *keyed]
    trained = [*(b.recipe for b in briefing.branches), *(p.recipe for p in briefing.probes)]
    out = {}
    for f in names:
        now = recipe.value(f)
        known: list[Any] = []
        for r in trained:
            if not equal_values(r.value(f), now) and not any(equal_values(r.value(f), k) for k in known):
                known.append(r.value(f))
        tried = () if f in COMPOSITES or f == "start" else tuple(known)
        out[f] = FactorOffer(now=now, legal=keyed.get(f) or _legal(f, briefing), tried=tried)
    return out


def _slot(s: Slot) -> str:
    """What may stand in a slot, in words."""
    held = f"; it holds {', '.join('{' + p + '}' for p in s.placeholders)} once" if s.placeholders else ""
    return (
        f"text of at most {s.most} characters, or null for the default{held}. {s.about}. Default: {s.default!r}. The "
        "base policy is read with it as well, and the verdict says what it gains without training; checked first: "
        f"{', '.join(SCAFFOLD_LABELS)}"
    )


def _legal(factor: str, briefing: Briefing) -> str:
    """Legal values in words: those of the table, else the field's type."""
    row = FACTORS[factor]
    composite = f"object of all of {', '.join(fields_of(factor))}; one factor"
    template = row.legal or (composite if factor in COMPOSITES else "{type}")
    if "{type}" in template:
        template = template.replace("{type}", _field(factor))
    if row.need and row.need.offer not in briefing.offers:
        template += f"; this environment has no {row.need.offer}"
    return template.replace("{components}", ", ".join(sorted(briefing.components)) or "(none)")


@cache
def _field(factor: str) -> str:
    """The legal values of a plain field, by the recipe's own JSON Schema without its prose."""
    schema = Recipe.model_json_schema()
    if "$ref" in schema and "properties" not in schema:  # a recipe may hold a recipe
        schema = {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}
    schema_text = _plain(schema["properties"][factor], schema["$defs"])
    text = json.dumps(schema_text, separators=(", ", ": ")).replace('"', "")
    return text if len(text) <= WORDS else text[:WORDS] + " ..."


_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def _plain(s: Mapping[str, Any], defs: Mapping[str, Any]) -> Any:
    """A part of a JSON Schema in a few words."""
    if "$ref" in s:
        return _plain(defs[s["$ref"].rpartition("/")[2]], defs)
    if "const" in s or "enum" in s:
        return " | ".join(map(str, s.get("enum", [s.get("const")])))
    if "anyOf" in s:
        return [_plain(x, defs) for x in s["anyOf"]]
    if s.get("type") == "object" and "properties" in s:
        return {k: _plain(v, defs) for k, v in s["properties"].items()}
    if s.get("type") == "array":
        return [_plain(s["items"], defs)] if "items" in s else "array"
    bounds = " ".join(f"{sign} {s[k]:g}" for k, sign in _BOUNDS.items() if k in s)
    return f"{s.get('type', 'any')} {bounds}".strip()
