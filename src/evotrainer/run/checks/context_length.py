"""Does the policy's context hold what a run gives it: prompts, answers and demonstrations?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evotrainer.envs.base import EnvironmentWithSlots
from evotrainer.envs.return_checks import demonstrations_of
from evotrainer.errors import ConfigError
from evotrainer.executors.warm_start import warm_request, warm_texts
from evotrainer.records.regular_file import read_object
from evotrainer.records.rollout import Turn
from evotrainer.run.checks.base import BeforeRun, Found
from evotrainer.trainers import TRAINERS
from evotrainer.trainers.base import WarmStartRequest, conversational

PROBED = 32
"""Prompts and demonstrations that are measured."""


def context(at: BeforeRun) -> Found:
    """The policy's context holds an answer, and the demonstrations of a warm start, which must be there."""
    if at.fetched:
        return
    task, environment, base = at.task, at.environment, at.base
    warm = task.policy.warm_start
    holds = context_of(base) if base else warm.shape.context
    where = f"the context of {task.policy.base}" if base else "policy.warm_start.shape.context"
    asked = {task.evaluation.protocol.max_tokens or 0: "evaluation.protocol.max_tokens"}
    asked |= {r.max_tokens: "recipe.max_tokens" for r in at.chain}
    if holds is not None and (n := max(asked)) >= holds:
        remedy = "lower it" if base else "lower it, or raise the context"
        raise ConfigError(f"{asked[n]}={n} leaves no room for a prompt in {where}={holds}; {remedy}")
    request = _warm_start(at) if base is None else None
    room = TRAINERS[task.trainer.name].room
    if room is None or at.lacks:
        return
    # prompts that are text reach the policy without a template
    plain = {} if conversational(environment) else {"chat": False}
    policy = base or request
    assert policy is not None
    for max_tokens, begun in _begun(at):
        taken, holds = room(policy, {**task.trainer.options, **plain}, begun)
        if (longest := max(taken, default=0)) > holds - max_tokens:
            raise ConfigError(
                f"a train prompt has {longest} tokens as the policy reads it, and the policy's context of {holds} "
                f"leaves {holds - max_tokens} beside recipe.max_tokens={max_tokens}; lower max_tokens, shorten or "
                "leave out such prompts, or take a policy with a longer context"
            )
    demos = demonstrations_of(environment, PROBED, warm.seed)
    # with the token that ends an answer, which is one of those that max_tokens counts
    answers = [[Turn("user", max(d[1::2], key=len))] for d in demos]
    takes, _ = room(policy, {**task.trainer.options, "chat": False}, answers)
    least = min(r.max_tokens for r in at.chain)
    if cut := sum(n > least for n in takes):
        yield (
            f"recipe.max_tokens={least} is shorter than the answers of {cut} of {len(takes)} demonstrations, which "
            f"take up to {max(takes)} tokens: attempts like these are cut off; raise it to {max(takes)} or more"
        )


def _warm_start(at: BeforeRun) -> WarmStartRequest:
    """ConfigError or TrainerError where a policy cannot be trained from scratch on what the environment offers; else
    what its trainer is asked for."""
    spec, warm = TRAINERS[at.task.trainer.name], at.task.policy.warm_start
    texts = warm_texts(at.environment, warm)
    request = warm_request(at.environment, warm, texts, at.task.trainer.options, out_dir=Path())
    if spec.check_warm_start is not None and not at.lacks:
        spec.check_warm_start(request)
    return request


def _begun(at: BeforeRun) -> Iterator[tuple[int, list[list[Turn]]]]:
    """(max_tokens, what stands before the first answer to each of the longest train prompts) of every recipe that
    samples them. Nothing where only `reset` knows it: of TRL's own loop, of environments that take no other texts."""
    environment = at.environment
    trls_own = getattr(environment, "environment_factory", None) is not None
    if at.task.run.evaluate_only or trls_own or not at.splits.get("train"):
        return
    if not isinstance(environment, EnvironmentWithSlots) or not environment.slots:
        return
    longest = sorted(environment.tasks("train"), key=lambda t: -len(t.prompt))[:PROBED]
    sampling = (r for r in at.chain if not r.phases or any(p.kind != "references" for p in r.phases))
    try:
        for r in {(r.max_tokens, str(r.knobs), str(r.scaffold)): r for r in sampling}.values():
            environment.use_scaffold(r.scaffold)
            yield r.max_tokens, [environment.opening(t, r.knobs) for t in longest]
    finally:
        environment.use_scaffold({})


def context_of(base: Path) -> int | None:
    """Tokens that a policy folder says it holds; None where it does not say."""
    found = read_object(base / "config.json").get("max_position_embeddings")
    return found if isinstance(found, int) else None
