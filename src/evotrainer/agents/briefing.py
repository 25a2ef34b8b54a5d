"""A briefing as markdown: what an LLM agent, a coding agent or a human at a gate reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evotrainer.records.briefing import BranchRecord, Briefing
from evotrainer.records.findings import Finding, MetricValue
from evotrainer.records.interventions import Intervention
from evotrainer.records.output import visible
from evotrainer.records.recipe import diff, format_diff, short
from evotrainer.records.skills import CLAIMS

QUOTE = 400
"""Characters of a quoted rollout."""


def render(briefing: Briefing, *, quotes: int = 2) -> str:
    """Markdown: champion, diagnosis, evidence in three layers, findings with quotes, lineage, what is left."""
    parts = [
        _head(briefing),
        _champion(briefing),
        _diagnosis(briefing),
        _evidence(briefing),
        _findings(briefing.health.findings, quotes),
        _lineage(briefing),
        _cases(briefing),
        _skills(briefing),
        _offers(briefing),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def trial_cost(b: Briefing) -> str:
    """What one trial costs, in the unit of the budget."""
    unit = {"cpu_s": "CPU-s", "gpu_s": "GPU-s"}.get(b.cost_unit, "US dollars")
    return f"{b.trial_cost:.2f} {unit}" if b.cost_unit == "usd" else f"{b.trial_cost:.0f} {unit}"


def _head(b: Briefing) -> list[str]:
    left = ", ".join(f"{k} {v:g}" for k, v in sorted(b.budget_left.items())) or "no limit"
    out = [
        f"# Round {b.round}{f' of run {b.run}' if b.run else ''}",
        "",
        f"Task: {b.task}",
    ]
    if b.trial_cost or b.budget_left:
        out.append(f"Budget left: {left}. One trial costs about {trial_cost(b)}.")
    if b.branches_wanted:
        out.append(f"Branches wanted: {b.branches_wanted}, each changing one factor of the champion's recipe.")
    if b.failures_in_a_row:
        out.append(f"Rounds without a promotion: {b.failures_in_a_row}.")
    if b.feedback:
        out.append(f"A human answered REVISE: {b.feedback}")
    return out


def _champion(b: Briefing) -> list[str]:
    c = b.champion
    out = [f"## Champion: {c.branch}{f' ({c.version})' if c.version else ''}", ""]
    if c.search:
        out += ["Search split: " + ", ".join(f"{k} {v:.3f}" for k, v in sorted(c.search.items())), ""]
    return [*out, "```json", c.recipe.canonical(), "```"]


def _diagnosis(b: Briefing) -> list[str]:
    if not b.health.bottlenecks:
        return ["## Diagnosis", "", "No bottleneck stands out."]
    rows = [
        f"{i}. **{x.name}** (severity {x.score:.2f}): {one_line(x.explanation)}"
        + (f" [{', '.join(x.findings)}]" if x.findings else "")
        for i, x in enumerate(b.health.bottlenecks, 1)
    ]
    return ["## Diagnosis", "", *rows]


def _evidence(b: Briefing) -> list[str]:
    h = b.health
    out = [f"## Evidence ({h.harness}, {h.subject}: {h.rollouts} rollouts in {h.groups} groups)"]
    for layer in ("score", "signal", "behaviour"):
        rows = [_metric(m) for m in h.metrics if m.layer == layer]
        if rows:
            out += ["", f"### {layer.capitalize()}", "", "| metric | value | healthy |", "|---|---|---|", *rows]
    return out


def _metric(m: MetricValue) -> str:
    if m.value is None:
        return f"| {m.name} | not seen (missing {', '.join(m.missing) or 'data'}) | |"
    value = f"{m.value:.4g}" + (f" ± {m.se:.2g}" if m.se is not None else "") + (f" {m.unit}" if m.unit else "")
    low, high = m.healthy or (None, None)
    healthy = " to ".join("" if x is None else f"{x:g}" for x in (low, high)) if m.healthy else ""
    mark = " ⚠" if (low is not None and m.value < low) or (high is not None and m.value > high) else ""
    return f"| {m.name} | {value}{mark} | {healthy} |"


def _findings(findings: Sequence[Finding], quotes: int) -> list[str]:
    order = {"critical": 0, "warn": 1, "info": 2}
    out = ["## Findings"] if findings else []
    for f in sorted(findings, key=lambda f: (order[f.severity], f.detector)):
        out += [
            "",
            f"### {f.severity}: {f.kind} ({f.detector}){' - questions validity' if f.validity else ''}",
            "",
            one_line(f.claim),
        ]
        if f.numbers:
            numbers = [
                f"{k} {v:.4g}" + (f" (threshold {f.thresholds[k]:g})" if k in f.thresholds else "")
                for k, v in f.numbers.items()
            ]
            out.append("Numbers: " + ", ".join(numbers))
        for q in f.quotes[:quotes]:
            text = q.text if len(q.text) <= QUOTE else q.text[:QUOTE] + " ..."
            out += [f"Rollout {q.rollout}{f' ({q.note})' if q.note else ''}, what a policy wrote:", *_fenced(text)]
    return out


def _fenced(text: str) -> list[str]:
    """The text as a code block whose fence it cannot close, with control characters made visible."""
    fence, text = "```", visible(text)
    while fence in text:
        fence += "`"
    return [fence, text, fence]


def table_text(text: str) -> str:
    """A text in a cell of a table, or in any one line."""
    return one_line(text).replace("|", "\\|")


def one_line(text: str) -> str:
    """A text that looks like no heading and opens no block, whoever wrote it."""
    return " ".join(visible(text).split())


def _lineage(b: Briefing) -> list[str]:
    rows = list(_rows(b))
    if not rows:
        return []
    head = ["| branch | parent | round | change | search | verdict | gate effect |", "|---|---|---|---|---|---|---|"]
    rejected = [
        table_text(f"- {x.branch}: {_idea(x.intervention)} -> {x.verdict.kind}: {x.verdict.reason}")
        for x in b.branches
        if x.intervention and x.verdict and x.verdict.kind != "promote"
    ]
    tail = ["", "### Tried and not promoted", "", *rejected] if rejected else []
    return ["## Lineage", "", *head, *rows, *tail]


def _idea(iv: Intervention) -> str:
    """The hypothesis, if it is not of whoever sits: its words are no text of a request, not of its own later one."""
    return f"{format_diff({iv.factor: (iv.old, iv.new)})}, named by the seat" if iv.move == "seat" else iv.hypothesis


def _rows(b: Briefing) -> Iterator[str]:
    by_name = {x.branch: x for x in b.branches}
    for x in b.branches:
        score = x.search.get("score")
        verdict = x.verdict.kind if x.verdict else ""
        name = f"{x.branch} ({x.version})" if x.version else x.branch
        yield (
            f"| {name} | {x.parent or ''} | {x.round} | {_change(x, by_name)} | "
            f"{'' if score is None else f'{score:.3f}'} | {verdict} | {_effect(x)} |"
        )


def _change(x: BranchRecord, by_name: dict[str, BranchRecord]) -> str:
    parent = by_name.get(x.parent or "")
    if parent is None:
        return "starting recipe" if x.parent is None else ""
    return format_diff(diff(parent.recipe, x.recipe)).replace("|", "\\|")


def _effect(x: BranchRecord) -> str:
    return x.effect.told(x.on_fresh_seeds) if x.effect else ""


def _cases(b: Briefing) -> list[str]:
    """What was seen, tried, expected and found, and what may be tried again."""
    if not b.cases:
        return []
    head = ["| branch | seen | like now | tried | expected | happened | came true |", "|---|---|---|---|---|---|---|"]
    rows = []
    for c in b.cases:
        seen = ", ".join(f"{k} (severity {v:.2f})" for k, v in list(c.seen.items())[:3]) or "sound"
        expected = f"{100 * c.forecast.mean:+.1f} ± {100 * c.forecast.sd:.1f}" if c.forecast else ""
        happened = f"{c.kind} {c.effect.told(c.on_fresh_seeds)}" if c.effect else c.kind or "open"
        new = table_text(str(short(c.new)))
        came = {True: "yes", False: "no", None: ""}[c.came_true]
        like = "" if c.likeness is None else f"{c.likeness:.2f}"
        rows.append(f"| {c.branch} | {seen} | {like} | {c.factor} = {new} | {expected} | {happened} | {came} |")
    again = [f"- {k}: {', '.join(v)}" for k, v in b.reopenable.items()]
    rule = [
        "",
        "A value of a factor that was tried is refused, unless `reopens` names the branch and `changed` an "
        "assumption that changed since" + (":" if again else "; nothing did."),
        *again,
    ]
    return ["## Cases", "", *head, *rows, *rule]


def _skills(b: Briefing) -> list[str]:
    """Skills whose trigger is diagnosed."""
    rows = []
    for a in b.skills:
        effect = "no effect measured"
        if a.mean is not None and a.low is not None and a.high is not None:
            effect = f"{100 * a.mean:+.1f} [{100 * a.low:+.1f}, {100 * a.high:+.1f}] points over {a.trials} branch(es)"
        doubts = [x for x, on in (("another domain", a.foreign), ("another base policy", a.other_base)) if on]
        doubts += [f"to be validated again: {a.expired}"] if a.expired else []
        doubts += [f"{a.losses} ended invalid or failed"] if a.losses else []
        rows.append(
            f"- **{a.name}** ({a.scope}, {', '.join(a.domains)}): {a.factor} {a.direction} when {a.bottleneck}: "
            f"{CLAIMS[a.claim]}, {effect}" + (f" ({'; '.join(doubts)})" if doubts else "")
        )
    return ["## Skills", "", *rows] if rows else []


def _offers(b: Briefing) -> list[str]:
    out = ["## What can be changed"]
    if b.components:
        out += ["", "Reward components on offer:", *[f"- `{k}`: {v}" for k, v in sorted(b.components.items())]]
    if b.unpayable:
        out += ["", f"Not for sale, as they are the outcome or derive from it: {', '.join(b.unpayable)}."]
    if b.offers:
        out += ["", f"The environment also offers: {', '.join(b.offers)} (of train problems)."]
    if b.knobs:
        out += ["", "Environment knobs (default first):", *[f"- `knobs.{k}`: {v}" for k, v in sorted(b.knobs.items())]]
    if b.notes:
        out += ["", "Notes:", *[f"- {k}: {v}" for k, v in sorted(b.notes.items())]]
    return out
