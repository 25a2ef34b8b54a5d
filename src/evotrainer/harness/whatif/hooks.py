"""Hooks on stored rollouts: checked in the order of what a check costs, and replayed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evotrainer.algorithm.advantages import flat, negative_share, nested, weighed
from evotrainer.algorithm.rewards import pass_mark
from evotrainer.harness.columns.batch import Batch
from evotrainer.harness.columns.numerics import Floats, group_range
from evotrainer.harness.columns.tags import task_tags
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.whatif.copies import hook_copies, new_code
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
from evotrainer.records.written import defined

PROBES = 8
"""Calls that a hook is tried on first, spread over the batch."""
SLOW_S = 0.5
"""CPU-seconds a step above which a hook is too dear."""
STEPS = 12
"""Steps over which a hook's choice of tasks is played."""
NARROW = 1 / 3
"""Share of the tasks that seeded epochs would reach; a choice of effectively fewer, (sum d)^2 / sum d^2 of draws d, is
constant."""

Fault = tuple[str, str]


@dataclass(frozen=True, slots=True)
class HookAnswers:
    """What one hook says of a batch; None: it does not define the function."""

    fault: Fault | None = None
    advantages: Floats | None = None
    """(N,)"""
    weights: Floats | None = None
    """(N,)"""
    drawn: Floats | None = None
    """How often each task was drawn, (n_tasks,)."""


def held_against(batch: Batch, old: Recipe, new: Recipe, context: HarnessContext) -> Fault:
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

    def advantages(self, source: str, caller: HookCaller) -> tuple[Fault | None, Floats]:
        pairs = zip(self.groups, nested(self.own, self.groups), strict=True)
        calls = [(group_view(g, own, self.step, self.recipe.steps, self.protected),) for g, own in pairs]
        fault, values = _asked(
            caller,
            (source, "advantages", calls),
            lambda v, call: wrong_advantages(v, call[0]["rewards"]),
            self.recipe.prompts_per_step,
        )
        return fault, flat(values)[0]

    def weights(self, source: str, caller: HookCaller) -> tuple[Fault | None, Floats]:
        each = self.recipe.prompts_per_step
        blocks = [self.groups[i : i + each] for i in range(0, len(self.groups), each)]
        calls = [(rollout_views(b, self.step, self.recipe.steps, self.protected),) for b in blocks]
        fault, values = _asked(caller, (source, "weights", calls), lambda v, call: wrong_weights(v, len(call[0])), 1)
        return fault, flat(values)[0]

    def select(self, source: str, caller: HookCaller) -> tuple[Fault | None, Floats]:
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
        if took > SLOW_S * steps:
            return ("too_slow", _slow(took / steps)), _NONE
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
        ok = ~np.isnan(reward)
        n = np.bincount(self.batch.task[ok], minlength=self.batch.n_tasks)
        passed = np.bincount(
            self.batch.task[ok], weights=reward[ok] >= pass_mark(self.recipe.rewards), minlength=self.batch.n_tasks
        )
        return list(map(float, passed / np.maximum(n, 1)))


_NONE = np.zeros(0)


def _slow(each: float) -> str:
    return f"{1000 * each:.0f} CPU-ms a step; at most {1000 * SLOW_S:.0f}"


def _asked(
    caller: HookCaller,
    what: tuple[str, str, list[tuple[Any, ...]]],
    wrong: Callable[[Any, tuple[Any, ...]], str],
    a_step: int,
) -> tuple[Fault | None, list[Any]]:
    """(fault, answers to all calls). It fails on a few calls; it answers otherwise when asked again, in another order;
    it takes too long for a step of `a_step` calls; it fails on any call: a training would end there."""
    source, entry, calls = what
    places = sorted({round(i) for i in np.linspace(0, len(calls) - 1, min(PROBES, len(calls)))})

    def fault_in(values: Sequence[Any], failed: dict[int, str], at: Sequence[int]) -> str:
        problems = (failed.get(k) or wrong(v, calls[i]) for k, (v, i) in enumerate(zip(values, at, strict=True)))
        return next((x for x in problems if x), "")

    first = caller.call(source, entry, [calls[i] for i in places])
    if said := fault_in(first.values, first.failed, places):
        return ("probe_failed", f"{entry}: {said}"), []
    whole = caller.call(source, entry, calls)
    again = caller.call(source, entry, [calls[i] for i in reversed(places)])
    before = [whole.values[i] for i in places]
    if again.values[::-1] != before or first.values != before:
        why = "the same groups, asked for again in another order, are answered otherwise"
        return ("nondeterministic", f"{entry}: {why}"), []
    if (each := whole.cpu_s / len(calls) * a_step) > SLOW_S:
        return ("too_slow", f"{entry}: {_slow(each)}"), []
    if said := fault_in(whole.values, whole.failed, range(len(calls))):
        return ("probe_failed", f"{entry}: {said}"), []
    return None, whole.values


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
