"""Tasks of a verifiers (v1) environment, scored by the task's own rewards in this process: `verifiers:ID`.

Single-turn tasks whose rewards need no runtime: no harness, no server, no network but what the task set's own loader
uses. What needs more is refused with what it needs (docs/verifiers.md).
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from evotrainer.envs.base import Episode, Score, Task
from evotrainer.envs.slots import ScaffoldedEnvironment
from evotrainer.envs.verifiers.options import OfVerifiers, VerifiersConfig
from evotrainer.errors import MissingDependencyError, TaskSetError, install
from evotrainer.records.rollout import Finish, Turn
from evotrainer.records.text import cause, clean_text


def load() -> Any:
    """verifiers.v1; MissingDependencyError where it is not installed, or has no v1."""
    try:
        import verifiers.v1 as vf
    except ImportError as e:
        raise MissingDependencyError(
            f"this environment needs verifiers 0.4 (v1); {install('verifiers')} ({e})"
        ) from None
    return vf


class VerifiersEnv(OfVerifiers, ScaffoldedEnvironment):
    """One task set, played here."""

    one_turn = True

    def __init__(self, config: VerifiersConfig) -> None:
        self._vf = load()
        super().__init__(config)
        if config.path and config.path not in sys.path:
            sys.path.insert(0, config.path)  # modules of the folder can be imported from now on
        self._own = self._read()
        about = {r.__name__: inspect.getdoc(r) or "" for r in self._own[0].hooks("reward")}
        self._pay(self._probe(self._own[0]), about)
        own = {t.key: t for t in self._own}
        self._split({k: (t.data.prompt_text, {"task": t}) for k, t in own.items()})

    # -- the task set --------------------------------------------------------------------------------------------

    def _read(self) -> list[Any]:
        """The task set's own tasks, each prompt once."""
        from verifiers.v1.utils import loaders

        try:
            kind, config = loaders.taskset_class(self.id), loaders.taskset_config_type(self.id)
            taskset = kind(config.model_validate({**self.config.taskset, "id": self.id}))
            single = loaders.environment_class(self.id) is self._vf.SingleAgentEnv
        except (ImportError, AttributeError, TypeError) as e:
            raise TaskSetError(
                f"environment {self.name}: {cause(e)}; install its package, or name its folder in environment.path"
            ) from None
        except ValidationError as e:
            raise TaskSetError(f"environment {self.name}: environment.taskset: {cause(e)}") from None
        if not single:
            raise TaskSetError(f"environment {self.name} {NEEDS.format('plays by an Env class of its own')}")
        if kind.toolsets(taskset.config):
            raise TaskSetError(f"environment {self.name} {NEEDS.format('has tool servers')}")
        try:
            found = list(itertools.islice(taskset, self.config.tasks))
        except Exception as e:  # a loader of anybody's: no network, no file, a fault of its own
            raise TaskSetError(f"environment {self.name}: its tasks cannot be loaded: {cause(e)}") from e
        if not found:
            raise TaskSetError(f"environment {self.name} has no tasks")
        if why := lacking(found[0], self._vf):
            raise TaskSetError(f"environment {self.name} {NEEDS.format(why)}")
        if nameless := next((t for t in found if t.data.prompt is None), None):
            raise TaskSetError(f"environment {self.name}: task {nameless.data.idx} has no prompt: a user begins it")
        return list({_text(self._vf, t): t for t in found}.values())

    def _probe(self, task: Any) -> dict[str, float]:
        """The rewards that an empty answer to a task is given, and their weights."""
        trace = self._trace(task, "")
        try:
            asyncio.run(self._scored(task, trace))
        except (self._vf.RolloutError, TimeoutError) as e:
            raise TaskSetError(f"environment {self.name}: its rewards fail on an empty answer: {cause(e)}") from e
        weights = {n: r.weight for n, r in trace.rewards.items() if r is not None}
        if not weights:
            raise TaskSetError(f"environment {self.name}: task {type(task).__name__} has no reward")
        return weights

    # -- an attempt ----------------------------------------------------------------------------------------------

    def opening(self, task: Task, knobs: Mapping[str, Any]) -> list[Turn]:
        """The task's messages; the scaffold's texts stand around the last, its system prompt before the task's."""
        *before, last = messages(self._vf, task.data["task"])
        opened = self._scaffold.opening(last[1])
        own = [Turn(role, text) for role, text in before]
        return [*opened[:-1], *own, opened[-1]]

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        async def all_of_them() -> list[Score]:
            return [await self._score(e) for e in episodes]

        return asyncio.run(all_of_them())

    async def _score(self, e: Episode) -> Score:
        own = e.task.data["task"]
        trace = self._trace(own, e.turns[-1].text if e.done else "", e.finish)
        try:
            await self._scored(own, trace)
        except TimeoutError:
            return self._faulty("timeout", f"the rewards took more than {self._limit(own):g} s")
        except self._vf.RolloutError as fault:
            return self._faulty(type(fault).__name__, cause(fault))
        found = {n: trace.rewards.get(n) for n in self._weights}
        given = [r.value for r in found.values() if r is not None]
        total = sum(given) if len(given) == len(found) else None
        return self._scored_by({n: r and r.score for n, r in found.items()}, total, e, trace.metrics)

    def _limit(self, own: Any) -> float:
        return float(own.data.timeout.scoring or self.config.timeout_s)

    async def _scored(self, own: Any, trace: Any) -> None:
        await asyncio.wait_for(own.score(trace), self._limit(own))

    def _trace(self, own: Any, answer: str, finish: Finish = "stop") -> Any:
        """What verifiers' own rollout of one turn would have recorded."""
        from verifiers.v1.graph import MessageNode
        from verifiers.v1.trace import AgentInfo, TraceTask

        vf = self._vf
        kinds = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}
        asked = [kinds[role](content=text) for role, text in messages(vf, own)]
        nodes = [MessageNode(parent=i - 1 if i else None, message=m) for i, m in enumerate(asked)]
        said = vf.AssistantMessage(content=clean_text(answer))
        nodes.append(MessageNode(parent=len(nodes) - 1, message=said, sampled=True))
        return vf.Trace(
            task=TraceTask(type=type(own).__name__, data=own.data, key=own.key, hash=own.hash),
            agent=AgentInfo(config=vf.AgentConfig()),
            nodes=nodes,
            is_completed=True,
            ok=True,
            stop_condition="agent_completed" if finish == "stop" else "max_tokens",
        )

    def _hash(self) -> str:
        return self._hash_of(self.id)


