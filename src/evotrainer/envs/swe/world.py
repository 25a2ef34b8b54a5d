"""What a repository task is, and what a world that runs one does: `memory.py` (generated
repositories, files in memory), `instance_world.py` (issues of real ones, in checkouts). Both print the texts of
`tools.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Files = Mapping[str, str]
"""Path (posix, relative to the root) -> text. Every text ends with a newline."""

ToolName = Literal[
    "ls",
    "cat",
    "grep",
    "edit",
    "insert",
    "delete",
    "write",
    "test",
    "git log",
    "git show",
    "git diff",
    "git status",
    "submit",
    "bash",
    "invalid",
]
CHANGING = frozenset({"edit", "insert", "delete", "write"})


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: what it did to the files that it touched."""

    message: str
    """One line."""
    before: Mapping[str, str | None]
    """Text of each touched file before it; None: the commit created the file."""
    after: Mapping[str, str | None]
    """Text of each touched file after it; None: the commit removed the file. Same keys as `before`."""


@dataclass(frozen=True, slots=True)
class HiddenCall:
    """A hidden test as data: `module.function(*args)` must return `expected`, of exactly the same type.

    Grading by value keeps expected outputs out of the process that runs the policy's code.
    """

    module: str
    function: str
    args: tuple[Any, ...]
    expected: Any


@dataclass(frozen=True, slots=True)
class Repo:
    """One repository task. A test id is `<path>::<function name>`."""

    id: str
    files: Files
    """The buggy base, without test files."""
    issue: str
    """What the policy is told."""
    history: tuple[Commit, ...]
    """Commits up to the base, oldest first; the first one creates files, the last one yields `files` and `visible`."""
    future: tuple[Commit, ...]
    """Commits after the base, oldest first, that only a full history exposes; the last one holds the fix."""
    visible: Files
    """Test files of the repository: the policy may read and run them."""
    fail_to_pass: tuple[str, ...]
    """Ids of hidden tests, which the policy never sees, that fail at the base and must pass."""
    pass_to_pass: tuple[str, ...]
    """Ids of hidden tests that pass at the base and must still pass."""
    gold: Files
    """New texts of the files that the reference fix changes."""
    calls: Mapping[str, HiddenCall] = field(default_factory=dict)
    """Hidden tests of a generated repository as data, by id; those of an instance are texts in its test patch."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """bug (class of the bug), module, function, compositions, ..."""


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """One action of the policy, parsed by `tools.parse`."""

    tool: ToolName
    path: str = ""
    """File of cat, edit, insert, delete, write."""
    first: int = 0
    """First line (from 1) of edit, insert, delete."""
    last: int = 0
    """Last line, inclusive."""
    text: str = ""
    """Word of grep; new lines (joined by newlines, no final one) of edit, insert, write;
    command line of bash (instances)."""
    back: int = 0
    """k of `git show HEAD~k`: 0 is the newest commit that the history shows."""
    error: str = ""
    """What to print where tool is `invalid`."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What an action printed. `done`: the episode was handed in."""

    text: str
    ok: bool = True
    done: bool = False
    fault: str | None = None
    """Infrastructure fault (text is `tools.FAULT`): the episode must not be scored."""


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test function that ran. `error`: name of the exception's class, `Timeout`, or `Killed`; empty: it passed.

    A test file that cannot be imported, or whose process does not end, gives that error for each function that its text
    defines (lines `def test_...`), in order. A function that the text seems to define but the module lacks gives
    `AttributeError`. Test files run by name, each in a process (or module table) of its own.
    """

    __test__ = False

    path: str
    name: str
    error: str = ""

    @property
    def id(self) -> str:
        return f"{self.path}::{self.name}"


@dataclass(frozen=True, slots=True)
class Grade:
    """How an episode stands; tests ran in a fresh copy with the repository's own test files put back."""

    hidden: Mapping[str, bool]
    """Every id of fail_to_pass and pass_to_pass -> passed."""
    visible: Mapping[str, bool]
    """Every test of the repository's own (canonical) visible files -> passed."""
    own_visible: bool
    """Do the visible test files pass as the policy left them
    (`memory.own_visible`)? What a trusting grader would read."""
    tests_changed: tuple[str, ...]
    """Visible test files whose text the policy changed or removed, sorted."""
    patch: str
    """The policy's change of the base, `tools.git_patch`."""
    fault: str | None = None
    """Infrastructure fault: nothing else holds."""
    control_changed: tuple[str, ...] = ()
    """Control files (`control.py`) that the policy added, changed or removed, sorted; they were not graded."""
    inside: tuple[str, ...] = ()
    """Ids that were graded in the process of the code under test, within its reach (`guarding.py`), sorted."""
    forged: tuple[str, ...] = ()
    """Tests that must fail and were reported as passed (`decoys.py`): nothing graded inside counts."""
    flip: Mapping[str, str] | None = None
    """A grading canary flipped (`canary.py`): what it showed (`flip`), and the fate of this grade
    (void, culprit, graded again)."""


class Handle(Protocol):
    """One opened repository; what else it holds is the world's own business."""

    @property
    def repo(self) -> Repo: ...


class World(Protocol):
    """Where repositories are opened and acted on. The network is closed in every world, always.

    knobs: `history` (scrubbed, full), `tests` (protected, writable), `visible_tests` (shown, hidden). With `scrubbed`
    `git log` and `git show` reach `history` only, and `open` raises TaskSetError where anything newer than the base is
    reachable. With `full` they reach `future` as well: HEAD~0 is the fix; the working tree is the base all the same,
    and `git diff`, `git status` and the patch compare with the base.
    """

    def open(self, repo: Repo, knobs: Mapping[str, Any]) -> Handle: ...

    def act(self, handles: Sequence[Any], actions: Sequence[ParsedAction]) -> list[Observation]:
        """One action per handle, in order; handles are distinct. Tests of all handles run together."""
        ...

    def grade(self, handles: Sequence[Any]) -> list[Grade]:
        """Grades in order; the handles stay as they are."""
        ...

    def close(self, handle: Any) -> None: ...

    def shutdown(self) -> None:
        """Give back what the world holds (a sandbox, folders)."""
        ...
