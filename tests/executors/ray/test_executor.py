"""`executors.ray.executor`: trials on a real Ray cluster of three nodes on this machine, each with its own address;
real trainings, real losses.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.envs import open_environment
from evotrainer.errors import AbortedError, ConfigError, TrainerError
from evotrainer.executors.local import LocalExecutor
from evotrainer.executors.ray import connection
from evotrainer.executors.ray.driver import ClusterExecutor, Progress
from evotrainer.executors.ray.executor import RayBackend
from evotrainer.executors.ray.options import ClusterOptions, parse_cluster_options
from evotrainer.executors.spec import Heartbeat, TrialSpec
from evotrainer.records.events import TrialFinished
from evotrainer.records.reading import load
from evotrainer.records.weights import weights_sha256
from tests.executors.conftest import Make

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(600)]

SEED, STEPS = 1, 60


def children(pids: set[int]) -> set[int]:
    """Live processes below some, whoever started them."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(errors="replace")
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(text[text.rindex(")") + 2 :].split()[1])
    found = set(pids)
    while more := {p for p, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def pids_of(node: Any) -> set[int]:
    return {info.process.pid for infos in node.all_processes.values() for info in infos}


def kill(pids: set[int], how: signal.Signals = signal.SIGKILL) -> None:
    for pid in pids:
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            continue


class Machines:
    """A head node that runs no trials, and one-CPU nodes."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        small = {"object_store_memory": 80 << 20}
        self.cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small}
        )
        self.small = small
        self.nodes: dict[str, Any] = {}
        self.started = pids_of(self.cluster.head_node)
        self.address = self.cluster.address

    def add(self, ip: str) -> None:
        self.nodes[ip] = self.cluster.add_node(num_cpus=1, node_ip_address=ip, **self.small)
        self.started |= pids_of(self.nodes[ip])

    def lose(self, ip: str) -> None:
        """The node is gone, and all that ran there, as by a power cut."""
        kill(children(pids_of(self.nodes.pop(ip))))

    def end(self) -> None:
        if ray.is_initialized():
            ray.shutdown()
        kill(children(self.started))
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def head() -> Iterator[Machines]:
    """The head node alone."""
    with pytest.MonkeyPatch.context() as patch:  # a lost node is noticed in seconds; read by the head's process
        patch.setenv("RAY_health_check_period_ms", "500")
        patch.setenv("RAY_health_check_failure_threshold", "4")
        found = Machines()
        try:
            yield found
        finally:
            found.end()


@pytest.fixture(scope="module")
def machines(head: Machines) -> Machines:
    head.add("127.0.0.2")
    head.add("127.0.0.3")
    return head


@pytest.fixture(scope="module")
def reference(make_spec: Make, tmp_path_factory: pytest.TempPathFactory) -> TrialFinished:
    """The same specification on the local executor."""
    (done,) = LocalExecutor(tmp_path_factory.mktemp("local") / "r", 1).run([make_spec(SEED, STEPS)])
    return done


def same(a: TrialFinished, b: TrialFinished) -> bool:
    """Equal in all that a trial found; its costs may differ."""
    names = ("status", "policy_sha256", "policy_path", "scores", "parts", "parts_sha256", "files", "steps")
    return all(getattr(a, n) == getattr(b, n) for n in names)


def events(run_dir: Path) -> list[dict[str, Any]]:
    lines = (run_dir / "executor.jsonl").read_text().splitlines() if (run_dir / "executor.jsonl").is_file() else []
    return [json.loads(x) for x in lines if x.endswith("}")]


def placed(run_dir: Path, trial: str) -> str:
    """Address of the node that the trial's last attempt runs on."""
    at = [
        e["node"]
        for e in events(run_dir)
        if e.get("event") in ("placed", "taken up") and e["trial"] == trial and "node" in e
    ]
    return at[-1].rpartition("(")[2].rstrip(")") if at else ""


@pytest.mark.slow
def test_a_trial_whose_node_is_lost_ends_elsewhere_with_the_same_weights(
    machines: Machines, make_spec: Make, reference: TrialFinished, tmp_path: Path
) -> None:
    """Nothing shared but an fsspec URL: policy, environment and checkpoints travel; verified files come back."""
    run_dir = tmp_path / "r"
    options = {"address": machines.address, "artifacts": f"file://{tmp_path}/art", "scratch": str(tmp_path / "nodes")}
    executor = ClusterExecutor(run_dir, parse_cluster_options(options), RayBackend())
    lost: list[str] = []
    seen: list[int] = []

    def watch(rows: list[tuple[TrialSpec, Heartbeat | None]]) -> None:
        for spec, beat in rows:
            if beat is not None and beat.phase == "training":
                seen.append(beat.step)
                report = executor.running[spec.trial].report
                if not lost and report is not None and 0 < report.saved < STEPS:
                    lost.append(placed(run_dir, spec.trial))
                    machines.lose(lost[0])

    try:
        (done,) = executor.run([make_spec(SEED, STEPS)], watch)
    finally:
        executor.close()
    assert lost, "the training was over before its node was lost"
    assert placed(run_dir, done.trial) != lost[0]
    assert [e["event"] for e in events(run_dir) if e.get("event") in ("lost", "finished")] == ["lost", "finished"]
    assert done.resumed == 1 and same(done, reference)
    assert len(set(seen)) > 2, "heartbeats reached the driver"
    left = [p for p in (tmp_path / "art").rglob("*") if p.is_file() and "/inputs/" not in str(p)]
    assert left == [], "the artifacts keep nothing of a trial that is in the run folder"
    machines.add("127.0.0.4")


@pytest.mark.slow
def test_the_next_driver_finds_the_trial_of_a_killed_one_at_work(
    machines: Machines, make_spec: Make, reference: TrialFinished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else may drive the run while the first one lives; the trial stands still meanwhile, so as not to end."""
    run_dir = tmp_path / "r"
    options = {"address": machines.address, "lease_s": 60}
    spec = make_spec(SEED, STEPS)
    command = [
        sys.executable,
        "-m",
        "tests.executors.ray.drive",
        str(run_dir),
        json.dumps(options),
        spec.model_dump_json(),
    ]
    driver = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        pid = first_beat(run_dir, driver)
        os.kill(pid, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr("evotrainer.executors.ray.connection.TAKEOVER_S", 0.5)
            with pytest.raises(AbortedError, match=f"driven by process {driver.pid} on .* already"):
                second(run_dir, options, spec)
    finally:
        driver.kill()
        driver.wait()

    def wake(rows: list[tuple[TrialSpec, Heartbeat | None]]) -> None:
        if rows and rows[0][1] is not None and rows[0][1].step < STEPS:
            kill({pid}, signal.SIGCONT)

    (done,) = second(run_dir, options, spec, wake)
    assert same(done, reference) and done.resumed == 0, "it was never interrupted"
    assert [e["event"] for e in events(run_dir) if "trial" in e and e["event"] != "placed"] == [
        "submitted", "taken up", "finished",
    ]  # fmt: skip


def first_beat(run_dir: Path, driver: subprocess.Popen[bytes]) -> int:
    """Process id of the trial, once it gives a sign of life."""
    deadline = time.monotonic() + 180
    while not (run_dir / "trials/b0-s1/heartbeat").is_file() and time.monotonic() < deadline:
        assert driver.poll() is None
        time.sleep(0.05)
    return int(json.loads((run_dir / "trials/b0-s1/heartbeat").read_text())["pid"])


def second(
    run_dir: Path, options: dict[str, Any], spec: TrialSpec, watch: Progress = lambda _: None
) -> list[TrialFinished]:
    executor = ClusterExecutor(run_dir, parse_cluster_options(options), RayBackend())
    try:
        return list(executor.run([spec], watch))
    finally:
        executor.close()


@pytest.mark.slow
def test_a_trial_that_nobody_asks_for_ends_itself(machines: Machines, make_spec: Make, tmp_path: Path) -> None:
    run_dir = tmp_path / "r"
    spec = make_spec(SEED, 100_000)
    options = json.dumps({"address": machines.address, "lease_s": 5})
    command = [sys.executable, "-m", "tests.executors.ray.drive", str(run_dir), options, spec.model_dump_json()]
    driver = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        pid = first_beat(run_dir, driver)
    finally:
        driver.kill()
        driver.wait()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists(), "an orphan computes on"


def test_a_trial_of_no_node_is_refused_before_it_waits(head: Machines, make_spec: Make, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"no node of the cluster holds a trial: it needs 1 CPU, 2 GPU.*autoscaling=true"
    ):
        second(tmp_path / "r", {"address": head.address, "gpus": 2}, make_spec(SEED))


@pytest.mark.slow
def test_a_run_on_the_cluster_verifies(machines: Machines, task_file: Path, base: Path, tmp_path: Path) -> None:
    """A trial that fails by its own fault is not tried again, and its failure reads as with the local executor."""
    broken = tmp_path / "task"
    broken.mkdir()
    text = (task_file.parent / "environment.py").read_text()
    (broken / "environment.py").write_text(text)
    (broken / "task.toml").write_text(task_file.read_text())
    overrides = [
        f"policy.base={base}", "run.evaluate_only=true", "executor.name=ray",
        f"executor.options.address={machines.address}", f"executor.options.artifacts=file://{tmp_path}/art",
        f"executor.options.scratch={tmp_path}/nodes",
        "evaluation.search_tasks=4", "evaluation.gate_tasks=4", "evaluation.cert_tasks=4",
    ]  # fmt: skip
    run = api.start(task_file, tmp_path / "run", overrides)
    assert run.closed is not None
    assert run.verify().ok


@pytest.mark.slow
def test_two_processes_on_two_nodes_train_one_policy(machines: Machines, make_spec: Make, tmp_path: Path) -> None:
    """Ray Train and gloo between the nodes; rollouts, scores and policy are recorded as those of one process."""
    from evotrainer.trainers.base import WarmStartRequest
    from evotrainer.trainers.trl.scratch import warm_start

    plain = make_spec(SEED, 2, 1)
    shape = {"d": 32, "layers": 1, "heads": 2, "kv_heads": 1, "hidden": 64, "context": 192}
    with contextlib.closing(open_environment(plain.environment)) as env:
        warm_start(WarmStartRequest(env.demonstrations(64, 0), (), "", shape, 4, 16, 8e-3, 0, tmp_path / "base"))
    run_dir, own = tmp_path / "r", tmp_path / "r/trials/b0-s1"
    recipe = plain.recipe.model_copy(update={"rewards": {"brevity": 1.0}})  # what an untrained policy differs in
    spec = plain.model_copy(update={"policy_dir": str(tmp_path / "base"), "trainer": "trl", "recipe": recipe})
    (done,) = second(run_dir, {"address": machines.address, "workers_per_trial": 2, "retries": 0}, spec)
    assert (done.status, done.steps, done.error) == ("complete", 2, "")
    assert len(load([run_dir / "rollouts/b0-s1"], split="train")) == 2 * 4 * 4
    assert [s.split for s in done.scores] == ["search", "gate"]
    beside = float((own / "cpu-1").read_text())
    assert 0 < beside < done.cpu_s, "both processes count"
    assert done.policy_sha256 == weights_sha256(own / "policy") != weights_sha256(tmp_path / "base")
    assert not (own / "ray-train").exists()


def test_a_node_that_is_slow_to_start_is_tried_again_and_then_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_S", 0.0)
    done: list[str] = []

    class Slow:
        """Ray on a machine that is busy for so many tries."""

        def __init__(self, tries: int) -> None:
            self.tries = tries

        def init(self, **_: object) -> None:
            done.append("init")
            if len(done) // 2 < self.tries:
                raise Exception("The current node timed out during startup. This could happen because ...")

        def shutdown(self) -> None:
            done.append("shutdown")

    class Joining(connection.RayConnection):
        def __init__(self, ray: Slow) -> None:
            self.ray, self.options = ray, ClusterOptions()

    Joining(Slow(2))._connect()
    assert done == ["init", "shutdown", "init", "shutdown", "init"]
    done.clear()
    with pytest.raises(TrainerError, match=r"no Ray cluster at this machine: .*timed out during startup"):
        Joining(Slow(9))._connect()
