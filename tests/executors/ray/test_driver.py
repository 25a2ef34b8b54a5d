"""`executors.ray.driver` on a scripted cluster: what is tried again, what is a failure, what stops the run."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evotrainer.config.load import load_task
from evotrainer.config.overrides import RESUMABLE
from evotrainer.config.task import default_workers
from evotrainer.errors import ConfigError, FaultsError, MissingDependencyError, SandboxError, StoreError, TrainerError
from evotrainer.executors import devices, local_workers, preflight_executor, wants_gpu
from evotrainer.executors.ray import driver as cluster
from evotrainer.executors.ray import results
from evotrainer.executors.ray.backend import SupervisorLost
from evotrainer.executors.ray.driver import ClusterExecutor
from evotrainer.executors.ray.file_copier import PASSING
from evotrainer.executors.ray.job import NodeJob, Report, versions
from evotrainer.executors.ray.options import ClusterOptions, parse_cluster_options, with_gpus
from evotrainer.executors.ray.supervisor import NodeSupervisor
from evotrainer.executors.spec import Heartbeat, TrialSpec, trial_dir, write_atomic
from evotrainer.records.events import TrialFinished
from tests.executors.conftest import Make


def beat(step: int) -> str:
    return Heartbeat(pid=1, step=step, steps=9, phase="training", cpu_s=float(step), time=0.0).model_dump_json()


def result(trial: str) -> TrialFinished:
    return TrialFinished(trial=trial, branch="b0", seed=1, status="complete", cpu_s=1.0, wall_s=1.0, steps=4)


class Scripted:
    """A cluster whose n-th attempt at a trial goes as the script says: states, or (state, changes of the report)."""

    def __init__(self, run_dir: Path, script: Callable[[str, int], list[Any]], slots: int = 4) -> None:
        self.run_dir, self.script, self.places = run_dir, script, slots
        self.tries: dict[str, int] = {}
        self.live: dict[tuple[str, int], list[Any]] = {}
        self.ended: list[tuple[str, int]] = []
        self.most = 0
        self.found: dict[str, list[int]] = {}
        self.jobs: list[NodeJob] = []

    def open(self, key: str, options: ClusterOptions) -> ClusterOptions:
        return options

    def close(self) -> None: ...
    def slots(self) -> int:
        return self.places

    def alive(self) -> dict[str, list[int]]:
        return self.found

    def attach(self, trial: str, attempt: int) -> bool:
        self.live[trial, attempt] = list(self.script(trial, 0))
        return True

    def submit(self, job: NodeJob) -> None:
        self.jobs.append(job)
        n = self.tries[job.trial] = self.tries.get(job.trial, 0) + 1
        self.live[job.trial, job.attempt] = list(self.script(job.trial, n))
        self.most = max(self.most, len(self.live))

    def poll(self, wait_s: float) -> list[Report | SupervisorLost]:
        out: list[Report | SupervisorLost] = []
        for (trial, attempt), todo in list(self.live.items()):
            if not todo:
                continue
            state, *rest = todo.pop(0) if isinstance(todo[0], tuple) else (todo.pop(0),)
            if state == "lost":
                out.append(SupervisorLost(trial, attempt, "its node was lost"))
                del self.live[trial, attempt]
                continue
            changes = {"heartbeat": beat(rest[0])} if rest and isinstance(rest[0], int) else rest[0] if rest else {}
            if state == "finished":
                done = result(trial)
                write_atomic(trial_dir(self.run_dir, trial) / "result.json", done.model_dump_json())
                changes = {"result": done.model_dump_json()}
                del self.live[trial, attempt]
            out.append(Report(trial, attempt, 1, state, node="n1", **changes))
        return out

    def end(self, trial: str, attempt: int) -> None:
        self.ended.append((trial, attempt))
        self.live.pop((trial, attempt), None)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "POLL_S", 0.002)
    monkeypatch.setattr(cluster, "AHEAD", 0)
    monkeypatch.setattr(results, "CHECK_S", 0.002)


def executor(
    tmp_path: Path, script: Callable[[str, int], list[Any]], slots: int = 4, **options: Any
) -> ClusterExecutor:
    return ClusterExecutor(tmp_path, parse_cluster_options(options), Scripted(tmp_path, script, slots))


def rows(tmp_path: Path) -> list[tuple[str, int, str]]:
    lines = [json.loads(x) for x in (tmp_path / "executor.jsonl").read_text().splitlines() if x.endswith("}")]
    return [(r["trial"], r["attempt"], r["event"]) for r in lines if "trial" in r]


def test_a_lost_node_costs_an_attempt_and_no_result(tmp_path: Path, make_spec: Make) -> None:
    one = executor(tmp_path, lambda t, n: [("running", 3), "lost"] if n == 1 else [*[("running", 4)] * 9, "finished"])
    seen: list[int] = []
    done = list(one.run([make_spec(1)], lambda r: seen.extend(h.step for _, h in r if h)))
    assert [d.status for d in done] == ["complete"]
    assert rows(tmp_path) == [
        ("b0-s1", 1, "submitted"), ("b0-s1", 1, "placed"), ("b0-s1", 1, "lost"),
        ("b0-s1", 2, "submitted"), ("b0-s1", 2, "placed"), ("b0-s1", 2, "finished"),
    ]  # fmt: skip
    assert set(seen) == {3, 4}
    assert Heartbeat.model_validate_json(one.backend.jobs[1].heartbeat).cpu_s == 3.0, "what was used is carried on"


def test_a_trial_is_told_how_many_gpus_it_was_given(tmp_path: Path, make_spec: Make) -> None:
    """What it holds is paid for by allocation, also where a node shows it more."""
    one = executor(tmp_path, lambda t, n: ["finished"], gpus=0.5, workers_per_trial=4, env={"A": "b"})
    assert [d.status for d in one.run([make_spec(1)])] == ["complete"]
    assert one.backend.jobs[0].env == {"A": "b", devices.GIVEN: "2"}


def test_losses_without_a_step_gained_stop_the_run_and_record_nothing(tmp_path: Path, make_spec: Make) -> None:
    one = executor(tmp_path, lambda t, n: [("running", 1), "lost"], retries=1)
    with pytest.raises(TrainerError, match=r"lost its place in the cluster 2 times .*evotrainer resume"):
        list(one.run([make_spec(1)]))
    assert one.local.result(make_spec(1)) is None


def test_losses_after_new_checkpoints_go_on(tmp_path: Path, make_spec: Make) -> None:
    one = executor(tmp_path, lambda t, n: [("running", 2 * n), "lost"] if n < 5 else ["finished"], retries=1)
    assert [d.status for d in one.run([make_spec(1, every=2)])] == ["complete"]


def test_a_trial_that_is_killed_again_and_again_has_failed(tmp_path: Path, make_spec: Make) -> None:
    one = executor(tmp_path, lambda t, n: [("killed", {"error": "killed by signal 9 (out of memory?)"})], retries=1)
    (done,) = one.run([make_spec(1)])
    assert (done.status, done.label) == ("failed", "crash")
    assert "killed by signal 9 (out of memory?), 2 times" in done.error
    assert len(one.backend.jobs) == 2


def test_a_failure_names_no_file_that_stays_on_its_node(tmp_path: Path, make_spec: Make) -> None:
    one = executor(tmp_path, lambda t, n: [])
    spec = make_spec(1)
    folder = one.local.prepare(spec)
    store = tmp_path / "rollouts" / spec.trial
    store.mkdir(parents=True)
    (store / "tail.log").write_bytes(b"")
    for name in PASSING:
        (store / name).write_text("1")
    failed = one.local.record_failure(spec, folder, "crash", "it broke", 1.0, None)
    assert {Path(n).name for n in failed.files} >= {"spec.json", "tail.log"}
    assert not {Path(n).name for n in failed.files} & {"writer.lock"}, "a writer's lock does not travel"


@pytest.mark.parametrize("kind", [StoreError, SandboxError, FaultsError, ConfigError])
def test_faults_of_the_machine_stop_the_run_and_end_the_others(tmp_path: Path, make_spec: Make, kind: type) -> None:
    def script(trial: str, n: int) -> list[Any]:
        return [("fault", {"kind": kind.__name__, "error": "cause; remedy"})] if trial == "b0-s2" else [("running", 1)]

    one = executor(tmp_path, script)
    with pytest.raises(kind, match="cause; remedy"):
        list(one.run([make_spec(1), make_spec(2)]))
    assert ("b0-s1", 1) in one.backend.ended
    assert one.local.result(make_spec(1)) is None and one.local.result(make_spec(2)) is None


def test_attempts_of_an_earlier_driver_are_taken_up_and_strangers_ended(tmp_path: Path, make_spec: Make) -> None:
    first = executor(tmp_path, lambda t, n: [("running", 1)])
    running = first.run([make_spec(1)], lambda r: (_ for _ in ()).throw(KeyboardInterrupt) if r[0][1] else None)
    with pytest.raises(KeyboardInterrupt):
        list(running)
    second = executor(tmp_path, lambda t, n: [("running", 2), "finished"])
    second.backend.found = {"b0-s1": [1], "b9-s9": [4]}
    (done,) = second.run([make_spec(1)])
    assert done.status == "complete" and not second.backend.jobs
    assert ("b9-s9", 4) in second.backend.ended
    assert ("b0-s1", 1, "taken up") in rows(tmp_path)


def test_attempt_numbers_go_on_after_a_torn_line(tmp_path: Path, make_spec: Make) -> None:
    list(executor(tmp_path, lambda t, n: ["finished"]).run([make_spec(1)]))
    key = json.loads((tmp_path / "executor.jsonl").read_text().splitlines()[0])["key"]
    with open(tmp_path / "executor.jsonl", "a") as f:
        f.write('{"trial": "b0-s1", "att')
    (trial_dir(tmp_path, "b0-s1") / "result.json").unlink()
    second = executor(tmp_path, lambda t, n: ["finished"])
    list(second.run([make_spec(1)]))
    assert (second.backend.jobs[0].key, second.backend.jobs[0].attempt) == (key, 2)
    assert ("b0-s1", 2, "submitted") in rows(tmp_path)


def test_a_lease_that_ran_out_is_nobodys_loss(tmp_path: Path, make_spec: Make) -> None:
    one = executor(tmp_path, lambda t, n: ["expired"] if n < 4 else ["finished"], retries=0)
    assert [d.status for d in one.run([make_spec(1)])] == ["complete"]


def test_no_more_trials_run_than_the_cluster_holds(tmp_path: Path, make_spec: Make) -> None:
    for options, slots, most in (({}, 3, 3), ({"max_concurrent": 2}, 9, 2)):
        one = executor(tmp_path / str(most), lambda t, n: [("running", 1), "finished"], slots, **options)
        assert len(list(one.run([make_spec(i) for i in range(8)]))) == 8
        assert one.backend.most == most


def test_a_result_that_is_not_in_the_run_folder_names_the_remedy(
    tmp_path: Path, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "VISIBLE_S", 0.05)
    one = executor(tmp_path, lambda t, n: [("finished", {})])
    monkeypatch.setattr(one.local, "result", lambda spec: None)
    with pytest.raises(StoreError, match=r"do not share this file system; set executor\.options\.artifacts"):
        list(one.run([make_spec(1)]))


def job(spec: TrialSpec, run_dir: Path, **changes: Any) -> dict[str, Any]:
    given = NodeJob(
        key="k",
        run="r",
        spec=spec.model_dump_json(),
        trial=spec.trial,
        attempt=1,
        run_dir=str(run_dir),
        versions=versions(),
    )
    return {**given.pack(), **changes}


def last(supervisor: NodeSupervisor) -> dict[str, Any]:
    report: dict[str, Any] = {}
    deadline = time.monotonic() + 60
    while report.get("state") not in ("refused", "fault", "finished", "expired") and time.monotonic() < deadline:
        report = supervisor.watch(report.get("number", -1), 5.0)
    return report


def test_a_node_with_another_version_refuses_before_it_starts(tmp_path: Path, make_spec: Make) -> None:
    supervisor = NodeSupervisor(
        job(make_spec(1), tmp_path, versions={"evotrainer": "9.9", "python": versions()["python"]})
    )
    report = last(supervisor)
    assert report["state"] == "refused"
    assert "where the driver has 9.9; install the driver's versions" in report["error"]
    supervisor.stop()


def test_a_node_that_does_not_see_the_run_folder_says_so(tmp_path: Path, make_spec: Make) -> None:
    supervisor = NodeSupervisor(job(make_spec(1), tmp_path / "elsewhere"))
    report = last(supervisor)
    assert (report["state"], report["kind"]) == ("refused", "ConfigError")
    assert "set executor.options.artifacts" in report["error"]
    supervisor.stop()


def test_options_are_checked_before_anything_is_spent(task_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("executor.options.cpu=1", "executor.options.cpus=-1", "executor.options.lease_s=1"):
        with pytest.raises(ConfigError, match=r"executor\.options"):
            preflight_executor(load_task(task_file, ["executor.name=ray", wrong]))
    with pytest.raises(ConfigError, match="embedded trainer trains in one process"):
        preflight_executor(load_task(task_file, ["executor.name=ray", "executor.options.workers_per_trial=2"]))
    task = load_task(task_file, ["executor.name=ray"])
    found = importlib.util.find_spec  # ray alone: a module first imported meanwhile may keep what it takes from here
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *at: None if name == "ray" else found(name, *at))
    with pytest.raises(MissingDependencyError, match=r"pip install -e '.*\[ray\]'"):
        preflight_executor(task)


def test_what_the_executor_cannot_keep_is_refused_before_anything_is_spent(
    task_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    trl, ray = "trainer.name=trl", "executor.name=ray"
    cuda, two = "trainer.options.device=cuda", "executor.options.workers_per_trial=2"
    odd = load_task(task_file, [trl, ray, two, "recipe.prompts_per_step=3"])
    even = load_task(task_file, [trl, ray, two, "recipe.prompts_per_step=4"])
    with pytest.raises(ConfigError, match="prompts_per_step=3 cannot be shared out among executor.options.workers_per"):
        preflight_executor(odd)
    preflight_executor(even)
    with pytest.raises(ConfigError, match="make it a multiple"):
        preflight_executor(even, [odd.recipe])
    for url, good in (("nosuch://bucket/x", False), ("memory://x", True), ("file:///shared", True), ("/shared", True)):
        task = load_task(task_file, [ray, f"executor.options.artifacts={url}"])
        if good:
            preflight_executor(task)
            continue
        with pytest.raises(ConfigError, match="nosuch.*give an fsspec URL"):
            preflight_executor(task)
    with pytest.raises(ConfigError, match="gpus=0 gives trials no GPU"):
        preflight_executor(load_task(task_file, [trl, ray, cuda, "executor.options.gpus=0"]))
    preflight_executor(load_task(task_file, [trl, ray, cuda]))
    monkeypatch.setattr(devices, "gpu_visible", lambda: False)
    with pytest.raises(ConfigError, match="device=cuda, but this machine shows no GPU"):
        preflight_executor(load_task(task_file, [trl, cuda]))
    monkeypatch.setattr(devices, "gpu_visible", lambda: True)
    preflight_executor(load_task(task_file, [trl, cuda]))


def test_a_trl_trial_gets_a_gpu_where_the_cluster_has_one(task_file: Path) -> None:
    def gpus(given: dict[str, Any], wanted: bool, there: float) -> float:
        return with_gpus(parse_cluster_options(given), wanted, there).gpus

    assert gpus({}, True, 8.0) == 1.0
    assert gpus({"gpus": 0}, True, 8.0) == gpus({}, False, 8.0) == gpus({}, True, 0.0) == 0.0
    assert gpus({"gpus": 0.5}, True, 8.0) == 0.5
    assert wants_gpu(load_task(task_file, ["trainer.name=trl"])) and not wants_gpu(load_task(task_file))
    assert not wants_gpu(load_task(task_file, ["trainer.name=trl", "trainer.options.device=cpu"]))


def test_trials_of_trl_do_not_share_this_machines_gpu(
    task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "version"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert not devices.gpu_visible([str(driver)])
    driver.write_text("NVRM")
    for shown, seen in (("0,1", True), ("", False), ("-1", False)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
        assert devices.gpu_visible([str(driver)]) is seen
    monkeypatch.setattr(devices, "gpu_visible", lambda: True)
    trl, one_per_core = "trainer.name=trl", default_workers()
    assert local_workers(load_task(task_file, [trl])) == 1
    assert local_workers(load_task(task_file, [trl, "run.workers=3"])) == 3
    assert local_workers(load_task(task_file)) == one_per_core
    assert local_workers(load_task(task_file, [trl, "trainer.options.device=cpu"])) == one_per_core
    monkeypatch.setattr(devices, "gpu_visible", lambda: False)
    assert local_workers(load_task(task_file, [trl])) == one_per_core


def test_a_resume_may_move_a_run_to_another_cluster() -> None:
    assert "executor.name=ray".startswith(RESUMABLE) and "executor.options.address=auto".startswith(RESUMABLE)
