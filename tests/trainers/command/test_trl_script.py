"""TRL's own GRPO script, unchanged, is a trial."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evotrainer.records.recipe import Recipe
from evotrainer.trainers.base import EvalRequest, Identity, installed
from tests.trainers.command.own import Trained

CONFIG = """
model_name_or_path: "{policy}"
output_dir: "{out}"
seed: "{seed}"
datasets:
  - path: json
    data_files: "{tasks}"
    columns: [prompt]
reward_funcs: [digit_rewards.digits]
log_completions: true
logging_steps: 1
save_strategy: steps
save_steps: 1
report_to: none
use_cpu: true
bf16: false
disable_tqdm: true
dtype: float32
"""
RECIPE = Recipe(steps=2, prompts_per_step=4, group_size=4, max_tokens=4, lr=1e-3, loss="dapo", rewards={"digits": 1.0})


@pytest.mark.skipif(not installed("trl"), reason="needs trl: pip install 'evotrainer[trl]'")
def test_trls_own_script_trains_unchanged(base: Path, tmp_path: Path) -> None:
    (tmp_path / "grpo.yaml").write_text(CONFIG)
    options = {
        "command": [sys.executable, "-m", "trl.scripts.grpo", "--config", "{config}"],
        "cwd": str(Path(__file__).parent),
        "env": {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"},
        "config": str(tmp_path / "grpo.yaml"),
        "map": "trl",
        "fixed": {"rewards": {"digits": 1.0}},
        "rollouts": "completions",
        "metrics": "checkpoint-*/trainer_state.json",
        "policy": ".",
        "evaluation": {"by": "embedded"},
    }
    t = Trained(options, base, tmp_path / "trial", RECIPE)
    assert [row["step"] for row in t.rows] == [1, 2] and all("grad_norm" in row and "loss" in row for row in t.rows)
    assert len(t.rollouts) == 32 and {r.task.split("-")[0] for r in t.rollouts} == {"train"}
    assert all(r.components["digits"] == pytest.approx(r.reward) for r in t.rollouts), "as the environment says"
    assert t.rows[0]["reward"] == pytest.approx(sum(r.reward or 0 for r in t.rollouts[:16]) / 16, abs=1e-6)
    assert t.sha != t.trainer.policy_sha256(base)
    asked = EvalRequest(Identity("r", "b1", 1), RECIPE, t.result.policy_dir, "search", 2, attempts=1, tasks=8)
    assert len(t.trainer.evaluate(asked, t.env, lambda _: None)) == 8
