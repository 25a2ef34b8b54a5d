"""How far a run is: trials done of those that its task file plans, and the time that is left.

The number that is planned stands from the start on; what comes on top, or falls away at the end, is said as that."""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evotrainer.errors import StoreError
from evotrainer.projections.text import duration
from evotrainer.records.regular_file import read_text
from evotrainer.records.text import counted
from evotrainer.views.heartbeats import process_exists
from evotrainer.views.model import RunView


def read_settings(folder: Path | None) -> Mapping[str, Any]:
    """The resolved task file of a run folder; empty where it cannot be read."""
    try:
        return tomllib.loads(read_text(folder / "task.toml")) if folder else {}
    except (OSError, ValueError):
        return {}


def settings(view: RunView) -> Mapping[str, Any]:
    """The run's task file, as it lies in its folder; empty where it cannot be read."""
    return read_settings(view.folder)


EVALUATES = ("base", "certify")
"""Purposes of planned trials that train nothing."""
SHARE = 0.25
"""Of a training's time that an evaluation takes, before one has ended."""


def planned(task: Mapping[str, Any]) -> dict[str, int]:
    """Trials by what they do, where every round is played: `train` (starting recipe, search trainings, branches, fresh
    seeds), `evaluate` (the base policy; it and the starting recipe on cert).

    Audits, further seeds of undecided branches and controls at equal compute come on top where they are needed.
    """
    run, limit = task.get("run") or {}, (task.get("budget") or {}).get("trials")
    if run.get("evaluate_only"):
        return {"train": 0, "evaluate": 1}
    seeds, fresh = len(run.get("seeds") or (1, 2, 3)), len(run.get("certify_seeds") or (1, 2, 3))
    proves = not run.get("search_only")
    a_round = int(run.get("probes", 0)) + (int(run.get("branches", 3)) * seeds if proves else 0)
    train = seeds + int(run.get("rounds", 3)) * a_round + (fresh if proves else 0)
    return {"train": min(train, int(limit)) if limit else train, "evaluate": 2 + seeds if proves else 1}


@dataclass(frozen=True, slots=True)
class TrialState:
    """One trial as far as it is: `step` of `steps` while it runs, seconds in all at its end."""

    purpose: str
    done: bool = False
    running: bool = False
    cached: bool = False
    wall_s: float = 0.0
    cpu_s: float = 0.0
    step: int = 0
    steps: int = 0

    @property
    def kind(self) -> str:
        """As in `planned`; audits and guards, which are in no plan, apart."""
        if self.purpose in ("audit", "guard"):
            return "audit"
        return "evaluate" if self.purpose in EVALUATES else "train"

    @property
    def left(self) -> float:
        """Share of it that is still to come."""
        return 1 - self.step / self.steps if self.running and self.steps else float(not self.done)


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Trials done and expected, and the time that is left. `trials`: all that the run has asked for by now."""

    task: Mapping[str, Any]
    trials: Sequence[TrialState]

    @property
    def running(self) -> list[TrialState]:
        return [t for t in self.trials if t.running and not t.done]

    def ahead(self) -> dict[str, int]:
        """Trials that have not begun, by kind: those asked for, and those planned beyond."""
        begun = Counter(t.kind for t in self.trials if t.done or t.running)
        known, plan = Counter(t.kind for t in self.trials), planned(self.task)
        if self._certifies:
            plan["train"] = 0
        out = {k: max(known[k], plan.get(k, 0)) - begun[k] for k in (*plan, "audit")}
        out["train"] = min(out["train"], max(known["train"] - begun["train"], self._payable()))
        return out

    def _payable(self) -> int:
        """Trainings that the rest of `budget.cpu_s` pays for."""
        cpu = (self.task.get("budget") or {}).get("cpu_s")
        ended = [t.cpu_s for t in self.trials if t.done and not t.cached and t.kind == "train" and t.steps]
        if not cpu or not ended:
            return 10**9
        return max(0, int((cpu - sum(t.cpu_s for t in self.trials)) * len(ended) / max(1e-9, sum(ended))))

    @property
    def at_most(self) -> int:
        """Trials that the task file plans, and its budget of trainings allows: the same from the start to the end."""
        return sum(planned(self.task).values())

    @property
    def on_top(self) -> dict[str, int]:
        """Trials that nobody planned, by what they are: audits; further seeds and controls of branches."""
        audits = sum(t.kind == "audit" for t in self.trials)
        return {"audit": audits, "further training": max(0, len(self.trials) - audits - self.at_most)}

    @property
    def _certifies(self) -> bool:
        """Are the rounds over?"""
        return any(t.purpose == "certify" for t in [t for t in self.trials if not t.done] or self.trials[-1:])

    @property
    def left_s(self) -> float | None:
        """Wall-clock seconds that are left if every round is played, above 0; None before a training has ended, and
        where nothing is left."""
        ended = [t for t in self.trials if t.done and not t.cached]
        train = [t.wall_s for t in ended if t.kind == "train" and t.steps]
        read = [t.wall_s for t in ended if t.purpose == "certify"]
        if not train or (not self.running and not sum(self.ahead().values())):
            return None
        cost = sum(train) / len(train)
        of = {"train": cost, "evaluate": sum(read) / len(read) if read else SHARE * cost}
        of["audit"] = of["evaluate"]
        now = [of[t.kind] * t.left for t in self.running]
        rest = sum(now) + sum(n * of[k] for k, n in self.ahead().items())
        return max(1.0, *now, rest / side_by_side(self.task, len(now)))

    def line(self) -> str:
        """`trial 4 of at most 23, 2 audits on top, about 3 min left`"""
        begun = sum(t.done or t.running for t in self.trials) - sum(self.on_top.values())
        n, ahead = sum(t.kind != "audit" for t in self.running), sum(x for k, x in self.ahead().items() if k != "audit")
        end = begun + ahead if self._certifies else self.at_most  # the rounds are over: all that is left is known
        text = f"trials {begun - n + 1} to {begun} of " if n > 1 else f"trial {max(1, min(end, begun + (not n)))} of "
        text += f"{end}" if self._certifies else f"at most {end}"
        text += f" ({self.at_most - end} not needed)" if end < self.at_most else ""
        text += "".join(f", {counted(k, what)} on top" for what, k in self.on_top.items() if k)
        if begun + ahead < end:
            text += f" (the budget pays for about {ahead} more)"
        return text if self.left_s is None else f"{text}, about {duration(self.left_s)} left"


def side_by_side(task: Mapping[str, Any], running: int) -> int:
    """Trials that run at once: as many as now, or as the task file gives this machine; at the end of a part of the run
    some of its places are empty."""
    run, names = task.get("run") or {}, [(task.get(x) or {}).get("name") for x in ("executor", "trainer")]
    here = (names[0] or "local") == "local" and (names[1] or "embedded") == "embedded"
    return max(running, int(run.get("workers") or 0) or ((os.cpu_count() or 1) if here else 1))


def ended(purpose: str, trial: Any) -> TrialState:
    """Of a `TrialFinished`."""
    return TrialState(
        purpose,
        done=True,
        cached=bool(trial.cached) or trial.status != "complete",
        wall_s=trial.wall_s,
        cpu_s=trial.cpu_s,
        steps=trial.steps,
    )


def of_view(view: RunView) -> RunProgress:
    """Of a run folder; what runs now is told by heartbeats of living processes."""
    found = []
    for t in view.trials:
        b = t.heartbeat
        if t.finished:
            found.append(ended(t.purpose, t.finished))
        elif b and process_exists(b.get("pid")):
            step, steps = int(b.get("step") or 0), int(b.get("steps") or 0)
            found.append(TrialState(t.purpose, running=True, cpu_s=t.cpu_s, step=step, steps=steps))
        else:
            found.append(TrialState(t.purpose))
    return RunProgress(settings(view), found)


BARS = "▁▂▃▄▅▆▇█"
POINTS = 16
"""Points of a trial's score line; a longer training shows its last ones."""


