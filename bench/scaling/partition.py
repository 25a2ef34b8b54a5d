"""A node that is cut off and computes on: `python -m bench.scaling.partition`
(root, Linux network namespaces, 3 to 5 minutes).

Two Ray nodes live in network namespaces with addresses of their own. While a trial trains on the first, its link is
cut: the processes live, nobody can reach them. The trial must end itself by its lease, and go on on the second node.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.scaling.drive import STORE, spec, task
from evotrainer.executors.ray.driver import ClusterExecutor
from evotrainer.executors.ray.executor import RayBackend
from evotrainer.executors.ray.options import parse_cluster_options
from evotrainer.executors.spec import Heartbeat, TrialSpec

HEAD, SPACES, LEASE_S, STEPS = "10.77.0.1", ("evotrainer1", "evotrainer2"), 10, 1500


def sh(line: str) -> None:
    subprocess.run(line, shell=True, check=True, capture_output=True)


def lay() -> None:
    """Two namespaces, each with one link to this machine."""
    for i, name in enumerate(SPACES, 1):
        sh(f"ip netns add {name} && ip link add ev{i} type veth peer name eth0 netns {name}")
        sh(f"ip addr add 10.77.{i}.1/24 dev ev{i} && ip link set ev{i} up")
        inside = f"ip netns exec {name} ip"
        sh(f"{inside} addr add 10.77.{i}.2/24 dev eth0 && {inside} link set eth0 up && {inside} link set lo up")
        sh(f"{inside} route add default via 10.77.{i}.1")
    sh(f"ip addr add {HEAD}/32 dev lo")
    sh("sysctl -w net.ipv4.ip_forward=1")


def clear() -> None:
    """End what runs in the namespaces, and take them away."""
    for i, name in enumerate(SPACES, 1):
        pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for line in (f"ip netns del {name}", f"ip link del ev{i}"):
            with contextlib.suppress(subprocess.CalledProcessError):
                sh(line)
    with contextlib.suppress(subprocess.CalledProcessError):
        sh(f"ip addr del {HEAD}/32 dev lo")


def node(i: int, address: str) -> subprocess.Popen[bytes]:
    command = ["ip", "netns", "exec", SPACES[i - 1], sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    command += [
        f"--address={address}",
        f"--node-ip-address=10.77.{i}.2",
        "--num-cpus=1",
        f"--object-store-memory={STORE}",
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def main() -> None:
    import ray
    from ray.cluster_utils import Cluster

    root = Path(tempfile.mkdtemp(prefix="evotrainer-partition-"))
    made = task(root)
    lay()
    cluster, started = None, []
    try:
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE, "node_ip_address": HEAD}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        started.append(node(1, cluster.address))
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR", _node_ip_address=HEAD)
        while sum(n["Alive"] for n in ray.nodes()) < 2:
            time.sleep(0.5)
        options = {"artifacts": f"file://{root}/art", "scratch": f"{root}/nodes", "lease_s": LEASE_S}
        executor = ClusterExecutor(root / "r", parse_cluster_options(options), RayBackend())
        pid, cut_at = 0, 0.0

        def watch(rows: list[tuple[TrialSpec, Heartbeat | None]]) -> None:
            nonlocal pid, cut_at
            for _, beat in rows:
                if beat is not None and beat.step >= 20 and not cut_at:
                    pid, cut_at = beat.pid, time.monotonic()
                    sh("ip link set ev1 down")
                    print(f"cut off at step {beat.step}", flush=True)
                    started.append(node(2, cluster.address))
            if pid and not Path(f"/proc/{pid}").exists():
                print(
                    f"its process ended itself {time.monotonic() - cut_at:.1f} s later (lease {LEASE_S} s)", flush=True
                )
                pid = 0

        one = spec(made, 1)
        one = one.model_copy(update={"recipe": one.recipe.model_copy(update={"steps": STEPS}), "checkpoint_every": 20})
        (done,) = executor.run([one], watch)
        executor.close()
        rows = [json.loads(x) for x in (root / "r/executor.jsonl").read_text().splitlines()]
        for r in rows:
            if "trial" in r:
                print(
                    f"{r['time'] - rows[0]['time']:6.1f} s  attempt {r['attempt']}  {r['event']:9}  {r.get('node', '')}"
                )
        print(f"{done.status}, {done.steps} steps, continued {done.resumed} time(s)")
    finally:
        for p in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, signal.SIGKILL)
        if cluster is not None:
            ray.shutdown()
            cluster.shutdown()
        clear()


if __name__ == "__main__":
    main()
