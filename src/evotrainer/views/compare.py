"""A comparison of search arms: as text, as JSON, and as one HTML file that opens offline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evotrainer.projections.text import points
from evotrainer.views import report
from evotrainer.views.plots import Axis

RESULTS, PAGE = "results.json", "comparison.html"


def write_comparison(found: Mapping[str, Any], out: Path) -> Path:
    """Write `results.json` and the page; returns the page's path. StoreError where they cannot be written."""
    advice = "free space or make it writable; the same command writes it"
    report.save(json.dumps(found, indent=1), out / RESULTS, advice)
    return report.save(render(found), out / PAGE, advice)


def render(found: Mapping[str, Any]) -> str:
    """The page as text."""
    arms = found["arms"]
    gains = [x for a in arms if a["gain"] for x in _ends(a["gain"])]
    optimism = [x for a in arms if a["optimism"] for x in _ends(a["optimism"])]
    return report.fill(
        "compare.html.j2",
        {"curves": {}, "rollouts": {}, "weights": {}},
        what="comparison",
        found=found,
        arms=arms,
        plan=found["plan"],
        gain_axis=Axis.over(gains, include=(0.0,)),
        optimism_axis=Axis.over(optimism, include=(0.0,)),
        curves=curves(arms, found["plan"]["trainings"]),
        spread=spread,
    )


def _ends(i: Mapping[str, Any]) -> list[float]:
    return [x for x in (i["mean"], i["low"], i["high"]) if x is not None]


def spread(i: Mapping[str, Any] | None) -> str:
    """`+3.2 [+1.1, +5.3]`; without an interval where there is none."""
    if i is None:
        return "–"
    return points(i["mean"]) + ("" if i["low"] is None else f" [{points(i['low'])}, {points(i['high'])}]")


WIDTH, HEIGHT, LEFT, BOTTOM = 640.0, 300.0, 44.0, 28.0
DASHES = ("", "7 3", "2 3", "9 3 2 3", "1 4")
"""Lines differ by colour and by dash: ten arms are not told apart by hue alone."""


def curves(arms: Sequence[Mapping[str, Any]], trainings: int) -> dict[str, Any] | None:
    """Geometry of the plot of gain against trainings; None where choices were proved at the end only."""
    drawn = [a for a in arms if len(a["curve"]) > 1]
    values = [x for a in drawn for _, i in a["curve"] if i for x in _ends(i)]
    if not values:
        return None
    y, x = Axis.over(values, include=(0.0,)), Axis(0.0, float(trainings))

    def place(n: float, gain: float) -> str:
        return f"{LEFT + (WIDTH - LEFT) * x.share(n):.1f},{(HEIGHT - BOTTOM) * (1 - y.share(gain)):.1f}"

    lines = [
        {
            "arm": a["arm"],
            "hue": round(360 * k / len(drawn)),
            "dash": DASHES[k % len(DASHES)],
            "points": " ".join(place(n, i["mean"]) for n, i in a["curve"] if i),
            # beside one another, not on top: the arms' points stand at the same trainings
            "bars": " ".join(
                f"M{place(n + (k - len(drawn) / 2) * trainings / 400, i['low'])}V{place(n, i['high']).split(',')[1]}"
                for n, i in a["curve"]
                if i and i["low"] is not None
            ),
        }
        for k, a in enumerate(drawn)
    ]
    return {
        "lines": lines,
        "ticks": [(place(0, t).split(",")[1], points(t)) for t in y.ticks()],
        "steps": [(place(n, 0).split(",")[0], f"{n:g}") for n in x.ticks()],
        "zero": place(0, 0).split(",")[1],
    }


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
