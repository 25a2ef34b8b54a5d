"""The real world: a git repository, files and test runs in an episode shell; grades come from fresh checkouts.

Texts are made by `tools.py` from what is really there, so that both worlds print the same. git itself runs inside
the shell, where anything that a policy leaves in `.git` can reach nothing but its own episode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evotrainer.envs.swe import gitrepo, tools
from evotrainer.envs.swe.control import is_control
from evotrainer.envs.swe.gitrepo import BuildCache, BuiltRepository
from evotrainer.envs.swe.grading import control_changed, own_visible, taken
from evotrainer.envs.swe.real_runner import calls_passed, named_tests, run_tests
from evotrainer.envs.swe.real_shells import GIT_ENVIRONMENT, Isolation, ShellPool, packed
from evotrainer.envs.swe.strict_tests import strict, with_equality
from evotrainer.envs.swe.world import CHANGING, Commit, Grade, Observation, ParsedAction, Repo, TestResult
from evotrainer.errors import SandboxError, TaskSetError
from evotrainer.sandbox.shell import Entry, EpisodeShell, ShellFileError, ShellLimits

LIMITS = ShellLimits(memory_mb=256, disk_mb=32, inodes=5_000, processes=32, output_kb=1024, idle_s=30.0)
GIT_CPU_S = 10.0
MAX_LOG = 200
"""Commits that `git log` asks for; their text is cut at `tools.MAX_TEXT` characters anyway."""


@dataclass(slots=True)
class RealHandle:
    """An opened repository and its shell."""

    repo: Repo
    protected: bool
    """Test files cannot be written."""
    built: BuiltRepository
    base: Mapping[str, str]
    shell: EpisodeShell
    fault: str | None = None
    trial: bool = False
    """A patch that is only tried: `own_visible` is not asked for."""


class RealWorld:
    """`World` with real git, real files and real processes. SandboxError where no shell can be had."""

    def __init__(self, limits: ShellLimits = LIMITS, binds: Sequence[tuple[str, str]] = (), keep: int = 32) -> None:
        """`binds`: (folder here, place inside below /opt), read-only; `keep`: idle shells kept for later episodes."""
        self._shells = ShellPool(limits, binds, keep)
        self._built = BuildCache()
        self._grading: EpisodeShell | None = None
        self.sandbox = Isolation(self._shells)
        """Tier and what it promises, as `Sandbox` has them."""

    def open(self, repo: Repo, knobs: Mapping[str, Any]) -> RealHandle:
        """TaskSetError where a scrubbed history shows more than the base."""
        built = self.build(repo, knobs)
        shell = self._shells.take(packed(built.files))
        base = Texts(built.tree)
        return RealHandle(repo, knobs.get("tests") != "writable", built, base, shell)

    def build(self, repo: Repo, knobs: Mapping[str, Any]) -> BuiltRepository:
        """The repository as git has it, made once per content."""
        commits = tools.commits_shown(repo, knobs)
        tools.check_reachable(repo, knobs, commits)
        scrubbed, at = knobs.get("history") != "full", len(repo.history) - 1
        if at < 0:
            raise TaskSetError(f"repository {repo.id} has no commit; give its history at least one")
        key = gitrepo.commits_key(commits, at, scrubbed)
        return self._built.get(key, lambda: gitrepo.build(commits, at, scrubbed))

    def close(self, handle: RealHandle) -> None:
        """Hand the shell back; the episode's files are gone."""
        self._shells.give_back(handle.shell)

    def shutdown(self) -> None:
        """End every shell."""
        self._grading = None
        self._shells.close()

    def files(self, handle: RealHandle) -> dict[str, str]:
        """Regular files of the working tree."""
        return dict(self.tree(handle, contents=True))

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

    def test(self, handle: RealHandle) -> Observation:
        """Every test file of the working tree, by name."""
        tree = self.tree(handle, contents=False)
        results, _ = run_tests(handle.shell, named_tests(tree))
        return Observation(tools.tests_text(results))

    def _change(self, handle: RealHandle, action: ParsedAction) -> Observation:
        if handle.protected and self.is_test(handle.repo, action.path):
            return Observation(tools.PROTECTED, ok=False)
        new = self.changed(self.tree(handle, contents=False), action)
        if isinstance(new, Observation):
            return new
        handle.shell.write({f"repo/{action.path}": new})
        return Observation(tools.DONE)

    def changed(self, files: Mapping[str, str], action: ParsedAction) -> str | Observation:
        """`tools.changed`."""
        return tools.changed(files, action)

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

    def is_test(self, repo: Repo, path: str) -> bool:
        """Is it one of the repository's own test files?"""
        return path in repo.visible

    def grade(self, handles: Sequence[RealHandle]) -> list[Grade]:
        return self.grade_unwatched(handles)

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

    def grade_tree(self, handle: RealHandle, left: Mapping[str, Entry]) -> Grade:
        """The grade of a working tree: fresh checkouts, the repository's own tests and control files put back."""
        repo, texts = handle.repo, Texts(left)
        patch = tools.git_patch(handle.base, texts)
        changed = tuple(sorted(p for p in repo.visible if p in handle.base and texts.get(p) != repo.visible[p]))
        files = cleaned(left, handle.built.tree, repo)
        visible = {p: Entry(p, "f", 0o644, t.encode()) for p, t in repo.visible.items()}
        calls = {i: c for i, c in repo.calls.items() if i in {*repo.fail_to_pass, *repo.pass_to_pass}}
        shell = self.fresh(overlaid(files, visible))
        results, values = run_tests(shell, named_tests(repo.visible), list(calls.values()))
        passed = {r.id: not r.error for r in results}
        hidden = calls_passed(calls, values)
        hidden |= self._texts_passed(repo, files, hidden)
        if changed:
            left_tests = named_tests({p: texts[p] for p in repo.visible if p in texts})
            results = run_tests(self.fresh(left), left_tests)[0] if left_tests else []
        control = control_changed(handle.base, texts)
        return Grade(hidden, passed, own_visible(repo, results), changed, patch, control_changed=control)

    def _texts_passed(self, repo: Repo, files: Mapping[str, Entry], known: Mapping[str, bool]) -> dict[str, bool]:
        """Hidden tests that are texts only: each file in a checkout of its own, written when nothing runs."""
        wanted = [i for i in (*repo.fail_to_pass, *repo.pass_to_pass) if i not in known]
        found: dict[str, bool] = dict.fromkeys(wanted, False)
        for path in sorted({i.partition("::")[0] for i in wanted} & repo.hidden.keys()):
            test = Entry(path, "f", 0o644, strict(repo.hidden[path], defined(repo)).encode())
            names = {path: [i.partition("::")[2] for i in wanted if i.startswith(path + "::")]}
            results: list[TestResult] = run_tests(self.fresh(overlaid(files, {path: test})), names)[0]
            found |= {r.id: not r.error for r in results}
        return found

    def fresh(self, files: Mapping[str, Entry]) -> EpisodeShell:
        """The grading shell with these files and nothing else; no policy's process ever ran in what it holds."""
        if self._grading is None or self._grading.closed:
            self._grading = self._shells.take(None)
        with packed(files) as template:
            self._grading.reset(template)
        return self._grading


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


def cleaned(left: Mapping[str, Entry], base: Mapping[str, Entry], repo: Repo) -> dict[str, Entry]:
    """A policy's tree without test files, with the base's control files,
    and without anything that is no file or link."""
    files = {p: e for p, e in left.items() if e.kind in ("f", "l") and taken(repo, p)}
    return overlaid(files, {p: e for p, e in base.items() if is_control(p)})


def defined(repo: Repo) -> frozenset[str]:
    """Classes with an equality of their own in the repository or in its reference fix."""
    return with_equality([*repo.files.values(), *repo.gold.values()])
