"""Users' own TRL environments: attempts by TRL's tool loop, unchanged, read back as EvoTrainer's attempts."""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from evotrainer.errors import TaskSetError
from evotrainer.records.rollout import Finish, Outcome, ToolCall, Turn
from evotrainer.trainers.base import TrainerEnvironment
from evotrainer.trainers.rollouts import Attempt
from evotrainer.trainers.trl.attempts import EndedEpisode


class ToolEnvironment(TrainerEnvironment, Protocol):
    """An environment that TRL's own tool loop plays, by its `environment_factory`; `envs.trl_env.TrlEnv` fits."""

    name: str
    environment_factory: type | None
    reward_functions: Mapping[str, Callable[..., Any]]
    components: Mapping[str, str]
    truth: str
    correct_at: float
    conversational: bool
    files: Sequence[Path]

    def as_prompt(self, prompt: Any) -> Any:
        """A row's prompt as the policy is to see it; a class's is messages."""
        ...

    def tool_methods(self) -> list[Callable[..., Any]]:
        """What TRL gives the policy as tools: the methods of an instance; none without a class."""
        ...


def played_by_trl(environment: TrainerEnvironment | Any) -> ToolEnvironment | None:
    """The environment, where it is one that TRL plays."""
    fits = hasattr(environment, "environment_factory") and hasattr(environment, "reward_functions")
    return cast("ToolEnvironment", environment) if fits else None


class Logprob(float):
    """A log-probability that carries its entropy through TRL's loop."""

    entropy: float

    @classmethod
    def of(cls, logprob: float, entropy: float) -> Logprob:
        out = cls(logprob)
        out.entropy = entropy
        return out


@dataclass(frozen=True, slots=True)
class GradedEpisode:
    """What `trainers.records.rollout` reads of a score."""

    components: Mapping[str, float | None]
    outcome: Outcome
    error: str | None = None
    error_kind: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class PlayedBatch:
    """What TRL's loop left behind for one batch."""

    prompts: list[Any] = field(default_factory=list)
    sampled: Any = None
    rewards: list[list[float]] = field(default_factory=list)
    """[rollout][reward function], nan where it does not apply."""


def rows_of(plan: Sequence[tuple[Any, Sequence[int]]], environment: ToolEnvironment) -> list[dict[str, Any]]:
    """A row of the user's for each attempt, as TRL itself would have it: text stays text, messages stay messages. Only
    a class, which is played by tool calls, needs messages: there text becomes one."""
    out = []
    for task, ks in plan:
        prompt = environment.as_prompt(task.data.get("prompt", ""))
        # copies: TRL writes into the rows it is given
        row = {**task.data, "prompt": prompt if isinstance(prompt, str) else [dict(m) for m in prompt]}
        out += [dict(row) for _ in ks]
    return out


def read_back(
    played: PlayedBatch,
    plan: Sequence[tuple[Any, Sequence[int]]],
    environment: ToolEnvironment,
    names: Sequence[str],
    stops: Sequence[int],
) -> list[Attempt]:
    """Attempts of one batch, in the order of its rows. `names`: components by column of the rewards."""
    prompt_ids, ids, masks, completions, logprobs = played.sampled[:5]
    out = []
    for i, (task, k) in enumerate((task, k) for task, ks in plan for k in ks):
        # without tools TRL gives no mask: all of the completion was sampled
        loss = [bool(m) for m in masks[i]] if masks is not None else [True] * len(ids[i])
        # log-probabilities stand at every token; those of tool answers mean nothing
        own = [lp for lp, b in zip(logprobs[i], loss, strict=True) if b]
        completion = (
            completions[i] if isinstance(completions[i], list) else [{"role": "assistant", "content": completions[i]}]
        )
        finish = _finish(completion, [t for t, b in zip(ids[i], loss, strict=True) if b], stops)
        a = Attempt(
            task=task,
            k=k,
            episode=EndedEpisode((*_turns(_messages(played.prompts[i])), *_turns(completion)), finish),
            prompt=tuple(prompt_ids[i]),
            ids=list(ids[i]),
            loss=loss,
            logprobs=[float(lp) for lp in own],
            entropies=[lp.entropy for lp in own if isinstance(lp, Logprob)],
            finish=finish,
        )
        # TRL writes None as NaN into its reward tensor
        values = {n: None if math.isnan(v) else v for n, v in zip(names, played.rewards[i], strict=True)}
        a.score = GradedEpisode(values, _outcome(values.get(environment.truth), environment.correct_at))
        out.append(a)
    return out


def _outcome(true: float | None, correct_at: float) -> Outcome:
    if true is None:
        return "unknown"
    return "correct" if true >= correct_at else "incorrect"


def _finish(completion: Sequence[Mapping[str, Any]], tokens: Sequence[int], stops: Sequence[int]) -> Finish:
    if not tokens or tokens[-1] not in stops:
        return "length"
    # a call that nobody answered: TRL's loop ran out of iterations
    return "turn_limit" if completion and completion[-1].get("tool_calls") else "stop"


def _messages(prompt: Any) -> Sequence[Mapping[str, Any]]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[Turn]:
    out = []
    for i, m in enumerate(messages):
        answers = _following(messages, i)
        calls = tuple(
            ToolCall(
                str(c["function"].get("name", "")),
                json.dumps(c["function"].get("arguments", {}), default=str),
                # TRL puts a tool's exception into its answer as the text of a dict
                None if j >= len(answers) else not str(answers[j].get("content", "")).startswith("{'error':"),
            )
            for j, c in enumerate(m.get("tool_calls") or ())
            if isinstance(c.get("function"), Mapping)
        )
        out.append(Turn(m["role"], str(m.get("content") or ""), calls))
    return out


def _following(messages: Sequence[Mapping[str, Any]], i: int) -> list[Mapping[str, Any]]:
    """The tools' answers right behind a message."""
    out = []
    for m in messages[i + 1 :]:
        if m["role"] != "tool":
            break
        out.append(m)
    return out


def unwrapped_error(e: Exception, environment: ToolEnvironment) -> Exception:
    """The error of the user's own class or function, as such; any other as it is."""
    own = {str(f.resolve()) for f in environment.files}
    # the deepest frame in the user's own files: what TRL did around it is no help to them
    last = [f for f in traceback.extract_tb(e.__traceback__) if str(Path(f.filename).resolve()) in own]
    if not last:
        return e
    return TaskSetError(
        f"environment {environment.name}: {Path(last[-1].filename).name}, line {last[-1].lineno}, {last[-1].name}: "
        f"{type(e).__name__}: {e}; correct it"
    )
