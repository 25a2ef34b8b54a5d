"""Attempts at tasks: reset -> sample -> step -> ... -> score, vectorised over all attempts of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from evotrainer.errors import TrainerError
from evotrainer.records.rollout import Finish
from evotrainer.trainers.base import World
from evotrainer.trainers.embedded.packing import Row
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.sampler import Samples, SamplingParams, sample
from evotrainer.trainers.embedded.tokenizer import BOS, Tokenizer


@dataclass(slots=True)
class Attempt:
    """One attempt in progress. Transcript: <bos> prompt, action <eos>, <bos> observation, action <eos>, ..."""

    task: Any
    k: int
    episode: Any
    prompt: tuple[int, ...]
    ids: list[int] = field(default_factory=list)
    """What follows the prompt: actions as sampled, observations between them."""
    loss: list[bool] = field(default_factory=list)
    """True at sampled tokens."""
    logprobs: list[float] = field(default_factory=list)
    """Of the sampled tokens."""
    entropies: list[float] = field(default_factory=list)
    finish: Finish = "stop"
    score: Any = None
    cut: int = 0
    """Prompt tokens left out at the front because the context is too short (evaluations only)."""

    @property
    def sampled(self) -> list[int]:
        return [t for t, b in zip(self.ids, self.loss, strict=True) if b]

    def row(self, index: int) -> Row:
        """Training row: everything up to the last sampled token."""
        end = max(i for i, b in enumerate(self.loss) if b) + 1
        loss = None if all(self.loss[:end]) else tuple(self.loss[:end])
        return Row(index, self.prompt, tuple(self.ids[:end]), loss)


def observation(tokenizer: Tokenizer, turns: Sequence[Any]) -> list[int]:
    """<bos> and the text of all turns that are not the policy's."""
    return [BOS, *tokenizer.encode("\n".join(t.text for t in turns if t.role != "assistant"))]


def run_attempts(
    world: World,
    policy: Policy,
    tokenizer: Tokenizer,
    plan: Sequence[tuple[Any, Sequence[int]]],
    knobs: Mapping[str, Any],
    params: SamplingParams,
    max_turns: int,
    generator: torch.Generator,
    clock: Callable[[str], None],
    cut_prompts: bool = False,
) -> list[Attempt]:
    """Attempts for each (task, ks) of the plan, in order, k by k, scored.

    All groups need the same number of ks. `clock` is told when a phase ("sample", "grade") ends. `cut_prompts`: a prompt
    that does not fit the context loses its front, as evaluation harnesses do; otherwise it is a TrainerError.
    """
    out: list[Attempt] = []
    for task, ks in plan:
        for k in ks:
            episode = world.reset(task, knobs)
            prompt = observation(tokenizer, episode.turns)
            over = max(0, len(prompt) + params.max_tokens - policy.shape.context) if cut_prompts else 0
            if over and over < len(prompt) - 1:
                prompt = [BOS, *prompt[over + 1 :]]
            out.append(Attempt(task, k, episode, tuple(prompt), cut=over))
    group = len(plan[0][1])
    clock("grade")
    active = out
    for turn in range(max_turns):
        shared = turn == 0 and all(a.prompt == out[i - i % group].prompt for i, a in enumerate(out))
        contexts = [(*a.prompt, *a.ids) for a in (active[::group] if shared else active)]
        samples = sample(policy, contexts, group if shared else 1, params, generator)
        _take(active, samples)
        clock("sample")
        texts = [tokenizer.decode(a.ids[-n:]) for a, n in zip(active, samples.lengths.tolist(), strict=True)]
        seen = [len(a.episode.turns) for a in active]
        world.step([a.episode for a in active], texts, [a.finish for a in active])
        going = []
        for a, n in zip(active, seen, strict=True):
            if a.episode.done:
                continue
            if turn + 1 == max_turns:
                a.finish = a.episode.finish = "turn_limit"
                a.episode.done = True
                continue
            obs = observation(tokenizer, a.episode.turns[n:])
            if len(a.prompt) + len(a.ids) + len(obs) + params.max_tokens > policy.shape.context:
                a.finish = a.episode.finish = "length"
                a.episode.done = True
                continue
            a.ids += obs
            a.loss += [False] * len(obs)
            going.append(a)
        clock("grade")
        active = going
        if not active:
            break
    scores = world.score([a.episode for a in out])
    if len(scores) != len(out):
        raise TrainerError(f"the environment scored {len(scores)} of {len(out)} episodes; mend its score()")
    for a, s in zip(out, scores, strict=True):
        a.score = s
    clock("grade")
    return out


def _take(active: Sequence[Attempt], s: Samples) -> None:
    """Append one turn's samples to their attempts."""
    tokens, lps, ents = s.tokens.tolist(), s.logprobs.tolist(), s.entropies.tolist()
    for a, n, ids, lp, ent, stop in zip(active, s.lengths.tolist(), tokens, lps, ents, s.stopped.tolist(), strict=True):
        a.ids += ids[:n]
        a.loss += [True] * n
        a.logprobs += lp[:n]
        a.entropies += ent[:n]
        a.finish = "stop" if stop else "length"
