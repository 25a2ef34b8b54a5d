"""TRL's GRPOTrainer with EvoTrainer's rounds: which tasks, which rollouts, what is stored, what the loss counts.

TRL generates (or lends its model for it), computes old and reference log-probabilities, importance ratios, the loss and
the update. EvoTrainer draws the tasks, lets the environment answer and score, composes rewards, filters groups, and
computes advantages by the code that the embedded trainer uses; TRL gets them through `rollout_func`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from torch import Tensor
from transformers import PrinterCallback, Trainer
from trl import GRPOTrainer
from trl.extras.profiling import profiling_context
from trl.models import unwrap_model_for_generation

from evotrainer.errors import EvoTrainerError, TrainerError
from evotrainer.records.rollout import Rollout
from evotrainer.trainers.groups import Group, collect
from evotrainer.trainers.schedule import learning_rate, seed_of
from evotrainer.trainers.trl.attempts import Attempt
from evotrainer.trainers.trl.generate import Said, padded, sample
from evotrainer.trainers.trl.session import Session
from evotrainer.trainers.trl.tools import Logprob, Played, TrlWorld, blame, played_by_trl, read_back, rows_of

REWARD = "evotrainer_reward"
"""Column that carries the composed reward through TRL, for its logs."""
BY_ROW = ("grpo", "dr_grpo")
"""TRL losses that divide by the number of rows, dropped ones included."""


@dataclass(frozen=True, slots=True)
class Row:
    """One rollout of the batch."""

    attempt: Attempt
    rollout: Rollout
    counted: bool
    """False: filtered out, or lost to an infrastructure fault; in no loss and no normaliser."""
    masked: bool
    """True: a row without tokens (truncated, where the recipe leaves those out)."""

    def fields(self) -> tuple[list[int], list[int], list[float], list[int]]:
        """Prompt ids, completion ids up to the last token said, their log-probabilities, loss mask."""
        a = self.attempt
        end = max(i for i, b in enumerate(a.loss) if b) + 1
        on = self.counted and not self.masked
        return a.prompt, a.ids[:end], a.all_logprobs()[:end], [int(b and on) for b in a.loss[:end]]


@dataclass(slots=True)
class Seen:
    """What the update showed, over the micro-batches of a round."""

    loss: float = 0.0
    grad_norm: float = 0.0
    ratio_max: float = 1.0
    gap: float = 0.0
    gap_max: float = 0.0
    gap_tokens: float = 0.0
    sft: list[float] = field(default_factory=list)
    logged: dict[str, float] = field(default_factory=dict)


def recorded_reward(completions: Sequence[Any], **columns: Any) -> list[float | None]:
    """The reward that EvoTrainer composed; None for a fault."""
    return list(columns.get(REWARD) or [0.0] * len(completions))


class Grpo(GRPOTrainer):
    """One training. `session` changes with every round and is checkpointed;
    `sink` and `on_step` are called by rank 0."""

    def __init__(
        self,
        session: Session,
        sink: Callable[[Sequence[Rollout]], None],
        on_step: Callable[[dict[str, float]], None],
        **kwargs: Any,
    ) -> None:
        self.session, self.sink, self.on_step = session, sink, on_step
        self.groups: list[Group] = []
        self.rows: list[Row] = []
        self.row_scale = 1.0
        self.seen = Seen()
        self.pending = False
        self.logps: Tensor | None = None
        self.played: Played | None = None
        self.played_world = world = played_by_trl(session.world)
        rows = session.recipe.prompts_per_step
        super().__init__(
            train_dataset=Dataset.from_dict({"prompt": [""] * rows}),  # tasks are drawn by the session
            rollout_func=None if world else self._rows_as_rollouts,
            reward_funcs=[recorded_reward, *(world.reward_functions.values() if world else ())],
            environment_factory=world.environment_factory if world else None,
            **kwargs,
        )
        self.remove_callback(PrinterCallback)
        self.tool_loop: dict[str, Any] = {}
        if world:
            self._put_the_tool_loop_aside()

    def _put_the_tool_loop_aside(self) -> None:
        """TRL plays the user's environment when attempts are sampled, and not again when they become a batch."""
        names = ("tools", "environment_factories", "rollout_func", "environments", "reward_funcs", "reward_func_names",
                 "reward_processing_classes", "reward_weights")  # fmt: skip
        self.tool_loop = {k: getattr(self, k) for k in names}
        # No loss follows upon it: reference and old log-probabilities are not wanted.
        self.tool_loop |= {"beta": 0.0, "num_iterations": 1, "vllm_importance_sampling_correction": False}
        self.tools, self.environment_factories, self.rollout_func = [], None, self._rows_as_rollouts
        for k in ("reward_funcs", "reward_func_names", "reward_processing_classes", "reward_weights"):
            setattr(self, k, getattr(self, k)[:1])

    # -- sampling ---------------------------------------------------------------------------------------------------

    def say(self, contexts: Sequence[Sequence[int]], room: int = 1 << 30) -> list[Said]:
        """One turn of the policy in training for each context; `room`: tokens that the longest of them leaves."""
        if self.use_vllm:
            return self._vllm(contexts)
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,  # type: ignore[arg-type]
            ) as model,
            self.accelerator.autocast(),
        ):
            training = model.training
            model.eval()
            try:
                how = self.session.sampling
                return sample(model, contexts, replace(how, max_tokens=min(how.max_tokens, room)))
            finally:
                model.train(training)

    def _vllm(self, contexts: Sequence[Sequence[int]]) -> list[Said]:
        if self.state.global_step != self._last_loaded_step:
            self.vllm_generation.sync_weights()
            self._last_loaded_step = self.state.global_step
        _, ids, logprobs, _ = self.vllm_generation.generate(
            prompts=[list(c) for c in contexts],
            images=None,
            num_generations=1,
            profiler=profiling_context(self, "vLLM.generate"),
        )
        return [
            Said(list(i), [math.nan if x[0] is None else x[0] for x in lp], [], bool(i) and i[-1] in self.eos_token_ids)
            for i, lp in zip(ids, logprobs, strict=True)
        ]

    def attempts(self, plan: Sequence[tuple[Any, range]]) -> list[Attempt]:
        """Attempts of this process's share of a plan."""
        if not plan:
            return []
        world = self.played_world
        return self.session.attempts(self.say, plan) if world is None else self.play(plan, world)

    def play(self, plan: Sequence[tuple[Any, Sequence[int]]], world: TrlWorld) -> list[Attempt]:
        """The same, by TRL's tool loop in the user's environment."""
        names = [*world.reward_functions, *(["reward"] if hasattr(world.environment_factory, "get_reward") else [])]
        self.played = Played()
        try:
            with self._set(**self.tool_loop):
                super()._generate_and_score_completions(rows_of(plan))
        except EvoTrainerError:
            raise
        except Exception as e:
            raise blame(e, world) from e
        played, self.played = self.played, None
        self.session.clock.mark("sample")
        return read_back(played, plan, world, names, self.session.sampling.stops)

    def _generate(self, prompts: Any) -> Any:
        sampled = super()._generate(prompts)
        if self.played is not None:
            self.played.prompts, self.played.sampled = list(prompts), sampled
        return sampled

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, has_tool_images: bool = False
    ) -> Any:
        if images is not None or multimodal_fields:
            raise TrainerError("the trl trainer is for text only; give prompts and tools without images")
        room = self.session.context - max(len(p) for p in prompt_ids)
        if room < 1:
            raise TrainerError(
                f"a prompt of {self.session.context - room} tokens fills the policy's context; shorten the prompts"
            )
        said = self.say(prompt_ids, room)
        ids = [s.ids for s in said]
        return ids, [
            [Logprob.of(lp, e) for lp, e in zip(s.logprobs, s.entropies, strict=True)] if s.entropies else s.logprobs
            for s in said
        ]

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.played is not None:
            at = self.accelerator.process_index * len(prompts)
            self.played.rewards = rewards[at : at + len(prompts), 1:].tolist()
        return rewards

    def sample_plan(self, plan: Sequence[tuple[Any, range]]) -> list[Attempt]:
        """Scored attempts for the whole plan, in order, on every process; each samples and scores its share."""
        n, i = self.accelerator.num_processes, self.accelerator.process_index
        if n == 1:
            return self.attempts(plan)
        each = -(-len(plan) // n)
        mine: list[tuple[str, Any]]
        try:
            mine = [("attempt", replace(a, task=None)) for a in self.attempts(plan[i * each : (i + 1) * each])]
        except EvoTrainerError as e:  # the others wait for this process: they must hear of it
            mine = [("error", e)]
        everything = gather_object(mine)
        for kind, value in everything:
            if kind == "error":
                raise value
        out = [value for _, value in everything]
        for a, task in zip(out, (task for task, ks in plan for _ in ks), strict=True):
            a.task = task
        return out

    # -- a round ----------------------------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        self._collect()
        out: dict[str, Any] = super()._generate_and_score_completions(
            [{"prompt": "", REWARD: r.rollout.reward} for r in self.rows]
        )
        device = self.accelerator.device
        # The advantages that the rollouts record; TRL's own are the same where nothing was filtered (tested).
        out["advantages"] = torch.tensor([r.rollout.advantage or 0.0 for r in self.rows], device=device)
        if self.session.recipe.is_cap is not None and not self.use_vllm:
            self._importance(out, self.session.recipe.is_cap)
        self.session.clock.mark("update")
        return out

    def _collect(self) -> None:
        """Sample a step's groups, hand all rollouts to the sink, choose the rows of the batch."""
        s = self.session
        step, processes, rank = s.step + 1, self.accelerator.num_processes, self.accelerator.process_index
        # Random numbers belong to the step: a resumed training needs no generator's state.
        torch.manual_seed(seed_of(s.request.identity.seed, "step", step, rank))
        self.groups = collect(self.sample_plan, s.tasks, s.stream, s.filter, s.recipe, s.provenance(step), s.clock.mark)
        if self.accelerator.is_main_process:
            self.sink([r for g in self.groups for r in g.rollouts])
        s.clock.mark("record")
        wanted = s.recipe.prompts_per_step
        chosen = sorted(self.groups, key=lambda g: not g.kept)[:wanted]
        rows = [
            Row(cast("Attempt", a), r, r.advantage is not None, s.recipe.mask_truncated and a.finish == "length")
            for g in chosen
            for a, r in zip(g.attempts, g.rollouts, strict=True)
        ]
        counted = sum(r.counted for r in rows)
        self.row_scale = len(rows) / counted if counted and s.config["loss_type"] in BY_ROW else 1.0
        share = len(rows) // processes
        self.rows = rows[rank * share : (rank + 1) * share]
        self.seen, self.pending = Seen(), True

    def _rows_as_rollouts(self, prompts: Any, trainer: Any) -> dict[str, Any]:
        """TRL's `rollout_func`: the rows of this process, sampled and scored already."""
        fields = [r.fields() for r in self.rows]
        names = ("prompt_ids", "completion_ids", "logprobs", "env_mask")
        return {name: [f[i] for f in fields] for i, name in enumerate(names)}

    @torch.no_grad()
    def _importance(self, out: dict[str, Any], cap: float) -> None:
        """Truncated importance ratios of trainer to sampler, as TRL has them for vLLM."""
        mask = out["completion_mask"] * out["tool_mask"]
        if "old_per_token_logps" not in out:
            out["old_per_token_logps"], _, _ = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([out["prompt_ids"], out["completion_ids"]], 1),
                torch.cat([out["prompt_mask"], out["completion_mask"]], 1),
                out["completion_ids"].size(1),
                batch_size=self.args.per_device_train_batch_size,
            )
        gap = (out["old_per_token_logps"] - out["sampling_per_token_logps"]) * mask
        out["importance_sampling_ratio"] = torch.exp(gap).clamp(max=cap)

    # -- the loss ---------------------------------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if torch.is_grad_enabled():
            self.logps = found[0].detach()
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        scale = self.row_scale
        with self._set(
            entropy_coef=self.entropy_coef / scale,  # a mean over tokens, not over rows
            use_vllm=self.use_vllm or "importance_sampling_ratio" in inputs,
        ):
            loss: Tensor = super()._compute_loss(model, inputs) * scale
        self._look(inputs)
        anchor = self.session.anchor
        if anchor is not None and self.accelerator.sync_gradients:
            sft = self._anchor_loss(model, anchor.draw())
            self.seen.sft.append(float(sft.detach()))
            loss = loss + self.session.recipe.sft_anchor * sft
        return loss

    def _look(self, inputs: dict[str, Any]) -> None:
        """How far trainer and sampler are apart, and the largest ratio."""
        if self.logps is None:
            return
        mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        now, self.logps = self.logps[mask], None
        if not now.numel():
            return
        if (old := inputs.get("old_per_token_logps")) is not None:
            self.seen.ratio_max = max(self.seen.ratio_max, float(torch.exp(now - old[mask]).max()))
        if self.state.global_step % self.session.recipe.updates_per_step == 0:
            gap = torch.nan_to_num((now - inputs["sampling_per_token_logps"][mask]).abs())
            self.seen.gap += float(gap.sum())
            self.seen.gap_max = max(self.seen.gap_max, float(gap.max()))
            self.seen.gap_tokens += gap.numel()

    def _anchor_loss(self, model: Any, rows: Sequence[tuple[list[int], list[bool]]]) -> Tensor:
        """Mean loss of the counted tokens of some demonstrations, shared out among the processes."""
        n, i = self.accelerator.num_processes, self.accelerator.process_index
        total = sum(sum(loss) for _, loss in rows)
        mine = rows[i::n] or rows[:1]
        ids, mask, labels = padded(mine, self._tokenizer.pad_token_id, self.accelerator.device)
        with self.accelerator.autocast():
            logits = model(input_ids=ids, attention_mask=mask).logits
        nll = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
        )
        return nll * n / total if rows[i::n] else nll * 0.0

    @contextlib.contextmanager
    def _set(self, **values: Any) -> Iterator[None]:
        """Attributes with other values for a while."""
        before = {k: getattr(self, k) for k in values}
        for k, v in values.items():
            setattr(self, k, v)
        try:
            yield
        finally:
            for k, v in before.items():
                setattr(self, k, v)

    # -- schedule, logs, checkpoints --------------------------------------------------------------------------------

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The recipe's schedule, by step rather than by update."""
        r = self.session.recipe
        if self.lr_scheduler is None:
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or cast("torch.optim.Optimizer", self.optimizer),
                lambda update: learning_rate(1.0, r.schedule, min(update // r.updates_per_step, r.steps - 1), r.steps),
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)
        if "grad_norm" not in logs:
            return
        norm = float(logs["grad_norm"])
        if not math.isfinite(norm):
            raise TrainerError("the gradient is not finite; lower lr or grad_clip and train again")
        self.seen.grad_norm = norm
        self.seen.loss += float(logs.get("loss", 0.0))
        self.seen.logged = {k: float(v) for k, v in logs.items() if isinstance(v, int | float)}

    def _maybe_log_save_evaluate(
        self, tr_loss: Any, grad_norm: Any, model: Any, trial: Any, *args: Any, **kwargs: Any
    ) -> None:
        s = self.session
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, model, trial, *args, **kwargs)
        if not self.pending or self.state.global_step % s.recipe.updates_per_step:
            return
        self.pending = False
        entry = s.entry(self.groups, self._figures())
        if s.step % s.request.checkpoint_every == 0 or s.step == s.recipe.steps:
            self.checkpoint()
        if self.accelerator.is_main_process:
            self.on_step(entry)

    def _figures(self) -> dict[str, float]:
        """The update's part of the curve entry."""
        x, recipe = self.seen, self.session.recipe
        sums = torch.tensor([x.gap, x.gap_tokens], device=self.accelerator.device)
        gap, tokens = self.accelerator.reduce(sums, reduction="sum").tolist()
        out = {
            "trained_rollouts": float(sum(r.advantage is not None for g in self.groups for r in g.rollouts)),
            "loss": x.loss,
            "grad_norm": x.grad_norm,
            "ratio_max": x.ratio_max,
            "clip_ratio/region_mean": x.logged.get("clip_ratio/region_mean", x.logged.get("cispo_clip_ratio", 0.0)),
            "sampling/sampling_logp_difference/mean": gap / max(1.0, tokens),
            "sampling/sampling_logp_difference/max": x.gap_max,
        }
        if self.use_vllm:  # the sampler tells no entropy
            out["entropy"] = x.logged.get("entropy", 0.0)
        if recipe.kl_beta > 0:
            out["kl"] = x.logged.get("kl", 0.0)
        if x.sft:
            out["sft_loss"] = sum(x.sft) / len(x.sft)
        return out

    def checkpoint(self) -> None:
        """Weights, optimizer, schedule by transformers, the session beside them; in place of the last, atomically."""
        Trainer._save_checkpoint(self, self.model_wrapped, None)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            self.session.save(self.state.global_step)
        self.accelerator.wait_for_everyone()
