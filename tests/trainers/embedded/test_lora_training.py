"""Whole trainings of the embedded trainer with low-rank adapters: resumed, averaged, against a reference, evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from evotrainer.errors import TrainerError
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.records.rollout import Rollout
from evotrainer.trainers.base import EvalRequest, TrainRequest, TrainResult
from evotrainer.trainers.bases import base_of
from evotrainer.trainers.embedded.folder import load_policy, save_policy
from evotrainer.trainers.embedded.lora import Adapters
from evotrainer.trainers.embedded.trainer import EmbeddedTrainer
from evotrainer.trainers.lora import Lora
from tests.trainers.embedded.test_trainer import ME, RICH, SMALL
from tests.trainers.reverse_env import ReverseEnv
from tests.trainers.talk_env import TalkEnv

LORA = Lora(r=4, alpha=8)
FEW = parse_recipe(SMALL.model_dump(mode="json") | {"steps": 4, "lr": 1e-2, "rewards": {"digits": 1.0}})


class CutError(Exception):
    pass


def train(
    base: Path,
    work: Path,
    recipe: Recipe = FEW,
    lora: Lora = LORA,
    on_step: Callable[[Mapping[str, float]], None] = lambda _: None,
    env: Any = None,
) -> TrainResult:
    request = TrainRequest(ME, recipe, base, work, checkpoint_every=2)
    return EmbeddedTrainer(lora=lora).train(request, env or ReverseEnv(), lambda _: None, on_step)


def evaluated(policy: Path) -> list[Rollout]:
    request = EvalRequest(ME, FEW, policy, "search", 4, attempts=4, tasks=32)
    return [r for g in EmbeddedTrainer(lora=LORA).evaluate(request, ReverseEnv(), lambda _: None) for r in g]


def checkpoint(work: Path) -> Mapping[str, Any]:
    state: Mapping[str, Any] = torch.load(work / "checkpoint" / "state.pt", weights_only=True)
    return state


@pytest.mark.parametrize("cut", [2, 3, 5])
def test_a_training_that_was_cut_ends_in_the_same_bits(cut: int, base: Path, tmp_path: Path) -> None:
    more = {"steps": 6, "max_turns": 2, "averaging": {"kind": "ema", "decay": 0.8}, "replay": {"weight": 0.3}}
    recipe = parse_recipe(SMALL.model_dump(mode="json") | RICH | more)
    env = TalkEnv(64, 2)

    def stop(entry: Mapping[str, float]) -> None:
        if entry["step"] == cut:
            raise CutError

    whole = train(base, tmp_path / "whole", recipe, env=env)
    with pytest.raises(CutError):
        train(base, tmp_path / "cut", recipe, on_step=stop, env=env)
    for other in (Lora(r=2, alpha=8), Lora(r=4, alpha=8, targets=("q_proj",))):
        with pytest.raises(TrainerError, match="belongs to another"):
            train(base, tmp_path / "cut", recipe, other, env=env)
    again = train(base, tmp_path / "cut", recipe, env=env)
    assert again.resumed and [e["step"] for e in again.curve] == [1, 2, 3, 4, 5, 6]
    files = [{f.name: f.read_bytes() for f in r.policy_dir.iterdir()} for r in (whole, again)]
    assert files[0] == files[1] and "adapter_model.safetensors" in files[0] and "model.safetensors" not in files[0]
    states = [checkpoint(tmp_path / n) for n in ("whole", "cut")]
    assert torch.equal(states[0]["average"], states[1]["average"])
    assert not torch.equal(states[0]["average"], states[0]["weights"])


def test_the_policy_is_the_mean_of_the_last_adapters(base: Path, tmp_path: Path) -> None:
    mean = parse_recipe(FEW.model_dump(mode="json") | {"averaging": {"kind": "tail_mean", "share": 0.5}})
    work, after = tmp_path / "plain", []
    request = TrainRequest(ME, FEW, base, work, checkpoint_every=1)
    EmbeddedTrainer(lora=LORA).train(
        request, ReverseEnv(), lambda _: None, lambda _: after.append(checkpoint(work)["weights"])
    )
    adapters = Adapters(load_policy(base, trainable=True).policy, LORA, 0)
    adapters.flat.copy_((after[2] + after[3]) / 2)
    adapters.merge()
    got = load_policy(train(base, tmp_path / "mean", mean).policy_dir).policy.flat
    assert torch.allclose(got, adapters.policy.flat, atol=1e-6)
    adapters.flat.copy_(after[3])
    adapters.merge()
    assert (got - adapters.policy.flat).abs().max() > 1e-4, "the mean is another policy than the last one"


def test_the_reference_is_the_policy_below_the_adapters(base: Path, tmp_path: Path) -> None:
    start = load_policy(base).policy.flat
    moved = []
    for beta in (1e-6, 5.0):
        result = train(base, tmp_path / str(beta), FEW.with_factor("kl_beta", beta))
        kl = [e["kl"] for e in result.curve]
        assert abs(kl[0]) < 1e-6 < kl[-1], "adapters begin at the reference, and leave it"
        moved.append((kl[-1], float((load_policy(result.policy_dir).policy.flat - start).norm())))
    assert moved[1][0] < moved[0][0] / 2
    assert torch.equal(load_policy(base).policy.flat, start)


def test_an_adapter_policy_is_evaluated_as_the_whole_one_and_trained_further(base: Path, tmp_path: Path) -> None:
    first = train(base, tmp_path / "first").policy_dir
    loaded = load_policy(first)
    save_policy(loaded.policy, loaded.tokenizer, tmp_path / "merged")
    said = [[r.completion for r in evaluated(p)] for p in (first, first, tmp_path / "merged", base)]
    assert said[0] == said[1] == said[2] != said[3]
    second = train(first, tmp_path / "second", FEW.with_factor("kl_beta", 0.02))
    assert base_of(second.policy_dir) == first and base_of(first) == base
    assert abs(second.curve[0]["kl"]) < 1e-6 < second.curve[-1]["kl"], "its reference is the policy it began with"
    assert [r.completion for r in evaluated(second.policy_dir)] != said[0]
