"""The reference tables of docs/harness.md, generated from the registries: `python scripts/harness_reference.py
FILE`."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from evotrainer.harness.bottlenecks import KINDS, factors_of
from evotrainer.harness.detectors import DETECTORS
from evotrainer.harness.detectors.curves import CURVE_DETECTORS
from evotrainer.harness.metrics import LAYERS, METRICS
from evotrainer.harness.whatif.backtest import REPLAYS

BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"


def reference() -> str:
    """Markdown: every metric, detector, bottleneck kind and replayable factor with its docstring."""
    lines: list[str] = []
    for layer in LAYERS:
        lines += [
            f"### Metrics: {layer} layer",
            "",
            "| metric | unit | healthy | needs | meaning |",
            "|---|---|---|---|---|",
        ]
        for m in METRICS.values():
            if m.layer == layer:
                lines.append(_row(f"`{m.name}`", m.unit, _range(m.healthy), ", ".join(m.needs), _doc(m.function)))
        lines.append("")
    lines += ["### Detectors", ""]
    for told, detectors in (("", DETECTORS), ("### Detectors of a learning curve alone", CURVE_DETECTORS)):
        lines += ["", told, ""] if told else []
        lines += ["| detector | kind | layer | needs | default thresholds | rule |", "|---|---|---|---|---|---|"]
        for d in detectors.values():
            limits = ", ".join(f"{k} {v:g}" for k, v in d.thresholds.items())
            lines.append(_row(f"`{d.name}`", d.kind, d.layer, ", ".join(d.needs), limits, _doc(d.function)))
    lines += ["", "### Bottlenecks", "", "| kind | meaning | factors that may help |", "|---|---|---|"]
    lines += [_row(f"`{k}`", v.about, ", ".join(factors_of(k))) for k, v in KINDS.items()]
    lines += ["", "### What a backtest can replay", "", "| factors | rule |", "|---|---|"]
    for f in dict.fromkeys(REPLAYS.values()):
        lines.append(_row(", ".join(f"`{k}`" for k, v in REPLAYS.items() if v is f), _doc(f)))
    return "\n".join(lines) + "\n"


def embed(page: str) -> str:
    """The page with what stands between the two markers replaced."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n\n{reference()}\n{END}{rest.split(END)[1]}"


def _doc(f: object) -> str:
    return re.sub(r"\s+", " ", inspect.getdoc(f) or "").replace("|", "\\|")


def _range(healthy: tuple[float | None, float | None] | None) -> str:
    low, high = healthy or (None, None)
    return " and ".join(
        p for p in (f">= {low:g}" if low is not None else "", f"<= {high:g}" if high is not None else "") if p
    )


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(embed(path.read_text(encoding="utf-8")), encoding="utf-8")
