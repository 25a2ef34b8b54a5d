"""What `run` and `resume` share: the live view, a human's answers at gates, and the end of a run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evotrainer.cli._common import console, open_page
from evotrainer.errors import AbortedError, SeatEmptyError
from evotrainer.records.output import print


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
    """A human gate in the terminal; where there is none, the run stops with the remedy."""
    from evotrainer.run.context import no_human

    if not sys.stdin.isatty():
        return no_human

    def ask_human(where: str, text: str) -> tuple[str, str]:
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
