"""The whole loop with the trl trainer, offline: a policy from scratch, trained on GSM8K-style questions, judged,
certified, verified.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evotrainer.api import Run, start
from evotrainer.executors.ray.job import ENDED
from evotrainer.records.events import TrialFinished
from tests.trainers.trl.small_policy import fork_trials

pytest.importorskip("trl", reason="TRL is an extra: pip install 'evotrainer[trl]'")
pytestmark = pytest.mark.xdist_group("trl")

EXAMPLE = Path(__file__).parents[3] / "examples" / "trl-gsm8k.toml"


SMALL = [
    *("policy.warm_start.steps=3", "policy.warm_start.shape.width=32", "policy.warm_start.demonstrations=64"),
    *("recipe.steps=1", "recipe.prompts_per_step=2", "recipe.group_size=2", "recipe.max_tokens=4"),
    *("run.rounds=0", "run.seeds=[1, 2]", "run.certify_seeds=[101]", "run.workers=1", "run.agent=random"),
    *("evaluation.search_tasks=2", "evaluation.gate_tasks=2", "evaluation.cert_tasks=2", "judge.audit=never"),
]


def test_a_run_through_trl_is_complete_and_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_trials(monkeypatch)
    run = start(EXAMPLE, tmp_path / "run", SMALL)
    assert run.certification is not None and run.closed is not None
    opened = next(e.body for e in run.events() if e.kind == "run")
    assert opened.base_policy == {"path": "warm-start"}
    trained = [e.body for e in run.events() if e.kind == "finished" and e.body.steps]
    assert len(trained) >= 2 and all(t.status == "complete" and t.curve[0]["step"] == 1 for t in trained)
    assert (run.folder / "trials" / "b0-s1" / "policy" / "chat_template.jinja").is_file()
    from evotrainer.records.reading import load

    stored = load([run.folder / "rollouts" / "b0-s1"], split="train")
    assert len(stored) == 4 and all(r.token_ids and r.logprobs for r in stored)
    assert not run.verify().problems


@pytest.mark.slow
def test_adapters_of_a_run_move_with_it_are_evaluated_on_a_node_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from evotrainer.executors.inputs import Inputs
    from evotrainer.executors.ray.artifacts import Artifacts
    from evotrainer.executors.ray.job import NodeJob, versions
    from evotrainer.executors.ray.supervisor import NodeSupervisor
    from evotrainer.executors.spec import read_spec
    from evotrainer.trainers.trl.folder import load_model

    fork_trials(monkeypatch)
    first = start(EXAMPLE, tmp_path / "run", [*SMALL, "trainer.options.lora={r=2}", "recipe.lr=0.01"])
    assert first.certification is not None and first.closed is not None
    assert not first.verify().problems
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    assert not Run(moved).verify().problems
    policy = moved / "trials" / "b0-s1" / "policy"
    assert not [p for p in policy.iterdir() if str(tmp_path).encode() in p.read_bytes()]

    # a training and an evaluation of its policy on a node that sees nothing of this folder
    (tmp_path / "bucket").mkdir()
    trained = read_spec(moved / "trials" / "b0-s1")
    again = {"trial": "again", "train": False, "policy_dir": "trials/b0-s1/policy", "policy_step": trained.recipe.steps}
    evaluated = trained.model_copy(update=again)
    for spec in (trained, evaluated):
        trees, files = Inputs(moved, ()).of(spec)
        url = f"file://{tmp_path}/bucket"
        Artifacts(url, "k").put_inputs(files)
        job = NodeJob(
            key="k", run=spec.run, spec=spec.model_dump_json(), trial=spec.trial, attempt=1, run_dir="", artifacts=url,
            inputs=tuple(trees), scratch=str(tmp_path / "node"), versions=versions())  # fmt: skip
        supervisor = NodeSupervisor(job.pack())
        report: dict[str, Any] = {}
        while report.get("state") not in ENDED:
            report = supervisor.watch(report.get("number", -1), 5.0)
        supervisor.stop()
        assert report["state"] == "finished", report["error"]
        done = TrialFinished.model_validate_json(report["result"])
        recorded = next(e.body for e in Run(moved).events() if e.kind == "finished" and e.body.trial == "b0-s1")
        assert done.policy_sha256 == recorded.policy_sha256 and done.scores == recorded.scores
        assert {
            k: v for k, v in recorded.files.items() if "policy" in k
        }.items() <= done.files.items() or spec is evaluated

    out = Run(moved).export(tmp_path / "out", branch="b0", seed=1)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        whole = AutoModelForCausalLM.from_pretrained(out)(ids).logits
        assert torch.allclose(load_model(policy, torch.float32)(ids).logits, whole, atol=1e-4)
    assert AutoTokenizer.from_pretrained(out).chat_template
