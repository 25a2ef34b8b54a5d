"""Every trial of a run as one row, whoever asked for it: hypothesis, change, parent, what was expected and measured,
and a label of what became of it. Proposals that were never trained are rows, too."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evotrainer.errors import ConfigError
from evotrainer.projections.branches import Branch, Probe
from evotrainer.projections.labels import Label, label_of_branch, label_of_probe, label_of_refusal
from evotrainer.projections.state import RunState
from evotrainer.records.chain import Event
from evotrainer.records.events import Backtested, Proposed, Refused, SeatAnswered
from evotrainer.records.interventions import Intervention
from evotrainer.records.recipe import Recipe


@dataclass(frozen=True, slots=True)
class LabelledTrial:
    """One trial and what became of it."""

    trial: str
    """`p3`, `b1`; of what was never trained the id of the event that says so, with its place."""
    kind: Literal["search", "branch", "proof", "proposal", "answer"]
    """proof: a branch that the run itself opened, as a control."""
    round: int
    by: str
    """The agent, with a seat `seat` or `statistical`; empty: the run itself."""
    hypothesis: str
    changes: dict[str, Any]
    """Factor -> value, against the parent."""
    parent: str
    label: Label
    cause: str
    expected: tuple[float, float] | None = None
    """(mean, sd) of the gain over the champion, score units; None: nobody said."""
    measured: float | None = None
    """Gain over the champion: of a search training on search, of a branch on gate."""
    on_fresh_seeds: bool = False
    verified: bool = False
    """Recomputed from the two recipes: the parent's with these changes is this one's."""


def labelled(events: Sequence[Event]) -> list[LabelledTrial]:
    """All of a run: search trainings and branches in order, then what was never trained."""
    state = RunState.of(events)
    agents = {e.body.round: e.body.proposal.agent for e in events if isinstance(e.body, Proposed)}
    name = state.opened.agent if state.opened else ""
    answers = [e.body for e in events if isinstance(e.body, SeatAnswered) and not e.body.problem and e.body.proposal]
    out = [_probe(p, state, events, answers, name) for p in state.probes.values()]
    opened = [b for b in state.branches.values() if b.parent is not None]
    out += [_branch(b, state, events, agents.get(b.round, name)) for b in opened]
    return [*out, *_untrained(events, agents)]


def counts(trials: Iterable[LabelledTrial]) -> dict[str, int]:
    """Label -> trials, most first; without the run's own proofs."""
    return dict(Counter(t.label for t in trials if t.kind != "proof").most_common())


def distinct_ideas(trials: Iterable[LabelledTrial]) -> set[tuple[str, str]]:
    """Values of factors that the trainings of a run had and their parents had not."""
    return {
        (f, json.dumps(v, sort_keys=True))
        for t in trials
        if t.kind in ("search", "branch")
        for f, v in t.changes.items()
    }


# -- search trainings --------------------------------------------------------------------------------------------------


def _probe(
    p: Probe, state: RunState, events: Sequence[Event], answers: Sequence[SeatAnswered], agent: str
) -> LabelledTrial:
    record, spec = p.record(), p.spec
    parent = _recipe(state, p.incumbent)
    label, cause = label_of_probe(p, _kept(p, state))
    champion = state.branches[p.incumbent].record().scores if p.incumbent in state.branches else ()
    gain = record.score - sum(champion) / len(champion) if record.score is not None and champion else None
    t = _asked_for(p, answers) if spec and not spec.moves else None
    return LabelledTrial(
        trial=p.probe,
        kind="search",
        round=p.round,
        by=_who(agent, t is not None),
        hypothesis=", ".join(spec.moves) if spec and t is None else t.why if t else "",
        changes=dict(p.changes),
        parent=p.incumbent,
        verified=_made_of(parent, p.changes, p.recipe),
        expected=_expected(t),
        measured=gain,
        label=label,
        cause=cause,
    )


def _expected(asked: Any) -> tuple[float, float] | None:
    """The gain that a seat's trial was asked for with; None: nobody said."""
    return (asked.gain, asked.sd) if asked and asked.gain is not None and asked.sd is not None else None


def _who(agent: str, asked: bool) -> str:
    """Who named a training: the places of a run with a seat that no answer filled are the statistical agent's."""
    return "statistical" if agent == "seat" and not asked else agent


