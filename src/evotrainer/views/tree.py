"""The tree of a run's branches in a terminal, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evotrainer.projections.text import confidence, one_line, percent, point_range, points
from evotrainer.views.model import BranchView, RunView
from evotrainer.views.search import search_rounds
from evotrainer.views.style import MARK, STYLE
from evotrainer.views.trials import labels_line

if TYPE_CHECKING:
    from rich.tree import Tree


def branch_tree(view: RunView) -> Tree:
    """The tree of branches, one line each."""
    from rich.text import Text
    from rich.tree import Tree

    base = next((b for b in view.branches.values() if b.recipe is None), None)
    root = Tree(Text.assemble(*branch_line(base)) if base else Text("○ base policy", style="cyan"), guide_style="dim")
    places: dict[str, Tree] = {}
    trials = view.memory.trials
    became = {t.trial: t.label for t in trials}
    for b in view.branches.values():
        if b.recipe is None:
            continue
        parts = branch_line(b)
        if b.name == view.champion:
            parts.insert(2 if b.version else 1, ("  champion", f"bold {STYLE[b.status]}"))
        label = Text.assemble(*parts)
        if became.get(b.name) not in (None, "keep", "discard", "open"):
            label.append(f"  {became[b.name]}", style="dim")
        places[b.name] = places.get(b.parent or "", root).add(label)
    for r in search_rounds(view):
        scores = [p.score for p in r.trainings if p.score is not None]
        best = f", best {percent(max(scores))} on search" if scores else ""
        incumbent = r.trainings[0].incumbent if r.trainings else ""
        labels = labels_line([t for t in trials if t.kind == "search" and t.round == r.number])
        text = f"{len(r.trainings)} search trainings of round {r.number}{best} ({labels}): `evotrainer cases --trials`"
        places.get(incumbent, root).add(Text(text, style="dim"))
    return root


def branch_line(b: BranchView) -> list[tuple[str, str]]:
    """A branch in one line, as (text, style) parts."""
    kind = b.status
    e, was = b.effect, b.at_selection
    score = b.mean("search")
    parts = [(f"{MARK[kind]} {b.name}", f"bold {STYLE[kind]}"), (f" {b.version}" if b.version else "", "bold")]
    parts.append((f"  {b.facts.text('changes')}", ""))
    if b.intervention:
        parts.append((f"  {b.facts.text('status')}", STYLE[kind]))
    if e:
        level = "" if abs(e.confidence - 0.95) < 1e-9 else f" at {confidence(e.confidence)}"
        parts.append((f"  {points(e.mean)} pt {point_range(e.low, e.high)}{level} on gate", "bold"))
    if b.on_fresh_seeds:
        parts.append((", on fresh seeds" + (f", {points(was.mean)} at selection" if was else ""), "dim"))
    if score is not None:
        parts.append((f"  search {percent(score)}", "dim"))
    return [(one_line(text, 200) if text.strip() == text else text, style) for text, style in parts if text]
