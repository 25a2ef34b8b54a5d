"""The tools: grammar of actions, what they do to files, and every text that they print.

    ls                      names of all files
    cat F                   numbered lines of a file
    grep W                  lines that hold W, at most four
    edit F N text           replace line N (edit F N-M text: lines N to M) by text; further lines may follow
    insert F N text         put text before line N (one past the end: append)
    delete F N              delete line N (delete F N-M: lines N to M)
    write F                 the further lines become the whole file
    test                    run the repository's tests
    git log | git show HEAD~k | git diff | git status
    submit                  hand in

Text without leading blanks takes the indentation of the line that it replaces, or stands before.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from evotrainer.envs.swe.patches import git_lines
from evotrainer.envs.swe.patches import git_patch as git_patch
from evotrainer.envs.swe.world import Commit, Observation, ParsedAction, Repo, TestResult, ToolName
from evotrainer.errors import TaskSetError

MAX_FILES = 64
MAX_FILE = 20_000
"""Characters of a file."""
MAX_TEXT = 2_000
"""Characters of an observation."""
GREP_LINES = 4
FAILED_LINES = 3
SHOW_LINES = 12
"""Lines of a commit that `git show` prints."""

_PATH = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)*", re.ASCII)
_LINES = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_REVISION = re.compile(r"HEAD(?:~(\d{1,3}))?", re.ASCII)
_DEF = re.compile(r"^def (test_\w+)\s*\(", re.MULTILINE | re.ASCII)
_PLAIN: dict[str, ToolName] = {
    "ls": "ls",
    "test": "test",
    "submit": "submit",
    "git log": "git log",
    "git diff": "git diff",
    "git status": "git status",
    "git show": "git show",
}

VERBS = frozenset({"ls", "cat", "grep", "edit", "insert", "delete", "write", "test", "git", "submit"})

UNKNOWN = "error: unknown command"
USAGE = "error: bad arguments"
NO_FILE = "error: no such file"
NO_LINE = "error: no such line"
NO_REVISION = "error: no such revision"
PROTECTED = "error: protected file"
TOO_LARGE = "error: too large"
FAULT = "error: tests could not run"
TOO_LONG = "error: action cut off"
NO_MATCH = "no match"
NO_TESTS = "no tests"
NO_CHANGES = "no changes"
DONE = "ok"
SUBMITTED = "submitted"


def parse(text: str) -> ParsedAction:
    """The action in a policy's text: its first line is the command, further lines are text of edit,
    insert and write."""
    head, _, rest = text.strip("\n").partition("\n")
    head = head.strip().removeprefix("$ ")
    if head in _PLAIN:
        return ParsedAction(_PLAIN[head])
    tool, _, args = head.partition(" ")
    if tool == "git":
        return _git(args)
    if tool == "cat":
        return ParsedAction("cat", args) if _PATH.fullmatch(args) else _invalid(USAGE)
    if tool == "grep":
        return ParsedAction("grep", text=args) if args.strip() else _invalid(USAGE)
    if tool == "write":
        return ParsedAction("write", args, text=rest) if _PATH.fullmatch(args) else _invalid(USAGE)
    if tool in ("edit", "insert", "delete"):
        return _lines(tool, args, rest)
    return _invalid(UNKNOWN)


def _invalid(error: str) -> ParsedAction:
    return ParsedAction("invalid", error=error)


def _git(args: str) -> ParsedAction:
    verb, _, rev = args.partition(" ")
    if verb != "show":
        return _invalid(UNKNOWN)
    m = _REVISION.fullmatch(rev)
    return ParsedAction("git show", back=int(m[1] or 0)) if m else _invalid(NO_REVISION)


def _lines(tool: str, args: str, rest: str) -> ParsedAction:
    path, _, more = args.partition(" ")
    where, blank, text = more.partition(" ")
    m = _LINES.fullmatch(where)
    if not _PATH.fullmatch(path) or not m or (tool == "delete") == bool(blank) or (tool == "insert" and m[2]):
        return _invalid(USAGE)
    first, last = int(m[1]), int(m[2] or m[1])
    name: ToolName = "edit" if tool == "edit" else "insert" if tool == "insert" else "delete"
    return ParsedAction(name, path, first, last, text + ("\n" + rest if rest and blank else ""))


def names(files: Mapping[str, str]) -> str:
    """`ls`."""
    return " ".join(sorted(files))


def numbered(text: str) -> str:
    """`cat`."""
    return "\n".join(f"{i} {line}" if line else str(i) for i, line in enumerate(text.splitlines(), 1)) or "empty"


def matches(files: Mapping[str, str], word: str) -> str:
    """`grep`: files by name, `path:line: text`."""
    found = (
        f"{path}:{i}: {line.strip()}"
        for path in sorted(files)
        for i, line in enumerate(files[path].splitlines(), 1)
        if word in line
    )
    return "\n".join(x for x, _ in zip(found, range(GREP_LINES), strict=False)) or NO_MATCH


def changed(
    files: Mapping[str, str], action: ParsedAction, max_files: int = MAX_FILES, max_file: int = MAX_FILE
) -> str | Observation:
    """New text of `action.path` after edit, insert, delete or write; an Observation where that cannot be done.

    Whether the path may be written at all is the caller's question (`PROTECTED`).
    """
    old = files.get(action.path)
    if action.tool == "write":
        folder = any(p.startswith(action.path + "/") or action.path.startswith(p + "/") for p in files)
        if old is None and (folder or len(files) >= max_files):
            return Observation(TOO_LARGE, ok=False)
        new = action.text
    elif old is None:
        return Observation(NO_FILE, ok=False)
    else:
        lines = old.splitlines()
        end = len(lines) + (action.tool == "insert")
        if not 1 <= action.first <= action.last <= end:
            return Observation(NO_LINE, ok=False)
        at = action.first - 1
        like = lines[min(at, len(lines) - 1)] if lines else ""
        put = [] if action.tool == "delete" else _indented(action.text.split("\n"), like)
        new = "\n".join(lines[:at] + put + lines[at if action.tool == "insert" else action.last :])
    new = new.rstrip("\n") + "\n" if new.strip("\n") else ""
    return Observation(TOO_LARGE, ok=False) if len(new) > max_file else new


def _indented(lines: Sequence[str], like: str) -> list[str]:
    if any(ln[:1].isspace() for ln in lines if ln.strip()):
        return list(lines)
    blanks = like[: len(like) - len(like.lstrip())]
    return [blanks + ln if ln else ln for ln in lines]


def changed_tests(repo: Repo, base: Mapping[str, str], tree: Mapping[str, str]) -> tuple[str, ...]:
    """Visible test files of the base whose text differs in the tree, sorted."""
    return tuple(sorted(p for p in repo.visible if p in base and tree.get(p) != base[p]))


def log(commits: Sequence[Commit]) -> str:
    """`git log` of commits given oldest first: newest first, `HEAD~k message`."""
    return "\n".join(f"HEAD~{k} {c.message}" for k, c in enumerate(reversed(commits))) or "no commits"


def show(commits: Sequence[Commit], back: int) -> Observation:
    """`git show HEAD~back` of commits given oldest first: message, then per file its name and changed lines."""
    if back >= len(commits):
        return Observation(NO_REVISION, ok=False)
    c = commits[len(commits) - 1 - back]
    before = {p: t for p, t in c.before.items() if t is not None}
    after = {p: t for p, t in c.after.items() if t is not None}
    lines = bare_diff(before, after).split("\n")
    return clipped("\n".join([c.message, *lines[:SHOW_LINES], *(["..."] if len(lines) > SHOW_LINES else [])]))


def status(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """`git status`: one `M path`, `A path` or `D path` per changed file, by name."""
    rows = []
    for path in sorted({*before, *after}):
        if path not in before:
            rows.append(f"A {path}")
        elif path not in after:
            rows.append(f"D {path}")
        elif before[path] != after[path]:
            rows.append(f"M {path}")
    return "\n".join(rows) or NO_CHANGES


def bare_diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """`git diff`: per changed file its name, then hunks without context (`@@ -3 +3 @@`, `-old`, `+new`)."""
    rows = []
    for path in sorted({*before, *after}):
        a, b = git_lines(before.get(path, "")), git_lines(after.get(path, ""))
        if a != b:
            rows += [path, *list(difflib.unified_diff(a, b, n=0, lineterm=""))[2:]]
    return "\n".join(rows) or NO_CHANGES


def tests_text(results: Sequence[TestResult]) -> str:
    """`test`: counts, then up to three failures as `name Error`."""
    if not results:
        return NO_TESTS
    bad = [r for r in results if r.error]
    rows = [f"{len(results) - len(bad)} passed" + (f" {len(bad)} failed" if bad else "")]
    return "\n".join(rows + [f"{r.name} {r.error}" for r in bad[:FAILED_LINES]])


def test_names(text: str) -> list[str]:
    """Test functions that a test file's text defines, in order, each once."""
    return list(dict.fromkeys(_DEF.findall(text)))


