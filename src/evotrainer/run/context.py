"""Trials of a run: what is trained and evaluated under which protocol, within the budget, each paid for once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from evotrainer.config.task import TaskFile, resolve_base
from evotrainer.errors import BudgetError, IntegrityError, TrainerError
from evotrainer.executors import make_executor
from evotrainer.executors.spec import EvalPlan, Heartbeat, TrialSpec
from evotrainer.projections.budget import Budget
from evotrainer.projections.lineage import search_means
from evotrainer.records.events import TrialFinished, TrialIntended
from evotrainer.records.evidence import BranchRecord, HealthReport, Intervention, Verdict
from evotrainer.records.faults import fault_point
from evotrainer.records.ledger import Journal, Ledger
from evotrainer.records.recipe import Frozen, Recipe

if TYPE_CHECKING:
    from evotrainer.records.rollout import Rollout

NEEDED = ("base", "noise", "confirm", "certify", "audit")
"""Trials a run cannot do without: their failure is not recorded as a result, a resume tries them again."""
PROTOCOL = ("temperature", "top_p", "max_tokens", "max_turns", "knobs")
"""Factors of the starting recipe under which every policy of the run is evaluated."""


class Observer(Protocol):
    """What wants to know how the run goes; views implement it."""

    def round(self, n: int, champion: str) -> None: ...
    def step(self, name: str) -> None: ...
    def trials(self, running: list[tuple[TrialSpec, Heartbeat | None]]) -> None: ...
    def budget(self, spent: dict[str, float], limits: dict[str, float]) -> None: ...
    def finished(self, trial: TrialFinished) -> None: ...
    def verdict(self, verdict: Verdict) -> None: ...
    def note(self, text: str) -> None: ...


class Quiet:
    """An observer that says nothing."""

    def round(self, n: int, champion: str) -> None: ...
    def step(self, name: str) -> None: ...
    def trials(self, running: list[tuple[TrialSpec, Heartbeat | None]]) -> None: ...
    def budget(self, spent: dict[str, float], limits: dict[str, float]) -> None: ...
    def finished(self, trial: TrialFinished) -> None: ...
    def verdict(self, verdict: Verdict) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass
class Branch:
    """A branch as far as the story has been told."""

    name: str
    parent: str | None
    round: int
    recipe: Recipe
    intervention: Intervention | None = None
    trials: list[TrialFinished] = field(default_factory=list)
    health: HealthReport | None = None
    verdict: Verdict | None = None
    version: str | None = None
    looks: int = 0
    """How often it was judged."""

    @property
    def complete(self) -> list[TrialFinished]:
        return [t for t in self.trials if t.status == "complete"]

    def record(self) -> BranchRecord:
        """What an agent may see of it: search-split means, never gate scores of tasks."""
        return BranchRecord(
            branch=self.name,
            parent=self.parent,
            round=self.round,
            recipe=self.recipe,
            intervention=self.intervention,
            verdict=self.verdict,
            version=self.version,
            search=search_means(self.complete),
        )


class Trials:
    """What every step of a run may ask for: a trial's specification, its result, rollouts, the budget, the journal."""

    def __init__(self, folder: Path, task: TaskFile, ledger: Ledger, view: Observer) -> None:
        self.folder, self.task, self.ledger, self.view = folder, task, ledger, view
        self.journal = Journal(ledger)
        self.executor = make_executor(folder, task)
        self.base: TrialFinished | None = None
        self.env: dict[str, Any] = {}
        self.closed: dict[str, Any] = {}
        self.sampler: Literal["fp32", "bf16"] = "fp32"
        self.looked_at_budget = 0.0
        self.waited_since = time.monotonic()

    def plan_eval(self, split: str) -> EvalPlan | None:
        e = self.task.evaluation
        if split not in self.env.get("splits", {split: 1}):
            return None
        return EvalPlan(
            split=split,
            attempts=getattr(e, f"{split}_attempts"),
            tasks=getattr(e, f"{split}_tasks"),
        )

    def protocol(self, recipe: Recipe) -> Recipe:
        """The frozen protocol of every evaluation: how the run's own recipe samples, in its own world.

        A branch that samples colder, longer or in an easier world in training gains nothing by that in its evaluation.
        """
        frozen = {f: getattr(self.task.recipe, f) for f in PROTOCOL}
        return recipe.model_copy(update=frozen | {"knobs": self.protocol_knobs()})

    def protocol_knobs(self) -> dict[str, Any]:
        """The world of every evaluation: the starting recipe's, with each confirmed shortcut closed since."""
        return {**self.task.recipe.knobs, **self.closed}

    def spec(self, b: Branch, seed: int, purpose: str, extra: Sequence[EvalPlan] = ()) -> TrialSpec:
        """One training of a branch from the base policy."""
        base = resolve_base(self.task.policy.base)
        assert self.base is not None
        return TrialSpec(
            run=self.folder.name,
            trial=f"{b.name}-s{seed}",
            branch=b.name,
            seed=seed,
            purpose=purpose,
            train=True,
            recipe=b.recipe,
            protocol=self.protocol(b.recipe),
            environment=self.task.environment,
            policy_dir=str(base) if base else self.base.policy_path,
            evals=tuple(p for s in ("search", "gate") if (p := self.plan_eval(s))) + tuple(extra),
            checkpoint_every=self.task.run.checkpoint_every,
            health_every=self.task.run.health_every,
            harness=self.read_by(),
            cpu_limit_s=2 * self.task.budget.trial_cpu_s,
            accept_tier_e=self.task.sandbox.accept_tier_e,
            sampler_dtype=self.sampler,
            **self.trained_by,
        )

    @property
    def trained_by(self) -> dict[str, Any]:
        """The trainer in a specification."""
        return {"trainer": self.task.trainer.name, "trainer_options": self.task.trainer.options}

    def read_by(self) -> dict[str, Any]:
        """The harness version that a trial reads itself with; empty for h0 as it comes."""
        return {}

    def eval_spec(
        self,
        trial: str,
        b: Branch | None,
        seed: int,
        policy: str,
        evals: Sequence[EvalPlan],
        purpose: str,
        world: Mapping[str, Any] | None = None,
    ) -> TrialSpec:
        """One evaluation of a stored policy; `world`: environment knobs in place of the protocol's."""
        return TrialSpec(
            run=self.folder.name,
            trial=trial,
            branch=b.name if b else "base",
            seed=seed,
            purpose=purpose,
            train=False,
            recipe=b.recipe if b else self.task.recipe,
            protocol=self.protocol(b.recipe if b else self.task.recipe),
            world=dict(world or {}),
            policy_step=b.recipe.steps if b and (world or purpose != "audit") else 0,
            environment=self.task.environment,
            policy_dir=policy,
            evals=tuple(evals),
            accept_tier_e=self.task.sandbox.accept_tier_e,
            sampler_dtype=self.sampler,
            **self.trained_by,
        )

    def run_trials(self, specs: Sequence[TrialSpec]) -> list[TrialFinished]:
        """Intent, effect, outcome: nothing finished is paid for twice."""
        done: dict[str, TrialFinished] = {}
        todo: list[TrialSpec] = []
        budget, training = self.budget(), self.trial_reserve()
        for spec in specs:
            if (event := self.ledger.get(f"{spec.trial}/finished")) is not None:
                done[spec.trial] = event.body
                continue
            if any(p.split == "cert" for p in spec.evals) and self.ledger.get("certified") is not None:
                raise IntegrityError(
                    f"trial {spec.trial} would read the cert split of {self.folder} a second time; it is read once, for the "
                    "run's certificate: start a new run to certify another policy"
                )
            todo.append(spec)
            reserve = training if spec.train else training / 4
            if self.ledger.get(f"{spec.trial}/intended") is None:
                budget.reserve(spec.trial, cpu_s=reserve, trials=float(spec.train))
            self.record(
                f"{spec.trial}/intended",
                "intended",
                partial(
                    TrialIntended,
                    trial=spec.trial,
                    branch=spec.branch,
                    seed=spec.seed,
                    purpose=spec.purpose,
                    reserve_cpu_s=reserve,
                    train=spec.train,
                ),
            )
        self.waited_since = time.monotonic()
        purpose = {s.trial: s.purpose for s in todo}
        for result in self.executor.run(todo, self.progress):
            if result.status == "failed" and purpose[result.trial] in NEEDED:
                self.executor.forget(result.trial)
                raise TrainerError(
                    f"trial {result.trial} ({purpose[result.trial]}) failed: {result.error}; the run cannot do without it: "
                    f"mend the cause and `evotrainer resume {self.folder}` tries it again; where it lies in the task file "
                    "(trainer, policy, environment), start a new run"
                )
            done[result.trial] = self.ledger.append("finished", f"{result.trial}/finished", result).body
            fault_point(f"after:{result.trial}/finished")
            self.view.finished(result)
            self.waited_since = time.monotonic()
        return [done[s.trial] for s in specs]

    def progress(self, running: list[tuple[TrialSpec, Heartbeat | None]]) -> None:
        self.view.trials(running)
        now = time.monotonic()
        if now - self.looked_at_budget < 2.0:
            return
        self.looked_at_budget = now
        budget = self.budget()
        spent = dict(budget.spent)
        spent["cpu_s"] += sum(h.cpu_s for _, h in running if h)
        spent["wall_s"] += now - self.waited_since
        self.view.budget(spent, dict(budget.limits))
        wall = self.task.budget.wall_s
        if wall is not None and spent["wall_s"] > wall:
            raise BudgetError(
                f"the run used {spent['wall_s']:.0f} s of budget.wall_s={wall:g}; raise it to go on: "
                f"evotrainer resume {self.folder} budget.wall_s=..."
            )

    def budget(self) -> Budget:
        return Budget.from_events(self.ledger.events(), self.task.budget.limits())

    def trial_reserve(self) -> float:
        """CPU-seconds to set aside for one training: the largest seen so far, or the task file's figure."""
        seen = [e.body.cpu_s for e in self.ledger.events("finished") if e.body.steps and e.body.status == "complete"]
        return max(seen) if seen else self.task.budget.trial_cpu_s

    def load(self, trial: str, split: str) -> list[Rollout]:
        from evotrainer.records.store import load

        return load([self.folder / "rollouts" / trial], split=split)

    def record(self, key: str, kind: str, make: Callable[[], Frozen]) -> Any:
        """The recorded body of this key, made and recorded first where there is none."""
        return self.journal.step(key, kind, make)
