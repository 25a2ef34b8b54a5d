"""A comparison of search arms as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evotrainer.projections.text import points
from evotrainer.views import report

RESULTS = "results.json"


def write_results(found: Mapping[str, Any], out: Path) -> Path:
    """Write `results.json`; returns its path. StoreError where it cannot be written."""
    advice = "free space or make it writable; the same command writes it"
    return report.save(json.dumps(found, indent=1), out / RESULTS, advice)


def spread(i: Mapping[str, Any] | None) -> str:
    """`+3.2 [+1.1, +5.3]`; without an interval where there is none."""
    if i is None:
        return "–"
    return points(i["mean"]) + ("" if i["low"] is None else f" [{points(i['low'])}, {points(i['high'])}]")


def text_table(found: Mapping[str, Any]) -> str:
    """The table for a terminal, gains and optimism in points."""
    head = ["arm", "repeats", "trainings", "gain on fresh seeds", f"{found['reference']} minus it", "optimism"]
    head += ["invalid", "below start"]
    lines = [head]
    exact = any(a["true_gain"] for a in found["arms"])
    if exact:
        head += ["true gain", "share of best"]
    for a in found["arms"]:
        used = a["trainings"]["mean"]
        line = [a["arm"], str(a["repeats"]), f"{used:.1f}", spread(a["gain"])]
        line += [spread(a["behind"]), spread(a["optimism"]), str(a["invalid"]), str(a["worse"])]
        if exact:
            line += [points(a["true_gain"]["mean"]), "–" if a["share"] is None else f"{a['share']:.2f}"]
        lines.append(line)
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    out = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join(out)
