"""Attempts as rollout records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from evotrainer.algorithm.rewards import rewards_of, unpaid
from evotrainer.errors import TaskSetError, TrainerError
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Finish, Rollout, greedy_split, no_reward, rollout_id
from evotrainer.records.scaffold import digest
from evotrainer.records.sealed import SealedSplits
from evotrainer.records.text import counted, quoted
from evotrainer.trainers.base import EvalRequest, Identity, TrainerEnvironment
from evotrainer.trainers.curriculum import tags_of


@dataclass(slots=True)
class Attempt:
    """An attempt, in progress or scored, as every trainer samples it."""

    task: Any
    k: int
    episode: Any
    """Its `turns` and `finish`."""
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
    n_action_tokens: int = 0
    """Tokens of the last action."""

    @property
    def sampled(self) -> list[int]:
        """Ids of the sampled tokens."""
        return [t for t, b in zip(self.ids, self.loss, strict=True) if b]

    def all_logprobs(self) -> list[float]:
        """By position in `ids`, 0 at tokens the policy did not say."""
        it = iter(self.logprobs)
        return [next(it) if b else 0.0 for b in self.loss]

    def add_action(self, ids: Sequence[int], logprobs: list[float], entropies: list[float], stopped: bool) -> None:
        """Append an action."""
        self.ids += ids
        self.loss += [True] * len(ids)
        self.logprobs += logprobs
        self.entropies += entropies
        self.n_action_tokens, self.finish = len(ids), "stop" if stopped else "length"

    def add_observation(self, observation: Sequence[int], room: int, final: bool) -> bool:
        """Does it go on, with the environment's answer at its end? `room`: longest next context; `final`: that was the
        last turn."""
        if final or len(self.prompt) + len(self.ids) + len(observation) > room:
            self.finish = self.episode.finish = "turn_limit" if final else "length"
            self.episode.done = True
            return False
        self.ids += observation
        self.loss += [False] * len(observation)
        return True


def grade(environment: TrainerEnvironment, attempts: Sequence[Attempt]) -> None:
    """Give attempts their scores; TrainerError where the environment has not one for each."""
    scores = environment.score([a.episode for a in attempts])
    if len(scores) != len(attempts):
        n = counted(len(attempts), "episode")
        raise TrainerError(f"the environment scored {len(scores)} of {n}; mend its score()")
    for a, s in zip(attempts, scores, strict=True):
        a.score = s


Plan = Sequence[tuple[Any, Sequence[int]]]
"""(task, ks) of each group of attempts."""


def begin(
    plan: Plan, environment: TrainerEnvironment, knobs: Mapping[str, Any]
) -> Iterator[list[tuple[Any, int, Any]]]:
    """(task, k, episode) of the plan's attempts, in parts of as many as the environment holds open together (its
    `at_once`); the whole where it says nothing. A group stays together.

    All of a part begin before the turns of its first are asked for: harnesses get ready side by side.
    """
    most = getattr(environment, "at_once", None)
    part: list[tuple[Any, int]] = []
    for task, ks in plan:
        if part and most and len(part) + len(ks) > most:
            yield [(t, k, environment.reset(t, knobs)) for t, k in part]
            part = []
        part += [(task, k) for k in ks]
    if part:
        yield [(t, k, environment.reset(t, knobs)) for t, k in part]


@dataclass(frozen=True, slots=True)
class Provenance:
    """What all rollouts of one batch share."""

    identity: Identity
    split: str
    step: int
    version: int
    """Updates the sampling policy had seen."""
    env_knobs: Mapping[str, Any]
    env_hash: str
    sandbox_tier: str | None
    eval_variant: str = ""
    """Sets evaluations apart that would otherwise share ids: greedy ones, overridden knobs, the train split."""
    keep_tokens: bool = False

    @property
    def policy(self) -> str:
        i = self.identity
        return f"{i.branch}/{i.seed}@{self.version}"


def to_evaluate(
    request: EvalRequest, environment: TrainerEnvironment, *, keep_tokens: bool
) -> tuple[list[Any], Provenance]:
    """The tasks of an evaluation, in order, and where its rollouts come from."""
    env_knobs = {**request.recipe.knobs, **request.env_knobs}
    env_hash, tier = environment_facts(environment.describe())
    where = Provenance(
        identity=request.identity,
        split=greedy_split(request.split) if request.greedy else request.split,
        step=request.step,
        version=request.step,
        env_knobs=env_knobs,
        env_hash=env_hash,
        sandbox_tier=tier,
        eval_variant=eval_variant(request.split, request.greedy, request.env_knobs, request.recipe.scaffold),
        keep_tokens=keep_tokens,
    )
    return list(environment.tasks(request.split))[: request.tasks], where


def evaluated(attempts: Iterable[Attempt], where: Provenance, request: EvalRequest) -> list[list[Rollout]]:
    """The groups of an evaluation, whose attempts come task by task."""
    each = iter(attempts)
    groups = []
    while group := list(islice(each, request.attempts)):
        groups.append(rollouts(group, where, request.recipe))
    return groups


def eval_variant(split: str, greedy: bool, knobs: Mapping[str, Any], scaffold: Mapping[str, str]) -> str:
    """Empty for a plain evaluation of a held-out split."""
    parts = []
    if split == "train":
        parts.append("eval")
    if greedy:
        parts.append("greedy")
    if knobs:
        parts.append(json.dumps(dict(knobs), sort_keys=True, default=str))
    if scaffold:
        parts.append(f"texts {digest(scaffold)}")
    return "|".join(parts)


def environment_facts(described: Mapping[str, Any]) -> tuple[str, str | None]:
    """(hash, sandbox tier) as the environment describes itself."""
    tier = described.get("sandbox_tier")
    return str(described.get("hash", "")), None if tier is None else str(tier)


def check_components(recipe: Recipe, offered: Mapping[str, str]) -> None:
    """TrainerError where the recipe pays a component the environment does not compute."""
    unknown = sorted(k for k, w in recipe.rewards.items() if w and k not in offered)
    if unknown:
        raise TrainerError(
            f"rewards: the environment has no component {', '.join(unknown)}; it offers {', '.join(sorted(offered))}"
        )


def refuse_nonsense(a: Attempt, split: str) -> None:
    """TaskSetError where a reward is none: names the function, the task and the attempt, whose text stays untold where
    it is sealed."""
    for name, value in a.score.components.items():
        if why := no_reward(value):
            answer = next((t.text for t in reversed(a.episode.turns) if t.role == "assistant"), "")
            which = f" of {split}" if SealedSplits.covers(split) else f", attempt {a.k} (which says {quoted(answer)})"
            raise TaskSetError(f"reward function {name!r} gave {value} on task {a.task.id}{which}; {why}")


def rollouts(attempts: Sequence[Attempt], p: Provenance, recipe: Recipe, draw: int = 0) -> list[Rollout]:
    """The records of scored attempts at one task. `draw`: how often it was drawn before in the same step."""
    for a in attempts:
        refuse_nonsense(a, p.split)
    sampled = [a.sampled for a in attempts]
    paid = rewards_of(recipe, [a.score.components for a in attempts], sampled)
    return [_rollout(a, ids, reward, p, recipe, draw) for a, ids, reward in zip(attempts, sampled, paid, strict=True)]


def _rollout(a: Attempt, sampled: list[int], reward: float, p: Provenance, recipe: Recipe, draw: int) -> Rollout:
    i, s = p.identity, a.score
    fault = s.error_kind is not None
    detail = dict(s.detail)
    if tags := tags_of(a.task):
        detail["tags"] = dict(tags)
    if absent := unpaid(recipe, s.components):
        detail["unpaid"] = absent
    if a.cut:
        detail["prompt_tokens_cut"] = a.cut
    # evaluations under other knobs are other rollouts of the same trial and step: without it their ids would collide
    key = f"{a.task.id}#{p.eval_variant}" if p.eval_variant else str(a.task.id)
    group = f"{p.policy}/{key}" + (f"+{draw}" if draw else "")
    # the policy's own end (cut by the budget) comes before what the environment made of the episode
    finish: Finish = a.finish if a.finish != "stop" else (a.episode.finish or "stop")
    n = len(sampled)
    return Rollout(
        id=rollout_id(i.run, i.branch, i.seed, p.step, key, a.k),
        task=str(a.task.id),
        turns=tuple(a.episode.turns),
        # None and not 0: a fault is no wrong answer, and must enter no mean and no gradient
        reward=None if fault else reward,
        components=dict(s.components),
        outcome=s.outcome,
        finish="error" if fault else finish,
        run=i.run,
        branch=i.branch,
        policy=p.policy,
        split=p.split,
        step=p.step,
        seed=i.seed,
        group=group,
        k=a.k,
        tokens=n,
        mean_logprob=sum(a.logprobs) / n if n else None,
        entropy=sum(a.entropies) / n if a.entropies else None,
        token_ids=tuple(sampled) if p.keep_tokens else None,
        logprobs=tuple(a.logprobs) if p.keep_tokens else None,
        sandbox_tier=p.sandbox_tier,
        knobs=dict(p.env_knobs),
        env_hash=p.env_hash,
        error=s.error,
        error_kind=s.error_kind,
        detail=detail,
    )
