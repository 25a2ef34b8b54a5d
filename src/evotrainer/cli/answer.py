"""`evotrainer answer`: a human's answer to what a run asks at a gate."""

from __future__ import annotations

from typing import Annotated

import typer

from evotrainer.cli._common import RunFolder
from evotrainer.records.output import print


def answer(
    folder: RunFolder,
    choice: Annotated[
        str, typer.Argument(metavar="[approve|revise|abort]", help="Left out: show what is to be decided.")
    ] = "",
    words: Annotated[str, typer.Argument(metavar="[WORDS]", help="Why; of revise, what should change.")] = "",
    *,
    by: Annotated[str, typer.Option(help="Who answers; default user@host.")] = "",
    to: Annotated[str, typer.Option(metavar="ID", help="Of the question that it answers, and no other.")] = "",
) -> None:
    """Answer the gate at which a run waits (run.autonomy=human_gated or escalating), from any shell or machine that
    shares its folder.

    Example: evotrainer answer runs/mine revise "no rewards"
    """
    from evotrainer import api
    from evotrainer.records.durable import writer_of
    from evotrainer.views.fold import LOCK

    run = api.open_run(folder)
    if not choice:
        asked = run.question
        text = (
            f"{asked.body.text}\n\n---\n{asked.id}, since {asked.time}" if asked else f"{folder}: nobody is asked now"
        )
        print(text + (f'\nAnswer: evotrainer answer {folder} approve, revise "words" or abort' if asked else ""))
        return
    given = run.answer(choice, words, by=by, to=to)
    idle = writer_of(folder / LOCK) is None
    print(f"answered {given.to}: {given.answer.lower()} by {given.by}")
    if idle:
        print(f"no process of this machine drives the run; if none of another does: evotrainer resume {folder}")
