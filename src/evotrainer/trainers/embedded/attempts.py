"""Attempts at tasks: reset -> sample -> step -> ... -> score, vectorised over all attempts of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from evotrainer.trainers.base import TrainerEnvironment
from evotrainer.trainers.embedded.packing import TrainRow
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.sampler import (
    ROWS,
    MultiTurnSampler,
    Samples,
    SamplingParams,
    draw_uniforms,
)
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.embedded.tokenizer import PolicyTokenizer
from evotrainer.trainers.embedded.weights import Weights
from evotrainer.trainers.rollouts import Attempt, Plan, begin, grade

CACHE_BYTES = 384 << 20
"""Caches of several turns kept at once; more rows are sampled one block after the other."""


class EmbeddedAttempt(Attempt):
    """Transcript: prompt, action, observation, action, ..., each as the policy's tokenizer begins and ends it."""

    def row(self, index: int) -> TrainRow:
        """Training row: everything up to the last sampled token."""
        # what follows the last action (an observation nobody answered) has no loss and would only cost
        end = max(i for i, b in enumerate(self.loss) if b) + 1
        loss = None if all(self.loss[:end]) else tuple(self.loss[:end])
        return TrainRow(index, self.prompt, tuple(self.ids[:end]), loss)


def run_attempts(
    environment: TrainerEnvironment,
    policy: Policy,
    tokenizer: PolicyTokenizer,
    plan: Plan,
    knobs: Mapping[str, Any],
    params: SamplingParams,
    max_turns: int,
    generator: torch.Generator,
    clock: Callable[[str], None],
    cut_prompts: bool = False,
) -> list[EmbeddedAttempt]:
    """Attempts for each (task, ks) of the plan, in order, k by k, scored.

    All groups need the same number of ks. `clock` is told when a phase ("sample", "grade") ends. `cut_prompts`: a
    prompt that does not fit the context loses its front, as evaluation harnesses do; otherwise it is a TrainerError.
    """
    out: list[EmbeddedAttempt] = []
    room = policy.shape.context - params.max_tokens
    for begun in begin(plan, environment, knobs):
        part: list[EmbeddedAttempt] = []
        for task, k, episode in begun:
            prompt = tokenizer.prompt(episode.turns)
            over = max(0, len(prompt) - room) if cut_prompts else 0
            if over and over < len(prompt) - 1:
                prompt = [prompt[0], *prompt[over + 1 :]]
            part.append(EmbeddedAttempt(task, k, episode, tuple(prompt), cut=over))
        clock("grade")
        # drawn for the whole plan before blocks are formed: how rows are batched must not change what is sampled
        uniforms = SamplingNoise(len(part), params.max_tokens, max_turns, generator)
        weights = Weights(policy, params.dtype)
        for rows, group in blocks(part, len(plan[0][1]), rows_at_once(policy.shape, params, max_turns)):
            prompts = [part[i].prompt for i in rows[::group]]
            talk = MultiTurnSampler(weights, prompts, group, params, max_turns > 1)
            for turn in range(max_turns):
                _take([part[i] for i in rows], talk.sample(uniforms.turn(turn)[rows]))
                clock("sample")
                going = _respond(environment, [part[i] for i in rows], tokenizer, room, turn + 1 == max_turns)
                clock("grade")
                if not going:
                    break
                talk.append_observations(list(going), list(going.values()))
                rows = [rows[i] for i in going]
                clock("sample")
        grade(environment, part)
        clock("grade")
        out += part
    return out


def rows_at_once(shape: DecoderShape, params: SamplingParams, max_turns: int) -> int:
    """Rows whose caches stay in memory together."""
    # keys and values of every layer: of one turn its own tokens, of several as long a transcript as is likely, since
    # language models hold far more than they use
    columns = params.max_tokens if max_turns == 1 else min(shape.context, max(1024, 2 * max_turns * params.max_tokens))
    bytes_per_row = 2 * shape.layers * shape.kv_heads * shape.head_dim * columns * params.dtype.itemsize
    return max(1, min(ROWS, CACHE_BYTES // bytes_per_row))


def blocks(attempts: Sequence[EmbeddedAttempt], group: int, rows: int) -> Iterator[tuple[list[int], int]]:
    """(indices of attempts, size of the groups among them that share a prompt),
    neighbours in prompt length together."""
    # an environment that randomises its reset gives a group different prompts: each attempt is then a group of one
    shared = all(a.prompt == attempts[i - i % group].prompt for i, a in enumerate(attempts))
    g = group if shared else 1
    # prefill pads to the longest prompt of a block
    order = sorted(range(0, len(attempts), g), key=lambda i: len(attempts[i].prompt))
    each = max(1, rows // g)
    for at in range(0, len(order), each):
        yield [i + k for i in order[at : at + each] for k in range(g)], g


class SamplingNoise:
    """Random numbers of every attempt, turn and step, the same however attempts are batched."""

    def __init__(self, rows: int, steps: int, turns: int, generator: torch.Generator) -> None:
        self.rows, self.steps = rows, steps
        self.first = draw_uniforms(rows, steps, generator)
        # later turns get generators of their own: the first turn's numbers stay the same whether or not others follow
        self.seed = int(torch.randint(1 << 62, (), generator=generator)) if turns > 1 else 0

    def turn(self, turn: int) -> Tensor:
        """[rows, steps]"""
        if turn == 0:
            return self.first
        return draw_uniforms(self.rows, self.steps, torch.Generator().manual_seed(self.seed + turn))


def _respond(
    environment: TrainerEnvironment,
    active: Sequence[EmbeddedAttempt],
    tokenizer: PolicyTokenizer,
    room: int,
    last: bool,
) -> dict[int, list[int]]:
    """Let the environment answer; observation by index of the attempts that go on. `room`: longest next context."""
    texts = [tokenizer.decode(a.ids[-a.n_action_tokens :]) for a in active]
    seen = [len(a.episode.turns) for a in active]
    environment.step([a.episode for a in active], texts, [a.finish for a in active])
    going = {}
    for i, (a, n) in enumerate(zip(active, seen, strict=True)):
        if a.episode.done:
            continue
        obs = tokenizer.observation(a.episode.turns[n:], a.finish == "stop")
        if a.add_observation(obs, room, last):
            going[i] = obs
    return going


def _take(active: Sequence[EmbeddedAttempt], s: Samples) -> None:
    """Append one turn's samples to their attempts."""
    tokens, lps, ents = s.tokens.tolist(), s.logprobs.tolist(), s.entropies.tolist()
    for a, n, ids, lp, ent, stop in zip(active, s.lengths.tolist(), tokens, lps, ents, s.stopped.tolist(), strict=True):
        a.add_action(ids[:n], lp[:n], ent[:n], stop)
