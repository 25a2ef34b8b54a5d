"""TRL's GRPOTrainer with EvoTrainer's rounds: which tasks, which rollouts, what is stored, what the loss counts.

TRL generates (or lends its model for it), computes old and reference log-probabilities, importance ratios, the loss and
the update. EvoTrainer draws the tasks, lets the environment answer and score, composes rewards, filters groups, and
computes advantages by the code that the embedded trainer uses; TRL gets them through `rollout_func`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from transformers import Trainer

from evotrainer.errors import TrainerError
from evotrainer.trainers.base import RolloutSink
from evotrainer.trainers.clock import LIFE
from evotrainer.trainers.curve import UpdateSums
from evotrainer.trainers.groups import Group, collect
from evotrainer.trainers.schedule import learning_rate, seed_of
from evotrainer.trainers.trl.attempt_sampler import REWARD, AttemptSampler, GrpoRow
from evotrainer.trainers.trl.generate import padded
from evotrainer.trainers.trl.session import TrlSession
from evotrainer.trainers.wordings import worded

BY_ROW = ("grpo", "dr_grpo")
"""TRL losses that divide by the number of rows, dropped ones included."""


@dataclass(slots=True)
class LoggedSums(UpdateSums):
    """With what TRL logs of a round."""

    logged: dict[str, float] = field(default_factory=dict)


class Grpo(AttemptSampler):
    """One training. `session` changes with every round and is checkpointed;
    `sink` and `on_step` are called by rank 0."""

    lr_scheduler: Any  # TRL's

    def __init__(
        self,
        session: TrlSession,
        sink: RolloutSink,
        on_step: Callable[[dict[str, float]], None],
        **kwargs: Any,
    ) -> None:
        self.sink, self.on_step = sink, on_step
        self.groups: list[Group] = []
        self.row_scale = 1.0
        self.seen = LoggedSums()
        self.pending = False
        self.logps: Tensor | None = None
        super().__init__(session, **kwargs)

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
        """Sample a step's groups, hand them to the sink, choose the rows of the batch."""
        s = self.session
        step, processes, rank = s.step + 1, self.accelerator.num_processes, self.accelerator.process_index
        # Random numbers belong to the step: a resumed training needs no generator's state.
        torch.manual_seed(seed_of(s.request.draws, "step", step, rank))
        wording = worded(s.environment, s.recipe.prompt_noise, s.request.draws, s.step)
        where = s.provenance(step)
        self.groups = collect(
            self.sample_plan, s.tasks, s.stream, s.filter, s.recipe, where, s.clock.mark, wording, s.hooks
        )
        if self.accelerator.is_main_process:
            self.sink([g.rollouts for g in self.groups])
        s.clock.mark("record")
        wanted = s.recipe.prompts_per_step
        # TRL wants a batch of fixed size: dropped groups fill up what the kept ones leave, without a loss
        chosen = sorted(self.groups, key=lambda g: not g.kept)[:wanted]
        rows = [
            GrpoRow(a, r, r.advantage is not None, s.recipe.mask_truncated and a.finish == "length")
            for g in chosen
            for a, r in zip(g.attempts, g.rollouts, strict=True)
        ]
        counted = sum(r.counted for r in rows)
        # losses that divide by rows would count the fillers, too; scaling gives back what they dilute
        self.row_scale = len(rows) / counted if counted and s.config["loss_type"] in BY_ROW else 1.0
        share = len(rows) // processes
        self.rows = rows[rank * share : (rank + 1) * share]
        length = sum(len(r.attempt.prompt) + len(r.attempt.ids) for r in rows)
        self.seen = LoggedSums(
            tokens_trained=length * s.recipe.updates_per_step, tokens_reference=length if s.recipe.kl_beta > 0 else 0
        )
        self.pending = True

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
        # pi_trainer / pi_sampler per token, cut at `cap` (truncated importance sampling)
        gap = (out["old_per_token_logps"] - out["sampling_per_token_logps"]) * mask
        out["importance_sampling_ratio"] = torch.exp(gap).clamp(max=cap)

    # -- the loss ---------------------------------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        LIFE.give()
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        LIFE.give()
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
        self._record_gaps(inputs)
        anchor = self.session.anchor
        # once per update, not per micro-batch: gradients of micro-batches add up
        if anchor is not None and self.accelerator.sync_gradients:
            sft = self._anchor_loss(model, rows := anchor.draw())
            self.seen.tokens_trained += sum(len(ids) for ids, _ in rows)
            self.seen.sft.append(float(sft.detach()))
            loss = loss + self.session.recipe.sft_anchor * sft
        replay = self.session.replay
        if replay is not None and self.accelerator.sync_gradients and (again := replay.draw()):
            nll = self._anchor_loss(model, [(ids, mask) for ids, mask in again])
            self.seen.replayed.append(float(nll.detach()))
            self.seen.tokens_trained += sum(len(ids) for ids, _ in again)
            loss = loss + self.session.recipe.replay.weight * nll
        return loss

    def _record_gaps(self, inputs: dict[str, Any]) -> None:
        """How far trainer and sampler are apart, and the largest ratio."""
        if self.logps is None:
            return
        mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        now, self.logps = self.logps[mask], None
        if not now.numel():
            return
        if (old := inputs.get("old_per_token_logps")) is not None:
            self.seen.ratio_max = max(self.seen.ratio_max, float(torch.exp(now - old[mask]).max()))
        # only before the first update of a step are trainer and sampler the same weights
        if self.state.global_step % self.session.recipe.updates_per_step == 0:
            gap = torch.nan_to_num((now - inputs["sampling_per_token_logps"][mask]).abs())
            self.seen.gap += float(gap.sum())
            self.seen.gap_max = max(self.seen.gap_max, float(gap.max()))
            self.seen.gap_tokens += gap.numel()

    def _anchor_loss(self, model: Any, rows: Sequence[tuple[list[int], list[bool]]]) -> Tensor:
        """Mean loss of the counted tokens of some texts, shared out among the processes."""
        n, i = self.accelerator.num_processes, self.accelerator.process_index
        total = sum(sum(loss) for _, loss in rows)
        # a process without a share still runs a forward pass: DDP's all-reduce waits for every rank
        mine = rows[i::n] or rows[:1]
        ids, mask, labels = padded(mine, self._tokenizer.pad_token_id, self.accelerator.device)
        with self.accelerator.autocast():
            logits = model(input_ids=ids, attention_mask=mask).logits
        nll = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
        )
        # times n, as DDP averages gradients over the processes
        return nll * n / total if rows[i::n] else nll * 0.0

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
        # transformers logs a summary at the end of a training as well, which belongs to no step
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
        entry = s.entry(self.groups, self._figures(), self.seen.tokens_trained, self.seen.tokens_reference)
        if self.accelerator.is_main_process:
            s.take_average(self.accelerator.unwrap_model(self.model))
        if s.step % s.request.checkpoint_every == 0 or s.step == s.recipe.steps:
            self.checkpoint()
        if self.accelerator.is_main_process:
            self.on_step(entry)

    def _figures(self) -> dict[str, float]:
        """The update's part of the curve entry."""
        x, recipe = self.seen, self.session.recipe
        sums = torch.tensor([x.gap, x.gap_tokens], device=self.accelerator.device)
        x.gap, x.gap_tokens = self.accelerator.reduce(sums, reduction="sum").tolist()
        trained = sum(r.advantage is not None for g in self.groups for r in g.rollouts)
        clipped = x.logged.get("clip_ratio/region_mean", x.logged.get("cispo_clip_ratio", 0.0))
        # a sampler outside the training tells no entropy
        others = [*(["entropy"] if self.use_vllm else []), *(["kl"] if recipe.kl_beta > 0 else [])]
        return x.figures(trained, clipped, {k: x.logged.get(k, 0.0) for k in others})

    def checkpoint(self) -> None:
        """Weights, optimizer, schedule by transformers, the session with them; replaces the last, atomically."""
        Trainer._save_checkpoint(self, self.model_wrapped, None)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            self.session.save(self.state.global_step)
        self.accelerator.wait_for_everyone()
