"""How what the harness reads changes over a training, as rows and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evotrainer.records.findings import HealthReport
from evotrainer.records.text import counted
from evotrainer.views.evidence import HealthReading

SHOWN = (
    "accuracy", "reward", "proxy_gap", "frac_reward_zero_std", "reward_std", "effective_groups", "entropy",
    "mean_logprob", "completions/mean_length", "completions/clipped_ratio", "distinct_solutions",
    "solution_similarity", "ngram_repetition", "io_dependence", "tool_failure_rate", "edit_ratio", "self_test_rate",
)  # fmt: skip
"""Metrics of the text form; JSON has all."""


def trend_rows(reports: Sequence[HealthReport]) -> list[dict[str, Any]]:
    """One row per step of training, oldest first: `step`, `seeds`, means over seeds of every metric, and `findings`
    (detector -> worst severity)."""
    by_step: dict[int, list[HealthReport]] = {}
    for h in reports:
        r = HealthReading.of(None, h)
        if r.split == "train":
            by_step.setdefault(r.step, []).append(h)
    rows = []
    for step in sorted(by_step):
        values: dict[str, list[float]] = {}
        findings: dict[str, str] = {}
        for h in by_step[step]:
            for m in h.metrics:
                if m.value is not None:
                    values.setdefault(m.name, []).append(m.value)
            for f in h.findings:
                if not f.missing and f.severity != "info" and findings.get(f.detector) != "critical":
                    findings[f.detector] = f.severity
        means = {k: sum(v) / len(v) for k, v in values.items()}
        rows.append({"step": step, "seeds": len(by_step[step]), "metrics": means, "findings": findings})
    return rows


def render_trend(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """A table: a line per metric, a column per step; below it the findings by step."""
    if not rows:
        return f"no reading of {name}'s training is recorded (run.health_every = 0, or an older run)\n"
    head = ["step", *(str(r["step"]) for r in rows)]
    lines = [head]
    for metric in SHOWN:
        cells = [r["metrics"].get(metric) for r in rows]
        if any(c is not None for c in cells):
            lines.append([metric, *("" if c is None else f"{c:.3g}" for c in cells)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    table = [
        "  ".join(c.ljust(w) if not i else c.rjust(w) for i, (c, w) in enumerate(zip(ln, widths, strict=True)))
        for ln in lines
    ]
    seeds = max(r["seeds"] for r in rows)
    out = [f"# Training of {name}, mean over {counted(seeds, 'seed')}", "", *table, "", "Findings:"]
    for r in rows:
        said = ", ".join(f"{d} ({s})" for d, s in sorted(r["findings"].items())) or "none"
        out.append(f"- step {r['step']}: {said}")
    return "\n".join(out) + "\n"
