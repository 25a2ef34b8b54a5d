"""Starting a zygote: as an unprivileged user, below bubblewrap where the tier has namespaces."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from evotrainer.errors import SandboxError
from evotrainer.sandbox.interpreter import Interpreter
from evotrainer.sandbox.seccomp import build_filter

_MODULES = ("values", "inside.kernel", "inside.addresses", "inside.pure", "inside.cases", "inside.relay",
            "inside.serve", "inside.zygote")  # fmt: skip
_FIRST_UID = 1_000_000_000
"""Sandbox users are numbered from here by process and slot: no account and no other trial has them."""
_FALLBACK_UID = 60_000
_HOME = Path("/opt/python")
_MARGIN = 16
"""Processes that a user may start elsewhere before programs without a user of their own feel it."""
_slots = itertools.count()
LIMITS = struct.Struct("<QIIQIQ")
ENDED = struct.Struct("<idd")
PROGRESS = struct.Struct("<dd?")
"""As in `inside/zygote.py`, which runs in another process."""

_BOOTSTRAP = """
import json, sys, types
def load(name, source):
    module = types.ModuleType(name)
    module.__path__ = []
    sys.modules[name] = module
    exec(compile(source, "<" + name + ">", "exec"), module.__dict__)
    return module
import socket, os, array
control = socket.socket(fileno=os.dup(0))
config = json.loads(control.recv(1 << 20))
control.close()
for name, source in config.pop("modules"):
    last = load(name, source)
serve = sys.modules["evotrainer.sandbox.inside.serve"]
last.main(config, serve.serve, serve.warm_up)
"""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What a zygote is confined with."""

    namespaces: bool
    seccomp: bool
    cgroup: bool


@lru_cache(maxsize=1)
def _modules() -> list[tuple[str, str]]:
    return sources(_MODULES)


def sources(modules: Sequence[str]) -> list[tuple[str, str]]:
    """Name and source of every module that runs inside, packages first.
    Sent as text: the sandbox reads no file of ours."""
    names = ["evotrainer", "evotrainer.sandbox", "evotrainer.sandbox.inside"]
    found = [(name, "") for name in names]
    for short in modules:
        name = f"evotrainer.sandbox.{short}"
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise SandboxError(f"cannot find the source of {name}; install evotrainer unzipped")
        found.append((name, Path(spec.origin).read_text("utf-8")))
    return found


def _can_become(uid: int) -> bool:
    with open("/proc/self/uid_map") as lines:
        return any(int(a) <= uid < int(a) + int(n) for a, _, n in (line.split() for line in lines))


def pick_uid() -> int | None:
    """An unprivileged user id for a new slot when we are root; None: stay who we are."""
    if os.geteuid() != 0:
        return None
    mapped = False
    for slot in itertools.islice(_slots, 256):
        # a user per process and slot: RLIMIT_NPROC counts per user, and signals pass between processes of one user
        uid = _FIRST_UID + os.getpid() * 256 + slot % 256
        if not _can_become(uid):
            # inside a user namespace only a few ids are mapped, usually 0 to 65535
            uid = _FALLBACK_UID + (os.getpid() * 7 + slot % 256) % 5000
        if _can_become(uid):
            mapped = True
            if not _threads_of(uid):  # slots come round again in a long life, and one may live still
                return uid
    if mapped:
        raise SandboxError("256 sandboxes of this process live at once; close some")
    raise SandboxError("started as root without another user id to drop to; start as an ordinary user")


