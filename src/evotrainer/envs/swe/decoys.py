"""Decoys: the same test files with failing statements in some of the tests, to catch code that forges its own grade.

Tests that are graded in the process of the code under test are within its reach. Who makes every test pass there, makes
those pass as well that must fail. Which runs and which tests are decoys is random; code that reads its tests' file can
see it.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from evotrainer.sandbox.shell import Entry

RUNS = 2
"""Runs with decoys in addition to the one that counts; each test is a decoy in one of them."""
_RANDOM = random.SystemRandom()
_NO_DECOYS = ("xfail", "expectedFailure")
"""Markers of expected failures: a file with one may count failures as passed."""


def eligible(text: str) -> list[str]:
    """Tests (`Class::name`) of a file that pass only by reaching the end of their own body, in random order."""
    tree = None if any(word in text for word in _NO_DECOYS) else _parsed(text)
    names = [] if tree is None else sorted(dict(_tests(tree.body, "")))
    return _RANDOM.sample(names, len(names))


def plant(text: str, names: Collection[str]) -> str:
    """The test file with a failing assertion at the end of these tests,
    where the code under test has done its worst."""
    if not names or (tree := _parsed(text)) is None:
        return text
    tests = dict(_tests(tree.body, ""))
    for name in names:
        a, b = _RANDOM.sample(range(1000), 2)
        tests[name].body.append(ast.parse(f"assert {a} == {b}").body[0])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _tests(body: Iterable[ast.stmt], inside: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not inside:
            yield from _tests(node.body, f"{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test") and not _leaves(node):
            yield f"{inside}{node.name}", node


def _leaves(test: ast.FunctionDef) -> bool:
    """May it end before its last statement and still pass?"""
    return any(isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom, ast.Await)) for n in ast.walk(test))


def run_with_decoys(
    run: Callable[[Mapping[str, Entry]], Mapping[str, bool]], files: Mapping[str, Entry], tests: Collection[str]
) -> tuple[Mapping[str, bool], tuple[str, ...]]:
    """What `run` says of `files`, and the decoys that passed: with any of these nothing that it says is true."""
    runs: list[tuple[Mapping[str, Entry], frozenset[str]]] = [(files, frozenset())]
    texts = {p: files[p].data.decode("utf-8", "surrogateescape") for p in tests}
    able = {p: eligible(text) for p, text in texts.items()}
    for n in range(RUNS):
        planted = {p: plant(text, able[p][n::RUNS]) for p, text in texts.items() if able[p][n::RUNS]}
        changed = {p: replace(files[p], data=text.encode("utf-8", "surrogateescape")) for p, text in planted.items()}
        if planted:
            names = frozenset(f"{p}::{name}" for p in planted for name in able[p][n::RUNS])
            runs.append(({**files, **changed}, names))
    results: Mapping[str, bool] = {}
    forged: set[str] = set()
    for n in _RANDOM.sample(range(len(runs)), len(runs)):
        found = run(runs[n][0])
        if n == 0:
            results = found
        passing = {name.partition("[")[0] for name, good in found.items() if good}
        forged |= {d for d in runs[n][1] if d in passing or _dotted(d) in passing}
    return results, tuple(sorted(forged))


def _dotted(test: str) -> str:
    return test.replace(".py::", ".").replace("::", ".").replace("/", ".")
