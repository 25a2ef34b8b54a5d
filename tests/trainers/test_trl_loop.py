"""The whole loop with the trl trainer, offline: a policy from scratch, trained on GSM8K-style questions, judged, certified, verified."""

from __future__ import annotations

from pathlib import Path

import pytest
from trl_base import fork_trials

from evotrainer.api import start

pytest.importorskip("trl", reason="TRL is an extra: pip install 'evotrainer[trl]'")
pytestmark = pytest.mark.xdist_group("trl")

EXAMPLE = Path(__file__).parents[2] / "examples" / "trl-gsm8k.toml"


def test_a_run_through_trl_is_complete_and_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_trials(monkeypatch)
    small = [
        *("policy.warm_start.steps=3", "policy.warm_start.shape.width=32", "policy.warm_start.demonstrations=64"),
        *("recipe.steps=1", "recipe.prompts_per_step=2", "recipe.group_size=2", "recipe.max_tokens=4"),
        *("run.rounds=0", "run.seeds=[1, 2]", "run.certify_seeds=[101]", "run.workers=1", "run.agent=random"),
        *("evaluation.search_tasks=2", "evaluation.gate_tasks=2", "evaluation.cert_tasks=2", "judge.audit=never"),
    ]
    run = start(EXAMPLE, tmp_path / "run", small)
    assert run.certification is not None and run.closed is not None
    opened = next(e.body for e in run.events() if e.kind == "run")
    assert opened.base_policy == {"path": "warm-start"}
    trained = [e.body for e in run.events() if e.kind == "finished" and e.body.steps]
    assert len(trained) >= 2 and all(t.status == "complete" and t.curve[0]["step"] == 1 for t in trained)
    assert (run.folder / "trials" / "b0-s1" / "policy" / "chat_template.jinja").is_file()
    from evotrainer.records.store import load

    stored = load([run.folder / "rollouts" / "b0-s1"], split="train")
    assert len(stored) == 4 and all(r.token_ids and r.logprobs for r in stored)
    assert not run.verify().problems
