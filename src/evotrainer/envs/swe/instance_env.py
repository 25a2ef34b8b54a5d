"""The environment of repository issues from a data set: `[environment] name = "swe"` with a `source`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from evotrainer.envs.base import Capability, EnvironmentBase, Episode, Task
from evotrainer.envs.data.tables import DataOptions
from evotrainer.envs.swe.canary import EVERY
from evotrainer.envs.swe.control import LIBRARY
from evotrainer.envs.swe.env import CAPABILITIES, SweConfig, SweEnv
from evotrainer.envs.swe.instance_world import LIMITS, InstanceWorld
from evotrainer.envs.swe.instances import Instance, load_instances
from evotrainer.envs.swe.packages import PLACE, module_names, plugins_in, pytest_folder
from evotrainer.envs.swe.test_commands import TestCommand
from evotrainer.envs.swe.world import ParsedAction
from evotrainer.errors import TaskSetError
from evotrainer.records.rollout import Finish

KNOBS: Mapping[str, tuple[Any, ...]] = {"history": ("scrubbed", "full"), "tests": ("protected", "writable")}


class InstancesConfig(DataOptions):
    """`[environment]` of a task file with name = "swe" and a source."""

    name: Literal["swe"] = "swe"
    repos: str
    """Folder of mirrors: owner__name or owner/name, bare or not."""
    tests: str = "pytest"
    """pytest, unittest, or a command line with {tests} in it, whose log is read."""
    python: str = ""
    """Folder of an environment (bin/python) with the repositories' dependencies;
    empty: the sandbox's Python and pytest."""
    packages: tuple[str, ...] = ()
    """Folders of packages (a site-packages of the sandbox's Python version) that tests may import."""
    plugins: tuple[str, ...] = ()
    """Plug-ins of pytest that the tests need, by module (pytest_asyncio, ...); none is loaded unasked."""
    canary_every: int = Field(EVERY, ge=1)
    """Gradings between two canaries (an attempt known to be wrong and one known to be right)."""
    bash: bool = False
    """A further tool: `bash COMMAND`."""
    depth: int = Field(1, ge=0)
    """Commits of a scrubbed history; 0: all up to the base."""
    admit: bool = True
    """Check every instance before use: the fix passes, no change and cheats fail."""
    cpu_s: float = Field(300.0, gt=0)
    """CPU-seconds of one run of the tests."""
    memory_mb: int = Field(LIMITS.memory_mb, ge=128)
    disk_mb: int = Field(LIMITS.disk_mb, ge=16)


