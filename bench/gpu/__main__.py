"""`python -m bench.gpu`: a step of the trl trainer beside plain TRL, on a GPU where there is one, else on a CPU.

Same model, prompts, settings and length of completions; the sides take turns in one process. Prints tokens/s, step
time, peak memory, and the overhead; `--write` puts the table into results.md beside this file
(results-gpu.md on a GPU).
"""

from __future__ import annotations

import argparse
import datetime
import math
import platform
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from evotrainer.envs.base import Task
from evotrainer.envs.simple import TextEnv
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.records.store import RolloutStore
from evotrainer.trainers.base import Identity, TrainRequest
from evotrainer.trainers.clock import cpu_now
from evotrainer.trainers.trl.folder import save_folder
from evotrainer.trainers.trl.mapping import config_fields
from evotrainer.trainers.trl.scratch import make_model, make_tokenizer
from evotrainer.trainers.trl.setup import bookkeeping
from evotrainer.trainers.trl.trainer import TrlTrainer

TARGET = 0.03
SMALL = {"d": 256, "layers": 6, "heads": 4, "kv_heads": 2, "hidden": 768, "context": 1024}
LARGE = {"d": 1024, "layers": 28, "heads": 16, "kv_heads": 8, "hidden": 3072, "context": 4096}
"""Layers and widths of Qwen3-0.6B, heads of 64 and a small vocabulary: random weights, nothing to download."""


def digits(task: Task, text: str) -> float:
    """Share of characters that are digits."""
    return sum(c.isdigit() for c in text) / max(1, len(text))


def world(n: int) -> TextEnv:
    def tasks(split: str) -> list[Task]:
        return [Task(f"{split}-{i}", split, f"What is {i * 37 % 91} + {i * 53 % 83}?") for i in range(n)]

    return TextEnv("digits", {s: tasks(s) for s in ("train", "search", "gate", "cert")}, {"digits": digits}, "digits")


@dataclass(frozen=True)
class Side:
    """Seconds of each step but the first, and peak memory."""

    steps: list[float]
    memory_mb: float


class Watch:
    """Seconds between ticks: wall time on a GPU, which it waits for; CPU time on a CPU, where others may be at work."""

    def __init__(self, gpu: bool) -> None:
        self.gpu = gpu
        self.at: list[float] = []
        if gpu:
            torch.cuda.reset_peak_memory_stats()

    def tick(self) -> None:
        if self.gpu:
            torch.cuda.synchronize()
        self.at.append(time.perf_counter() if self.gpu else cpu_now())

    def side(self) -> Side:
        steps = [b - a for a, b in zip(self.at, self.at[1:], strict=False)]
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return Side(steps, torch.cuda.max_memory_allocated() / 2**20 if self.gpu else rss)


def ours(model: Path, recipe: Recipe, options: Mapping[str, Any], work: Path, gpu: bool) -> Side:
    watch = Watch(gpu)
    store = RolloutStore(work / "rollouts")

    request = TrainRequest(Identity("bench", "b0", 1), recipe, model, work, checkpoint_every=10**6)
    TrlTrainer(options).train(request, world(recipe.prompts_per_step * 4), store.append, lambda row: watch.tick())
    store.close()
    return watch.side()


