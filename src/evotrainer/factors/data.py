"""Rows of the factors that say what is learnt from: tasks, texts, policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from evotrainer.algorithm.curriculum import frontier_weight
from evotrainer.factors.signal import DEAD, NEGATIVE, PUSHES_DOWN
from evotrainer.factors.table import Factor, Move, MoveContext, Need, TrainerSupport, Variant, refused
from evotrainer.records.one_factor import SAME_SAMPLES
from evotrainer.records.recipe import CHAMPION, Recipe
from evotrainer.records.text import first_number

MANY_DEAD = 0.4
"""Share of groups without a gradient from which other tasks are worth looking for."""
OFTEN, SELDOM = 0.8, 2 / 3
"""Shares of attempts: what is there already, and what still has to be learnt."""
MORE_SIGNAL = 1.15
"""How many times more 4 p (1 - p) per draw a frontier must promise."""
STILL_RISING, FEW_ALIVE, LITTLE_LEFT = 0.03, 0.8, 0.05
"""Change of the training score over the last half of its curve, share of dead groups, and share of unsolved tasks:
bounds of what is worth going on from."""
TEXTS = 32
"""Of a step on references: four times as many cost little more than twice as much (LOG.md, 2026-11-24)."""
ACTOR = "actor_rollout_ref.actor"
OWN = 'learn from the policy\'s own successes (kind = "own")'


def band(s: MoveContext) -> Iterator[Variant]:
    """A pass-rate band that drops the side on which the zero-variance groups lie."""
    if s.recipe.curriculum.kind != "none" or not s.revisits:
        return
    fail, passed = s.metric("dead_fail"), s.metric("dead_pass")
    if passed >= fail:
        yield Variant({"kind": "pass_rate_band", "low": 0.0, "high": 0.9}, "drop-solved")
    if fail >= passed:
        yield Variant({"kind": "pass_rate_band", "low": 0.05, "high": 1.0}, "drop-hopeless")
    yield Variant({"kind": "pass_rate_band", "low": 0.05, "high": 0.95}, "both-ends")


def frontier(s: MoveContext) -> Iterator[Variant]:
    """The two tags whose values differ most in how much they teach: many dead groups, some values at the frontier."""
    if s.recipe.curriculum.kind != "none" or s.metric(DEAD) < MANY_DEAD:
        return
    gains = {}
    for name, rates in pass_rates(s.metrics).items():
        weight = [float(frontier_weight(p, 0.1)) for p in rates.values()]
        # groups that teach per draw, drawn by weight against drawn alike
        gains[name] = sum(w * w for w in weight) / sum(weight) / (sum(weight) / len(weight))
    for name, gain in sorted(gains.items(), key=lambda kv: (-kv[1], kv[0]))[:2]:
        if gain >= MORE_SIGNAL:
            yield Variant({"kind": "tag_frontier", "tag": name}, name)


def easy_first(s: MoveContext) -> Iterator[Variant]:
    """Tags whose number goes with failing, where most dead groups fail."""
    if s.recipe.curriculum.kind != "none" or s.metric("dead_fail") < MANY_DEAD / 2:
        return
    for name, rates in sorted(pass_rates(s.metrics).items()):
        levels = [(x, p) for v, p in rates.items() if (x := first_number(v)) is not None]
        if len(levels) < len(rates) or len(levels) < 3:
            continue
        ordered = [p for _, p in sorted(levels)]
        if ordered[0] - ordered[-1] >= 0.2 and sum(a >= b for a, b in pairwise(ordered)) >= 0.75 * (len(ordered) - 1):
            yield Variant({"kind": "difficulty", "tag": name}, name)


def pass_rates(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Tag -> its value -> pass rate, from metrics named `pass_rate/<tag>=<value>`."""
    out: dict[str, dict[str, float]] = {}
    for name, p in metrics.items():
        part, _, rest = name.partition("/")
        key, equals, value = rest.partition("=")
        if part == "pass_rate" and equals:
            out.setdefault(key, {})[value] = p
    return out


