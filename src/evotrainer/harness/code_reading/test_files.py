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
