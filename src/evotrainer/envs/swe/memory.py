"""The world of generated repositories: files are texts, git is a list. Thousands of episodes per minute.

Tests are worked out here where they are plain arithmetic (`plain.py`), and run in the sandbox otherwise. The network is
closed: nothing here opens a connection, and the sandbox has none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evotrainer.envs.components import UNSURE, ResultCache
from evotrainer.envs.swe import plain, tools
from evotrainer.envs.swe.control import is_control
from evotrainer.envs.swe.runner import call_results, program, test_results
from evotrainer.envs.swe.world import CHANGING, Commit, Grade, Observation, ParsedAction, Repo, TestResult
from evotrainer.errors import TaskSetError

if TYPE_CHECKING:
    from evotrainer.sandbox import CaseResult, Sandbox

KEEP = 8192
"""Test runs that are remembered, by content."""


@dataclass(slots=True)
class MemoryHandle:
    """An opened repository."""

    repo: Repo
    protected: bool
    """Test files cannot be written."""
    base: dict[str, str]
    tree: dict[str, str]
    commits: tuple[Commit, ...] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    """Results of one content: its test files and the hidden calls; or a fault of the sandbox."""

    tests: tuple[TestResult, ...] = ()
    hidden: Mapping[str, bool] = field(default_factory=dict)
    fault: str | None = None
    sure: bool = True
    """The same content would give the same again."""


class MemoryWorld:
    """`World` in memory. `open_sandbox` is called when tests first need it; `compute` false: they always do."""

    def __init__(self, open_sandbox: Callable[[], Sandbox], keep: int = KEEP, *, compute: bool = True) -> None:
        self._open_sandbox = open_sandbox
        self._sandbox: Sandbox | None = None
        self.known = ResultCache[_Run](keep)
        self._compute = compute
        self.ran = self.computed = 0
        """Contents so far that ran in the sandbox, and that were worked out without it."""

    @property
    def sandbox(self) -> Sandbox:
        if self._sandbox is None:
            self._sandbox = self._open_sandbox()
        return self._sandbox

    def open(self, repo: Repo, knobs: Mapping[str, Any]) -> MemoryHandle:
        """TaskSetError where a scrubbed history shows more than the base, or a hidden test is no call."""
        commits = tools.commits_shown(repo, knobs)
        tools.check_reachable(repo, knobs, commits)
        missing = [i for i in (*repo.fail_to_pass, *repo.pass_to_pass) if i not in repo.calls]
        if missing:
            raise TaskSetError(
                f"repository {repo.id}: hidden test {missing[0]} has no call; in memory hidden tests are calls"
            )
        base = {**repo.files, **({} if knobs.get("visible_tests") == "hidden" else repo.visible)}
        return MemoryHandle(repo, knobs.get("tests") != "writable", base, dict(base), commits)

    def close(self, handle: MemoryHandle) -> None:
        """Nothing to give back."""

    def shutdown(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    def act(self, handles: Sequence[MemoryHandle], actions: Sequence[ParsedAction]) -> list[Observation]:
        out: list[Observation | None] = [self._alone(h, a) for h, a in zip(handles, actions, strict=True)]
        waiting = [i for i, o in enumerate(out) if o is None]
        runs = self._run([(handles[i].repo, handles[i].tree) for i in waiting])
        for i, run in zip(waiting, runs, strict=True):
            if run.fault is not None:
                out[i] = Observation(tools.FAULT, ok=False, fault=run.fault)
            else:
                out[i] = Observation(tools.tests_text(run.tests))
        return [o for o in out if o is not None]

    def _alone(self, handle: MemoryHandle, action: ParsedAction) -> Observation | None:
        """What an action prints that runs no program; None for `test`."""
        if action.tool == "test":
            return None
        if action.tool == "submit":
            return Observation(tools.SUBMITTED, done=True)
        if action.tool not in CHANGING:
            return tools.read_only_observation(action, handle.tree, handle.base, handle.commits)
        if handle.protected and action.path in handle.repo.visible:
            return Observation(tools.PROTECTED, ok=False)
        new = tools.changed(handle.tree, action)
        if isinstance(new, Observation):
            return new
        handle.tree[action.path] = new
        return Observation(tools.DONE)

    def grade(self, handles: Sequence[MemoryHandle]) -> list[Grade]:
        canonical = self._run([(h.repo, graded_texts(h.repo, h.base, h.tree)) for h in handles])
        changed = [tools.changed_tests(h.repo, h.base, h.tree) for h in handles]
        own = iter(self._run([(h.repo, h.tree) for h, c in zip(handles, changed, strict=True) if c]))
        return [
            _grade(h, c, run, next(own) if c else run) for h, c, run in zip(handles, changed, canonical, strict=True)
        ]

    def _run(self, wanted: Sequence[tuple[Repo, Mapping[str, str]]]) -> list[_Run]:
        """One result per (repository, tree), each distinct content run once."""
        keys = [_key(repo, tree) for repo, tree in wanted]
        todo: dict[bytes, tuple[Repo, Mapping[str, str]]] = {}
        found: dict[bytes, _Run] = {}
        for key, item in zip(keys, wanted, strict=True):
            if (run := self.known.get(key)) is not None:
                found[key] = run
            else:
                todo.setdefault(key, item)
        for key, cases in self._cases(todo).items():
            found[key] = run = _read(*todo[key], cases)
            if run.fault is None and run.sure:
                self.known.put(key, run)
        return [found[k] for k in keys]

    def _cases(self, todo: Mapping[bytes, tuple[Repo, Mapping[str, str]]]) -> dict[bytes, Sequence[CaseResult]]:
        """What each content's test files and hidden calls answer."""
        out: dict[bytes, Sequence[CaseResult]] = {}
        programs = {}
        for key, (repo, tree) in todo.items():
            tests, calls = _test_files(tree), list(repo.calls.values())
            plainly = plain.answers(tree, tests, calls) if self._compute else None
            if plainly is None:
                programs[key] = program(tree, tests, calls)
            else:
                out[key] = plainly
        self.computed += len(out)
        if programs:
            self.ran += len(programs)
            results = self.sandbox.run(list(programs.values()))
            out |= {key: result.cases for key, result in zip(programs, results, strict=True)}
        return {key: out[key] for key in todo}  # in order: what is remembered longest is forgotten first


