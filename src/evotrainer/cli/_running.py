"""What `run` and `resume` share: the live view, a human's answers at gates, and the end of a run."""

from __future__ import annotations

import contextlib
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evotrainer.cli._common import console, open_page
from evotrainer.errors import AbortedError, SeatEmptyError
from evotrainer.records.output import print

ELSEWHERE_S = 1.0
"""Seconds between two looks whether somebody answered a gate from another shell."""


@contextmanager
def live_view(folder: Path, plain: bool) -> Iterator[Any]:
    """The view of a run in progress; Ctrl-C, SIGTERM and SIGHUP end its trials and print how to resume it, once it has
    begun."""
    from evotrainer.views.terminal import LiveView

    try:
        with LiveView(folder, console(), plain=plain) as view:
            yield view
    except KeyboardInterrupt as stop:
        if not (folder / "ledger.db").exists():  # stopped in the checks before: nothing was begun
            raise
        by = f"stopped by {stop.name}" if hasattr(stop, "name") else "interrupted"
        e = AbortedError(f"{by}; nothing is lost: evotrainer resume {folder}")
        e.exit_code = getattr(stop, "exit_code", 130)
        raise e from None


def ask(view: Any) -> Any:
    """A human gate in the terminal; None where there is none: the run then waits for `evotrainer answer`."""
    if not sys.stdin.isatty():
        return None

    def ask_human(asked: Any, elsewhere: Callable[[], bool]) -> tuple[str, str] | None:
        with view.paused():
            print(f"\n--- {asked.where}: your decision ---\n{asked.text or '(nothing to show)'}")
            while True:
                print("APPROVE (a) / REVISE: feedback (r: ...) / ABORT (x) > ", end="", flush=True)
                while not select.select([sys.stdin], [], [], ELSEWHERE_S)[0]:
                    if elsewhere():
                        print("(answered elsewhere)")
                        return None
                line = sys.stdin.readline()
                if not line:
                    raise AbortedError(f"no answer at the {asked.where} gate; `evotrainer resume` asks again")
                parsed = parse_answer(line)
                if parsed is not None:
                    return parsed
                print("please answer a, x, or r: followed by what should change")

    return ask_human


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


def finish(folder: Path, open_report: bool) -> None:
    """Print the report's path, the certification and the next commands; SeatEmptyError where a seat stayed empty."""
    from evotrainer.projections.seat import SeatSpend
    from evotrainer.records.ledger import Ledger
    from evotrainer.views.report import write_report
    from evotrainer.views.status import print_summary

    path = write_report(folder)
    print_summary(folder, console())
    print(f"report: {path}")
    with contextlib.closing(Ledger.open(folder / "ledger.db", readonly=True)) as ledger:
        events, digest = ledger.head
        spent = SeatSpend.of(e.body for e in ledger.events("answered"))
    print(f"head {events} {digest}")
    print(f"  note it elsewhere; `evotrainer verify {folder} --head {digest[:16]}` proves this run later")
    if open_report:
        open_page(path)
    if spent.empty:
        raise SeatEmptyError(
            f"the seat was empty throughout ({spent.cause}); the statistical agent named every training: correct "
            "run.agent_options and start again"
        )
