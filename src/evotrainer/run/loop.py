"""The nine steps of a round, and the run around them.

Everything decided is one event in the ledger, written under an idempotency key. A run that was killed is resumed by
walking the same path again: what is recorded is read, what is not is done. So this file has no resume code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer import __version__
from evotrainer.config.preflight import base_identity, check_recipe, fingerprints, machine, weights_sha256
from evotrainer.config.task import TaskFile, resolve_base
from evotrainer.errors import (
    AbortedError,
    BudgetError,
    ConfigError,
    IntegrityError,
    SingleFactorError,
    TrainerError,
)
from evotrainer.executors.spec import TrialSpec
from evotrainer.judge import CertEntry, JudgeConfig, Look, certify, judge, measure_noise, next_looks, scores_of
from evotrainer.projections.caveats import caveats, told
from evotrainer.projections.lineage import BASE, Lineage
from evotrainer.records.durable import sha256_file
from evotrainer.records.events import (
    Backtested,
    BranchOpened,
    Certified,
    Diagnosed,
    Escalated,
    HumanGate,
    Judged,
    NoiseMeasured,
    Planned,
    Promoted,
    Proposed,
    Refused,
    RoundOpened,
    RunClosed,
    RunOpened,
    TrialFinished,
)
from evotrainer.records.evidence import (
    Audit,
    Backtest,
    Briefing,
    HealthReport,
    Intervention,
    Proposal,
    Verdict,
)
from evotrainer.records.ledger import Ledger
from evotrainer.records.recipe import Recipe, lint, single_factor
from evotrainer.run.context import Branch, Observer, Trials
from evotrainer.run.extra_seeds import TopUps
from evotrainer.run.fresh_seeds import Reestimator
from evotrainer.run.gains import with_gains
from evotrainer.run.harness_versions import Evolver
from evotrainer.run.history import Memory
from evotrainer.run.shortcut_audits import Auditor
from evotrainer.run.skills import Librarian

if TYPE_CHECKING:
    from evotrainer.agents.base import Agent
    from evotrainer.harness import Batch, Harness, HarnessContext
    from evotrainer.records.rollout import Rollout

CONTROL = "b0"
"""The starting recipe's branch."""
ESCALATE_AFTER = 2
"""Rounds in a row without a promotion after which the run escalates."""
MAX_REVISIONS = 3
"""So many times a human may send one step back."""


Ask = Callable[[str, str], tuple[str, str]]
"""(where, what is to be decided) -> (APPROVE | REVISE | ABORT, feedback)."""


def no_human(where: str, text: str) -> tuple[str, str]:
    """The answer where nobody can be asked."""
    raise AbortedError(
        f"autonomy is human_gated, but there is no terminal to ask at the {where} gate; run in one and resume"
    )


