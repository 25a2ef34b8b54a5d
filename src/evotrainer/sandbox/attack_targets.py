"""Makes targets for attacks, runs the attacks against them, and judges whether the sandbox held."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import socket
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template

from evotrainer.errors import SandboxError
from evotrainer.records.text import cut
from evotrainer.sandbox.model import TIERS, CaseResult, Program, Tier
from evotrainer.sandbox.probes import PROBES, SandboxProbe


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """How a probe ended."""

    name: str
    held: bool
    tier: Tier
    about: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class AttackTargets:
    """What the attacks aim at: a secret, a victim process, a listening port, all made for them."""

    folder: Path
    token: str
    port: int
    victim: subprocess.Popen[bytes]
    mounts: tuple[str, ...]
    """What is mounted where the attacks run."""

    def source(self, probe: SandboxProbe) -> str:
        """The probe's program, aimed."""
        aims = {
            "folder": self.folder,
            "token": self.token,
            "port": self.port,
            "victim": self.victim.pid,
            "mounts": repr(self.mounts),
            "grader": os.getpid(),
        }
        return Template(probe.source).substitute(aims)

    def breached(self, text: str) -> bool:
        """An attack says so, or its traces are outside."""
        made, secret = self.folder / "made-by-attack", self.folder / "secret"
        return "BREACH" in text or self.victim.poll() is not None or made.exists() or secret.read_text() != SECRET


def mounts_of(pid: int) -> tuple[str, ...]:
    """Mount points as a process sees them; only the root where its table cannot be read."""
    try:
        lines = Path(f"/proc/{pid}/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ("/",)
    return tuple(dict.fromkeys(line.split()[4] for line in lines))


SECRET = "the secret"


def _clean(token: str) -> None:
    """Remove what an attack left on this machine where nothing kept it from that."""
    for top in ("/tmp", "/dev/shm", "/var/tmp"):
        for path in Path(top).glob(f"*{token}"):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
    with contextlib.suppress(AttributeError):  # a user may have a few named queues only
        ctypes.CDLL(None).mq_unlink(f"/left{token}".encode())


@contextlib.contextmanager
def attack_targets(uid: int, pid: int = 1) -> Iterator[AttackTargets]:
    """Targets that are open to everybody: only the sandbox stands before them.
    `pid`: a process that is confined alike."""
    token = secrets.token_hex(8)
    # the victim runs as the sandbox's own user: were it root's, the kernel's user check would fend off what the sandbox
    # must
    drop: dict[str, object] = {"user": uid, "group": uid, "extra_groups": []} if os.geteuid() == 0 else {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evotrainer-probe-")))
        folder.chmod(0o777)
        (folder / "secret").write_text(SECRET)
        (folder / "secret").chmod(0o666)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        # an abstract socket: it has no file whose rights could stop a connection, only a network namespace does
        named.bind("\0" + token)
        named.listen()
        try:
            victim = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, **drop)  # type: ignore[call-overload]
        except OSError as e:
            raise SandboxError(
                f"cannot start `sleep`, the process that a probe attacks ({e.strerror}); put coreutils on PATH"
            ) from e
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        stack.callback(_clean, token)
        yield AttackTargets(folder, token, server.getsockname()[1], victim, mounts_of(pid))


def judge(probe: SandboxProbe, case: CaseResult) -> ProbeResult:
    """Held when the attack ended as it should and got nothing."""
    text = (case.stdout or "").strip()
    held = case.status in probe.expected and "BREACH" not in text
    lines = [line for line in text.splitlines() if "BREACH" in line] or [f"{case.status} {case.error or ''}"]
    detail = "" if held else cut(lines[0], 200)
    return ProbeResult(probe.name, held, probe.tier, probe.about, detail)


@dataclass(frozen=True, slots=True)
class AttackedSandbox:
    """A sandbox that runs attacks on itself."""

    run: Callable[[Program], CaseResult]
    uid: int
    pid: int
    """The zygote."""
    strays: Callable[[], int]
    """Counts processes that outlived their program."""
    squeeze: Callable[[], contextlib.AbstractContextManager[None]]
    """Shrinks the slot's memory."""


def try_probes(box: AttackedSandbox, probes: Sequence[SandboxProbe] = PROBES) -> Iterator[ProbeResult]:
    """Every attack once, on targets that no earlier one has harmed."""
    yield ProbeResult("user", box.uid != 0, "D", "programs do not run as root", "" if box.uid else "uid 0")
    todo = deque(probes)
    while todo:
        with attack_targets(box.uid, box.pid) as targets:
            # a breach spoils the targets: the next probe gets new ones, or it would be blamed for the last one's traces
            while todo and not targets.breached(""):
                yield _try(box, todo.popleft(), targets)


def _try(box: AttackedSandbox, probe: SandboxProbe, targets: AttackTargets) -> ProbeResult:
    program = Program(targets.source(probe), stdins=("",), limits=probe.limits)
    with box.squeeze() if probe.name == "memory_total" else contextlib.nullcontext():
        case = box.run(program)
        if probe.twice:
            case = box.run(program)
    held = judge(probe, case)
    # what outlives a program cannot be seen by the program itself: counted from outside
    if probe.name == "daemon" and (left := box.strays()):
        return replace(held, held=False, detail=f"{left} processes survive")
    if targets.breached(""):
        return replace(held, held=False, detail="its traces are outside")
    return held


def proven_tier(found: tuple[ProbeResult, ...]) -> Tier:
    """The strongest tier all of whose promises held."""
    for tier in TIERS:
        # a tier promises what all weaker ones promise as well
        promised = [held for held in found if TIERS.index(held.tier) >= TIERS.index(tier)]
        if all(held.held for held in promised):
            return tier
    return "E"
