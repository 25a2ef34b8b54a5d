"""Warm start: supervised training of a new (or given) policy on demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from evotrainer.errors import TrainerError
from evotrainer.trainers.base import WarmStartRequest
from evotrainer.trainers.clock import cpu_now
from evotrainer.trainers.embedded.folder import load_policy, save_policy
from evotrainer.trainers.embedded.memory import keep_memory
from evotrainer.trainers.embedded.optim import Optimizer
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.embedded.tokenizer import PolicyTokenizer, build_tokenizer
from evotrainer.trainers.embedded.update import demo_rows, sft_backward
from evotrainer.trainers.schedule import bucketed, warm_rate


@dataclass(frozen=True, slots=True)
class WarmStartResult:
    # of 50 steps, since a single batch's loss says which demonstrations it held
    loss: float
    """Mean token loss of the last 50 steps, nats."""
    tokens: int
    """Action tokens seen."""


def warm_start(
    request: WarmStartRequest, on_step: Callable[[dict[str, float]], None] = lambda entry: None
) -> WarmStartResult:
    """Train as asked and save the policy in `out_dir`. With `start`, words and shape are that policy's own.

    AdamW, linear warm-up, cosine to a tenth.
    """
    if not request.texts:
        raise TrainerError("warm start: no demonstrations; the environment must offer some")
    torch.set_num_threads(1)
    keep_memory()
    if request.start is None:
        tokenizer: PolicyTokenizer = build_tokenizer(request.words, request.vocabulary)
        given: Mapping[str, Any] = request.shape
        try:
            sizes = DecoderShape(vocab=len(tokenizer), **given)
        except TypeError as e:
            raise TrainerError(
                f"warm start: bad shape ({e}); sizes are d, layers, heads, kv_heads, hidden, context"
            ) from e
        policy = Policy(sizes, trainable=True).init(request.seed)
    else:
        loaded = load_policy(request.start, trainable=True)
        policy, tokenizer = loaded.policy, loaded.tokenizer
    rows = demo_rows(request.texts, tokenizer)
    lengths = [len(r.prompt) + len(r.tokens) for r in rows]
    if (longest := max(lengths)) > policy.shape.context:
        raise TrainerError(
            f"warm start: a demonstration of {longest} tokens exceeds the context of {policy.shape.context}; "
            "raise shape.context or shorten it"
        )
    optimizer = Optimizer(policy, 0.01, (0.9, 0.98))
    began, tokens = cpu_now(), 0
    recent: list[float] = []
    for step, chosen in zip(range(request.steps), bucketed(lengths, request.batch, request.seed), strict=False):
        texts = [rows[i] for i in chosen]
        loss = sft_backward(policy, texts)
        rate = warm_rate(request.lr, step, request.steps)
        norm = optimizer.step(rate, 1.0)
        tokens += sum(r.counted for r in texts)
        recent = [*recent[-49:], loss]
        on_step(
            {"step": step + 1.0, "loss": loss, "lr": rate, "grad_norm": norm, "tokens": float(tokens),
             "cpu_s": cpu_now() - began}
        )  # fmt: skip
    save_policy(policy, tokenizer, request.out_dir, request.dtype)
    return WarmStartResult(sum(recent) / len(recent), tokens)
