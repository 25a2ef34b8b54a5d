"""A reader in a run: which rollouts of a branch it is shown, what it answers, what follows (decision 27).

Search rollouts alone are shown to it, never those of gate or cert. Each question and each answer is an event, so that
a run that was killed asks nothing twice; what an answer counts is computed by `rules.reader`, as `verify` does.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from evotrainer.agents.carriers import Reply, SeatTurn
from evotrainer.agents.reader import REFUSED, SILENT, ReaderCarrier, used_up, verdict_of
from evotrainer.harness.nominations import draw, nominations
from evotrainer.projections.reader import ReaderSpend, describe
from evotrainer.records import keys
from evotrainer.records.events import (
    GapSeen,
    ReaderAnswered,
    ReaderAsked,
    ReaderConcluded,
    ReaderOpened,
    ReaderPick,
)
from evotrainer.records.reader import question_on
from evotrainer.rules.learned import explained_places, explaining
from evotrainer.rules.reader import conclude
from evotrainer.run import learning
from evotrainer.run.seat import hidden

if TYPE_CHECKING:
    from evotrainer.config.reader import RunReader
    from evotrainer.records.events.reader import Occasion
    from evotrainer.records.rollout import Rollout
    from evotrainer.run.context import RunContext

PLACE = "harness.reader."
PAID_AND_WRONG = ("contradiction", "unexplained_gap")
"""Gaps of which it is known which rollouts they are about: what was paid and is wrong."""


def read_branch(ctx: RunContext, n: int, branch: str, occasion: Occasion) -> ReaderConcluded | None:
    """What the reader says of a branch; asked now where its trainings were not all read. None: there is no reader."""
    b, options = ctx.branches[branch], ctx.task.harness.reader
    if options is None or ctx.reader is None or not b.complete:
        return b.readings[-1] if b.readings else None
    number = len(b.readings) + 1
    if b.readings and set(_last_opened(ctx, branch).trials) >= {t.trial for t in b.complete}:
        learning.from_reading(ctx, n, b.readings[-1])
        return b.readings[-1]
    ctx.observer.step(f"has {options.name or options.carrier} read rollouts of {branch}")
    opened = ctx.record(keys.reader(branch, number), ReaderOpened, lambda: choose(ctx, options, n, branch, occasion))

    def concluded() -> ReaderConcluded:
        stopped = ReaderQuestions(ctx.reader, options, opened, number).all(ctx) or opened.capped  # type: ignore[arg-type]
        return conclude(opened, (e.body for e in ctx.ledger.events("reader_answered")), number, stopped)

    body = ctx.record(keys.reader_concluded(branch, number), ReaderConcluded, concluded)
    ctx.observer.note(f"reader: {describe(body)}")
    learning.from_reading(ctx, n, body)
    return body


def before_promotion(ctx: RunContext, n: int, branch: str) -> bool:
    """Read the branch; is it confirmed to hack?"""
    found = read_branch(ctx, n, branch, "promotion")
    return found is not None and found.outcome == "confirmed"


def _last_opened(ctx: RunContext, branch: str) -> ReaderOpened:
    """The last reading of a branch that was concluded."""
    event = ctx.recorded(keys.reader(branch, len(ctx.branches[branch].readings)))
    assert event is not None
    body: ReaderOpened = event.body
    return body


# -- what is read ------------------------------------------------------------------------------------------------------


def choose(ctx: RunContext, options: RunReader, n: int, branch: str, occasion: Occasion) -> ReaderOpened:
    """Which search rollouts of the branch's trainings are read, of those that earned more than the least."""
    trials = [t.trial for t in ctx.branches[branch].complete]
    gaps = {e.body.trigger for e in ctx.ledger.events("gap") if isinstance(e.body, GapSeen) and e.body.branch == branch}
    names: list[str] = []
    where: list[tuple[str, str]] = []
    why: list[str] = []
    earned: list[np.ndarray] = []
    known = explained_places(ctx.rollouts, trials, explaining(ctx.ledger.events()))
    for trial in trials:
        batch = ctx.rollouts.batch(trial)
        columns = (batch.column(x) for x in ("id", "task", "step", "k", "attempt"))
        for i, *place in zip(*columns, strict=True):  # by place: an id holds the name of the run's folder
            names.append("\x1f".join(map(str, (trial, *place))))
            where.append((trial, str(i)))
        wrong = {"gap": batch.truth == 0} if gaps & {*PAID_AND_WRONG} else {}
        why += nominations(batch.traits.columns, batch.n, wrong)
        earned.append(batch.reward)
    paid = _paid(np.concatenate(earned) if earned else np.zeros(0))
    left = options.rollouts - ReaderSpend.of(e.body for e in ctx.ledger.events("reader_answered")).rollouts
    size = max(0, min(options.each, left))
    drawn = draw(
        [names[i] for i in paid], [why[i] for i in paid], size, options.random, [known.get(where[i], "") for i in paid]
    )
    picks = (
        ReaderPick(trial=where[i][0], rollout=where[i][1], why=why[i], explained=known.get(where[i], ""))
        for i in (paid[j] for j in drawn.picks)
    )
    return ReaderOpened(
        round=n,
        branch=branch,
        occasion=occasion,
        carrier=options.carrier,
        model=options.name,
        trials=tuple(trials),
        nominated=drawn.nominated,
        rest=drawn.rest,
        explained=drawn.explained,
        picks=tuple(picks),
        limit=options.limit,
        capped=f"{PLACE}rollouts={options.rollouts} is used up" if size < options.each else "",
    )


