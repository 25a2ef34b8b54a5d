"""`run` and `resume`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.commands.common import console, open_page
from evotrainer.errors import AbortedError
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.api import Run


def run(
    task: Path, overrides: Sequence[str], out: Path | None, *, dry_run: bool, open_report: bool, plain: bool
) -> None:
    """Check first, then run, then write the report."""
    import time

    from evotrainer import api
    from evotrainer.config.task import load_task
    from evotrainer.records.recipe import lint

    resolved = load_task(task, overrides)
    for issue in lint(resolved.recipe):
        print(f"evotrainer: {issue.level}: recipe.{issue.factor}: {issue.message}", file=sys.stderr)
    if dry_run:
        for note in api.preflight(resolved, new=True):
            print(f"evotrainer: note: {note}", file=sys.stderr)
        print(resolved.to_toml().rstrip())
        print(f"# recipe {resolved.recipe.hash}, task file {resolved.hash}: nothing was run")
        return
    folder = out or Path("runs") / f"{resolved.task.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    with _interruptible(folder), _view(folder, plain) as view:
        done = api.start(resolved, folder, view=view, ask=_ask(view))
    _finish(done, open_report)


def library_override(libraries: Sequence[str]) -> list[str]:
    """`--skills DIR ...` as an override of the task file."""
    import json

    return [f"run.skills={json.dumps(list(libraries))}"] if libraries else []


def resume(folder: Path, overrides: Sequence[str], *, open_report: bool, plain: bool) -> None:
    """Go on, then write the report."""
    from evotrainer import api

    with _interruptible(folder), _view(folder, plain) as view:
        done = api.resume(folder, overrides, view=view, ask=_ask(view))
    _finish(done, open_report)


@contextmanager
def _interruptible(folder: Path) -> Iterator[None]:
    """Ctrl-C ends the trials and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        e = AbortedError(f"interrupted; nothing is lost: evotrainer resume {folder}")
        e.exit_code = 130
        raise e from None


@contextmanager
def _view(folder: Path, plain: bool) -> Iterator[Any]:
    from evotrainer.views.terminal import LiveView

    with LiveView(folder, console(), plain=plain) as view:
        yield view


def _ask(view: Any) -> Any:
    """A human gate in the terminal; where there is none, the run stops with the remedy."""
    from evotrainer.run.context import no_human

    if not sys.stdin.isatty():
        return no_human

    def ask(where: str, text: str) -> tuple[str, str]:
        with view.paused():
            print(f"\n--- {where}: your decision ---\n{text or '(nothing to show)'}")
            while True:
                try:
                    answer = input("APPROVE (a) / REVISE: feedback (r: ...) / ABORT (x) > ").strip()
                except EOFError:
                    raise AbortedError(f"no answer at the {where} gate; `evotrainer resume` asks again") from None
                parsed = parse_answer(answer)
                if parsed is not None:
                    return parsed
                print("please answer a, x, or r: followed by what should change")

    return ask


def parse_answer(answer: str) -> tuple[str, str] | None:
    """`a`/`approve`, `x`/`abort`, `r: feedback`/`revise: feedback` -> (ANSWER, feedback); None where unclear."""
    word, _, rest = answer.strip().partition(":")
    key, feedback = word.strip().lower(), rest.strip()
    if key in ("a", "approve", "y", "yes"):
        return "APPROVE", feedback
    if key in ("x", "abort"):
        return "ABORT", feedback
    if key in ("r", "revise") and feedback:
        return "REVISE", feedback
    return None


def _finish(done: Run, open_report: bool) -> None:
    """Report, certification and where to go from here."""
    from evotrainer.views.terminal import print_summary

    path = done.report()
    print_summary(done.folder, console())
    print(f"report: {path}")
    with done.ledger() as ledger:
        events, digest = ledger.head
    print(
        f"head {events} {digest}\n  note it elsewhere; `evotrainer verify {done.folder} --head {digest[:16]}` proves this run later"
    )
    if open_report:
        open_page(path)