class InstancesEnv(SweEnv):
    """Instances in the real world; those that admission refuses are left out (`admission` says why)."""

    name = "swe-instances"
    offers: Sequence[str] = ("turn_rewards",)
    redraws = False
    vocabulary_version = "characters"
    knobs = KNOBS
    capabilities: Sequence[Capability] = tuple(c for c in CAPABILITIES if c.knob in KNOBS)

    def __init__(self, config: InstancesConfig, components: Mapping[str, Any] | None = None) -> None:
        from evotrainer.envs.admission import AdmissionReport
        from evotrainer.envs.swe.admission import admit

        self.options = config
        folder = Path(config.repos).expanduser()
        if not folder.is_dir():
            raise TaskSetError(f"environment swe: no folder {folder}; give repos, the folder of the mirrors")
        instances, self._data = load_instances(config)
        limits = replace(LIMITS, memory_mb=config.memory_mb, disk_mb=config.disk_mb)
        command, binds = _command(config)
        self.instances = InstanceWorld(
            folder,
            command,
            depth=config.depth,
            limits=limits,
            binds=binds,
            library=LIBRARY | {name for f in _package_folders(config) for name in module_names(f)},
            canary_every=config.canary_every,
        )
        super().__init__(SweConfig(), components=components, world=self.instances)
        tasks = [as_task(i) for i in instances]
        self.admission: AdmissionReport | None = None
        if config.admit:
            offered = sorted({p for f in _package_folders(config) for p in plugins_in(f)})
            self.admission = admit(tasks, self.instances, plugins=offered)
            admitted = self.admission.admitted
            self.instances.watch.trust(admitted)
            tasks = [t for t in tasks if t.id in admitted]
            if not tasks:
                self.close()
                raise TaskSetError(f"environment swe: no instance is admitted\n{self.admission}")
        splits: dict[str, tuple[Task, ...]] = {}
        for task in tasks:
            splits[task.split] = (*splits.get(task.split, ()), task)
        self._tasks = splits
        self._key = repr([sorted(i.hash for i in instances), config.tests, config.depth])

    def _hash(self) -> str:
        return hashlib.sha256(self._key.encode()).hexdigest()[:16]

    _sizes, _of_split = EnvironmentBase._sizes, EnvironmentBase._of_split

    def reset(self, task: Task, knobs: Mapping[str, Any]) -> Episode:
        ready = self.instances.prepare(task.data["instance"])
        return super().reset(replace(task, data={**task.data, "repo": ready}), knobs)

    def parse(self, text: str, finish: Finish) -> ParsedAction:
        """The tools of repository tasks, and `bash COMMAND` where that is open."""
        stripped = text.strip("\n")
        if self.options.bash and stripped.startswith("bash ") and finish != "length":
            return ParsedAction("bash", text=stripped.removeprefix("bash "))
        return super().parse(text, finish)

    def demonstrations(self, n: int, seed: int) -> list[tuple[str, ...]]:
        """None: instances teach no policy from scratch."""
        return []

    def drills(self, n: int, seed: int) -> list[tuple[str, ...]]:
        """None."""
        return []

    def vocabulary(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> dict[str, Any]:
        found = super().describe() | {"tests": self.options.tests}
        if self.admission is not None:
            admitted = [v for v in self.admission.verdicts if v.admitted]
            found["refused"] = {v.task: list(v.reasons) for v in self.admission.verdicts if not v.admitted}
            names = ("across", "decided", "inside")
            found["graded"] = {n: sum(getattr(v, n) for v in admitted) for n in names}
        return found | {"data": self._data}


def as_task(instance: Instance) -> Task:
    """The instance as a task; its tests and patches stay in `data`."""
    return Task(instance.id, instance.split, instance.statement, {"instance": instance}, {"repo": instance.repo})


def _command(config: InstancesConfig) -> tuple[TestCommand, list[tuple[str, str]]]:
    """The test command and the folders that it needs, as (here, inside)."""
    if config.tests not in ("pytest", "unittest") and "{tests}" not in config.tests:
        raise TaskSetError(
            f"environment swe: tests is {config.tests!r}; pytest, unittest, or a command line with {{tests}} in it"
        )
    binds = [(str(_folder(f)), f"/opt/packages{i}") for i, f in enumerate(config.packages)]
    path = tuple(place for _, place in binds)
    if config.python:
        folder = _folder(config.python)
        real = (folder / "bin" / "python").resolve()
        if not real.is_file():
            raise TaskSetError(f"environment swe: no bin/python in {folder}; give the folder of an environment")
        if not real.is_relative_to(folder) and not real.is_relative_to("/usr"):
            raise TaskSetError(
                f"environment swe: the interpreter of {folder} lies at {real}, "
                "which a shell does not show; make the environment with the system's Python, "
                "or give its site-packages as packages"
            )
        command = TestCommand(config.tests, "/opt/env/bin/python", path, cpu_s=config.cpu_s, plugins=config.plugins)
        return command, [*binds, (str(folder), "/opt/env")]
    if config.tests != "unittest":
        path, binds = (PLACE, *path), [(str(pytest_folder()), PLACE), *binds]
    return TestCommand(config.tests, path=path, cpu_s=config.cpu_s, plugins=config.plugins), binds


def _package_folders(config: InstancesConfig) -> list[Path]:
    """Where packages that tests may import lie, besides the sandbox's own."""
    found = [_folder(f) for f in config.packages]
    if config.python:
        real = (_folder(config.python) / "bin" / "python").resolve().parents[1]
        found += [*_folder(config.python).glob("lib/python*/site-packages"), *real.glob("lib/python3.*")]
    return [*found, *filter(Path.is_dir, [Path("/usr/lib/python3/dist-packages")])]


def _folder(name: str) -> Path:
    folder = Path(name).expanduser().resolve()
    if not folder.is_dir():
        raise TaskSetError(f"environment swe: no folder {folder}; correct python or packages")
    return folder
