"""Moves that change what is trained on: tasks, demonstrations, budgets, the environment itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from evotrainer.agents.catalogue.values import CLIPPED, DEAD, NEGATIVE, PUSHES_DOWN, of, pass_rates, tag, when
from evotrainer.agents.changes import knob_changes, reference_plans
from evotrainer.agents.moves import Move, Situation, Variant
from evotrainer.algorithm.curriculum import frontier_weight
from evotrainer.records.text import first_number

MANY_DEAD = 0.4
"""Share of groups without a gradient from which other tasks are worth looking for."""
OFTEN, SELDOM = 0.8, 2 / 3
"""Shares of attempts: what is there already, and what still has to be learnt."""
MORE_SIGNAL = 1.15
"""How many times more 4 p (1 - p) per draw a frontier must promise."""
NO_BAND = {"kind": "none", "low": 0.05, "high": 0.95}


def band(s: Situation) -> Iterator[Variant]:
    """A pass-rate band that drops the side on which the zero-variance groups lie."""
    if s.recipe.curriculum.kind != "none" or not s.revisits:
        return
    fail, passed = s.metric("dead_fail"), s.metric("dead_pass")
    if passed >= fail:
        yield Variant({"kind": "pass_rate_band", "low": 0.0, "high": 0.9}, "drop-solved")
    if fail >= passed:
        yield Variant({"kind": "pass_rate_band", "low": 0.05, "high": 1.0}, "drop-hopeless")
    yield Variant({"kind": "pass_rate_band", "low": 0.05, "high": 0.95}, "both-ends")


def frontier(s: Situation) -> Iterator[Variant]:
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


def easy_first(s: Situation) -> Iterator[Variant]:
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


def earned_unpaid(s: Situation) -> float:
    """The largest share of attempts that earn a component which is not paid."""
    unpaid = [c for c in s.components if not s.recipe.rewards.get(c)]
    return max((s.metric(f"rewards/{c}/coverage") for c in unpaid), default=0.0)


def taught(s: Situation) -> Iterator[Variant]:
    """References first: where most attempts have what is not paid (valid steps, a form) and some are wrong, or no
    attempt at many tasks is right, so that more sampling shows little of what is missing."""
    if "references" not in s.offers or s.score is None or s.score > OFTEN:
        return
    if earned_unpaid(s) >= OFTEN or s.metric("dead_fail") >= MANY_DEAD / 2:
        for plan, cost in reference_plans(s.recipe):
            first, rl = plan["phases"]
            at = f" at {first['lr']:g}" if "lr" in first else ""
            yield Variant(plan, f"{first['steps']}{at}+{plan['steps'] - first['steps']} at {rl['lr']:g}", cost)


def imitates_itself(s: Situation) -> Iterator[Variant]:
    """A sixth and a third of the steps on own successes first: where some attempts are right, though few, and most of
    the gradient pushes down."""
    if s.recipe.phases or s.score is None or not 0.05 <= s.score <= SELDOM or s.metric(NEGATIVE) <= PUSHES_DOWN:
        return
    for share in (6, 3):
        if (n := s.recipe.steps // share) >= 3:
            yield Variant([{"kind": "own", "steps": n}, {"kind": "rl"}], f"own {n}")


def replays(s: Situation) -> Iterator[Variant]:
    """A tenth and three tenths of weight on rare successes: where successes are rare and many groups hold none."""
    rare = s.score is not None and 0.0 < s.score <= 0.5
    if not s.recipe.replay.weight and rare and s.metric(DEAD) >= MANY_DEAD and s.metric("dead_fail") >= MANY_DEAD / 2:
        yield from (Variant({"weight": w}, f"{w:g}") for w in (0.1, 0.3))


def other_words(s: Situation) -> Iterator[Variant]:
    """Half and all of the prompts worded otherwise: where the environment can, and training has come to know its tasks
    (it solves clearly more of them than search tasks)."""
    if "wordings" not in s.offers or s.recipe.prompt_noise or s.score is None:
        return
    if s.metric("train_minus_search") >= 0.1:
        yield from (Variant(x, f"{x:g}") for x in (0.5, 1.0))


def anchors(s: Situation) -> Iterator[Variant]:
    """Two weights of the loss on demonstrations: where there are any."""
    if "demonstrations" in s.offers and not s.recipe.sft_anchor:
        yield from (Variant(x, f"{x:g}") for x in (0.05, 0.2))


def knobs(s: Situation) -> Iterator[Variant]:
    for factor, values in knob_changes(s.recipe, s.knobs).items():
        name = factor.removeprefix("knobs.")
        now = tag(s.recipe.knobs.get(name, s.knobs[name].split(", ")[0]))
        for v in values:
            why = f"with {name} at {now} a shortcut may be open that {tag(v)} closes"
            yield Variant(v, f"{name}={tag(v)}", why=why)


DATA: tuple[Move, ...] = (
    Move(
        "curriculum",
        "curriculum",
        "data",
        {"dead_groups": 0.7, "dead_training": 0.3, "saturation": 0.8},
        of(band),
        "tasks at the edge of what the policy can do give mixed groups",
        DEAD,
        "down",
        0.05,
    ),
    Move(
        "tag_frontier",
        "curriculum",
        "data",
        {"dead_groups": 0.8, "dead_training": 0.3, "saturation": 0.8},
        of(frontier),
        "some kinds of tasks are solved or hopeless, others mixed, and a kind is known after a few groups",
        DEAD,
        "down",
        0.05,
        sd=0.03,
    ),
    Move(
        "easy_first",
        "curriculum",
        "data",
        {"dead_groups": 0.4, "dead_training": 0.4},
        of(easy_first),
        "harder tasks give a gradient once the easier ones are learnt",
        sd=0.03,
    ),
    Move(
        "curriculum_off",
        "curriculum",
        "data",
        {"exploration_collapse": 0.3},
        when(lambda r: r.curriculum.kind != "none", NO_BAND),
        "the curriculum may starve training of tasks",
        subtracts=True,
    ),
    Move(
        "more_prompts",
        "prompts_per_step",
        "data",
        {"dead_groups": 0.3, "echo_trap": 0.2},
        of(lambda s: [Variant(round(s.recipe.prompts_per_step * x), f"x{x}", x) for x in (1.5, 2)]),
        "more tasks per step give a steadier gradient",
        base=0.005,
    ),
    Move(
        "references_first",
        "phase_plan",
        "data",
        {"dead_training": 0.6, "dead_groups": 0.4, "saturation": 0.3},
        of(taught),
        "references show what the policy's own attempts seldom hold",
        base=0.02,
        sd=0.05,
        idle_sd=0.02,
    ),
    Move(
        "own_first",
        "phases",
        "data",
        {"tool_misuse": 0.3, "dead_groups": 0.2},
        of(imitates_itself),
        "what succeeded is made likelier before what failed is made less likely",
        sd=0.03,
    ),
    Move(
        "replay_rare_successes",
        "replay",
        "data",
        {"dead_groups": 0.4, "dead_training": 0.5, "saturation": 0.1},
        of(replays),
        "what succeeded once in many attempts is seen more than once",
        sd=0.03,
        cost=1.4,
    ),
    Move(
        "replay_off",
        "replay",
        "data",
        {"exploration_collapse": 0.3},
        when(lambda r: r.replay.weight > 0, {"weight": 0.0}),
        "what succeeded early holds the policy to its early ways",
        subtracts=True,
    ),
    Move(
        "word_otherwise",
        "prompt_noise",
        "data",
        {"template_collapse": 0.4, "saturation": 0.3},
        of(other_words),
        "a policy that meets a task in other words has to read it",
        sd=0.03,
    ),
    Move(
        "own_words",
        "prompt_noise",
        "data",
        {},
        when(lambda r: r.prompt_noise > 0, 0.0),
        "other wordings are not what is asked in the end",
        subtracts=True,
    ),
    Move(
        "one_phase",
        "phases",
        "data",
        {"exploration_collapse": 0.3},
        when(lambda r: bool(r.phases), []),
        "steps of imitation are steps without exploration",
        subtracts=True,
    ),
    Move(
        "sft_anchor",
        "sft_anchor",
        "data",
        {
            "tool_misuse": 0.6,
            "policy_collapse": 0.5,
            "template_collapse": 0.3,
            "echo_trap": 0.3,
            "efficiency_collapse": 0.3,
            "laziness": 0.3,
        },
        anchors,
        "demonstrations hold the format while reward shapes the rest",
        cost=1.15,
    ),
    Move(
        "sft_anchor_off",
        "sft_anchor",
        "data",
        {"exploration_collapse": 0.2, "special_casing": 0.2},
        when(lambda r: r.sft_anchor > 0, 0.0),
        "imitation pulls back towards the demonstrations' errors",
        subtracts=True,
    ),
    Move(
        "longer_budget",
        "max_tokens",
        "data",
        {"truncation": 0.8},
        of(lambda s: [Variant(round(s.recipe.max_tokens * 1.5), "x1.5", 1.25)]),
        "cut-off answers score 0 whatever they held",
        CLIPPED,
        "down",
        0.05,
    ),
    Move(
        "more_turns",
        "max_turns",
        "data",
        {"truncation": 0.4, "abandonment": 0.5},
        of(lambda s: [Variant(s.recipe.max_turns + 4, "+4", 1.3)] if s.recipe.max_turns > 1 else []),
        "episodes end before the work is submitted",
    ),
    Move(
        "turn_cap",
        "max_turns",
        "data",
        {"echo_trap": 0.5},
        of(lambda s: [Variant(s.recipe.max_turns - 2, "-2", 0.9)] if s.recipe.max_turns > 4 else []),
        "fewer turns leave no room for repetition",
        subtracts=True,
    ),
    Move(
        "mask_truncated",
        "mask_truncated",
        "data",
        {"truncation": 0.6},
        when(lambda r: not r.mask_truncated, True),
        "a cut-off answer says nothing about its content",
        CLIPPED,
        "down",
        0.0,
    ),
    Move(
        "unmask_truncated",
        "mask_truncated",
        "data",
        {"length_gaming": 0.3},
        when(lambda r: r.mask_truncated, False),
        "unpunished, running into the limit is free",
        CLIPPED,
        "down",
        0.02,
        subtracts=True,
    ),
    Move(
        "environment_knob",
        "knobs",
        "data",
        {
            "answer_leak": 0.9,
            "test_tampering": 0.8,
            "grader_bypass": 0.8,
            "special_casing": 0.5,
            "proxy_gap": 0.3,
            "edge_crash": 0.3,
        },
        knobs,
        "the environment leaves a shortcut open",
        base=-0.01,
        gain=0.1,
    ),
)