NEEDS = '{}: it needs a harness; set environment.harness = "chat" or another (docs/verifiers.md)'
"""What is said of tasks that cannot be scored here."""


def lacking(task: Any, vf: Any) -> str:
    """What a task needs beyond its answer; empty: nothing."""
    kind = type(task)
    if kind.NEEDS_CONTAINER or task.data.image:
        return "runs its tasks in a container"
    for hook in ("setup", "finalize"):
        if getattr(kind, hook) is not getattr(vf.Task, hook):
            return f"prepares its runtime ({kind.__name__}.{hook})"
    if kind.toolsets(task.config):
        return "has tool servers"
    if task.config.judges:
        return "asks a judge model"
    for reward in task.hooks("reward"):
        runtime = inspect.signature(reward).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            return f"has a reward that needs a runtime ({reward.__name__})"
    return ""


def messages(vf: Any, task: Any) -> list[tuple[Any, str]]:
    """(role, text) of what a task asks, its system prompt first."""
    from verifiers.v1.types import content_text

    data = task.data
    prompt = [("user", data.prompt)] if isinstance(data.prompt, str) else []
    if not prompt:
        prompt = [(m.role, content_text(m.content or "")) for m in data.prompt]
    if other := {role for role, _ in prompt} - {"system", "user", "assistant"}:
        raise TaskSetError(
            f"task {data.idx} begins with a message of role {min(other)}; those of a tool need a harness"
        )
    return [*([("system", data.system_prompt)] if data.system_prompt else []), *prompt]


def _text(vf: Any, task: Any) -> str:
    return json.dumps(messages(vf, task))
