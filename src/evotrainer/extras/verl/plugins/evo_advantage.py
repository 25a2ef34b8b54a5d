"""verl plug-in: the advantage estimator `evo_mean_norm`. verl imports it by VERL_USE_EXTERNAL_MODULES."""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.core_algos import register_adv_est

from evotrainer.extras.verl import ESTIMATOR
from evotrainer.extras.verl.signal import Signal
from evotrainer.extras.verl.training import VerlTraining

_TRAINING = VerlTraining.read()
SIGNAL = Signal(_TRAINING.recipe, _TRAINING.out / "filter")
"""The rules of this run, shared with plugins/evo_filter.py."""


@register_adv_est(ESTIMATOR)
def evo_mean_norm(token_level_rewards: Any, response_mask: Any, index: Any, **_: Any) -> tuple[Any, Any]:
    """Advantages [rows, tokens], twice (as returns too). Rows that do not count are cleared in `response_mask`, in
    place: verl writes the mask back after this call, as it does after rejection sampling."""
    rewards = token_level_rewards.sum(dim=-1).tolist()
    tokens = [int(n) for n in response_mask.sum(dim=-1).tolist()]
    rows = SIGNAL.rows(rewards, tokens, [str(g) for g in index])
    response_mask[token_level_rewards.new_tensor(rows.counted) == 0] = 0
    values = token_level_rewards.new_tensor(rows.advantages).unsqueeze(-1) * response_mask
    return values, values