def theirs(model: Path, recipe: Recipe, options: Mapping[str, Any], work: Path, gpu: bool) -> Side:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    watch = Watch(gpu)

    class Ticks(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            watch.tick()

    trainer = TrlTrainer(options)
    request = TrainRequest(Identity("bench", "b0", 1), recipe, model, work)
    device = torch.device("cuda" if gpu else "cpu")
    dtype = torch.bfloat16 if gpu and torch.cuda.is_bf16_supported() else torch.float32
    fields = config_fields(recipe, trainer.options, 1, gpu) | bookkeeping(trainer.options, request, device, dtype)
    prompts = [[{"role": "user", "content": t.prompt}] for t in world(recipe.prompts_per_step * 4).tasks("train")]

    def reward(completions: list[Any], **kwargs: Any) -> list[float]:
        return [digits(Task("", "", ""), c[0]["content"]) for c in completions]

    plain = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
        reward_funcs=[reward],
        args=GRPOConfig(**fields | {"max_completion_length": recipe.max_tokens}),
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        callbacks=[Ticks()],
    )
    plain.remove_callback(PrinterCallback)
    plain.train()
    return watch.side()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("--model", type=Path, help="folder of a model; default: random weights")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64, help="of every completion")
    parser.add_argument("--steps", type=int, default=5, help="of a turn; the first is not counted")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    gpu = torch.cuda.is_available()
    if not gpu:
        torch.set_num_threads(1)
        print("no GPU: a small model on one CPU thread, CPU-seconds; says nothing of a GPU", flush=True)
    recipe = parse_recipe(
        {"steps": args.steps, "prompts_per_step": args.prompts, "group_size": args.group, "max_tokens": args.tokens,
         "lr": 1e-6, "loss": "dapo", "rewards": {"digits": 1.0}}
    )  # fmt: skip
    fixed = {"min_tokens": args.tokens} if args.vllm else {"min_new_tokens": args.tokens}
    options = {"vllm": args.vllm, "config": {"generation_kwargs": fixed}}
    with tempfile.TemporaryDirectory() as tmp:
        model = args.model or made(Path(tmp) / "model", LARGE if gpu else SMALL)
        sides: dict[str, list[Side]] = {"TRL": [], "EvoTrainer": []}
        runs: dict[str, Callable[..., Side]] = {"TRL": theirs, "EvoTrainer": ours}
        for turn in range(args.turns):
            for name in sorted(runs, reverse=bool(turn % 2)):
                side = runs[name](model, recipe, options, Path(tmp) / f"{name}{turn}", gpu)
                sides[name].append(side)
                print(f"turn {turn + 1}, {name}: {median(side.steps):.3f} s/step", flush=True)
        text = report(sides, recipe, model, gpu, args)
    print(text)
    if args.write:
        (Path(__file__).parent / ("results.md" if not gpu else "results-gpu.md")).write_text(text)


def made(folder: Path, shape: dict[str, int]) -> Path:
    tokenizer = make_tokenizer(["What is 1 + 2?"] * 8, (), shape["context"])
    save_folder(folder, [make_model(tokenizer, shape, 0).save_pretrained, tokenizer.save_pretrained])
    return folder


def report(sides: Mapping[str, list[Side]], recipe: Recipe, model: Path, gpu: bool, args: Any) -> str:
    from safetensors import safe_open

    from evotrainer.records.weights import weight_files

    size = 0
    for f in weight_files(model):
        with safe_open(f, "pt") as tensors:
            names = list(tensors.keys())
            size += sum(math.prod(tensors.get_slice(k).get_shape()) for k in names)
    step = {k: median(x for s in v for x in s.steps) for k, v in sides.items()}
    tokens = recipe.prompts_per_step * recipe.group_size * recipe.max_tokens
    pairs = [median(o.steps) / median(t.steps) - 1 for o, t in zip(sides["EvoTrainer"], sides["TRL"], strict=True)]
    overhead = step["EvoTrainer"] / step["TRL"] - 1
    unit = "s" if gpu else "CPU-s"
    device = torch.cuda.get_device_name() if gpu else f"{cpu_model()}, one thread, no GPU"
    rows = [
        f"| {name} | {step[name]:.3f} | {tokens / step[name]:.0f} | {max(s.memory_mb for s in sides[name]):.0f} |"
        for name in sides
    ]
    return "\n".join(
        [
            "# The trl trainer beside plain TRL",
            "",
            f"`python -m bench.gpu --prompts {args.prompts} --group {args.group} --tokens {args.tokens} --steps "
            f"{args.steps} --turns {args.turns}{' --vllm' if args.vllm else ''} --write`, {datetime.date.today()}, "
            f"commit {commit()}; {device}; torch {torch.__version__}, {size / 1e6:.1f} M parameters, "
            f"{recipe.prompts_per_step} prompts x {recipe.group_size} rollouts of {recipe.max_tokens} tokens, dapo, "
            f"{'bfloat16' if gpu else 'fp32'}. Medians over {args.turns} turns of {args.steps - 1} steps, the sides "
            "taking turns in one process. EvoTrainer's side records the log-probability and entropy of every token "
            "and stores every rollout durably.",
            "",
            f"| | {unit}/step | tokens/{unit} | peak memory of the process so far, MB |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Overhead: {100 * overhead:+.1f}% (target: at most {100 * TARGET:.0f}%; by turn: "
            f"{', '.join(f'{100 * p:+.1f}%' for p in pairs)}).",
            *([] if gpu else ["", "No GPU was at hand; what was read on one: h200.md."]),
            "",
        ]
    )


def commit() -> str:
    out = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return out.stdout.strip() or "unknown"


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown CPU"


if __name__ == "__main__":
    main()
