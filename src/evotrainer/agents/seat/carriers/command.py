"""Any program: the request is on its stdin and in files of a folder of its own, its answer in a file or on stdout."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from evotrainer.agents.carriers import CarrierError, Question, Reply, SeatTurn, count
from evotrainer.agents.seat.carriers.confined import check, confined, give, mounted
from evotrainer.agents.seat.text import question_of
from evotrainer.agents.secrets import redacted
from evotrainer.errors import ConfigError
from evotrainer.records.processes import end_marked
from evotrainer.records.questions import CarrierOptions
from evotrainer.records.regular_file import open_regular
from evotrainer.records.seat import MOST, SeatBriefing
from evotrainer.records.text import cut

KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "TERM", "XDG_CONFIG_HOME", "SSL_CERT_FILE")
"""Variables that a program keeps; others only where `env` names them."""
MARK = "EVOTRAINER_SEAT"
"""Variable by which what a program started is known."""
WRITTEN = 100_000_000
"""Bytes that a program may write, to its output and its folder together ..."""
EVERY_S = 0.2
"""... which are counted every so often."""
Streams = tuple[IO[bytes], IO[bytes], IO[bytes]]
"""Of a program: what it reads, what it writes, its errors."""


class CommandCarrier:
    """Runs a program for each request, in a folder that holds nothing but the request, inside bubblewrap (confined.py).

    `command`: the program and its arguments; {briefing_file}, {request_file}, {schema_file} and {answer_file} stand for
    the request as markdown and as JSON, the schema of an answer, and where the answer may be written. `mounts`: paths
    that it sees beside the system. `sandbox` False: no bubblewrap. ConfigError where there is none, or does not work.
    """

    name = "command"

    def __init__(
        self, command: Sequence[str], secrets: Mapping[str, str], mounts: Sequence[str] = (), sandbox: bool = True
    ) -> None:
        self.command, self.secrets = list(command), dict(secrets)
        self.mounts, self.sandbox = list(mounts), sandbox
        program = shutil.which(self.command[0])
        if not program:
            raise ConfigError(
                f"run.agent_options.command: no program {self.command[0]!r}; install it, or give its path"
            )
        if os.sep in self.command[0]:  # it runs in a folder of its own, where ./agent.sh is nothing
            self.command[0] = os.path.abspath(program)
        if sandbox:
            check()
            mounted(self.mounts)

    def ask(self, request: SeatBriefing, turn: SeatTurn) -> Reply:
        return self.put(question_of(request), turn)

    def put(self, question: Question, turn: SeatTurn) -> Reply:
        """The answer to any question; CarrierError where none comes."""
        try:
            folder = Path(tempfile.mkdtemp(prefix="evotrainer-seat-"))
            try:
                return self._put(question, turn.timeout_s, turn.hidden, folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError as e:
            raise CarrierError(
                f"{self.command[0]} cannot be asked: {e}; its folder lies below TMPDIR, or /tmp"
            ) from None

    def _put(self, question: Question, timeout_s: float, hidden: Sequence[Path], folder: Path) -> Reply:
        files = {k: folder / v for k, v in FILES.items()}
        files["briefing_file"].write_text(question.text, encoding="utf-8")
        files["request_file"].write_text(question.form, encoding="utf-8")
        files["schema_file"].write_text(json.dumps(question.schema, indent=1), encoding="utf-8")
        argv = [_filled(a, files) for a in self.command]
        if self.sandbox:
            argv = confined(argv, folder, self.mounts, hidden)
            give(folder)
        # files without a name: what the program puts into its folder under any name is never taken for its output
        with ExitStack() as opened:
            given, out, err = (opened.enter_context(tempfile.TemporaryFile()) for _ in range(3))
            given.write(question.text.encode())
            given.seek(0)
            code = self._run(argv, folder, timeout_s, (given, out, err))
            out_text, problem = _head(out), _head(err, 2000)
        if not code and (answer := _written_answer(files["answer_file"])) is not None:
            return Reply(answer)
        reply = unwrapped(out_text)
        if reply.problem:
            return replace(reply, problem=f"{self.command[0]} {reply.problem}")
        if code:
            problem = " ".join(redacted(problem, self.secrets).split())[-300:]
            lacks = "; it may lack files of its own: run.agent_options.mount shows more" if code in (126, 127) else ""
            raise CarrierError(
                f"{self.command[0]} ended with exit code {code}{f': {problem}' if problem else ''}{lacks}"
            )
        return reply

    def _run(self, argv: list[str], folder: Path, timeout_s: float, streams: Streams) -> int:
        """The program's exit code; CarrierError where it is ended, for the time or for what it writes."""
        token = uuid.uuid4().hex
        env = {k: v for k in KEPT if (v := os.environ.get(k))} | self.secrets | {MARK: token}
        (given, out, err), name = streams, self.command[0]
        try:
            p = subprocess.Popen(argv, stdin=given, stdout=out, stderr=err, cwd=folder, env=env, start_new_session=True)
        except OSError as e:
            raise CarrierError(f"cannot start {name}: {e.strerror}; check run.agent_options.command") from None
        end, pause = time.monotonic() + timeout_s, EVERY_S
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return p.wait(max(0.0, min(pause, end - time.monotonic())))
                began = time.monotonic()
                if began >= end:
                    raise CarrierError(f"{name} gave no answer within {timeout_s:g} s")
                if _too_much(folder, streams):
                    raise CarrierError(f"{name} wrote more than {WRITTEN:,} bytes and was ended; let it write less")
                pause = max(EVERY_S, 20 * (time.monotonic() - began))  # of many files, not to read them all the time
        finally:
            _end(p, token)


