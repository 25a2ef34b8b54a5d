"""docs/exit-codes.md lists every error class with the code that it ends a command with."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from evotrainer import errors
from evotrainer.cli._common import FOUND

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "exit-codes.md").read_text(encoding="utf-8")


def test_every_error_class_stands_in_the_row_of_its_code() -> None:
    rows = {int(m[1]): m[0] for m in re.finditer(r"^\| (\d+) \|.*$", PAGE, re.M)}
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.EvoTrainerError)]
    assert len(classes) > 8
    for c in classes:
        assert f"`{c.__name__}`" in rows[c.exit_code], f"{c.__name__} ends a command with {c.exit_code}"
    assert "--fail-on" in rows[FOUND]
