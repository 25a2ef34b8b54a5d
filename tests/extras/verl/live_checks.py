"""Run by verl's Python (tests/extras/verl/test_live.py):
the plug-ins inside the real verl, without a GPU.

What stands in for GPUs: a dictionary for TransferQueue, a scripted inference server. verl's own registry, reward
manager, replay buffer, agent loop base and advantage code are the real ones.

    python live_checks.py REQUEST_FILTER REQUEST_TURNS
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from evotrainer.extras.verl import REQUEST

PLUGINS = "pkg://evotrainer.extras.verl.plugins"


def advantage() -> dict[str, Any]:
    """verl's compute_advantage through the registered estimator: [advantage, mask sum] of each row."""
    import numpy as np
    import torch

    from verl import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    # Groups a (spread), b (none), c (spread, second row cut at 8 tokens), and one of verl's padding rows.
    rewards = [1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    tokens = [4, 2, 3, 3, 2, 8, 0]
    mask = torch.zeros(7, 8, dtype=torch.int64)
    scores = torch.zeros(7, 8)
    for i, (r, n) in enumerate(zip(rewards, tokens, strict=True)):
        mask[i, :n] = 1
        scores[i, max(0, n - 1)] = r
    data = DataProto.from_dict(
        tensors={"token_level_rewards": scores, "response_mask": mask},
        non_tensors={"uid": np.array(["a", "a", "b", "b", "c", "c", "pad0"], dtype=object)},
    )
    data = compute_advantage(data, adv_estimator="evo_mean_norm", config=None)
    a = data.batch["advantages"]
    return {
        "rows": [
            [float(a[i].max() if a[i].max() else a[i].min()), int(data.batch["response_mask"][i].sum())]
            for i in range(7)
        ]
    }


class Tokenizer:
    """Characters as tokens; 0 ends."""

    eos_token_id = 0
    pad_token_id = 0

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        return "".join(chr(int(i)) for i in ids if int(i))


def reward() -> dict[str, Any]:
    """The reward manager on three completions: right, wrong and cut, and one whose grading always fails."""
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from tensordict import TensorDict

    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager

    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": {"response_length": 8}},
            "reward": {
                "custom_reward_function": {"path": f"{PLUGINS}.evo_reward", "name": "compute_score"},
                "reward_manager": {
                    "source": "importlib",
                    "name": "EvoRewardManager",
                    "module": {"path": f"{PLUGINS}.evo_reward"},
                },
            },
        }
    )

    async def score(text: str, ended: bool, session: int) -> Any:
        manager = load_reward_manager(config, Tokenizer())
        ids = torch.tensor([[ord(c) for c in text] + [0] * ended])
        batch = TensorDict(
            {"responses": ids, "attention_mask": torch.ones(1, 3 + ids.shape[1], dtype=torch.int64)}, batch_size=1
        )
        meta = {
            "data_source": "evotrainer",
            "reward_model": {"ground_truth": "train-2", "style": "rule"},
            "extra_info": {"index": 2},
            "uid": "00000000-0000-4000-8000-000000000001",
            "session_id": session,
            "global_steps": 1,
        }
        meta = {k: np.array([v]) for k, v in meta.items()}
        try:
            return await manager.run_single(DataProto(batch=batch, non_tensor_batch=meta))
        except Exception as e:
            return f"{type(e).__name__}: {e}"

    async def everything() -> list[Any]:
        return [await score("4", True, 0), await score("99999999", False, 1), await score("crash", True, 2)]

    return {"results": asyncio.run(everything())}


