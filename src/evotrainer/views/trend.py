"""How what the harness reads changes over a training, as rows and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evotrainer.records.events import TrialFinished
from evotrainer.records.findings import HealthReport
from evotrainer.records.text import counted
from evotrainer.views.evidence import HealthReading

SHOWN = (
    "accuracy", "reward", "proxy_gap", "frac_reward_zero_std", "reward_std", "effective_groups", "entropy",
    "mean_logprob", "completions/mean_length", "completions/clipped_ratio", "distinct_solutions",
    "solution_similarity", "ngram_repetition", "io_dependence", "tool_failure_rate", "edit_ratio", "self_test_rate",
)  # fmt: skip
"""Metrics of the text form; JSON has all."""
CURVE = ("reward", "score", "frac_reward_zero_std", "entropy", "kl", "grad_norm", "loss", "completions/mean_length",
         "completions/clipped_ratio")  # fmt: skip
"""The same of a learning curve."""
COLUMNS = 8
"""Steps of a learning curve that are shown."""


def trend_rows(reports: Sequence[HealthReport]) -> list[dict[str, Any]]:
    """One row per step of training, oldest first: `step`, `seeds`, means over seeds of every metric, and `findings`
    (detector -> worst severity)."""
    read = [r for r in (HealthReading.of(None, h) for h in reports) if r.split == "train"]
    rows = _means((r.step, {m.name: m.value for m in r.report.metrics if m.value is not None}) for r in read)
    for row in rows:
        for f in (f for r in read if r.step == row["step"] for f in r.report.findings):
            if not f.missing and f.severity != "info" and row["findings"].get(f.detector) != "critical":
                row["findings"][f.detector] = f.severity
    return rows


def curve_rows(trials: Sequence[TrialFinished]) -> list[dict[str, Any]]:
    """Rows of the same form from the learning curves, COLUMNS at most, the first and the last step among them."""
    rows = _means((int(p.get("step", i)), p) for t in trials for i, p in enumerate(t.curve, 1))
    most = min(COLUMNS, len(rows))
    return [rows[round(k * (len(rows) - 1) / max(1, most - 1))] for k in range(most)]


def _means(points: Iterable[tuple[int, Mapping[str, float]]]) -> list[dict[str, Any]]:
    """(step, values) of several trainings as a row per step."""
    by_step: dict[int, list[Mapping[str, float]]] = {}
    for step, values in points:
        by_step.setdefault(step, []).append(values)
    rows = []
    for step, found in sorted(by_step.items()):
        names = {k: [p[k] for p in found if k in p] for p in found for k in p}
        means = {k: sum(v) / len(v) for k, v in names.items()}
        rows.append({"step": step, "seeds": len(found), "metrics": means, "findings": {}})
    return rows


def render_trend(name: str, rows: Sequence[dict[str, Any]], trials: Sequence[TrialFinished]) -> str:
    """What the harness read, a line per metric and a column per step, and the findings by step. Of a training that was
    read at fewer than two steps its learning curve, and what would read it more often."""
    if len(rows) > 1:
        out = [f"# Training of {name}, mean over {_seeds(rows)}", "", *_table(rows, SHOWN), "", "Findings:"]
        for r in rows:
            findings = ", ".join(f"{d} ({s})" for d, s in sorted(r["findings"].items())) or "none"
            out.append(f"- step {r['step']}: {findings}")
        return "\n".join(out) + "\n"
    steps, curve = max((t.steps for t in trials), default=0), curve_rows(trials)
    at = f"at step {rows[0]['step']} alone" if rows else "at no step"
    more = f"; a new run with run.health_every={max(1, steps // 5)} reads trainings of {steps} steps more often"
    out = [f"The harness read the training of {name} {at}, which shows no trend{more if steps > 1 else ''}.", ""]
    if len(curve) > 1:
        out += [f"# Learning curve of {name}, mean over {_seeds(curve)}", "", *_table(curve, CURVE)]
    return "\n".join(out).rstrip() + "\n"


def _seeds(rows: Sequence[dict[str, Any]]) -> str:
    return counted(max(r["seeds"] for r in rows), "seed")


def _table(rows: Sequence[dict[str, Any]], shown: Sequence[str]) -> list[str]:
    head = ["step", *(str(r["step"]) for r in rows)]
    lines = [head]
    for metric in shown:
        cells = [r["metrics"].get(metric) for r in rows]
        if any(c is not None for c in cells):
            lines.append([metric, *("" if c is None else f"{c:.3g}" for c in cells)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return [
        "  ".join(c.ljust(w) if not i else c.rjust(w) for i, (c, w) in enumerate(zip(ln, widths, strict=True)))
        for ln in lines
    ]
