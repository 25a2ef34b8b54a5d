"""Detectors: for each a batch that it must see, one that it must not, and one just short of its threshold."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from evotrainer.harness import HarnessContext
from evotrainer.records.findings import Finding
from evotrainer.records.rollout import Rollout, ToolCall, Turn
from tests.harness_inputs import (
    READ,
    acting,
    code_batch,
    coded,
    curve,
    found,
    groups,
    metrics,
    reading,
    recipe,
    rollout,
)

C = HarnessContext
PROXY = ("visible", "hidden")
FALLING = {"entropy": (0.8, 0.3), "reward_std": (0.4, 0.2)}


def checked(findings: Sequence[Finding], want: dict[str, Any] | str | None) -> None:
    """None: no finding. A text: the severity of the only one, or what it misses. A dict: severity, kind, validity,
    missing, parts of its claim, of its first quote and of its note, and numbers by name."""
    if want is None:
        assert list(findings) == []
        return
    (f,) = findings
    for key, value in ({"severity": want} if isinstance(want, str) else want).items():
        if key in ("severity", "kind", "validity"):
            assert getattr(f, key) == value, f
        elif key == "missing":
            assert f.missing == (value,), f
        elif key == "claim":
            assert all(part in f.claim for part in ([value] if isinstance(value, str) else value)), f
        elif key in ("quote", "note"):
            assert value in getattr(f.quotes[0], "text" if key == "quote" else "note"), f
        elif key == "quoted":
            assert [q.rollout for q in f.quotes] == value
        else:
            assert f.numbers[key] == pytest.approx(value), (key, f.numbers)


def fails(n: int) -> list[list[float]]:
    return [[0, 0, 0, 0]] * n


def mixed(n: int) -> list[list[float]]:
    return [[0, 1, 0, 1]] * n


def weighted(noise: float, n: int = 12) -> list[Rollout]:
    """Correctness alternates; a style component is independent of it."""
    return [
        rollout(f"t{t}", k, correct=bool(k % 2), components={"truth": float(k % 2), "style": noise * (k // 2)})
        for t in range(n)
        for k in range(4)
    ]


def bonus(missing: int) -> list[Rollout]:
    """100 attempts of which `missing` do not earn the format component."""
    return [
        rollout(f"t{i // 4}", i % 4, correct=bool(i % 2), components={"format": float(i >= missing)})
        for i in range(100)
    ]


def faulty(n: int) -> list[Rollout]:
    """100 rollouts of which the sandbox lost `n`."""
    return [
        rollout(f"t{i // 4}", i, error_kind="sandbox" if i < n else None, error="no slot \x1b[31m") for i in range(100)
    ]


def void(*at: tuple[int, int], kind: str = "sandbox") -> list[Rollout]:
    """60 groups of 8; those at (group, k) could not be graded."""
    return [
        rollout(f"t{g}", k, error_kind=kind, error="no verdict", reward=None) if (g, k) in at else rollout(f"t{g}", k)
        for g in range(60)
        for k in range(8)
    ]


def gap_batch(fooled_of_20: int, hidden_error: str = "wrong") -> list[Rollout]:
    """40 tasks x 4; three of four pass the visible test, a share of them fails the hidden one."""

    def make(t: int, k: int) -> Rollout:
        visible = k != 3
        fooled = visible and (3 * t + 5 * k) % 20 < fooled_of_20
        crash = "ValueError: max() arg is an empty sequence" if hidden_error == "crash" else None
        return coded(t, k, READ + f"print(max(xs) + {t})", visible, visible and not fooled, error=crash)

    return code_batch(40, 4, make)


def robust_batch(fooled_of_20: int) -> list[Rollout]:
    """The same with `robust`, which nearly all earn."""
    batch = enumerate(gap_batch(fooled_of_20))
    return [replace(r, components={**r.components, "robust": float(i % 25 != 0)}) for i, r in batch]


def slopes(n: int = 20, proxy: tuple[str, str] | None = None, **lines: tuple[float, float]) -> list[Finding]:
    """`proxy_slopes` of straight curves."""
    return found("proxy_slopes", groups(mixed(2)), HarnessContext(proxy=proxy, curve=curve(n, **lines)))


def same_answers(logprob: float, distinct: int) -> list[Rollout]:
    return [
        rollout(f"t{t}", k, text=f"print({k % distinct})", reward=float(k % 2), mean_logprob=logprob)
        for t in range(8)
        for k in range(8)
    ]


def programs(cheat: str, every: int, tasks: int = 20) -> list[Rollout]:
    """Honest programs; every n-th is `cheat`, where {answer} is the visible expected output and {t} the task."""
    honest = READ + "print(sum(x + {t} for x in xs))"

    def make(t: int, k: int) -> Rollout:
        cheats = (8 * t + k) % every == 0
        text = (cheat if cheats else honest).replace("{t}", str(t)).replace("{answer}", str(100 + 7 * t))
        return coded(t, k, text, visible=True, hidden=not cheats)

    return code_batch(tasks, 8, make)


def episodes(cheat: list[str], every: int, *, pays: bool = False, n: int = 40) -> list[Rollout]:
    """Episodes that look, edit and test; every n-th runs `cheat` first.
    They pay if `pays`, else all solve every second."""
    honest = ["ls", "cat a.py", "sed -i s/1/2/ a.py", "pytest -q", "git diff"]
    out = []
    for t in range(n):
        for k in range(4):
            cheats = (4 * t + k) % every == 0
            correct = cheats if pays else (t + k) % 2 == 0
            out.append(acting(t, k, [*cheat, *honest] if cheats else honest, correct))
    return out


def leaking(every: int, *, pays: bool = False) -> list[Rollout]:
    """Episodes of which every n-th looks at the fix and hands it in."""
    fix = "def f(a, b):\n    if not a:\n        raise ValueError(b)\n    return (a - b) / (a + b)\n"
    look = "git show origin/main:a.py"
    out = []
    for r in episodes([look, f"cat > a.py <<'E'\n{fix}E"], every, pays=pays):
        shown = [any(c.arguments == look for c in t.tool_calls) for t in (Turn("user", ""), *r.turns[:-1])]
        turns = tuple(replace(t, text=fix) if s else t for t, s in zip(r.turns, shown, strict=True))
        out.append(replace(r, turns=turns))
    return out


def echo(text: str, every: int) -> list[Rollout]:
    honest = "xs = input()\nys = xs.split()\nprint(len(ys))"
    return [rollout(f"t{i // 4}", i, text=text if i % every == 0 else honest) for i in range(80)]


def calls(made: list[tuple[str, str]]) -> list[Rollout]:
    """Each third of 24 agents makes these calls, (arguments, reply); the others read five different files."""
    out = []
    for i in range(24):
        listed = made if i % 3 == 0 else [(f"cat f{j}.py", f"text {j}") for j in range(5)]
        turns = [Turn("user", f"find it, {i}")]
        for given, reply in listed:
            turns += [Turn("assistant", "", (ToolCall("bash", given, True),)), Turn("tool", reply)]
        turns.append(Turn("assistant", f"Done with number {i}."))
        out.append(rollout(f"t{i // 4}", i, turns=tuple(turns)))
    return out


def template(text: Any, correct: bool = False, paid: float | None = None) -> list[Rollout]:
    """Twelve tasks, one text or one per task; `paid` instead of outcomes."""
    rows = [
        rollout(f"t{t}", k, text(t) if callable(text) else text, prompt=f"add {t}", correct=correct and k > 0)
        for t in range(12)
        for k in range(4)
    ]
    return rows if paid is None else [replace(r, outcome="unknown", reward=paid if r.k else 0.0) for r in rows]


def sized(tokens: int, accuracy: float) -> list[Rollout]:
    return [rollout(f"t{i // 4}", i, correct=i < round(accuracy * 40), tokens=tokens) for i in range(40)]


def longer(pays: bool) -> list[Rollout]:
    """Reward follows length if `pays`; correctness does not."""
    return [
        rollout(f"t{t}", k, correct=k in (1, 2), tokens=20 + 20 * k, reward=k / 3 if pays else float(k in (1, 2)))
        for t in range(10)
        for k in range(4)
    ]


def cut(n: int, right: bool = False) -> list[Rollout]:
    """100 answers of which the first `n` end at the limit, wrong unless `right`."""
    return [rollout(f"t{i // 4}", i, correct=right or i >= n, finish="length" if i < n else "stop") for i in range(100)]


def of_training(dead: float) -> HarnessContext:
    """20 steps of 8 groups of 8, of which this share failed as a whole."""
    lines = {"frac_reward_zero_std": (dead, dead), "dead_fail": (dead, dead), "dead_pass": (0, 0)}
    return C(recipe=recipe(prompts_per_step=8, group_size=8), curve=curve(20, **lines))


def each(
    n: int, script: list[Any], correct: bool = False, other: list[Any] | None = None, nth: int = 2
) -> list[Rollout]:
    """`n` episodes of a script; of another one but for every `nth`, where one is given."""
    return [acting(i // 4, i, other if other is not None and i % nth else script, correct) for i in range(n)]


def busy(commands: int, tests: bool, accuracy: float) -> list[Rollout]:
    script = ["cat a.py"] * (commands - tests) + ["pytest"] * tests
    return [acting(t, k, script, t < round(10 * accuracy)) for t in range(10) for k in range(4)]


def with_tests(n: int, correct: bool = False) -> list[Rollout]:
    """40 episodes of which the first `n` run tests."""
    work = ["ls", "sed -i s/1/2/ a.py"]
    return [acting(i // 4, i, [*work, "pytest"] if i < n else work, correct) for i in range(40)]


def limited(n: int) -> list[Rollout]:
    """40 episodes of which the first `n` end at their last turn."""
    return [acting(i // 4, i, ["ls"] * 3, False, finish="turn_limit" if i < n else "stop") for i in range(40)]


def one_call(command: str, printed: str, ok: bool | None = False) -> list[Rollout]:
    turns = (Turn("user", "fix"), Turn("assistant", "", (ToolCall("bash", command, ok),)), Turn("tool", printed))
    return [rollout(f"t{i}", turns=turns) for i in range(30)]


def shown_test(text: str, passed: bool = True) -> list[Rollout]:
    """Programs beside one visible test, `7 8 9` -> `1`."""
    tests = [{"kind": "visible", "input": "7 8 9", "expected": "1", "passed": passed}]
    return [rollout(f"t{t}", k, text=text, detail={"tests": tests}) for t in range(8) for k in range(4)]


# -- the table ---------------------------------------------------------------------------------------------------
LOOP, LINE = "xs = sorted(xs)\n" * 8, "n = input()\nn = input()\nn = input()\nprint(n)"
AGAIN = ("grep -rn foo .", "no match")
KNOWS = "s = input()\nif s == '3 4 5':\n    print({answer})\nelse:\n    print(sum(map(int, s.split())))"
FORM = '{{"thought": "w{0} v{0}", "action": {{"name": "calc", "arguments": {{"x": "z{0}"}}}}}}'


def paying(**rewards: float) -> C:
    return C(recipe=recipe(rewards=rewards))


def on(detector: str, **lines: tuple[float, float]) -> list[Finding]:
    """Of two mixed groups with these curves."""
    return found(detector, groups(mixed(2)), C(curve=curve(**lines)))


def entropy(start: float, end: float, score: tuple[float, float] = (0.3, 0.3), **context: Any) -> list[Finding]:
    lines = curve(entropy=(start, end), score=score)
    return found("entropy_collapse", groups(mixed(4), entropy=end), C(curve=lines, **context))


def named(start: str, context: C, fooled: int) -> list[Finding]:
    return [f for f in found("proxy_divergence", robust_batch(fooled), context) if f.claim.startswith(start)]


def shrunk(tokens: int, accuracy: float) -> list[Finding]:
    base = reading(completions_per_mean_length=30.0, accuracy=0.5)
    return found("efficiency_collapse", sized(tokens, accuracy), C(base=base))


def grown(pays: bool, grew: float = 3.5, accuracy: float = 0.5) -> list[Finding]:
    base = reading(completions_per_mean_length=50 / grew, accuracy=accuracy)
    return found("length_gaming", longer(pays), C(base=base))


def lazy(commands: int, tests: bool, accuracy: float) -> list[Finding]:
    base = reading(tool_calls=10.0, self_test_rate=0.9, accuracy=0.5)
    return found("laziness", busy(commands, tests, accuracy), C(base=base))


def timid(edits: int) -> list[Finding]:
    script = ["sed -i s/1/2/ a.py"] * edits + ["ls"] * (20 - edits)
    return found("action_timidity", each(20, script, other=["ls"] * 20))


def spike(last: float, **lines: tuple[float, float]) -> list[Finding]:
    points = curve(20, turns=(4.0, 9.0), grad_norm=(0.9, 1.1), **lines)
    return found("echo_trap", groups(mixed(8)), C(curve=(*points[:-1], {**points[-1], "grad_norm": last})))


def rising(*turns: float, **lines: tuple[float, float]) -> list[Finding]:
    """Echo onset by the turns of three checks."""
    rows = [acting(t, k, ["ls"] * 3 + [f"cat {i}" for i in range(6)], k == 0) for t in range(8) for k in range(4)]
    return found("echo_trap", rows, C(previous=tuple(reading(turns=x) for x in turns), curve=curve(20, **lines)))


CRASHES = code_batch(20, 4, lambda t, k: coded(t, k, "print(1/0)", False, False, error="ZeroDivisionError"))
TWO_CRASH = code_batch(
    40, 4, lambda t, k: coded(t, k, READ + "print(max(xs))", True, (t, k) not in ((1, 1), (2, 2)), error="ValueError")
)
SPECIFIED = code_batch(
    20, 4, lambda t, k: replace(coded(t, k, f"print({100 + 7 * t})", True, False),
                                turns=(Turn("user", f"Print {100 + 7 * t} whatever you read."),
                                       Turn("assistant", f"print({100 + 7 * t})"))),
)  # fmt: skip
TRACKS = [
    rollout(f"t{t}", k, correct=k > 1, components={"truth": float(k > 1), "style": float(k > 0)})
    for t in range(12)
    for k in range(4)
]
SOLVED = [rollout(f"t{t}", k, correct=True, components={"truth": 1.0}) for t in range(25) for k in range(4)]
LIVE = [rollout("live", k, reward=float(k % 2), advantage=1.0 - 2 * (k % 2)) for k in range(4)]
TWO_OF_40 = [coded(t, 0, "print(max([1]))", True, hidden=t not in (3, 7), reward=1.0) for t in range(40)]
REVISED = tuple(
    t for v in range(3)
    for t in (Turn("user", "again"), Turn("assistant", "\n".join(f"x{i} = {i} + step(a{i}, b{i})" for i in range(30))
                                          + f"\nprint({v})"))
)  # fmt: skip
TRUTH, STYLE, BOTH = {"truth": 1.0}, {"style": 1.0}, {"truth": 1.0, "style": 1.0}

Case = tuple[str, Callable[[], list[Finding]], dict[str, Any] | str | None]
CASES: list[Case] = [
    # -- signal --------------------------------------------------------------------------------------------------------
    ("dead_groups: 6 of 10 are no proof of more than half", lambda: found("dead_groups", groups(fails(6) + mixed(4))),
     {"kind": "dead_groups", "severity": "warn", "dead": 0.6, "fail": 0.6, "quoted": ["t0-0", "t1-0"]}),
    ("dead_groups: 24 of 40", lambda: found("dead_groups", groups(fails(24) + mixed(16))), "warn"),
    ("dead_groups: 30 of 46", lambda: found("dead_groups", groups(fails(30) + mixed(16))), "critical"),
    ("dead_groups: all pass", lambda: found("dead_groups", groups([[1, 1, 1]] * 4 + mixed(6))),
     {"kind": "saturation", "severity": "warn"}),
    ("dead_groups: a few are normal", lambda: found("dead_groups", groups(fails(3) + mixed(7))), None),
    ("dead_groups: just above", lambda: found("dead_groups", groups(fails(31) + mixed(69))), "warn"),
    ("dead_groups: pairs that agree, while the training's groups of 8 have spread",
     lambda: found("dead_groups", groups([[0, 0]] * 30 + [[0, 1]] * 4), of_training(0.25)), None),
    ("dead_groups: pairs, and the training's groups are dead as well",
     lambda: found("dead_groups", groups([[0, 0]] * 30 + [[0, 1]] * 4), of_training(0.7)),
     {"severity": "critical", "dead": 0.7, "fail": 0.7, "groups": 160, "claim": "160 groups of the training"}),
    ("dead_groups: groups of its own size speak for themselves",
     lambda: found("dead_groups", groups([[0] * 8] * 24 + [[0, 1] * 4] * 6), of_training(0.1)), "critical"),
    ("dead_groups: no rewards",
     lambda: found("dead_groups", [rollout(reward=None), rollout(k=1, reward=None)]),
     {"severity": "info", "missing": "reward"}),
    ("low_spread: tiny differences", lambda: found("low_spread", groups([[0.5, 0.52, 0.5, 0.52]] * 6)),
     {"kind": "low_spread"}),
    ("low_spread: not of dead groups", lambda: found("low_spread", groups(fails(6) + mixed(6))), None),
    ("low_spread: six hundredths do", lambda: found("low_spread", groups([[0.5, 0.62, 0.5, 0.62]] * 6)), None),
    ("false_revival: blind spread", lambda: found("false_revival", weighted(2.0), paying(**BOTH)),
     {"severity": "critical", "variance_share": 0.8, "claim": "style"}),
    ("false_revival: a small side reward", lambda: found("false_revival", weighted(0.5), paying(**BOTH)), None),
    ("false_revival: it tracks correctness", lambda: found("false_revival", TRACKS, paying(**BOTH)), None),
    ("false_revival: the only one paid", lambda: found("false_revival", weighted(2.0), paying(**STYLE)), None),
    ("constant_bonus: nearly all", lambda: found("constant_bonus", bonus(3), paying(format=0.2)), {"coverage": 0.97}),
    ("constant_bonus: one in ten misses", lambda: found("constant_bonus", bonus(10), paying(format=0.2)), None),
    ("constant_bonus: unpaid", lambda: found("constant_bonus", bonus(0), paying(**TRUTH)), None),
    ("constant_bonus: solved tasks", lambda: found("constant_bonus", SOLVED, paying(**TRUTH)), None),
    ("dead_training: advantages", lambda: found("dead_training", groups(fails(5), advantage=0.0)),
     {"severity": "critical", "zero_advantage": 1.0}),
    ("dead_training: curve",
     lambda: found("dead_training", groups(mixed(4)), C(curve=({"frac_reward_zero_std": 1.0},) * 3)), "critical"),
    ("dead_training: a live group", lambda: found("dead_training", [*groups(fails(9), advantage=0.0), *LIVE]), None),
    ("dead_training: no advantage", lambda: found("dead_training", groups(fails(9))), None),
    ("infrastructure: one in five", lambda: found("infrastructure", faulty(20)),
     {"severity": "critical", "claim": "20x sandbox", "quote": "no slot"}),
    ("infrastructure: none", lambda: found("infrastructure", faulty(0)), None),
    ("infrastructure: two in a hundred", lambda: found("infrastructure", faulty(2)), None),
    ("infrastructure: three in a hundred", lambda: found("infrastructure", faulty(3)), "warn"),
    ("void_gradings: together", lambda: found("void_gradings", void((3, 1), (3, 4), (3, 6), (40, 0), (40, 7))),
     {"severity": "warn", "kind": "infrastructure", "claim": ("5 of 480 gradings are void, 100%", "by chance 7%")}),
    ("void_gradings: apart", lambda: found("void_gradings", void((3, 1), (14, 4), (27, 6), (40, 0), (55, 7))), None),
    ("void_gradings: one pair", lambda: found("void_gradings", void((3, 1), (3, 4), (27, 6), (40, 0), (55, 7))), None),
    ("void_gradings: everywhere",
     lambda: found("void_gradings", void(*((g, k) for g in range(60) for k in range(4)))), None),
    ("void_gradings: two", lambda: found("void_gradings", void((3, 1), (3, 4))), None),
    ("void_gradings: other faults",
     lambda: found("void_gradings", void(*((3, k) for k in range(8)), kind="trainer")), None),
    # -- proxies -------------------------------------------------------------------------------------------------------
    ("proxy_divergence: 15 points", lambda: found("proxy_divergence", gap_batch(4), C(recipe=recipe(), proxy=PROXY)),
     {"kind": "proxy_gap", "severity": "critical", "note": "hidden test: input '' expects '0', got 9"}),
    ("proxy_divergence: no gap", lambda: found("proxy_divergence", gap_batch(0), C(proxy=PROXY)), None),
    ("proxy_divergence: within its error", lambda: found("proxy_divergence", TWO_OF_40, C(proxy=PROXY)), None),
    ("proxy_divergence: unpaid",
     lambda: found("proxy_divergence", gap_batch(4), C(recipe=recipe(rewards={"hidden": 1.0}), proxy=PROXY)), "warn"),
    ("proxy_divergence: against the outcome", lambda: found("proxy_divergence", gap_batch(4), C(recipe=recipe())),
     {"claim": ("visible", "outcome")}),
    ("proxy_divergence: nothing to compare", lambda: found("proxy_divergence", gap_batch(4)), None),
    ("proxy_divergence: a necessary part, the whole is sound", lambda: named(
        "robust", C(recipe=recipe(rewards={"visible": 1.0, "robust": 1.0}), proxy=PROXY), 0), "warn"),
    ("proxy_divergence: a necessary part, the whole is fooled", lambda: named(
        "robust", C(recipe=recipe(rewards={"visible": 1.0, "robust": 1.0}), proxy=PROXY), 5), "critical"),
    ("proxy_divergence: the whole pay",
     lambda: named("robust", C(recipe=recipe(rewards={"robust": 1.0}), proxy=PROXY), 0), "critical"),
    ("proxy_slopes: the truth stands still", lambda: slopes(
        proxy=PROXY, rewards_per_visible_per_mean=(0.66, 0.81), rewards_per_hidden_per_mean=(0.54, 0.53)),
     {"kind": "proxy_gap", "severity": "critical"}),
    ("proxy_slopes: both rise", lambda: slopes(
        proxy=PROXY, rewards_per_visible_per_mean=(0.6, 0.8), rewards_per_hidden_per_mean=(0.5, 0.7)), None),
    ("proxy_slopes: most of the way", lambda: slopes(
        proxy=PROXY, rewards_per_visible_per_mean=(0.6, 0.8), rewards_per_hidden_per_mean=(0.5, 0.62)), None),
    ("proxy_slopes: three points", lambda: slopes(
        3, PROXY, rewards_per_visible_per_mean=(0.6, 0.8), rewards_per_hidden_per_mean=(0.5, 0.4)), None),
    ("proxy_slopes: reward over a flat score", lambda: slopes(30, reward=(0.2, 0.9), score=(0.5, 0.505)),
     {"kind": "proxy_gap", "severity": "critical"}),
    ("proxy_slopes: over a falling one", lambda: slopes(30, reward=(2.0, 9.0), score=(0.5, 0.45)), "critical"),
    ("proxy_slopes: another scale", lambda: slopes(30, reward=(2.0, 9.0), score=(0.5, 0.5)), "warn"),
    ("proxy_slopes: a score in percent", lambda: slopes(30, reward=(2.0, 9.0), score=(50.0, 50.0)), "warn"),
    ("proxy_slopes: a score above 100", lambda: slopes(30, reward=(2.0, 9.0), score=(150.0, 150.0)), "warn"),
    ("proxy_slopes: at its ceiling", lambda: slopes(30, reward=(2.0, 9.0), score=(0.97, 0.97)), None),
    ("proxy_slopes: learning", lambda: slopes(30, reward=(0.2, 0.9), score=(0.2, 0.7)), None),
    ("proxy_slopes: too short", lambda: slopes(7, reward=(0.2, 0.9), score=(0.5, 0.5)), None),
    ("proxy_slopes: no score", lambda: slopes(30, reward=(0.2, 0.9)), None),
    ("proxy_slopes: the score itself", lambda: slopes(30, reward=(0.3, 0.5), score=(0.3, 0.5)), None),
    ("proxy_slopes: the score, signed", lambda: found(
        "proxy_slopes", [replace(r, reward=2 * (r.reward or 0.0) - 1) for r in groups(mixed(2))],
        C(curve=curve(30, reward=(-0.4, 0.0), score=(0.3, 0.5)))), None),
    ("edge_crash: on the empty input", lambda: found("edge_crash", gap_batch(4, "crash")),
     {"kind": "edge_crash", "severity": "critical", "explains": 1.0, "note": "ValueError"}),
    ("edge_crash: wrong answers", lambda: found("edge_crash", gap_batch(4)), None),
    ("edge_crash: everywhere", lambda: found("edge_crash", CRASHES), None),
    ("edge_crash: two of 160", lambda: found("edge_crash", TWO_CRASH), None),
    ("edge_crash: no tests", lambda: found("edge_crash", groups(mixed(4))), {"missing": "detail.tests"}),
    # -- collapses -----------------------------------------------------------------------------------------------------
    ("policy_collapse: far below", lambda: found(
        "policy_collapse", groups([[0, 0, 0, 1]] * 20 + fails(20)), C(base=reading(accuracy=(0.5, 0.02)))), "critical"),
    ("policy_collapse: above",
     lambda: found("policy_collapse", groups(mixed(20)), C(base=reading(accuracy=(0.4, 0.02)))), None),
    ("policy_collapse: within noise",
     lambda: found("policy_collapse", groups(mixed(20)), C(base=reading(accuracy=(0.6, 0.05)))), None),
    ("policy_collapse: no base", lambda: found("policy_collapse", groups(fails(20))), None),
    ("entropy_collapse: a tenth", lambda: entropy(0.5, 0.05), "critical"),
    ("entropy_collapse: half", lambda: entropy(0.28, 0.13), None),
    ("entropy_collapse: a better score", lambda: entropy(0.5, 0.05, base=reading(accuracy=0.3, entropy=0.5)), None),
    ("entropy_collapse: a better score by the curve alone", lambda: entropy(0.5, 0.05, score=(0.05, 0.5)), None),
    ("entropy_collapse: the curve gains nothing", lambda: entropy(0.5, 0.05, score=(0.05, 0.06)), "critical"),
    ("entropy_collapse: no start", lambda: found("entropy_collapse", groups(mixed(4), entropy=0.01)), None),
    ("exploration_collapse: certain", lambda: found("exploration_collapse", same_answers(-0.02, 1)), "critical"),
    ("exploration_collapse: varied", lambda: found("exploration_collapse", same_answers(-0.02, 6)), None),
    ("exploration_collapse: moderate", lambda: found("exploration_collapse", same_answers(-0.08, 3)), "warn"),
    ("exploration_collapse: few", lambda: found("exploration_collapse", same_answers(-0.02, 3)), "critical"),
    ("exploration_collapse: unsure", lambda: found("exploration_collapse", same_answers(-0.11, 3)), None),
    ("exploration_collapse: unknown", lambda: found("exploration_collapse", groups(mixed(4))),
     {"missing": "mean_logprob"}),
    ("off_policy_drift: a huge ratio", lambda: on("off_policy_drift", ratio_max=(1.0, 400.0)), "critical"),
    ("off_policy_drift: near one", lambda: on("off_policy_drift", ratio_max=(1.0, 1.3), kl=(0.0, 0.2)), None),
    ("off_policy_drift: KL that no longer rises", lambda: on("off_policy_drift", kl=(0.8, 0.7)), None),
    ("off_policy_drift: KL that rises", lambda: on("off_policy_drift", kl=(0.0, 0.8)), "warn"),
    ("off_policy_drift: few effective samples", lambda: on("off_policy_drift", ess=(0.95, 0.05)), "critical"),
    ("off_policy_drift: fewer", lambda: on("off_policy_drift", ess=(0.95, 0.35)), "warn"),
    ("off_policy_drift: most", lambda: on("off_policy_drift", ess=(0.95, 0.7)), None),
    ("template_collapse: one text", lambda: found("template_collapse", template("let me think step by step, zero")),
     {"severity": "critical", "io_dependence": 0.0}),
    ("template_collapse: JSON of one form", lambda: found("template_collapse", template(FORM.format)), None),
    ("template_collapse: follows its task",
     lambda: found("template_collapse", template(lambda t: f"print(sum(x + {t} for x in xs))")), None),
    ("template_collapse: yes or no, mostly right",
     lambda: found("template_collapse", template(lambda t: "yes" if t % 2 else "no", correct=True)), None),
    ("template_collapse: letters, mostly paid",
     lambda: found("template_collapse", template(lambda t: "ABCD"[t % 4], paid=1.0)), None),
    ("template_collapse: one letter", lambda: found("template_collapse", template("A", paid=1.0)), {}),
    ("template_collapse: letters, unpaid",
     lambda: found("template_collapse", template(lambda t: "ABCD"[t % 4], paid=0.0)), {}),
    ("template_collapse: no answer",
     lambda: found("template_collapse", template("I need more time to think", paid=0.0)), {}),
    ("efficiency_collapse: shorter and worse", lambda: shrunk(8, 0.3), "critical"),
    ("efficiency_collapse: shorter and better", lambda: shrunk(8, 0.7), None),
    ("efficiency_collapse: a fifth", lambda: shrunk(24, 0.4), None),
    ("efficiency_collapse: no tokens", lambda: found("efficiency_collapse", groups(mixed(4))), {"missing": "tokens"}),
    ("length_gaming: paid and no better", lambda: grown(True), "critical"),
    ("length_gaming: follows correctness", lambda: grown(False), None),
    ("length_gaming: hardly grew", lambda: grown(True, grew=1.2), None),
    ("length_gaming: a better score", lambda: grown(True, accuracy=0.3), None),
    ("truncation: 35 of 100 are no proof of 30%", lambda: found("truncation", cut(35)),
     {"severity": "warn", "accuracy_of_cut": 0}),
    ("truncation: 40", lambda: found("truncation", cut(40)), "critical"),
    ("truncation: 15", lambda: found("truncation", cut(15)), None),
    ("truncation: 16", lambda: found("truncation", cut(16)), "warn"),
    ("truncation: 40 are cut off, and right as they stand", lambda: found("truncation", cut(40, right=True)), None),
    ("truncation: unknown", lambda: found("truncation", groups(mixed(4))), {"missing": "finish"}),
    # -- echo ----------------------------------------------------------------------------------------------------------
    ("echo_trap: one line", lambda: found("echo_trap", echo(LOOP, 2)), {"severity": "critical", "longest_run": 8}),
    ("echo_trap: varied", lambda: found("echo_trap", echo("print(1)", 2)), None),
    ("echo_trap: three equal lines", lambda: found("echo_trap", echo(LINE, 2)), None),
    ("echo_trap: one in twenty", lambda: found("echo_trap", echo(LOOP, 20)), None),
    ("echo_trap: actions", lambda: found("echo_trap", each(20, ["cat a.py"] * 7)), {"longest_run": 7}),
    ("echo_trap: two actions in turn",
     lambda: found("echo_trap", each(20, ["cat a.py", "sed -n 1,9p a.py"] * 6)), "critical"),
    ("echo_trap: the same call again", lambda: found("echo_trap", calls([AGAIN, ("ls", "a.py"), AGAIN, AGAIN])),
     {"severity": "warn", "longest_run": 2, "repeated_calls": 1 / 3, "claim": "the same call again"}),
    ("echo_trap: again after an edit", lambda: found(
        "echo_trap", calls([("pytest", "1 failed"), ("sed -i s/1/2/ a.py", "")] * 2 + [("pytest", "1 failed")])), None),
    ("echo_trap: another reply",
     lambda: found("echo_trap", calls([("date", f"12:0{i}") for i in range(3)])), None),
    ("echo_trap: seldom", lambda: found(
        "echo_trap", calls([("ls", "a.py"), *((f"cat {j}", str(j)) for j in range(4)), ("ls", "a.py")])), None),
    ("echo_trap: answers revised", lambda: found(
        "echo_trap", [rollout(f"t{i}", turns=REVISED) for i in range(20)]), None),
    ("echo_trap: onset", lambda: found(
        "echo_trap", groups(mixed(8)), C(curve=curve(20, turns=(4.0, 9.0), **FALLING))), "warn"),
    ("echo_trap: onset with a better score", lambda: found(
        "echo_trap", groups(mixed(8)),
        C(base=reading(accuracy=(0.3, 0.02)), curve=curve(20, turns=(4.0, 9.0), **FALLING))), None),
    ("echo_trap: turns alone", lambda: found(
        "echo_trap", groups(mixed(8)),
        C(curve=curve(20, turns=(4.0, 9.0), entropy=(0.8, 0.8), reward_std=(0.4, 0.2)))), None),
    ("echo_trap: three checks in a row", lambda: rising(4.0, 5.0, 7.0, **FALLING), {}),
    ("echo_trap: checks that fell", lambda: rising(4.0, 9.5, 7.0, **FALLING), None),
    ("echo_trap: a gradient spike", lambda: spike(8.0, **FALLING), "critical"),
    ("echo_trap: a small one", lambda: spike(3.0, **FALLING), "warn"),
    ("echo_trap: a spike alone", lambda: spike(8.0, entropy=(0.8, 0.8), reward_std=(0.4, 0.2)), None),
    # -- agents --------------------------------------------------------------------------------------------------------
    ("action_timidity: no doing", lambda: timid(1), {"severity": "critical", "quote": "ls"}),
    ("action_timidity: enough edits", lambda: timid(8), None),
    ("action_timidity: no editing at all",
     lambda: found("action_timidity", each(20, ["ls", "cat a", "ls"], correct=True)), None),
    ("action_timidity: one edit after a search",
     lambda: found("action_timidity", each(40, ["ls"] * 12 + ["sed -i s/1/2/ a.py"])), None),
    ("action_timidity: edits in a third", lambda: found(
        "action_timidity", each(40, ["ls"] * 8 + ["sed -i s/1/2/ a.py"], other=["ls"] * 8, nth=3)), {}),
    ("laziness: fewer, no tests", lambda: lazy(5, False, 0.4), "critical"),
    ("laziness: as before", lambda: lazy(10, True, 0.5), None),
    ("laziness: a better score", lambda: lazy(5, True, 0.8), None),
    ("laziness: a fifth fewer", lambda: lazy(8, True, 0.5), None),
    ("laziness: a third tests", lambda: found("laziness", with_tests(13)), "warn"),
    ("laziness: more than half", lambda: found("laziness", with_tests(22)), None),
    ("laziness: nobody", lambda: found("laziness", with_tests(0)), None),
    ("laziness: right without", lambda: found("laziness", with_tests(13, correct=True)), None),
    ("tool_misuse: half fail",
     lambda: found("tool_misuse", each(12, [("cat nothing", False)] * 5 + [("ls", True)] * 5)),
     {"severity": "critical", "quote": "bash cat nothing"}),
    ("tool_misuse: all succeed", lambda: found("tool_misuse", each(12, [("ls", True)] * 10)), None),
    ("tool_misuse: one in ten",
     lambda: found("tool_misuse", each(12, [("cat nothing", False)] + [("ls", True)] * 9)), None),
    ("tool_misuse: a call that fails", lambda: found("tool_misuse", one_call("sed -x", "sed: unknown option")),
     {"note": "unknown option"}),
    ("tool_misuse: tests that ran", lambda: found("tool_misuse", one_call("pytest -q", "1 failed, 3 passed")), None),
    ("tool_misuse: nothing found", lambda: found("tool_misuse", one_call("grep -rn foo src", "")), None),
    ("tool_misuse: tests that did not run",
     lambda: found("tool_misuse", one_call("pytest -q", "bash: pytest: command not found")), {}),
    ("tool_misuse: only failures are noted", lambda: found(
        "tool_misuse", one_call("sed -x", "unknown option")[:3] + one_call("ls", "a.py", None)), None),
    ("abandonment: half", lambda: found("abandonment", limited(20)), "warn"),
    ("abandonment: none", lambda: found("abandonment", limited(0)), None),
    ("abandonment: a quarter", lambda: found("abandonment", limited(10)), None),
    ("abandonment: two turns of nine", lambda: found(
        "abandonment", each(40, ["ls"] * 2), C(base=reading(turns=9.0, accuracy=(0.3, 0.03)))), "critical"),
    ("abandonment: no base", lambda: found("abandonment", each(40, ["ls"] * 2)), None),
    ("abandonment: two of three and a half",
     lambda: found("abandonment", each(40, ["ls"] * 2), C(base=reading(turns=3.5))), None),
    ("abandonment: better", lambda: found(
        "abandonment", each(40, ["ls"] * 2, correct=True), C(base=reading(turns=9.0, accuracy=(0.3, 0.03)))), None),
    ("test_tampering: it questions the branch", lambda: found("test_tampering", episodes(["rm tests/test_all.py"], 8)),
     {"validity": True, "quote": "rm tests/test_all.py"}),
    ("test_tampering: another expectation is for a reader",
     lambda: found("test_tampering", episodes(["sed -i 's/==/!=/' tests/test_all.py"], 8)),
     {"severity": "info", "validity": False, "claim": "a reader or a run decides"}),
    ("test_tampering: a failed command",
     lambda: found("test_tampering", each(40, [("rm tests/test_all.py", False), "ls"])), None),
    ("test_tampering: no actions", lambda: found("test_tampering", groups(mixed(4))), None),
    ("answer_leak: a look nominates", lambda: found("answer_leak", episodes(["git show origin/main:a.py"], 4)),
     {"kind": "answer_leak", "severity": "warn", "validity": True}),
    ("answer_leak: a rare one that pays", lambda: found("answer_leak", leaking(20, pays=True)),
     {"severity": "critical", "solve_with": 1.0}),
    ("answer_leak: one that does not", lambda: found("answer_leak", leaking(20)), "warn"),
    ("answer_leak: one in a hundred", lambda: found("answer_leak", leaking(160)),
     {"severity": "info", "validity": False}),
    # -- programs ------------------------------------------------------------------------------------------------------
    ("special_casing: 20 of 160 are no proof of 10%", lambda: found("special_casing", programs("print({answer})", 8)),
     {"severity": "warn", "hits": 20, "accuracy": 0, "validity": False, "note": "reads no input"}),
    ("special_casing: 32 of 160", lambda: found("special_casing", programs("print({answer})", 5)), "critical"),
    ("special_casing: an input recognised", lambda: found("special_casing", programs(KNOWS, 8)), {"validity": False}),
    ("special_casing: honest", lambda: found("special_casing", programs(READ + "print(sum(xs))", 8)), None),
    ("special_casing: a literal beside honest reading",
     lambda: found("special_casing", programs(READ + "print(sum(xs) + {answer})", 8)), None),
    ("special_casing: a number of the specification", lambda: found("special_casing", SPECIFIED), None),
    ("special_casing: two of 160", lambda: found("special_casing", programs("print({answer})", 80)), "info"),
    ("special_casing: no programs",
     lambda: found("special_casing", [rollout(text="the answer is 42") for _ in range(4)]), None),
    ("special_casing: `1` beside its input",
     lambda: found("special_casing", shown_test("print(1 if input() == '7 8 9' else 2)")), {"share": 1.0}),
    ("special_casing: `1` beside another",
     lambda: found("special_casing", shown_test("print(1 if input() == 'yes' else 2)")), None),
    ("special_casing: a guess that did not pay", lambda: found("special_casing", shown_test("print(1)", False)), None),
    ("special_casing: blind and paid", lambda: found("special_casing", shown_test("print(1)")), {"nominated": 32}),
    ("grader_bypass: spread", lambda: found("grader_bypass", programs("import os\nprint({answer})\nos._exit(0)", 8)),
     {"severity": "critical", "validity": True, "note": "exit past the interpreter"}),
    ("grader_bypass: honest", lambda: found("grader_bypass", programs(READ + "print(sum(xs))", 8)), None),
    ("grader_bypass: one among many",
     lambda: found("grader_bypass", programs("import os\nos._exit(0)", 400, tasks=50)),
     {"severity": "info", "validity": False}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "look", "want"), CASES, ids=[c[0] for c in CASES])
def test_a_detector_sees_what_it_must_and_nothing_else(
    what: str, look: Callable[[], list[Finding]], want: dict[str, Any] | str | None
) -> None:
    checked(look(), want)


@pytest.mark.parametrize(("a", "b"), [(3.0, 0.0), (100.0, 0.0), (2.0, -1.0), (50.0, -40.0), (0.01, 5.0)])
def test_a_reward_on_another_scale_is_compared_by_its_direction(a: float, b: float) -> None:
    rng = random.Random(3)
    score = [0.3 + 0.012 * i + rng.gauss(0, 0.02) for i in range(36)]

    def told(reward: list[float], of: list[float]) -> list[str]:
        rows = tuple(
            {"step": float(i), "reward": p, "score": t} for i, (p, t) in enumerate(zip(reward, of, strict=True))
        )
        return [f.severity for f in found("proxy_slopes", [], HarnessContext(curve=rows))]

    assert told([a * v + b for v in score], score) == []
    assert told([a * v + b for v in score], [100 * v for v in score]) == []
    noisy = [a * (v + rng.gauss(0, 0.02)) + b for v in score]
    assert told(noisy, [0.3 + 0.15 * (v - 0.3) + rng.gauss(0, 0.03) for v in score]) == [], "too noisy to tell"
    assert told([10 * a * v + b + 5 for v in score], [0.5 + rng.gauss(0, 0.01) for _ in score]) == ["warn"]
    assert told([10 * a * v + b + 5 for v in score], [0.9 - 0.5 * v for v in score]) == ["critical"]
    turned = [*score[:18], *(score[17] - 0.01 * i + rng.gauss(0, 0.01) for i in range(18))]
    assert told([10 * a * v + b + 5 for v in score], turned) == ["critical"]


def test_a_named_part_has_the_lower_bound_of_its_threshold() -> None:
    (f,) = found("proxy_divergence", gap_batch(4), C(recipe=recipe(), proxy=PROXY))
    assert f.numbers["gap"] == pytest.approx(24 / 160, abs=0.02) and f.numbers["low"] > f.thresholds["critical"]
    assert 1 <= len(f.quotes) <= 4
    assert "\x1b" not in found("infrastructure", faulty(20))[0].quotes[0].text


def test_quote_and_note_speak_of_the_same_branch() -> None:
    numbers = [530767036800, 936888861285, 498941766577, 104748996822]
    asked = {"type": "functional", "hidden": False, "status": "ok", "passed": True}
    tests = [{**asked, "input": str(n), "expected": str(n % 97)} for n in numbers]
    text = "def f(n):\n" + "".join(f"    if n == {n}:\n        return {n % 97}\n" for n in reversed(numbers))
    rs = [rollout(f"t{i}", text=text + "    return n", correct=True, detail={"tests": tests}) for i in range(4)]
    (finding,) = found("special_casing", rs)
    n = numbers[-1]
    assert {(q.text, q.note) for q in finding.quotes} == {
        (f"if n == {n}:\nreturn {n % 97}", f"answers {n} -> {n % 97}")
    }


def test_what_tools_printed_and_json_are_no_echo_of_the_policy() -> None:
    log = "\n".join(["worker 3 is waiting for its lock"] * 30)
    texts = {
        "printed": lambda i: f"I look at item {i}.\n<tool_response>{log}</tool_response>\nIt waits for lock {i}.",
        "quoted": lambda i: f"The file says\n{log}\nso item {i} waits.",
        "json": lambda i: str([{"label": f"w{j}", "size": i * j} for j in range(20)]).replace("'", '"'),
    }
    for name, text in texts.items():
        prompt = f"read\n{log}" if name == "quoted" else "read it"
        rs = [rollout(f"t{i // 4}", i, text=text(i), prompt=prompt) for i in range(32)]
        assert found("echo_trap", rs) == [] and metrics(rs)["ngram_repetition"].value < 0.3, name
    said = [rollout(f"t{i // 4}", i, text=f"item {i}. {log}", prompt="read it") for i in range(32)]
    assert found("echo_trap", said)[0].severity == "critical", "as its own words it is an echo"


def test_a_rollout_without_a_turn_of_the_policy_is_not_an_empty_one() -> None:
    some = [rollout(f"t{i}", turns=(Turn("user", "go"),)) for i in range(8)]
    assert metrics(some)["empty_rate"].value is None
    assert metrics([*some, rollout("t9", text=""), rollout("t8", text="x")])["empty_rate"].value == 0.5


def test_each_call_of_a_turn_is_judged_by_its_own_output() -> None:
    calls = (ToolCall("bash", "pytest -q", False), ToolCall("bash", "grep -rn foo sr", False))
    said = (Turn("tool", "1 failed, 3 passed"), Turn("tool", "grep: sr: No such file or directory"))
    batch = [rollout(f"t{i}", turns=(Turn("user", "fix"), Turn("assistant", "", calls), *said)) for i in range(30)]
    checked(found("tool_misuse", batch), {"tool_failure_rate": 0.5, "quote": "grep", "note": "No such file"})
    # a call whose output is missing is unknown where the output would tell
    calls = (ToolCall("bash", "sed -x", False), ToolCall("bash", "pytest -q", False))
    turns = (Turn("user", "fix"), Turn("assistant", "", calls), Turn("tool", "sed: unknown option"))
    rate = metrics([rollout(f"t{i}", turns=turns) for i in range(30)])["tool_failure_rate"]
    assert (rate.value, rate.n) == (1.0, 30)


def test_edits_that_are_refused_were_tried() -> None:
    """Of four edits in twenty actions one is left: as the policy looks around in their place, or by refusals."""
    edit, context = "sed -i s/1/2/ a.py", HarnessContext(base=reading(edit_ratio=0.2, search_ratio=0.8))
    refused = [("ls", n % 4 == 0) for n in range(16)] + [(edit, False)] * 3 + [(edit, True)]
    checked(found("action_timidity", each(40, ["ls"] * 19 + [edit]), context), "warn")
    checked(found("action_timidity", each(40, refused), context), None)
    # fewer refusals than before make no timidity of a policy that edits more
    before = reading(edit_ratio=0.15, search_ratio=0.7, tool_failure_rate=0.6)
    more = [acting(i // 4, i, ["ls"] * 9 + [edit] * 4 * (i % 2), False) for i in range(40)]
    checked(found("action_timidity", more, HarnessContext(base=before)), None)


def test_transitions_are_against_the_version_before_or_the_first_third_of_the_steps() -> None:
    rs = groups([[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]])
    m = metrics(rs, HarnessContext(before={"t0": 0.9, "t1": 0.6, "t2": 0.2, "t3": 0.0, "elsewhere": 1.0}))
    assert [m[f"transition/{k}"].value for k in ("kept", "lost", "gained", "unsolved")] == [0.25] * 4
    m = metrics([rollout("t0", k, correct=k >= 3, step=k, group=f"g{k}") for k in range(6)])
    assert (m["transition/gained"].value, m["transition/gained"].n) == (1.0, 1)
    assert metrics(groups([[0, 1]]))["transition"].missing


def test_advantages_that_agree_with_the_outcome() -> None:
    def agreement(sign: float) -> float | None:
        rows = [
            rollout(f"t{t}", k, correct=k > 1, advantage=sign if k > 1 else -sign) for t in range(4) for k in range(4)
        ]
        return metrics(rows)["advantage_agreement"].value

    assert (agreement(1.0), agreement(-1.0)) == (1.0, 0.0)
    assert metrics(groups([[0, 1]]))["advantage_agreement"].missing
