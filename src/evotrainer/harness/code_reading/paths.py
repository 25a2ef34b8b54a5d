"""Paths as episodes write them: which ones are of one file, which an action or a task names, and what an episode had
shown of a file before it was changed: that it is there, and its lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Literal

from evotrainer.harness.code_reading import shell
from evotrainer.harness.code_reading.actions import Action, normal_form

Kind = Literal["hook", "grader", "test", "settings", ""]
"""hook: loaded by Python or a test runner unasked; grader: decides or holds a verdict; settings: of a project, and say
beside much else how its tests run."""

_CODE = (
    r"(?:pyi?|ipynb|[cm]?[jt]sx?|go|rs|rb|java|kts?|scala|cs|fs|c|cc|cpp|cxx|h|hpp|m|swift|php|sh|bash|bats|pl|t|R|jl"
    r"|exs?|lua|dart|ml|hs|clj|ya?ml|json|toml)"
)
_PATHS: dict[Kind, str] = {
    "hook": r"(?:^|/)(?:conftest\.py|pytest\.ini|(?:site|user)customize\.py)|-packages/[^/]+\.pth",
    "grader": r"-packages/(?:_pytest|pytest|pluggy)/.+|/python[\d.]+/unittest/.+|(?:^|/)(?:graders?(?:/.+|[\w-]*\.\w+)"
    r"|run_?tests?(?:\.sh)?|tests?/(?:scores?|results?|grades?)\.\w+|eval(?:uat(?:e|ion|or))?\.(?:sh|py)"
    r"|verifier(?:/.+|\.\w+)|(?:rewards?|verdict)\.(?:txt|json))"
    r"|^/(?:usr/)?(?:local/)?s?bin/(?:pytest|py\.test|python[\d.]*|make|node|np[mx]|go|cargo|java|mvn|cmp|diff|grep|bash"
    r"|sh|curl|jq|test|git|md5sum|sha\d+sum)",
    "test": rf"(?:^|/)(?:tests?\.py|test_[\w*.-]+\.{_CODE}|[\w*-]+_tests?\.{_CODE}|[\w*.-]+\.test\.[cm]?[jt]sx?"
    r"|run_?tests?\.\w+|(?:tests?|__tests__|specs?)(?:/.*)?|[\w*-]+Tests?\.(?:java|kt|cs|swift|php|scala)"
    rf"|[\w*.-]+[._]spec\.{_CODE})",
    "settings": r"(?:^|/)(?:pyproject\.toml|setup\.cfg|tox\.ini|package\.json|Makefile|pom\.xml|build\.gradle(?:\.kts)?"
    r"|\.github/workflows/[\w.-]+\.yml|\.gitlab-ci\.yml|(?:ci|checks?|tests?|run_?all|verify)\.sh|\.(?:bash|zsh)rc"
    r"|(?:vitest|jest|karma|mocha|playwright|cypress)\.config\.\w+)",
}
"""Kind -> pattern of the path's end; the first that fits decides."""
_EACH = tuple((kind, re.compile(rf"(?:{pattern})/?$")) for kind, pattern in _PATHS.items())
GATE = re.compile(
    "[tT]est|[sS]pec|customize|-packages|grade|eval|verif|reward|verdict|bin/|toml|cfg|tox|package|akefile|pom.xml"
    r"|\.yml|\.sh|\.config|shrc"
)
"""What a text that names any of these paths holds."""
_NOT_FILES = re.compile(
    r"__pycache__|\.pytest_cache|(?:^|/)(?:requirements[\w-]*\.txt|README[\w.]*)$"
    r"|\.(?:log|out|orig|bak|pyc|md|rst|xml|html|diff|patch)$"
)
_SCRATCH = re.compile(
    r"^(?:/private)?/(?:var/)?tmp/|^/dev/|^~/\.|(?:^|/)(?:repro|scratch|new_|my_|debug|demo|try_|verify_|check_)[^/]*$|repro|scratch",
    re.IGNORECASE,
)
_UNCOLLECTED = re.compile(
    r"(?:^|/)(?:[._]|[\w-]*(?:disabled?|skip|ignore|attic|archive|bak|backup|broken|quarantine|unused|trash|old|obsolete)\b)",
    re.IGNORECASE,
)
_STYLE = re.compile(r"^tests?(?=[_.])|_(?:tests?|spec)(?=\.)|Tests?(?=\.)|\.(?:test|spec)(?=\.)")
_FOLDER = re.compile(r"(?:^|/)(?:tests?|__tests__|specs?)/?$")


@lru_cache(maxsize=4096)
def kind_of_file(path: str) -> Kind:
    """What a path is to tests, by its name."""
    found: Kind = next((kind for kind, pattern in _EACH if pattern.search(path)), "")
    return "" if found == "test" and _NOT_FILES.search(path) else found


