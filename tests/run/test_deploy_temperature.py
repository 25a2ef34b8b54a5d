"""The deployment temperature as a factor: a real small run whose branch changes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.why import why
from evotrainer.executors.spec import read_spec
from evotrainer.records.reading import load
from tests.small_run import TINY

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("loop")]
COLDER = 'run.agent_options.interventions=[{factor="deploy_temperature",new=0.25}]'


def test_a_branch_is_used_judged_and_verified_at_its_own_temperature(
    task_file: Path, trained_base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [*TINY, f"policy.base={trained_base}", "run.agent=fixed", COLDER, "evaluation.gate_tasks=60"]
    run = api.start(task_file, tmp_path / "run", overrides)
    done = {e.body.trial: e.body for e in run.events() if e.kind == "finished"}
    for name, t in done.items():
        own = 0.25 if t.branch == "b1" else None
        assert {s.temperature for s in t.scores} == {own}, name
        assert read_spec(run.folder / "trials" / name).protocol.temperature == (own or 1.0)
    a, b = done["b0-s1"], done["b1-s1"]
    assert a.policy_sha256 == b.policy_sha256, "training does not see it"
    assert [s.greedy_per_task for s in a.scores] == [s.greedy_per_task for s in b.scores], "nor does greedy decoding"
    drawn = {t: {r.completion for r in load([run.folder / "rollouts" / t], split="search")} for t in (a.trial, b.trial)}
    assert len(drawn[b.trial]) < len(drawn[a.trial]), "colder draws repeat themselves"
    (verdict,) = run.verdicts
    assert next(g.passed for g in verdict.gates if g.gate == "identical") is True
    assert "; compared at their deployment temperatures: b1 0.25, b0 the run's" in verdict.reason
    assert run.verify().ok
    why(run.folder, "b1")
    assert "deployment temperatures: b1 0.25" in capsys.readouterr().out
