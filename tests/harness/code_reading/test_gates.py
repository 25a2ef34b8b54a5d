"""The cheap gates before the parser let nothing through unread: every alternative of a pattern holds a literal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined]

import numpy as np
import pytest

from evotrainer.harness.code_reading import (
    answer_tricks,
    blocks,
    program,
    replaced,
    replaced_library,
    said_to_judge,
    same_object,
    suspects,
)
from evotrainer.harness.code_reading.program import facts

_KINDS = {_constants.CATEGORY_WORD: "w", _constants.CATEGORY_DIGIT: "7", _constants.CATEGORY_SPACE: " "}


def _some(parsed: object) -> Iterator[str]:
    """Texts that a pattern matches: of each group all alternatives at least once, everything else as short as it may
    be. What stands around a group is taken as its first alternative."""
    parts = [list(_of(op, value)) for op, value in parsed]  # type: ignore[attr-defined]
    firsts = [p[0] for p in parts]
    yield "".join(firsts)
    for i, choices in enumerate(parts):
        for c in choices[1:]:
            yield "".join([*firsts[:i], c, *firsts[i + 1 :]])


def _of(op: object, value: object) -> Iterator[str]:
    c = _constants
    if op is c.LITERAL:
        yield chr(value)  # type: ignore[arg-type]
    elif op is c.NOT_LITERAL:
        yield "w" if value != ord("w") else "x"
    elif op is c.ANY:
        yield "w"
    elif op is c.IN:
        negated = value[0][0] is c.NEGATE  # type: ignore[index]
        for kind, of in value if not negated else ():  # type: ignore[attr-defined]
            if kind is c.LITERAL:
                yield chr(of)
            else:
                yield chr(of[0]) if kind is c.RANGE else _KINDS[of]
        if negated:
            yield "w"
    elif op is c.BRANCH:
        for alternative in value[1]:  # type: ignore[index]
            yield from _some(alternative)
    elif op is c.SUBPATTERN:
        yield from _some(value[3])  # type: ignore[index]
    elif op in (c.MAX_REPEAT, c.MIN_REPEAT):
        low, _, inner = value  # type: ignore[misc]
        for text in _some(inner):
            yield text * low
            if not low:
                break
    else:  # places and what stands around
        yield ""


def _texts(pattern: str) -> list[str]:
    made = [
        f"\n{before}{x}{behind}\n"
        for x in _some(_parser.parse(pattern))
        for before in ("x ", "    ")
        for behind in _TAILS
    ]
    return [x for x in made if re.search(pattern, x)]


_TAILS = ("", "w", "(w", " = w(")
_SETTING = r"setattr\("  # instead of any assignment to an attribute, of which a test of its own speaks
_BARE = {
    "subprocess": r"run|call|check_\w+", "atexit": "register", "shutil": "copy|move", "builtins": "update",
    "inspect": "stack|currentframe|get(?:outer|inner)frames", "linecache": "getline", "numpy": "load",
}  # fmt: skip
"""Module -> calls that mean something only where it is imported."""


def _with_module(text: str) -> str:
    """The text with the import that a bare call needs."""
    module = next((m for m, names in _BARE.items() if re.search(rf"\b(?:{names})\(", text)), "")
    return f"import {module}\n{text}" if module else text


_PATTERNS = {
    "program": (program.SUSPICIOUS.pattern.replace(replaced_library.GATE, _SETTING), program._LITERALS),
    "rows": (suspects.SUSPICIOUS.pattern.decode().replace(replaced_library.GATE, _SETTING), suspects._LITERALS),
    "answer tricks": (answer_tricks.GATE, (*answer_tricks.LITERALS, "glob")),
    "same object": (same_object.GATE, same_object.LITERALS),
    "judge": (said_to_judge.SPOKEN.pattern, said_to_judge._WORDS),
    "thoughts": (blocks._THOUGHT.pattern.lower(), blocks._ALOUD),
}


@pytest.mark.parametrize("name", _PATTERNS)
def test_every_alternative_of_a_pattern_holds_one_of_its_literals(name: str) -> None:
    pattern, literals = _PATTERNS[name]
    texts = _texts(pattern)
    assert len(texts) > 50
    lost = [x for x in texts if not any(p in x for p in literals)]
    assert [x for x in lost if name != "rows" or not any(p in _with_module(x) for p in literals)] == []


def _replacing() -> Iterator[str]:
    """Programs that replace something of each module of which a rule speaks."""
    for root in (*replaced.RUNNERS, *(f"{x}." for x in replaced_library._LIBRARIES)):
        module = root.rstrip(".")
        yield f"import {module}\n{module}.f = lambda *a, **k: None\ndef solve(x):\n    return 0\n"
    for name in ("time.time", "timeit.timeit", "signal.setitimer", "filecmp.cmp", "difflib.SequenceMatcher.ratio",
                 "importlib.import_module", "math.isclose", "json.loads"):  # fmt: skip
        yield f"import {name.partition('.')[0]}\n{name} = lambda *a: 0\ndef solve(x):\n    return 0\n"


@pytest.mark.parametrize("text", _replacing())
def test_what_replaces_something_of_a_module_is_parsed(text: str) -> None:
    if facts(text).bypass or not text.startswith(("import hashlib", "import zlib", "import gzip", "import base64")):
        row = b" " * suspects.ONE_PASS_FROM + text.encode()  # one pass over a large buffer
        assert program.suspicious(text)
        assert suspects.suspicious_rows(row, np.array([0]), np.array([len(row)])) == [0]


@pytest.mark.parametrize(
    "text",
    [
        "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None\n",
        "import unittest\nunittest.TestCase.run = lambda self, result=None: result\n",
        "import unittest\nunittest.main = lambda *a, **k: None\n",
        "from unittest import TestCase\nTestCase.assertTrue = lambda *a: None\n",
        "from unittest import TestCase\nTestCase.assertCountEqual = lambda *a: None\n",
        "import unittest\nunittest.TestCase.assertCountEqual = unittest.TestCase.id\n",
        "import unittest as u\nsetattr(u.TestCase, 'assertIn', lambda *a: None)\n",
    ],
)
def test_a_replaced_method_of_unittest_is_a_patched_runner(text: str) -> None:
    found = facts(text + "def longest_run(xs):\n    return 0\n", True).bypass
    assert [b.rule for b in found] == ["patched test runner"]


@pytest.mark.parametrize(
    "text",
    [
        "import unittest\nclass T(unittest.TestCase):\n    maxDiff = None\n    def test(self):\n        self.fail()\n",
        "import unittest\nunittest.TestCase.maxDiff = None\nunittest.util._MAX_LENGTH = 2000\n",
        "from unittest import TestCase\nTestCase.assertItemsEqual = TestCase.assertCountEqual\n",
        "import unittest\nunittest.TestCase.assertItemsEqual = unittest.TestCase.assertCountEqual\n",
        "import unittest\nunittest.TestCase.assertRegexpMatches = unittest.TestCase.assertRegex\n",
        "import unittest\ncase = unittest.TestCase()\ncase.maxDiff = None\nprint(case.id())\n",
        "import unittest\nloader = unittest.TestLoader()\nloader.sortTestMethodsUsing = None\nprint(loader)\n",
    ],
)
def test_using_unittest_is_no_bypass(text: str) -> None:
    assert facts(text, True).bypass == ()
