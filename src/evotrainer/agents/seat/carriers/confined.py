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
        p = subprocess.run([bwrap, *_base(), "--", "true"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"bwrap cannot be started ({e})"
    return "" if not p.returncode else f"bwrap does not work here ({' '.join(p.stderr.split())[-200:]})"


def _base() -> list[str]:
    args = ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    args += ["--cap-drop", "ALL"]
    for folder in SYSTEM:
        if Path(folder).is_symlink():
            args += ["--symlink", os.readlink(folder), folder]
        elif Path(folder).is_dir():
            args += ["--ro-bind", folder, folder]
    return [*args, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]


def confined(argv: Sequence[str], folder: Path, mounts: Sequence[str], hidden: Sequence[Path]) -> list[str]:
    """The program's command line inside bubblewrap, its working folder `folder`, which alone it may write to.

    `mounts`: what of the user's files it sees as well. AgentError where one of them holds, or lies in, what is hidden.
    """
    args, home = [str(find()), *_base()], os.environ.get("HOME", "")
    if home and not any(Path(home).is_relative_to(s) for s in SYSTEM):
        args += ["--tmpfs", home]
    for path in own_files([a for a in argv if not Path(a).is_relative_to(folder)], hidden):
        args += ["--ro-bind", str(path.resolve()), str(path)]
    for path, how in mounted(mounts):
        refuse_hidden(path, hidden)
        args += [how, str(path.resolve()), str(path)]
    return [*args, "--bind", str(folder), str(folder), "--chdir", str(folder), "--", *argv]


def mounted(mounts: Sequence[str]) -> list[tuple[Path, str]]:
    """(path, bubblewrap's option) of each; AgentError where one is not there."""
    out = []
    for told in mounts:
        path = Path(told.removesuffix(WRITABLE)).expanduser()
        if not path.is_absolute() or not path.exists():
            raise AgentError(f"run.agent_options.mount: no {told}; give files or folders that are there, by whole path")
        out.append((path, "--bind" if told.endswith(WRITABLE) else "--ro-bind"))
    return out


def own_files(argv: Sequence[str], hidden: Sequence[Path]) -> list[Path]:
    """What a program needs of itself: the folder that it is installed in (`X` of `X/bin/program`) as far as that holds
    nothing hidden and no home, else its file; and the files that its arguments name."""
    found = [p for a in argv[1:] if (p := Path(a)).is_absolute() and p.is_file()]
    if program := shutil.which(argv[0]):
        at = Path(program).absolute()
        for p in dict.fromkeys((at, at.resolve())):
            whole = p.parent.parent if p.parent.name in ("bin", "shims") else p
            fits = not Path.home().is_relative_to(whole) and not any(_overlap(whole, h) for h in hidden)
            found.append(whole if fits else p)
    for path in found:
        refuse_hidden(path, hidden)
    return [p for p in dict.fromkeys(found) if not any(p.is_relative_to(s) for s in SYSTEM)]


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
