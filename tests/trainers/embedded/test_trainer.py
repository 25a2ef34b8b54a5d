"""`trainers.embedded.trainer`: whole trainings of a toy policy, learning, determinism, kill -9 and resume, budgets,
faults.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from evotrainer import trainers
from evotrainer.envs.base import Episode, Task
from evotrainer.errors import StoreError, TrainerError
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.trainers import get_trainer
from evotrainer.trainers.base import EvalRequest, Identity, TrainRequest, TrainResult, WarmStartRequest
from evotrainer.trainers.embedded.folder import load_policy
from evotrainer.trainers.embedded.trainer import EmbeddedTrainer
from evotrainer.trainers.embedded.warmstart import warm_start
from tests.thinned import thinned
from tests.trainers.reverse_env import SHAPE, WORDS, GuessDigitEnv, ReverseEnv
from tests.trainers.talk_env import TalkEnv

ME = Identity("run", "b0", 1)
SMALL = Recipe(rewards={"exact": 1.0}, steps=6, prompts_per_step=8, group_size=4, lr=1e-3, max_tokens=8)


def flat(groups: Sequence[Sequence[Rollout]]) -> list[Rollout]:
    return [r for g in groups for r in g]


def train(
    base: Path, work: Path, recipe: Recipe = SMALL, env: Any = None, **kw: Any
) -> tuple[TrainResult, list[Rollout]]:
    rollouts: list[Rollout] = []
    steps: list[float] = []

    def sink(groups: Any) -> None:
        assert len(steps) == len({r.step for r in rollouts}), "rollouts come before the step's curve entry"
        rollouts.extend(flat(groups))

    request = TrainRequest(kw.pop("identity", ME), recipe, base, work, **kw)

    def on_step(entry: Mapping[str, float]) -> None:
        if "reward" in entry:  # a step on references samples nothing
            steps.append(entry["step"])

    result = get_trainer("embedded").train(request, env or ReverseEnv(), sink, on_step)
    return result, rollouts


def test_reward_rises_on_the_toy_task(base: Path, tmp_path: Path) -> None:
    recipe = SMALL.with_factor("steps", 25).with_factor("prompts_per_step", 16).with_factor("group_size", 8)
    result, rollouts = train(base, tmp_path, recipe, ReverseEnv(200))
    score = [e["score"] for e in result.curve]
    assert sum(score[-5:]) / 5 > sum(score[:3]) / 3 + 0.15
    assert len({r.id for r in rollouts}) == len(rollouts) == 25 * 16 * 8
    trainer = EmbeddedTrainer()
    before, after = (
        flat(trainer.evaluate(EvalRequest(ME, recipe, d, "search", s, 4, 100), ReverseEnv(200), lambda g: None))
        for d, s in ((base, 0), (result.policy_dir, 25))
    )
    assert sum(r.outcome == "correct" for r in after) > sum(r.outcome == "correct" for r in before) + 40


def test_the_curve_keeps_the_names_users_read(base: Path, tmp_path: Path) -> None:
    result, rollouts = train(base, tmp_path, SMALL.with_factor("kl_beta", 0.05))
    e = result.curve[-1]
    first = [r for r in rollouts if r.step == 6]
    rewards = [r.reward for r in first if r.reward is not None]
    assert e["step"] == 6
    assert e["reward"] == pytest.approx(sum(rewards) / len(rewards))
    assert e["score"] == pytest.approx(sum(r.outcome == "correct" for r in first) / len(first))
    assert e["completions/mean_length"] == pytest.approx(sum(r.tokens or 0 for r in first) / len(first))
    groups: dict[str, set[float | None]] = {}
    for r in first:
        groups.setdefault(r.group, set()).add(r.reward)
    dead = [g for g in groups.values() if len(g) == 1]
    assert e["frac_reward_zero_std"] == pytest.approx(len(dead) / len(groups))
    assert e["dead_pass"] == pytest.approx(sum(g == {1.0} for g in dead) / len(groups))
    assert e["dead_fail"] == pytest.approx(sum(g == {0.0} for g in dead) / len(groups))
    for name in ("entropy", "kl", "grad_norm", "lr", "ratio_max", "kept_groups", "tokens", "reward_std", "cpu_s",
                 "completions/clipped_ratio", "rewards/exact/mean", "rewards/digits/mean", "cpu_sample_s",
                 "cpu_grade_s", "cpu_update_s", "sampling/sampling_logp_difference/mean"):  # fmt: skip
        assert math.isfinite(e[name]), name
    assert "rewards/never/mean" not in e
    assert e["kl"] > 0
    assert e["sampling/sampling_logp_difference/max"] < 1e-4


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(base: Path, tmp_path: Path) -> None:
    trainer = EmbeddedTrainer()
    runs = [train(base, tmp_path / str(i), identity=replace(ME, seed=s)) for i, s in enumerate((1, 1, 2))]
    one, same, other = (trainer.policy_sha256(r.policy_dir) for r, _ in runs)
    assert one == same != other
    assert [r.id for r in runs[0][1]] == [r.id for r in runs[1][1]]


RICH = {
    "loss": "dapo", "kl_beta": 0.02, "updates_per_step": 2, "sft_anchor": 0.1, "resample": 2, "entropy_bonus": 0.001,
    "group_filter": {"kind": "ema_std"}, "curriculum": {"kind": "pass_rate_band"}, "is_cap": 2.0,
    "schedule": {"kind": "cosine", "warmup": 2}, "length": {"kind": "overlong", "weight": 0.1}, "weight_decay": 0.01,
    "repetition_penalty": 0.1, "reward_scaling": "batch", "mask_truncated": True, "top_p": 0.95, "temperature": 1.1,
    "negative_weight": 0.5,
}  # fmt: skip

CHILD = """
import sys
sys.path.insert(0, {here!r})
from pathlib import Path
from tests.trainers.talk_env import TalkEnv
from tests.trainers.embedded.test_trainer import RICH, SMALL, train
from evotrainer.records.recipe import parse_recipe
recipe = parse_recipe(SMALL.model_dump(mode="json") | RICH | {{"steps": 12, "max_turns": 3}} | {more!r})
result, _ = train(Path({base!r}), Path({work!r}), recipe, TalkEnv(64, 3), checkpoint_every=2)
print("resumed", result.resumed, len(result.curve))
"""


def _child(base: Path, work: Path, more: dict[str, Any]) -> subprocess.Popen[str]:
    code = CHILD.format(here=str(Path(__file__).parents[3]), base=str(base), work=str(work), more=more)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    "more",
    thinned(
        [
            {
                "averaging": {"kind": "ema", "decay": 0.8},
                "curriculum": {"kind": "difficulty", "tag": "first"},
                "credit": {"kind": "turn", "weight": 0.5},
            },
            {
                "averaging": {"kind": "tail_mean", "share": 0.9},
                "curriculum": {"kind": "tag_frontier", "tag": "first"},
                "replay": {"weight": 0.3, "batch": 4, "size": 6, "rare": 1.0},
                "prompt_noise": 0.5,
                "rewards": {"digits": 1.0},
            },
            {"phases": [{"kind": "references", "steps": 4, "batch": 5}, {"kind": "own", "steps": 4}, {"kind": "rl"}]},
        ],
        2,
    ),
    ids=["ema-difficulty-credit", "tail_mean-frontier-replay", "phases"],
)
def test_a_training_killed_midway_resumes_to_bit_identical_weights(
    more: dict[str, Any], base: Path, tmp_path: Path
) -> None:
    """Every stateful factor at once: filter EMA, curriculum, anchor, optimizer, schedule, samplers over several
    turns."""
    recipe = parse_recipe(SMALL.model_dump(mode="json") | RICH | {"steps": 12, "max_turns": 3} | more)
    whole, rollouts = train(base, tmp_path / "whole", recipe, TalkEnv(64, 3))
    assert {len(r.turns) // 2 for r in rollouts} == {1, 2, 3}
    assert max(e.get("sampling/sampling_logp_difference/max", 0.0) for e in whole.curve) < 1e-4
    work = tmp_path / "killed"
    process = _child(base, work, more)
    deadline = time.monotonic() + 120
    while not (work / "checkpoint" / "state.pt").exists():
        assert process.poll() is None, "the child ended before its first checkpoint"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (work / "policy").exists(), "killed before the end"
    done = _child(base, work, more)
    out = done.communicate(timeout=120)[0]
    assert out.split() == ["resumed", "True", "12"]
    trainer = EmbeddedTrainer()
    assert trainer.policy_sha256(work / "policy") == trainer.policy_sha256(whole.policy_dir)


def test_sampling_in_bf16_trains_and_resumes_to_bit_identical_weights(base: Path, tmp_path: Path) -> None:
    class CutError(Exception):
        pass

    def stop(entry: Mapping[str, float]) -> None:
        if entry["step"] == 3:
            raise CutError

    trainer = get_trainer("embedded", "bf16")

    def go(work: Path, on_step: Any = lambda _: None) -> TrainResult:
        request = TrainRequest(ME, SMALL, base, work, checkpoint_every=2)
        return trainer.train(request, ReverseEnv(), lambda _: None, on_step)

    whole = go(tmp_path / "whole")
    with pytest.raises(CutError):
        go(tmp_path / "cut", stop)
    with pytest.raises(TrainerError, match="belongs to another"):  # fp32 does not go on where bf16 began
        train(base, tmp_path / "cut", checkpoint_every=2)
    again = go(tmp_path / "cut")
    assert again.resumed
    assert trainer.policy_sha256(again.policy_dir) == trainer.policy_sha256(whole.policy_dir)
    plain, _ = train(base, tmp_path / "plain", checkpoint_every=2)
    assert trainer.policy_sha256(plain.policy_dir) != trainer.policy_sha256(whole.policy_dir), "it sampled otherwise"
    gap = "sampling/sampling_logp_difference/max"
    assert max(e[gap] for e in whole.curve) > 1e-3 > max(e[gap] for e in plain.curve), "the update recomputes in fp32"


@pytest.mark.parametrize(("has_it", "auto"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_bf16_only_where_the_processor_has_it(has_it: bool, auto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainers, "bf16_pays", lambda: has_it)
    assert [trainers.sampler_dtype(x) for x in ("auto", "bf16", "fp32")] == [auto, "bf16", "fp32"]


def test_a_crash_between_renames_loses_no_checkpoint(base: Path, tmp_path: Path) -> None:
    train(base, tmp_path, SMALL.with_factor("steps", 2))
    (tmp_path / "checkpoint").rename(tmp_path / ".checkpoint.old")
    (tmp_path / ".checkpoint.writing-1").mkdir()
    result, rollouts = train(base, tmp_path, SMALL.with_factor("steps", 2))
    assert result.resumed
    assert not rollouts
    assert not (tmp_path / ".checkpoint.writing-1").exists()


def test_a_checkpoint_of_another_recipe_is_refused(base: Path, tmp_path: Path) -> None:
    train(base, tmp_path, SMALL.with_factor("steps", 1))
    with pytest.raises(TrainerError, match="another recipe, seed or start policy"):
        train(base, tmp_path, SMALL.with_factor("lr", 5e-4))
    (tmp_path / "checkpoint" / "state.pt").write_bytes(b"torn")
    with pytest.raises(StoreError, match="cannot be read"):
        train(base, tmp_path, SMALL.with_factor("steps", 1))


def test_infrastructure_faults_are_no_zero_rewards(base: Path, tmp_path: Path) -> None:
    result, rollouts = train(base, tmp_path, SMALL.with_factor("steps", 2), ReverseEnv(faulty=True))
    faults = [r for r in rollouts if r.error_kind]
    assert 0 < len(faults) < len(rollouts)
    assert all(r.reward is None and r.advantage is None and r.finish == "error" for r in faults)
    good = [r for r in rollouts if r.step == 1 and r.error_kind is None]
    assert result.curve[0]["score"] == pytest.approx(sum(r.outcome == "correct" for r in good) / len(good))
    assert result.curve[0]["errors"] == sum(r.step == 1 for r in faults)


def test_a_filtered_group_gives_no_gradient_and_resampling_replaces_it(base: Path, tmp_path: Path) -> None:
    recipe = SMALL.with_factor("steps", 2).with_factor("group_filter", {"kind": "zero_variance"})
    plain, rollouts = train(base, tmp_path / "a", recipe)
    dead = plain.curve[0]["frac_reward_zero_std"] * plain.curve[0]["groups"]
    assert dead >= 1
    assert plain.curve[0]["kept_groups"] == 8 - dead
    assert sum(r.advantage is None for r in rollouts if r.step == 1) == 4 * dead
    refilled, rollouts = train(base, tmp_path / "b", recipe.with_factor("resample", 8))
    assert refilled.curve[0]["kept_groups"] == 8
    assert refilled.curve[0]["groups"] > 8
    assert len({r.id for r in rollouts}) == len(rollouts)


def test_lighter_negative_advantages_are_recorded_and_train_otherwise(base: Path, tmp_path: Path) -> None:
    plain, before = train(base, tmp_path / "a", SMALL.with_factor("steps", 2))
    light, after = train(base, tmp_path / "b", SMALL.with_factor("steps", 2).with_factor("negative_weight", 0.5))
    first = [(a.advantage or 0.0, b.advantage or 0.0) for a, b in zip(before, after, strict=True) if a.step == 1]
    assert min(a for a, _ in first) < 0 and all(b == (a / 2 if a < 0 else a) for a, b in first)
    assert light.curve[0]["negative_share"] < plain.curve[0]["negative_share"] < 1
    assert EmbeddedTrainer().policy_sha256(light.policy_dir) != EmbeddedTrainer().policy_sha256(plain.policy_dir)


def test_the_trained_policy_is_the_mean_of_the_last_weights_and_the_training_is_the_same(
    base: Path, tmp_path: Path
) -> None:
    recipe = SMALL.with_factor("steps", 4)
    after: list[torch.Tensor] = []
    request = TrainRequest(ME, recipe, base, tmp_path / "plain", checkpoint_every=1)
    state = tmp_path / "plain" / "checkpoint" / "state.pt"
    last = get_trainer("embedded").train(
        request, ReverseEnv(), lambda _: None, lambda _: after.append(torch.load(state)["weights"])
    )
    mean = train(base, tmp_path / "mean", recipe.with_factor("averaging", {"kind": "tail_mean", "share": 0.5}))[0]
    got = load_policy(mean.policy_dir).policy.flat
    assert torch.allclose(got, (after[2] + after[3]) / 2, atol=1e-7) and not torch.equal(got, after[3])
    assert torch.equal(load_policy(last.policy_dir).policy.flat, after[3])
    cost = {"cpu_s", "cpu_sample_s", "cpu_grade_s", "cpu_record_s", "cpu_update_s"}
    plain, same = ([{k: v for k, v in e.items() if k not in cost} for e in x.curve] for x in (last, mean))
    assert plain == same, "sampling goes on with the weights in training"


def test_a_component_that_does_not_apply_is_not_paid_and_noted(base: Path, tmp_path: Path) -> None:
    recipe = SMALL.with_factor("steps", 1).with_factor("rewards", {"exact": 1.0, "never": 1.0})
    _, rollouts = train(base, tmp_path, recipe)
    assert all(r.detail["unpaid"] == ["never"] and r.reward == r.components["exact"] for r in rollouts)


def test_tokens_are_counted_as_they_pass_through_the_network(base: Path, tmp_path: Path) -> None:
    """All texts once for sampling, for the reference policy too, and for each of two updates."""
    recipe = SMALL.with_factor("steps", 2).with_factor("kl_beta", 0.01).with_factor("updates_per_step", 2)
    result, rollouts = train(base, tmp_path, recipe)
    first, last = ((x["tokens_forward"], x["tokens_trained"]) for x in result.curve)
    assert first[0] == first[1] < last[0] == last[1], "read twice, trained on twice"
    assert last[0] / 2 > result.curve[-1]["tokens"] == sum(r.tokens or 0 for r in rollouts), "prompts are read too"
    once = train(base, tmp_path / "once", recipe.with_factor("updates_per_step", 1))[0].curve[0]
    assert (once["tokens_forward"], 2 * once["tokens_trained"]) == first


def test_two_turns_train_on_both_actions_and_not_on_the_observation(base: Path, tmp_path: Path) -> None:
    recipe = SMALL.with_factor("max_turns", 2).with_factor("steps", 2).with_factor("rewards", {"digits": 1.0})
    result, rollouts = train(base, tmp_path, recipe, GuessDigitEnv())
    assert all([t.role for t in r.turns] == ["user", "assistant", "user", "assistant"] for r in rollouts)
    assert result.curve[-1]["grad_norm"] > 0
    assert result.curve[-1]["sampling/sampling_logp_difference/max"] < 1e-4


def test_turns_beyond_the_limit_end_as_turn_limit(base: Path) -> None:
    request = EvalRequest(ME, SMALL, base, "search", 0, 2, 5)
    rollouts = flat(EmbeddedTrainer().evaluate(request, GuessDigitEnv(), lambda g: None))
    assert {r.finish for r in rollouts} == {"turn_limit"}


def test_evaluations_pair_by_seed_and_never_share_ids_by_accident(base: Path) -> None:
    trainer, env = EmbeddedTrainer(keep_tokens=True), ReverseEnv()

    def evaluate(**kw: Any) -> list[Rollout]:
        got: list[Rollout] = []
        request = EvalRequest(**{"identity": ME, "recipe": SMALL, "policy_dir": base, "split": "gate", "step": 0,
                                 "attempts": 3, "tasks": 6} | kw)  # fmt: skip
        out = trainer.evaluate(request, env, lambda groups: got.extend(flat(groups)))
        assert got == flat(out) and all(len({r.group for r in g}) == 1 for g in out)
        return got

    one, again = evaluate(), evaluate()
    assert one == again
    assert [r.task for r in one] == [f"gate-{i}" for i in range(6) for _ in range(3)]
    assert all(len(r.token_ids or ()) == len(r.logprobs or ()) == r.tokens for r in one)
    other_branch = evaluate(identity=replace(ME, branch="b1"))
    assert [r.completion for r in other_branch] == [r.completion for r in one]
    variants = [one, other_branch, evaluate(greedy=True), evaluate(env_knobs={"length": 2}), evaluate(step=3)]
    ids = [r.id for v in variants for r in v]
    assert len(set(ids)) == len(ids)
    greedy = variants[2]
    assert all(len({r.completion for r in greedy[i : i + 3]}) == 1 for i in range(0, 18, 3))


def test_warm_start_is_deterministic_and_can_be_continued(base: Path, tmp_path: Path) -> None:
    demos = ReverseEnv().demonstrations(200, 3)
    trainer = EmbeddedTrainer()
    asked = WarmStartRequest(demos, WORDS, "toy-1", SHAPE, 5, 16, 1e-3, 0, tmp_path / "a")
    a, _ = (warm_start(replace(asked, out_dir=tmp_path / n)) for n in "ab")
    assert trainer.policy_sha256(tmp_path / "a") == trainer.policy_sha256(tmp_path / "b")
    entries: list[dict[str, float]] = []
    more = warm_start(replace(asked, words=(), shape={}, out_dir=tmp_path / "c", start=base), entries.append)
    assert [e["step"] for e in entries] == [1, 2, 3, 4, 5]
    assert more.loss < a.loss - 1
    assert load_policy(tmp_path / "c").tokenizer.strings == load_policy(base).tokenizer.strings


def test_a_demonstration_longer_than_the_context_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="exceeds the context of 64"):
        warm_start(WarmStartRequest([("a" * 60, "b" * 10)], (), "", SHAPE, 1, 1, 1e-3, 0, tmp_path / "x"))
    with pytest.raises(TrainerError, match="bad shape"):
        warm_start(WarmStartRequest([("a", "b")], (), "", {"width": 3}, 1, 1, 1e-3, 0, tmp_path / "x"))


def test_a_full_disk_is_named(base: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="cannot be written"):
        train(base, work, SMALL.with_factor("steps", 1))
    shutil.rmtree(work, ignore_errors=True)


def test_a_prompt_that_does_not_fit_loses_its_front_in_evaluation_and_is_refused_in_training(
    base: Path, tmp_path: Path
) -> None:
    class Talkative(ReverseEnv):
        def reset(self, task: Task, knobs: Mapping[str, Any]) -> Episode:
            return Episode(task, knobs, [Turn("user", "x" * 90 + task.prompt)])

    request = EvalRequest(Identity("r", "b", 1), SMALL, base, "search", 0, attempts=2, tasks=2)
    rollouts = flat(EmbeddedTrainer().evaluate(request, Talkative(), lambda _: None))
    assert [r.detail["prompt_tokens_cut"] > 30 for r in rollouts] == [True] * 4
    assert all(r.turns[0].text.startswith("x" * 90) for r in rollouts), "the record keeps the whole prompt"
    plain = flat(EmbeddedTrainer().evaluate(request, ReverseEnv(), lambda _: None))
    assert all("prompt_tokens_cut" not in r.detail for r in plain)
    with pytest.raises(TrainerError, match="exceed the policy's context"):
        train(base, tmp_path / "w", SMALL, Talkative())
