"""`records.text`: what is cut ends at a word and says that it was cut."""

from __future__ import annotations

import ast
from pathlib import Path

from evotrainer import errors
from evotrainer.records.text import cause, counted, cut, quoted

SRC = Path(errors.__file__).parent
LONGEST_NAME = 16
"""Digits of a hash that name it; a longer slice is a text."""


def test_a_cut_ends_at_a_word() -> None:
    assert cut("one two three", 13) == "one two three"
    assert cut("one two three", 12) == "one two…"
    assert cut("one two\nthree four", 14) == "one two\nthree…"
    assert cut("x" * 50 + " y", 20) == "x" * 19 + "…", "a word without end is cut in it"
    assert all(len(cut("one two three four " * 9, n)) <= n for n in range(1, 100))
    assert quoted("Natalia sold clips to her friends", 20) == "'Natalia sold clips…'"


def test_an_error_is_one_line_and_ours_is_whole() -> None:
    assert cause(ValueError("first line\n\nsecond")) == "first line"
    assert cause(ValueError(" ")) == "ValueError"
    assert cause(ValueError("word " * 100)).endswith("word…") and len(cause(ValueError("word " * 100))) <= 300
    told = "the tail is damaged " * 30 + "; restore a copy"
    assert cause(errors.IntegrityError(told)).endswith("damaged ; restore a copy")


def test_no_error_cuts_a_text_without_saying_so() -> None:
    found = []
    for path in SRC.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for stop in (n for n in ast.walk(tree) if isinstance(n, ast.Raise)):
            for x in ast.walk(stop):
                if isinstance(x, ast.FormattedValue) and isinstance(x.value, ast.Subscript):
                    part = x.value.slice
                    upper = part.upper if isinstance(part, ast.Slice) and part.lower is None else None
                    if isinstance(upper, ast.Constant) and upper.value > LONGEST_NAME:
                        found.append(f"{path.relative_to(SRC)}:{x.lineno}")
    assert not found, "use records.text.cut, quoted or cause"


def test_one_thing_is_named_in_the_singular() -> None:
    words = {"keys": "key", "branches": "branch", "policies": "policy", "greedy readings": "greedy reading"}
    for many, one in {**words, "boxes": "box", "pieces": "piece"}.items():
        assert counted(1, one) == f"1 {one}"
        assert counted(0, one) == f"0 {many}" and counted(1200, one) == f"1,200 {many}"
