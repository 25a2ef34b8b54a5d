"""A data-parallel trial: `python -m evotrainer.executors.ray.group TRIAL_DIR PARENT ADDRESS`, the job on stdin."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evotrainer.errors import EvoTrainerError, StoreError, TrainerError
from evotrainer.executors.local import LocalExecutor, end
from evotrainer.executors.process import BESIDE, ProcessCpuClock, die_with_parent
from evotrainer.executors.ray.connection import NAMESPACE, import_ray, line_of
from evotrainer.executors.ray.job import NodeJob
from evotrainer.executors.ray.supervisor import CHECK_S, take_key
from evotrainer.executors.spec import read_spec, write_atomic
from evotrainer.executors.worker import TrialProcess, guarded, report_error
from evotrainer.records.output import print
from evotrainer.records.regular_file import read_text

CODE = "group-code"
"""In a trial's folder: exit code of the first process of a group that failed by itself."""
TICK_S = 2.0
COLLECTIVE_S = 1800
"""Longest wait of one process for the others."""
COLLECTIVE = re.compile(r"gloo|nccl|connection (closed|reset) by peer|broken pipe", re.IGNORECASE)


def lead(argv: Sequence[str]) -> int:
    """Train by several processes, then finish.

    Exit codes are those of `executors.worker`; a group that lost a process ends itself by SIGKILL:
    its supervisor's driver tries it again.
    """
    folder, job = Path(argv[0]), NodeJob.unpack(json.loads(sys.stdin.read()))
    die_with_parent(int(argv[1]))
    ray = import_ray()
    variables = {**job.runtime_env.get("env_vars", {}), **job.env, "OMP_NUM_THREADS": str(job.threads)}
    ray.init(
        address=argv[2],
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={**job.runtime_env, "env_vars": variables},
    )
    code = _train_group(job, folder)
    if code == 0:
        needs = {k: v for k, v in job.resources.items() if k not in ("CPU", "GPU")}
        task = ray.remote(_finish).options(
            num_cpus=job.resources.get("CPU", 0), num_gpus=job.resources.get("GPU", 0), resources=needs, max_retries=0
        )
        try:
            code = ray.get(task.remote(str(folder), job.threads, job.env, job.data_key))
        except ray.exceptions.RayError as e:
            print(line_of(e), flush=True)
            code = -signal.SIGKILL
    if code < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(code)


def _train_group(job: NodeJob, folder: Path) -> int:
    """The training by Ray Train; 0, the code of the process that failed, or -9 where one was lost."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    (folder / CODE).unlink(missing_ok=True)
    storage = folder / "ray-train"
    trainer = TorchTrainer(
        _rank,
        train_loop_config={"folder": str(folder), "threads": job.threads},
        scaling_config=ScalingConfig(
            num_workers=job.workers, use_gpu=bool(job.resources.get("GPU")), resources_per_worker=dict(job.resources)
        ),
        torch_config=TorchConfig(timeout_s=COLLECTIVE_S),
        run_config=RunConfig(
            name=f"{job.trial}-a{job.attempt}", storage_path=str(storage), failure_config=FailureConfig(max_failures=0)
        ),
    )
    try:
        trainer.fit()
        return 0
    except Exception as e:  # Ray Train's own errors; whose fault it was stands in the folder
        print(line_of(e), flush=True)
        with contextlib.suppress(OSError, ValueError):
            return int(read_text(folder / CODE))
        return -signal.SIGKILL
    finally:
        shutil.rmtree(storage, ignore_errors=True)


def _rank(config: Mapping[str, Any]) -> None:
    """One process of the group. The first one to fail by its own fault leaves its exit code."""
    import torch
    from ray.train import get_context

    rank, folder = get_context().get_world_rank(), Path(config["folder"])
    torch.set_num_threads(config["threads"])
    try:
        if rank == 0:
            code = guarded(folder, lambda f: TrialProcess(f).train_only())
        else:
            code = _assist(folder, rank)
    except Exception as e:
        if _lost_peer(e):
            raise
        with open(folder / "log.txt", "a", encoding="utf-8") as log:
            traceback.print_exc(file=log)
        code = 1
    if code:
        if not (folder / CODE).exists():
            write_atomic(folder / CODE, str(code))
        raise TrainerError(f"process {rank} of trial {folder.name} ended with exit code {code}")


def _assist(folder: Path, rank: int) -> int:
    note = folder / f"{BESIDE}{rank}"
    earlier = float(read_text(note)) if note.is_file() else 0.0
    clock, over = ProcessCpuClock(earlier), threading.Event()

    def tick() -> None:
        while True:
            last = over.wait(TICK_S)
            with contextlib.suppress(StoreError):
                write_atomic(note, f"{clock.cpu_s():.3f}", durable=False)
            if last:
                return

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        TrialProcess(folder).assist()
    except EvoTrainerError as e:
        report_error(folder, e)
        return e.exit_code
    finally:
        over.set()
        thread.join()
    return 0


def _lost_peer(e: BaseException) -> bool:
    """True where a collective failed: another process is gone, or failed first."""
    frames = traceback.extract_tb(e.__traceback__)
    return bool(COLLECTIVE.search(str(e))) or any("/torch/distributed/" in f.filename for f in frames)


def _finish(folder: str, threads: int, env: Mapping[str, str], key: str) -> int:
    """What follows the training, in one process with the resources of one."""
    take_key(key)
    path = Path(folder)
    local = LocalExecutor(path.parent.parent, workers=1, restarts=0)
    r = local.start(read_spec(path), threads=threads, env=env)
    try:
        while r.process.poll() is None:
            if local.overdue(r):
                local.collect(r)  # writes its failure
                return 0
            time.sleep(CHECK_S)
        return r.process.wait()
    finally:
        end(r.process)


if __name__ == "__main__":
    # imported by name, so that Ray's workers find these functions in this module and not in __main__
    from evotrainer.executors.ray.group import lead as by_name

    raise SystemExit(by_name(sys.argv[1:]))
