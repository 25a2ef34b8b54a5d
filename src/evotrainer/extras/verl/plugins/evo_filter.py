"""verl plug-in: the group filter with resampling, and filters that remember,
as verl's replay buffer of the sync trainer."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from evotrainer.extras.verl.plugins.evo_advantage import SIGNAL


class EvoReplayBuffer(ReplayBuffer):
    """Waits for all prompts of a step, drops groups by the recipe's rule, asks for new prompts in their place, at
    most `resample` times. What is missing then is filled up with dropped groups, which `evo_mean_norm` takes out of
    the loss."""

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, float]]:
        if partition_id != "train":
            return super().sample(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)
        SIGNAL.restore(global_steps)
        kept: list[str] = []
        dropped: list[str] = []
        rounds = 0
        rewards_seen: list[int] = []
        while True:
            self._wait(partition_id)
            terminal = self.finished_keys[partition_id] | self.failure_keys[partition_id]
            fresh = sorted(terminal - {*kept, *dropped})
            rewards = self._rewards(partition_id, fresh)
            rewards_seen += [len(rewards[u]) for u in fresh]
            for uid, keep in SIGNAL.judge([(u, rewards[u]) for u in fresh]).items():
                (kept if keep else dropped).append(uid)
            if len(kept) >= batch_size or rounds == SIGNAL.recipe.resample:
                break
            rounds += 1
            self.refill_fn(batch_size - len(kept))
        chosen = (kept + dropped)[:batch_size]
        if not any(rewards_seen):
            raise RuntimeError("no rollout of this step was graded: see rollouts/ of this trial")
        SIGNAL.decided = {u: u in set(kept) for u in chosen}
        SIGNAL.save(global_steps)
        self._clear_groups(partition_id, {*kept, *dropped} - set(chosen))
        metrics = {
            "training/evotrainer/groups_sampled": float(len(kept) + len(dropped)),
            "training/evotrainer/groups_kept": float(len(kept)),
            "training/evotrainer/resampling_rounds": float(rounds),
        }
        return self._materialize_batch(partition_id, chosen, dict(self.partitions[partition_id])), metrics

    def _wait(self, partition_id: str) -> None:
        """Until no prompt is under way."""
        while True:
            self._sync_metadata_from_transfer_queue()
            if not self.pending_keys[partition_id] and not self.running_keys[partition_id]:
                return
            time.sleep(self.poll_interval)

    def _rewards(self, partition_id: str, uids: list[str]) -> dict[str, list[float]]:
        """Rewards of the rollouts of each group; empty where all were lost to faults."""
        wanted = set(uids)
        keys = sorted(k for k in self.partitions[partition_id] if k.split("_")[0] in wanted)
        out: dict[str, list[float]] = defaultdict(list)
        if keys:
            data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["rm_scores"])
            for key, scores in zip(keys, list(data["rm_scores"]), strict=True):
                out[key.split("_")[0]].append(float(scores.sum()))
        return out
