"""`python -m bench.trainer`: one RL step and sampling, ours against TRL and Hugging Face generate, in one process.

One thread, CPU-seconds, the sides take turns. Writes results.md beside this file.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from bench.trainer.ours import gemm_rate, our_sampling, our_steps, unique_share, unmerged
from bench.trainer.theirs import hf_generate, trl_steps
from bench.trainer.workload import GROUP, PROMPTS, base_policy, problems
from evotrainer.trainers import bf16_pays
from evotrainer.trainers.clock import cpu_now
from evotrainer.trainers.embedded.folder import load_policy


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.trainer")
    parser.add_argument("--base", type=Path, help="policy to begin with; default: train it (about a CPU-minute)")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--turns", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        base = args.base or Path(tmp) / "base"
        if not base.exists():
            print("warm start: loss", base_policy(base, 250))
        text = report(base, Path(tmp), args.steps, args.turns)
    print(text)
    (Path(__file__).parent / "results.md").write_text(text)


def report(base: Path, tmp: Path, steps: int, turns: int) -> str:
    theirs: list[dict[str, float]] = []
    ours: list[dict[str, float]] = []
    alone: list[dict[str, float]] = []
    for turn in range(turns):
        theirs += trl_steps(base, steps, tmp / "trl")[1:]
        ours += our_steps(base, steps, tmp / f"ours{turn}")[1:]
        with unmerged():
            alone += our_steps(base, steps, tmp / f"alone{turn}")[1:]
    prompts = [p for p, _, _ in problems(PROMPTS, 5)]
    rates = {
        "until `<eos>`": sampling_rates(base, prompts, None, turns),
        "48 tokens each": sampling_rates(base, prompts, 48, turns),
    }
    shape = load_policy(base).policy.shape
    wide, narrow = gemm_rate(shape, 2048), gemm_rate(shape, 64)
    tokens, nodes, _ = unique_share(base, prompts)
    step_trl, step_ours, step_alone = (median(m[k] for m in x) for x, k in (
        (theirs, "step"), (ours, "step_s"), (alone, "step_s")))  # fmt: skip
    trained = median(m["trained_rollouts"] for m in ours)
    phases = {p: median(m[f"cpu_{p}_s"] for m in ours) for p in ("sample", "grade", "record", "update")}
    weights = shape.parameters()
    share = trained / (PROMPTS * GROUP)
    floor = {"sample": 2 * weights * nodes / narrow, "update": 6 * weights * nodes * share / wide}
    plain = {"sample": 2 * weights * tokens / wide, "update": 6 * weights * tokens / wide}
    lines = [
        "# Trainer benchmark",
        "",
        f"`python -m bench.trainer`, {datetime.date.today()}, commit {commit()}; {cpu_model()}, one thread, "
        f"torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}, native bf16: "
        f"{'yes' if bf16_pays() else 'no'}), fp32. CPU-seconds, medians over {turns} turns of {steps - 1} steps, the "
        f"sides taking turns in one process. Load average {load()}.",
        "",
        f"Policy: {weights / 1e6:.2f} M parameters (d {shape.d}, {shape.layers} layers, {shape.heads} heads, "
        f"{shape.kv_heads} key/value heads, MLP {shape.hidden}, {shape.vocab} tokens). Batch: {PROMPTS} prompts x "
        f"{GROUP} rollouts of sums of five digits, {tokens / PROMPTS / GROUP:.0f} tokens per completion, "
        f"{100 * nodes / tokens:.0f}% of them distinct beginnings, {trained:.0f} of {PROMPTS * GROUP} rollouts with an "
        "advantage. Loss dapo, no KL. Start policy and prompts are the same on both sides.",
        "",
        "## One RL step (sample, grade, update)",
        "",
        "| | CPU-s | times TRL |",
        "|---|---|---|",
        f"| TRL 1.16 `GRPOTrainer` | {step_trl:.3f} (generate {median(m['generate'] for m in theirs):.3f}) | 1.0 |",
        f"| embedded | {step_ours:.3f} | {step_trl / step_ours:.2f} |",
        f"| embedded, beginnings not merged in training | {step_alone:.3f} | {step_trl / step_alone:.2f} |",
        "",
        "## Sampling, batch 128",
        "",
        "| completions | HF generate, tokens/CPU-s | embedded | ratio | every rollout by itself | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name, (hf, mine, single) in rates.items():
        lines.append(f"| {name} | {hf:.0f} | {mine:.0f} | {mine / hf:.2f} | {single:.0f} | {single / hf:.2f} |")
    lines += [
        "",
        "## Where the rest goes",
        "",
        f"GEMM floor: the multiplications of the weights alone, at the measured rate of this policy's own projections "
        f"({wide / 1e9:.0f} GFLOP/CPU-s at 2048 rows, {narrow / 1e9:.0f} at 64 rows). First column: for what we "
        "compute (distinct beginnings, rollouts with an advantage). Second: for every token of every rollout, without "
        "padding, which is what a trainer without those two levers cannot go below.",
        "",
        "| phase | CPU-s | GEMM floor | floor, every token |",
        "|---|---|---|---|",
    ]
    for p, s in phases.items():
        a, b = floor.get(p), plain.get(p)
        lines.append(f"| {p} | {s:.3f} | {'' if a is None else f'{a:.3f}'} | {'' if b is None else f'{b:.3f}'} |")
    total, all_tokens = sum(floor.values()), sum(plain.values())
    lines += [
        f"| whole step | {step_ours:.3f} | {total:.3f} | {all_tokens:.3f} |",
        "",
        f"Without merging and skipping, perfect code would reach {step_trl / all_tokens:.1f}x of TRL at this GEMM "
        "rate.",
        "",
    ]
    return "\n".join(lines)


def sampling_rates(base: Path, prompts: list[str], fixed: int | None, turns: int) -> tuple[float, float, float]:
    """Best tokens per CPU-second of (HF generate, ours, ours with every rollout by itself)."""
    runs = [
        hf_generate(base, prompts, fixed),
        our_sampling(base, prompts, fixed),
        our_sampling(base, prompts, fixed, share=False),
    ]
    best = [0.0] * 3
    for _ in range(1 + 2 * turns):
        for i, run in enumerate(runs):
            best[i] = max(best[i], rate(run))
    return best[0], best[1], best[2]


def rate(run: Callable[[], int]) -> float:
    start = cpu_now()
    tokens = run()
    return tokens / (cpu_now() - start)


def commit() -> str:
    out = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return out.stdout.strip() or "unknown"


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(x.split(":")[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def load() -> str:
    return Path("/proc/loadavg").read_text().split()[0] if Path("/proc/loadavg").exists() else "unknown"


if __name__ == "__main__":
    main()