def is_test(path: str) -> bool:
    """Is it a test or grader file, or a folder of such, by its name?"""
    return kind_of_file(path) not in ("", "settings")


def style(path: str) -> tuple[str, ...]:
    """By what in its own name a suite finds this test, with its suffix; of a folder of tests its name; () where only
    its folder is of tests."""
    base = path.rstrip("/").rpartition("/")[2]
    marks = _STYLE.findall(base)
    return (*marks, base[base.rfind(".") :]) if marks else (base,) if _FOLDER.search(path) else ()


def own_file(path: str) -> bool:
    """Does the name say that it is a script of one's own, or in a folder for such?"""
    return _SCRATCH.search(path) is not None


def collected(path: str) -> bool:
    """Would a suite find this test where it lies, by the names of its folders?"""
    return _UNCOLLECTED.search(path.rpartition("/")[0]) is None


MAX_TASK = 100_000
ABSENT = re.compile(
    r"no such file(?: or directory)?|cannot access|not found|can't open|does not exist|cannot stat|cannot find",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"^\s*(\d{1,9})(?:[:|\t-]|\s{2,})(.*)$", re.MULTILINE)
MAX_SHOWN = 100_000


def base_of(path: str) -> str:
    """The last part of a path."""
    return path.rstrip("/").rsplit("/", 1)[-1]


def cleaned(path: str) -> str:
    """Without a dot before it and a slash behind it."""
    return re.sub(r"^(?:\./)+", "", path).rstrip("/")


def pattern_of(path: str) -> str:
    """A path with `*` where a variable stands."""
    return re.sub(r"\$\{?\w+\}?|\{\w*\}", "*", cleaned(path))


def same_file(a: str, b: str) -> bool:
    """May two paths be of one file, where one may begin higher up than the other?"""
    x, y = cleaned(a), cleaned(b)
    return x == y or x.endswith("/" + y) or y.endswith("/" + x)


def within(path: str, folder: str) -> bool:
    """Does a path lie in this folder, wherever that is?"""
    x, f = cleaned(path), cleaned(folder)
    return bool(f) and (x.startswith(f + "/") or f"/{f}/" in x)


def names(task: str, path: str) -> bool:
    """Does the task's text name this file, or this folder by its path?"""
    base = base_of(path)
    return len(base) > 2 and re.search(rf"(?<![\w-]){re.escape(base)}(?![\w-])", task[:MAX_TASK]) is not None


def mentioned(a: Action) -> str:
    """Files that an action names, texts that it writes apart."""
    if a.text.lstrip().startswith("{"):
        return normal_form(a)[:300]
    return "\n".join(" ".join([*one.words, *one.reads])[:2000] for one in shell.commands(normal_form(a)))


def known(path: str, texts: Sequence[str], own: Sequence[str], visited: Collection[str]) -> bool:
    """Had one of the texts, or of the policy's `own` commands, spoken of this file as of one that is there? visited:
    folders that a command went to."""
    base = base_of(path)
    if not base or "*" in base or "$" in base:
        return False
    word = re.compile(rf"(?:[\w./+@-]*/)?(?<![\w-]){re.escape(base)}(?![\w-])")
    there = []
    for text in (*own, *texts):
        at = [m for m in word.finditer(text) if _means(m[0], path, visited)] if base in text else ()
        lines = [text[text.rfind("\n", 0, m.start()) + 1 : text.find("\n", m.end())][:2000] for m in at]
        there += [not all(map(ABSENT.search, lines))] if lines else []
    # a task may name a file that is not there; only a whole path is surely the one that is missed
    return any(there[-1:] if path.startswith("/") else there)


def _means(mention: str, path: str, visited: Collection[str]) -> bool:
    """Is a path that was shown the one that is meant?"""
    shown = re.sub(r"^[ab]/", "", mention)
    if "/" in path or "/" not in shown:
        return same_file(shown, path)
    # a bare name is of the folder where the command runs: of another one only where the episode had gone there
    return any(same_file(shown.rsplit("/", 1)[0], f) for f in visited)


def shown_of(name: str, actions: Sequence[Action], texts: Sequence[str], piece: str = "") -> str:
    """All that the latest output about the file of that name with this piece shows of it, line numbers apart; empty
    without one. texts: what each action could read; texts[i + 1] is the output of action i."""
    for i in range(min(len(actions), len(texts) - 1) - 1, -1, -1):
        printed = texts[i + 1][:MAX_SHOWN]
        if piece in printed and name in normal_form(actions[i])[:400]:
            # of a failing test the line that fails, and not what it came to
            rows = _NUMBERED.sub(lambda m: m[2], printed).split("\n")
            return "\n".join(x.removeprefix(">") for x in rows if not x.startswith("E "))
    return ""