class Queue:
    """A dictionary in TransferQueue's place."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, Any]] = {}
        self.rewards: dict[str, Any] = {}

    def kv_list(self) -> dict[str, Any]:
        return {"train": {k: dict(v) for k, v in self.tags.items()}}

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> dict[str, Any]:
        return {"rm_scores": [self.rewards[k] for k in keys]}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for k in keys:
            self.tags.pop(k, None)

    def group(self, uid: str, rewards: list[float], status: str = "finished") -> None:
        import torch

        self.tags[uid] = {"is_prompt": True, "status": status, "global_steps": 1}
        for i, r in enumerate(rewards):
            self.tags[f"{uid}_{i}_0"] = {"status": "success"}
            self.rewards[f"{uid}_{i}_0"] = torch.tensor([0.0, r])


def sampler() -> dict[str, Any]:
    """Four groups asked for, resample = 1: one round of new prompts, then filled up with dropped groups."""
    from evotrainer.extras.verl.plugins import evo_advantage, evo_filter
    from evotrainer.extras.verl.training import VerlTraining
    from verl.trainer.ppo.v1 import replay_buffer
    from verl.utils.import_utils import load_extern_object

    assert load_extern_object(f"{PLUGINS}.evo_filter", "EvoReplayBuffer") is evo_filter.EvoReplayBuffer

    queue = Queue()
    evo_filter.tq = replay_buffer.tq = queue
    asked: list[int] = []

    def refill(n: int) -> None:
        asked.append(n)
        queue.group("f0", [1.0, 0.0])
        for i in range(1, n):
            queue.group(f"f{i}", [0.0, 0.0])

    buffer = evo_filter.EvoReplayBuffer(
        trainer_mode="sync",
        trainer_config=None,
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs={},
        refill_fn=refill,
        poll_interval=0.01,
    )
    for uid, rewards in {"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [0.0, 1.0]}.items():
        queue.group(uid, rewards)
    queue.group("d", [], status="failure")
    batch, metrics = buffer.sample(global_steps=1, partition_id="train", batch_size=4)
    decided = dict(evo_advantage.SIGNAL.decided or {})
    rows = evo_advantage.SIGNAL.rows([1.0, 0.0, 1.0, 1.0], [2, 2, 2, 2], ["a", "a", "b", "b"])
    return {
        "asked": asked,
        "keys": sorted(batch.keys),
        "decided": decided,
        "left": sorted(k for k in queue.tags if queue.tags[k].get("is_prompt")),
        "metrics": metrics,
        "saved": sorted(p.name for p in (VerlTraining.read().out / "filter").glob("*")),
        "rows": [rows.counted, [a != 0 for a in rows.advantages]],
    }


def chat_tokenizer() -> Any:
    """Characters as words, with a chat template, made on the spot."""
    from tokenizers import Regex, models, pre_tokenizers
    from tokenizers import Tokenizer as Fast
    from transformers import PreTrainedTokenizerFast

    vocabulary = {c: i for i, c in enumerate(["<end>", "<user>", "<assistant>", *map(chr, range(32, 127)), "\n"])}
    fast = Fast(models.WordLevel(vocabulary, unk_token="?"))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<end>", pad_token="<end>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<user>", "<assistant>"]})
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<end>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    return tokenizer


def data() -> dict[str, Any]:
    """verl's own data set on the prompts, long ones filtered."""
    from omegaconf import OmegaConf

    from evotrainer.extras.verl.training import VerlTraining
    from verl.utils.dataset.rl_dataset import RLHFDataset

    t = VerlTraining.read()
    cache = str(t.out / "cache")
    config = OmegaConf.create({"max_prompt_length": 64, "filter_overlong_prompts": True, "cache_dir": cache})
    config.filter_overlong_prompts_workers = 1
    tokenizer = chat_tokenizer()
    rows = RLHFDataset(str(t.prompts), tokenizer, config)
    first = rows[0]
    prompt = tokenizer.apply_chat_template(list(first["raw_prompt"]), add_generation_prompt=True, tokenize=False)
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    return {"rows": len(rows), "task": first["reward_model"]["ground_truth"], "prompt": tokenizer.decode(ids).split()}


