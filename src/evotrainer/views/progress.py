"""How far a run is: trials done of those that its task file makes it expect, and the time that is left."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evotrainer.views.heartbeats import alive
from evotrainer.views.model import RunView
from evotrainer.views.text import duration


def read_settings(folder: Path | None) -> Mapping[str, Any]:
    """The resolved task file of a run folder; empty where it cannot be read."""
    try:
        return tomllib.loads((folder / "task.toml").read_text(encoding="utf-8")) if folder else {}
    except (OSError, ValueError):
        return {}


def settings(view: RunView) -> Mapping[str, Any]:
    """The run's task file, as it lies in its folder; empty where it cannot be read."""
    return read_settings(view.folder)


def planned(task: Mapping[str, Any], rounds_left: int | None = None) -> int:
    """Trials that a run of this task file comes to where every round is played: base, starting recipe, each round's
    search trainings and branches, certification. `rounds_left`: only of so many rounds, and what follows them.

    Audits, further seeds of undecided branches and controls at equal compute come on top where they are needed.
    """
    run = task.get("run") or {}
    if run.get("evaluate_only"):
        return 1
    seeds, fresh = len(run.get("seeds") or (1, 2, 3)), len(run.get("certify_seeds") or (1, 2, 3))
    proves = not run.get("search_only")
    a_round = int(run.get("probes", 0)) + (int(run.get("branches", 3)) * seeds if proves else 0)
    end = fresh if proves else 0
    rounds = int(run.get("rounds", 3))
    return rounds_left * a_round + end if rounds_left is not None else 1 + seeds + rounds * a_round + end


@dataclass(slots=True)
class RunProgress:
    """Trials done and expected. `shares`: how far each running trial is, 0 to 1."""

    done: int
    known: int
    """Trials that the run has asked for by now, done ones included."""
    expected: int
    """Of the whole run, by `planned`."""
    seconds: list[float] = field(default_factory=list)
    """Wall-clock seconds of each training so far."""
    shares: Sequence[float] = ()

    @property
    def total(self) -> int:
        return max(self.expected, self.known)

    @property
    def left_s(self) -> float | None:
        """Seconds that are left if every round is played, as many trials side by side as now; None before the first
        training has ended."""
        if not self.seconds or not self.shares:
            return None
        mean = sum(self.seconds) / len(self.seconds)
        rest = max(0, self.total - self.done - len(self.shares)) + sum(1 - s for s in self.shares)
        return mean * rest / len(self.shares)

    def line(self) -> str:
        """`trial 4 of about 25, about 3 min left`"""
        now = min(self.done + 1, self.total) if self.shares or self.done < self.total else self.done
        if len(self.shares) > 1:
            text = f"trials {now} to {min(self.done + len(self.shares), self.total)} of about {self.total}"
        else:
            text = f"trial {now} of about {self.total}"
        return text if self.left_s is None else f"{text}, about {duration(self.left_s)} left"


def seconds_of(trials: Iterable[Any]) -> list[float]:
    """Wall-clock seconds of finished trainings that were really trained."""
    return [t.wall_s for t in trials if t.status == "complete" and t.steps and not t.cached]


def share_of(step: int, steps: int) -> float:
    """How far a training is, its evaluations left out."""
    return min(1.0, step / steps) if steps else 0.0


def of_view(view: RunView) -> RunProgress:
    """Of a run folder; what runs now is told by heartbeats of living processes."""
    done = [t.finished for t in view.trials if t.finished]
    beats = [t.heartbeat for t in view.trials if not t.finished and t.heartbeat and alive(t.heartbeat.get("pid"))]
    shares = [share_of(int(b.get("step") or 0), int(b.get("steps") or 0)) for b in beats]
    return RunProgress(len(done), len(view.trials), planned(settings(view)), seconds_of(done), shares)


BARS = "▁▂▃▄▅▆▇█"
POINTS = 16
"""Points of a trial's score line; a longer training shows its last ones."""


class TrialWatch:
    """The progress of a run that is being watched: what was done before, trials as they run and end, their scores."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ready = False
        self._expected = 0
        self._known: set[str] = set()
        self._ended: set[str] = set()
        self._seconds: list[float] = []
        self._running: dict[str, float] = {}
        self._scores: dict[str, dict[int, float]] = {}

    def running(self, trials: Iterable[tuple[str, Any]]) -> None:
        """(trial, its last heartbeat) of all that run."""
        self._begin()
        self._running = {}
        for name, beat in trials:
            self._known.add(name)
            self._running[name] = share_of(beat.step, beat.steps) if beat else 0.0
            if beat and (score := getattr(beat, "score", None)) is not None:
                self._scores.setdefault(name, {})[beat.step] = score

    def ended(self, trial: Any) -> None:
        self._begin()
        self._known.add(trial.trial)
        self._ended.add(trial.trial)
        self._seconds += seconds_of([trial])
        self._running.pop(trial.trial, None)

    def progress(self) -> RunProgress:
        self._begin()
        return RunProgress(
            len(self._ended), len(self._known), self._expected, self._seconds, tuple(self._running.values())
        )

    def scores(self, trial: str) -> list[float]:
        """Score of each training step that was seen, oldest first."""
        return [v for _, v in sorted(self._scores.get(trial, {}).items())]

    def _begin(self) -> None:
        """What the task file makes expect, and what an earlier process of the run has done: read once."""
        if self._ready or not (self.folder / "ledger.db").is_file():
            return
        from evotrainer.records.ledger import Ledger

        self._ready = True
        self._expected = planned(read_settings(self.folder))
        with Ledger.open(self.folder / "ledger.db", readonly=True) as ledger:
            done = [e.body for e in ledger.events("finished")]
        self._known |= {t.trial for t in done}
        self._ended |= {t.trial for t in done}
        self._seconds += seconds_of(done)


def spark(scores: Sequence[float]) -> str:
    """The last POINTS scores as bars between the lowest and the highest of them; empty for fewer than two."""
    shown = scores[-POINTS:]
    if len(shown) < 2:
        return ""
    low, span = min(shown), max(shown) - min(shown)
    return "".join(BARS[round((x - low) / span * (len(BARS) - 1))] if span else BARS[0] for x in shown)