test_names.__test__ = False  # type: ignore[attr-defined]
tests_text.__test__ = False  # type: ignore[attr-defined]


def commits_shown(repo: Repo, knobs: Mapping[str, Any]) -> tuple[Commit, ...]:
    """What `git log` and `git show` reach under the knobs, oldest first; without test files where these are hidden."""
    commits = (*repo.history, *repo.future) if knobs.get("history") == "full" else repo.history
    if knobs.get("visible_tests") != "hidden":
        return commits
    return tuple(Commit(c.message, _without(c.before, repo.visible), _without(c.after, repo.visible)) for c in commits)


def _without(texts: Mapping[str, str | None], paths: Mapping[str, str]) -> dict[str, str | None]:
    return {p: t for p, t in texts.items() if p not in paths}


def check_reachable(repo: Repo, knobs: Mapping[str, Any], commits: Sequence[Commit]) -> None:
    """TaskSetError where the commits a world exposes do not end at the base although the history is scrubbed."""
    if knobs.get("history") == "full":
        return
    tree: dict[str, str] = {}
    for c in commits:
        for path, text in c.after.items():
            if text is None:
                tree.pop(path, None)
            else:
                tree[path] = text
    base = {**repo.files, **({} if knobs.get("visible_tests") == "hidden" else repo.visible)}
    if tree != base:
        paths = sorted(p for p in {*tree, *base} if tree.get(p) != base.get(p))
        raise TaskSetError(
            f"repository {repo.id}: its scrubbed history does not end at the base ({', '.join(paths)} differ); "
            "something newer than the base is reachable: make the commits again up to the base only"
        )


def clipped(text: str, ok: bool = True) -> Observation:
    """An observation of at most MAX_TEXT characters."""
    return Observation(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 4] + "\n...", ok=ok)


def read_only_observation(
    action: ParsedAction, files: Mapping[str, str], base: Mapping[str, str], commits: Sequence[Commit]
) -> Observation:
    """What every action prints that only looks: all but edits, `test` and `submit`.

    files: the working tree; base: the tree at the start; commits: `commits_shown`.
    """
    if action.tool == "ls":
        return clipped(names(files))
    if action.tool == "grep":
        return clipped(matches(files, action.text))
    if action.tool == "git log":
        return clipped(log(commits))
    if action.tool == "git show":
        return show(commits, action.back)
    if action.tool == "git diff":
        return clipped(bare_diff(base, files))
    if action.tool == "git status":
        return clipped(status(base, files))
    if action.tool == "cat":
        found = files.get(action.path)
        return Observation(NO_FILE, ok=False) if found is None else clipped(numbered(found))
    return Observation(action.error or UNKNOWN, ok=False)
