"""The live view of a running loop in a terminal.

rich is imported inside functions, so that importing this module stays cheap. Everything that comes from tasks, agents
or rollouts is cleaned and never read as markup.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from evotrainer.projections.run_facts import verdict_text
from evotrainer.projections.text import change, duration, number, of_run, one_line, percent
from evotrainer.records.output import DOING
from evotrainer.records.verdicts import Verdict
from evotrainer.views import live_tables
from evotrainer.views.live_tables import HeartbeatView, TrialSpecView, progress_text
from evotrainer.views.progress import TrialWatch

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

REFRESH_HZ = 4
VERDICTS_SHOWN = 6
NOTES_SHOWN = 4
QUIET_S = 15.0
"""Without a terminal, a log that was silent for this long is told what the run is doing."""


class LiveView:
    """The loop's observer: a live panel in a terminal, one plain line per event everywhere else."""

    def __init__(self, run_folder: Path | str, console: Console | None = None, plain: bool | None = None) -> None:
        """`plain` None or False: decided by whether the console is a terminal."""
        from evotrainer.records.console import Console

        self.folder = Path(run_folder)
        self.console = console if console is not None else Console(highlight=False)
        self.plain = bool(plain) or not self.console.is_terminal
        self._live: Live | None = None
        self._started = time.monotonic()
        self._round, self._champion, self._step = 0, "", "starting"
        self._running: Sequence[tuple[TrialSpecView, HeartbeatView | None]] = ()
        self._changes: dict[str, str] = {}
        self._watch = TrialWatch(self.folder)
        self._spent: Mapping[str, float] = {}
        self._limits: Mapping[str, float] = {}
        self._told_at = self._begun_at = self._started
        self._verdicts: deque[Verdict] = deque(maxlen=VERDICTS_SHOWN)
        self._notes: deque[str] = deque(maxlen=NOTES_SHOWN)
        self._said = self._started
        self._asking = False
        self._begun = False
        self._ended = threading.Event()

    def __enter__(self) -> LiveView:
        self._started = time.monotonic()
        if self.plain:
            threading.Thread(target=self._break_silence, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._running = ()
        self._ended.set()
        if kind is not None:
            self._step = "stopped"
        self._stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Give the terminal back for a question."""
        was = self._live is not None
        self._stop()
        self._asking = True
        try:
            yield
        finally:
            self._asking = False
            self._said = time.monotonic()
            if was:
                self._start()

    # what the loop calls -----------------------------------------------------------------------------------------

    def round(self, n: int, champion: str) -> None:
        self._round, self._champion = n, champion
        self._print(f"round {n}: champion {champion}")

    def step(self, name: str) -> None:
        self._step = one_line(name)
        self._print(f"step: {self._step}")

    def opened(self, name: str, changes: Mapping[str, tuple[Any, Any]]) -> None:
        """A branch or a search training is to be trained: what it changes."""
        changes_text = "; ".join(change(factor, old, new) for factor, (old, new) in changes.items())
        if self._changes.get(name) != changes_text:
            self._changes[name] = changes_text
            self._print(f"{name}: {changes_text}")

    def trials(self, running: Sequence[tuple[TrialSpecView, HeartbeatView | None]]) -> None:
        self._running = tuple(running)
        self._watch.running(running)

    def budget(self, spent: Mapping[str, float], limits: Mapping[str, float]) -> None:
        self._spent, self._limits, self._told_at = dict(spent), dict(limits), time.monotonic()

    def finished(self, trial: Any) -> None:
        """A trial ended: a `TrialFinished`."""
        self._watch.ended(trial)
        self._running = tuple(r for r in self._running if r[0].trial != trial.trial)
        text = f"{trial.trial}: {trial.status}, {duration(trial.cpu_s)} CPU"
        if trial.cached:
            what = "its start from the cache" if trial.cached.begun else "from the cache"
            text += f", {what} (computed in {duration(trial.cached.cpu_s)})"
        search = [s for s in trial.scores if s.split == "search"]
        if search:
            text += f", search split {percent(max(search, key=lambda s: s.step).score)}"
        if trial.status == "failed":
            text = f"{trial.trial}: failed ({trial.label or 'no label'}): {one_line(trial.error)}"
        self._notes.append(text)
        self._print(f"{text}; {self._watch.progress().line()}")

    def verdict(self, verdict: Verdict) -> None:
        self._verdicts.append(verdict)
        self._print(of_run(f"{verdict.branch}: {verdict_text(verdict)}", self.folder))

    def note(self, text: str) -> None:
        self._notes.append(text := one_line(text, 400))
        self._print(text)

    # plain -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Show the run with the first thing told of it: a refused command shows its refusal alone."""
        if self._begun:
            return
        self._begun, self._begun_at = True, time.monotonic()
        if self.plain:
            self._line(f"run {self.folder}")
        else:
            self._start()

    def _print(self, text: str) -> None:
        self._begin()
        if self.plain:
            self._line(text)

    def _line(self, text: str) -> None:
        """One line, no markup, no wrapping, flushed: what a log wants."""
        self._begin()
        self.console.file.write(f"[{time.monotonic() - self._started:7.1f} s] {one_line(text, 1000)}\n")
        self.console.file.flush()
        self._said = time.monotonic()

    def _break_silence(self) -> None:
        while not self._ended.wait(QUIET_S / 5):
            if not self._asking and time.monotonic() - self._said >= QUIET_S:
                self._line(self._state())

    def _state(self) -> str:
        """What the run is doing, and what it has spent, in one line."""
        spent = "".join(f"; {name} {used} of {limit}" for name, used, limit, _ in self._budget_rows())
        if not self._running:
            return f"still at: {one_line(DOING[-1]) if DOING else self._step}{spent}"
        at = ", ".join(f"{spec.trial} {progress_text(beat)}{_scored(beat)}" for spec, beat in self._running)
        return f"{at}; {self._watch.progress().line()}{spent}"

    # live --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        from rich.live import Live

        self._live = Live(
            get_renderable=self._render, console=self.console, refresh_per_second=REFRESH_HZ, transient=False
        )
        self._live.start(refresh=True)

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        head = Text.assemble(
            (f"round {self._round}" if self._round else "before round 1", "bold"),
            ("  ·  champion ", "dim"),
            (self._champion or "none yet", "green" if self._champion else "dim"),
            (f"  ·  wall time {duration(self._wall())}", "dim"),
        )
        # a line each, which 80 columns hold
        parts: list[RenderableType] = [head, Text(self._step, style="bold cyan"), Text(self._watch.progress().line())]
        tables = (
            live_tables.change_table(self._running, self._changes),
            live_tables.trial_table(self._running, self._watch),
            live_tables.budget_table(self._budget_rows()),
            live_tables.latest_first([(n,) for n in self._notes]),
            live_tables.verdict_table(self._verdicts),
        )
        for rows in tables:
            if rows is not None:
                parts += [Text(""), rows]
        return Panel(
            Group(*parts), title=Text(f"evotrainer {self.folder.name}"), title_align="left", border_style="dim"
        )

    def _wall(self) -> float:
        """Seconds, as `status` and the event that closes the run have them: what the budget has counted by now, also in
        earlier processes, or how long this one has worked on the run, whichever is more."""
        now = time.monotonic()
        since = now - self._told_at if self._running else 0.0
        return max(self._spent.get("wall_s", 0.0) + since, now - self._begun_at)

    def _budget_rows(self) -> list[tuple[str, str, str, float]]:
        """(name, spent, limit, share) of everything that is limited."""
        out = []
        for key, limit in self._limits.items():
            used = self._spent.get(key, 0.0)
            name = {"cpu_s": "CPU", "gpu_s": "GPU", "wall_s": "wall"}.get(key, key.replace("_", " "))
            show = duration if key.endswith("_s") else number
            out.append((name, show(used), show(limit), used / limit if limit else 0.0))
        return out


def _scored(beat: HeartbeatView | None) -> str:
    score = getattr(beat, "score", None)
    return f" (training score {percent(score)})" if score is not None else ""
