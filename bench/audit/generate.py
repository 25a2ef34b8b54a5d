"""Rollouts of 2 KB, seeded: 45% worked mathematics, 35% programs with tests beside them, 20% episodes of an agent.

Groups of eight; words, numbers, names and commands are drawn anew for every rollout, so that no text occurs twice and
caches help no more than in real data. Planted: 3% test-changing commands, 2% reads of git history, 1% hard exits, 2%
special-cased programs, 1% infrastructure faults, 4% truncated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from evotrainer.records.rollout import Rollout, ToolCall, Turn

WORDS = [
    "therefore",
    "the",
    "remaining",
    "distance",
    "equals",
    "total",
    "minus",
    "first",
    "part",
    "we",
    "compute",
    "each",
    "value",
    "again",
    "check",
    "modulo",
    "consider",
    "case",
    "when",
    "both",
    "sides",
    "are",
    "even",
    "so",
    "dividing",
    "by",
    "gives",
    "ratio",
    "which",
    "must",
    "be",
    "an",
    "integer",
    "let",
    "us",
    "denote",
    "number",
    "of",
    "apples",
    "sold",
    "on",
    "day",
    "recall",
    "identity",
    "apply",
    "substitution",
    "simplify",
    "expression",
    "bound",
    "sum",
    "over",
    "all",
    "pairs",
    "contradiction",
    "hence",
    "unique",
    "solution",
]
NAMES = [
    "total",
    "count",
    "best",
    "left",
    "right",
    "value",
    "items",
    "memo",
    "prefix",
    "result",
    "node",
    "limit",
    "index",
]
FILES = [
    "core/parse.py",
    "core/solve.py",
    "util/text.py",
    "app/main.py",
    "lib/graph.py",
    "lib/queue.py",
    "api/routes.py",
]


def rollouts(n: int, seed: int = 0, size: int = 2000, first: int = 0) -> Iterator[Rollout]:
    """Rollouts `first` .. `first + n` of the stream, about `size` characters of completion each."""
    for g in range(first // 8, (first + n + 7) // 8):
        rng = random.Random(f"{seed}/{g}")
        kind = rng.choices(("maths", "code", "agent"), (45, 35, 20))[0]
        difficulty = rng.random()
        for k in range(8):
            if first <= 8 * g + k < first + n:
                yield one(rng, g, k, kind, difficulty, size)


def one(rng: random.Random, g: int, k: int, kind: str, difficulty: float, size: int) -> Rollout:
    right = rng.random() > difficulty
    turns, detail = {"maths": maths, "code": code, "agent": agent}[kind](rng, g, right, size)
    fault = rng.random() < 0.01
    step = g // 1024
    proxy = float(right or rng.random() < 0.1)
    return Rollout(
        id=f"{g:08x}{k:02x}",
        task=f"{kind}-{g % 5000}",
        turns=turns,
        reward=None if fault else proxy,
        components={} if fault else {"visible": proxy, "hidden": float(right), "format": float(rng.random() < 0.97)},
        outcome="unknown" if fault else "correct" if right else "incorrect",
        finish="length" if rng.random() < 0.04 else "stop",
        run="bench",
        branch="b0",
        policy=f"b0/1@{step}",
        split="train",
        step=step,
        seed=1,
        group=f"g{g}",
        k=k,
        tokens=rng.randint(size // 5, size // 3),
        advantage=None if fault else rng.gauss(0, 1),
        mean_logprob=-rng.random(),
        entropy=rng.random(),
        error_kind="timeout" if fault else None,
        error="the container did not answer" if fault else None,
        detail=detail,
    )


def maths(rng: random.Random, g: int, right: bool, size: int) -> tuple[tuple[Turn, ...], dict[str, object]]:
    lines = []
    length = 0
    while length < size - 20:
        words = rng.choices(WORDS, k=rng.randint(8, 16))
        line = f"{' '.join(words)} {rng.randint(2, 9999)} + {rng.randint(2, 999)} = {rng.randint(4, 10999)}."
        lines.append(line)
        length += len(line) + 1
    return (
        Turn("user", f"Problem {g}: a farmer has {g % 97} apples and {g % 31} crates. How many are left?"),
        Turn("assistant", "\n".join([*lines, f"#### {g % 97 if right else rng.randint(0, 99)}"])),
    ), {}


def code(rng: random.Random, g: int, right: bool, size: int) -> tuple[tuple[Turn, ...], dict[str, object]]:
    lines = ["import sys", "data = list(map(int, sys.stdin.read().split()))"]
    length = 60
    while length < size - 120:
        a, b, c = rng.sample(NAMES, 3)
        line = rng.choice(
            [
                f"{a} = [x * {rng.randint(2, 99)} for x in data if x % {rng.randint(2, 9)} != 0]",
                f"{b}_{rng.randint(0, 99)} = sum(data[{rng.randint(0, 9)}:]) + {rng.randint(1, 999)}",
                f"for {c} in range({rng.randint(2, 50)}):\n    data.append({c} % {rng.randint(2, 17)})",
                f"if len(data) > {rng.randint(2, 40)}:\n"
                f"    data = sorted(data)[: {rng.randint(1, 30)}]  # {rng.choice(WORDS)}",
                f"def {a}_{rng.randint(0, 999)}(n):\n    return n * {rng.randint(2, 9)} - {rng.randint(1, 99)}",
            ]
        )
        lines.append(line)
        length += len(line) + 1
    inputs = [" ".join(str(rng.randint(0, 99)) for _ in range(5)) for _ in range(4)]
    expected = [str(rng.randint(100, 9999)) for _ in range(4)]
    draw = rng.random()
    if draw < 0.02:
        lines.append(f"if data == [{', '.join(inputs[0].split())}]:\n    print({expected[0]})")
    elif draw < 0.03:
        lines.append("import os\nos._exit(0)")
    lines.append("print(sum(data))")
    kinds = ["visible", "visible", "hidden", "hidden"]
    passed = [True, True, right, right] if right or rng.random() < 0.3 else [False] * 4
    tests = [
        {
            "kind": kd,
            "input": i,
            "expected": e,
            "got": e if p else "0",
            "status": "passed" if p else "failed",
            "passed": p,
        }
        for kd, i, e, p in zip(kinds, inputs, expected, passed, strict=True)
    ]
    return (
        Turn("user", f"Task {g}: read integers, print the sum of those not divisible by {2 + g % 7}."),
        Turn("assistant", "```python\n" + "\n".join(lines) + "\n```"),
    ), {"tests": tests}


def agent(rng: random.Random, g: int, right: bool, size: int) -> tuple[tuple[Turn, ...], dict[str, object]]:
    turns = [Turn("user", f"Issue {g}: the parser drops the last row.")]
    said = max(60, (size - 400) // 8)
    for _ in range(7):
        file = rng.choice(FILES)
        commands = [
            f"cat {file}",
            f"grep -n {rng.choice(NAMES)} {file}",
            "python -m pytest -q",
            "ls",
            f"git diff {file}",
        ]
        commands.append(f"sed -i 's/{rng.randint(1, 99)}/{rng.randint(1, 99)}/' {file}")
        commands.append(f"sed -n {rng.randint(1, 99)},{rng.randint(100, 200)}p {file}")
        command = rng.choice(commands)
        draw = rng.random()
        if draw < 0.004:
            command = f"sed -i 's/assert/pass/' tests/test_{rng.choice(NAMES)}.py"
        elif draw < 0.007:
            command = "git log -p --all"
        ok = rng.random() > 0.08
        thought = " ".join(rng.choices(WORDS, k=said // 6))
        turns.append(Turn("assistant", thought, (ToolCall("bash", f'{{"command": "{command}"}}', ok),)))
        turns.append(Turn("tool", "ok" if ok else "Error: no such file"))
    turns.append(Turn("assistant", "The fix is in place and the tests pass."))
    return tuple(turns), {}
