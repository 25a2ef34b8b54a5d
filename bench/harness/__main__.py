"""What reading and backtesting cost: `python -m bench.harness`. CPU-seconds of one thread, fresh process per row."""

from __future__ import annotations

import platform
import random
import subprocess
import sys
import time
from pathlib import Path

from evotrainer.records.rollout import Rollout, Turn

RESULTS = Path(__file__).parent / "results.md"
STEPS = (
    "xs = [x * {a} for x in xs]",
    "xs = [x for x in xs if x > {a}]",
    "xs = sorted(xs)",
    "xs = [x + {a} for x in xs]",
)


def rollouts(n: int, seed: int = 0) -> list[Rollout]:
    """Seeded code rollouts in groups of 8 with 10 recorded tests each, as the code environment writes them."""
    rng = random.Random(seed)
    out = []
    for i in range(n):
        task, k = divmod(i, 8)
        body = "\n".join(rng.choice(STEPS).format(a=rng.randint(2, 40)) for _ in range(rng.randint(1, 4)))
        text = f"xs = list(map(int, input().split()))\n{body}\nprint(max(xs))"
        visible = rng.random() < 0.7
        hidden = visible and rng.random() < 0.8
        tests = [
            {
                "kind": "visible",
                "input": f"3 {task} 4",
                "expected": str(task * 3),
                "got": str(task * 3),
                "status": "ok",
                "passed": visible,
            }
            for _ in range(2)
        ]
        tests += [
            {
                "kind": "hidden",
                "input": "",
                "expected": "0",
                "got": None,
                "status": "error",
                "error": "ValueError: max()",
                "passed": hidden,
            }
            for _ in range(8)
        ]
        out.append(
            Rollout(
                id=f"{task}-{k}", task=f"t{task}", group=f"g{task}", k=k,
                turns=(Turn("user", f"Read integers; scale each by {task}.\n3 {task} 4 -> {task * 3}"),
                       Turn("assistant", text)),
                reward=float(visible), outcome="correct" if hidden else "incorrect", finish="stop",
                components={"visible": float(visible), "hidden": float(hidden), "format": 1.0, "brevity": rng.random()},
                tokens=len(text) // 3, mean_logprob=-0.3, entropy=0.3, detail={"tests": tests},
            )
        )  # fmt: skip
    return out


def measure(what: str, n: int) -> float:
    """CPU-seconds of one operation over n rollouts, after imports and generation."""
    from evotrainer.harness import Harness, HarnessContext
    from evotrainer.harness.whatif.backtest import backtest
    from evotrainer.records.interventions import Intervention, Prediction
    from evotrainer.records.recipe import Recipe

    rs = rollouts(n)
    recipe = Recipe(rewards={"visible": 1.0})
    context = HarnessContext(recipe=recipe, proxy=("visible", "hidden"))
    new: object = {"hidden": 1.0} if what == "rewards" else {"kind": "ema_std"}
    iv = Intervention(
        factor=what, old=None, new=new, hypothesis="h", success_criterion="s", rollback="r",
        prediction=Prediction(metric="accuracy", direction="up", size=0.02),
    )  # fmt: skip
    start = time.process_time()
    if what == "read":
        Harness.default().read(rs, "bench", context)
    else:
        backtest(iv, recipe, rs, context)
    return time.process_time() - start


def main() -> None:
    if len(sys.argv) == 3:
        print(measure(sys.argv[1], int(sys.argv[2])))
        return
    rows = []
    for what, n in (
        ("read", 2_000),
        ("read", 20_000),
        ("rewards", 2_000),
        ("rewards", 100_000),
        ("group_filter", 100_000),
    ):
        cpu = float(
            subprocess.run(
                [sys.executable, "-m", "bench.harness", what, str(n)], check=True, capture_output=True, text=True
            ).stdout
        )
        rows.append((what if what == "read" else f"backtest {what}", n, cpu))
        print(f"{rows[-1][0]:24} {n:>8,} rollouts {cpu:8.2f} CPU-s")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    lines = ["# bench/harness", "", f"{platform.machine()}, Python {platform.python_version()}, one thread, "
             f"2026-11-21, commit {commit}. Imports and generation not counted; every row in a fresh process.", "",
             "| operation | rollouts | CPU-s | rollouts per CPU-s |", "|---|---|---|---|"]  # fmt: skip
    lines += [f"| {what} | {n:,} | {cpu:.2f} | {n / cpu:,.0f} |" for what, n, cpu in rows]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