def _grade(h: MemoryHandle, changed: tuple[str, ...], canonical: _Run, own: _Run) -> Grade:
    patch = tools.git_patch(h.base, h.tree)
    if fault := canonical.fault or own.fault:
        return Grade({}, {}, False, changed, patch, fault)
    passed = {r.id: not r.error for r in canonical.tests if r.path in h.repo.visible}
    control = control_changed(h.base, h.tree)
    return Grade(canonical.hidden, passed, own_visible(h.repo, own.tests), changed, patch, control_changed=control)


def _test_files(tree: Mapping[str, str]) -> list[str]:
    """Test files of a tree, by name: `test_*.py` in any folder."""
    return sorted(p for p in tree if p.rpartition("/")[2].startswith("test_") and p.endswith(".py"))


def _key(repo: Repo, tree: Mapping[str, str]) -> bytes:
    text = json.dumps([sorted(tree.items()), repr(list(repo.calls.items()))])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _read(repo: Repo, tree: Mapping[str, str], cases: Sequence[CaseResult]) -> _Run:
    broken = next((c for c in cases if c.status == "sandbox"), None)
    if broken is not None:
        return _Run(fault=": ".join(broken.error) if broken.error else "sandbox fault")
    paths = _test_files(tree)
    tests = [r for p, case in zip(paths, cases, strict=False) for r in test_results(p, tree[p], case)]
    sure = not any(c.status in UNSURE for c in cases)
    return _Run(tuple(tests), call_results(repo.calls, cases[len(paths)]), sure=sure)


def _taken(repo: Repo, path: str) -> bool:
    """Does grading take this file from the policy? Not tests with the repository's names, nor control files."""
    hidden = {i.partition("::")[0] for i in repo.calls}
    return path not in repo.visible and path not in hidden and not is_control(path)


def graded_texts(repo: Repo, base: Mapping[str, str], tree: Mapping[str, str]) -> dict[str, str]:
    """The texts that are graded: the policy's, the base's control files, the repository's own visible tests."""
    kept = {p: t for p, t in tree.items() if _taken(repo, p)}
    return kept | {p: t for p, t in base.items() if is_control(p)} | dict(repo.visible)


def control_changed(base: Mapping[str, str], tree: Mapping[str, str]) -> tuple[str, ...]:
    """Control files that the policy added, changed or removed, sorted."""
    return tuple(sorted(p for p in {*base, *tree} if is_control(p) and base.get(p) != tree.get(p)))


def own_visible(repo: Repo, results: Iterable[TestResult]) -> bool:
    """Do the repository's visible test files pass as they stand: at least one test, no failure?

    Test files that the policy added do not count, neither for it nor against it.
    """
    found = [not r.error for r in results if r.path in repo.visible]
    return bool(found) and all(found)