def system_binds() -> list[str]:
    args = ["--ro-bind", "/usr", "/usr"]
    for folder in ("/lib", "/lib64", "/lib32"):
        path = Path(folder)
        if path.is_symlink():
            args += ["--symlink", os.readlink(path), folder]
        elif path.is_dir():
            args += ["--ro-bind", folder, folder]
    if Path("/etc/ld.so.cache").exists():
        args += ["--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    return args


def _hidden() -> list[str]:
    """Local software below /usr is hidden: it is none of a program's business."""
    folders = ("/usr/local", "/usr/src", "/usr/share")
    there = [path for path in folders if Path(path).is_dir()]
    return [argument for path in there for argument in ("--tmpfs", path)]


def as_inside(interpreter: Interpreter) -> Interpreter:
    """The interpreter as the sandbox sees it: a folder of its own is shown at a place that tells nothing of ours."""
    if interpreter.prefix is None:
        return interpreter
    executable = Path(interpreter.executable)
    return Interpreter(str(_HOME / executable.relative_to(interpreter.prefix)), str(_HOME))


def _environment(interpreter: Interpreter) -> dict[str, str]:
    environment = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    if interpreter.prefix:  # a copied interpreter would take another libpython, or none
        environment["LD_LIBRARY_PATH"] = f"{interpreter.prefix}/lib"
    return environment


def bubblewrap_command(bwrap: str, interpreter: Interpreter, info_fd: int) -> list[str]:
    """Everything unshared, the system's libraries, an empty working folder; the zygote is process 1.

    It makes every mount read-only before it serves (`kernel.make_mounts_read_only`).
    """
    # CAP_SYS_ADMIN stays for the mounts that the zygote makes, CAP_SETPCAP to empty the bounding set; every child drops
    # both
    args = [bwrap, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    args += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"]
    for name, value in (*_environment(as_inside(interpreter)).items(), ("HOME", "/w")):
        args += ["--setenv", name, value]
    args += system_binds() + _hidden()
    if interpreter.prefix:
        args += ["--ro-bind", interpreter.prefix, str(_HOME)]
    # one writable folder under several names: programs expect /tmp and /dev/shm, and must find what they wrote
    args += ["--proc", "/proc", "--dir", "/dev", "--dir", "/w", "--symlink", "/w", "/tmp"]
    for device in ("/dev/null", "/dev/zero", "/dev/urandom"):
        args += ["--dev-bind", device, device]
    return [*args, "--symlink", "/w", "/dev/shm", "--chdir", "/", "--info-fd", str(info_fd), "--"]


def _python_command(interpreter: Interpreter, token: str) -> list[str]:
    # Not -I: it would ignore PYTHONHASHSEED, and the same program should print its sets in the same order every time.
    return [interpreter.executable, "-s", "-S", "-P", "-B", "-c", _BOOTSTRAP, token]


def end(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Close, kill and reap; what runs below it ends with it."""
    control.close()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        process.kill()
    process.wait()
    if process.stderr:
        process.stderr.close()


@dataclass(slots=True)
class StartedZygote:
    """A started zygote: its control socket, the process to wait for, and the zygote's own process id."""

    control: socket.socket
    process: subprocess.Popen[bytes]
    pid: int
    uid: int
    work: str | None
    token: str
    """Stands in the command line of the zygote and of all its children."""

    def strays(self) -> int:
        """Children of the zygote that are still there, its own process apart."""
        found = 0
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != self.pid:
                with contextlib.suppress(OSError):
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                    # the token stands in the command line, which fork copies: children are found without any
                    # namespace's help
                    found += self.token.encode() in words and b"-c" in words[:7]
        return found

    def stop(self) -> None:
        """Close, kill and reap; remove the working folder of a zygote without namespaces."""
        end(self.control, self.process)
        if self.work:
            shutil.rmtree(self.work, ignore_errors=True)


def spawn(
    command: Sequence[str], stdin: socket.socket, uid: int | None, fds: tuple[int, ...], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    drop: dict[str, object] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        env=environment,
        pass_fds=fds,
        start_new_session=True,
        **drop,  # type: ignore[call-overload]
    )


def child_pid(info: int) -> int:
    """The zygote's process id as bubblewrap reports it; 0 when bubblewrap gave up first."""
    text = b""
    # the JSON may come in pieces: parsed anew until it is whole
    while piece := os.read(info, 4096):
        text += piece
        with contextlib.suppress(ValueError, KeyError):
            return int(json.loads(text)["child-pid"])
    return 0


def complaint(process: subprocess.Popen[bytes]) -> str:
    process.kill()
    process.wait()
    text = process.stderr.read().decode("utf-8", "replace").strip() if process.stderr else ""
    return text.splitlines()[-1] if text else f"exit code {process.returncode}"


def find_bubblewrap() -> str | None:
    """EVOTRAINER_BWRAP (a path), or `bwrap` on the search path."""
    wanted = os.environ.get("EVOTRAINER_BWRAP", "bwrap")
    return shutil.which(wanted, path=f"{os.environ.get('PATH', '')}:/usr/bin:/bin")


def launch(mechanism: Mechanism, interpreter: Interpreter, uid: int | None) -> StartedZygote:
    """Start a zygote and hand it its code; SandboxError with bubblewrap's or Python's own last words."""
    token = secrets.token_hex(8)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    bwrap = find_bubblewrap()
    info_read, info_write = os.pipe()
    command = _python_command(interpreter, token)
    work = None
    if mechanism.namespaces:
        if bwrap is None:
            raise SandboxError("bubblewrap (bwrap) is not installed; install the package 'bubblewrap'")
        command = bubblewrap_command(bwrap, interpreter, info_write) + _python_command(as_inside(interpreter), token)
    else:
        work = tempfile.mkdtemp(prefix="evotrainer-sandbox-")
        if uid is not None:
            os.chown(work, uid, uid)
    fds = (info_write,) if mechanism.namespaces else ()
    process = spawn(command, theirs, uid, fds, _environment(interpreter))
    theirs.close()
    os.close(info_write)
    pid = child_pid(info_read) if mechanism.namespaces else process.pid
    os.close(info_read)
    launched = StartedZygote(ours, process, pid, os.geteuid() if uid is None else uid, work, token)
    _hand_over(launched, mechanism)
    return launched


def _threads_of(uid: int) -> int:
    """Threads of a user: without a namespace or user of its own, a program's process limit counts them too."""
    found = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                if folder.stat().st_uid == uid:
                    found += len(os.listdir(folder / "task"))
    return found


def _hand_over(launched: StartedZygote, mechanism: Mechanism) -> None:
    bpf = build_filter(own_namespaces=mechanism.namespaces) if mechanism.seccomp else b""
    config = {
        "modules": _modules(),
        "namespaces": mechanism.namespaces,
        "seccomp": bpf.hex(),
        "work": launched.work or "/w",
        "neighbours": 0 if mechanism.namespaces or os.geteuid() == 0 else _threads_of(launched.uid) + _MARGIN,
    }
    if not hand_over(launched.control, config):
        reason = complaint(launched.process)
        launched.stop()
        raise SandboxError(f"the sandbox did not start: {reason}{remedy(reason)}")
    launched.control.settimeout(None)


def hand_over(control: socket.socket, config: Mapping[str, object], least: int = 0) -> bool:
    """Send what runs inside its orders; did it say that it is ready? `least`: bytes of the socket's buffer."""
    # one packet (SEQPACKET) must fit the socket's buffer, whose default may be too small for the modules' sources
    message = json.dumps(config).encode()
    control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, max(2 * len(message), least))
    # a machine under load may take seconds to import; one that takes a minute is broken
    control.settimeout(60)
    try:
        control.send(message)
        return control.recv(1) == b"R"
    except OSError:
        return False


def remedy(reason: str) -> str:
    if "ermission denied" in reason or "not permitted" in reason or "namespace" in reason:
        return (
            "; allow unprivileged user namespaces (kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0, "
            "kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile for bwrap)"
        )
    return "; run `evotrainer doctor`"
