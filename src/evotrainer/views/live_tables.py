"""The tables of the live panel: what the branches change, trials, budget, verdicts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from evotrainer.projections.run_facts import VERDICT
from evotrainer.projections.text import duration, one_line, percent
from evotrainer.records.verdicts import Verdict
from evotrainer.views.progress import TrialWatch, spark
from evotrainer.views.style import MARK, STYLE

if TYPE_CHECKING:
    from rich.console import RenderableType


class TrialSpecView(Protocol):
    """What is shown of a trial's specification; `executors.spec.TrialSpec` fits."""

    @property
    def trial(self) -> str: ...
    @property
    def branch(self) -> str: ...
    @property
    def purpose(self) -> str: ...


class HeartbeatView(Protocol):
    """A trial's last sign of life; `executors.spec.Heartbeat` fits."""

    @property
    def step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def phase(self) -> str: ...
    @property
    def cpu_s(self) -> float: ...


def change_table(
    running: Sequence[tuple[TrialSpecView, HeartbeatView | None]], changes: Mapping[str, str]
) -> RenderableType | None:
    """What the branches that train now change."""
    from rich.text import Text

    names = [x for x in dict.fromkeys(spec.branch for spec, _ in running) if x in changes]
    grid = _grid()
    for name in names:
        grid.add_row(Text(name, style="bold"), Text(changes[name]))
    return grid if names else None


def trial_table(
    running: Sequence[tuple[TrialSpecView, HeartbeatView | None]], watch: TrialWatch
) -> RenderableType | None:
    """Trials that run: phase, steps, CPU time, scores."""
    if not running:
        return None
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    grid = _grid()
    for spec, beat in running:
        steps = beat.steps if beat else 0
        grid.add_row(
            Text(spec.trial, style="bold"),
            Text(one_line(beat.phase, 60) if beat else "starting", style="dim"),
            ProgressBar(total=steps or 1, completed=beat.step if beat else 0, width=28, pulse=steps == 0),
            Text(f"{beat.step}/{steps}" if beat and steps else ""),
            Text(f"{duration(beat.cpu_s)} CPU" if beat else "", style="dim"),
            _score_line(watch.scores(spec.trial)),
        )
    return grid


def _score_line(scores: Sequence[float]) -> RenderableType:
    """The training scores of a trial so far, and the last one in figures."""
    from rich.text import Text

    return (
        Text.assemble((spark(scores), "cyan"), f" {percent(scores[-1])}", (" in training", "dim"))
        if scores
        else Text("")
    )


def budget_table(rows: Sequence[tuple[str, str, str, float]]) -> RenderableType | None:
    """(name, spent, limit, share) of everything that is limited, as bars."""
    if not rows:
        return None
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    grid = _grid()
    for name, used, limit, share in rows:
        left = f"{percent(max(1 - share, 0), 0)} left"
        bar = ProgressBar(total=1.0, completed=min(share, 1.0), width=28, complete_style="yellow", finished_style="red")
        grid.add_row(
            Text("budget", style="bold"),
            Text(name, style="dim"),
            bar,
            Text(left),
            Text(f"{used} of {limit}", style="dim"),
        )
    return grid


def verdict_table(verdicts: Collection[Verdict]) -> RenderableType | None:
    """The last verdicts."""
    from rich.text import Text

    marks = (
        (Text(v.branch, style="bold"), Text(f"{MARK[v.kind]} {VERDICT[v.kind]}", style=STYLE[v.kind])) for v in verdicts
    )
    return latest_first([(*mark, one_line(v.reason, 400)) for mark, v in zip(marks, verdicts, strict=True)])


def latest_first(rows: Sequence[tuple[Any, ...]]) -> RenderableType | None:
    """The newest row whole, at the top; the older ones cut to a line each, as a low terminal cuts the lowest."""
    from rich.text import Text

    grid = _grid()
    for i, (*first, text) in enumerate(reversed(rows)):
        grid.add_row(*first, Text(text, style="dim" if i else "", no_wrap=i > 0, overflow="ellipsis" if i else "fold"))
    return grid if rows else None


def progress_text(beat: HeartbeatView | None) -> str:
    """`training 5/20`"""
    if beat is None:
        return "starting"
    return one_line(beat.phase, 60) + (f" {beat.step}/{beat.steps}" if beat.steps else "")


def _grid() -> Any:
    from rich.table import Table

    return Table.grid(padding=(0, 2, 0, 0))