class TrialWatch:
    """The progress of a run that is being watched: what was done before, trials as they run and end, their scores."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ready = False
        self._task: Mapping[str, Any] = {}
        self._trials: dict[str, TrialState] = {}
        self._scores: dict[str, dict[int, float]] = {}

    def running(self, trials: Iterable[tuple[Any, Any]]) -> None:
        """(specification, last heartbeat) of all that run."""
        self._begin()
        for name, t in self._trials.items():
            self._trials[name] = replace(t, running=False)
        for spec, beat in trials:
            now = TrialState(spec.purpose, running=True)
            if beat:
                now = replace(now, cpu_s=beat.cpu_s, step=beat.step, steps=beat.steps)
                if (score := getattr(beat, "score", None)) is not None:
                    self._scores.setdefault(spec.trial, {})[beat.step] = score
            self._trials[spec.trial] = now

    def ended(self, trial: Any) -> None:
        """A trial has its result: a `TrialFinished`."""
        self._begin()
        before = self._trials.get(trial.trial) or TrialState("branch" if trial.steps else "audit")
        self._trials[trial.trial] = ended(before.purpose, trial)

    def progress(self) -> RunProgress:
        self._begin()
        return RunProgress(self._task, list(self._trials.values()))

    def scores(self, trial: str) -> list[float]:
        """Score of each training step that was seen, oldest first."""
        return [v for _, v in sorted(self._scores.get(trial, {}).items())]

    def _begin(self) -> None:
        """What the task file makes expect, and what an earlier process of the run has done: read once."""
        if self._ready or not (self.folder / "ledger.db").is_file():
            return
        from evotrainer.records.ledger import Ledger

        try:
            with Ledger.open(self.folder / "ledger.db", readonly=True) as ledger:
                found = {e.body.trial: TrialState(e.body.purpose) for e in ledger.events("intended")}
                for e in ledger.events("finished"):
                    found[e.body.trial] = ended(found[e.body.trial].purpose, e.body)
        except StoreError:  # the run is just making it; the next look reads it
            return
        self._ready = True
        self._task = read_settings(self.folder)
        self._trials = found | self._trials


def spark(scores: Sequence[float]) -> str:
    """The last POINTS scores as bars between the lowest and the highest of them; empty for fewer than two."""
    shown = scores[-POINTS:]
    if len(shown) < 2:
        return ""
    low, span = min(shown), max(shown) - min(shown)
    return "".join(BARS[round((x - low) / span * (len(BARS) - 1))] if span else BARS[0] for x in shown)
