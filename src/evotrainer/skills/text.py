"""A skill as SKILL.md: front matter for any agent that reads Agent Skills, and a body in the method's sections."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evotrainer.projections.skills import SOUND, WORTHWHILE, Pooled, Skill, minor, pool
from evotrainer.records.recipe import short as brief
from evotrainer.records.skills import CLAIMS, SkillTrial

SAYS = {
    "helps": "helps",
    "no-gain": "does not help",
    "harms": "does harm",
    "invalid": "ended without standing",
    "unsettled": "has no effect shown",
}


def skill_md(skill: Skill) -> str:
    """The file's text: a function of the skill and of nothing else."""
    import yaml

    head = yaml.safe_dump(
        front_matter(skill), sort_keys=False, default_flow_style=False, allow_unicode=True, width=10**6
    )
    return f"---\n{head}---\n{body(skill)}"


def front_matter(skill: Skill) -> dict[str, Any]:
    """`name`, `description` and string metadata, as the format allows."""
    e = skill.expiry
    meta = {
        "bottleneck": skill.bottleneck,
        "factor": skill.factor,
        "direction": skill.direction,
        "claim": skill.claim,
        "scope": skill.scope,
        "domains": ", ".join(skill.domains),
        "branches": str(len(skill.trials)),
        "trainings": str(sum(t.trainings for t in skill.trials)),
        "valid-until": e.until,
        "evotrainer": e.evotrainer,
    }
    return {
        "name": skill.name,
        "description": description(skill),
        "metadata": {k: one_line(v) for k, v in meta.items()},
    }


def description(skill: Skill) -> str:
    """At most 1,024 characters: what it does and when to use it."""
    text = (
        f"Changing {skill.factor} ({skill.direction}) {SAYS[skill.claim]} when {when(skill)} in reinforcement "
        f"learning of {', '.join(skill.domains)}: {effect_text(skill.trials)}. "
        f"Use it when choosing the next single-factor change of a training recipe."
    )
    text = one_line(text)
    return text if len(text) <= 1024 else text[:1021] + "..."


def when(skill: Skill) -> str:
    return "no bottleneck stands out" if skill.bottleneck == SOUND else f"{skill.bottleneck} is diagnosed"


def counted(trials: Sequence[SkillTrial]) -> str:
    """`1 branch, 5 trainings`"""
    n, trained = len(trials), sum(t.trainings for t in trials)
    number = "1 branch" if n == 1 else f"{n} branches"
    return f"{number}, {trained} training{'s' * (trained != 1)}" if trained else number


def effect_text(trials: Sequence[SkillTrial]) -> str:
    """The pooled effect with its interval, or why there is none."""
    if p := pool(trials):
        over = counted([t for t in trials if t.measured])
        return f"{100 * p.mean:+.1f} points of gate score [{100 * p.low:+.1f}, {100 * p.high:+.1f}] over {over}"
    if dear := [t.uncounted for t in trials if t.uncounted]:
        effects = ", ".join(f"{100 * e.mean:+.1f} points [{100 * e.low:+.1f}, {100 * e.high:+.1f}]" for e in dear)
        return f"no effect at equal compute was measured ({effects} with dearer trainings; {counted(trials)})"
    return f"no effect was measured over {counted(trials)}"


