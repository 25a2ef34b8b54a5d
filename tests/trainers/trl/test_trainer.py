"""The trl trainer on a small Qwen3 policy: what is stored, what the loss counts, and that nothing depends on a kill."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from evotrainer.errors import ConfigError, TrainerError
from evotrainer.records.hooks import HookCaller
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.records.rollout import Rollout
from evotrainer.sandbox.reward_runner import RewardRunner
from evotrainer.testing import check_trainer
from evotrainer.trainers.base import EvalRequest, Identity, TrainerEnvironment, TrainRequest, TrainResult
from evotrainer.trainers.continued import read_note, train_chain
from evotrainer.trainers.trl.trainer import TrlTrainer
from tests.trainers.reverse_env import GuessDigitEnv, ReverseEnv
from tests.trainers.test_hooks import GRPO, LIVE
from tests.trainers.trl.small_policy import make

pytest.importorskip("trl", reason="TRL is an extra: pip install 'evotrainer[trl]'")
pytestmark = pytest.mark.xdist_group("trl")

ENV = ReverseEnv(n=16, length=1)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("trl") / "base")


def recipe(**factors: Any) -> Recipe:
    plain = {"steps": 2, "prompts_per_step": 4, "group_size": 4, "max_tokens": 6, "lr": 1e-3, "rewards": {"exact": 1.0}}
    return parse_recipe(plain | factors)


def run(
    base: Path,
    work: Path,
    env: TrainerEnvironment = ENV,
    seed: int = 1,
    options: dict[str, Any] | None = None,
    checkpoint_every: int = 1,
    on_step: Any = None,
    runner: HookCaller | None = None,
    **factors: Any,
) -> tuple[TrainResult, list[Rollout]]:
    stored: list[Rollout] = []
    request = TrainRequest(Identity("r", "b0", seed), recipe(**factors), base, work, checkpoint_every, hooks=runner)
    result = TrlTrainer(options).train(
        request, env, lambda groups: stored.extend(chain(*groups)), on_step or (lambda row: None)
    )
    return result, stored


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_it_conforms(base: Path, tmp_path: Path) -> None:
    check_trainer(TrlTrainer(), ENV, base, tmp_path, {"exact": 1.0})


def test_rollouts_carry_the_tokens_and_log_probabilities_that_the_policy_gave_them(base: Path, tmp_path: Path) -> None:
    _, stored = run(base, tmp_path, steps=1, temperature=0.7)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(base)
    for r in stored[:6]:
        assert r.token_ids is not None and r.logprobs is not None and r.tokens == len(r.token_ids) == len(r.logprobs)
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": r.prompt}], add_generation_prompt=True, return_dict=False
        )
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *r.token_ids]])).logits[0, len(prompt) - 1 : -1] / 0.7
        logp = logits.log_softmax(-1)
        mine = logp.gather(1, torch.tensor(r.token_ids)[:, None])[:, 0]
        assert torch.allclose(mine, torch.tensor(r.logprobs), atol=1e-4)
        assert r.entropy == pytest.approx(float(-(logp.exp() * logp).sum(-1).mean()), abs=1e-4)
        assert r.mean_logprob == pytest.approx(float(mine.mean()), abs=1e-4)
        assert r.completion == tokenizer.decode(r.token_ids, skip_special_tokens=True)
        assert (r.finish == "length") == (r.token_ids[-1] != tokenizer.eos_token_id)


def test_a_training_learns_and_its_curve_has_the_embedded_trainers_keys(base: Path, tmp_path: Path) -> None:
    result, _ = run(base, tmp_path, steps=12, prompts_per_step=16, group_size=8, lr=2e-3, checkpoint_every=50)
    first, last = (sum(e["reward"] for e in part) / 3 for part in (result.curve[:3], result.curve[-3:]))
    assert last > first + 0.1, (first, last)
    wanted = {"step", "reward", "score", "frac_reward_zero_std", "dead_fail", "dead_pass", "entropy", "grad_norm",
              "cpu_s", "completions/mean_length", "completions/clipped_ratio", "kept_groups", "lr", "loss",
              "ratio_max", "groups", "rewards/exact/mean", "sampling/sampling_logp_difference/mean",
              "trained_rollouts", "tokens"}  # fmt: skip
    assert wanted <= result.curve[0].keys()
    assert all(e["sampling/sampling_logp_difference/max"] < 1e-3 for e in result.curve)


@pytest.mark.slow
def test_a_recipe_that_goes_on_from_another_is_the_same_after_a_kill(base: Path, tmp_path: Path) -> None:
    asked = recipe().with_changes({"continuation": {"start": "champion", "steps": 3, "phases": []}, "kl_beta": 0.05})

    class CutError(Exception):
        pass

    def go(work: Path, cut: int = 0) -> tuple[TrainResult, dict[str, torch.Tensor]]:
        def on_step(row: dict[str, float]) -> None:
            if row["step"] == cut:
                raise CutError

        request = TrainRequest(Identity("r", "b0", 1), asked, base, work, 1)
        result = train_chain(TrlTrainer(), request, ENV, lambda _: None, on_step)
        return result, weights(result.policy_dir)

    whole, expected = go(tmp_path / "whole")
    first, _ = run(base, tmp_path / "first")
    assert read_note(tmp_path / "whole").policy_sha256 == TrlTrainer().policy_sha256(first.policy_dir)  # type: ignore[union-attr]
    with pytest.raises(CutError):
        go(tmp_path / "cut", 4)
    again, found = go(tmp_path / "cut")
    assert [r["step"] for r in again.curve] == [1, 2, 3, 4, 5] and again.curve[2]["kl"] == pytest.approx(0, abs=1e-5)
    assert all(torch.equal(found[k], expected[k]) for k in expected)
    assert [r["loss"] for r in again.curve] == [r["loss"] for r in whole.curve]


KILLED = {
    "steps": 4,
    "updates_per_step": 2,
    "kl_beta": 0.05,
    "sft_anchor": 0.1,
    "curriculum": {"kind": "pass_rate_band"},
    "group_filter": {"kind": "zero_variance"},
    "resample": 1,
    "negative_weight": 0.5,
    "averaging": {"kind": "tail_mean", "share": 1.0},
    "replay": {"weight": 0.2, "batch": 2, "rare": 1.0},
    "prompt_noise": 0.5,
}


def forked(child: Any) -> int:
    """Exit status of a child process that runs `child` and ends."""
    pid = os.fork()
    if not pid:
        try:
            child()
        except BaseException as e:
            print(type(e).__name__, e, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def test_a_killed_training_goes_on_to_the_same_bits_and_stores_nothing_twice(base: Path, tmp_path: Path) -> None:
    straight, first = run(base, tmp_path / "a", checkpoint_every=2, **KILLED)

    def die(row: dict[str, float]) -> None:
        if row["step"] == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    status = forked(lambda: run(base, tmp_path / "b", checkpoint_every=2, on_step=die, **KILLED))
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    resumed, rest = run(base, tmp_path / "b", checkpoint_every=2, **KILLED)
    assert resumed.resumed and not straight.resumed
    a, b = weights(straight.policy_dir), weights(resumed.policy_dir)
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    ids = [r.id for r in first]
    assert [r.id for r in rest] == ids[-len(rest) :], "only the steps after the checkpoint, under the ids they had"
    assert [r.turns for r in rest] == [r.turns for r in first][-len(rest) :]
    own = {"cpu_s", "cpu_sample_s", "cpu_grade_s", "cpu_record_s", "cpu_update_s"}
    assert [{k: v for k, v in e.items() if k not in own} for e in straight.curve] == [
        {k: v for k, v in e.items() if k not in own} for e in resumed.curve
    ]
    with pytest.raises(TrainerError, match="belongs to another recipe"):
        run(base, tmp_path / "b", checkpoint_every=2, **KILLED | {"kl_beta": 0.1})


def test_one_killed_between_checkpoint_and_policy_still_leaves_a_policy(base: Path, tmp_path: Path) -> None:
    import shutil

    done, _ = run(base, tmp_path, averaging={"kind": "ema"})
    sha = TrlTrainer().policy_sha256(done.policy_dir)
    shutil.rmtree(done.policy_dir)
    again, stored = run(base, tmp_path, averaging={"kind": "ema"})
    assert again.resumed and not stored
    assert TrlTrainer().policy_sha256(again.policy_dir) == sha


def test_the_trained_policy_is_the_mean_of_the_last_weights(base: Path, tmp_path: Path) -> None:
    after: list[dict[str, torch.Tensor]] = []

    def keep(row: dict[str, float]) -> None:
        after.append(weights(tmp_path / "plain" / "checkpoint"))

    plain, _ = run(base, tmp_path / "plain", on_step=keep, steps=3)
    mean, _ = run(base, tmp_path / "mean", steps=3, averaging={"kind": "tail_mean", "share": 0.6})
    got = weights(mean.policy_dir)
    assert all(torch.allclose(got[k], (after[1][k] + after[2][k]) / 2, atol=1e-6) for k in got)
    assert any(not torch.equal(got[k], after[2][k]) for k in got)
    assert all(torch.equal(v, after[2][k]) for k, v in weights(plain.policy_dir).items())


def test_advantages_are_the_ones_trl_computes_itself(base: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from trl import GRPOTrainer

    seen: list[torch.Tensor] = []
    theirs = GRPOTrainer._generate_and_score_completions

    def spy(self: Any, inputs: Any) -> Any:
        out = theirs(self, inputs)
        seen.append(out["advantages"].clone())
        return out

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", spy)
    for scaling in ("group", "batch", "none"):
        _, stored = run(base, tmp_path / scaling, steps=1, reward_scaling=scaling, rewards={"digits": 1.0})
        mine = torch.tensor([r.advantage for r in stored])
        assert mine.abs().max() > 0.1
        assert torch.allclose(mine, seen.pop(), atol=1e-5)


class Uneven(ReverseEnv):
    """Groups of even tasks have no spread."""

    def _score(self, e: Any, i: int) -> Any:
        from evotrainer.envs.base import Score

        even = int(e.task.id.split("-")[1]) % 2 == 0
        value = 0.0 if even else float(len(e.turns[-1].text) + i % 4)
        return Score({"exact": value, "digits": value, "never": None}, "incorrect")


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "gspo"])
def test_dropped_groups_leave_loss_and_normaliser(loss: str, base: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """The loss of a batch with dropped groups is that of the kept ones alone."""
    from evotrainer.trainers.trl.grpo import Grpo

    losses: list[tuple[float, float]] = []
    ours = Grpo._compute_loss

    def both(self: Any, model: Any, inputs: Any) -> Any:
        keep = inputs["tool_mask"].bool().logical_and(inputs["completion_mask"].bool()).any(1)
        assert 0 < keep.sum() < len(keep)
        n = len(keep)
        alone = {
            k: v[keep] if isinstance(v, torch.Tensor) and v.dim() and len(v) == n else v for k, v in inputs.items()
        }
        full, scale = ours(self, model, inputs), self.row_scale
        self.row_scale = 1.0
        losses.append((float(full), float(ours(self, model, alone))))
        self.row_scale = scale
        return full

    monkeypatch.setattr(Grpo, "_compute_loss", both)
    run(base, tmp_path, Uneven(n=16, length=1), steps=1, prompts_per_step=8, loss=loss, entropy_bonus=0.01, kl_beta=0.1,
        group_filter={"kind": "zero_variance"})  # fmt: skip
    for full, alone in losses:
        assert full == pytest.approx(alone, abs=1e-6)
        assert full != 0


def test_faults_are_no_rewards_and_move_nothing(base: Path, tmp_path: Path) -> None:
    _, stored = run(base, tmp_path, ReverseEnv(n=16, length=1, faulty=True), steps=1)
    faults = [r for r in stored if r.error_kind]
    assert faults and all(r.reward is None and r.advantage is None and r.finish == "error" for r in faults)


def test_a_step_in_micro_batches_is_the_same_step(base: Path, tmp_path: Path) -> None:
    whole, _ = run(base, tmp_path / "a", steps=1, rewards={"digits": 1.0})
    parts, _ = run(base, tmp_path / "b", steps=1, rewards={"digits": 1.0}, options={"micro_batch": 4})
    a, b = weights(whole.policy_dir), weights(parts.policy_dir)
    assert max((a[k] - b[k]).abs().max() for k in a) < 1e-4
    assert whole.curve[0]["loss"] == pytest.approx(parts.curve[0]["loss"], abs=1e-3)


@pytest.mark.parametrize(
    "factors",
    [
        {"is_cap": 2.0, "updates_per_step": 2, "loss": "cispo"},
        {"mask_truncated": True, "max_tokens": 2, "temperature": 2.0, "loss": "bnpo"},
        {"length": {"kind": "overlong", "weight": 0.5}, "repetition_penalty": 0.1, "top_p": 0.9, "entropy_bonus": 0.01},
        {"schedule": {"kind": "cosine", "warmup": 1}, "weight_decay": 0.1, "knobs": {"length": 3}},
        {"negative_weight": 0.0},
    ],
    ids=lambda f: "+".join(f),
)
def test_every_other_factor_is_carried_out(factors: dict[str, Any], base: Path, tmp_path: Path) -> None:
    result, stored = run(base, tmp_path, rewards={"digits": 1.0}, **factors)
    assert result.steps == 2 and result.curve[-1]["grad_norm"] > 0
    if "knobs" in factors:
        assert stored[0].knobs == {"length": 3}
        assert [e["lr"] for e in result.curve] == [1e-3, 1e-3]
    if "negative_weight" in factors:
        assert min(r.advantage or 0.0 for r in stored) == 0.0 and max(r.advantage or 0.0 for r in stored) > 0
        assert all(e["negative_share"] == 0.0 for e in result.curve if "negative_share" in e)
    if "mask_truncated" in factors:
        assert any(r.finish == "length" and r.advantage for r in stored)


def test_hooks_give_the_weights_of_the_options_that_they_mirror(base: Path, tmp_path: Path) -> None:
    with closing(RewardRunner(accept_tier_e=True)) as runner:
        made, stored = run(base, tmp_path / "hooks", runner=runner, hooks={"grpo": GRPO, "live": LIVE})
    plain, known = run(base, tmp_path / "plain", group_filter={"kind": "zero_variance"})
    assert [(r.id, r.advantage) for r in stored] == [(r.id, r.advantage) for r in known]
    assert any(r.advantage is None for r in stored), "a group was dropped"
    a, b = weights(made.policy_dir), weights(plain.policy_dir)
    assert all(torch.equal(a[k], b[k]) for k in b)
    assert made.curve[0]["cpu_hook_s"] > 0 and "cpu_hook_s" not in plain.curve[0]


def test_several_turns_are_one_transcript_whose_observations_carry_no_loss(
    base: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    from evotrainer.trainers.trl.grpo import Grpo

    rows: list[Any] = []
    ours = Grpo._rows_as_rollouts

    def spy(self: Any, prompts: Any, trainer: Any) -> Any:
        rows.append(ours(self, prompts, trainer))
        return rows[-1]

    monkeypatch.setattr(Grpo, "_rows_as_rollouts", spy)
    _, stored = run(base, tmp_path, GuessDigitEnv(n=16, length=1), steps=1, max_turns=2, rewards={"digits": 1.0})
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    batch = rows[0]
    for prompt, ids, mask, r in zip(
        batch["prompt_ids"], batch["completion_ids"], batch["env_mask"], stored, strict=True
    ):
        said = [t for t, m in zip(ids, mask, strict=True) if m]
        assert tuple(said) == r.token_ids and 0 in mask
        text = tokenizer.decode(prompt + ids)
        task, one, seen, two = (t.text for t in r.turns)
        end = "<|im_end|>\n"
        plain = f"<|im_start|>user\n{task}{end}<|im_start|>assistant\n{one}{end}<|im_start|>user\n{seen}{end}"
        assert text.startswith(plain + "<|im_start|>assistant\n" + two)


def test_adapters_train_reload_and_merge(base: Path, tmp_path: Path) -> None:
    from evotrainer.trainers.trl.folder import load_model
    from evotrainer.trainers.trl.merging import merge_adapter

    options = {"lora": {"r": 4, "dropout": 0.1}}
    mean = {"kind": "tail_mean", "share": 1.0}
    factors: dict[str, Any] = {"lr": 1e-2, "kl_beta": 0.01, "rewards": {"digits": 1.0}, "averaging": mean}
    result, _ = run(base, tmp_path / "w", options=options, **factors)
    assert (result.policy_dir / "adapter_model.safetensors").stat().st_size < (
        base / "model.safetensors"
    ).stat().st_size
    trainer = TrlTrainer(options)
    assert trainer.policy_sha256(result.policy_dir) != trainer.policy_sha256(base)
    ask = EvalRequest(
        Identity("r", "b0", 1), recipe(), result.policy_dir, "search", 2, attempts=2, tasks=3, greedy=True
    )
    said = [r.completion for r in chain(*trainer.evaluate(ask, ENV, lambda _: None))]
    merge_adapter(result.policy_dir, merged := tmp_path / "merged")
    whole = EvalRequest(ask.identity, ask.recipe, merged, "search", 2, attempts=2, tasks=3, greedy=True)
    assert [r.completion for r in chain(*TrlTrainer().evaluate(whole, ENV, lambda _: None))] == said
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        a, b = (load_model(p, torch.float32)(ids).logits for p in (result.policy_dir, merged))
        c = load_model(base, torch.float32)(ids).logits
    assert torch.allclose(a, b, atol=1e-4) and not torch.allclose(a, c, atol=1e-2)
    sha = trainer.policy_sha256(result.policy_dir)
    again, _ = run(base, tmp_path / "w", options=options, **factors)
    assert again.resumed and trainer.policy_sha256(again.policy_dir) == sha, "the average of adapters is kept"


@pytest.mark.slow
def test_adapters_upon_adapters_merge_whole_and_are_a_start_of_a_full_training(base: Path, tmp_path: Path) -> None:
    from evotrainer.trainers.trl.folder import load_model
    from evotrainer.trainers.trl.merging import merge_adapter

    how = {"lr": 1e-2, "steps": 1, "rewards": {"digits": 1.0}}
    first, _ = run(base, tmp_path / "one", options={"lora": {"r": 2}}, **how)
    second, _ = run(first.policy_dir, tmp_path / "two", options={"lora": {"r": 2}}, **how)
    full, _ = run(second.policy_dir, tmp_path / "full", kl_beta=0.01, **how)
    assert (full.policy_dir / "model.safetensors").is_file()
    assert merge_adapter(second.policy_dir, tmp_path / "merged") == str(base)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        two, merged, one = (
            load_model(p, torch.float32)(ids).logits for p in (second.policy_dir, tmp_path / "merged", first.policy_dir)
        )
    assert torch.allclose(two, merged, atol=1e-4) and not torch.allclose(two, one, atol=1e-3)


def test_an_evaluation_is_the_same_twice_and_in_task_order(base: Path) -> None:
    ask = EvalRequest(Identity("r", "b3", 7), recipe(max_turns=2), base, "gate", 0, attempts=3, tasks=5)
    env: TrainerEnvironment = GuessDigitEnv(n=16, length=1)
    one, two = ([*chain(*TrlTrainer().evaluate(ask, env, lambda _: None))] for _ in range(2))
    assert [r.turns for r in one] == [r.turns for r in two] and len({r.id for r in one}) == 15
    assert [r.task for r in one[::3]] == [f"gate-{i}" for i in range(5)]
    other = EvalRequest(Identity("r", "b3", 8), recipe(max_turns=2), base, "gate", 0, attempts=3, tasks=5)
    assert [r.turns for r in chain(*TrlTrainer().evaluate(other, env, lambda _: None))] != [r.turns for r in one]


def test_a_policy_of_the_embedded_trainer_says_the_same_through_transformers(tmp_path: Path) -> None:
    """Several turns, no chat template: greedy rollouts are equal to the token, and TRL trains from there."""
    from evotrainer.config.bases import resolve_base
    from evotrainer.envs import open_environment
    from evotrainer.trainers import get_trainer

    folder = resolve_base("builtin:swe-v1")
    assert folder is not None
    env = open_environment({"name": "swe"})
    asked = recipe(max_turns=6, max_tokens=24, rewards={"hidden": 1.0}, prompts_per_step=2, group_size=2, steps=1)
    ask = EvalRequest(Identity("r", "b0", 1), asked, folder, "search", 0, attempts=1, tasks=8, greedy=True)
    one, two = ([*chain(*get_trainer(n).evaluate(ask, env, lambda _: None))] for n in ("embedded", "trl"))
    assert [r.turns for r in one] == [r.turns for r in two] and sum(len(r.turns) for r in one) > 30
    assert [r.mean_logprob for r in one] == pytest.approx([r.mean_logprob for r in two], abs=1e-4)
    stored: list[Rollout] = []
    request = TrainRequest(Identity("r", "b0", 1), asked, folder, tmp_path)
    result = TrlTrainer().train(request, env, lambda groups: stored.extend(chain(*groups)), lambda row: None)
    assert result.steps == 1 and len(stored) == 4
    env.close()


@pytest.mark.slow
def test_two_processes_train_one_policy(base: Path, tmp_path: Path) -> None:
    """Each samples its groups; process 0 stores all rollouts and writes the policy; a resume goes on with both."""
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    factors = {
        "prompts_per_step": 4,
        "steps": 2,
        "group_filter": {"kind": "zero_variance"},
        "resample": 1,
        "sft_anchor": 0.1,
    }

    def worker(rank: int) -> None:
        import json

        env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ |= {k: str(v) for k, v in env.items()}
        result, stored = run(base, tmp_path / "w", **factors)
        out = {"ids": [r.id for r in stored], "steps": result.steps, "kept": [e["kept_groups"] for e in result.curve]}
        (tmp_path / f"{rank}.json").write_text(json.dumps(out))

    import json

    children = []
    for rank in (0, 1):
        pid = os.fork()
        if not pid:
            try:
                worker(rank)
            except BaseException as e:
                print(rank, type(e).__name__, e, file=sys.stderr)
                os._exit(1)
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
    zero, one = (json.loads((tmp_path / f"{r}.json").read_text()) for r in (0, 1))
    assert zero["steps"] == one["steps"] == 2 and zero["kept"] == one["kept"]
    assert not one["ids"] and len(zero["ids"]) == len(set(zero["ids"])) >= 2 * 16
    assert TrlTrainer().policy_sha256(tmp_path / "w" / "policy") != TrlTrainer().policy_sha256(base)


def test_what_cannot_be_carried_out_is_refused_by_name(base: Path, tmp_path: Path) -> None:
    class Mute(ReverseEnv):
        def demonstrations(self, n: int, seed: int) -> Sequence[Any]:
            return []

    with pytest.raises(ConfigError, match="sft_anchor: the environment offers no demonstrations"):
        run(base, tmp_path, Mute(), sft_anchor=0.1)
    with pytest.raises(TrainerError, match="no component nope"):
        run(base, tmp_path, rewards={"nope": 1.0})
    with pytest.raises(TrainerError, match="its prompt has .* tokens, the policy's context leaves"):
        run(base, tmp_path, max_tokens=125)
    with pytest.raises(TrainerError, match="no tokenizer that transformers can load"):
        run(tmp_path / "nowhere", tmp_path)
