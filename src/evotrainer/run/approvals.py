"""Gates at which a human approves a step, if the task file asks for it.

The question is an event. Its answer comes through the run folder (`records.answers`), whoever gives it: the terminal
of the run, a function of `api.start`, or `evotrainer answer` from another shell or machine.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from typing import Literal

from evotrainer.errors import AbortedError, AgentError
from evotrainer.records import keys
from evotrainer.records.answers import GateAnswer, give_answer, read_answer
from evotrainer.records.events import GateAsked, HumanApproval
from evotrainer.rules.approvals import asks
from evotrainer.run.context import Ask, RunContext

Where = Literal["diagnosis", "intervention", "backtest", "verdict"]
LOOK_S = (0.1, 2.0)
"""Seconds between two looks for an answer: at first, and at most."""


def ask_human(
    ctx: RunContext, n: int, where: Where, text: str | Callable[[], str], attempt: int = 0, branch: str = ""
) -> bool:
    """Ask where the autonomy level says so, and wait for the answer. True: go on; False: sent back; AbortedError where
    the run is to stop.

    text: what is to be decided, as markdown; a function is called only where somebody is asked.
    """
    if not asks(ctx.task.run.autonomy, ctx.state.failures):
        return True
    gate = keys.gate(n, where, branch, attempt)

    def asked() -> GateAsked:
        return GateAsked(round=n, where=where, text=text if isinstance(text, str) else text(), branch=branch)

    for times in itertools.count():
        question, aborted = keys.gate_asked(gate, times), keys.gate_aborted(gate, times)
        body = ctx.record(question, GateAsked, asked)
        key = next((k for k in (aborted, gate) if ctx.recorded(k) is not None), "")
        new = None if key else approval(body, wait_for_answer(ctx, question, body))
        key = key or (aborted if new and new.answer == "ABORT" else gate)
        given = ctx.record(key, HumanApproval, lambda: new)  # type: ignore[arg-type,return-value]  # noqa: B023
        if key == gate:
            return given.answer == "APPROVE"
        if new is not None:
            again = f"`evotrainer resume {ctx.folder}` asks again"
            raise AbortedError(f"aborted at the {where} gate of round {n} by {given.by}; {again}")
    raise AssertionError("unreachable")


def approval(asked: GateAsked, given: GateAnswer) -> HumanApproval:
    """An answer as the ledger holds it."""
    return HumanApproval(
        round=asked.round,
        where=asked.where,
        answer=given.answer,
        feedback=given.words,
        branch=asked.branch,
        to=given.to,
        by=given.by,
        given=given.at,
    )


def wait_for_answer(ctx: RunContext, question: str, asked: GateAsked) -> GateAnswer:
    """The answer to a question, whoever gives it first; no budget runs meanwhile."""
    begun, look = time.monotonic(), LOOK_S[0]
    ctx.observer.step(f"waits for an answer at the {asked.where} gate")
    if ctx.ask is None:
        ctx.observer.note(f'waits: evotrainer answer {ctx.folder} (approve, revise "words" or abort)')
    try:
        while (given := read_answer(ctx.folder, question)) is None:
            if ctx.ask is None:
                time.sleep(look)
                ctx.observer.trials([])  # whoever tells people of the run may have something to say
                look = min(1.2 * look, LOOK_S[1])
            elif said := ctx.ask(asked, lambda: read_answer(ctx.folder, question) is not None):
                with contextlib.suppress(AgentError):  # somebody else was first
                    give_answer(ctx.folder, ctx.ledger.events(), *said, to=question)
    finally:
        ctx.waited += time.monotonic() - begun
    return given


def asking(function: Callable[[str, str], tuple[str, str]]) -> Ask:
    """A function (which gate, what is to be decided) -> (APPROVE | REVISE | ABORT, feedback), as a run asks it."""
    return lambda asked, elsewhere: function(asked.where, asked.text)
