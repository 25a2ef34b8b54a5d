"""A control group per slot, version 1 or 2, where the machine lets us make one:
total memory and number of processes."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PREFIX = "evotrainer-"
_counter = itertools.count()


@dataclass(slots=True)
class SlotGroup:
    """The folders of one slot's group: one per controller (version 1) or a single one (version 2)."""

    memory: Path
    pids: Path
    unified: bool
    cpu: Path | None = None
    """Folder that counts CPU time; version 2 counts it in every group."""
    limit: int = 0
    squeezed: bool = False
    """The limit stays as it is."""
    folders: tuple[Path, ...] = field(init=False)
    _usage: int = -1
    _events: int = -1
    """Descriptors kept open: both are read for every program."""

    def __post_init__(self) -> None:
        self.folders = (self.memory,) if self.unified else (self.memory, self.pids, *filter(None, [self.cpu]))
        place = self.memory / "cpu.stat" if self.unified else self.cpu and self.cpu / "cpuacct.usage"
        self._usage = _opened(place) if place else -1
        self._events = _opened(self.memory / ("memory.events" if self.unified else "memory.oom_control"))

    def cpu_s(self, besides: int) -> float | None:
        """CPU-seconds of everything that ever ran in the group, without process `besides`;
        None where nothing counts them."""
        if self._usage < 0:
            return None
        try:
            words = os.pread(self._usage, 200, 0).split()
            # usage_usec in version 2, nanoseconds in version 1
            used = int(words[1]) / 1e6 if self.unified else int(words[0]) / 1e9
            # the kernel's CPU clock of another process: (~pid << 3) | CPUCLOCK_SCHED, as clock_getcpuclockid makes it
            return used - time.clock_gettime((~besides << 3) | 2)
        except (OSError, ValueError, IndexError):
            return None

    def set_limits(self, memory_bytes: int, processes: int) -> None:
        """Memory and processes of everything in the slot together; swap is closed where the kernel counts it."""
        self.set_memory(memory_bytes)
        if self.unified:
            with contextlib.suppress(OSError):
                (self.memory / "memory.swap.max").write_text("0")
        (self.pids / "pids.max").write_text(str(processes))

    def set_memory(self, memory_bytes: int) -> None:
        """Memory of everything in the slot together."""
        name = "memory.max" if self.unified else "memory.limit_in_bytes"
        (self.memory / name).write_text(str(memory_bytes))
        if not self.unified:
            with contextlib.suppress(
                OSError
            ):  # version 1 counts buffers of TCP only where they have a limit of their own
                (self.memory / "memory.kmem.tcp.limit_in_bytes").write_text(str(memory_bytes))
        self.limit = memory_bytes

    def fit_memory(self, memory_bytes: int) -> None:
        """The limit of the next program, where it is another one.
        What an earlier one held may still be on its way out."""
        if memory_bytes != self.limit and not self.squeezed:
            with contextlib.suppress(OSError):
                self.set_memory(memory_bytes)

    def add(self, pid: int) -> None:
        """Move a process (not its children) into the group."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def kills(self) -> int:
        """How often the kernel killed something here because memory ran out."""
        try:
            found = re.search(rb"^oom_kill (\d+)", os.pread(self._events, 1000, 0), re.MULTILINE)
        except OSError:
            return 0
        return int(found[1]) if found else 0

    def remove(self) -> None:
        """Delete the group once its processes are gone (they are dying: wait up to a second)."""
        for fd in (self._usage, self._events):
            if fd >= 0:
                os.close(fd)
        self._usage = self._events = -1
        for folder in self.folders:
            # rmdir fails with EBUSY until the kernel has buried the last process
            for _ in range(50):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.02)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _mounts() -> Iterator[tuple[str, str, set[str]]]:
    """(file system, mount point, options) of mounted control group hierarchies."""
    with open("/proc/self/mounts") as mounts:
        for line in mounts:
            _, point, kind, options = line.split()[:4]
            if kind in ("cgroup", "cgroup2"):
                yield kind, point, set(options.split(","))


def _own() -> dict[str, str]:
    """Controller -> our group's path; "" for version 2."""
    paths: dict[str, str] = {}
    with open("/proc/self/cgroup") as groups:
        for line in groups:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                paths[controller] = path
    return paths


def _sweep(parent: Path) -> None:
    """Remove what killed processes left behind; a group that is still in use refuses."""
    for folder in parent.glob(f"{_PREFIX}*"):
        pid = folder.name[len(_PREFIX) :].split("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


def _make(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder


def _version1(name: str) -> SlotGroup | None:
    mounted = [(Path(point), options) for kind, point, options in _mounts() if kind == "cgroup"]
    points = {controller: point for point, options in mounted for controller in options}
    if "memory" not in points or "pids" not in points:
        return None
    own = _own()
    made: list[Path] = []
    try:
        for controller in ("memory", "pids", "cpuacct"):
            if controller not in points:
                continue
            point = points[controller]
            # our own group may lie above what is mounted here (in a container): then the mount point is all we can see
            inside = point / own.get(controller, "/").lstrip("/")
            parent = inside if inside.is_dir() else point
            _sweep(parent)
            made.append(_make(parent, name))
        return SlotGroup(made[0], made[1], unified=False, cpu=made[2] if len(made) > 2 else None)
    except OSError:
        for folder in made:
            folder.rmdir()
        return None


def _version2_parents() -> Iterator[Path]:
    """Our group and those above it, while they hand both controllers on."""
    for kind, point, _ in _mounts():
        if kind != "cgroup2":
            continue
        top = Path(point)
        folder = top / _own().get("", "/").lstrip("/")
        # version 2 allows processes in leaves only: controllers come from a parent that hands them on (subtree_control)
        while folder.is_relative_to(top):
            with contextlib.suppress(OSError):
                if {"memory", "pids"} <= set((folder / "cgroup.subtree_control").read_text().split()):
                    yield folder
            if folder == top:
                break
            folder = folder.parent


def _version2(name: str) -> SlotGroup | None:
    for parent in _version2_parents():
        try:
            _sweep(parent)
            folder = _make(parent, name)
        except OSError:
            continue
        return SlotGroup(folder, folder, unified=True)
    return None


def make_group(memory_bytes: int, processes: int) -> SlotGroup | None:
    """A new group with these limits, or None where the machine offers none to this user."""
    name = f"{_PREFIX}{os.getpid()}-{next(_counter)}"
    # version 1 first: on hybrid machines version 2 is mounted as well, without the controllers
    makers: tuple[Callable[[str], SlotGroup | None], ...] = (_version1, _version2)
    for make in makers:
        try:
            group = make(name)
        except OSError:
            continue
        if group is None:
            continue
        try:
            group.set_limits(memory_bytes, processes)
        except OSError:
            group.remove()
            continue
        return group
    return None