def losses() -> dict[str, Any]:
    """verl's policy loss under our keys beside ours, off policy, with KL on policy:
    [verl, ours, largest gradient difference]."""
    import torch

    from evotrainer.factors.trainer_mapping import keys_of
    from evotrainer.records.recipe import parse_recipe
    from evotrainer.trainers.embedded.losses import Normaliser, Tokens, policy_loss
    from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn, kl_penalty
    from verl.workers.config import ActorConfig, PolicyLossConfig

    n, width, out = 6, 8, {}
    lengths = torch.tensor([8, 3, 5, 1, 8, 6])
    mask = (torch.arange(width)[None] < lengths[:, None]).long()
    torch.manual_seed(0)
    start = -torch.rand(n, width, dtype=torch.float64) - 0.1
    moved, reference = start + 0.4 * torch.randn_like(start), start + 0.3 * torch.randn_like(start)
    advantage = torch.randn(n, dtype=torch.float64)
    for loss in ("grpo", "dapo", "bnpo", "dr_grpo", "gspo", "cispo"):
        for beta in (0.0, 0.3):
            # The KL gradients are equal where the ratio is 1; without KL, far from it.
            now, old = (start, start) if beta else (moved, start)
            recipe = parse_recipe(
                {
                    "loss": loss,
                    "clip": {"low": 0.1, "high": 0.3},
                    "kl_beta": beta,
                    "rewards": {"right": 1.0},
                    "max_tokens": width,
                }
            )
            keys = {
                k.removeprefix(f"{'actor_rollout_ref.actor'}."): v
                for k, (_, v) in keys_of(recipe, "verl").items()
                if k.startswith("actor_rollout_ref.actor")
            }
            config = ActorConfig(
                strategy="fsdp",
                rollout_n=1,
                ppo_micro_batch_size_per_gpu=1,
                policy_loss=PolicyLossConfig(loss_mode=keys["policy_loss.loss_mode"]),
                **{k: keys[k] for k in ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "loss_agg_mode")},
            )
            shared = {
                "dp_size": 1,
                "batch_num_tokens": int(mask.sum()),
                "global_batch_size": n,
                "loss_scale_factor": keys.get("loss_scale_factor"),
            }
            config.global_batch_info.update(shared)
            a = now.clone().requires_grad_()
            theirs, _ = get_policy_loss_fn(keys["policy_loss.loss_mode"])(
                old_log_prob=old,
                log_prob=a,
                advantages=advantage[:, None].expand(n, width),
                response_mask=mask.bool(),
                loss_agg_mode=keys["loss_agg_mode"],
                config=config,
            )
            if keys["use_kl_loss"]:
                kl = kl_penalty(logprob=a, ref_logprob=reference, kl_penalty=keys["kl_loss_type"])
                theirs = theirs + keys["kl_loss_coef"] * agg_loss(kl, mask, keys["loss_agg_mode"], **shared)
            theirs.backward()
            b = now.clone().requires_grad_()
            rows = torch.arange(n).repeat_interleave(lengths)
            ours = policy_loss(
                Tokens(b[mask.bool()], old[mask.bool()], rows, lengths.double(), advantage,
                       reference=reference[mask.bool()] if beta else None),
                recipe,
                Normaliser(n, int(mask.sum()), width),
            ).loss  # fmt: skip
            ours.backward()
            out[f"{loss} {beta}"] = [theirs.item(), ours.item(), (a.grad - b.grad).abs().max().item()]
    return out


def turns(request: str) -> dict[str, Any]:
    """The agent loop on an episode of several turns, with a scripted server and a tokenizer made on the spot."""
    from omegaconf import OmegaConf

    from evotrainer.extras.verl.plugins import evo_agent, evo_reward
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap
    from verl.workers.rollout.replica import TokenOutput

    os.environ[REQUEST], evo_reward._grader = request, None
    tokenizer = chat_tokenizer()
    said = iter(["5", "2", "4"])
    asked: list[Any] = []

    class Server:
        async def generate(
            self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
        ) -> Any:
            asked.append([tokenizer.decode(prompt_ids), sampling_params["max_tokens"]])
            ids = tokenizer(next(said), add_special_tokens=False)["input_ids"] + [0]
            fields = {"global_steps": 1, "min_global_steps": 1, "max_global_steps": 1}
            return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed", extra_fields=fields)

    config = OmegaConf.create(
        {"actor_rollout_ref": {"rollout": {"response_length": 96, "prompt_length": 64}}, "data": {}}
    )

    async def play() -> Any:
        loop = evo_agent.EpisodeLoop(
            DictConfigWrap(config), Server(), tokenizer, None, None, DictConfigWrap(config.data), hf_model_type="llama"
        )
        return await loop.run(
            {"temperature": 1.0},
            raw_prompt=[{"role": "user", "content": "a number below 10?"}],
            extra_info={"index": 2},
            reward_model={"ground_truth": "train-2"},
            uid="00000000-0000-4000-8000-000000000002",
            session_id=1,
            global_steps=3,
        )

    out = asyncio.run(play())
    return {
        "asked": asked,
        "reward": out.reward_score,
        "turns": out.num_turns,
        "prompt": tokenizer.decode(out.prompt_ids),
        "sampled": tokenizer.decode([t for t, m in zip(out.response_ids, out.response_mask, strict=True) if m]),
        "response": tokenizer.decode(out.response_ids),
        "logprobs": [x for x, m in zip(out.response_logprobs or [], out.response_mask, strict=True) if m],
        "info": out.extra_fields["reward_extra_info"],
    }


if __name__ == "__main__":
    os.environ[REQUEST] = sys.argv[1]
    os.environ["VERL_USE_EXTERNAL_MODULES"] = "evotrainer.extras.verl.plugins.evo_advantage"
    answer = {"advantage": advantage(), "reward": reward(), "sampler": sampler(), "data": data(), "losses": losses()}
    print(json.dumps({**answer, "turns": turns(sys.argv[2])}))
