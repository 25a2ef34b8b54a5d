"""The command line that shows a program its own folder and the system, and nothing else of this machine's files.

Bubblewrap (https://github.com/containers/bubblewrap): the system read-only, an empty home, processes of its own, the
network as it is, since coding agents call their vendor's endpoint.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from evotrainer.errors import AgentError, ConfigError

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/etc", "/run/systemd/resolve")
"""Programs, libraries, certificates, names of hosts; read-only."""
INSTALLED = ("bin", "shims", "lib", "lib32", "lib64", "libexec", "ssl", "versions", "pyvenv.cfg")
"""What of a folder X a program X/bin/program is made of: a virtual environment, a prefix of node, pyenv, ..."""
USER = 64_357
"""Who a program is where EvoTrainer is root: root would read what /etc keeps from all others, whatever it is shown.
Every number that a container maps may do; it owns nothing but the program's folder."""
WRITABLE = ":rw"
"""After a path of `mounts`: the program may write there."""


def find() -> str | None:
    """EVOTRAINER_BWRAP (a path), or `bwrap` on the search path."""
    wanted = os.environ.get("EVOTRAINER_BWRAP", "bwrap")
    return shutil.which(wanted, path=f"{os.environ.get('PATH', '')}:/usr/bin:/bin")


def check() -> None:
    """ConfigError where no program can be confined here."""
    if problem := _problem(find()):
        raise ConfigError(
            f"carrier command runs its program inside bubblewrap, and {problem}; install it, or accept with "
            "run.agent_options.sandbox=false that the program can read what you can read, this run's files included"
        )


@cache
def _problem(bwrap: str | None) -> str:
    if bwrap is None:
        return "bwrap is not installed"
    try:
        p = subprocess.run([bwrap, *_base(), "--", *_as_user(), "true"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"bwrap cannot be started ({e})"
    return "" if not p.returncode else f"bwrap does not work here ({' '.join(p.stderr.split())[-200:]})"


def _base() -> list[str]:
    args = ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    args += ["--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev", *_tmpfs("/tmp")]
    if os.geteuid() == 0:
        args += [x for c in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP") for x in ("--cap-add", c)]
        args += _tmpfs("/dev/shm")
    for folder in SYSTEM:
        if Path(folder).is_symlink():
            args += ["--symlink", os.readlink(folder), folder]
        elif Path(folder).is_dir():
            args += _shown("--ro-bind", Path(folder))
    return args


def _tmpfs(place: str) -> list[str]:
    return ["--perms", "1777", "--tmpfs", place]


def _as_user() -> list[str]:
    """What a program is started by where EvoTrainer is root: it gives up root, its groups and every capability."""
    who = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
    return [*who, "--bounding-set=-all", "--inh-caps=-all", "--"] if os.geteuid() == 0 else []


def give(folder: Path) -> None:
    """Hand a program's folder and what lies in it to who it will be."""
    if os.geteuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, USER, USER)


def confined(argv: Sequence[str], folder: Path, mounts: Sequence[str], hidden: Sequence[Path]) -> list[str]:
    """The program's command line inside bubblewrap, its working folder `folder`, which alone it may write to.

    `mounts`: what of the user's files it sees as well. AgentError where one of them holds, or lies in, what is hidden.
    """
    args = [str(find()), *_base(), *(_tmpfs(str(home)) if (home := _empty_home()) else [])]
    for path in (h.resolve() for h in hidden):
        if _bound(path) and path.exists():
            args += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
    for path in own_files([a for a in argv if not Path(a).is_relative_to(folder)], hidden):
        args += _shown("--ro-bind", path)
    for path, how in mounted(mounts):
        refuse_hidden(path, hidden)
        refuse_closed(path, how)
        args += _shown(how, path)
    args += _shown("--bind", folder)
    if who := _as_user():  # whose folder is closed to root without its capabilities
        return [*args, "--", *who, "env", f"--chdir={folder}", *argv]
    return [*args, "--chdir", str(folder), "--", *argv]


def _shown(how: str, path: Path) -> list[str]:
    """Bind a path to its own place, below folders that its user may pass through: bubblewrap's own are root's alone."""
    above = [x for p in reversed(path.parents) if not _bound(p) for x in ("--perms", "0755", "--dir", str(p))]
    return [*above, how, str(path.resolve()), str(path)]


def mounted(mounts: Sequence[str]) -> list[tuple[Path, str]]:
    """(path, bubblewrap's option) of each; AgentError where one is not there."""
    out = []
    for mount in mounts:
        path = Path(mount.removesuffix(WRITABLE)).expanduser()
        if not path.is_absolute() or not path.exists():
            raise AgentError(
                f"run.agent_options.mount: no {mount}; give files or folders that are there, by whole path"
            )
        out.append((path, "--bind" if mount.endswith(WRITABLE) else "--ro-bind"))
    return out


def refuse_closed(path: Path, how: str) -> None:
    """AgentError where the program's user, where that is not ours, may not use a path that it is shown."""
    found = path.stat()
    wanted = 4 | 2 * (how == "--bind") | path.is_dir()
    granted = found.st_mode >> 6 if found.st_uid == USER else found.st_mode
    if os.geteuid() == 0 and granted & wanted != wanted:
        raise AgentError(
            f"run.agent_options.mount: under root the program runs as user {USER}, to whom {path} is closed; chown it "
            f"to {USER}, or run EvoTrainer as an ordinary user"
        )


def own_files(argv: Sequence[str], hidden: Sequence[Path]) -> list[Path]:
    """What a program needs of itself: its file, of `X/bin/program` that folder, and where there is an `X/lib` too what
    is INSTALLED in X, as far as that holds nothing hidden and no home; and the files that its arguments name."""
    found = [p for a in argv[1:] if (p := Path(a)).is_absolute() and p.is_file()]
    if program := shutil.which(argv[0]):
        at = Path(program).absolute()
        for p in dict.fromkeys((at, at.resolve())):
            top = p.parent.parent
            parts = [p.parent] if p.parent.name in ("bin", "shims") else []
            if parts and any((top / n).is_dir() for n in ("lib", "libexec")):
                parts = [q for n in INSTALLED if (q := top / n).exists()]
            parts = [q for q in parts if not Path.home().is_relative_to(q) and not any(_overlap(q, h) for h in hidden)]
            found += parts if p.parent in parts else [p, *parts]
    for path in found:
        refuse_hidden(path, hidden)
    return [p for p in dict.fromkeys(found) if not _bound(p)]


def _empty_home() -> Path | None:
    """The home that is shown empty; None where that would hide the system itself."""
    home = Path(os.environ.get("HOME") or "/")
    return None if any(Path(s).is_relative_to(home) for s in SYSTEM) else home


def _bound(path: Path) -> bool:
    """Is it seen as a part of the system?"""
    home = _empty_home()
    return any(path.is_relative_to(s) for s in SYSTEM) and not (home and path.is_relative_to(home))


def _overlap(a: Path, b: Path) -> bool:
    one, other = a.resolve(), b.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


def refuse_hidden(path: Path, hidden: Sequence[Path]) -> None:
    """AgentError where a program would see what it must not."""
    for h in hidden:
        if _overlap(path, h):
            raise AgentError(
                f"run.agent_options.mount: {path} would show {h} to whoever sits; mount only what the program needs, "
                "and keep runs and keys elsewhere"
            )