def references_first(s: MoveContext) -> Iterator[Variant]:
    """References first: where most attempts have what is not paid (valid steps, a form) and some are wrong, or no
    attempt at many tasks is right, so that more sampling shows little of what is missing."""
    if "references" not in s.offers or s.score is None or s.score > OFTEN:
        return
    unpaid = [s.metric(f"rewards/{c}/coverage") for c in s.components if not s.recipe.rewards.get(c)]
    if max(unpaid, default=0.0) >= OFTEN or s.metric("dead_fail") >= MANY_DEAD / 2:
        for plan in reference_plans(s.recipe):
            first, rl = plan["phases"]
            at = f" at {first['lr']:g}" if "lr" in first else ""
            yield Variant(plan, f"{first['steps']}{at}+{plan['steps'] - first['steps']} at {rl['lr']:g}")


def reference_plans(r: Recipe) -> Iterator[dict[str, Any]]:
    """Phases and steps: references first, at the recipe's rate and at 2.5 times it, then RL at a third of it, since a
    rate at which a policy learns from rewards may undo what it was shown.

    In the place of three fifths and nine tenths of the RL steps at equal compute; beside all of them at 1.3, 2 and 4
    times.
    """
    if r.phases:
        return
    each = text_cost(r) * TEXTS
    for taught, rest in ((0.6, 0.4), (0.9, 0.1), (0.3, 1.0), (1.0, 1.0), (3.0, 1.0)):
        n, rl = max(1, round(taught * r.steps / each)), max(1, round(rest * r.steps))
        for times in (1.0, 2.5):
            first = {"kind": "references", "steps": n, "batch": TEXTS}
            parts = [first | ({"lr": rate(r.lr, times)} if times != 1 else {}), {"kind": "rl", "lr": rate(r.lr, 1 / 3)}]
            yield {"phases": parts, "steps": n + rl}


def text_cost(r: Recipe) -> float:
    """Compute of a reference that is learnt from, in steps of RL: a text beside an attempt has few tokens, but all are
    learnt from; an attempt of many turns is mostly tools."""
    return (2.0 if r.max_turns == 1 else 1.0) / (r.prompts_per_step * r.group_size)


def rate(lr: float, times: float) -> float:
    """A multiple of a learning rate, two digits."""
    return float(f"{lr * times:.2g}")


