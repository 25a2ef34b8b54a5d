"""Episodes in real checkouts: a git repository and files in an episode shell.

Texts are made by `tools.py` from what is really there. git itself runs inside the shell, where anything that a policy
leaves in `.git` can reach nothing but its own episode.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evotrainer.envs.swe import gitrepo, tools
from evotrainer.envs.swe.gitrepo import BuiltRepository
from evotrainer.envs.swe.instances import InstanceRepo
from evotrainer.envs.swe.real_shells import GIT_ENVIRONMENT, Isolation, ShellPool, packed
from evotrainer.envs.swe.world import CHANGING, Commit, Grade, Observation, ParsedAction, Repo
from evotrainer.errors import SandboxError, TaskSetError
from evotrainer.sandbox.shell import Entry, EpisodeShell, ShellLimits
from evotrainer.sandbox.shell_data import ShellFileError

GIT_CPU_S = 10.0
MAX_FILE = 1_000_000
MAX_FILES = 100_000
MAX_LOG = 200
"""Commits that `git log` asks for; their text is cut at `tools.MAX_TEXT` characters anyway."""


@dataclass(slots=True)
class RealHandle:
    """An opened repository and its shell."""

    repo: InstanceRepo
    protected: bool
    """Test files cannot be written."""
    built: BuiltRepository
    base: Mapping[str, str]
    shell: EpisodeShell
    fault: str | None = None
    trial: bool = False
    """A patch that is only tried: `own_visible` is not asked for."""


class RealWorld(ABC):
    """`World` with real git, real files and real processes. SandboxError where no shell can be had."""

    def __init__(self, limits: ShellLimits, binds: Sequence[tuple[str, str]]) -> None:
        """`binds`: (folder here, place inside below /opt), read-only."""
        self._shells = ShellPool(limits, binds)
        self._grading: EpisodeShell | None = None
        self.sandbox = Isolation(self._shells)
        """Tier and what it promises, as `Sandbox` has them."""

    def open(self, repo: Repo, knobs: Mapping[str, Any]) -> RealHandle:
        """TaskSetError where the repository cannot be had, or a scrubbed history shows more than the base."""
        if not isinstance(repo, InstanceRepo):
            raise TaskSetError(f"{repo.id} is no instance; open it in a world of generated repositories")
        built = self.build(repo, knobs)
        shell = self._shells.take(packed(built.files))
        base = Texts(built.tree)
        return RealHandle(repo, knobs.get("tests") != "writable", built, base, shell)

    @abstractmethod
    def build(self, repo: InstanceRepo, knobs: Mapping[str, Any]) -> BuiltRepository:
        """The repository as git has it, made once per content."""

    @abstractmethod
    def test(self, handle: RealHandle) -> Observation:
        """Run the tests of the working tree."""

    @abstractmethod
    def grade_tree(self, handle: RealHandle, left: Mapping[str, Entry]) -> Grade:
        """The grade of a working tree."""

    def close(self, handle: RealHandle) -> None:
        """Hand the shell back; the episode's files are gone."""
        self._shells.give_back(handle.shell)

    def shutdown(self) -> None:
        """End every shell."""
        self._grading = None
        self._shells.close()

    def tree(self, handle: RealHandle, contents: bool) -> Mapping[str, str]:
        """The working tree; without `contents`, texts are read when they are asked for."""
        entries = {e.path: e for e in handle.shell.tree(contents=contents)}
        return Texts(entries) if contents else Texts(entries, handle.shell)

    def act(self, handles: Sequence[RealHandle], actions: Sequence[ParsedAction]) -> list[Observation]:
        return [self._act(h, a) for h, a in zip(handles, actions, strict=True)]

    def _act(self, handle: RealHandle, action: ParsedAction) -> Observation:
        if handle.fault is None:
            try:
                return self.do(handle, action)
            except ShellFileError as error:
                return Observation(f"error: {error}"[: tools.MAX_TEXT], ok=False)
            except SandboxError as error:
                handle.fault = str(error)
        return Observation(tools.FAULT, ok=False, fault=handle.fault)

    def do(self, handle: RealHandle, action: ParsedAction) -> Observation:
        """One action on a shell that works."""
        if action.tool == "submit":
            return Observation(tools.SUBMITTED, done=True)
        if action.tool == "invalid":
            return tools.read_only_observation(action, {}, {}, ())
        if action.tool == "test":
            return self.test(handle)
        if action.tool in ("git log", "git show"):
            return self._history(handle, action)
        if action.tool in CHANGING:
            return self._change(handle, action)
        whole = action.tool in ("grep", "git diff", "git status")
        return tools.read_only_observation(action, self.tree(handle, contents=whole), handle.base, ())

    def _change(self, handle: RealHandle, action: ParsedAction) -> Observation:
        if handle.protected and handle.repo.is_test(action.path):
            return Observation(tools.PROTECTED, ok=False)
        new = tools.changed(self.tree(handle, contents=False), action, MAX_FILES, MAX_FILE)
        if isinstance(new, Observation):
            return new
        handle.shell.write({f"repo/{action.path}": new})
        return Observation(tools.DONE)

    def _history(self, handle: RealHandle, action: ParsedAction) -> Observation:
        if action.tool == "git log":
            subjects = self.git(handle, "log", "--first-parent", f"-n{MAX_LOG}", "--format=%s", "HEAD").splitlines()
            commits: list[Commit] = [Commit(subject, {}, {}) for subject in reversed(subjects)]
            return tools.read_only_observation(action, {}, {}, commits)
        commit = self._commit(handle, action.back)
        return Observation(tools.NO_REVISION, ok=False) if commit is None else tools.show([commit], 0)

    def _commit(self, handle: RealHandle, back: int) -> Commit | None:
        """A commit's subject and the texts of the files it touched, from git; None where there is no such revision."""
        rev = f"HEAD~{back}"
        log = self.git(handle, "log", "-1", "-m", "--first-parent", "--format=%s", "-r", "--raw", "-z", "--no-renames",
                        "--abbrev=40", "--root", rev)  # fmt: skip
        subject, _, rest = log.partition("\0")
        if not log:
            return None
        words = rest.lstrip("\n").split("\0")
        rows = [
            (meta.split(), path) for meta, path in zip(words[::2], words[1::2], strict=False) if meta.startswith(":")
        ]
        oids = {oid for meta, _ in rows for oid in meta[2:4] if oid.strip("0")}
        blobs = self._blobs(handle, sorted(oids))
        before = {path: blobs.get(meta[2]) for meta, path in rows}
        after = {path: blobs.get(meta[3]) for meta, path in rows}
        return Commit(subject.strip("\n"), before, after)

    def _blobs(self, handle: RealHandle, oids: Sequence[str]) -> dict[str, str]:
        if not oids:
            return {}
        ran = handle.shell.run(
            ["git", "cat-file", "--batch"], stdin="".join(f"{o}\n" for o in oids), cpu_s=GIT_CPU_S, env=GIT_ENVIRONMENT
        )
        return {oid: data.decode("utf-8", "replace") for oid, data in gitrepo.parse_batch(ran.stdout).items()}

    def git(self, handle: RealHandle, *args: str) -> str:
        """What git prints inside the shell; nothing where it fails (the policy may have broken its repository)."""
        ran = handle.shell.run(["git", *args], cpu_s=GIT_CPU_S, env=GIT_ENVIRONMENT)
        return ran.text if ran.exit == 0 else ""

    def grade_unwatched(self, handles: Sequence[RealHandle]) -> list[Grade]:
        """Grades without a canary next to them."""
        return [self._grade_safely(h) for h in handles]

    def _grade_safely(self, handle: RealHandle) -> Grade:
        if handle.fault is None:
            try:
                return self._grade(handle)
            except SandboxError as error:
                handle.fault = str(error)
        return Grade({}, {}, False, (), "", handle.fault)

    def _grade(self, handle: RealHandle) -> Grade:
        try:
            return self.grade_tree(handle, {e.path: e for e in handle.shell.tree()})
        except ShellFileError:  # no folder may be unreadable, endless, or too large: such a checkout passes nothing
            repo = handle.repo
            hidden = dict.fromkeys((*repo.fail_to_pass, *repo.pass_to_pass), False)
            return Grade(hidden, {}, False, tuple(sorted(repo.visible)), "")


class Texts(Mapping[str, str]):
    """Regular files as texts, decoded or read when asked for."""

    def __init__(self, entries: Mapping[str, Entry], shell: EpisodeShell | None = None) -> None:
        self._entries = {p: e for p, e in entries.items() if e.kind == "f"}
        self._shell = shell

    def __getitem__(self, path: str) -> str:
        entry = self._entries[path]
        data = self._shell.read(f"repo/{path}") if self._shell is not None else entry.data
        return data.decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def overlaid(files: Mapping[str, Entry], ours: Mapping[str, Entry]) -> dict[str, Entry]:
    """`ours` on top of a policy's files; what stands where one of our folders must be (a file, a link) goes."""
    folders = {p[:i] for p in ours for i, c in enumerate(p) if c == "/"}
    return {p: e for p, e in files.items() if p not in folders} | dict(ours)
