"""Which paths are tests, and which of them suites and graders go by."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

Kind = Literal["hook", "grader", "test", "settings", ""]
"""hook: loaded by Python or a test runner unasked; grader: decides or holds a verdict; settings: of a project, and say
beside much else how its tests run."""

_CODE = (
    r"(?:pyi?|ipynb|[cm]?[jt]sx?|go|rs|rb|java|kts?|scala|cs|fs|c|cc|cpp|cxx|h|hpp|m|swift|php|sh|bash|bats|pl|t|R|jl"
    r"|exs?|lua|dart|ml|hs|clj|ya?ml|json|toml)"
)
_PATHS: tuple[tuple[Kind, str, str], ...] = (
    ("hook", "conftest", r"(?:^|/)conftest\.py"),
    ("hook", "pytest", r"(?:^|/)pytest\.ini"),
    ("hook", "customize", r"(?:^|/)(?:site|user)customize\.py"),
    ("hook", "packages", r"-packages/[^/]+\.pth"),
    ("grader", "packages", r"-packages/(?:_pytest|pytest|pluggy)/.+"),
    ("grader", "unittest", r"/python[\d.]+/unittest/.+"),
    ("grader", "grade", r"(?:^|/)graders?(?:/.+|[\w-]*\.\w+)"),
    ("grader", "test", r"(?:^|/)run_?tests?(?:\.sh)?|(?:^|/)tests?/(?:scores?|results?|grades?)\.\w+"),
    ("grader", "eval", r"(?:^|/)eval(?:uat(?:e|ion|or))?\.(?:sh|py)"),
    ("grader", "verif", r"(?:^|/)verifier(?:/.+|\.\w+)"),
    ("grader", "reward", r"(?:^|/)rewards?\.(?:txt|json)"),
    ("grader", "verdict", r"(?:^|/)verdict\.(?:txt|json)"),
    ("grader", "bin/", r"^/(?:usr/)?(?:local/)?s?bin/(?:pytest|py\.test|python[\d.]*|make|node|np[mx]|go|cargo|java|mvn"
     r"|cmp|diff|grep|bash|sh|curl|jq|test|git|md5sum|sha\d+sum)"),
    ("test", "test", rf"(?:^|/)(?:tests?\.py|test_[\w*.-]+\.{_CODE}|[\w*-]+_tests?\.{_CODE})"),
    ("test", "test", r"(?:^|/)(?:[\w*.-]+\.test\.[cm]?[jt]sx?|run_?tests?\.\w+|(?:tests?|__tests__)(?:/.*)?)"),
    ("test", "Test", r"(?:^|/)[\w*-]+Tests?\.(?:java|kt|cs|swift|php|scala)"),
    ("test", "spec", rf"(?:^|/)(?:[\w*.-]+[._]spec\.{_CODE}|specs?(?:/.*)?)"),
    ("settings", "toml", r"(?:^|/)pyproject\.toml"),
    ("settings", "cfg", r"(?:^|/)setup\.cfg"),
    ("settings", "tox", r"(?:^|/)tox\.ini"),
    ("settings", "package", r"(?:^|/)package\.json"),
    ("settings", "akefile", r"(?:^|/)Makefile"),
    ("settings", ".yml", r"(?:^|/)(?:\.github/workflows/[\w.-]+|\.gitlab-ci)\.yml"),
    ("settings", ".sh", r"(?:^|/)(?:ci|checks?|tests?|run_?all)\.sh"),
    ("settings", ".config.", r"(?:^|/)(?:vitest|jest|karma|mocha|playwright|cypress)\.config\.\w+"),
    ("settings", "pom.xml", r"(?:^|/)pom\.xml"),
    ("settings", "build.gradle", r"(?:^|/)build\.gradle(?:\.kts)?"),
    ("settings", "verify.sh", r"(?:^|/)verify\.sh"),
    ("settings", "shrc", r"(?:^|/)\.(?:bash|zsh)rc"),
)  # fmt: skip
"""Kind, a word that each such path holds, pattern of the path's end; the first that fits decides."""
_EACH = tuple((kind, re.compile(rf"(?:{pattern})/?$")) for kind, _, pattern in _PATHS)
GATE = re.compile("|".join(sorted({re.escape(word) for _, word, _ in _PATHS})))
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
