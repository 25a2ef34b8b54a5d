"""Attempts of a Hugging Face policy at tasks of an environment: reset -> say -> step -> ... -> score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evotrainer.errors import TrainerError
from evotrainer.records.rollout import Finish
from evotrainer.records.text import counted
from evotrainer.trainers.base import TrainerEnvironment
from evotrainer.trainers.chat import ChatCodec
from evotrainer.trainers.rollouts import Attempt, Plan, begin, grade
from evotrainer.trainers.trl.generate import SampledTurn

Sampler = Callable[[Sequence[Sequence[int]]], list[SampledTurn]]
"""One turn for each context, in order."""


@dataclass(slots=True)
class EndedEpisode:
    """What is left of an episode once it is scored."""

    turns: tuple[Any, ...]
    finish: Finish


def run_attempts(
    environment: TrainerEnvironment,
    sampler: Sampler,
    transcript: ChatCodec,
    plan: Plan,
    knobs: Mapping[str, Any],
    max_tokens: int,
    max_turns: int,
    context: int,
    clock: Callable[[str], None],
    cut_prompts: bool = False,
) -> list[Attempt]:
    """Attempts for each (task, ks) of the plan, in order, k by k, scored.

    `context`: tokens that the policy can hold. `clock` is told when a phase ("sample", "grade") ends. `cut_prompts`: a
    prompt that does not fit loses its front, as evaluation harnesses do; otherwise it is a TrainerError.
    """
    out: list[Attempt] = []
    room = context - max_tokens
    for begun in begin(plan, environment, knobs):
        part = [_begin(e, transcript, task, k, room, cut_prompts) for task, k, e in begun]
        clock("grade")
        active = list(part)
        for turn in range(max_turns):
            sampled = sampler([[*a.prompt, *a.ids] for a in active])
            for a, s in zip(active, sampled, strict=True):
                a.add_action(s.ids, s.logprobs, s.entropies, s.stopped)
            clock("sample")
            active = _respond(environment, active, sampled, transcript, room, turn + 1 == max_turns)
            clock("grade")
            if not active:
                break
        grade(environment, part)
        for a in part:
            # episodes may hold processes or sockets; attempts travel between processes (gather_object): they are plain
            a.episode = EndedEpisode(tuple(a.episode.turns), a.episode.finish)
        clock("grade")
        out += part
    return out


def _begin(episode: Any, transcript: ChatCodec, task: Any, k: int, room: int, cut_prompts: bool) -> Attempt:
    prompt = transcript.prompt(episode.turns)
    over = max(0, len(prompt) - room)
    # a training prompt is never cut: the policy would learn to answer questions it did not see
    if over and (not cut_prompts or room < 1):
        raise TrainerError(
            f"task {task.id}: its prompt has {counted(len(prompt), 'token')}, the policy's context leaves {room} "
            "after "
            "max_tokens; lower max_tokens, shorten the prompts or take a policy with a longer context"
        )
    return Attempt(task, k, episode, tuple(prompt[over:]), cut=over)


def _respond(
    environment: TrainerEnvironment,
    active: Sequence[Attempt],
    sampled: Sequence[SampledTurn],
    transcript: ChatCodec,
    room: int,
    last: bool,
) -> list[Attempt]:
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
        if a.add_observation(transcript.observation(new, s.stopped), room, last):
            going.append(a)
    return going
