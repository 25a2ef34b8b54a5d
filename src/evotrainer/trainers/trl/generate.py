"""Sampling with Hugging Face generate, with the log-probability and the entropy of every sampled token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from evotrainer.trainers.clock import LIFE


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """What the policy said in one turn."""

    ids: list[int]
    """With the token that ended it, if one did."""
    logprobs: list[float]
    entropies: list[float]
    """Empty where the sampler does not tell them (vLLM)."""
    stopped: bool


@dataclass(frozen=True, slots=True)
class Sampling:
    max_tokens: int
    temperature: float
    top_p: float
    greedy: bool
    stops: tuple[int, ...]
    pad: int
    batch: int
    """Rows sampled together."""
    extra: Mapping[str, Any]
    """Further fields of GenerationConfig."""

    def config(self) -> GenerationConfig:
        how: dict[str, Any] = {"do_sample": False} if self.greedy else {
            "do_sample": True, "temperature": self.temperature, "top_p": self.top_p, "top_k": 0,
        }  # fmt: skip
        return GenerationConfig(
            max_new_tokens=self.max_tokens,
            eos_token_id=list(self.stops),
            pad_token_id=self.pad,
            disable_compile=True,
            **{**how, **self.extra},
        )


class Recorder(LogitsProcessor):
    """Sees each step's raw logits: log-probabilities of softmax(logits / temperature), before top-p cuts it.

    Keeps one [rows, vocabulary] tensor, until the token that was drawn from it is known.
    """

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self.last: Tensor | None = None
        self.logprobs: list[Tensor] = []
        self.entropies: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        LIFE.give()
        # the token drawn from the last step's logits is the last input of this one
        self.settle(input_ids[:, -1])
        # float32 whatever the model computes in: bf16 log-probabilities have three digits, which a ratio would show
        logp = scores.float()
        logp = torch.log_softmax(logp if self.temperature == 1.0 else logp / self.temperature, -1)
        # entr(p) = -p log p with 0 at p = 0; -(p * log p) would be NaN there
        self.entropies.append(torch.special.entr(logp.exp()).sum(-1))
        self.last = logp
        return scores

    def settle(self, drawn: Tensor) -> None:
        """`drawn`: [rows] tokens drawn from the last logits."""
        if self.last is not None:
            self.logprobs.append(self.last.gather(1, drawn[:, None])[:, 0])
            self.last = None


@torch.no_grad()
def sample(model: Any, prompts: Sequence[Sequence[int]], how: Sampling) -> list[SampledTurn]:
    """One turn for each prompt, in order; rows of similar length are sampled together, from torch's own generator."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    out: dict[int, SampledTurn] = {}
    before = model.generation_config
    # generate() fills what a GenerationConfig leaves open from the model's own, which may say anything.
    model.generation_config = how.config()
    try:
        for at in range(0, len(order), how.batch):
            rows = order[at : at + how.batch]
            out |= zip(rows, _batch(model, [prompts[i] for i in rows], how), strict=True)
    finally:
        model.generation_config = before
    return [out[i] for i in range(len(prompts))]


def _batch(model: Any, prompts: Sequence[Sequence[int]], how: Sampling) -> list[SampledTurn]:
    width = max(len(p) for p in prompts)
    ids = torch.full((len(prompts), width), how.pad)
    mask = torch.zeros_like(ids)
    for i, p in enumerate(prompts):
        # left-padded: generate() appends at the right end of all rows at once
        ids[i, width - len(p) :] = torch.tensor(p)
        mask[i, width - len(p) :] = 1
    recorder = Recorder(how.temperature)
    full = model.generate(
        input_ids=ids.to(model.device),
        attention_mask=mask.to(model.device),
        generation_config=model.generation_config,
        logits_processor=LogitsProcessorList([recorder]),
    )
    recorder.settle(full[:, -1])
    tokens = full[:, width:].tolist()
    logprobs = torch.stack(recorder.logprobs, 1).tolist()
    entropies = torch.stack(recorder.entropies, 1).tolist()
    stops = set(how.stops)
    out = []
    for row, lps, ents in zip(tokens, logprobs, entropies, strict=True):
        # rows that stopped early are padded up to the longest: everything behind the stop token is none of theirs
        end = next((i + 1 for i, t in enumerate(row) if t in stops), None)
        n = len(row) if end is None else end
        out.append(SampledTurn(row[:n], lps[:n], ents[:n], end is not None))
    return out


def padded(
    rows: Sequence[tuple[list[int], list[bool]]], pad: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """(ids, attention mask, labels), each [rows, longest], padded on the right; -100 where the loss does not count."""
    width = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), width), pad, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for i, (tokens, loss) in enumerate(rows):
        n = len(tokens)
        ids[i, :n], mask[i, :n] = torch.tensor(tokens), 1
        labels[i, :n] = torch.where(torch.tensor(loss), ids[i, :n], -100)
    return ids.to(device), mask.to(device), labels.to(device)
