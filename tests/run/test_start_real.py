"""A real run whose agent goes on from the champion's policy, with a cache, and the same run without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.verify import verify
from tests.small_run import TINY

pytestmark = pytest.mark.xdist_group("start")

ON = '{start = "champion", steps = 1, phases = []}'
ASKED = [*TINY, "run.agent=fixed", "run.health_every=0", "judge.max_cost=9", "judge.audit=never", "evaluation.draw=5"]
ASKED += ["run.looks=off", "budget.cpu_s=600", "budget.trial_cpu_s=60", "run.evolve_harness=false"]
ASKED.append(f'run.agent_options={{interventions = [{{factor = "continuation", new = {ON}}}]}}')


@pytest.mark.slow
def test_it_trains_what_follows_and_ends_as_the_run_that_trains_everything(task_file: Path, tmp_path: Path) -> None:
    runs = [
        api.start(task_file, tmp_path / name / "small", [*ASKED, f"run.cache={cache}"])
        for name, cache in (("kept", tmp_path / "cache"), ("alone", "off"))
    ]
    trials = [{e.body.trial: e.body for e in run.events() if e.kind == "finished"} for run in runs]
    assert trials[0].keys() == trials[1].keys() and "b1-s1" in trials[0]
    for trial, kept in trials[0].items():
        alone = trials[1][trial]
        assert (kept.policy_sha256, kept.start_sha256, kept.scores) == (
            alone.policy_sha256,
            alone.start_sha256,
            alone.scores,
        )
    for seed in (1, 2):
        kept, first = (trials[0][f"{b}-s{seed}"] for b in ("b1", "b0"))
        assert kept.start_sha256 == first.policy_sha256 and kept.steps == first.steps + 1
        assert kept.cached and [p.split()[0] for p in kept.cached.parts] == ["start"]
        assert (kept.training_s or 0) > (first.training_s or 0) and trials[1][f"b1-s{seed}"].cached is None
    for run in runs:
        assert not list(run.folder.glob("trials/*/start"))
        assert verify(run.folder).problems == ()
