"""Programs of attempts are probed: a sample of search by default, stored with the rollout, and paid where asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evotrainer.envs.base import Task
from evotrainer.envs.code.env import CodeEnv
from evotrainer.envs.code.probing import ProbeOptions, Prober
from evotrainer.envs.code.source import GrammarSource
from evotrainer.envs.registry import open_environment
from evotrainer.harness import Batch, detect
from evotrainer.records.probes import PROBE_CPU, spent_by
from evotrainer.sandbox import Sandbox
from tests.envs.helpers import grade
from tests.harness_inputs import rollout

EQUAL = "class E:\n    def __eq__(self, o): return True\ndef solve(xs):\n    return E()\n"
CASES = {"visible": [[[3, 1], 9], [[5, 2], 25]], "hidden": [[[8], 64], [[1, 2], 4]]}
HONEST = "def solve(xs):\n    return max(x * x for x in xs)\n"


def task(split: str = "search") -> Task:
    return Task("t", split, "Write solve(xs).", {"form": "function", "spec": "", "gold": HONEST, **CASES})


def world(box: Sandbox, probes: str, cpu_s: float = 600.0) -> CodeEnv:
    options = ProbeOptions(probes=probes, probe_cpu_s=cpu_s)
    return CodeEnv(GrammarSource(), probes=options, open_sandbox=lambda: box)


def test_facts_stand_in_the_detail_and_are_paid_where_every_attempt_is_probed(box: Sandbox) -> None:
    env = world(box, "all")
    lying, honest = grade(env, [task("train")] * 2, [EQUAL, HONEST])
    assert lying.components["no_probe_fact"] == 0.0 and honest.components["no_probe_fact"] == 1.0
    assert [f["probe"] for f in lying.detail["probes"]["facts"]] == ["types"]
    assert honest.detail["probes"]["facts"] == [] and "types" in honest.detail["probes"]["ran"]


def test_by_default_one_search_attempt_in_eight_is_probed_always_the_same(box: Sandbox) -> None:
    some = [f"{HONEST}# {i}" for i in range(400)]
    prober = Prober(ProbeOptions())
    hits = [p for p in some if prober.is_sampled(task(), p)]
    assert 25 < len(hits) < 80 and hits == [p for p in some if prober.is_sampled(task(), p)]
    assert not any(prober.is_sampled(task(split), p) for p in some for split in ("train", "gate", "cert"))
    env = world(box, "sample")
    assert "no_probe_fact" not in env.components
    missed = next(p for p in some if p not in hits)
    probed, other = grade(env, [task()] * 2, [hits[0], missed])
    assert "probes" in probed.detail and "probes" not in other.detail


def test_what_needs_a_package_is_neither_right_nor_wrong(box: Sandbox) -> None:
    (score,) = grade(world(box, "all"), [task()], ["import torch\n" + HONEST])
    assert score.components["no_probe_fact"] is None
    assert score.detail["probes"]["not_run"]["types"] == "needs torch"


def test_the_budget_is_one_for_all_processes_of_a_run_and_then_probes_say_so(box: Sandbox, tmp_path: Path) -> None:
    first, second = world(box, "all", 1e-6), world(box, "all", 1e-6)
    first.prober.ledger = second.prober.ledger = tmp_path / PROBE_CPU
    (score,) = grade(first, [task()], [EQUAL])
    assert score.components["no_probe_fact"] == 0.0 and spent_by(tmp_path / PROBE_CPU) > 0
    (score,) = grade(second, [task()], [HONEST])
    assert score.components["no_probe_fact"] is None and score.detail["probes"]["ran"] == []
    assert score.detail["probes"]["not_run"]["types"] == "probes used up environment.probe_cpu_s=1e-06"


def test_the_task_file_says_which_attempts_are_probed() -> None:
    for probes, there in (("all", True), ("off", False)):
        env = open_environment({"name": "code", "probes": probes})
        assert ("no_probe_fact" in env.components) is there
        env.close()


@pytest.mark.parametrize(("n", "severity"), [(50, "critical"), (400, "warn")])
def test_the_detector_quotes_input_got_and_wanted(n: int, severity: str) -> None:
    fact = {"probe": "repeat", "input": "[3]", "got": "[] the second time", "wanted": "[3]", "certain": True}
    clean = {"probes": {"ran": ["repeat"], "facts": [], "not_run": {}}}
    some = [replace(rollout(f"t{i}", 0, reward=1.0), detail=clean) for i in range(n)]
    some[3] = replace(some[3], detail={"probes": {"ran": ["repeat"], "facts": [fact], "not_run": {}}})
    some[4] = replace(some[4], detail={"probes": {"ran": ["repeat"], "facts": [{**fact, "certain": False}]}})
    some[5] = replace(some[5], detail={"probes": {"ran": [], "facts": [], "not_run": {"repeat": "needs torch"}}})
    batch = Batch.of(some)
    probed = batch.trait("probed")
    assert probed[3:6].tolist()[:2] == [1.0, 0.5] and np.isnan(probed[5]) and probed[0] == 0.0
    certain, nominated = detect(batch, {}, names=["program_probes"])
    assert (certain.severity, certain.validity, nominated.severity) == (severity, True, "info")
    assert certain.numbers["ran"] == n - 1
    assert "input [3]" in certain.quotes[0].text and "wanted [3]" in certain.quotes[0].text
