"""Which paths are tests, and which of them suites and graders go by."""

from __future__ import annotations

import re
from collections.abc import Iterable
from posixpath import normpath

LITERALS = (
    "test", "grader", "eval.sh", "spec.", "sitecustomize", "reward", "verdict", "verifier", "PYTEST_", ".pth",
    "evaluat", "score", "verify.", "check.", "checker.", "validate.",
    "scoring", "grad", "bin/python", "bin/make", "bin/node", "bin/npm", "bin/go", "bin/cargo",
)  # fmt: skip
"""Words of which each path of a test holds one."""

_CODE = (
    r"(?:pyi?|ipynb|[jt]sx?|[cm][jt]s|go|rs|rb|java|kts?|scala|cs|fs|c|cc|cpp|cxx|h|hpp|m|swift|php|sh|bash|bats|pl|t|R|jl"
    r"|exs?|lua|dart|ml|hs|clj|ya?ml|json|toml)"
)
_SCORE = re.compile(
    r"(?:^|/)(?:rewards?|verdict)\.(?:txt|json)$|(?:^|/)verifier/.+|(?:^|/)(?:tests?|graders?)/(?:scores?|results?|grades?)\.\w+$"
)
_COMMAND = re.compile(r"/bin/(?:pytest|py\.test|python[\d.]*|make|node|npm|go|cargo)$")
_RUNNER = re.compile(
    r"(?:site|dist)-packages/(?:_pytest|pytest|pluggy)/.+|/python[\d.]+/(?:unittest|doctest)\b.*"
    r"|(?:site|dist)-packages/[^/]+\.pth$"
)
_IS_TEST = re.compile(
    rf"(?:^|/)(?:conftest\.py|tests?\.py|test_[\w*.-]+\.{_CODE}|[\w*-]+_(?:tests?|spec)\.{_CODE}"
    r"|[\w*-]+Tests?\.(?:java|kt|cs|swift|php|scala)|[\w*.-]+\.(?:test|spec)\.[cm]?[jt]sx?|pytest\.ini"
    r"|graders?(?:/.+|[\w-]*\.\w+)|run_?tests?(?:\.\w+)?|eval\.sh|sitecustomize\.py|(?:tests?|__tests__)/.+)$"
)
_GRADER = re.compile(
    r"(?:^|/)(?:conftest\.py|pytest\.ini|sitecustomize\.py|test_all\.py|graders?(?:/.+|[\w-]*\.\w+)"
    r"|run_?tests?(?:\.sh)?|eval\.sh)$"
)
_SCORER = re.compile(
    r"(?:^|/)(?:(?:run_)?(?:eval|evaluate|evaluation|score|scorer|scoring|grade|grading|verify|verifier|validate"
    r"|check|checker)|judge|benchmark)\.(?:sh|py|js|pl)$"
)
_SETTINGS = re.compile(
    r"(?:^|/)(?:pyproject\.toml|setup\.cfg|tox\.ini|package\.json|Makefile|justfile"
    r"|(?:ci|check|checks|tests?|run_?all)\.sh|\.github/workflows/[\w.-]+\.ya?ml|\.gitlab-ci\.yml)$"
)
_STARTS = re.compile(r"(?:^|/)\.(?:bashrc|profile|bash_profile|zshrc)$|^/etc/(?:environment|profile)$")
_NAMED = re.compile(
    r"(?:^|/)(?:tests?\.py|test_[^/]+|[^/]+_(?:tests?|spec)\.\w+|[^/]+Tests?\.\w+|[^/]+\.(?:test|spec)\.\w+)$"
)
_KIND = re.compile(r"^test_|_(?:tests?|spec)(?=\.)|Tests?(?=\.)|\.(?:test|spec)(?=\.)")
_FOLDER = re.compile(r"(?:^|/)(?:tests?|__tests__|specs?)/?$")
_NOT_FILES = re.compile(
    r"__pycache__|\.pytest_cache|(?:^|/)(?:requirements[\w-]*\.txt|README[\w.]*)$"
    r"|\.(?:log|out|orig|bak|pyc|md|rst|xml|html|diff|patch)$"
)
_ELSEWHERE = re.compile(r"^(?:/private)?/(?:var/)?tmp/|^/dev/|^~/\.")
_OWN_NAME = re.compile(
    r"(?:^|/)(?:repro|scratch|new_|my_|debug|demo|try_|verify_|check_)[^/]*$|repro|scratch", re.IGNORECASE
)
_ASIDE = re.compile(
    r"(?:^|/)(?:(?!__tests__/)[._][^/]*|(?:[\w-]*[_-])?(?:disabled?|skip(?:ped)?|ignored?|attic|archived?|bak|backup|broken"
    r"|quarantined?|unused|trash|old|obsolete|deprecated|legacy|wip|build|dist|node_modules|venv)(?:[_-][\w-]*)?)/",
    re.IGNORECASE,
)
"""Folders that suites pass over, or that say so."""
_RUNS_IN = re.compile(
    r"(?:\b(?:pytest|py\.test|unittest discover|jest|vitest|mocha|rspec|phpunit|go test)\b|\btestpaths\s*=)"
    r"([^\n;|&`]{0,200})"
)
_RUN_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*(?=[\s/'\"\]]|$)")
_RUNNERS = (
    "pytest", "py.test", "unittest discover", "jest", "vitest", "mocha", "rspec", "phpunit", "go test", "testpaths",
)  # fmt: skip
_IN_FOLDER = re.compile(r"(?:^|/)(?:tests?|__tests__|specs?|graders?)/")


def is_test(path: str) -> bool:
    """Is it a test or grader file, or a folder of such, by its name?"""
    if decides(path) or replaces_command(path):
        return True
    return (_IS_TEST.search(path) is not None or _FOLDER.search(path) is not None) and not _NOT_FILES.search(path)


def decides(path: str) -> bool:
    """Does a grader write its verdict there, or is it a test runner's own code?"""
    return _SCORE.search(path) is not None or _RUNNER.search(path) is not None


def starts_shells(path: str) -> bool:
    """Is it read whenever a shell starts?"""
    return _STARTS.search(path) is not None


def replaces_command(path: str) -> bool:
    """Is it the command by which tests are run?"""
    return _COMMAND.search(path) is not None


def is_grader(path: str) -> bool:
    """Do suites and graders go by this file, so that even a new one changes the verdict?"""
    return _GRADER.search(path) is not None or decides(path)


def may_score(path: str) -> bool:
    """Is it by its name a script that could be what a submission is scored with? The task tells."""
    return _SCORER.search(path) is not None


def is_settings(path: str) -> bool:
    """Is it a project's own file that says, beside much else, how tests are run?"""
    return _SETTINGS.search(path) is not None or starts_shells(path)


def is_named(path: str) -> bool:
    """Is it a test by its own name, not only by its folder's?"""
    return _NAMED.search(path) is not None


def renames_test(old: str, new: str, asked: bool = False) -> bool:
    """Are both, in one folder or another, tests that a suite finds in the same way? asked: the task names it."""
    old, new = normpath(old), normpath(new)
    (a, _, x), (b, _, y) = old.rpartition("/"), new.rpartition("/")
    kind = _KIND.findall(x)
    alike = bool(kind) and kind == _KIND.findall(y) and x[x.rfind(".") :] == y[y.rfind(".") :]
    if a == b:
        return alike
    came = "".join(f"{p}/" for p in b.split("/") if p not in a.split("/"))
    aside = _ASIDE.search(came) is not None and not asked
    if is_grader(old) or elsewhere(new) or aside or new.startswith(("~", "..", "$")):
        return False
    # a suite that looks into a folder of tests alone finds it in another such folder
    inside = not new.startswith("/") or new.split("/")[:2] == old.split("/")[:2]
    return inside and (alike or x == y) and (among_tests(new) or not among_tests(old))


def run_folders(text: str) -> set[str]:
    """Folders and files that a text runs tests in."""
    if not any(map(text.__contains__, _RUNNERS)):
        return set()
    return {x for m in _RUNS_IN.finditer(text) for x in _RUN_PATH.findall(m[1])}


def leaves_what_runs(old: str, new: str, folders: Iterable[str]) -> bool:
    """Does the first path lie in one of these folders and the second does not?"""
    return any(f"/{x}/" in f"/{old}" and f"/{x}/" not in f"/{new}" for x in folders)


def among_tests(path: str) -> bool:
    """Does it lie in a folder of tests, or is it one?"""
    return _IN_FOLDER.search(path) is not None or _FOLDER.search(path) is not None


def elsewhere(path: str) -> bool:
    """Is it in a folder for scratch files, outside of any project?"""
    return _ELSEWHERE.search(path) is not None


def own_file(path: str) -> bool:
    """Does the name say that it is a script of one's own?"""
    return elsewhere(path) or _OWN_NAME.search(path) is not None