class Loop(Trials):
    """One run: from the base policy to a certified champion, within a budget."""

    def __init__(
        self,
        folder: Path,
        task: TaskFile,
        task_hash: str,
        ledger: Ledger,
        agent: Agent,
        harness: Harness,
        view: Observer,
        ask: Ask,
    ) -> None:
        super().__init__(folder, task, ledger, view)
        self.task_hash, self.agent, self.harness, self.ask = task_hash, agent, harness, ask
        self.auditor = Auditor(self)
        self.evolver = Evolver(self)
        self.topups, self.reestimator = TopUps(self), Reestimator(self)
        self.librarian = Librarian(self)
        self.memory = Memory(self)
        self.branches: dict[str, Branch] = {}
        self.versions: list[str] = []
        self.champion = CONTROL
        self.verdicts: list[Verdict] = []
        self.replayed: tuple[Sequence[Rollout], Batch] | None = None
        self.failures = 0
        self.feedback = ""
        self.revision = 0
        self.base_health: HealthReport | None = None
        self.noise: NoiseMeasured | None = None
        self.started = time.time()

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> RunClosed:
        """Walk the whole run; returns the closing event."""
        self.open_run()
        self.measure_base()
        if self.task.run.evaluate_only:
            return self.close("evaluated the base policy")
        self.measure_noise()
        reason = "every round of the task file was played"
        for n in range(1, self.task.run.rounds + 1):
            if stop := self.round(n):
                reason = stop
                break
        self.certify()
        return self.close(reason)

    def recall(self) -> None:
        """Take up what a run recorded, without doing anything: branches, trials, champion, what is closed."""
        opened = self.ledger.get("run")
        if opened is None:
            raise ConfigError(f"{self.folder} holds no run yet; `evotrainer resume {self.folder}` begins it")
        self.env = opened.body.environment
        self.sampler = "bf16" if opened.body.machine.get("sampler_dtype") == "bf16" else "fp32"
        self.check_unchanged(opened.body)
        events = self.ledger.events()
        tree = Lineage.from_events(events)
        readings = {e.id: e.body.health for e in events if e.kind == "diagnosed"}
        for name, b in tree.branches.items():
            trials = [t.finished for t in b.trainings if t.finished]
            read = [h for k, h in readings.items() if k == f"{name}/read" or k.startswith(f"{name}/read/")]
            health, looks = read[-1] if read else None, len(b.verdicts)
            self.branches[name] = Branch(
                name, b.parent, b.round, b.recipe, b.intervention, trials, health, b.verdict, b.version, looks
            )
        base = tree.trials.get("base")
        self.base = base.finished if base else None
        self.evolver.recall(events)
        self.fall_back()

    def round(self, n: int) -> str:
        """The nine steps. Returns why the run should stop here, or nothing."""
        again = bool(self.restarted(n))
        if self.ledger.get(f"r{n}/opened") is None:
            self.fall_back()
            again = again or self.champion == BASE
        if again:
            self.restart(n)
        opened = self.record(
            f"r{n}/opened",
            "round",
            lambda: RoundOpened(round=n, champion=self.champion, harness=self.harness.version, closed=self.closed),
        )
        self.champion, self.closed = opened.champion, dict(opened.closed)
        self.view.round(n, self.champion)
        self.escalate(n)

        rollouts = self.collect(self.champion)  # 1
        health = self.read(f"r{n}/diagnosed", n, self.champion, rollouts)  # 2 score, 3 signal, 4 behaviour
        self.gate(n, "diagnosis", "\n".join(b.explanation for b in health.bottlenecks[:3]))
        proposal, candidates = self.consider(n, health, rollouts)  # 5 hypothesis, 6 intervention, 7 backtest
        plan = self.plan(n, proposal, candidates)
        if not plan.branches:
            self.failures += 1
            return plan.stop
        self.train([self.branches[b] for b in plan.branches])  # 8
        self.verify(n, plan.branches)  # 9
        return plan.stop

    # -- before the rounds -----------------------------------------------------------------------------------------

    def open_run(self) -> None:
        """Probe the sandbox, describe environment and machine, open the starting recipe's branch."""
        self.view.step("opening")

        def opened() -> RunOpened:
            from evotrainer.envs import open_environment
            from evotrainer.trainers import sampler_dtype

            world = open_environment(self.task.environment, accept_tier_e=self.task.sandbox.accept_tier_e)
            try:
                env = dict(world.describe())
                env["components"] = dict(world.components)
                env["knobs"] = {k: ", ".join(map(str, v)) for k, v in world.knobs.items()}
                env["proxy"] = list(world.proxy) if world.proxy else None
                env["capabilities"] = [c.model_dump(mode="json") for c in world.capabilities]
                check_recipe(self.task.recipe, world.name, world.components, world.knobs)
            finally:
                world.close()
            env["files"] = fingerprints(self.task.environment)
            base = resolve_base(self.task.policy.base)
            return RunOpened(
                run=self.folder.name,
                task=self.task.task.name,
                task_hash=self.task_hash,
                task_sha256=sha256_file(self.folder / "task.toml"),
                version=__version__,
                seed=self.task.run.seed,
                agent=self.task.run.agent,
                autonomy=self.task.run.autonomy,
                budget=self.task.budget.limits(),
                machine=machine() | {"sampler_dtype": sampler_dtype(self.task.run.sampler_dtype)},
                sandbox_tier=str(env.get("sandbox_tier") or ""),
                environment=env,
                base_policy=base_identity(self.task.policy.base, base),
            )

        run = self.record("run", "run", opened)
        if run.task_hash != self.task_hash:
            raise ConfigError(
                f"{self.folder / 'task.toml'} was changed after the run began (hash {run.task_hash} in the ledger, "
                f"{self.task_hash} now); restore it, or start a new run"
            )
        self.env = run.environment
        self.sampler = "bf16" if run.machine.get("sampler_dtype") == "bf16" else "fp32"
        self.check_unchanged(run)
        self.view.note(run.isolation)
        self.librarian.open()
        self.evolver.open()
        self.open_branch(CONTROL, None, 0, self.task.recipe, None)

    def check_unchanged(self, run: RunOpened) -> None:
        """What a resumed run builds upon must still be what it began with; IntegrityError names what changed."""
        now = fingerprints(self.task.environment)
        for file, sha in run.environment.get("files", {}).items():
            if now.get(file) != sha:
                raise IntegrityError(f"{file} was changed after the run began; restore it, or start a new run")
        base = resolve_base(self.task.policy.base)
        if base is not None and weights_sha256(base) != run.base_policy.get("sha256"):
            raise IntegrityError(
                f"the base policy {base} was changed after the run began; restore it, or start a new run"
            )

    def open_branch(
        self, name: str, parent: str | None, round_: int, recipe: Recipe, iv: Intervention | None
    ) -> Branch:
        body = self.record(
            f"{name}/opened",
            "branch",
            lambda: BranchOpened(
                branch=name,
                parent=parent,
                round=round_,
                recipe=recipe,
                recipe_hash=recipe.hash,
                intervention=iv,
            ),
        )
        b = Branch(name, body.parent, body.round, body.recipe, body.intervention)
        self.branches[name] = b
        return b

    def measure_base(self) -> None:
        """The base policy on search and gate (and its warm start, where the task asks for one)."""
        self.view.step("base policy")
        base = resolve_base(self.task.policy.base)
        splits = ("search", "gate", "cert") if self.task.run.evaluate_only else ("search", "gate")
        spec = TrialSpec(
            run=self.folder.name,
            trial="base",
            branch="base",
            seed=0,
            purpose="base",
            train=False,
            recipe=self.task.recipe,
            protocol=self.task.recipe,
            environment=self.task.environment,
            policy_dir=str(base) if base else "",
            warm_start=None if base else self.task.policy.warm_start,
            evals=tuple(p for s in splits if (p := self.plan_eval(s))),
            accept_tier_e=self.task.sandbox.accept_tier_e,
            sampler_dtype=self.sampler,
            **self.trained_by,
        )
        (self.base,) = self.run_trials([spec])
        self.base_health = self.read("base/read", 0, "base", self.load("base", "search"), recipe=self.task.recipe)

    def measure_noise(self) -> None:
        """A/A trials: the starting recipe under several seeds. Their spread is the noise floor."""
        self.view.step("noise floor (A/A trials)")
        b0 = self.branches[CONTROL]
        self.train([b0], purpose="noise")
        if len(b0.complete) < 2:
            raise ConfigError(f"the noise floor needs at least 2 seeds, run.seeds has {len(b0.complete)}; add one")
        self.noise = self.record(
            "noise/1",
            "noise",
            lambda: measure_noise(CONTROL, scores_of(b0.complete, "gate"), seeds_per_branch=len(self.task.run.seeds)),
        )
        b0.health = self.read(f"{CONTROL}/read", 0, CONTROL, self.collect(CONTROL))
        self.evolver.review(0, [CONTROL])
        self.promote(CONTROL, None)
        self.auditor.settle(self.auditor.examine(0, b0))
        self.evolver.settle(0)
        self.view.note(f"noise floor {100 * self.noise.noise_floor:.1f} points on gate, from the A/A trials alone")

    def restarted(self, n: int) -> str:
        """The new starting branch of a round, empty where it had none."""
        opened = [e.body for e in self.ledger.events("branch")]
        return next((b.branch for b in opened if b.round == n and b.parent is None and b.branch != CONTROL), "")

    def restart(self, n: int) -> None:
        """No valid version is left: the starting recipe again, with what was exploited closed in training, too."""
        name = self.restarted(n) or f"b{len(self.branches)}"
        recipe = self.task.recipe.model_copy(update={"knobs": {**self.task.recipe.knobs, **self.closed}})
        b = self.open_branch(name, None, n, recipe, None)
        self.train([b], purpose="noise")
        self.widen_noise([name])
        b.health = self.read(f"{name}/read", n, name, self.collect(name))
        self.evolver.review(n, [name])
        self.promote(name, None)

    def fall_back(self) -> None:
        """The last valid version is champion, and what was confirmed as a shortcut is closed: also what was found since."""
        tree = Lineage.from_events(self.ledger.events())
        valid = [v.branch for v in tree.versions if v.branch not in tree.invalid]
        self.champion = valid[-1] if valid else BASE
        self.closed |= {
            e.body.audit.knob: e.body.audit.closed for e in self.ledger.events("audited") if e.body.audit.confirmed
        }

    # -- the nine steps --------------------------------------------------------------------------------------------

    def collect(self, branch: str) -> list[Rollout]:
        """Step 1: the champion's stored search rollouts, all seeds."""
        self.view.step("1 collect rollouts")
        return [r for t in self.branches[branch].complete for r in self.load(t.trial, "search")]

    def read(
        self, key: str, n: int, branch: str, rollouts: Sequence[Rollout], recipe: Recipe | None = None
    ) -> HealthReport:
        """Steps 2 to 4: score, signal and behaviour, findings, ranked bottlenecks."""
        self.view.step("2-4 read evidence")

        def diagnose() -> Diagnosed:
            steps = self.task.recipe.steps if branch != "base" else 0
            health = self.harness.read(rollouts, f"{branch}@{steps} search", self.context(branch, recipe))
            return Diagnosed(round=n, health=health)

        return self.record(key, "diagnosed", diagnose).health

    def context(self, branch: str, recipe: Recipe | None = None) -> HarnessContext:
        from evotrainer.harness import HarnessContext

        b = self.branches.get(branch)
        r = recipe or (b.recipe if b else self.task.recipe)
        return HarnessContext(
            recipe=r,
            proxy=self.proxy(),
            max_tokens=self.task.recipe.max_tokens,
            previous=self.earlier(b),
            base=self.base_health,
            before=self.solved_before(b),
            curve=tuple(mean_curve([t.curve for t in b.complete])) if b else (),
            sandboxed=self.evolver.runner,
        )

    def read_by(self) -> dict[str, Any]:
        return self.evolver.for_trials()

    def solved_before(self, b: Branch | None) -> dict[str, float] | None:
        """Share of correct search attempts per task of the version a branch came from: its parent, else the base policy."""
        if b is None:
            return None
        parent = self.branches.get(b.parent or "")
        trials = parent.complete if parent else [self.base] if self.base else []
        tasks = [s.per_task for t in trials for s in t.scores if s.split == "search"]
        return mean_per_task(tasks) if tasks else None

    def consider(
        self, n: int, health: HealthReport, rollouts: Sequence[Rollout]
    ) -> tuple[Proposal, list[tuple[int, Intervention]]]:
        """Steps 5 to 7, as often as a human sends them back (REVISE at the intervention or the backtest gate)."""
        for k in range(MAX_REVISIONS + 1):
            proposal = self.propose(n, k, health, rollouts)
            self.evolver.edits(n, k, proposal)
            text = "\n".join(f"{i.factor}: {i.old} -> {i.new}  ({i.hypothesis})" for i in proposal.interventions)
            if not self.gate(n, "intervention", text or proposal.stop, k):
                continue
            candidates = self.backtest(n, k, proposal, rollouts)
            text = "\n".join(f"{iv.factor}: {iv.old} -> {iv.new}" for _, iv in candidates)
            if self.gate(n, "backtest", text or "the backtests contradict every proposal", k):
                self.feedback = ""
                return proposal, candidates
        self.view.note(f"round {n}: {MAX_REVISIONS} revisions were sent back; the round ends without a branch")
        return Proposal(agent=self.agent.name, interventions=()), []

    def propose(self, n: int, k: int, health: HealthReport, rollouts: Sequence[Rollout]) -> Proposal:
        """Steps 5 and 6: the agent's hypotheses as single-factor interventions; `k`: how often they were sent back."""
        self.view.step("5-6 propose")
        self.revision = k

        def proposed() -> Proposed:
            tools = AgentTools(self, rollouts)
            proposal = self.agent.propose(self.briefing(n, health), tools)
            quoted = [t.trial for t in self.branches[self.champion].complete if any(f.quotes for f in health.findings)]
            return Proposed(round=n, proposal=proposal, shown=tuple(sorted({*tools.served, *quoted})))

        return self.record(f"r{n}/proposed" + (f"/{k}" if k else ""), "proposed", proposed).proposal

    def briefing(self, n: int, health: HealthReport) -> Briefing:
        done = [b for b in self.branches.values() if b.trials]
        costs = [t.cpu_s for b in done for t in b.complete]
        return Briefing(
            run=self.folder.name,
            round=n,
            task=self.task.task.about or self.task.task.name,
            champion=self.branches[self.champion].record(),
            health=health,
            branches=tuple(b.record() for b in done),
            components=self.env["components"],
            knobs=self.auditor.offered(self.branches[self.champion].recipe),
            budget_left=self.budget().left(),
            notes={"train_tasks": str(self.env.get("splits", {}).get("train", "")), "revision": str(self.revision)},
            trial_cost=sum(costs) / len(costs) if costs else 0.0,
            failures_in_a_row=self.failures,
            branches_wanted=self.task.run.branches,
            feedback=self.feedback,
            skills=self.librarian.advice(health),
            cases=self.memory.cases(health),
            bar=self.memory.bar(),
            reopenable=self.memory.reopenable(),
        )

    def backtest(
        self, n: int, k: int, proposal: Proposal, rollouts: Sequence[Rollout]
    ) -> list[tuple[int, Intervention]]:
        """Step 7: replay every intervention on stored rollouts; a contradicted hypothesis costs no compute."""
        self.view.step("7 backtest")
        out: list[tuple[int, Intervention]] = []
        for i, iv in enumerate(proposal.interventions):

            def replay(i: int = i, iv: Intervention = iv) -> Backtested:
                b = self.replay(iv, rollouts)
                vetoed = b.verdict == "contradicts" and self.task.run.veto
                return Backtested(round=n, index=i, intervention=iv, backtest=b, vetoed=vetoed)

            key = f"r{n}/backtested/{i}" + (f"/{k}" if k else "")
            if not self.record(key, "backtested", replay).vetoed:
                out.append((i, iv))
        return out

    def earlier(self, b: Branch | None) -> tuple[HealthReport, ...]:
        """Readings of what a branch came from, oldest first: the base policy's, then its parent's."""
        parent = self.branches.get(b.parent) if b and b.parent else None
        return tuple(h for h in (self.base_health if b else None, parent.health if parent else None) if h is not None)

    def replay(self, iv: Intervention, rollouts: Sequence[Rollout]) -> Backtest:
        from evotrainer.harness import Batch
        from evotrainer.harness.whatif import backtest

        if self.replayed is None or self.replayed[0] is not rollouts:  # read once for all proposals of a round
            self.replayed = rollouts, Batch.of(rollouts)
        return backtest(iv, self.branches[self.champion].recipe, self.replayed[1], self.context(self.champion))

    def plan(self, n: int, proposal: Proposal, candidates: list[tuple[int, Intervention]]) -> Planned:
        """Turn what is left into branches: single factor, lint-clean, not tried before, within the budget."""
        names: list[str] = []
        over_budget = False
        for i, iv in candidates:
            name = f"b{len(self.branches)}"
            recorded = self.ledger.get(f"{name}/opened")
            if recorded is not None and recorded.body.intervention == iv:
                self.open_branch(name, self.champion, n, recorded.body.recipe, iv)
                names.append(name)
                continue
            reason = ""
            if self.ledger.get(f"r{n}/planned") is None and self.ledger.get(f"r{n}/refused/{i}") is None:
                reason = self.refusal(iv, len(names))
            if reason or self.ledger.get(f"r{n}/refused/{i}") is not None:
                body = self.record(
                    f"r{n}/refused/{i}",
                    "refused",
                    partial(Refused, round=n, index=i, intervention=iv, reason=reason),
                )
                over_budget = over_budget or "budget" in body.reason
                continue
            recipe = self.branches[self.champion].recipe.with_factor(iv.factor, iv.new)
            self.open_branch(name, self.champion, n, recipe, iv)
            names.append(name)

        def planned() -> Planned:
            stop = proposal.stop
            if not names and not stop:
                stop = "the budget holds no further branch" if over_budget else ""
            return Planned(round=n, branches=tuple(names), stop=stop)

        return self.record(f"r{n}/planned", "planned", planned)

    def refusal(self, iv: Intervention, chosen: int) -> str:
        """Why this intervention becomes no branch; empty where it may."""
        parent = self.branches[self.champion].recipe
        if chosen >= self.task.run.branches:
            return f"not among the first {self.task.run.branches} of this round"
        try:
            recipe = parent.with_factor(iv.factor, iv.new)
            check_recipe(recipe, self.env["name"], self.env["components"], self.env["knobs"])
            factor = single_factor(parent, recipe)
        except (ConfigError, SingleFactorError) as e:
            return str(e)
        if opened := self.auditor.opened_by(parent, recipe):
            return f"opens {opened.name}, which honest training has no need of ({opened.about})"
        if factor != iv.factor:
            return f"declared factor {iv.factor}, but the recipes differ in {factor}"
        if errors := [x for x in lint(recipe) if x.level == "error"]:
            return "; ".join(f"{x.factor}: {x.message}" for x in errors)
        for b in self.branches.values():
            if b.recipe.hash == recipe.hash:
                return f"this recipe was trained already as {b.name}"
        if repeated := self.memory.repeated(iv):
            return repeated
        trainings = (chosen + 1) * len(self.task.run.seeds) + len(self.task.run.certify_seeds)
        need = (chosen + 1) * len(self.task.run.seeds) + self.certification_trials()
        try:
            self.budget().check(cpu_s=need * self.trial_reserve(), trials=trainings)
        except BudgetError as e:
            return f"over budget: {e}"
        return ""

    def train(self, branches: Sequence[Branch], purpose: str = "branch") -> None:
        """Step 8: all trials of the round side by side."""
        self.view.step("8 train")
        specs = [self.spec(b, s, purpose) for s in self.task.run.seeds for b in branches]
        results = {t.trial: t for t in self.run_trials(specs)}
        for b in branches:
            b.trials = [results[f"{b.name}-s{s}"] for s in self.task.run.seeds]

    def verify(self, n: int, names: Sequence[str]) -> None:
        """Step 9: read, judge, record; what stays undecided is given the seeds that would decide, and looked at again."""
        before = self.champion
        self.look(n, names)
        while more := self.topups.grant(n, names, before):
            self.look(n, more)
        self.evolver.settle(n)
        self.librarian.distil(sorted(names, key=lambda x: (-gate_mean(self.branches[x]), x)))
        self.failures = 0 if self.champion != before else self.failures + 1

    def look(self, n: int, names: Sequence[str]) -> None:
        """One look at some of a round's branches. Best first; what remains is judged against the new champion."""
        self.view.step("9 verify")
        for name in names:
            b = self.branches[name]
            if b.complete:
                b.health = self.read(f"{name}/read{self.again(b)}", n, name, self.collect(name))
        self.evolver.review(n, names)
        self.widen_noise(names)
        # The looks of a round share their level, so that judging the best first costs nothing (docs/judge.md).
        # Only one branch a round becomes champion: what else gains may be tried again on top of it.
        looks = next_looks(self.verdicts, self.task.judge.alpha, len(names))
        order = sorted(names, key=lambda x: (-gate_mean(self.branches[x]), x))
        for name, look in zip(order, looks, strict=True):
            verdict = self.judge(n, self.branches[name], look)
            self.view.verdict(verdict)
            if self.auditor.settle([a for a in self.auditor.audits_of(name) if verdict.kind == "invalid"]):
                continue
            if (
                verdict.kind == "promote"
                and self.standing(name)
                and self.gate(n, "verdict", f"promote {name}: {verdict.reason}", name=name)
            ):
                self.promote(name, self.champion)
                self.reestimator.promotion(self.branches[name])

    def widen_noise(self, names: Sequence[str]) -> None:
        """Every branch's spread between seeds joins the noise measurement: more degrees of freedom for all."""
        for name in names:
            scores = scores_of(self.branches[name].complete, "gate")
            if len(scores) < 2:
                continue
            b = self.branches[name]
            more = f"/{len(b.trials)}" if len(b.trials) > len(self.task.run.seeds) else ""
            self.noise = self.record(
                f"noise/{name}{more}",
                "noise",
                partial(
                    measure_noise,
                    name,
                    scores,
                    seeds_per_branch=len(self.task.run.seeds),
                    earlier=self.noise,
                ),
            )

    def judge(self, n: int, b: Branch, look: Look) -> Verdict:
        """The judge sees trials and findings, never who proposed the change."""
        control = self.branches[b.parent or CONTROL]  # the one factor's effect, whoever was promoted meanwhile
        ahead = self.champion if self.champion != control.name else ""

        def judged() -> Judged:
            audits = self.auditor.examine(n, b)
            said = self.verdict(n, b, control, look, ahead, audits)
            if said.verdict.kind == "promote":
                more = self.auditor.everything(n, b, "promotion")
                if more != audits:
                    said = self.verdict(n, b, control, look, ahead, more)
            return said

        verdict: Verdict = self.record(f"{b.name}/judged{self.again(b)}", "judged", judged).verdict
        b.verdict, b.looks = verdict, b.looks + 1
        self.verdicts.append(verdict)
        return verdict

    def verdict(self, n: int, b: Branch, control: Branch, look: Look, ahead: str, audits: Sequence[Audit]) -> Judged:
        """The judge's answer, both sides with gate scores of one world: what was audited is closed in it."""
        invalid = any(a.confirmed for a in audits)
        world = self.auditor.world() | {a.knob: a.closed for a in audits}
        said = judge(
            b.name,
            control.name,
            b.trials if invalid else self.stand_in(b, world),
            control.trials if invalid else self.stand_in(control, world),
            self.noise,
            look,
            self.judge_config(),
            findings=b.health.findings if b.health else (),
            control_findings=control.health.findings if control.health else (),
            audits=self.auditor.answered(b, audits),
            shortcuts=audits,
            proxy=self.proxy(),
            ahead=ahead,
        )
        used = () if invalid else [t.trial for x in (b, control) for t in self.auditor.evaluations(x, world)]
        seen = [t.trial for x in (b, control) for t in x.trials]
        return Judged(round=n, verdict=said, evaluations=tuple(used), trials=tuple(seen))

    def again(self, b: Branch) -> str:
        """What the keys of a branch's next look end with; nothing for the first."""
        return f"/{b.looks + 1}" if b.looks else ""

    def stand_in(self, b: Branch, world: Mapping[str, Any]) -> list[TrialFinished]:
        """All trials of a branch, the complete ones with the gate scores of a world."""
        return [*self.auditor.scored(b, world), *(t for t in b.trials if t.status != "complete")]

    def standing(self, name: str) -> bool:
        """False where a branch, or what it came from, was invalidated before it could be promoted."""
        if any(e.body.branch == name for e in self.ledger.events("promoted")):
            return True
        return name not in Lineage.from_events(self.ledger.events()).invalid

    # -- gates, escalation, promotion ------------------------------------------------------------------------------

    def gate(self, n: int, where: str, text: str, attempt: int = 0, name: str = "") -> bool:
        """Ask the human where the autonomy level says so. True: go on; False: sent back; ABORT raises."""
        autonomy = self.task.run.autonomy
        if autonomy == "full" or (autonomy == "escalating" and self.failures < ESCALATE_AFTER):
            return True
        key = f"r{n}/gate/{where}" + (f"/{name}" if name else "") + (f"/{attempt}" if attempt else "")

        def asked() -> HumanGate:
            answer, feedback = self.ask(where, text)
            if answer == "ABORT":
                raise AbortedError(f"aborted at the {where} gate of round {n}; `evotrainer resume` asks again")
            return HumanGate(round=n, where=where, answer=answer, feedback=feedback, branch=name)

        body: HumanGate = self.record(key, "gate", asked)
        if body.answer == "REVISE":
            self.feedback = body.feedback
        return body.answer == "APPROVE"

    def escalate(self, n: int) -> None:
        """After failures in a row: check the evaluation itself, tell the agent to change layer (METHOD.md section 1)."""
        if self.failures < ESCALATE_AFTER:
            return
        actions = ["the agent is told to change layer (reward, signal, data, algorithm) and to subtract first"]
        if self.failures > ESCALATE_AFTER:
            actions.insert(0, self.revalidate(n))
        actions += self.librarian.escalation()
        self.record(
            f"r{n}/escalated",
            "escalated",
            lambda: Escalated(round=n, failures=self.failures, actions=tuple(actions)),
        )
        for a in actions:
            self.view.note(f"escalation: {a}")

    def revalidate(self, n: int) -> str:
        """Evaluate the champion's first trial on search once more: the evaluation must say the same."""
        b = self.branches[self.champion]
        t = b.complete[0]
        trial = f"{t.trial}-recheck{n}"
        plan = self.plan_eval("search")
        assert plan is not None
        (again,) = self.run_trials([self.eval_spec(trial, b, t.seed, t.policy_path, (plan,), "audit")])
        was = next(s.score for s in t.scores if s.split == "search")
        now = next((s.score for s in again.scores if s.split == "search"), None)
        if was is None or now is None:
            return f"evaluation of {t.trial} could not be repeated: {again.error or 'no attempt was graded'}"
        same = abs(was - now) < 1e-9
        return f"evaluation of {t.trial} repeated: {was:.4f} then, {now:.4f} now ({'same' if same else 'DIFFERENT'})"

    def promote(self, name: str, previous: str | None) -> None:
        """Give a branch its version, or take up the one it was given; numbers go up whoever lost his standing since."""
        given = [e.body for e in self.ledger.events("promoted")]
        version = next((p.version for p in given if p.branch == name), f"v{len(given)}")
        body = self.record(version, "promoted", lambda: Promoted(version=version, branch=name, previous=previous))
        if body.branch != name:
            raise IntegrityError(
                f"{version} was given to {body.branch}, not to {name}; run `evotrainer verify {self.folder}`"
            )
        self.branches[name].version = version
        self.versions.append(version)
        self.champion = name

    # -- after the rounds ------------------------------------------------------------------------------------------

    def certification_trials(self) -> int:
        """What to keep for certification, in trainings: the champion on fresh seeds, and evaluations at a quarter each."""
        audits = 0
        if self.task.judge.audit == "promotions":
            audits = sum(self.auditor.is_open(c) and not c.honest for c in self.auditor.capabilities)
        seeds = max(len(self.branches[x].trials) for x in (CONTROL, self.champion) if x in self.branches)
        evaluations = (1 + seeds) + audits * (1 + 2 * seeds)
        return len(self.task.run.certify_seeds) + ceil(evaluations / 4)

    def audit_champion(self) -> None:
        """The champion's last test before certification: every shortcut closed, down to a version that stands."""
        self.fall_back()
        while self.champion != BASE:
            b = self.branches[self.champion]
            self.auditor.examine(b.round, b)
            if not self.auditor.settle(self.auditor.everything(b.round, b, "certification")):
                return

    def certify(self) -> Certified:
        """The cert split, read once: base, starting recipe, champion (trained again on fresh seeds)."""
        if (certified := self.ledger.get("certified")) is not None:
            self.fall_back()  # what was invalidated since stays so; nothing is certified a second time
            body: Certified = certified.body
            return body
        self.audit_champion()
        self.evolver.settle(self.task.run.rounds, "end")
        self.view.step("certify")
        cert = self.plan_eval("cert")
        assert cert is not None and self.base is not None
        base = resolve_base(self.task.policy.base)
        b0, champion = self.branches[CONTROL], self.branches.get(self.champion)
        base_dir = str(base) if base else self.base.policy_path
        fresh = champion is not None and champion is not b0
        # the long ones first, so that all cores stay busy to the end
        own = self.reestimator.certify_specs(champion, cert) if champion and fresh else []
        specs = [*own, self.eval_spec("base-cert", None, 0, base_dir, (cert,), "certify")]
        specs += [self.eval_spec(f"{t.trial}-cert", b0, t.seed, t.policy_path, (cert,), "certify") for t in b0.complete]
        done = {t.trial: t for t in self.run_trials(specs)}
        if champion and fresh:
            self.reestimator.record(champion)

        def entry(name: str, branch: str, trials: Sequence[str]) -> CertEntry:
            ok = [done[x] for x in trials if done[x].status == "complete"]
            scores = {t.seed: s for t in ok for s in t.scores if s.split == "cert" and s.per_task}
            if not scores:
                why = done[trials[0]].error or "no attempt was graded"
                raise TrainerError(f"certification of {name} failed: {why}; `evotrainer resume` tries again")
            return CertEntry(name=name, branch=branch, scores=scores)

        def rows() -> Certified:
            entries = [
                entry("base", "base", ["base-cert"]),
                entry("start", CONTROL, [f"{t.trial}-cert" for t in b0.complete]),
            ]
            if champion and fresh:
                entries.append(entry("champion", champion.name, [s.trial for s in own]))
            found = certify(entries, self.champion, proxy=self.proxy(), noise=self.noise)
            return with_gains(found, self.ledger.events(), lambda trial: self.load(trial, "search"))

        certified_: Certified = self.record("certified", "certified", rows)
        for branch, found in caveats(self.ledger.events()).items():
            self.view.note(f"caveat on the certificate of {branch}: {told(found)}")
        return certified_

    def close(self, reason: str) -> RunClosed:
        finished = [e.body for e in self.ledger.events("finished")]
        return self.record(
            "closed",
            "closed",
            lambda: RunClosed(
                reason=reason,
                champion=self.champion if self.branches[CONTROL].trials else "base",
                cpu_s=round(sum(t.cpu_s for t in finished), 1),
                wall_s=round(max(time.time() - self.started, self.budget().spent["wall_s"]), 1),
                peak_rss_mb=max((t.peak_rss_mb for t in finished), default=0.0),
            ),
        )

    # -- what the steps share ----------------------------------------------------------------------------------------

    def proxy(self) -> tuple[str, str] | None:
        """The environment's (proxy, true) reward components."""
        p = self.env.get("proxy")
        return (p[0], p[1]) if p else None

    def judge_config(self) -> JudgeConfig:
        return JudgeConfig(**self.task.judge.model_dump(include=set(JudgeConfig.model_fields)))


