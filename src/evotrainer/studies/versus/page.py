"""The comparison as one HTML file."""

from __future__ import annotations

from pathlib import Path

from evotrainer.judge.versus import told_effect
from evotrainer.records.text import counted
from evotrainer.studies.versus.compare import SHARES, Versus
from evotrainer.studies.versus.text import after, interval_of, least, said, side_json, unpaired


def write_html(v: Versus, path: Path) -> Path:
    """Write the page; StoreError where it cannot be written."""
    from evotrainer.views.versus import write_versus

    c, scale = v.comparison, 100 if v.shares else 1
    sides = [
        {
            "side": name,
            **side_json(side, scale * mean, [scale * x for x in per_seed]),
        }
        for name, side, mean, per_seed in zip("AB", (v.a, v.b), v.means, v.per_seed, strict=True)
    ]
    return write_versus(
        path,
        title=f"{v.a.seeds[0].name} against {v.b.seeds[0].name}",
        word=c.word,
        said=said(v),
        reason=c.reason,
        score=v.score,
        shares=v.shares,
        effect=c.effect,
        told=told_effect(c.effect, v.shares),
        least=least(v),
        interval=interval_of(v),
        after=after(v)[1:],
        tasks=f"{v.tasks[0]:,} of {v.tasks[1]:,} scored by all",
        counts=v.counts,
        notes=[*v.notes, *(f"not compared: {x}" for x in unpaired(v))],
        sides=sides,
        gates=c.gates,
        behaviour=sorted(v.behaviour, key=lambda d: not d.moved),
        share_names=SHARES | {"outcome"},
        findings=v.findings,
        metrics=v.metrics,
        trainings=f"{counted(len(v.a.seeds), 'training')} against {len(v.b.seeds)}",
    )
