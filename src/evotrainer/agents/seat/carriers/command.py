"""Any program: the request is on its stdin and in files of a folder of its own, its answer in a file or on stdout."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evotrainer.agents.seat.carriers.base import CarrierError, Question, Reply, SeatTurn, count
from evotrainer.agents.seat.carriers.confined import check, confined, mounted
from evotrainer.agents.seat.secrets import struck
from evotrainer.agents.seat.text import question_of
from evotrainer.errors import ConfigError
from evotrainer.records.seat import MOST, SeatBriefing

KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "TERM", "XDG_CONFIG_HOME", "SSL_CERT_FILE")
"""Variables that a program keeps; others only where `env` names them."""


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
        return self.put(question_of(request), turn.timeout_s, turn.hidden)

    def put(self, question: Question, timeout_s: float, hidden: Sequence[Path] = ()) -> Reply:
        """The answer to any question; CarrierError where none comes. `hidden`: what the program must not see."""
        folder = Path(tempfile.mkdtemp(prefix="evotrainer-seat-"))
        try:
            return self._put(question, timeout_s, hidden, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _put(self, question: Question, timeout_s: float, hidden: Sequence[Path], folder: Path) -> Reply:
        files = {k: folder / v for k, v in FILES.items()}
        files["briefing_file"].write_text(question.text, encoding="utf-8")
        files["request_file"].write_text(question.form, encoding="utf-8")
        files["schema_file"].write_text(json.dumps(question.schema, indent=1), encoding="utf-8")
        argv = [_filled(a, files) for a in self.command]
        if self.sandbox:
            argv = confined(argv, folder, self.mounts, hidden)
        out = self._run(argv, question.text, folder, timeout_s)
        answer = files["answer_file"]
        if answer.is_file() and not answer.is_symlink():
            with answer.open(encoding="utf-8", errors="replace") as f:
                return Reply(f.read(4 * MOST))
        return unwrapped(out)

    def _run(self, argv: list[str], text: str, folder: Path, timeout_s: float) -> str:
        env = {k: v for k in KEPT if (v := os.environ.get(k))} | self.secrets
        out, err, name = folder / ".stdout", folder / ".stderr", self.command[0]
        try:
            with out.open("wb") as o, err.open("wb") as e:
                p = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=o, stderr=e, cwd=folder, env=env, start_new_session=True
                )
        except OSError as e:
            raise CarrierError(f"cannot start {name}: {e.strerror}; check run.agent_options.command") from None
        try:
            p.communicate(text.encode(), timeout_s)
        except subprocess.TimeoutExpired:
            raise CarrierError(f"{name} gave no answer within {timeout_s:g} s") from None
        finally:
            if p.poll() is None or _group_lives(p.pid):
                _end(p)
        if p.returncode:
            said = " ".join(struck(_head(err, 2000), self.secrets).split())[-300:]
            more = (
                "; it may lack files of its own: run.agent_options.mount shows more"
                if p.returncode in (126, 127)
                else ""
            )
            raise CarrierError(f"{name} ended with exit code {p.returncode}{f': {said}' if said else ''}{more}")
        return _head(out, 4 * MOST)


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


def _head(path: Path, most: int) -> str:
    with path.open(encoding="utf-8", errors="replace") as f:
        return f.read(most)


def _group_lives(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except OSError:
        return False
    return True


def _end(p: subprocess.Popen[bytes]) -> None:
    """End the program with all that it started."""
    with contextlib.suppress(OSError):
        os.killpg(p.pid, signal.SIGKILL)
    p.wait()


def unwrapped(out: str) -> Reply:
    """What a coding agent's own JSON envelope holds (`--output-format json`), with its usage; else the text."""
    try:
        found: Any = json.loads(out)
    except (ValueError, RecursionError):
        return Reply(out)
    if not isinstance(found, dict) or not set(ENVELOPE) & found.keys():
        return Reply(out)
    inner = next((v for k in ENVELOPE if (v := found.get(k)) is not None), "")
    usage: dict[str, Any] = told if isinstance(told := found.get("usage"), dict) else {}
    try:
        raw = inner if isinstance(inner, str) else json.dumps(inner)
    except RecursionError:
        return Reply(out)
    model, cost = found.get("model"), found.get("total_cost_usd")
    return Reply(
        raw,
        model=model if isinstance(model, str) else "",
        input_tokens=count(usage, "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
        output_tokens=count(usage, "output_tokens"),
        dollars=float(cost) if isinstance(cost, int | float) and 0 <= cost < 1e9 else 0.0,
    )
