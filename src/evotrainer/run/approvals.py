"""Gates at which a human approves a step, if the task file asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from evotrainer.errors import AbortedError
from evotrainer.records import keys
from evotrainer.records.events import HumanApproval
from evotrainer.run.context import RunContext

Where = Literal["diagnosis", "intervention", "backtest", "verdict"]
ESCALATE_AFTER = 2
"""Rounds in a row without a promotion after which the run escalates, and an `escalating` run asks."""


def ask_human(
    ctx: RunContext, n: int, where: Where, text: str | Callable[[], str], attempt: int = 0, branch: str = ""
) -> bool:
    """Ask where the autonomy level says so. True: go on; False: sent back; AbortedError where the run is to stop.

    text: what is to be decided, as markdown; a function is called only where somebody is asked.
    """
    autonomy = ctx.task.run.autonomy
    if autonomy == "full" or (autonomy == "escalating" and ctx.state.failures < ESCALATE_AFTER):
        return True

    def asked() -> HumanApproval:
        answer, feedback = ctx.ask(where, text if isinstance(text, str) else text())
        if answer == "ABORT":
            raise AbortedError(f"aborted at the {where} gate of round {n}; `evotrainer resume` asks again")
        return HumanApproval(round=n, where=where, answer=answer, feedback=feedback, branch=branch)

    return ctx.record(keys.gate(n, where, branch, attempt), HumanApproval, asked).answer == "APPROVE"
