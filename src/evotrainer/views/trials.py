"""Every trial with its label in a terminal, and what the agents of a run came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evotrainer.projections.labels import LABELS
from evotrainer.projections.text import one_line, value
from evotrainer.projections.trials import LabelledTrial, counts, distinct_ideas
from evotrainer.records.text import counted
from evotrainer.views.tables import word_table

if TYPE_CHECKING:
    from rich.table import Table


KINDS = {
    "search": ("search training", "search trainings"),
    "branch": ("branch", "branches"),
    "proposal": ("proposal that was not trained", "proposals that were not trained"),
    "answer": ("answer of a seat that was sent back", "answers of a seat that were sent back"),
}
"""What is labelled, one and several; the run's own controls are not counted."""


def label_text(label: str) -> str:
    """A label as readers see it."""
    return label.replace("_", " ")


def labels_line(trials: Sequence[LabelledTrial]) -> str:
    """`keep 3, not taken 20`; empty where nothing was tried."""
    return ", ".join(f"{label_text(k)} {n}" for k, n in counts(trials).items())


def describe_labels(trials: Sequence[LabelledTrial]) -> str:
    """Of each kind of trial how many there are and how often each label was given, then what these labels mean; empty
    where nothing was tried."""
    of = {k: [t for t in trials if t.kind == k] for k in KINDS}
    parts = [f"{len(ts)} {KINDS[k][len(ts) > 1]}: {labels_line(ts)}" for k, ts in of.items() if ts]
    meant = "; ".join(f"{label_text(k)}: {LABELS[k]}" for k in LABELS if k in counts(trials))
    return f"{'; '.join(parts)} ({meant})" if parts else ""


def role_lines(trials: Sequence[LabelledTrial]) -> list[tuple[str, str]]:
    """(who asked, what it came to: trainings, values of factors that these brought, labels), where a seat and the
    statistical agent share the run."""
    searched = [t for t in trials if t.kind == "search"]
    roles = {r: [t for t in searched if t.by == r] for r in dict.fromkeys(t.by for t in searched)}
    if len(roles) < 2:
        return []
    return [
        (r, f"{counted(len(ts), 'training')}, {counted(len(distinct_ideas(ts)), 'idea')}; {labels_line(ts)}")
        for r, ts in roles.items()
    ]


def changes_line(t: LabelledTrial) -> str:
    """`lr = 0.0004; group_size = 12`."""
    return "; ".join(f"{f} = {value(v)}" for f, v in t.changes.items()) or "none"


def expected_line(t: LabelledTrial) -> str:
    return f"{100 * t.expected[0]:+.1f} ± {100 * t.expected[1]:.1f}" if t.expected else "–"


def measured_line(t: LabelledTrial) -> str:
    where = "search" if t.kind == "search" else "gate, on fresh seeds" if t.on_fresh_seeds else "gate"
    return "–" if t.measured is None else f"{100 * t.measured:+.1f} on {where}"


def render_trials(trials: Sequence[LabelledTrial]) -> Table:
    """One row per trial, what the labels mean below them; a parent that its recipe does not bear out is marked."""
    rows = []
    alone = len({t.by for t in trials if t.by}) < 2
    for t in trials:
        doubt = "" if t.verified or t.kind in ("proposal", "answer") else " (not borne out)"
        why = one_line(t.hypothesis if alone or not t.by else f"{t.by}: {t.hypothesis}", 160)
        rows.append(
            (
                t.trial,
                one_line(changes_line(t), 160) + (f"\n  {why}" if why else ""),
                one_line(t.parent + doubt, 40),
                expected_line(t),
                measured_line(t),
                f"{label_text(t.label)}: {one_line(t.cause, 80)}" if t.label not in ("keep", "discard") else t.label,
            )
        )
    by = f"by {one_line(trials[0].by, 40)}; " if alone and trials and trials[0].by else ""
    return word_table(
        ("trial", "change, and why", "from", "expected", "measured", "label"), rows, by + describe_labels(trials)
    )
