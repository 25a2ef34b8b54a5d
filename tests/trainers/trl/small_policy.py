"""A small chat policy for the trl trainer's tests: Qwen3's architecture, its own tokenizer and template."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evotrainer.executors import worker
from evotrainer.executors.data_keys import WITH_KEY
from evotrainer.trainers.base import WarmStartRequest
from tests.trainers.reverse_env import ReverseEnv

SHAPE = {"d": 48, "layers": 2, "heads": 2, "kv_heads": 1, "hidden": 96, "context": 128}


def make(out: Path, steps: int = 110) -> Path:
    """Writes single digits, the right one about half of the time."""
    from evotrainer.trainers.trl.scratch import warm_start

    demos = ReverseEnv(length=1).demonstrations(1500, 0)
    warm_start(WarmStartRequest(demos, (), "", SHAPE, steps, 32, 8e-3, 0, out))
    return out


class Forked:
    """A trial's process as `subprocess.Popen` would start it, but forked: the libraries are loaded already."""

    def __init__(self, args: Sequence[str], *, stdin: int, stdout: Any, env: dict[str, str], **kwargs: Any) -> None:
        self.code: int | None = None
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(read)
            self.stdin = os.fdopen(write, "wb")
            if stdin != subprocess.PIPE:
                self.stdin.close()
            return
        try:
            os.setsid()
            for fd in (1, 2):
                os.dup2(stdout.fileno(), fd)
            os.environ.update(env)
            os.close(write)
            own = args[args.index("evotrainer.executors.worker") + 1 :]
            key = os.fdopen(read, "rb").read(32) if own[2:3] == [WITH_KEY] else b""
            os._exit(worker.main(own[:2], key))
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)

    def poll(self, how: int = os.WNOHANG) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, how)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self) -> int | None:
        return self.poll(0)


def fork_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local executor's trials are real processes that need not import TRL again."""
    import evotrainer.trainers.trl.grpo  # noqa: F401

    forking = SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr("evotrainer.executors.local.subprocess", forking)
