"""Code of a change on stored rollouts, written reward components and hooks: checked in the order of what a check costs,
computed and replayed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evotrainer.algorithm.advantages import flat, negative_share, nested, weighed
from evotrainer.algorithm.rewards import pass_mark
from evotrainer.errors import EvoTrainerError, TimeOverError
from evotrainer.harness.columns.batch import Batch, task_tags
from evotrainer.harness.columns.numerics import Floats, group_means, group_range
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.whatif.copies import (
    MISSED,
    TINY,
    copied,
    hook_copies,
    is_length,
    least_left,
    limit,
    new_code,
    on_offer,
    within,
)
from evotrainer.harness.whatif.replay import (
    CONSTANT,
    MIN_KEEP,
    Answer,
    ReplayInput,
    compose_or_stored,
    dead,
    order_change,
    order_of,
    own_advantages,
    replays,
    trained_advantages,
    trained_groups,
)
from evotrainer.records.hooks import (
    ENTRIES,
    HookCaller,
    group_view,
    hook_fault,
    hook_of,
    rollout_views,
    wrong_advantages,
    wrong_choice,
    wrong_weights,
)
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import cause
from evotrainer.records.untrusted_values import CallResults
from evotrainer.records.written import Scorer, defined, evidence, static_fault

SLOW_STEP_S = 0.5
"""CPU-seconds a step above which a hook is too dear."""
STEPS = 12
"""Steps over which a hook's choice of tasks is played."""
NARROW = 1 / 3
"""Share of the tasks that seeded epochs would reach; a choice of effectively fewer, (sum d)^2 / sum d^2 of draws d, is
constant."""


@dataclass(frozen=True, slots=True)
class HookAnswers:
    """What one hook says of a batch; None: it does not define the function."""

    fault: Fault = None
    advantages: Floats | None = None
    """(N,)"""
    weights: Floats | None = None
    """(N,)"""
    drawn: Floats | None = None
    """How often each task was drawn, (n_tasks,)."""


def check_hooks(batch: Batch, old: Recipe, new: Recipe, context: HarnessContext) -> tuple[str, str]:
    """(label, why) of what ends the hooks that a change adds; without a label: why they cannot be tried."""
    fresh = new_code(old, new, "hooks")
    for name, source in fresh.items():
        if (fault := hook_fault(source, context.unpayable)) is not None:
            return fault[0], f"{fault[0]}: {name}: {fault[1]}"
    if fresh and context.hooks is None:
        return "", f"{', '.join(fresh)} is code, and there is no sandbox to run it in"
    for recipe, name in [(r, n) for r in new.chain for n in r.hooks if n in fresh] if batch.n else ():
        x = ReplayInput(batch, recipe, recipe, context)
        if (fault := (said := answers(x, name)).fault) is not None:
            return fault[0], f"{fault[0]}: {name}: {fault[1]}"
        own = np.nan_to_num(own_advantages(batch, recipe, compose_or_stored(x)))
        if copies := hook_copies(batch, context.unpayable, own, said.advantages, said.weights):
            return "reads_protected", f"reads_protected: {name}: {copies}"
    return "", ""


def answers(x: ReplayInput, name: str) -> HookAnswers:
    """What a hook of the recipe `x.old` says of the batch, asked once; ends at the first fault."""
    known = x.context.checked
    if name not in known:
        source, caller = x.old.hooks[name], x.context.hooks
        assert caller is not None
        played = _Played.of(x)
        found = HookAnswers()
        for entry in (e for e in ENTRIES if e in defined(source)):
            fault, values = getattr(played, entry)(source, caller)
            found = replace(found, fault=fault, **({} if fault else {_FIELDS[entry]: values}))
            if fault:
                break
        known[name] = found
    known_answers: HookAnswers = known[name]
    return known_answers


_FIELDS = {"advantages": "advantages", "weights": "weights", "select": "drawn"}


