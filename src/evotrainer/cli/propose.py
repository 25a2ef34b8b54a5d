"""`evotrainer propose`: an answer to what a run asks of its seat, or of its reader."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evotrainer.cli._common import RunFolder
from evotrainer.cli._reader_questions import judge, waiting_question
from evotrainer.errors import ConfigError
from evotrainer.records.output import print
from evotrainer.records.regular_file import read_text

if TYPE_CHECKING:
    from evotrainer.api import Run
    from evotrainer.projections.branches import Branch

EVERY_S = 0.2
SEATED = " run.agent=seat run.agent_options.carrier=queue"


def propose(
    folder: RunFolder,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="The answer as JSON; - reads stdin.")],
    *,
    wait: Annotated[float, typer.Option(help="Seconds to wait for what came of it; 0: return at once.")] = 0,
    to: Annotated[str, typer.Option(metavar="ID", help="Of the request that it answers, and no other.")] = "",
) -> None:
    """Answer the request that `evotrainer seat` shows; with --wait, tell what came of it, rounded to points.

    Example: evotrainer propose runs/mine answer.json --wait 600
    """
    from evotrainer import api
    from evotrainer.records.seat import MOST

    run = api.open_run(folder)
    try:
        raw = sys.stdin.read(MOST + 1) if file == "-" else read_text(Path(file), errors="replace")
    except OSError as e:
        raise ConfigError(f"cannot read {file}: {e.strerror}; give a file, or - for stdin") from None
    read = waiting_question(run)
    key, again = judge(run, read, raw) if read and to in ("", read.id) else answer(run, raw, to)
    print(taken_already(key) if again else f"answered {key}")
    end, last_note = time.monotonic() + wait, ""
    while not last_note and time.monotonic() < end:
        time.sleep(EVERY_S)
        last_note = outcome(run, key)
    if last_note:
        print(last_note)
    elif wait:
        print(f"no result within {wait:g} s; `evotrainer status {folder}` tells it later")


def answer(run: Run, raw: str, to: str = "") -> tuple[str, bool]:
    """`queued.propose` on a run; of one that has ended with the command that goes on and asks again."""
    from evotrainer.records import queued

    idle = ""
    if run.closed:
        o, rounds = run.task.run, run.state.last_round + 1
        seat = "" if o.agent == "seat" and o.agent_options.get("carrier") == "queue" else SEATED
        idle = f"it has ended: `evotrainer resume {run.folder} run.rounds={rounds}{seat}` goes on and asks again"
    return queued.propose(run.folder, run.events(), raw, to=to, idle=idle)


def taken_already(key: str) -> str:
    """What is said of an answer that was given before."""
    from evotrainer.records import keys

    return f"already taken as the answer to {keys.request_of(key)}; to give it to another request, name that one"


def outcome(run: Run, key: str) -> str:
    """What came of an answer, in points rounded to whole ones; empty where it is not known yet."""
    from evotrainer.records.events import ReaderAnswered

    events = run.events()
    given = next((e.body for e in events if e.id == key), None)
    if given is None:
        return ""
    if isinstance(given, ReaderAnswered):
        return given.problem or f"taken: {given.verdict.verdict if given.verdict else 'none'}"
    if given.problem:
        return f"refused: {given.problem}" + ("" if given.fallback else "; the run asks again (evotrainer seat)")
    if given.proposal is None or given.proposal.stop:
        return "taken: it advises to stop"
    state, out, open_ = run.state, [], False
    asked = [t.changes for t in given.proposal.trials]
    if given.step.startswith("search"):
        for p in (p.record() for p in state.probes.values() if p.round == given.round and p.changes in asked):
            open_ = open_ or (p.score is None and not p.failed)
            out.append(f"{p.probe}: {p.failed or f'{100 * (p.score or 0):.0f}% on search'}")
        if not out and (
            end := next((e.body for e in events if e.kind == "searched" and e.body.round == given.round), None)
        ):
            return f"taken, and not trained: {end.stop}"
        return "" if open_ or not out else "; ".join(out)
    for b in state.branches.values():
        if b.round == given.round and b.intervention and b.intervention.move == "seat":
            v = b.verdict
            open_ = open_ or v is None
            out.append(f"{b.branch}: {verdict_line(b)}" if v else "")
    refused = [e.body for e in events if e.kind == "refused" and e.body.round == given.round]
    out += [f"refused: {r.reason}" for r in refused if r.intervention.move == "seat"]
    vetoed = [e.body for e in events if e.kind == "backtested" and e.body.round == given.round and e.body.vetoed]
    out += [f"not trained: {b.backtest.reason}" for b in vetoed if b.intervention.move == "seat"]
    return "" if open_ or not out else "; ".join(out)


def verdict_line(b: Branch) -> str:
    """A branch's verdict with its effect in whole points, and what stood against a promotion."""
    if (v := b.verdict) is None:
        return "none yet"
    e, against = b.effect, [g.gate for g in v.gates if g.passed is False]
    effect = f", {100 * e.mean:+.0f} points [{100 * e.low:+.0f}, {100 * e.high:+.0f}] on gate" if e else ""
    effect += ", on fresh seeds" if b.on_fresh_seeds else ""
    return f"{v.kind}{effect}" + (f"; not passed: {', '.join(against)}" if against else "")
