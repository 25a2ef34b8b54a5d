"""What a run will cost before it is begun: trainings, processor or GPU time, disk.

Trainings are counted from the task file. The time of a step and of an attempt is measured on short trainings of the
starting recipe in a folder that is removed again, or given by the user.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from evotrainer.config.budget import PriceConfig
from evotrainer.config.load import resolve
from evotrainer.config.task import TaskFile
from evotrainer.envs import probe_options
from evotrainer.errors import ConfigError
from evotrainer.executors import Executor, gpus_of, local_workers, make_executor
from evotrainer.executors.spec import TrialSpec
from evotrainer.judge.alpha_spending import share
from evotrainer.judge.guard_power import outlook
from evotrainer.judge.planned_seeds import SEED_SD, detectable
from evotrainer.records.events import TrialFinished
from evotrainer.records.probes import PROBE_CPU, spent_by
from evotrainer.records.reader import LONGEST
from evotrainer.records.recipe import Recipe
from evotrainer.records.text import counted
from evotrainer.trainers import check_recipes

STEPS = 3
"""Steps that are trained to measure one."""
TASKS = 20
"""Search tasks that are evaluated to measure an attempt."""
START, CERTIFICATION = "starting recipe, every seed", "certification, fresh seeds"


@dataclass(frozen=True, slots=True)
class StepCost:
    """CPU- or GPU-seconds of a training step and of one evaluated attempt, and bytes on disk; None: not known."""

    step_s: float
    attempt_s: float
    rollout_bytes: float | None = None
    policy_bytes: float | None = None
    measured: int = 0
    """Steps that were measured; 0: none was."""
    start_s: float = 0.0
    """CPU- or GPU-seconds of a training beside its steps and attempts: libraries and weights are loaded and saved."""
    wall: float = 1.0
    """Seconds of the clock in each of these, where a GPU is held."""
    probe_s: float = 0.0
    """CPU-seconds of probes (docs/probes.md) for each attempt of which some are probed, on average."""


class Count(NamedTuple):
    """Trainings of one kind. `likely`: every round is played, each branch keeps to its first seeds, and a champion is
    certified."""

    least: int
    likely: int
    most: int


NONE = Count(0, 0, 0)


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """Trainings by what they are for, and what each costs."""

    trainings: dict[str, Count]
    cost: StepCost
    training_s: float
    """Seconds of one training of the starting recipe with its evaluations."""
    rollouts: int
    """Rollouts that one training leaves."""
    side_by_side: int
    limits: dict[str, float]
    detects: dict[int, float]
    """Gain on gate, score units, that is found four times in five with so many seeds a side, by noise as assumed
    (`judge.planned_seeds.detectable`); empty where nothing is judged."""
    max_seeds: int
    """Up to which an undecided verdict asks for seeds."""
    ended_at: float
    """CPU-seconds at which a training is stopped."""
    read: str = ""
    """What a reader is asked, in words; empty: there is none."""
    gpus: float = 0.0
    """That each trial holds."""
    price: PriceConfig | None = None
    guards: Count = NONE
    """Policies that are evaluated on every guard."""
    guard_s: float = 0.0
    """Seconds that one of them takes, by the cost of an attempt at the task's own environment."""
    guard_notes: tuple[str, ...] = ()
    """Of guards that mostly block what loses nothing."""
    probed: str = ""
    """What probes take, in words; empty: there are none."""

    @property
    def total(self) -> Count:
        return Count(*map(sum, zip(*self.trainings.values(), strict=True)))


