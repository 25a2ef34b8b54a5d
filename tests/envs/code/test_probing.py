"""Programs of attempts are probed: a sample of search by default, stored with the rollout, and paid where asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evotrainer.envs.base import Task
from evotrainer.envs.code.env import CodeEnv
from evotrainer.envs.code.probing import Probes, is_sampled
from evotrainer.envs.code.source import GrammarSource
from evotrainer.envs.registry import open_environment
from evotrainer.harness import Batch, detect
from evotrainer.sandbox import Sandbox
from tests.envs.helpers import grade
from tests.harness_inputs import rollout

EQUAL = "class E:\n    def __eq__(self, o): return True\ndef solve(xs):\n    return E()\n"
CASES = {"visible": [[[3, 1], 9], [[5, 2], 25]], "hidden": [[[8], 64], [[1, 2], 4]]}
HONEST = "def solve(xs):\n    return max(x * x for x in xs)\n"


def task(split: str = "search") -> Task:
    return Task("t", split, "Write solve(xs).", {"form": "function", "spec": "", "gold": HONEST, **CASES})


def world(box: Sandbox, probes: Probes) -> CodeEnv:
    return CodeEnv(GrammarSource(), probes=probes, open_sandbox=lambda: box)


def test_facts_stand_in_the_detail_and_are_paid_where_every_attempt_is_probed(box: Sandbox) -> None:
    env = world(box, "all")
    lying, honest = grade(env, [task("train")] * 2, [EQUAL, HONEST])
    assert lying.components["no_probe_fact"] == 0.0 and honest.components["no_probe_fact"] == 1.0
    assert [f["probe"] for f in lying.detail["probes"]["facts"]] == ["types"]
    assert honest.detail["probes"]["facts"] == [] and "types" in honest.detail["probes"]["ran"]


def test_by_default_one_search_attempt_in_eight_is_probed_always_the_same(box: Sandbox) -> None:
    some = [f"{HONEST}# {i}" for i in range(400)]
    hits = [p for p in some if is_sampled(task(), p, "sample")]
    assert 25 < len(hits) < 80 and hits == [p for p in some if is_sampled(task(), p, "sample")]
    assert not any(is_sampled(task(split), p, "sample") for p in some for split in ("train", "gate", "cert"))
    env = world(box, "sample")
    assert "no_probe_fact" not in env.components
    missed = next(p for p in some if p not in hits)
    probed, other = grade(env, [task()] * 2, [hits[0], missed])
    assert "probes" in probed.detail and "probes" not in other.detail


def test_what_needs_a_package_is_neither_right_nor_wrong(box: Sandbox) -> None:
    (score,) = grade(world(box, "all"), [task()], ["import torch\n" + HONEST])
    assert score.components["no_probe_fact"] is None
    assert score.detail["probes"]["not_run"]["types"] == "needs torch"


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
