"""What every step of a run may use: the task, the ledger, the executor, stored rollouts,
and the state that events alone change."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evotrainer.config.task import TaskFile
from evotrainer.errors import BudgetError, IntegrityError, TrainerError
from evotrainer.executors.spec import TrialSpec, trial_dir
from evotrainer.harness.columns.rollout_reader import RolloutReader
from evotrainer.projections.branches import BASE, Branch
from evotrainer.projections.budget import UNITS, Budget
from evotrainer.projections.environment_files import any_trained, files_of, way_on
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.durable import sha256_file
from evotrainer.records.events import BODIES, GateAsked, TrialFinished, TrialIntended
from evotrainer.records.faults import fault_point
from evotrainer.records.frozen import Frozen
from evotrainer.records.keys import USER_CODE
from evotrainer.records.ledger import Journal, Ledger
from evotrainer.records.recipe import diff
from evotrainer.records.sealed import SealedSplits
from evotrainer.rules.recipes import env_knobs
from evotrainer.run.environment_copies import remedies
from evotrainer.run.observer import Changes, Observer, Running, SilentObserver
from evotrainer.trainers.continued import STARTED

if TYPE_CHECKING:
    from evotrainer.agents.base import Agent
    from evotrainer.agents.reader import ReaderCarrier
    from evotrainer.executors import Executor
    from evotrainer.harness import Harness
    from evotrainer.records.briefing import WrittenOffer
    from evotrainer.records.chain import Event

T = TypeVar("T", bound=Frozen)
KINDS: dict[type[Frozen], str] = {model: kind for kind, model in BODIES.items()}
"""Body model -> kind of event."""
NEEDED = ("base", "noise", "confirm", "certify", "audit", "guard")
"""Purposes of trials that a run cannot do without: their failure is not recorded as a result,
a resume tries them again."""
BUDGET_EVERY_S = 2.0
"""Seconds between two checks of the budget while trials run."""

Ask = Callable[[GateAsked, Callable[[], bool]], tuple[str, str] | None]
"""(the question, did somebody answer it elsewhere?) -> (approve | revise | abort, words); None where somebody did."""


@dataclass
class RunContext:
    """One run in progress. Steps are functions of it; `record` is the only way in which they change `state`."""

    folder: Path
    task: TaskFile
    task_hash: str
    ledger: Ledger
    executor: Executor
    agent: Agent
    observer: Observer = field(default_factory=SilentObserver)
    ask: Ask | None = None
    """Who is asked at a gate; None: the run waits for `evotrainer answer`."""
    reader: ReaderCarrier | None = None
    """Who reads rollouts for reward hacks, where the task file names somebody."""
    state: RunState = field(default_factory=RunState)
    """After the events walked so far; after all of the ledger's from the first new one on."""
    started: float = field(default_factory=time.monotonic)
    waited: float = 0.0
    """Seconds of this session in which the run waited for a human."""

    def __post_init__(self) -> None:
        from evotrainer.sandbox.detector_runner import SandboxRunner
        from evotrainer.sandbox.reward_runner import RewardRunner

        self.sealed = SealedSplits(self.folder)
        """Gate and cert; after the last end, which revealed all there was, it holds no key."""
        self.journal = Journal(self.ledger)
        self.rollouts = RolloutReader(self.folder)
        self.detector_runner = SandboxRunner(self.task.sandbox.accept_tier_e)
        self.reward_runner = RewardRunner(self.task.sandbox.accept_tier_e)
        self.checked_code: dict[tuple[str, int], dict[str, Any]] = {}
        """(branch, its rollouts) -> what the checks of written components said there."""
        self.written_offers: dict[tuple[str, int], tuple[WrittenOffer, ...]] = {}
        """(branch, its rollouts) -> the components that the harness wrote from them."""
        self._files: dict[str, tuple[int, int, int]] = {}
        """Size, time and inode of files that were compared with what the run began with."""
        self._walked = 0
        self._budget_seen = 0.0
        self._hung: dict[str, str] = {}
        self._waiting_since = time.monotonic()
        self._harness: Harness | None = None

    # -- events ----------------------------------------------------------------------------------------------------

    def record(self, key: str, model: type[T], make: Callable[[], T]) -> T:
        """The recorded body of this key, made and recorded first where there is none;
        `state` holds all up to it from here on.

        A run that was killed walks the same steps again: what is recorded is taken up in its order. The first thing
        that is not recorded rests on all events there are, as in a run that was never killed, and as `verify` has it.
        """
        if self.ledger.get(key) is None:
            self.refresh()
        body = self.journal.step(key, KINDS[model], make)
        event = self.ledger.get(key)
        assert event is not None
        self._walk_to(event)
        return body

    def recorded(self, key: str) -> Event | None:
        """The event of this key, also one that the walk has not come to; None where there is none."""
        return self.ledger.get(key)

    def refresh(self) -> None:
        """Take up all events to the last, also those recorded while the run was not running."""
        if events := self.ledger.events(after=self._walked):
            self._walk_to(events[-1])

    def _walk_to(self, event: Event) -> None:
        for e in self.ledger.events(after=self._walked)[: max(0, event.seq - self._walked)]:
            self.state.apply(e)
        self._walked = max(self._walked, event.seq)

    # -- what holds now --------------------------------------------------------------------------------------------

    @property
    def branches(self) -> Mapping[str, Branch]:
        """Branch -> what is known of it."""
        return self.state.branches

    @property
    def champion(self) -> str:
        """Branch of the last valid version; `base` where there is none."""
        return self.state.champion or BASE

    @property
    def incumbent(self) -> str:
        """The champion that the round began with: what the round reads, proposes and replays rests on it, also where it
        was found invalid since."""
        return self.state.incumbent or self.champion

    @property
    def harness(self) -> Harness:
        """The current version."""
        from evotrainer.harness import Harness

        body = self.state.harness
        if body is None:
            return Harness.default() if self.task.run.harness == "default" else Harness.minimal()
        if self._harness is None or self._harness.version != body.version:
            self._harness = Harness.model_validate(body.harness)
        return self._harness

    @property
    def env_knobs(self) -> dict[str, Any]:
        """Environment knobs of every evaluation: the starting recipe's, with each confirmed shortcut closed since."""
        return env_knobs(self.task, self.state)

    def budget(self) -> Budget:
        """What is spent and reserved."""
        return Budget.from_events(self.ledger.events(), self.task.budget.limits())

    # -- trials ----------------------------------------------------------------------------------------------------

    def run_trials(self, specs: Sequence[TrialSpec]) -> list[TrialFinished]:
        """Results in the order of `specs`. Intent, effect, outcome: nothing finished is paid for twice."""
        done: dict[str, TrialFinished] = {}
        todo: list[TrialSpec] = []
        budget: Budget | None = None
        training: dict[str, float] = {}
        for spec in specs:
            if (event := self.recorded(keys.finished(spec.trial))) is not None:
                self._walk_to(event)
                done[spec.trial] = event.body
                continue
            # before an end: the certificate that it waits for; after it: the last one
            nth = self.state.ends + (self.state.closed_by is None)
            if any(p.split == "cert" for p in spec.evals) and self.recorded(keys.certified(nth)) is not None:
                raise IntegrityError(
                    f"trial {spec.trial} would read the cert split of {self.folder} a second time; it is read once, "
                    "for the run's certificate: start a new run to certify another policy"
                )
            todo.append(spec)
            if budget is None:
                budget, training = self.budget(), self.reserve()
            self._intend(spec, budget, {k: x if spec.train else x / 4 for k, x in training.items()})
        if todo:
            self.check_files()
        for name in dict.fromkeys(s.branch for s in todo if s.train):
            if changes := self.changes_of(name):
                self.observer.opened(name, changes)
        purpose = {s.trial: s.purpose for s in todo}
        self._waiting_since = time.monotonic()
        for result in self.executor.run(todo, self._progress):
            if result.status == "failed" and purpose[result.trial] in NEEDED:
                self.executor.forget(result.trial)
                with contextlib.suppress(OSError):  # `status` tells it
                    (where := trial_dir(self.folder, result.trial)).mkdir(parents=True, exist_ok=True)
                    (where / "error").write_text(result.error, encoding="utf-8")
                remedy = way_on(self.folder, any_trained(self.ledger.events("finished")))
                raise TrainerError(
                    f"trial {result.trial} ({purpose[result.trial]}) failed: {result.error}; the run needs it: {remedy}"
                )
            stored = self.priced(self.sealed.key.result(result) if self.sealed.key else result)
            event = self.ledger.append("finished", keys.finished(result.trial), stored)
            self._walk_to(event)
            done[result.trial] = event.body
            fault_point(f"after:{keys.finished(result.trial)}")
            # the policy that it went on from: a training's own trial, or its seed, gives it again
            shutil.rmtree(trial_dir(self.folder, result.trial) / STARTED, ignore_errors=True)
            self.observer.finished(result)
            self._waiting_since = time.monotonic()
        return [done[s.trial] for s in specs]

    def changes_of(self, name: str) -> Changes:
        """What a branch, or a search training, changes in what it came from; empty for a start."""
        if (b := self.branches.get(name)) is not None:
            return {b.intervention.factor: (b.intervention.old, b.intervention.new)} if b.intervention else {}
        p = self.state.probes.get(name)
        return diff(self.branches[p.incumbent].recipe, p.recipe) if p else {}

    def check_files(self) -> None:
        """IntegrityError where a file that the environment names was edited: the next trial would be another task's."""
        for name, sha in files_of(self.ledger.events()).items():
            path = Path(name)
            stat = path.stat() if path.is_file() else None
            mark = stat and (stat.st_size, stat.st_mtime_ns, stat.st_ino)
            if mark is None or (self._files.get(name) != mark and sha256_file(path) != sha):
                trained = any_trained(self.ledger.events("finished"))
                remedy = remedies(self.folder, name, sha, trained=trained)
                raise IntegrityError(f"{name} was changed after the run began; {remedy}")
            self._files[name] = mark

    def _intend(self, spec: TrialSpec, budget: Budget, reserve: Mapping[str, float]) -> None:
        """Set aside what a trial may cost, once, and note that it starts."""
        if self.recorded(keys.intended(spec.trial)) is None:
            budget.reserve(spec.trial, **reserve, trials=float(spec.train))
        self.record(
            keys.intended(spec.trial),
            TrialIntended,
            partial(
                TrialIntended,
                trial=spec.trial,
                branch=spec.branch,
                seed=spec.seed,
                purpose=spec.purpose,
                **{f"reserve_{k}": x for k, x in reserve.items()},
                train=spec.train,
            ),
        )

    def _progress(self, running: Running) -> None:
        self.observer.trials(running)
        for spec, h in running:
            if h and h.phase.startswith(USER_CODE) and self._hung.get(spec.trial) != h.phase:
                self._hung[spec.trial] = h.phase
                self.observer.note(f"{spec.trial} is {h.phase}, which does not return")
        now = time.monotonic()
        if now - self._budget_seen < BUDGET_EVERY_S:
            return
        self._budget_seen = now
        budget = self.budget()
        spent = dict(budget.spent)
        now_s = {k: sum(getattr(h, k) for _, h in running if h) for k in ("cpu_s", "gpu_s")}
        spent |= {k: spent[k] + x for k, x in now_s.items()}
        spent["usd"] += self.usd(**now_s) or 0.0
        spent["wall_s"] += now - self._waiting_since
        self.observer.budget(spent, dict(budget.limits))
        for kind in ("wall_s", "gpu_s", "usd"):
            if (limit := budget.limits.get(kind)) is not None and spent[kind] > limit:
                used = f"{spent[kind]:.2f} {UNITS[kind]}" if kind == "usd" else f"{spent[kind]:.0f} {UNITS[kind]}"
                raise BudgetError(
                    f"the run used {used} of budget.{kind}={limit:g}; raise it to go on: "
                    f"evotrainer resume {self.folder} budget.{kind}=..."
                )

    def usd(self, cpu_s: float, gpu_s: float) -> float | None:
        """What so much costs by the prices of the task file; None: it names none."""
        price = self.task.budget.price
        return None if price is None else price.usd(cpu_s, gpu_s)

    def priced(self, t: TrialFinished) -> TrialFinished:
        """A result with what it cost."""
        usd = self.usd(t.cpu_s, t.gpu_s)
        return t if usd is None else t.model_copy(update={"usd": round(usd, 6)})

    def cost(self, t: TrialFinished) -> dict[str, float]:
        """What computing a trial costs, also one that the cache had: the next one may have to be computed."""
        if not t.cached:
            return {"cpu_s": t.cpu_s, "gpu_s": t.gpu_s, "usd": t.usd or 0.0}
        gpu_s = (t.wall_s + t.cached.wall_s) * self.gpus
        return {"cpu_s": t.computed_cpu_s, "gpu_s": gpu_s, "usd": self.usd(t.computed_cpu_s, gpu_s) or 0.0}

    @cached_property
    def gpus(self) -> float:
        """GPUs that each trial holds, as far as that is known before one runs."""
        from evotrainer.executors import gpus_of

        return gpus_of(self.task)

    def reserve(self) -> dict[str, float]:
        """What to set aside for one training, by kind: the largest seen so far, or the task file's figures."""
        done = [e.body for e in self.ledger.events("finished") if e.body.steps and e.body.status == "complete"]
        seen = [self.cost(t) for t in done]
        if seen:
            return {k: max(x[k] for x in seen) for k in seen[0]}
        first = self.task.budget
        gpu_s = first.trial_gpu_s * (self.gpus > 0)
        return {"cpu_s": first.trial_cpu_s, "gpu_s": gpu_s, "usd": self.usd(first.trial_cpu_s, gpu_s) or 0.0}