def count_trainings(task: TaskFile) -> dict[str, Count]:
    """Trainings of a run by purpose."""
    run, judge = task.run, task.judge
    seeds, rounds = len(run.seeds), run.rounds
    most_seeds = max(judge.max_seeds, seeds)
    out = {START: Count(seeds, seeds, most_seeds if rounds and not run.search_only else seeds)}
    if run.probes and rounds:
        out["search"] = Count(1, run.probes * rounds, run.probes * rounds)
    if run.search_only:
        return out
    branches = (1 if run.probes else run.branches) * rounds
    if branches:
        out["branches, every seed"] = Count(min(1, branches) * seeds, branches * seeds, branches * most_seeds)
        out["controls at equal compute"] = Count(0, 0, branches * seeds)
    certified = len(run.certify_seeds) if branches else 0
    out[CERTIFICATION] = Count(0, certified, certified)
    return out


def count_guarded(task: TaskFile) -> Count:
    """Policies that are evaluated on guards: the base policy and the certified ones at least; both sides of a promotion
    a round likely, of every branch at most."""
    run, seeds = task.run, len(task.run.seeds)
    if not task.guard or run.search_only or run.evaluate_only:
        return NONE
    least = 1 + seeds
    branches = (1 if run.probes else run.branches) * run.rounds
    most = 1 + (1 + branches) * max(task.judge.max_seeds, seeds) + len(run.certify_seeds)
    return Count(least, least + run.rounds * seeds + len(run.certify_seeds) * bool(run.rounds), most)


def estimate(task: TaskFile, step_s: float | None = None) -> RunEstimate:
    """What the run of a task file costs; `step_s`: seconds of a step, in place of measuring one.

    Raises ConfigError where nothing is trained, and what a run raises where the measurement cannot be made.
    """
    if task.run.evaluate_only:
        raise ConfigError("run.evaluate_only trains nothing; there is nothing to estimate")
    cost = _given(task, step_s) if step_s is not None else _measured(task)
    recipe, ev = task.recipe, task.evaluation
    read = [("search", ev.search_attempts, ev.search_tasks)]
    read += [] if task.run.search_only else [("gate", ev.gate_attempts, ev.gate_tasks)]
    there = {} if all(tasks for _, _, tasks in read) else _tasks_there(task)
    by_split = [(n + ev.greedy) * (tasks or there.get(split, 0)) for split, n, tasks in read]
    attempts = sum(by_split)
    sampled = recipe.steps * recipe.prompts_per_step * recipe.group_size
    only_search = _probes(task) == "sample"
    probes_s = cost.probe_s * (by_split[0] if only_search else sampled + attempts)
    guards = [
        (g.name, g.tasks or _tasks_there(task, g.environment).get(g.split, 0), g.attempts, g.margin) for g in task.guard
    ]
    guarded = count_guarded(task)
    return RunEstimate(
        trainings=count_trainings(task),
        cost=cost,
        training_s=cost.start_s
        + recipe.steps * cost.step_s
        + attempts * cost.attempt_s
        + (probes_s if only_search else 0.0),
        rollouts=sampled + attempts,
        side_by_side=local_workers(task),
        limits=task.budget.limits(),
        max_seeds=task.judge.max_seeds,
        ended_at=2 * task.budget.trial_cpu_s,
        detects=_detects(task, there),
        read=_read(task),
        probed=_probed(task, probes_s if cost.measured else None),
        gpus=gpus_of(task),
        price=task.budget.price,
        guards=guarded,
        guard_s=cost.attempt_s * sum(tasks * attempts for _, tasks, attempts, _ in guards),
        guard_notes=tuple(outlook(guards, max(task.judge.min_seeds, len(task.run.seeds)))) if guarded.most else (),
    )


def _probes(task: TaskFile) -> str:
    options = probe_options(task.environment)
    return options.probes if options else "off"


def _probed(task: TaskFile, each: float | None) -> str:
    """CPU-seconds of probes; `each`: of a training, None where nothing was measured."""
    options = probe_options(task.environment)
    if options is None or options.probes == "off":
        return ""
    likely = each and min(each * sum(n.likely for n in count_trainings(task).values()), options.probe_cpu_s)
    some = "" if likely is None else f"take some {likely:.3g} CPU-s of this, and "
    return (
        f"probes run programs of {'all' if options.probes == 'all' else 'sampled search'} attempts: they {some}stop "
        f"after environment.probe_cpu_s={options.probe_cpu_s:g} in all"
    )


