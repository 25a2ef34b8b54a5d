"""`evotrainer seat`: what a run asks of whoever sits in its agent's seat, or reads its rollouts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from evotrainer.cli._common import AsJson, RunFolder
from evotrainer.cli._reader_questions import asked_about, waiting_question
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.api import Run
    from evotrainer.records.chain import Event
    from evotrainer.records.events import SeatAsked


def seat(folder: RunFolder, *, as_json: AsJson = False) -> None:
    """Show the request that a run waits with (run.agent=seat or harness.reader, carrier queue), and how to answer it.

    Example: evotrainer seat runs/mine
    """
    from evotrainer import api
    from evotrainer.agents.seat.text import render_request
    from evotrainer.projections.seat import SeatSpend
    from evotrainer.records.seat import SeatProposal

    run = api.open_run(folder)
    if (read := waiting_question(run)) is not None:
        _show_question(run, read, as_json)
        return
    open_ = waiting(run)
    if as_json:
        request = {"id": request_id(open_), "request": open_.request.model_dump(mode="json") if open_ else None}
        print(json.dumps(request | {"schema": SeatProposal.model_json_schema()}, indent=1))
        return
    if open_ is None:
        spent = SeatSpend.of(e.body for e in run.events() if e.kind == "answered")
        print(f"{folder}: nobody is asked now" + (f"; {spent.summary()}" if spent.summary() else ""))
        return
    print(render_request(open_.request).rstrip())
    this = f"--to {request_id(open_)}: for this request only"
    print(f"\n---\nAnswer: evotrainer propose {folder} FILE  (or - for stdin; {this})")


def _show_question(run: Run, asked: Event, as_json: bool) -> None:
    """A reader's question."""
    _, question = asked_about(run, asked)
    if as_json:
        print(json.dumps({"id": asked.id, "request": {"text": question.text}, "schema": question.schema}, indent=1))
    else:
        print(f"{question.text}\n\n---\nAnswer: evotrainer propose {run.folder} FILE  (or - for stdin)")


def waiting(run: Run) -> SeatAsked | None:
    """The request that has no answer yet."""
    from evotrainer.records.queued import open_request

    asked = open_request(run.events())
    return asked.body if asked else None


def request_id(asked: SeatAsked | None) -> str:
    """Id of a request, which an answer may name; empty where there is none."""
    from evotrainer.records import keys

    return keys.asked(asked.round, asked.step, asked.attempt) if asked else ""