@dataclass(frozen=True, slots=True)
class _Played:
    """The batch as a training would hand it over, under one recipe."""

    batch: Batch
    recipe: Recipe
    protected: tuple[str, ...]
    groups: list[list[Rollout]]
    own: Floats

    @classmethod
    def of(cls, x: ReplayInput) -> _Played:
        b, recipe = x.batch, x.old
        reward = compose_or_stored(x)
        paid = [None if math.isnan(v) else v for v in reward.tolist()]
        rollouts = [replace(r, reward=v) for r, v in zip(b.rollouts_at(range(b.n)), paid, strict=True)]
        ends = [*b.first[1:].tolist(), b.n]
        groups = [rollouts[i:j] for i, j in zip(b.first.tolist(), ends, strict=True)]
        return cls(b, recipe, x.context.unpayable, groups, own_advantages(b, recipe, reward))

    @property
    def step(self) -> int:
        """A step in the middle of the training."""
        return max(1, self.recipe.steps // 2)

    def advantages(self, source: str, caller: HookCaller) -> tuple[Fault, Floats]:
        pairs = zip(self.groups, nested(self.own, self.groups), strict=True)
        calls = [(group_view(g, own, self.step, self.recipe.steps, self.protected),) for g, own in pairs]
        fault, values = _asked(
            caller,
            (source, "advantages", calls),
            lambda v, call: wrong_advantages(v, call[0]["rewards"]),
            self.recipe.prompts_per_step,
        )
        return fault, flat(values)[0]

    def weights(self, source: str, caller: HookCaller) -> tuple[Fault, Floats]:
        each = self.recipe.prompts_per_step
        blocks = [self.groups[i : i + each] for i in range(0, len(self.groups), each)]
        calls = [(rollout_views(b, self.step, self.recipe.steps, self.protected),) for b in blocks]
        fault, values = _asked(caller, (source, "weights", calls), lambda v, call: wrong_weights(v, len(call[0])), 1)
        return fault, flat(values)[0]

    def select(self, source: str, caller: HookCaller) -> tuple[Fault, Floats]:
        """Played over some steps, each group drawn giving its task's stored pass rate."""
        n_tasks = self.batch.n_tasks
        tasks, rate = self._tasks(), self._rates()
        n, steps = min(self.recipe.prompts_per_step, n_tasks), min(self.recipe.steps, STEPS)
        calls: list[tuple[Any, ...]] = []
        picks: list[list[int]] = []
        seen: list[list[float]] = []
        took = 0.0
        for step in range(1, steps + 1):
            history = {"step": step, "steps": self.recipe.steps, "n": n, "taken": [], "groups": list(seen)}
            calls.append((tasks, history))
            found = caller.call(source, "select", calls[-1:])
            took += found.cpu_s
            wrong = found.failed.get(0) or wrong_choice(found.values[0], n, n_tasks, ())
            if wrong:
                return ("probe_failed", f"in step {step}: {wrong}"), np.zeros(0)
            picks.append(found.values[0])
            seen += [[i, step, rate[i]] for i in picks[-1]]
        again = caller.call(source, "select", calls[::-1])
        if again.values[::-1] != picks:
            return ("nondeterministic", "the same history, asked again in another order, is answered otherwise"), _NONE
        if took > SLOW_STEP_S * steps:
            return ("too_slow", _slow(took / steps, SLOW_STEP_S)), _NONE
        drawn = np.bincount([i for row in picks for i in row], minlength=n_tasks).astype(float)
        reach, most = float(drawn.sum() ** 2 / (drawn**2).sum()), min(n_tasks, n * steps)
        if reach < NARROW * most:
            why = f"it draws effectively {reach:.0f} tasks again and again, of {most} that {steps} steps could reach"
            return ("constant", why), _NONE
        return None, drawn

    def _tasks(self) -> list[dict[str, Any]]:
        tags = task_tags(self.batch)
        found = [{k: v[i] for k, v in tags.items() if i < len(v)} for i in range(self.batch.n_tasks)]
        return [{"tags": {k: v for k, v in row.items() if v is not None}} for row in found]

    def _rates(self) -> list[float]:
        """Stored pass rates of tasks by the recipe's own reward, as a training tells them."""
        reward, _ = flat([[r.reward for r in g] for g in self.groups])
        passed = np.where(np.isnan(reward), np.nan, reward >= pass_mark(self.recipe.rewards))
        return list(map(float, np.nan_to_num(group_means(passed, self.batch.task, self.batch.n_tasks))))


_NONE = np.zeros(0)


def _asked(
    caller: HookCaller,
    what: tuple[str, str, list[tuple[Any, ...]]],
    wrong: Callable[[Any, tuple[Any, ...]], str],
    a_step: int,
) -> tuple[Fault, list[Any]]:
    """(fault, answers to all calls), of which a step makes `a_step`; a training would end at any that fails."""
    source, entry, calls = what

    def fails(answers: CallResults, at: Sequence[int]) -> str:
        problems = (
            answers.failed.get(k) or wrong(v, calls[i]) for k, (v, i) in enumerate(zip(answers.values, at, strict=True))
        )
        return next((f"{entry}: {x}" for x in problems if x), "")

    fault, answers = _tried(
        lambda at: caller.call(source, entry, [calls[i] for i in at]), len(calls), fails, SLOW_STEP_S / a_step
    )
    return fault, [] if fault else answers.values


def effective(x: ReplayInput, recipe: Recipe) -> Floats:
    """`trained_advantages` with what the recipe's hooks make of them; (N,)."""
    y = replace(x, old=recipe, new=recipe)
    reward = compose_or_stored(y)
    a = trained_advantages(x.batch, recipe, reward)
    for entry in ("advantages", "weights"):
        if (found := hook_of(recipe.hooks, entry)) is None:
            continue
        hook_answers = answers(y, found[0])
        if entry == "advantages" and hook_answers.advantages is not None:
            a = hook_answers.advantages
        if entry == "weights" and hook_answers.weights is not None:
            a = weighed(a, hook_answers.weights)
    return np.where(trained_groups(x.batch, recipe, reward)[x.batch.group], np.nan_to_num(a), 0.0)


@replays("hooks")
def hooks_change(x: ReplayInput) -> Answer:
    """Advantages of the stored rollouts under both recipes, hooks included; tasks that a hook would draw.

    Contradicts, in this order: all advantages stay the same; 95% of the groups would have none but 0; fewer than 20% of
    the rollouts that had one keep one; (correct, incorrect) pairs whose incorrect rollout has the larger advantage rise
    by more than 1 point and 2 standard errors. Supports: they fall by as much; or the tasks that `select` draws have
    zero-variance groups 5 points rarer. Silent otherwise: how far training follows is not in stored rollouts.
    """
    if x.context.hooks is None:
        return "silent", "hooks are code, and there is no sandbox to run them in", {}
    b = x.batch
    old, new = effective(x, x.old), effective(x, x.new)
    m = _numbers(b, old, new)
    chosen, text = _chosen(x)
    m |= chosen
    pairs = f"(correct, incorrect) pairs ranked wrongly by advantage: {m['misranked_before']:.1%} -> "
    pairs += f"{m['misranked_after']:.1%}; groups without any {m['dead_before']:.0%} -> {m['dead_after']:.0%}"
    if text:
        pairs = f"{text}; {pairs}"
    if not chosen and np.allclose(old, new, rtol=1e-9, atol=1e-9):
        return "contradicts", "all advantages stay the same on the stored rollouts: nothing would change", m
    if m["dead_after"] >= CONSTANT:
        return "contradicts", f"{m['dead_after']:.0%} of groups would have no advantage but 0: no gradient", m
    if m["kept_share"] < MIN_KEEP:
        return "contradicts", f"{m['kept_share']:.0%} of the rollouts that teach now would be left: too few", m
    margin = max(0.01, 2 * m["misranked_se"]) if math.isfinite(m["misranked_se"]) else math.inf
    if m["misranked_change"] > margin:
        return "contradicts", f"{pairs} over {m['pairs']:.0f} pairs", m
    if m["misranked_change"] < -margin or chosen.get("dead_drawn_before", 0.0) - chosen.get("dead_drawn", 0.0) >= 0.05:
        return "supports", pairs, m
    return "silent", f"{pairs}: too little to tell", m


def _numbers(b: Batch, old: Floats, new: Floats) -> dict[str, float]:
    before, after = order_of(b, old), order_of(b, new)
    change, se = order_change(b, before, after)
    out = {
        "misranked_before": before.misranked,
        "misranked_after": after.misranked,
        "misranked_change": change,
        "misranked_se": se,
        "pairs": float(before.total),
        "kept_share": float(((new != 0) & (old != 0)).sum()) / max(1, int((old != 0).sum())),
    }
    for name, a in (("before", old), ("after", new)):
        low, high = group_range(a, b.group, b.n_groups)
        out[f"dead_{name}"] = float(((low == 0) & (high == 0)).mean())
        if b.has("tokens") and (share := negative_share(a, np.nan_to_num(b.tokens))) is not None:
            out[f"negative_share_{name}"] = share
    return out


def _chosen(x: ReplayInput) -> tuple[dict[str, float], str]:
    """What the new recipe's `select` draws, where a change brings one."""
    found = hook_of(x.new.hooks, "select")
    if found is None or found[0] in x.old.hooks:
        return {}, ""
    y = replace(x, old=x.new)
    drawn = answers(y, found[0]).drawn
    if drawn is None:
        return {}, ""
    scored, gone = dead(x.batch, compose_or_stored(y))
    task = x.batch.task[x.batch.first]
    weight = np.where(scored, drawn[task], 0.0)
    m = {
        "tasks_drawn": float((drawn > 0).mean()),
        "dead_drawn_before": float((scored & gone).sum()) / max(1, int(scored.sum())),
        "dead_drawn": float(weight[gone].sum() / weight.sum()) if weight.sum() else 0.0,
    }
    return m, (
        f"draws {m['tasks_drawn']:.0%} of the tasks; their zero-variance groups {m['dead_drawn_before']:.0%} -> "
        f"{m['dead_drawn']:.0%}"
    )


PROBES = 16
"""Calls that code is tried on first, spread over the batch."""
SLOW_S = 0.02
"""CPU-seconds per rollout, on average, above which a component is too dear to be asked thousands of times."""
FAR = 3
"""Times its limit from which code is not asked about all rollouts to know."""
MAY_FAIL = 0.01
"""Share of rollouts on which it may fail: there it pays nothing."""
AGAIN = 1024
"""Rollouts of a training on which its code is computed and measured again, evenly spread."""
Fault = tuple[str, str] | None
"""(label, why) of what ends a component."""


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """The batch with the values of all written components that a change pays, or what ended the change."""

    batch: Batch
    label: str = ""
    """Of `records.written.LABELS`; empty: nothing is against the change."""
    why: str = ""
    """What is against it or, without a label, why values are missing; empty: neither."""


def scored(batch: Batch, old: Recipe, new: Recipe, context: HarnessContext) -> ScoredBatch:
    """Check what a change writes anew, and compute what is not stored; see `check` and `check_hooks`.

    What a check of new code raises is held against the code: it ends no run. Our own errors are raised.
    """
    try:
        found = _rewards(batch, old, new, context)
        if found.why:
            return found
        label, why = check_hooks(found.batch, old, new, context)
        return ScoredBatch(found.batch, label, why)
    except EvoTrainerError:
        raise
    except Exception as e:
        fresh = [n for kind in ("written", "hooks") for n in new_code(old, new, kind)]
        if not fresh:
            raise
        why = f"{', '.join(fresh)}: its check ended with {type(e).__name__} ({cause(e)}); write it plainer"
        return ScoredBatch(batch, "probe_failed", f"probe_failed: {why}")


def on_own_rollouts(batch: Batch, recipe: Recipe, context: HarnessContext) -> Fault:
    """(label, why) of what a training's own rollouts say against code of its recipe: computed again it has other values
    than were stored, or there it tells the outcome, which it did not on those that it was admitted on."""
    chosen = batch.pick(range(0, batch.n, max(1, -(-batch.n // AGAIN))))
    shown = [evidence(r.turns, r.components, r.detail, context.unpayable) for r in chosen.rollouts_at(range(chosen.n))]
    for name, source in {n: s for r in recipe.chain for n, s in r.written.items()}.items():
        assert context.scorer is not None
        values = _floats(context.scorer(source, shown))
        if not np.array_equal(values, chosen.component(name), equal_nan=True):
            return "nondeterministic", f"{name}: computed again, it has other values than the training stored"
        if context.unpayable and (fault := _sold(source, shown, values, chosen, context)) is not None:
            return fault[0], f"{name}: {fault[1]}"
    if recipe.hooks:
        own = batch.pick(np.flatnonzero(np.array(batch.column("step")) > recipe.before))
        label, why = check_hooks(own, recipe.with_factor("hooks", {}), recipe, context)
        return (label, why) if label in ("reads_protected", "nondeterministic") else None
    return None


def _rewards(batch: Batch, old: Recipe, new: Recipe, context: HarnessContext) -> ScoredBatch:
    fresh = new_code(old, new, "written")
    for name, source in fresh.items():
        if (fault := static_fault(source, context.unpayable)) is not None:
            return ScoredBatch(batch, fault[0], f"{fault[0]}: {name}: {fault[1]}")
    paid = {n: s for r in (old, new) for n, s in r.written.items() if r.rewards.get(n)}
    missing = {n: s for n, s in paid.items() if bool(np.isnan(batch.component(n)).all())}
    wanted = fresh | missing
    if not wanted or not batch.n:
        return ScoredBatch(batch)
    if context.scorer is None:
        return ScoredBatch(batch, why=f"{', '.join(wanted)} is code, and there is no sandbox to run it in")
    shown = [evidence(r.turns, r.components, r.detail, context.unpayable) for r in batch.rollouts_at(range(batch.n))]
    values: dict[str, Floats] = {}
    for name, source in wanted.items():
        if name not in context.checked:
            context.checked[name] = check(source, shown, context.scorer)
        fault, answers = context.checked[name]
        if fault is None and name in fresh and context.unpayable:
            key = f"sold {name}"
            if key not in context.checked:
                with suppress(TimeOverError):  # what was replayed holds; a run has the time
                    context.checked[key] = _sold(source, shown, _floats(answers), batch, context)
            fault = context.checked.get(key)
        if fault is not None and name in fresh:
            return ScoredBatch(batch, fault[0], f"{fault[0]}: {name}: {fault[1]}")
        values[name] = _floats(answers)
    return ScoredBatch(batch.with_components(values))


def _sold(source: str, shown: Sequence[dict[str, Any]], values: Floats, batch: Batch, context: HarnessContext) -> Fault:
    """(label, why) where a component pays the outcome itself, by its values or by an expression of its own."""
    offered = on_offer(batch, context.unpayable)
    most, own = limit(offered, batch.truth), list(offered.values())
    if most <= 0 < least_left(offered, batch.truth) and (copy := copied(values, batch.truth, TINY)):
        return "reads_protected", copy  # it knows what nothing on offer tells
    if most <= 0 and context.scorer is not None:
        # what is on offer tells all: code is a copy where it tells as much beside another rollout's components
        other = np.random.default_rng(0).permutation(len(shown)).tolist()
        shown = [s | {k: shown[i][k] for k in ("components", "tests")} for s, i in zip(shown, other, strict=True)]
        most, own = MISSED, []
        if copied(values, batch.truth):
            values = _floats(context.scorer(source, shown))
    if (copy := copied(values, batch.truth, most)) and not is_length(values, shown):
        return "reads_protected", copy
    return within(source, shown, batch.truth, own, context.hooks, most) if context.hooks else None


def _floats(answers: CallResults) -> Floats:
    return np.array([np.nan if v is None else v for v in answers.values], dtype=np.float64)


def _slow(each: float, limit: float) -> str:
    return f"{1000 * each:.0f} CPU-ms a call; at most {1000 * limit:.0f}"


def _tried(
    call: Callable[[Sequence[int]], CallResults],
    n: int,
    fails: Callable[[CallResults, Sequence[int]], str],
    limit: float,
) -> tuple[Fault, CallResults]:
    """(what ends code, its answers to all of n calls or to those that it was tried on). `call`: asks it at some places;
    `fails`: why its answers end it; `limit`: CPU-seconds a call.

    In this order: it fails on a few calls; it is far too slow for more; it answers otherwise when asked again, in
    another order; it takes too long; it fails on all calls.
    """
    places = sorted({round(i) for i in np.linspace(0, n - 1, min(PROBES, n))})
    first = call(places)
    if why := fails(first, places):
        return ("probe_failed", why), first
    if (each := first.cpu_s / len(places)) > FAR * limit:
        return ("too_slow", _slow(each, limit)), first
    whole, again = call(range(n)), call(places[::-1])
    before = [whole.values[i] for i in places]
    if again.values[::-1] != before or first.values != before:
        return ("nondeterministic", "asked again, in another order, it answers otherwise"), whole
    if (each := whole.cpu_s / n) > limit:
        return ("too_slow", _slow(each, limit)), whole
    why = fails(whole, range(n))
    return ("probe_failed", why) if why else None, whole


def check(source: str, shown: Sequence[dict[str, Any]], scorer: Scorer) -> tuple[Fault, CallResults]:
    """((label, why) or None, the values on all rollouts or on those that it was tried on): see `_tried`; it may fail on
    1% of the rollouts, and ends where it has one value on 95% of those that it applies to."""

    def fails(answers: CallResults, at: Sequence[int]) -> str:
        many = len(answers.failed) > MAY_FAIL * len(at)
        return f"on {len(answers.failed)} of {len(at)} rollouts: {answers.failed[min(answers.failed)]}" if many else ""

    fault, whole = _tried(lambda at: scorer(source, [shown[i] for i in at]), len(shown), fails, SLOW_S)
    if fault:
        return fault, whole
    known = np.array([v for v in whole.values if v is not None])
    if not len(known):
        return ("constant", "it applies to no rollout"), whole
    share = float(np.unique(np.round(known, 9), return_counts=True)[1].max()) / len(known)
    if share >= CONSTANT:
        return ("constant", f"it has one value on {share:.0%} of rollouts"), whole
    return None, whole
