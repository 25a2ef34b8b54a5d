"""Labels the outcome of a trial by one word: one vocabulary for branches, search trainings and proposals that were
never trained, read from what events say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from evotrainer.projections.branches import Branch, Probe
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.chain import Event
from evotrainer.records.events import ToppedUp
from evotrainer.records.text import counted

Label = Literal[
    "keep",
    "discard",
    "crash",
    "preflight_crash",
    "size_blocked",
    "train_budget_overrun",
    "eval_budget_overrun",
    "disqualified",
    "harness_abort",
    "contradicted",
    "repeated",
    "not_taken",
    "open",
]
LABELS: dict[Label, str] = {
    "keep": "it became the champion, or a later search training was made from it, or the search settled on it",
    "discard": "measured, and not kept",
    "crash": "the training broke off",
    "preflight_crash": "it could not start: not valid, not one factor, or not readable",
    "size_blocked": "larger than allowed: more factors, compute or trainings than there is room for",
    "train_budget_overrun": "the training took more CPU than it may",
    "eval_budget_overrun": "the evaluation took more than it may",
    "disqualified": "its score does not count: a shortcut, a validity finding, or it asked for what is not for sale",
    "harness_abort": "what measures failed, not what was measured",
    "contradicted": "stored rollouts contradict it (backtest)",
    "repeated": "the same was asked for, or trained, before",
    "not_taken": "proposed, and the round had no place left for it",
    "open": "no outcome yet",
}
"""Label -> meaning. The first nine are those of published campaigns, the others ours."""
REFUSALS: tuple[tuple[str, Label], ...] = (
    (r"^not among the first \d+ of this round", "not_taken"),
    (r"^tried before as|^this recipe was trained already|^the same answer as|^cites |^reopens ", "repeated"),
    (r"^over budget|changes \d+ factors"
     r"|longer than [\d,]+ characters|^batch_shape keeps|makes \d+ moves in the reward", "size_blocked"),
    (r"^unknown factor '(judge|budget|run|evaluation|environment|executor|sandbox)\.", "disqualified"),
    (r"^recipe\.scaffold: too_long", "size_blocked"),
    (r"^opens |not for sale|honest training has no need of|reads_protected", "disqualified"),
)  # fmt: skip
"""What a refusal says -> its label; any other is a preflight_crash."""


def label_of_refusal(reason: str) -> Label:
    """The label of a proposal that was refused before it was trained."""
    message = re.sub(r"^trials\.\d+: ", "", reason)
    return next((label for pattern, label in REFUSALS if re.search(pattern, message)), "preflight_crash")


def label_of_branch(b: Branch, state: RunState, events: Sequence[Event]) -> tuple[Label, str]:
    """(label, cause) of a branch that was opened in a run with these events, and the state after them."""
    v = b.verdict
    if b.invalid is not None or (v and v.kind == "invalid"):
        return "disqualified", b.invalid or (v.reason if v else "")
    if b.version is not None:
        return "keep", f"{b.version}" + (f": {v.reason}" if v else "")
    failed = [t for t in b.finished if t.status == "failed"]
    if failed and (v is None or v.kind == "failed"):
        return failed[0].label or "crash", failed[0].error
    if v is None:
        return "open", "no verdict yet"
    if why := still_measured(b, state, events):
        return "open", f"{v.kind} so far: {why}"
    return "discard", f"{v.kind}: {v.reason}"


def still_measured(b: Branch, state: RunState, events: Sequence[Event]) -> str:
    """What is still to come before the last verdict on a branch counts; empty where it is settled, and after the
    run's end."""
    if state.closed_by is not None:
        return ""
    proof = [x for x in state.branches.values() if b.branch in (x.branch, x.matches)]
    if left := sum(not t.finished for x in proof for t in x.trials):
        return f"{counted(left, 'trial')} {'waits or runs' if left == 1 else 'wait or run'}"
    if b.verdict is None or b.verdict.seeds_wanted is None or b.round != state.last_round:
        return ""
    asked = keys.topup(b.branch, b.looks + 1)
    refused = any(isinstance(e.body, ToppedUp) and e.id == asked and e.body.refused for e in events)
    return "" if refused else f"{b.verdict.seeds_wanted} seeds are asked for"


def label_of_probe(p: Probe, kept: str) -> tuple[Label, str]:
    """(label, cause) of a search training; `kept`: what speaks for keeping it, empty: nothing does."""
    done = p.trial.finished if p.trial else None
    if done is None:
        return "open", "not trained yet"
    if done.status == "failed":
        return done.label or "crash", done.error
    record = p.record()
    if record.invalid:
        return "disqualified", f"questioned by {', '.join(record.invalid)}"
    if record.score is None:
        return "harness_abort", "no attempt was graded"
    return ("keep", kept) if kept else ("discard", "nothing was made from it")
