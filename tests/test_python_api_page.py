"""docs/python-api.md: every example runs on a finished run and prints what the page says."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
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


def test_the_page_names_what_the_module_exports_with_its_arguments() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert set(api.__all__) <= set(dir(api))
    for name in api.__all__:
        if name != "Run":
            said = re.search(rf"^\| `({name}\(.*?\))(?: -> [^`]*)?` \|", text, re.M)
            assert said, name
            told = ast.parse(f"def {said[1]}: ...").body[0].args  # type: ignore[attr-defined]
            real = inspect.signature(getattr(api, name)).parameters
            assert [x.arg for x in (*told.args, *told.kwonlyargs)] == list(real), name
    for name in (n for n in vars(api.Run) if not n.startswith("_")):
        assert re.search(rf"`{name}[`(]", text), f"Run.{name}"
    assert list(inspect.signature(api.Run.rollouts).parameters) == ["self", "split", "branch", "trial", "step"]
