"""Whether a human had to be asked, and whether each answer belongs to its question."""

from __future__ import annotations

from collections.abc import Iterator

from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.rules.approvals import asks, promotion_question
from evotrainer.verify.report import Problem, Record


def asked(record: Record, event: Event) -> Iterator[Problem]:
    """The autonomy of the run asks there, under this key, and a promotion's question tells its verdict."""
    body, state = event.body, record.state_before(event)
    if not asks(record.opened.autonomy, state.failures):
        why = f"autonomy {record.opened.autonomy} asks nobody after {state.failures} rounds without a promotion"
        yield Problem("gate", f"{event.id}: {why}")
    if not event.id.startswith(keys.gate(body.round, body.where, body.branch) + "/"):
        yield Problem("gate", f"{event.id}: a question at the {body.where} gate of round {body.round}")
    if body.where == "verdict":
        branch = state.branches.get(body.branch)
        verdict = branch.verdict if branch else None
        if verdict is None or verdict.kind != "promote" or body.text != promotion_question(body.branch, verdict.reason):
            yield Problem("gate", f"{event.id}: no verdict promotes {body.branch} as the question says")


def answered(record: Record, event: Event) -> Iterator[Problem]:
    """It answers the question that was open, once, with words where it sends back."""
    body = event.body
    question = next((e for e in record.before(event, "gate_asked") if e.id == body.to), None)
    aborted = body.answer == "ABORT"
    if question is None:
        yield Problem("gate", f"{event.id}: an answer to {body.to or 'nothing'}, which was not asked before it")
        return
    q = question.body
    if (q.round, q.where, q.branch) != (body.round, body.where, body.branch):
        yield Problem("gate", f"{event.id}: it answers another gate than {body.to}")
    if event.id != keys.answer_of(body.to, aborted):
        yield Problem("gate", f"{event.id}: {body.answer} to {body.to} is recorded elsewhere")
    if any(e.body.to == body.to for e in record.before(event, "gate")):
        yield Problem("gate", f"{event.id}: {body.to} was answered before")
    if not body.by or (body.answer == "REVISE" and not body.feedback):
        yield Problem("gate", f"{event.id}: an answer of nobody, or sent back without words")
