"""`python -m bench.real.step`: one RL step of SmolLM2-135M-Instruct, ours against TRL's, and its floor.

The same batch on both sides: 8 prompts of the task `examples/real/sums` by 8 attempts, the chat template, one thread,
fp32. TRL runs in a process of its own, since its peak memory is measured, too. The floor: what the matrix products of
the tokens that have to be computed take at the rate that one large product reaches on this machine. Each side samples
its own attempts; our gradients are compared with those of autograd through transformers on equal ones, and with TRL's
loss on a small model (tests/trainers/test_trl_parity.py). Writes step.md beside this file.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import torch

from evotrainer.records.rollout import Turn
from evotrainer.trainers.clock import cpu_now
from evotrainer.trainers.embedded.folder import load_policy
from evotrainer.trainers.embedded.forward import score
from evotrainer.trainers.embedded.memory import keep_memory
from evotrainer.trainers.embedded.optim import Optimizer
from evotrainer.trainers.embedded.packing import TrainRow, batches, pack, with_common_prompt
from evotrainer.trainers.embedded.sampler import SamplingParams, sample
from evotrainer.trainers.embedded.update import micro_tokens
from evotrainer.trainers.gguf import gguf_folder

BASE, PROMPTS, GROUP, LR = "smollm2-135m", 8, 8, 2e-5
TASK = Path(__file__).parents[2] / "examples/real/sums/environment.py"


def environment() -> Any:
    """The example's module."""
    spec = importlib.util.spec_from_file_location("real_sums", TASK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def advantages(rewards: list[float]) -> list[float]:
    """Rewards less their group's mean."""
    out: list[float] = []
    for i in range(0, len(rewards), GROUP):
        group = rewards[i : i + GROUP]
        out += [r - sum(group) / GROUP for r in group]
    return out


def ours(tokens: int, steps: int) -> list[dict[str, float]]:
    """CPU-s of each step's parts, and its counts."""
    keep_memory()
    module = environment()
    tasks = module.make_tasks()["train"]
    loaded = load_policy(gguf_folder(BASE), trainable=True)
    policy, tokenizer = loaded.policy, loaded.tokenizer
    optimizer, generator = Optimizer(policy, 0.0), torch.Generator().manual_seed(0)
    params = SamplingParams(tokens, stops=tuple(tokenizer.stops))
    out = []
    for step in range(steps):
        chosen = tasks[step * PROMPTS : (step + 1) * PROMPTS]
        prompts = [tokenizer.prompt([Turn("system", module.INSTRUCTION), Turn("user", t.prompt)]) for t in chosen]
        began = cpu_now()
        s = sample(policy, prompts, GROUP, params, generator)
        sampled = cpu_now()
        texts = [s.tokens[i, : int(s.lengths[i])].tolist() for i in range(PROMPTS * GROUP)]
        rewards = [module.correct(chosen[i // GROUP], tokenizer.decode(t)) for i, t in enumerate(texts)]
        pull = torch.tensor(advantages(rewards))
        rows = [TrainRow(i, tuple(prompts[i // GROUP]), tuple(t)) for i, t in enumerate(texts)]
        total, nodes = sum(map(len, texts)), 0
        graded = cpu_now()
        for chunk in batches(rows, micro_tokens(policy.shape)):  # all rows, also those without an advantage, as TRL
            batch = pack(with_common_prompt(chunk), policy.shape)
            nodes += batch.tokens.shape[0]
            logprob, _ = score(policy, batch, pulled=False)
            (-(logprob * pull[torch.tensor(batch.rows)][batch.row_of]).sum() / total).backward()
        norm = optimizer.step(LR, 1.0)
        ended = cpu_now()
        out.append(
            {"sample": sampled - began, "update": ended - graded, "step": sampled - began + ended - graded,
             "tokens": total, "nodes": nodes, "prompt": sum(map(len, prompts)) / PROMPTS, "norm": norm,
             "reward": sum(rewards) / len(rewards), "peak_gb": peak_gb()}
        )  # fmt: skip
    return out


def theirs(tokens: int, steps: int) -> list[dict[str, float]]:
    """The same of TRL's GRPOTrainer."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    module = environment()
    tasks = module.make_tasks()["train"]
    rows = Dataset.from_list(
        [
            {
                "prompt": [{"role": "system", "content": module.INSTRUCTION}, {"role": "user", "content": t.prompt}],
                "n": i,
            }
            for i, t in enumerate(tasks[: PROMPTS * steps])
        ]
    )
    out: list[dict[str, float]] = []

    def reward(completions: list[Any], n: list[int], **_: Any) -> list[float]:
        return [module.correct(tasks[i], c[-1]["content"]) for c, i in zip(completions, n, strict=True)]

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = cpu_now()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            out.append({"step": cpu_now() - self.began, "peak_gb": peak_gb()})

    folder = gguf_folder(BASE)
    with tempfile.TemporaryDirectory() as tmp:
        config = GRPOConfig(
            output_dir=tmp, per_device_train_batch_size=PROMPTS * GROUP, num_generations=GROUP, max_steps=steps,
            max_completion_length=tokens, learning_rate=LR, beta=0.0, loss_type="dapo", use_cpu=True, bf16=False,
            gradient_checkpointing=False, report_to=[], save_strategy="no", shuffle_dataset=False, disable_tqdm=True,
        )  # fmt: skip
        GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            reward_funcs=reward,
            args=config,
            train_dataset=rows,
            processing_class=AutoTokenizer.from_pretrained(folder),
            callbacks=[Clock()],
        ).train()
    return out


def differences() -> dict[str, float]:
    """Largest differences between our log-probabilities and gradients and those of autograd through transformers."""
    from transformers import AutoModelForCausalLM

    folder = gguf_folder(BASE)
    loaded = load_policy(folder, trainable=True)
    policy, tokenizer = loaded.policy, loaded.tokenizer
    module = environment()
    tasks = module.make_tasks()["train"][:2]
    prompts = [tokenizer.prompt([Turn("system", module.INSTRUCTION), Turn("user", t.prompt)]) for t in tasks]
    s = sample(policy, prompts, 4, SamplingParams(16, stops=tuple(tokenizer.stops)), torch.Generator().manual_seed(1))
    texts = [s.tokens[i, : int(s.lengths[i])].tolist() for i in range(8)]
    batch = pack([TrainRow(i, tuple(prompts[i // 4]), tuple(t)) for i, t in enumerate(texts)], policy.shape)
    logprob, _ = score(policy, batch, pulled=False)
    logprob.mean().backward()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    parts = []
    for i, text in enumerate(texts):
        ids = torch.tensor([[*prompts[i // 4], *text]])
        lp = torch.log_softmax(model(input_ids=ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0]
        parts.append(lp[len(prompts[i // 4]) - 1 :])
    own = torch.cat([logprob.detach()[batch.row_of == batch.rows.index(i)] for i in range(8)])
    gap = float((own - torch.cat(parts).detach()).abs().max())
    torch.cat(parts).mean().backward()
    assert policy.grad is not None
    policy.flat.copy_(policy.grad)
    worst = 0.0
    for name, mine in policy.to_hf().items():
        other = model.get_parameter(name).grad
        if name == "model.embed_tokens.weight":  # transformers gives the padding token's input embedding no gradient
            mine[model.config.pad_token_id] = other[model.config.pad_token_id]
        worst = max(worst, float((mine - other).norm() / other.norm()))
    return {"logprob": gap, "gradient": worst}


def floor(rows: list[dict[str, float]]) -> dict[str, float]:
    """CPU-s of the matrix products alone: 2 per weight and token in sampling, 6 in the update; the output projection
    for attempts' tokens only."""
    shape = load_policy(gguf_folder(BASE)).policy.shape
    a, b = torch.randn(1024, 576), torch.randn(576, 1536)
    torch.mm(a, b)
    began = cpu_now()
    for _ in range(60):
        torch.mm(a, b)
    rate = 60 * 2 * 1024 * 576 * 1536 / (cpu_now() - began)
    head = shape.vocab * shape.d
    body = shape.parameters() - head
    tokens, nodes = median(r["tokens"] for r in rows), median(r["nodes"] for r in rows)
    prompts = PROMPTS * median(r["prompt"] for r in rows)
    sampling = 2 * (body * (prompts + tokens) + head * tokens) / rate
    update = 6 * (body * nodes + head * tokens) / rate
    return {"rate": rate / 1e9, "sample": sampling, "update": update}


def apart(what: str, tokens: int, steps: int) -> list[dict[str, float]]:
    """One side in a process of its own."""
    code = f"import json; from bench.real import step as s; print(json.dumps(s.{what}({tokens}, {steps})))"
    code = f"import torch; torch.set_num_threads(1); {code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{what}: {done.stderr[-2000:]}")
    found: list[dict[str, float]] = json.loads(done.stdout.strip().split("\n")[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.real.step")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64])
    args = parser.parse_args()
    torch.set_num_threads(1)
    gguf_folder(BASE)
    columns = (
        "attempts of at most", "ours: sampling", "update", "step", "TRL: step", "ours / TRL", "floor of the products",
        "ours / floor", "peak memory, ours", "TRL",
    )  # fmt: skip
    lines = [
        "# One RL step of a real language model",
        "",
        f"`python -m bench.real.step`, {datetime.date.today()}, commit {commit()}; "
        f"{platform.processor() or platform.machine()}, one thread, torch {torch.__version__}, fp32. "
        f"SmolLM2-135M-Instruct, {PROMPTS} prompts x {GROUP} attempts of `examples/real/sums` with its chat template. "
        "CPU-seconds, medians; the first step is left out.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for tokens in args.tokens:
        mine, other = apart("ours", tokens, args.steps)[1:], apart("theirs", tokens, args.steps)[1:]
        least = floor(mine)
        step, trl = median(r["step"] for r in mine), median(r["step"] for r in other)
        both = least["sample"] + least["update"]
        sampling, update = (median(r[k] for r in mine) for k in ("sample", "update"))
        cells = [
            f"{tokens} tokens", f"{sampling:.1f}", f"{update:.1f}", f"{step:.1f}", f"{trl:.1f}", f"{step / trl:.2f}",
            f"{both:.1f} ({least['rate']:.0f} GFLOP/s)", f"{step / both:.1f}",
            *(f"{max(r['peak_gb'] for r in rows):.1f} GB" for rows in (mine, other)),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    gaps = differences()
    lines += [
        "",
        "The same 8 attempts through transformers and autograd: log-probabilities differ by at most "
        f"{gaps['logprob']:.1e}, gradients by at most {gaps['gradient']:.1e} of their norm, weight by weight.",
        "",
    ]
    (Path(__file__).parent / "step.md").write_text("\n".join(lines))


def commit() -> str:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
