"""A command from its start to its end: watched for signs of life, ended with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evotrainer.errors import FaultsError, TrainerError
from evotrainer.records.clock import Silence
from evotrainer.records.durable import os_errors
from evotrainer.records.processes import end_marked
from evotrainer.records.regular_file import read_object, read_text
from evotrainer.records.text import cut
from evotrainer.trainers.clock import LIFE

MARK = "EVOTRAINER_COMMAND"
"""Variable by which what a command started is known."""
TOKEN, LOG, ENDED = "token", "log.txt", "ended.json"
POLL_S, MOST_S = 0.2, 5.0
"""Least and most seconds between two looks at it."""


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended."""

    status: int
    """Exit code; negative: the signal that ended it."""
    cpu_s: float
    """Of all its processes, as far as they were waited for."""
    left: int
    """Processes that it left behind, which were ended."""
    printed: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line and what it may do. `folder`: where its log and its end are noted."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    folder: Path
    patience_s: float
    grace_s: float
    log_bytes: int
    kept: bool = True
    """Does `folder` stay? Not that of an evaluation, whose log may hold prompts that are sealed."""
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def start(self) -> StartedCommand:
        """Start it; what an earlier start of the same trial left is ended first. ConfigError where it cannot be."""
        sweep(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / ENDED).unlink(missing_ok=True)
        token = uuid.uuid4().hex
        with os_errors(f"cannot write {self.folder / TOKEN}"):
            (self.folder / TOKEN).write_text(token)
        order = {
            "argv": list(self.argv),
            "cwd": str(self.cwd),
            "env": {**self.variables, **self.env, MARK: token},
            "log": str(self.folder / LOG),
            "most": self.log_bytes,
            "ended": str(self.folder / ENDED),
            "grace_s": self.grace_s,
            "parent": os.getpid(),
        }
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert keeper.stdin is not None
        with contextlib.suppress(BrokenPipeError), keeper.stdin as to:
            to.write(json.dumps(order).encode())
        return StartedCommand(self, keeper, token)

    def run(self, signs: Callable[[], object], look: Callable[[], None] = lambda: None) -> CommandEnd:
        """Run it to its end. `signs`: what changes while it is at work; `look` is called now and then, and may raise.

        FaultsError where nothing changed for `patience_s`.
        """
        started = self.start()
        silence, pause = Silence(), POLL_S
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    started.keeper.wait(pause)
                    return started.end()
                LIFE.give()
                began = time.monotonic()
                look()
                silent = silence.look(signs())
                # of many files, not to read them all the time
                pause = min(MOST_S, max(POLL_S, 20 * (time.monotonic() - began)))
                if silent > self.patience_s:
                    raise FaultsError(
                        f"{self.name} gave no sign (a new row of metrics or rollouts) for {silent:.0f} s: hung, ended; "
                        f"{f'see {self.folder / LOG}, or ' if self.kept else ''}raise trainer.options.patience_s"
                    )
        finally:
            started.stop()

    @property
    def name(self) -> str:
        return f"the command {cut(' '.join(self.argv), 120)}"

    def last_words(self) -> str:
        """The end of what it printed, in one line."""
        with contextlib.suppress(OSError):
            lines = [x.strip() for x in read_text(self.folder / LOG, errors="replace").splitlines() if x.strip()]
            return cut(" | ".join(lines[-3:]), 300)
        return ""


@dataclass(slots=True)
class StartedCommand:
    """A command that runs."""

    command: Command
    keeper: subprocess.Popen[bytes]
    token: str

    def end(self) -> CommandEnd:
        """How it ended; TrainerError where it could not be started, FaultsError where its keeper was killed."""
        told = read_object(self.command.folder / ENDED)
        if "cause" in told:
            raise TrainerError(f"{told['cause']}; correct trainer.options.command (it runs in {self.command.cwd})")
        if told.get("status") is None:
            raise FaultsError(
                f"{self.command.name} was ended from outside, and with it the process that kept it (exit "
                f"{self.keeper.returncode}); `evotrainer resume` tries it again"
            )
        return CommandEnd(int(told["status"]), float(told["cpu_s"]), int(told["left"]), int(told["bytes"]))

    def stop(self) -> None:
        """End it with all that it started: asked to by SIGTERM, then killed."""
        if self.keeper.poll() is None:
            self.keeper.send_signal(signal.SIGTERM)
            try:
                self.keeper.wait(self.command.grace_s + 20)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.keeper.pid, signal.SIGKILL)
                self.keeper.wait()
        if self.keeper.returncode or not (self.command.folder / ENDED).is_file():
            end_marked(MARK, self.token)  # the keeper itself was killed: what it kept is found by its mark
        (self.command.folder / TOKEN).unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """End what an earlier command of this folder left, if its keeper was killed before it could."""
    with contextlib.suppress(OSError):
        if token := read_text(folder / TOKEN).strip():
            end_marked(MARK, token)
