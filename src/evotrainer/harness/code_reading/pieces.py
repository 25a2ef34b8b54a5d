"""The part of a text that parses as Python: its longest beginning, or every statement but the broken ones."""

from __future__ import annotations

import ast
import re

from evotrainer.harness.code_reading.trees import walk

MAX_BROKEN = 12
"""Broken statements after which the rest is left."""
_GOES_ON = re.compile(r"[)\]}]|(?:elif|else|except|finally|case)\b|#|$")
_DECORATOR = re.compile(r"@")


def pieces(text: str, all_of_it: bool) -> tuple[ast.Module, str]:
    """(statements that parse, in one module with their lines in `text`; the text that does not).

    all_of_it: behind a broken statement, too; else up to the first. Never raises: what the parser throws at a piece
    makes it a broken one.
    """
    rows = text.split("\n")
    starts = [i for i, row in enumerate(rows) if row and not row[0].isspace() and not _GOES_ON.match(row)]
    # a decorator begins the statement that its function ends
    starts = [i for n, i in enumerate(starts) if not (n and _DECORATOR.match(rows[starts[n - 1]]))]
    body: list[ast.stmt] = []
    left: list[str] = []
    at = 0
    for _ in range(MAX_BROKEN):
        found, bad = _longest(rows, at, starts)
        body += found
        if bad >= len(rows):
            break
        end = next((i for i in starts if i > bad), len(rows))
        if not all_of_it:
            end = len(rows)
        left.append("\n".join(rows[bad:end]))
        at = end
        if at >= len(rows):
            break
    else:
        left.append("\n".join(rows[at:]))
    return ast.Module(body=body, type_ignores=[]), "\n".join(left)


def _longest(rows: list[str], at: int, starts: list[int]) -> tuple[list[ast.stmt], int]:
    """(the statements from row `at` on that parse together, the row behind them)."""
    end = len(rows)
    for _ in range(8):
        try:
            tree = ast.parse("\n".join(rows[at:end]))
        except SyntaxError as e:
            # the statement in which the error stands goes, with all behind it; an unclosed bracket is reported where it
            # opens
            wrong = at + (e.lineno or 1) - 1
            before = [i for i in starts if at <= i <= min(wrong, end - 1)]
            end = before[-1] if before and before[-1] < end else (before[-2] if len(before) > 1 else at)
        except (ValueError, RecursionError, MemoryError, OverflowError):
            return [], at
        else:
            for node in walk(tree):
                if hasattr(node, "lineno"):
                    node.lineno += at
            return tree.body, end
        if end <= at:
            break
    return [], at