def _read(task: TaskFile) -> str:
    """Questions to the reader: likely the start and one promotion a round, at most every branch's retries."""
    r = task.harness.reader
    if r is None or task.run.search_only:
        return ""
    branches = (1 if task.run.probes else task.run.branches) * task.run.rounds
    likely, most = (min(r.rollouts, r.each * n) for n in (1 + task.run.rounds, 1 + branches))
    return (
        f"a reader ({r.name}) is asked about some {likely} rollouts, at most {most} (harness.reader.rollouts="
        f"{r.rollouts}), one question each, up to {1 + r.retries} where answers are refused; a question has up to "
        f"{LONGEST // 4:,} tokens"
    )


def _detects(task: TaskFile, there: dict[str, int]) -> dict[int, float]:
    """At the first seeds and at the most."""
    ev, judge = task.evaluation, task.judge
    tasks = ev.gate_tasks or there.get("gate", 0)
    if task.run.search_only or not task.run.rounds or not tasks:
        return {}
    first = max(judge.min_seeds, len(task.run.seeds))
    level = judge.alpha * share(1)
    return {n: detectable(tasks, ev.gate_attempts, n, level) for n in sorted({first, max(first, judge.max_seeds)})}


def _tasks_there(task: TaskFile, environment: Mapping[str, object] | None = None) -> dict[str, int]:
    """Tasks of each split, for evaluations that take all of them; of the task's environment, or a guard's."""
    from evotrainer.envs import open_environment

    accepts = task.sandbox.accept_tier_e
    with contextlib.closing(open_environment(environment or task.environment, accept_tier_e=accepts)) as opened:
        return dict(opened.describe().get("splits", {}))


def _given(task: TaskFile, step_s: float) -> StepCost:
    """An attempt costs at most its share of a step, which samples as many and trains on them besides."""
    if not 0 < step_s < float("inf"):
        raise ConfigError(f"--step-s {step_s:g}: give the seconds of one training step, above 0")
    return StepCost(step_s, step_s / (task.recipe.prompts_per_step * task.recipe.group_size))


def _fewer(task: TaskFile, recipe: Recipe, steps: int) -> Recipe:
    """The recipe with fewer steps, where its trainer takes so few."""
    with contextlib.suppress(ConfigError):
        few = recipe.with_factor("steps", min(steps, recipe.steps))
        check_recipes(task.trainer.name, task.trainer.options, [few])
        return few
    return recipe


def _uneven(folder: Path, task: TaskFile) -> Executor:
    """Trains the last seed one step and evaluates it on one task: the difference to the others tells what a step and an
    attempt take from what a trial takes whatever its size."""
    executor = make_executor(folder, task)
    run = executor.run

    def uneven(s: TrialSpec) -> TrialSpec:
        evals = tuple(p.model_copy(update={"tasks": 1}) for p in s.evals)
        less = {"recipe": _fewer(task, s.recipe, 1), "evals": evals}
        return s.model_copy(update=less) if s.train and s.seed == task.run.seeds[-1] != task.run.seeds[0] else s

    executor.run = lambda specs, *told: run([*map(uneven, specs)], *told)  # type: ignore[method-assign]
    return executor


def _attempts(t: TrialFinished) -> int:
    return sum(s.attempts * len(s.per_task) + len(s.greedy_per_task) for s in t.scores)


