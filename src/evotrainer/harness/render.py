"""A health report as markdown: for terminals, and for an agent's briefing."""

from __future__ import annotations

from evotrainer.harness.bottlenecks import MOVED, factors_of
from evotrainer.records.findings import Finding, HealthReport, MetricValue, Quote, input_label
from evotrainer.records.output import line
from evotrainer.records.text import counted, cut

LAYERS = ("score", "signal", "behaviour")
PERCENT = ("share", "share of groups", "share of tasks", "share of pairs", "share of actions")


HEADLINE = ("accuracy", "reward", "frac_reward_zero_std", "completions/mean_length")
"""Metrics that are told also where they are in their healthy range."""


def render_text(report: HealthReport, quotes: int = 2, every: bool = True, size: str = "", explained: str = "") -> str:
    """Markdown of at most some 100 lines: bottlenecks, findings with quotes, metrics in three layers, blind spots.

    Not `every`: the answer in a line, and of the metrics the headline ones and those outside their healthy range.
    `size`: what the harness holds. `explained`: what explains a rise that no detector spoke of.
    """
    risen = [b for b in report.bottlenecks if b.name == "unexplained" and f"{MOVED}+" in b.explanation]
    if risen and explained:
        left = tuple(b for b in report.bottlenecks if b not in risen)
        report = report.model_copy(update={"bottlenecks": left})
    else:
        explained = ""
    lines = [f"# Health of {line(report.subject)}", ""]
    if not every:
        lines += [f"{answer(report)} {explained}".strip(), ""]
    held = f" ({size})" if size else ""
    lines.append(
        f"Harness {report.harness}{held}; {counted(report.rollouts, 'rollout')} in {counted(report.groups, 'group')}."
    )
    lines += ["", "## Diagnosis", ""]
    if not report.bottlenecks:
        lines.append(report.undiagnosed)
    for i, b in enumerate(report.bottlenecks, 1):
        remedies = factors_of(b.name)
        lines.append(f"{i}. **{b.name}** (severity {b.score:.2f}): {line(b.explanation)}")
        if remedies:
            lines.append(f"   Factors that may help: {', '.join(remedies)}.")
    if claims := report.claims:
        lines += ["", "## Findings", ""]
        for f in claims:
            lines += finding_lines(f, quotes)
    known = shown = 0
    for layer in LAYERS:
        rows = [m for m in report.metrics if m.layer == layer and m.value is not None]
        known += len(rows)
        if not every:
            rows = [m for m in rows if m.name in HEADLINE or not m.in_range]
        shown += len(rows)
        if rows:
            lines += ["", f"## {layer.capitalize()}", ""]
            lines += [metric_line(m) for m in rows]
    if shown < known:
        lines += ["", f"{known - shown} more metrics, all in their healthy range or without one: --all"]
    blind = sorted({f.detector for f in report.findings if f.missing})
    lacking = [x for m in report.metrics for x in m.missing] + [x for f in report.findings for x in f.missing]
    unseen = sorted({*map(input_label, lacking)})
    if unseen:
        lines += ["", "## Not seen", "", f"Missing: {line(', '.join(unseen))}."]
        if blind:
            lines.append(f"Detectors that could not look: {', '.join(blind)}.")
    return "\n".join(lines) + "\n"


def answer(report: HealthReport) -> str:
    """What is wrong, in a sentence: the first bottleneck, else the worst finding, else metrics outside their healthy
    range, else that nothing was found."""
    claims = [f for f in report.claims if f.severity != "info"]
    counts = [f"{n} {level}" for level in ("critical", "warn") if (n := sum(f.severity == level for f in claims))]
    answer_text = f"{' and '.join(counts)} finding{'s' if len(claims) > 1 else ''}" if claims else "no finding"
    if report.bottlenecks:
        b = report.bottlenecks[0]
        return f"Wrong first: {line(b.name)}, {line(b.explanation)} ({answer_text})."
    if claims:
        f = claims[0]
        return f"Worst: {line(named(f))}, {line(f.claim)} ({answer_text})."
    # a harness with few detectors may have none for what its metrics show
    if off := [m.name for m in report.metrics if not m.in_range]:
        more = f" and {len(off) - 3} more" if len(off) > 3 else ""
        answer_text = f"{len(off)} metric{'s' if len(off) > 1 else ''} outside the healthy range"
        return f"No detector of harness {report.harness} found anything; {answer_text}: {', '.join(off[:3])}{more}."
    return "Nothing wrong was found."


def named(f: Finding) -> str:
    """A finding's detector, and the bottleneck that it is a case of where that has another name."""
    return (
        f.detector if f.detector == f.kind or f.detector.startswith("reader") else f"{f.detector} (a case of {f.kind})"
    )


def finding_lines(f: Finding, quotes: int, most: int = 0) -> list[str]:
    """A finding as markdown lines, with its first quotes; `most`: characters of a quote, 0: all."""
    mark = f"{f.severity}, validity" if f.validity else f.severity
    return [f"- [{mark}] {line(named(f))}: {line(f.claim)}", *(quote_line(q, most) for q in f.quotes[:quotes])]


def quote_line(q: Quote, most: int = 0) -> str:
    """A quote as a markdown line."""
    # quotes are the policy's own text: backticks and newlines would break out of the markdown line
    text = " ⏎ ".join(s for ln in q.text.splitlines() if (s := ln.strip())) or "(empty)"
    text = cut(text, most) if most else text
    return f"  - `{q.rollout[:12]}` {text.replace('`', chr(39))}" + (f" — {q.note}" if q.note else "")


def metric_line(m: MetricValue) -> str:
    """One metric as a markdown line; its value must be known."""
    text = metric_value(m)
    if m.unit in PERCENT:
        text += f" ± {100 * m.se:.1f}" if m.se is not None else ""
    else:
        text += f" ± {m.se:.2g}" if m.se is not None else ""
        text += f" {m.unit}" if m.unit not in ("", "reward", "correlation", "ratio") else ""
    return f"- {line(m.name)}: {text}" + ("" if m.in_range else f" (healthy: {_range(m)})")


def metric_value(m: MetricValue) -> str:
    """Its value, which must be known: shares in percent."""
    assert m.value is not None
    return f"{m.value:.1%}" if m.unit in PERCENT else f"{m.value:.4g}"


def _range(m: MetricValue) -> str:
    low, high = m.healthy or (None, None)
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return f"at least {low:g}" if low is not None else f"at most {high:g}"
