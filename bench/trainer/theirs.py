"""TRL's GRPOTrainer and Hugging Face's generate on the same work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch

from bench.trainer.workload import GROUP, MAX_TOKENS, PROMPTS, RECIPE, problems, reward
from evotrainer.trainers.clock import cpu_now


def trl_steps(folder: Path, steps: int, out: Path) -> list[dict[str, float]]:
    """CPU-seconds of each training step, whole, and its generation and loss parts."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    rows = problems(4000, 7)
    data = Dataset.from_dict({"prompt": [p for p, _, _ in rows], "answer": [a for _, _, a in rows]})
    marks: list[dict[str, float]] = []
    parts = {"generate": 0.0, "loss forward": 0.0}

    class Timed(GRPOTrainer):
        def _generate(self, prompts: list[str]) -> Any:
            return _timed(parts, "generate", lambda: super(Timed, self)._generate(prompts))

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            return _timed(parts, "loss forward", lambda: super(Timed, self)._compute_loss(model, inputs))

    class Steps(TrainerCallback):
        def on_step_begin(self, *args: Any, **kw: Any) -> None:
            # on_step_begin comes after the batch of the step was fetched and, in TRL, before it is generated
            self.start = cpu_now()
            for k in parts:
                parts[k] = 0.0

        def on_step_end(self, *args: Any, **kw: Any) -> None:
            marks.append({"step": cpu_now() - self.start, **parts})

    def exact(completions: list[str], answer: list[str], **kw: Any) -> list[float]:
        return [reward(c, a) for c, a in zip(completions, answer, strict=True)]

    config = GRPOConfig(
        output_dir=str(out),
        max_steps=steps,
        per_device_train_batch_size=PROMPTS * GROUP,
        gradient_accumulation_steps=1,
        num_generations=GROUP,
        max_completion_length=MAX_TOKENS,
        learning_rate=RECIPE.lr,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=RECIPE.schedule.warmup,
        adam_beta2=0.95,
        max_grad_norm=1.0,
        loss_type="dapo",
        scale_rewards="group",
        beta=0.0,
        temperature=1.0,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_steps=10_000,
        disable_tqdm=True,
        seed=1,
    )
    trainer = Timed(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=exact,
        args=config,
        train_dataset=data,
        processing_class=AutoTokenizer.from_pretrained(folder),
        callbacks=[Steps()],
    )
    trainer.train()
    return marks


def _timed(parts: dict[str, float], name: str, f: Callable[[], Any]) -> Any:
    start = cpu_now()
    out = f()
    parts[name] += cpu_now() - start
    return out


def hf_generate(folder: Path, prompts: list[str], fixed: int | None) -> Callable[[], int]:
    """A function that samples GROUP completions of each prompt and returns the number of tokens.

    `fixed`: exactly so many tokens each; None: until <eos>, at most MAX_TOKENS.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tok = AutoTokenizer.from_pretrained(folder)
    batch = tok([p for p in prompts for _ in range(GROUP)], return_tensors="pt", padding=True)
    limit = fixed or MAX_TOKENS
    kw: dict[str, Any] = {"min_new_tokens": limit} if fixed else {}

    def run() -> int:
        with torch.no_grad():
            out = model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                max_new_tokens=limit,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                **kw,
            )
        return int((out[:, batch["input_ids"].shape[1] :] != tok.pad_token_id).sum())

    return run