def own_successes_first(s: MoveContext) -> Iterator[Variant]:
    """A sixth and a third of the steps on own successes first: where some attempts are right, though few, and most of
    the gradient pushes down."""
    if s.recipe.phases or s.score is None or not 0.05 <= s.score <= SELDOM or s.metric(NEGATIVE) <= PUSHES_DOWN:
        return
    for share in (6, 3):
        if (n := s.recipe.steps // share) >= 3:
            yield Variant([{"kind": "own", "steps": n}, {"kind": "rl"}], f"own {n}")


def replays(s: MoveContext) -> Iterator[Variant]:
    """A tenth and three tenths of weight on rare successes: where successes are rare and many groups hold none."""
    rare = s.score is not None and 0.0 < s.score <= 0.5
    if not s.recipe.replay.weight and rare and s.metric(DEAD) >= MANY_DEAD and s.metric("dead_fail") >= MANY_DEAD / 2:
        yield from (Variant({"weight": w}, f"{w:g}") for w in (0.1, 0.3))


def other_words(s: MoveContext) -> tuple[float, ...]:
    """Half and all of the prompts worded otherwise: where the environment can, and training has come to know its tasks
    (it solves clearly more of them than search tasks)."""
    known = s.score is not None and s.metric("train_minus_search") >= 0.1
    return (0.5, 1.0) if "wordings" in s.offers and known and not s.recipe.prompt_noise else ()


def anchors(s: MoveContext) -> tuple[float, ...]:
    """Two weights of the loss on demonstrations: where there are any."""
    return (0.05, 0.2) if "demonstrations" in s.offers and not s.recipe.sft_anchor else ()


def worth_continuing(s: MoveContext) -> bool:
    """The champion's training score still rose in its last half, most groups have a spread, tasks are left to solve."""
    rising = s.metric("late_gain") >= STILL_RISING
    return rising and s.metric(DEAD) <= FEW_ALIVE and s.headroom >= LITTLE_LEFT


def continue_training(s: MoveContext) -> Iterator[Variant]:
    """From the champion's policy, with as many steps as usual limits of cost hold. Its control at equal compute is the
    champion's recipe trained for as long: it pays with a change that only has to pay for what follows."""
    if worth_continuing(s) and (steps := int(0.4 * s.recipe.whole_steps)):
        yield Variant({"start": CHAMPION, "steps": steps, "phases": []}, f"+{steps}")


def continue_as_long(s: MoveContext) -> Iterator[Variant]:
    """From the champion's policy, with its own number of steps: twice the cost, which somebody must allow."""
    if worth_continuing(s) and not s.recipe.phases:
        yield Variant(CHAMPION, f"+{s.recipe.steps}")


def smaller_batches(s: MoveContext) -> Iterator[Variant]:
    """At equal sampling: groups of half the size, of twice the prompts or steps, unless nearly all groups are dead
    already; or half the prompts of twice the steps."""
    r = s.recipe
    shape = {"prompts_per_step": r.prompts_per_step, "group_size": r.group_size, "steps": r.steps}
    if r.group_size >= 8 and r.group_size % 2 == 0 and s.metric(DEAD) <= 0.8:
        less = {"group_size": r.group_size // 2}
        yield Variant(
            shape | less | {"prompts_per_step": 2 * r.prompts_per_step}, f"{r.group_size // 2} attempts, wider"
        )
        if not r.phases:
            yield Variant(shape | less | {"steps": 2 * r.steps}, f"{r.group_size // 2} attempts, x2")
    if r.prompts_per_step >= 16 and r.prompts_per_step % 2 == 0 and not r.phases:
        n = r.prompts_per_step // 2
        yield Variant(shape | {"prompts_per_step": n, "steps": 2 * r.steps}, f"{n} prompts, x2")


NO_TEXTS = "verl's actor loss has no supervised term"

ROWS = (
    Factor(
        "curriculum",
        moves=(
            Move(
                "curriculum",
                band,
                "tasks at the edge of what the policy can do give mixed groups",
                "dead_groups saturation; dead_training",
            ),
            Move(
                "tag_frontier",
                frontier,
                "some kinds of tasks are solved or hopeless, others mixed, and a kind is known after a few groups",
                "dead_groups saturation; dead_training",
            ),
            Move(
                "easy_first",
                easy_first,
                "harder tasks give a gradient once the easier ones are learnt",
                "dead_training; dead_groups tool_misuse",
            ),
        ),
        off="the curriculum may starve training of tasks",
        off_addresses="; exploration_collapse",
        replay="advantages",
        embedded=True,
        trl="which tasks a step draws, by pass rates, tags or difficulty",
        verl=refused(
            "verl 0.9.1 draws prompts by a random sampler that learns nothing of their rewards",
            "set it to none",
            lambda r: r.curriculum.kind != "none",
        ),
    ),
    Factor(
        "prompts_per_step",
        names={
            "": "train_batch_size batch_size",
            " (prompts, each with group_size rollouts)": "per_device_train_batch_size gradient_accumulation_steps "
            "generation_batch_size",
        },
        moves=(
            Move(
                "more_prompts",
                lambda s: [Variant(round(s.recipe.prompts_per_step * x), f"x{x}") for x in (1.5, 2)],
                "more tasks per step give a steadier gradient",
                "; dead_groups echo_trap",
            ),
        ),
        embedded=True,
        trl=TrainerSupport(
            {"per_device_train_batch_size": None, "gradient_accumulation_steps": None},
            "prompts x group_size rollouts over the processes, in micro-batches; must divide by the number of "
            "processes",
        ),
        verl=TrainerSupport(
            {"data.train_batch_size": "prompts_per_step", f"{ACTOR}.ppo_mini_batch_size": "prompts_per_step"},
            "one optimizer step per pass: the mini-batch is the batch",
        ),
    ),
    Factor(
        "phases",
        need=Need(
            "references",
            lambda r: any(p.kind == "references" for p in r.phases),
            f"has no references of its train problems; leave that part out, or {OWN}",
        ),
        legal="{type}; steps of all but the last part are given, and together fewer than the recipe's",
        moves=(
            Move(
                "own_first",
                own_successes_first,
                "what succeeded is made likelier before what failed is made less likely",
                "; tool_misuse dead_groups",
            ),
        ),
        off="steps of imitation are steps without exploration",
        off_addresses="; exploration_collapse",
        embedded=True,
        trl=refused("TRL's trainer has no supervised parts", "leave them out", lambda r: bool(r.phases)),
        verl=refused("verl trains by one loss all along", "set it to none", lambda r: bool(r.phases)),
    ),
    Factor(
        "phase_plan",
        moves=(
            Move(
                "references_first",
                references_first,
                "references show what the policy's own attempts seldom hold",
                "dead_training; dead_groups saturation",
            ),
        ),
    ),
    Factor(
        "replay",
        moves=(
            Move(
                "replay_rare_successes",
                replays,
                "what succeeded once in many attempts is seen more than once",
                "dead_training; dead_groups saturation",
            ),
        ),
        off="what succeeded early holds the policy to its early ways",
        off_addresses="; exploration_collapse",
        embedded=True,
        trl="loss on own earlier successes, added once per update",
        verl=refused(NO_TEXTS, "set it to weight 0", lambda r: r.replay.weight > 0),
    ),
    Factor(
        "prompt_noise",
        need=Need("wordings", lambda r: r.prompt_noise > 0, "has no other wordings of its prompts; set it to 0"),
        moves=(
            Move(
                "word_otherwise",
                other_words,
                "a policy that meets a task in other words has to read it",
                "; template_collapse saturation",
            ),
        ),
        off="other wordings are not what is asked in the end",
        embedded=True,
        trl="how the tasks of a step are worded",
        verl=refused("prompts are rendered once, before the training", "set it to 0", lambda r: r.prompt_noise > 0),
    ),
    Factor(
        "sft_anchor",
        need=Need("demonstrations", lambda r: r.sft_anchor > 0, "has no demonstrations to learn from; set it to 0"),
        moves=(
            Move(
                "sft_anchor",
                anchors,
                "demonstrations hold the format while reward shapes the rest",
                "tool_misuse policy_collapse; template_collapse echo_trap efficiency_collapse laziness",
            ),
        ),
        off="imitation pulls back towards the demonstrations' errors",
        off_addresses="; exploration_collapse special_casing",
        embedded=True,
        trl="loss on demonstrations, added once per update",
        verl=refused(NO_TEXTS, "set it to 0", lambda r: bool(r.sft_anchor)),
    ),
    Factor(
        "start",
        legal="champion (go on from this recipe's own policy) or base (from the base policy)",
        moves=(Move("go_on_as_long", continue_as_long, "the champion was still learning at its last step"),),
        off="what came before may hold the policy to its ways",
        off_addresses="; exploration_collapse",
        embedded=True,
        trl=TrainerSupport(
            note="the earlier recipe is trained first, and its policy loaded; refused with adapters (lora)",
            part=True,
        ),
        verl="the earlier recipe is trained first, and its policy loaded; refused with adapters",
    ),
    Factor(
        "continuation",
        moves=(Move("go_on", continue_training, "the champion was still learning at its last step"),),
    ),
    Factor(
        "batch_shape",
        legal="object of all of prompts_per_step, group_size, steps; one factor, and the product of the three stays "
        f"within {SAME_SAMPLES:.0%}",
        moves=(
            Move(
                "smaller_batches",
                smaller_batches,
                "at equal sampling, other tasks or more steps tell more than further attempts at the same ones",
                "; dead_groups echo_trap saturation dead_training",
            ),
        ),
    ),
)