def body(skill: Skill) -> str:
    """Trigger, intervention, expected effect, validation criterion, applicability, evidence."""
    p, e, effect = skill.pooled, skill.expiry, effect_text(skill.trials)
    conditions = [f"- {c.text()} (mildest seen: {c.value:g})" for c in skill.conditions]
    values = list(dict.fromkeys(f"{short(t.old)} -> {short(t.new)}" for t in skill.trials))
    lines = [
        f"# {skill.factor}, {skill.direction}: {SAYS[skill.claim]} when {when(skill)}",
        "",
        "## Trigger condition",
        "",
        f"{when(skill)[0].upper()}{when(skill)[1:]}, in a reading of the champion's search rollouts.",
        *(["In every branch also:", "", *conditions] if conditions else []),
        "",
        "## Intervention",
        "",
        f"Change exactly one factor of the recipe: `{skill.factor}`, {skill.direction}. Values tried:",
        "",
        *[f"- `{v}`" for v in values],
        "",
        "## Expected effect",
        "",
        f"{effect[0].upper()}{effect[1:]}"
        + (
            f" ({100 * p.confidence:.3g}% interval, random effects, {p.comparisons} independent comparison"
            f"{'s' if p.comparisons > 1 else ''}, between them a standard deviation of {100 * p.tau:.1f} points)."
            if p
            else "."
        ),
        f"Claim: {CLAIMS[skill.claim]}.",
        "",
        "## Validation criterion",
        "",
        "A branch that changes this factor alone, trained under at least the judge's number of seeds and paired "
        "with its control on the gate split. It speaks for the skill where the gain is at least "
        f"{100 * WORTHWHILE:g} point and its interval lies above 0, against it where the interval excludes that gain "
        "or the branch is invalid.",
        "",
        "## Applicability",
        "",
        f"- Domains: {', '.join(skill.domains)}; validated in: {', '.join(skill.validated) or 'none'}; scope: "
        f"{skill.scope}.",
        "- In other domains only after the domain's own options failed."
        if skill.scope == "domain-local"
        else "- Looked up in every domain.",
        f"- To be validated again after {e.until}, with another evotrainer than {e.evotrainer}, or with another task "
        f"generator than {', '.join(f'{d} {v}' for d, v in e.generators.items())}.",
        "",
        "## Evidence",
        "",
        f"For: {len(skill.supporting)}, against: {len(skill.opposing)}. In full, with ledger rows: evidence.json.",
        "",
        "| run | branch | domain | change | effect, points | verdict |",
        "|---|---|---|---|---|---|",
        *[_row(t) for t in skill.trials],
    ]
    return "\n".join(lines) + "\n"


def _row(t: SkillTrial) -> str:
    effect = "" if t.mean is None else f"{100 * t.mean:+.1f} [{100 * (t.low or 0):+.1f}, {100 * (t.high or 0):+.1f}]"
    change = f"{short(t.old)} -> {short(t.new)}".replace("|", "\\|")
    return f"| {t.name} ({t.run[:12]}) | {t.branch} | {t.domain} | {change} | {effect} | {t.kind} |"


def short(value: Any) -> str:
    """A factor's value on one line, long ones by their length."""
    value = brief(value)
    return one_line(value if isinstance(value, str) else json.dumps(value, sort_keys=True))


def one_line(text: str) -> str:
    """Text in full, with no newline and no run of hyphens that a front matter's reader could take for its fence."""
    return text.replace("---", "- - -").replace("\n", " ")


def evidence(skill: Skill) -> dict[str, Any]:
    """What evidence.json holds: the trials, and what follows from them."""
    from evotrainer.projections.skills import FORMAT

    return {
        "format": FORMAT,
        "name": skill.name,
        "trigger": {
            "bottleneck": skill.bottleneck,
            "conditions": [c.model_dump(mode="json") for c in skill.conditions],
        },
        "intervention": {"factor": skill.factor, "direction": skill.direction},
        "claim": skill.claim,
        "scope": skill.scope,
        "validated": list(skill.validated),
        "pooled": _dumped(skill.pooled),
        "by_domain": {d: _dumped(pool(skill.of(d))) for d in skill.domains},
        "harness": sorted({t.harness for t in skill.trials}),
        "evotrainer": sorted({minor(t.version) for t in skill.trials}),
        "expiry": skill.expiry.model_dump(mode="json"),
        "for": [t.id for t in skill.supporting],
        "against": [t.id for t in skill.opposing],
        "trials": [t.model_dump(mode="json") for t in skill.trials],
    }


def _dumped(p: Pooled | None) -> dict[str, Any] | None:
    return p.model_dump(mode="json") if p else None


def evidence_json(skill: Skill) -> str:
    """The file's text."""
    return json.dumps(evidence(skill), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
