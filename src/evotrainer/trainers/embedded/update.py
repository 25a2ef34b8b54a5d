"""One step's policy update: micro-batches, loss, SFT anchor, optimizer."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evotrainer.errors import TrainerError
from evotrainer.records.recipe import Recipe
from evotrainer.trainers.curve import UpdateSums
from evotrainer.trainers.embedded.attempts import EmbeddedAttempt
from evotrainer.trainers.embedded.forward import score
from evotrainer.trainers.embedded.losses import Normaliser, Tokens, policy_loss
from evotrainer.trainers.embedded.optim import Optimizer
from evotrainer.trainers.embedded.packing import Pack, TrainRow, batches, pack, with_common_prompt
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.embedded.tokenizer import PolicyTokenizer
from evotrainer.trainers.replay import ReplayBuffer

MICRO_TOKENS = 4096
"""Most tokens of a micro-batch."""
MICRO_NUMBERS = 300_000_000
"""Most numbers that a micro-batch keeps for its backward pass."""
ANCHOR_DEMOS = 1024
ANCHOR_BATCH = 32


@dataclass(frozen=True, slots=True)
class Example:
    """One rollout with its advantage."""

    attempt: EmbeddedAttempt
    advantage: float
    turns: tuple[float, ...] | None = None
    """Advantages of its turns, where turns are credited; `advantage` is then their mean."""

    @property
    def pulls(self) -> bool:
        """Has it a policy gradient?"""
        return any(self.turns) if self.turns else self.advantage != 0.0

    def by_token(self) -> list[float]:
        """Advantage of each sampled token: its turn's. A turn is a run of sampled tokens."""
        if not self.turns:
            return [self.advantage] * len(self.attempt.logprobs)
        out: list[float] = []
        turn = -1
        for at, sampled in enumerate(self.attempt.loss):
            if sampled:
                turn += not (at and self.attempt.loss[at - 1])
                out.append(self.turns[min(turn, len(self.turns) - 1)])
        return out


@dataclass(slots=True)
class SftDemonstrations:
    """Demonstrations for the SFT loss, drawn with a seeded generator."""

    rows: list[TrainRow]
    rng: random.Random

    @classmethod
    def build(cls, demos: Sequence[tuple[str, ...]], tokenizer: PolicyTokenizer, seed: int) -> SftDemonstrations:
        return cls(demo_rows(demos, tokenizer), random.Random(seed))

    def draw(self) -> list[TrainRow]:
        return self.rng.sample(self.rows, min(ANCHOR_BATCH, len(self.rows)))


def demo_rows(demos: Sequence[tuple[str, ...]], tokenizer: PolicyTokenizer) -> list[TrainRow]:
    """(prompt, action, observation, action, ...) as rows, laid out like `EmbeddedAttempt`; the loss counts actions.

    TrainerError for a demonstration of odd length or without an action.
    """
    return [_demo_row(i, *tokenizer.demonstration(i, d)) for i, d in enumerate(demos)]


def _demo_row(index: int, ids: Sequence[int], loss: Sequence[bool]) -> TrainRow:
    at = loss.index(True)
    rest = tuple(loss[at:])
    return TrainRow(index, tuple(ids[:at]), tuple(ids[at:]), None if all(rest) else rest)


@dataclass(slots=True)
class StepSums(UpdateSums):
    """With the sums over tokens that the losses give."""

    tokens: float = 0.0
    kl: float = 0.0
    clipped: float = 0.0
    trained_rows: int = 0

    def of_step(self, recipe: Recipe) -> dict[str, float]:
        """For the step's curve entry. kl: mean k3 estimate against the start policy, only where kl_beta pays for it."""
        tokens = max(1.0, self.tokens)
        return self.figures(
            self.trained_rows, self.clipped / tokens, {"kl": self.kl / tokens} if recipe.kl_beta > 0 else {}
        )


@dataclass(slots=True)
class _Micro:
    """A micro-batch with what later passes need of the first."""

    batch: Pack
    row_tokens: Tensor
    advantage: Tensor
    sampler: Tensor
    by_token: Tensor | None = None
    """Advantages of the counted tokens, where turns are credited."""
    old: Tensor | None = None
    reference: Tensor | None = None


