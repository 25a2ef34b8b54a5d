"""A run folder in a terminal: where it stands, and its result at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.projections.run_facts import STATUS
from evotrainer.projections.text import duration, one_line, percent
from evotrainer.views import summary
from evotrainer.views.advice import advice
from evotrainer.views.fold import load_view
from evotrainer.views.heartbeats import process_exists
from evotrainer.views.model import RunView, TrialView
from evotrainer.views.progress import settings
from evotrainer.views.search import search_line
from evotrainer.views.style import PURPOSE
from evotrainer.views.tables import facts_grid, ruled_table
from evotrainer.views.tree import branch_line, branch_tree
from evotrainer.views.trials import describe_labels, role_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


LATEST = 8
"""Branches and search trainings that are shown where it is to be brief."""


def render_status(run_folder: Path | str, *, brief: bool = False) -> RenderableType:
    """Where a run stands: state, champion, trials, budget, verdicts. `brief`: what moves while it runs, which a
    terminal of 24 rows holds."""
    from rich.console import Group
    from rich.text import Text

    view = load_view(run_folder, rollouts=False)
    facts = facts_grid(
        [
            ("run", str(run_folder)),
            ("state", summary.state(view)[1]),
            ("result", view.facts.text("result")),
            *(_comparisons_and_caveats(view, str(run_folder)) if not brief else ()),
            ("round", _round(view)),
            ("champion", _champion(view)),
            *([("search", line)] if (line := search_line(view)) else []),
            *(_trials_and_harness(view) if not brief else ()),
            *((name, f"{used} of {limit}" if limit else used) for name, used, limit, _ in summary.cost_lines(view)),
            *(_measured(view) if not brief else ()),
        ]
    )
    parts: list[RenderableType] = [facts]
    if waiting := [t for t in view.trials if not t.finished]:
        parts += [
            Text(""),
            ruled_table(["trial", "purpose", "state", "step", "training score", "CPU"], map(_open_trial, waiting)),
        ]
    if not brief:
        return Group(*parts, Text(""), branch_tree(view)) if view.branches else Group(*parts)
    training = {t.branch for t in waiting}
    shown = [b for b in view.branches.values() if b.verdict or (b.intervention and not view.closed)]
    shown += [p for p in view.probes.values() if p.name in training]
    parts += [Text("") for _ in shown[:1]] + [Text.assemble(*branch_line(b)) for b in shown[-LATEST:]]
    parts += [Text(f"and {len(shown) - LATEST} earlier")] if len(shown) > LATEST else []
    return Group(*parts)


def _comparisons_and_caveats(view: RunView, folder: str) -> Iterator[tuple[str, str]]:
    """The comparisons, what to do next, and the caveats."""
    for f in view.facts.of_kinds("comparison"):
        what, _, text = f.text.partition(": ")
        yield what, text
    if line := advice(view, folder):
        yield "next", line
    champion = view.facts.of(view.champion)
    yield from ((f.label, f.text) for f in (*champion.caveats, *champion.of_kinds("no_caveat", "reader")))


def _trials_and_harness(view: RunView) -> Iterator[tuple[str, str]]:
    """What trials came to, by outcome and by agent, and the harness."""
    if outcomes := describe_labels(view.memory.trials):
        yield "outcomes", outcomes
    yield from role_lines(view.memory.trials)
    if view.coevolution.versions:
        yield "harness", view.coevolution.line()
    yield from ((f.label, f.text) for f in view.facts.of_kinds("diagnosis")[-1:])


def _measured(view: RunView) -> Iterator[tuple[str, str]]:
    """The noise floor, the tasks, the sandbox, and what was not measured."""
    yield from ((f.label, f.text) for f in view.facts.of_kinds("noise", "tasks", "sandbox"))
    for f in view.facts.unmeasured:
        if not f.about or view.driver is None:  # what a running branch lacks may still come
            yield f.label, f"{f.about}: {f.text}" if f.about else f.text


def _round(view: RunView) -> str:
    asked = (settings(view).get("run") or {}).get("rounds")
    return str(max(view.rounds, default=0)) + (f" of {asked}" if asked and not view.closed else "")


def _champion(view: RunView) -> str:
    """The champion's name, and how it came to be that."""
    status = view.facts.of(view.champion).text("status")
    return f"{view.champion}, {status}" if status else view.champion or "none yet"


def _open_trial(t: TrialView) -> list[str]:
    beat = t.heartbeat
    if not beat:
        state = "waiting"
    else:
        state = "running" if process_exists(beat.get("pid")) else "stopped"
    return [
        t.id,
        PURPOSE.get(t.purpose, t.purpose),
        f"{state} {one_line(beat.get('phase', ''), 24)}".strip(),
        f"{beat.get('step', 0)}/{beat['steps']}" if beat.get("steps") else "",
        percent(beat["score"]) if isinstance(beat.get("score"), int | float) else "",
        duration(t.cpu_s) if beat else "",
    ]


def print_summary(run_folder: Path | str, console: Console) -> None:
    """The run's result in a few lines, for the end of `evotrainer run`."""
    from rich.text import Text

    view = load_view(run_folder, rollouts=False)
    console.print(Text(one_line(summary.headline(view), 1000), style="bold"), soft_wrap=True)
    for f in view.facts.of_kinds("comparison"):
        console.print(Text(f"  {f.text}"), soft_wrap=True)
    for b in view.path(view.champion)[1:]:
        if b.intervention:
            console.print(Text.assemble("  ", *branch_line(b)), soft_wrap=True)
    counts = ", ".join(f"{n} {STATUS[k]}" for k, n in view.verdict_counts().items())
    spent = ", ".join(f"{name.lower()} {used}" for name, used, _, _ in summary.cost_lines(view))
    console.print(Text(f"  {counts or 'no verdicts'}; {spent}"), soft_wrap=True)
    if line := advice(view, str(run_folder)):
        console.print(Text.assemble(("next: ", "bold"), line), soft_wrap=True)