def _kept(p: Probe, state: RunState) -> str:
    """What speaks for a search training: that the search settled on it, or that it was promoted."""
    last = next((s for s in state.searched if s.round == p.round), None)
    if last and last.choice and p.changes and last.choice.changes == dict(p.changes):
        return "the search settled on it"
    took = (b.branch for b in state.branches.values() if b.recipe.hash == p.recipe.hash and b.version is not None)
    return f"{found} is its recipe" if (found := next(took, "")) else ""


def _asked_for(p: Probe, answers: Sequence[SeatAnswered]) -> Any:
    """The trial of an answer that a search training came from."""
    mine = (a for a in answers if a.round == p.round and a.step.startswith("search"))
    found = (t for a in mine if a.proposal for t in a.proposal.trials)
    return next((t for t in found if t.changes == dict(p.changes)), None)


# -- branches ----------------------------------------------------------------------------------------------------------


def _branch(b: Branch, state: RunState, events: Sequence[Event], agent: str) -> LabelledTrial:
    iv, parent = b.intervention, _recipe(state, b.parent or "")
    label, cause = label_of_branch(b, state, events)
    own = bool(b.matches)
    if own and label == "open" and b.verdict is None and b.complete:
        label, cause = "discard", "trained as a part of a proof; it is not judged"
    return LabelledTrial(
        b.branch,
        "proof" if own else "branch",
        b.round,
        parent=b.parent or "",
        label=label,
        cause=cause,
        measured=b.effect.mean if b.effect else None,
        on_fresh_seeds=b.on_fresh_seeds,
        verified=iv is not None and _made_of(parent, {iv.factor: iv.new}, b.recipe),
        **_intended(iv, agent) | ({"by": ""} if own else {}),
    )


def _intended(iv: Intervention | None, agent: str) -> dict[str, Any]:
    """Whose an intervention is, why it was made, what it changes and what was expected of it."""
    if iv is None:
        return {"by": _who(agent, False), "hypothesis": "", "changes": {}}
    f = iv.forecast
    return {
        "by": _who(agent, iv.move == "seat"),
        "hypothesis": iv.hypothesis,
        "changes": {iv.factor: iv.new},
        "expected": (f.mean, f.sd) if f else None,
    }


def _recipe(state: RunState, branch: str) -> Recipe | None:
    return state.branches[branch].recipe if branch in state.branches else None


def _made_of(parent: Recipe | None, changes: Any, recipe: Recipe) -> bool:
    try:
        return parent is not None and parent.with_changes(dict(changes)).hash == recipe.hash
    except ConfigError:
        return False


# -- never trained -----------------------------------------------------------------------------------------------------


def _untrained(events: Sequence[Event], agents: dict[int, str]) -> Iterator[LabelledTrial]:
    """Proposals that a backtest or a rule refused, and answers of a seat that were sent back."""
    champions = {e.body.round: e.body.champion for e in events if e.kind == "round"}
    for e in events:
        b = e.body
        if isinstance(b, Refused) or (isinstance(b, Backtested) and b.vetoed):
            cause = b.reason if isinstance(b, Refused) else b.backtest.reason
            yield LabelledTrial(
                e.id,
                "proposal",
                b.round,
                parent=champions.get(b.round, ""),
                label=label_of_refusal(cause) if isinstance(b, Refused) else "contradicted",
                cause=cause,
                **_intended(b.intervention, agents.get(b.round, "")),
            )
        elif isinstance(b, SeatAnswered) and b.problem and b.stage in ("schema", "rules", "repeated"):
            yield from _answers(e, champions)


def _answers(e: Event, champions: dict[int, str]) -> Iterator[LabelledTrial]:
    """The trial that an answer was sent back for; the whole answer where none could be read."""
    b: SeatAnswered = e.body
    at = int(found) if (found := b.problem.partition(": ")[0].removeprefix("trials.")).isdigit() else 0
    t = b.proposal.trials[at] if b.proposal and len(b.proposal.trials) > at else None
    yield LabelledTrial(
        trial=e.id,
        kind="answer",
        round=b.round,
        by=f"seat ({b.carrier})",
        hypothesis=t.why if t else "",
        changes=dict(t.changes) if t else {},
        parent=champions.get(b.round, ""),
        expected=_expected(t),
        label="repeated" if b.stage == "repeated" else label_of_refusal(b.problem),
        cause=b.problem,
    )
