"""`trainers.embedded.attempts`: several turns with kept caches, against sampling each turn from the beginning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bench.envs.tokens import UncachedSampler

from evotrainer.envs.base import Episode, Score, Task
from evotrainer.trainers.embedded import attempts as module
from evotrainer.trainers.embedded import decoder, sampler
from evotrainer.trainers.embedded.attempts import EmbeddedAttempt, run_attempts
from evotrainer.trainers.embedded.folder import load_policy
from evotrainer.trainers.embedded.forward import score
from evotrainer.trainers.embedded.packing import TrainRow, pack
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.sampler import SamplingParams
from evotrainer.trainers.embedded.tokenizer import EOS, Tokenizer
from tests.trainers.reverse_env import ReverseEnv
from tests.trainers.talk_env import MoodyEnv, TalkEnv


@pytest.fixture(scope="module")
def toy(base: Path) -> tuple[Policy, Tokenizer]:
    """The toy policy with room for many turns."""
    loaded = load_policy(base)
    policy = Policy(replace(loaded.policy.shape, context=400))
    policy.flat.copy_(loaded.policy.flat)
    return policy, loaded.tokenizer


@pytest.fixture(scope="module")
def wide(toy: tuple[Policy, Tokenizer]) -> tuple[Policy, Tokenizer]:
    """Untrained, a key/value head for each of three heads; its actions are cut at the limit."""
    shape = replace(toy[0].shape, d=36, layers=3, heads=3, kv_heads=3)
    return Policy(shape).init(3), toy[1]


def attempt(
    model: tuple[Policy, Tokenizer], params: SamplingParams, group: int = 5, env: ReverseEnv | None = None
) -> list[EmbeddedAttempt]:
    env = env or TalkEnv()
    plan = [(t, range(group)) for t in env.tasks("train")]
    return run_attempts(
        env, model[0], model[1], plan, {}, params, 6, torch.Generator().manual_seed(7), lambda phase: None
    )


def same(a: list[EmbeddedAttempt], b: list[EmbeddedAttempt], tolerance: float = 1e-4) -> None:
    """`tolerance`: of float32 summed in another order; 1.3e-5 was seen, it differs between machines."""
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert (x.task.id, x.k, x.prompt, x.ids, x.loss, x.finish) == (
            y.task.id,
            y.k,
            y.prompt,
            y.ids,
            y.loss,
            y.finish,
        )
        assert [t.text for t in x.episode.turns] == [t.text for t in y.episode.turns]
        assert x.logprobs == pytest.approx(y.logprobs, abs=tolerance)
        assert x.entropies == pytest.approx(y.entropies, abs=tolerance)


def turns(a: EmbeddedAttempt) -> int:
    return len(a.episode.turns) // 2


@pytest.mark.parametrize("group", [1, 5])
@pytest.mark.parametrize(
    ("model", "temperature", "top_p"), [("toy", 1.5, 1.0), ("toy", 0.3, 1.0), ("toy", 1.0, 0.9), ("wide", 1.0, 1.0)]
)
def test_kept_caches_change_nothing(
    model: str, temperature: float, top_p: float, group: int, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    m = request.getfixturevalue(model)
    params = SamplingParams(9, temperature, top_p)
    kept = attempt(m, params, group)
    assert {turns(a) for a in kept} >= {2, 3, 4, 5, 6} or group == 1
    assert len({len(a.ids) for a in kept}) > 8, "transcripts of many lengths"
    if model == "toy" and temperature > 1:
        assert len({i == EOS for a in kept for i in a.ids[-1:]}) == 2, "some are cut, some end by themselves"
    monkeypatch.setattr(module, "MultiTurnSampler", UncachedSampler)
    # Temperature divides the logits, and with them what rounding made of them.
    same(kept, attempt(m, params, group), 1e-4 / min(1.0, temperature))


def test_arrangement_of_rows_changes_nothing(toy: tuple[Policy, Tokenizer], monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(9, 1.2)
    kept = attempt(toy, params)
    for below in (0, 1.01):
        with monkeypatch.context() as m:
            m.setattr(sampler, "COMPACT_BELOW", below)
            same(kept, attempt(toy, params))
    with monkeypatch.context() as m:
        m.setattr(decoder, "SLAB_SCORES", 1)
        same(kept, attempt(toy, params))
    bytes_per_row = 2 * 2 * 1 * 16 * 400 * 4
    for rows in (1, 13):
        with monkeypatch.context() as m:
            m.setattr(module, "CACHE_BYTES", rows * bytes_per_row)
            assert module.rows_at_once(toy[0].shape, params, 2) == rows
            same(kept, attempt(toy, params))


def test_attempts_that_begin_differently_keep_their_own_prompts(
    toy: tuple[Policy, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    params = SamplingParams(9, 1.2)
    kept = attempt(toy, params, env=MoodyEnv())
    assert len({a.prompt for a in kept}) > 12
    monkeypatch.setattr(module, "MultiTurnSampler", UncachedSampler)
    same(kept, attempt(toy, params, env=MoodyEnv()))


def test_greedy_attempts_of_a_task_stay_one_node(
    toy: tuple[Policy, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes: list[int] = []
    step = decoder.Decoder.step

    def counted(self: decoder.Decoder, tokens: torch.Tensor) -> torch.Tensor:
        nodes.append(tokens.shape[0])
        return step(self, tokens)

    monkeypatch.setattr(decoder.Decoder, "step", counted)
    rows = attempt(toy, SamplingParams(9, greedy=True), group=5)
    assert len(rows) == 60
    assert max(turns(a) for a in rows) > 3
    assert max(nodes) == 12


@pytest.mark.parametrize("temperature", [1.0, 1.4])
def test_recomputed_logprobs_match_the_samplers_over_all_turns(
    toy: tuple[Policy, Tokenizer], temperature: float
) -> None:
    kept = attempt(toy, SamplingParams(9, temperature))
    assert sum(turns(a) > 3 for a in kept) > 10
    for a in kept:
        lp, entropy = score(toy[0], pack([a.row(0)], toy[0].shape), temperature)
        assert lp.tolist() == pytest.approx(a.logprobs, abs=1e-4)
        assert entropy.tolist() == pytest.approx(a.entropies, abs=1e-4)


def test_bf16_caches_stay_near_fp32_over_all_turns(toy: tuple[Policy, Tokenizer]) -> None:
    kept = attempt(toy, SamplingParams(9, 1.0, dtype=torch.bfloat16))
    late = []
    for a in kept:
        lp, _ = score(toy[0], pack([a.row(0)], toy[0].shape))
        gap = (lp - torch.tensor(a.logprobs)).abs()
        late += gap[len(gap) // 2 :].tolist() if turns(a) > 3 else []
    assert len(late) > 100
    assert 0 < sum(late) / len(late) < 0.03
    assert max(late) < 0.4


def test_packed_transcripts_have_the_loss_and_gradients_of_separate_rows(base: Path) -> None:
    """Groups with one prompt, equal beginnings, different turns: merged into one tree or taken row by row."""
    loaded = load_policy(base, trainable=True)
    policy = Policy(replace(loaded.policy.shape, context=400), trainable=True)
    policy.flat.copy_(loaded.policy.flat)
    rows = [a.row(i) for i, a in enumerate(attempt((policy, loaded.tokenizer), SamplingParams(9, 0.6), 6))]
    weight = torch.randn(len(rows), generator=torch.Generator().manual_seed(1))

    def gradients(parts: list[list[TrainRow]]) -> tuple[dict[int, list[float]], torch.Tensor]:
        assert policy.grad is not None
        policy.grad.zero_()
        found: dict[int, list[float]] = {}
        for part in parts:
            b = pack(part, policy.shape)
            lp, entropy = score(policy, b)
            of = torch.tensor(b.rows)[b.row_of]
            (lp * weight[of] + 0.1 * entropy * weight[of]).sum().backward()
            for i in b.rows:
                found[i] = lp[of == i].tolist()
        return found, policy.grad.clone()

    alone, grad_alone = gradients([[r] for r in rows])
    together, grad_together = gradients([rows[i : i + 30] for i in range(0, len(rows), 30)])
    merged = pack(rows[:30], policy.shape)
    assert merged.tokens.shape[0] - merged.n_prefix < 0.9 * sum(len(r.tokens) for r in rows[:30]), (
        "beginnings are shared"
    )
    for r in rows:
        assert len(alone[r.index]) == r.counted
        assert together[r.index] == pytest.approx(alone[r.index], abs=1e-4)
    assert (grad_alone - grad_together).abs().max() < 1e-4 * grad_alone.abs().max()


class FewAtOnceEnv(TalkEnv):
    """Holds few episodes open together."""

    at_once = 12

    def __init__(self) -> None:
        super().__init__()
        self.open = self.most = 0

    def reset(self, task: Task, knobs: Mapping[str, Any]) -> Episode:
        self.open += 1
        self.most = max(self.most, self.open)
        return super().reset(task, knobs)

    def score(self, episodes: Sequence[Episode]) -> list[Score]:
        self.open -= len(episodes)
        return super().score(episodes)


def test_no_more_episodes_are_open_than_the_environment_holds(toy: tuple[Policy, Tokenizer]) -> None:
    env = FewAtOnceEnv()
    params = SamplingParams(8, greedy=True)
    parts, whole = attempt(toy, params, env=env), attempt(toy, params)
    assert env.most == 10, "groups of 5 stay together"
    same(parts, whole)
    env.at_once = 2
    env.most = 0
    attempt(toy, params, env=env)
    assert env.most == 5, "a group that is larger is a part by itself"