def _paid(reward: np.ndarray) -> list[int]:
    """Rollouts that earned more than the least; all, where all earned the same."""
    graded = reward[np.isfinite(reward)]
    if not len(graded) or graded.min() == graded.max():
        return list(range(len(reward)))
    return [int(i) for i in np.flatnonzero(reward > graded.min())]


# -- asking ------------------------------------------------------------------------------------------------------------


class ReaderQuestions:
    """One reading's questions: asked side by side, recorded one after the other by the thread that asks for `all`."""

    def __init__(self, carrier: ReaderCarrier, options: RunReader, opened: ReaderOpened, number: int) -> None:
        self.carrier, self.options, self.opened, self.number = carrier, options, opened, number
        self.replies: SimpleQueue[tuple[int, int, Reply | Exception]] = SimpleQueue()
        self.rollouts: Sequence[Rollout] = ()

    def all(self, ctx: RunContext) -> str:
        """Every rollout of the reading has its last answer; returns why nobody is asked any more, if that is so."""
        self.rollouts = ctx.rollouts.found([(p.trial, p.rollout) for p in self.opened.picks])
        todo = [(place, *due) for place in range(len(self.opened.picks)) if (due := self._due(ctx, place))]
        under_way, stopped = 0, ""
        at_once = 1 if self.options.carrier == "queue" else self.options.at_once
        while todo or under_way:
            while todo and under_way < at_once and not (stopped := stopped or self._stopped(ctx)):
                self._ask(ctx, *todo.pop(0))
                under_way += 1
            if not under_way:
                break
            place, attempt, reply = self.replies.get()
            if isinstance(reply, Exception):
                raise reply
            under_way -= 1
            self._answered(ctx, place, attempt, reply)
            if due := self._due(ctx, place):
                todo.insert(0, (place, *due))
        return stopped

    def _due(self, ctx: RunContext, place: int) -> tuple[int, str] | None:
        """(attempt, complaint) of the next question about a rollout; None: it was answered, or is given up."""
        pick = self.opened.picks[place]
        before = (e.body for e in ctx.ledger.events("reader_answered"))
        if any((a.trial, a.rollout) == (pick.trial, pick.rollout) and a.verdict for a in before):
            return None
        complaint = ""
        for attempt in range(self.options.retries + 1):
            event = ctx.recorded(keys.reader_answered(self.opened.branch, self.number, place, attempt))
            if event is None:
                return attempt, complaint
            if event.body.stage != "answer":
                return None
            complaint = event.body.problem
        return None

    def _ask(self, ctx: RunContext, place: int, attempt: int, complaint: str) -> None:
        """Record the question and put it, in a thread of its own."""
        question = question_on(self.rollouts[place], complaint)
        at = self._place(place, attempt) | {"question": question.sha256}
        key = keys.reader_asked(self.opened.branch, self.number, place, attempt)
        ctx.record(key, ReaderAsked, lambda: ReaderAsked.model_validate({**at, "complaint": complaint}))
        name = keys.reader_turn(self.opened.branch, self.number, place, attempt)
        turn = SeatTurn(name, ctx.folder / "seat", key, self.options.timeout_s, hidden(ctx))
        if self.options.carrier == "queue":
            ctx.observer.note(f"reader: {name} waits for an answer: `evotrainer seat {ctx.folder}` shows it")

        def put() -> None:
            try:
                self.replies.put((place, attempt, self.carrier.put(question, turn)))
            except Exception as e:  # raised where it is waited for
                self.replies.put((place, attempt, e))

        threading.Thread(target=put, daemon=True, name="evotrainer-reader").start()

    def _answered(self, ctx: RunContext, place: int, attempt: int, reply: Reply) -> None:
        """Record what came of a question."""
        verdict, problem, again = verdict_of(reply, self.rollouts[place])
        asked = ctx.recorded(keys.reader_asked(self.opened.branch, self.number, place, attempt))
        assert asked is not None
        key = keys.reader_answered(self.opened.branch, self.number, place, attempt)
        ctx.record(
            key,
            ReaderAnswered,
            lambda: ReaderAnswered(
                **self._place(place, attempt),
                question=asked.body.question,
                **reply.recorded,
                verdict=verdict,
                stage="" if verdict else "answer" if again else "carrier",
                problem=problem,
            ),
        )
        if problem:
            ctx.observer.note(f"reader ({self.options.name}): {problem}")

    def _place(self, place: int, attempt: int) -> dict[str, object]:
        pick = self.opened.picks[place]
        at = {"branch": self.opened.branch, "reading": self.number, "place": place, "attempt": attempt}
        return {**at, "trial": pick.trial, "rollout": pick.rollout}

    def _stopped(self, ctx: RunContext) -> str:
        """Why nobody is asked any more; empty: one goes on."""
        answers: list[ReaderAnswered] = [e.body for e in ctx.ledger.events("reader_answered")]
        spent = ReaderSpend.of(answers)
        if cap := used_up(self.options, PLACE, spent.tokens, spent.dollars):
            return cap
        mine = [a for a in answers if (a.branch, a.reading) == (self.opened.branch, self.number)]
        if len(mine) >= SILENT and all(a.stage == "carrier" for a in mine[-SILENT:]):
            return mine[-1].problem
        lost = {a.place for a in mine}
        if len(lost) >= REFUSED and not any(a.verdict for a in mine):
            return f"none of {len(lost)} answers was valid: {mine[-1].problem}"
        return ""
