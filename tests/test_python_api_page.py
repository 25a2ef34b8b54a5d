"""docs/python-api.md: every example runs on a finished run and prints what the page says."""

from __future__ import annotations

import doctest
from pathlib import Path

from evotrainer import api

PAGE = Path(__file__).resolve().parents[1] / "docs" / "python-api.md"


def test_every_example_of_the_page_prints_what_it_says(finished: api.Run) -> None:
    text = PAGE.read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(text, {"folder": finished.folder}, PAGE.name, str(PAGE), 0)
    said: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert results.attempted > 15
    assert not results.failed, "".join(said)
