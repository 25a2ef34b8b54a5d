"""Attempts of a Hugging Face policy at tasks of an environment: reset -> say -> step -> ... -> score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evotrainer.errors import TrainerError
from evotrainer.records.rollout import Finish
from evotrainer.records.text import counted
from evotrainer.trainers.base import TrainerEnvironment
from evotrainer.trainers.trl.chat import ChatCodec
from evotrainer.trainers.trl.generate import SampledTurn

Sampler = Callable[[Sequence[Sequence[int]]], list[SampledTurn]]
"""One turn for each context, in order."""


@dataclass(slots=True)
class EndedEpisode:
    """What is left of an episode once it is scored."""

    turns: tuple[Any, ...]
    finish: Finish


@dataclass(slots=True)
class TrlAttempt:
    """One attempt; `trainers.records.TrlAttempt` says what its fields mean."""

    task: Any
    k: int
    episode: Any
    prompt: list[int]
    ids: list[int] = field(default_factory=list)
    """What follows the prompt: actions as sampled, observations between them."""
    loss: list[bool] = field(default_factory=list)
    """True at sampled tokens."""
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish: Finish = "stop"
    score: Any = None
    cut: int = 0

    @property
    def sampled(self) -> list[int]:
        return [t for t, b in zip(self.ids, self.loss, strict=True) if b]

    def append_turn(self, turn: SampledTurn) -> None:
        self.ids += turn.ids
        self.loss += [True] * len(turn.ids)
        self.logprobs += turn.logprobs
        self.entropies += turn.entropies
        self.finish = "stop" if turn.stopped else "length"

    def all_logprobs(self) -> list[float]:
        """By position in `ids`, 0 at tokens the policy did not say."""
        it = iter(self.logprobs)
        return [next(it) if b else 0.0 for b in self.loss]


def run_attempts(
    environment: TrainerEnvironment,
    sampler: Sampler,
    transcript: ChatCodec,
    plan: Sequence[tuple[Any, Sequence[int]]],
    knobs: Mapping[str, Any],
    max_tokens: int,
    max_turns: int,
    context: int,
    clock: Callable[[str], None],
    cut_prompts: bool = False,
) -> list[TrlAttempt]:
    """Attempts for each (task, ks) of the plan, in order, k by k, scored.

    `context`: tokens that the policy can hold. `clock` is told when a phase ("sample", "grade") ends. `cut_prompts`: a
    prompt that does not fit loses its front, as evaluation harnesses do; otherwise it is a TrainerError.
    """
    room = context - max_tokens
    out = [_begin(environment, transcript, task, k, knobs, room, cut_prompts) for task, ks in plan for k in ks]
    clock("grade")
    active = list(out)
    for turn in range(max_turns):
        sampled = sampler([a.prompt + a.ids for a in active])
        for a, s in zip(active, sampled, strict=True):
            a.append_turn(s)
        clock("sample")
        active = _respond(environment, active, sampled, transcript, room, turn + 1 == max_turns)
        clock("grade")
        if not active:
            break
    scores = environment.score([a.episode for a in out])
    if len(scores) != len(out):
        raise TrainerError(f"the environment scored {len(scores)} of {counted(len(out), 'episode')}; mend its score()")
    for a, s in zip(out, scores, strict=True):
        a.score = s
        # episodes may hold processes or sockets; attempts travel between processes (gather_object) and must be plain
        a.episode = EndedEpisode(tuple(a.episode.turns), a.episode.finish)
    clock("grade")
    return out


def _begin(
    environment: TrainerEnvironment,
    transcript: ChatCodec,
    task: Any,
    k: int,
    knobs: Mapping[str, Any],
    room: int,
    cut_prompts: bool,
) -> TrlAttempt:
    episode = environment.reset(task, knobs)
    prompt = transcript.prompt(episode.turns)
    over = max(0, len(prompt) - room)
    # a training prompt is never cut: the policy would learn to answer questions it did not see
    if over and (not cut_prompts or room < 1):
        raise TrainerError(
            f"task {task.id}: its prompt has {counted(len(prompt), 'token')}, the policy's context leaves {room} "
            "after "
            "max_tokens; lower max_tokens, shorten the prompts or take a policy with a longer context"
        )
    return TrlAttempt(task, k, episode, prompt[over:], cut=over)


def _respond(
    environment: TrainerEnvironment,
    active: Sequence[TrlAttempt],
    sampled: Sequence[SampledTurn],
    transcript: ChatCodec,
    room: int,
    last: bool,
) -> list[TrlAttempt]:
    """Let the environment answer; those that go on, with its answer at their end. `room`: longest next context."""
    seen = [len(a.episode.turns) for a in active]
    actions = [transcript.decode(s.ids) for s in sampled]
    environment.step([a.episode for a in active], actions, [a.finish for a in active])
    going = []
    for a, s, n in zip(active, sampled, seen, strict=True):
        if a.episode.done:
            continue
        # The first of the new turns is the policy's own.
        new = [t for t in a.episode.turns[n:] if t.role != "assistant"]
        obs = transcript.observation(new, s.stopped)
        if last or len(a.prompt) + len(a.ids) + len(obs) > room:
            a.finish = a.episode.finish = "turn_limit" if last else "length"
            a.episode.done = True
            continue
        a.ids += obs
        a.loss += [False] * len(obs)
        going.append(a)
    return going
