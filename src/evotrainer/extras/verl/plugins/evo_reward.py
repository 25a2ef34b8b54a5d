"""verl plug-in: EvoTrainer's rewards. Runs in verl's reward workers.

`EvoRewardManager` hands the sampled tokens and the rollout's place on,
`compute_score` grades with the task's environment.
"""

from __future__ import annotations

from typing import Any

from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

from evotrainer.errors import TaskSetError
from evotrainer.extras.verl.scoring import GradedRollout, Origin, ProcessGrader
from evotrainer.extras.verl.training import VerlTraining

TAKEN = ("score", "reward", "acc", "correct")
"""Names that verl or the importer reads in a meaning of its own; verl counts a missing `acc` as 0."""

_grader: ProcessGrader | None = None


def grader() -> ProcessGrader:
    """This process's grader."""
    global _grader
    if _grader is None:
        _grader = ProcessGrader(VerlTraining.read())
    return _grader


def report(graded: GradedRollout) -> dict[str, Any]:
    """What verl keeps of a graded rollout: score, verdict where there is one, components that apply."""
    out: dict[str, Any] = {"score": graded.reward}
    if graded.score.outcome != "unknown":
        out["correct"] = float(graded.score.outcome == "correct")
    for name, value in graded.score.components.items():
        if value is not None:
            out[f"component_{name}" if name in TAKEN else name] = float(value)
    return out


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **_: Any
) -> dict[str, Any]:
    """Reward of one completion; `ground_truth` is the task's id. Raises where the infrastructure failed: verl then
    leaves the rollout out of its group."""
    place = (extra_info or {}).get("evotrainer")
    if place is None:
        raise TaskSetError("this reward needs the sampled tokens; leave reward.reward_manager alone (EvoRewardManager)")
    origin = Origin(place["group"], place["k"], place["step"])
    return report(grader().grade(str(ground_truth), solution_str, place["ids"], place["finish"], origin))


class EvoRewardManager(NaiveRewardManager):
    """verl's own manager, which also tells the reward function what was sampled and where."""

    async def run_single(self, data: Any) -> dict[str, Any]:
        data = data[-1:]
        item = data[0]
        width = item.batch["responses"].shape[-1]
        ids = item.batch["responses"][: int(item.batch["attention_mask"][-width:].sum())].tolist()
        meta = item.non_tensor_batch
        extra = dict(meta.get("extra_info") or {})
        ended = bool(ids) and ids[-1] == self.tokenizer.eos_token_id
        full = len(ids) >= int(self.config.actor_rollout_ref.rollout.response_length)
        extra["evotrainer"] = {
            "ids": ids,
            "finish": "length" if full and not ended else "stop",
            "group": str(meta["uid"]),
            "k": int(meta["session_id"]),
            "step": int(meta["global_steps"]),
        }
        data.non_tensor_batch["extra_info"][0] = extra
        return await super().run_single(data)