class AgentTools:
    """What an agent may call while it thinks; nothing of gate or cert is in reach."""

    def __init__(self, loop: Loop, rollouts: Sequence[Rollout]) -> None:
        self._loop, self._rollouts = loop, rollouts
        self.served: set[str] = set()
        """Trials whose rollouts the agent asked for."""

    def backtest(self, intervention: Intervention) -> Backtest:
        return self._loop.replay(intervention, self._rollouts)

    def rollouts(self, branch: str, limit: int = 100) -> Sequence[Rollout]:
        out: list[Rollout] = []
        for t in self._loop.branches[branch].complete:
            if len(out) < limit and (more := self._loop.load(t.trial, "search")):
                self.served.add(t.trial)
                out += more
        return out[: max(0, limit)]


def gate_mean(b: Branch) -> float:
    """Mean gate score over a branch's complete trials; -1 without any."""
    scores = [s.score for t in b.complete for s in t.scores if s.split == "gate" and s.score is not None]
    return sum(scores) / len(scores) if scores else -1.0


def mean_per_task(trials: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each task over the trials that have it."""
    names = {t for per in trials for t in per}
    return {t: sum(p[t] for p in trials if t in p) / sum(t in p for p in trials) for t in sorted(names)}


def mean_curve(curves: Sequence[Sequence[dict[str, float]]]) -> list[dict[str, float]]:
    """Step-wise mean of several training curves, over the steps all of them reached."""
    if not curves:
        return []
    out = []
    for rows in zip(*curves, strict=False):
        keys = set.intersection(*(set(r) for r in rows))
        out.append({k: sum(r[k] for r in rows) / len(rows) for k in sorted(keys)})
    return out
