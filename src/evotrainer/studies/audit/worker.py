"""Worker processes of an audit: a module that is run as one serves jobs from stdin, one a line as JSON, with an answer
a line on stdout."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import IO, Any

from evotrainer.errors import EvoTrainerError
from evotrainer.executors.process import die_with_parent
from evotrainer.records.output import print


class WorkerError(Exception):
    """Why a worker ended, in its own words. `code`: its exit status, of an error of ours that error's."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


class Workers:
    """A worker process, running `module`, for each thread that asks; they end with the block."""

    def __init__(self, module: str) -> None:
        self.module = module
        self._mine = threading.local()
        self._all: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Have one job done; WorkerError where the process ends over it, and the thread's next job has a new one."""
        if getattr(self._mine, "process", None) is None:
            self._mine.process = self._start()
        p, errors = self._mine.process
        try:
            p.stdin.write(json.dumps(job).encode() + b"\n")
            p.stdin.flush()
        except BrokenPipeError:
            pass
        if answer := p.stdout.readline():
            return dict(json.loads(answer))
        self._mine.process = None
        code = p.wait()
        errors.seek(0)
        error_lines = errors.read().decode("utf-8", "replace").strip().splitlines()
        raise WorkerError(error_lines[-1] if error_lines else f"exit {code}", code)

    def _start(self) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
        threads = dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        # no pipe: read at the end only, it would stop a worker that says much
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the block
        p = subprocess.Popen(
            [sys.executable, "-m", self.module, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **threads},
        )
        self._all.append((p, errors))
        return p, errors

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for p, errors in self._all:
            p.kill()
            p.communicate()
            errors.close()


def serve(do: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """What a worker does: jobs from stdin until it ends; exit 0, or the code of the error that stopped it."""
    die_with_parent(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    gc.set_threshold(1_000_000)  # the objects of a batch are many, and in no cycle
    for job in map(json.loads, sys.stdin):
        try:
            answer = do(job)
        except EvoTrainerError as e:
            print(e, file=sys.stderr)
            return e.exit_code
        print(json.dumps(answer), flush=True)
    return 0