def _measured(task: TaskFile) -> StepCost:
    """From a short search-only run of the starting recipe."""
    from evotrainer.records.ledger import Ledger
    from evotrainer.run.starting import Caller, begin

    plain = task.model_dump(mode="json")
    recipe = _fewer(task, task.recipe.model_copy(update={"phases": ()}), STEPS)
    plain["recipe"] |= {"steps": recipe.steps, "phases": []}
    there = task.evaluation.search_tasks or _tasks_there(task).get("search", TASKS)
    plain["evaluation"] |= {"search_tasks": min(TASKS, there)}
    plain["run"] |= {"search_only": True, "rounds": 0, "probes": 1, "cache": "off", "harness": "minimal"}
    plain["run"] |= {"agent": "statistical", "agent_options": {}}
    plain["budget"] |= dict.fromkeys(task.budget.limits())
    plain["tracking"] = {"to": []}
    short = resolve(plain)
    with tempfile.TemporaryDirectory(prefix="evotrainer-estimate-") as folder:
        run = Path(folder) / "run"
        begin(short, run, Caller(executor=_uneven))
        with contextlib.closing(Ledger.open(run / "ledger.db", readonly=True)) as ledger:
            ended = [e.body for e in ledger.events("finished")]
        done = sorted((t for t in ended if t.steps), key=lambda t: (t.steps, _attempts(t)))
        if not done:
            raise ConfigError("no step could be trained; `evotrainer run` says why, or give --step-s")
        least, t = both = done[0], done[-1]
        size = sum(f.stat().st_size for f in (run / "rollouts" / t.trial).rglob("*") if f.is_file())
        probes = spent_by(run / PROBE_CPU)
        policy = sum(f.stat().st_size for f in (run / "trials" / t.trial / "policy").rglob("*") if f.is_file())
    only_search = _probes(short) == "sample"
    sampled = recipe.prompts_per_step * recipe.group_size
    # of training attempts none is probed by default, of the others those of search alone
    probe_s = probes / max(1, sum(_attempts(x) + x.steps * sampled * (not only_search) for x in ended))

    def each(spent: list[float], few: int, n: int) -> tuple[float, float]:
        """(of one, beside them); of one at least two percent of all, which is the noise of CPU time."""
        less, whole = spent
        one = max(whole - less, whole / 50) / (n - few) if n > few else whole / max(1, n)
        return one, max(0.0, whole - one * n)

    trained = [x.training_s or x.cpu_s for x in both]
    probed = [probe_s * _attempts(x) * only_search for x in both]
    read = [max(0.0, x.cpu_s - a - b) for x, a, b in zip(both, trained, probed, strict=True)]
    step_s, around_s = each(trained, least.steps, t.steps)
    attempt_s, before_s = each(read, _attempts(least), _attempts(t))
    return StepCost(
        step_s=step_s,
        start_s=around_s + before_s,
        attempt_s=attempt_s,
        rollout_bytes=size / (sampled * t.steps + _attempts(t)),
        policy_bytes=float(policy),
        measured=t.steps,
        probe_s=probe_s,
        wall=t.wall_s / t.cpu_s if t.gpu_s and t.cpu_s else 1.0,
    )


