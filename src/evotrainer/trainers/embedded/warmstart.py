"""Warm start: supervised training of a new (or given) policy on demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from evotrainer.errors import TrainerError
from evotrainer.trainers.clock import cpu_now
from evotrainer.trainers.embedded.folder import Precision, load_policy, save_policy
from evotrainer.trainers.embedded.memory import keep_memory
from evotrainer.trainers.embedded.optim import Optimizer
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.embedded.tokenizer import PolicyTokenizer, build_tokenizer
from evotrainer.trainers.embedded.update import demo_rows, sft_backward
from evotrainer.trainers.schedule import bucketed, warm_rate


@dataclass(frozen=True, slots=True)
class WarmStartResult:
    policy_dir: Path
    parameters: int
    # of 50 steps, since a single batch's loss says which demonstrations it held
    loss: float
    """Mean token loss of the last 50 steps, nats."""
    tokens: int
    """Action tokens seen."""
    cpu_s: float


def warm_start(
    demos: Sequence[tuple[str, ...]],
    words: Sequence[str],
    shape: Mapping[str, int],
    steps: int,
    batch: int,
    lr: float,
    seed: int,
    out_dir: Path,
    on_step: Callable[[dict[str, float]], None] = lambda entry: None,
    vocabulary: str = "",
    start: Path | None = None,
    dtype: Precision = "float32",
) -> WarmStartResult:
    """Train on (prompt, action, observation, action, ...), loss on actions, and save the policy in `out_dir`.

    `words`: multi-character tokens of the vocabulary, named `vocabulary`; `shape`: sizes of `DecoderShape` but the
    vocabulary's. With `start`, continue from that policy; words and shape are then its own. AdamW, linear warm-up,
    cosine to a tenth.
    """
    if not demos:
        raise TrainerError("warm start: no demonstrations; the environment must offer some")
    torch.set_num_threads(1)
    keep_memory()
    if start is None:
        tokenizer: PolicyTokenizer = build_tokenizer(words, vocabulary)
        given: Mapping[str, Any] = shape
        try:
            sizes = DecoderShape(vocab=len(tokenizer), **given)
        except TypeError as e:
            raise TrainerError(
                f"warm start: bad shape ({e}); sizes are d, layers, heads, kv_heads, hidden, context"
            ) from e
        policy = Policy(sizes, trainable=True).init(seed)
    else:
        loaded = load_policy(start, trainable=True)
        policy, tokenizer = loaded.policy, loaded.tokenizer
    rows = demo_rows(demos, tokenizer)
    lengths = [len(r.prompt) + len(r.tokens) for r in rows]
    if (longest := max(lengths)) > policy.shape.context:
        raise TrainerError(
            f"warm start: a demonstration of {longest} tokens exceeds the context of {policy.shape.context}; "
            "raise shape.context or shorten it"
        )
    optimizer = Optimizer(policy, 0.01, (0.9, 0.98))
    began, tokens = cpu_now(), 0
    recent: list[float] = []
    for step, chosen in zip(range(steps), bucketed(lengths, batch, seed), strict=False):
        texts = [rows[i] for i in chosen]
        loss = sft_backward(policy, texts)
        rate = warm_rate(lr, step, steps)
        norm = optimizer.step(rate, 1.0)
        tokens += sum(r.counted for r in texts)
        recent = [*recent[-49:], loss]
        on_step(
            {"step": step + 1.0, "loss": loss, "lr": rate, "grad_norm": norm, "tokens": float(tokens),
             "cpu_s": cpu_now() - began}
        )  # fmt: skip
    save_policy(policy, tokenizer, out_dir, dtype)
    return WarmStartResult(out_dir, policy.shape.parameters(), sum(recent) / len(recent), tokens, cpu_now() - began)