FILES = {
    "briefing_file": "briefing.md",
    "request_file": "request.json",
    "schema_file": "schema.json",
    "answer_file": "answer.json",
}

ENVELOPE = ("structured_output", "result", "response")
"""Where coding agents put the answer itself, the best first."""


def _filled(argument: str, files: Mapping[str, Path]) -> str:
    for name, path in files.items():
        argument = argument.replace(f"{{{name}}}", str(path))
    return argument


def _head(f: IO[bytes], most: int = 4 * MOST) -> str:
    f.seek(0)
    return f.read(4 * most).decode("utf-8", errors="replace")[:most]


def _written_answer(path: Path) -> str | None:
    """The file's beginning; None where there is no plain file. A program that still runs may put a link or a pipe there
    at any time: no link is followed, nothing is waited for."""
    try:
        with open_regular(path, os.O_NOFOLLOW) as f:
            return _head(f)
    except OSError:
        return None


def _too_much(folder: Path, streams: Streams) -> bool:
    """Did the program write more than it may? A file that it removed and still holds open is not seen."""
    total = sum(512 * os.fstat(f.fileno()).st_blocks for f in streams)
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):
                total += 512 * os.lstat(os.path.join(at, name)).st_blocks + 1024  # an empty file takes room, too
            if total > WRITTEN:
                return True
    return total > WRITTEN


def _end(p: subprocess.Popen[bytes], token: str) -> None:
    """End the program with all that it started: its group, then whatever of ours has its mark in its environment, as a
    process in a session of its own does."""
    with contextlib.suppress(OSError):
        os.killpg(p.pid, signal.SIGKILL)
    p.wait()
    end_marked(MARK, token)


def unwrapped(out: str) -> Reply:
    """What a coding agent's own JSON envelope holds (`--output-format json`), with its usage; else the text. Its
    `problem`: the error that the envelope reports."""
    try:
        found: Any = json.loads(out)
    except (ValueError, RecursionError):
        return Reply(out)
    if isinstance(found, list):  # all its messages, the last the envelope
        found = found[-1] if found else None
    if not isinstance(found, dict):
        return Reply(out)
    error = found.get("is_error") is True or str(found.get("subtype")).startswith("error")
    error = error or (isinstance(found.get("error"), dict) and not set(ENVELOPE) & found.keys())
    if not error and not set(ENVELOPE) & found.keys():
        return Reply(out)
    inner = next((v for k in ENVELOPE if (v := found.get(k)) is not None), "")
    usage: dict[str, Any] = raw_usage if isinstance(raw_usage := found.get("usage"), dict) else {}
    try:
        raw = inner if isinstance(inner, str) else json.dumps(inner)
        cause = raw.strip() or json.dumps(found.get("error") or found.get("subtype"))
    except RecursionError:
        return Reply(out)
    model, cost = found.get("model"), found.get("total_cost_usd")
    return Reply(
        raw,
        model=model if isinstance(model, str) else "",
        input_tokens=count(usage, "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
        output_tokens=count(usage, "output_tokens"),
        dollars=float(cost) if isinstance(cost, int | float) and 0 <= cost < 1e9 else 0.0,
        problem=f"reports an error: {' '.join(cut(redacted(cause, {}), 300).split())}" if error else "",
    )


def make(options: CarrierOptions, secrets: Mapping[str, str], reader: bool = False) -> CommandCarrier:
    """The program."""
    return CommandCarrier(options.command, dict(secrets), options.mount, options.sandbox)