def micro_tokens(shape: DecoderShape) -> int:
    """Tokens of a micro-batch, at least one: fewer for large policies, whose layers keep more for each."""
    layer = 5 * shape.d + 3 * shape.hidden + 3 * shape.qkv_heads * shape.head_dim
    return max(1, min(MICRO_TOKENS, MICRO_NUMBERS // (shape.layers * layer + 2 * shape.vocab)))


def normaliser(examples: Sequence[Example], recipe: Recipe) -> Normaliser:
    """Counts over the whole batch, skipped rollouts included; truncated ones count as rollouts without tokens."""
    tokens = sum(len(e.attempt.logprobs) for e in examples if not _masked(e, recipe))
    return Normaliser(len(examples), tokens, recipe.max_tokens * recipe.max_turns)


def _masked(e: Example, recipe: Recipe) -> bool:
    return recipe.mask_truncated and e.attempt.finish == "length"


def _micros(policy: Policy, examples: Sequence[Example], recipe: Recipe) -> list[_Micro]:
    """Micro-batches of the rollouts that can move the policy."""
    # advantage 0 has no policy gradient, but KL and entropy terms pull on every rollout
    everything = recipe.kl_beta > 0 or recipe.entropy_bonus != 0
    turns = recipe.credit.kind == "turn"
    rows = [e.attempt.row(i) for i, e in enumerate(examples) if not _masked(e, recipe) and (everything or e.pulls)]
    out = []
    for chunk in batches(rows, micro_tokens(policy.shape)):
        b = pack(with_common_prompt(chunk), policy.shape)
        out.append(
            _Micro(
                batch=b,
                row_tokens=torch.bincount(b.row_of, minlength=len(chunk)).float(),
                advantage=torch.tensor([examples[r.index].advantage for r in chunk]),
                by_token=torch.tensor([x for r in chunk for x in examples[r.index].by_token()]) if turns else None,
                sampler=torch.tensor([x for r in chunk for x in examples[r.index].attempt.logprobs]),
            )
        )
    return out


def update(
    policy: Policy,
    optimizer: Optimizer,
    examples: Sequence[Example],
    recipe: Recipe,
    lr: float,
    reference: Policy | None,
    anchor: SftDemonstrations | None,
    replay: ReplayBuffer | None = None,
) -> StepSums:
    """All passes of one step over its rollouts; one optimizer step per pass."""
    sums = StepSums()
    if not examples:
        return sums
    norm = normaliser(examples, recipe)
    micros = _micros(policy, examples, recipe)
    sums.trained_rows = sum(len(m.batch.rows) for m in micros)
    trained = (examples[i].attempt for m in micros for i in m.batch.rows)
    length = sum(len(a.prompt) + len(a.ids) for a in trained)
    sums.tokens_trained = recipe.updates_per_step * length
    sums.tokens_reference = length if reference is not None else 0
    for number in range(recipe.updates_per_step):
        for m in micros:
            _accumulate(policy, m, recipe, norm, reference, number, sums)
        if anchor is not None:
            rows = anchor.draw()
            sums.sft.append(sft_backward(policy, rows, recipe.sft_anchor))
            sums.tokens_trained += length_of(rows)
        if replay is not None and (again := replay.draw()):
            rows = [TrainRow(0, *r) for r in again]
            sums.replayed.append(sft_backward(policy, rows, recipe.replay.weight))
            sums.tokens_trained += length_of(rows)
        sums.grad_norm = optimizer.step(lr, recipe.grad_clip)
    return sums


def length_of(rows: Iterable[TrainRow]) -> int:
    """Tokens of texts, prompts included."""
    return sum(len(r.prompt) + len(r.tokens) for r in rows)


def _accumulate(
    policy: Policy, m: _Micro, recipe: Recipe, norm: Normaliser, reference: Policy | None, number: int, sums: StepSums
) -> None:
    """Gradient of one micro-batch in pass `number`."""
    logprob, entropy = score(policy, m.batch, recipe.temperature, pulled=recipe.entropy_bonus != 0)
    if reference is not None and m.reference is None:
        with torch.no_grad():
            m.reference = score(reference, m.batch, recipe.temperature, entropy=False)[0]
    parts = policy_loss(
        Tokens(
            logprob=logprob,
            old=m.old,
            row=m.batch.row_of,
            row_tokens=m.row_tokens,
            advantage=m.advantage,
            by_token=m.by_token,
            entropy=entropy,
            reference=m.reference,
            sampler=m.sampler,
        ),
        recipe,
        norm,
    )
    parts.loss.backward()
    # the first pass is on-policy: its log-probabilities are the "old" ones of the later passes (and ratio 1 in this
    # one)
    if number == 0:
        m.old = logprob.detach()
        # trainer against sampler on the same weights: what numerics alone make of it (bf16, caches)
        gap = (m.old - m.sampler).abs()
        sums.gap += float(gap.sum())
        sums.gap_max = max(sums.gap_max, float(gap.max()))
        sums.gap_tokens += gap.numel()
    sums.tokens += logprob.numel()
    sums.kl += parts.kl_sum
    sums.clipped += parts.clipped
    sums.ratio_max = max(sums.ratio_max, parts.ratio_max)
    sums.loss += float(parts.loss.detach())


def sft_backward(policy: Policy, rows: Sequence[TrainRow], weight: float = 1.0) -> float:
    """Accumulate the gradient of weight * mean loss of the counted tokens; returns the mean loss, nats."""
    total = sum(r.counted for r in rows)
    loss = 0.0
    for chunk in batches(rows, micro_tokens(policy.shape)):
        logprob, _ = score(policy, pack(chunk, policy.shape), entropy=False, pulled=False)
        part = -logprob.sum() / total
        (part * weight).backward()
        loss += float(part.detach())
    return loss


def sft_update(
    policy: Policy, optimizer: Optimizer, rows: Sequence[TrainRow], lr: float, grad_clip: float
) -> dict[str, float]:
    """One optimizer step on texts; its part of the curve entry. Without texts, none is made.

    TrainerError for a text that the policy's context does not hold.
    """
    longest = max((len(r.prompt) + len(r.tokens) for r in rows), default=0)
    if longest > policy.shape.context:
        raise TrainerError(
            f"phases: a text of {longest} tokens exceeds the policy's context of {policy.shape.context}; leave that "
            "part out, or train a policy with a longer context"
        )
    out = {"trained_rollouts": float(len(rows))}
    if rows:
        loss = sft_backward(policy, rows)
        out |= {"loss": loss, "sft_loss": loss, "grad_norm": optimizer.step(lr, grad_clip)}
    return out
