"""Which Python the sandbox runs: one that its unprivileged user can read.

The running interpreter may lie below a home folder that nobody else may enter; then the system's Python of the same
version is taken, or else a private copy of the running one is made in a cache folder.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from evotrainer.errors import SandboxError

_SKIPPED = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "ensurepip",
    "tkinter",
    "lib2to3",
    "turtledemo",
}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An executable and the folder (besides the system's) that must be visible for it, if any."""

    executable: str
    prefix: str | None


def readable_by(path: Path, uid: int) -> bool:
    """Whether user `uid`, in no group of ours, can reach and read `path`:
    every folder above must let others through."""
    try:
        for part in (path, *path.parents):
            info = part.stat()
            # owner's bits are six above the others'; group bits never count, as the sandbox's user is in no group
            shift = 6 if info.st_uid == uid else 0
            wanted = stat.S_IXOTH if stat.S_ISDIR(info.st_mode) else stat.S_IROTH
            if not info.st_mode & (wanted << shift):
                return False
    except OSError:
        return False
    return True


def _usable(executable: Path, library: Path, uid: int | None) -> bool:
    if uid is None:
        return os.access(executable, os.X_OK) and os.access(library / "os.py", os.R_OK)
    return readable_by(executable, uid) and readable_by(library / "os.py", uid)


def _running() -> tuple[Path, Path, Path]:
    """Executable, standard library and prefix of the running interpreter, outside any virtual environment."""
    prefix = Path(sys.base_prefix).resolve()
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    executable = prefix / "bin" / name
    if not executable.exists():
        executable = Path(getattr(sys, "_base_executable", sys.executable))
    return executable, Path(sysconfig.get_path("stdlib")).resolve(), prefix


def cache_root() -> Path:
    if os.geteuid() == 0:
        return Path("/var/cache/evotrainer")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evotrainer"


def _ignore(folder: str, names: list[str]) -> set[str]:
    """What no program needs: others' packages, tests, and the static library for embedding."""
    return {name for name in names if name in _SKIPPED or name.startswith("config-") or name.endswith(".a")}


def copy_runtime(root: Path) -> Interpreter:
    """A copy of the running interpreter below `root` that everybody can read; made once per version, atomically."""
    executable, library, prefix = _running()
    home = root / f"python-{sys.version.split()[0]}-{sys.platform}"
    target = home / "bin" / executable.name
    if not target.exists():
        root.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="python-", dir=root))
        try:
            (work / "bin").mkdir()
            shutil.copy(executable, work / "bin" / executable.name)
            relative = library.relative_to(prefix)
            shutil.copytree(library, work / relative, ignore=_ignore)
            for shared in (prefix / "lib").glob("libpython*.so*"):
                shutil.copy(shared, work / "lib" / shared.name)
            for folder in (root, work, *(p for p in work.rglob("*") if p.is_dir())):
                folder.chmod(0o755)
            # atomic: two processes that copy at once leave one whole copy; the loser's rename fails and finds it there
            os.rename(work, home)
        except OSError as error:
            shutil.rmtree(work, ignore_errors=True)
            if not target.exists():
                raise SandboxError(
                    f"no interpreter readable by the sandbox user, and copying one to {root} failed ({error}); "
                    "install the system's python3 or make that folder writable"
                ) from error
    return Interpreter(str(target), str(home))


def choose_interpreter(uid: int | None) -> Interpreter:
    """The running Python if user `uid` can read it (None: the current user), the system's, or a copy."""
    executable, library, prefix = _running()
    if _usable(executable, library, uid) and executable.is_relative_to(prefix):
        return Interpreter(str(executable), None if prefix == Path("/usr") else str(prefix))
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    system, folder = Path("/usr/bin") / name, Path("/usr/lib") / name
    if _usable(system, folder, uid):
        return Interpreter(str(system), None)
    return copy_runtime(cache_root())