def estimate_lines(e: RunEstimate) -> list[str]:
    """The estimate as text."""
    total = e.total
    rows = [("trainings", *Count._fields), *((k, *map(str, n)) for k, n in {**e.trainings, "in all": total}.items())]
    width = max(len(r[0]) for r in rows)
    lines = ["  ".join((r[0].ljust(width), *(x.rjust(6) for x in r[1:]))) for r in rows]
    how = f"measured on {counted(e.cost.measured, 'step')} here" if e.cost.measured else "as given, which tells no disk"
    around = f", starting and saving {e.cost.start_s:.3g} s a training" * (e.cost.measured > 0)
    lines.append(
        f"a step takes {e.cost.step_s:.3g} s ({how}){around}, a training with its evaluations {_time(e.training_s)}; "
        f"{e.side_by_side} side by side"
    )
    if e.training_s > e.ended_at:
        lines.append(
            f"a training is stopped at {_time(e.ended_at)} of processor time, twice budget.trial_cpu_s: raise that to "
            f"{e.training_s:.0f} or more, unless a GPU does the most of it"
        )
    proves, searches = e.trainings.get(CERTIFICATION, NONE).most > 0, "search" in e.trainings
    meant = "each branch is decided on its first seeds and a champion is certified" if proves else "nothing is proved"
    lines.append(f"likely: {_cost(e, 'likely')}: every round is played, {meant}; audits and reading come on top")
    if total.least < total.likely:
        why = "the search finds little to go on with" if searches else "one branch is tried"
        lines.append(f"least: {_cost(e, 'least')}: {why}, and nothing is promoted")
    if total.most > total.likely:
        lines.append(f"most: {_cost(e, 'most')}: every verdict stays open up to judge.max_seeds={e.max_seeds}")
    if e.detects:
        (n, gain), *more = e.detects.items()
        found = f"some {100 * gain:.0f} points with {n} seeds a side" + "".join(
            f", of {100 * gain:.0f} with {n}" for n, gain in more
        )
        lines.append(
            f"the gate finds, four times in five, a gain of {found}, if trainings of one recipe differ by "
            f"{100 * SEED_SD:g} points; the run measures its own noise, and `evotrainer calibrate RUN` tells it then"
        )
    if e.guards.most:
        low, likely, high = e.guards
        lines.append(
            f"guards: {likely} policies are evaluated on them likely ({low} to {high}), {_time(e.guard_s)} each by the "
            "cost of an attempt here; counted in these"
        )
    lines += [x for x in (*e.guard_notes, e.probed, e.read) if x]
    gpu_s, usd = _money(e, e.training_s)
    wall_s = e.training_s * e.cost.wall / e.side_by_side
    cost = {"cpu_s": e.training_s, "wall_s": wall_s, "trials": 1.0, "gpu_s": gpu_s, "usd": usd}
    if e.price:
        lines.append(f"prices: {e.price.line}{'' if e.gpus else '; no GPU is held here'}")
        lines += [x for x in [e.price.stale()] if x]
    ends, first = e.trainings.get(CERTIFICATION, NONE).most, e.trainings[START].least
    for name, limit in e.limits.items():
        if not cost[name]:
            lines.append(f"budget.{name} = {limit:g} limits nothing: a training takes none of it here")
            continue
        held = int(limit / cost[name])
        if total.likely <= held < total.most:
            lines.append(f"budget.{name} = {limit:g} holds the likely run, and ends a longer one after some {held}")
        elif held < total.likely:
            basis = f"{first} are the starting recipe's" + (f", {ends} the certification's" if ends else "")
            basis += ": it cannot pay for these" if held < first + ends else ""
            lines.append(f"budget.{name} = {limit:g} ends the search earlier, after some {held} trainings; {basis}")
    return lines


def _cost(e: RunEstimate, which: Literal["least", "likely", "most"]) -> str:
    """What so many trainings cost, and evaluations on guards."""
    n, guarded = getattr(e.total, which), getattr(e.guards, which)
    kind = "processor" if e.cost.measured else "trainer"
    s = n * e.training_s + guarded * e.guard_s
    gpu_s, usd = _money(e, s)
    cost = f"{n} trainings, {_time(s)} of {kind} time, {_time(s * e.cost.wall / e.side_by_side)} of waiting"
    cost += f", {gpu_s / 3600:.2g} GPU-hours" * bool(gpu_s) + f", {usd:.2f} US dollars" * (e.price is not None)
    if e.cost.rollout_bytes is None or e.cost.policy_bytes is None:
        return cost
    return f"{cost}, {n * (e.rollouts * e.cost.rollout_bytes + e.cost.policy_bytes) / 1e9:.2f} GB of disk"


def _money(e: RunEstimate, s: float) -> tuple[float, float]:
    """(GPU-seconds, US dollars) of trials that take so many seconds one after the other."""
    gpu_s = s * e.cost.wall * e.gpus
    return gpu_s, e.price.usd(s, gpu_s) if e.price else 0.0


def _time(s: float) -> str:
    from evotrainer.projections.text import duration

    return duration(s)
