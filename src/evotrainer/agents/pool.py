"""What an agent chooses from: the situation as the catalogue reads it, and every change that may be proposed in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from evotrainer.agents.base import Tools
from evotrainer.agents.catalogue import candidates, reverts
from evotrainer.agents.changes import trained_hashes
from evotrainer.agents.moves import CandidateMove, Situation
from evotrainer.agents.rewards import reward_candidates
from evotrainer.agents.symptoms import RewardEvidence, bottlenecks, lacking, search_score
from evotrainer.factors import family_of
from evotrainer.records.briefing import BranchRecord, Briefing
from evotrainer.records.recipe import fields_of


def start_of(briefing: Briefing) -> BranchRecord:
    """The starting recipe's branch; where it was invalid, the one that took its place with the shortcut closed."""
    return [briefing.champion, *(b for b in briefing.branches if b.parent is None)][-1]


def situation(briefing: Briefing, tools: Tools, rollouts: int) -> Situation:
    """The briefing as the catalogue reads it, with at most `rollouts` of the champion's stored ones."""
    start = start_of(briefing)
    stored = tools.rollouts(briefing.champion.branch, rollouts) if rollouts else ()
    return Situation(
        recipe=briefing.champion.recipe,
        start=start.recipe,
        symptoms=bottlenecks(briefing),
        metrics={m.name: m.value for m in briefing.health.metrics if m.value is not None},
        components=briefing.components,
        knobs=briefing.knobs,
        offers=briefing.offers,
        score=search_score(briefing),
        evidence=RewardEvidence(stored, [*briefing.components, *(w.name for w in briefing.written)]),
        written=briefing.written,
        lacking=lacking(briefing),
        train_tasks=int(n) if (n := briefing.notes.get("train_tasks", "")).isdigit() else None,
    )


def candidate_pool(briefing: Briefing, tools: Tools, s: Situation, max_cost: float) -> list[CandidateMove]:
    """Every change of one factor that the run would train, was not trained yet, fits the budget and costs at most
    `max_cost` times the champion's training; what a human asked for may cost more."""
    seen = trained_hashes(briefing)
    found = chain(reward_candidates(s, seen), candidates(s, seen), reverts(s, seen))
    pool = affordable(_wanted_by_human(_unique(found), briefing.feedback), briefing)
    pool = pool if briefing.feedback else [c for c in pool if c.cost <= max_cost]
    return [c for c in pool if not tools.why_not({c.factor: c.variant.value})]


def _unique(found: Iterable[CandidateMove]) -> list[CandidateMove]:
    """One candidate per resulting recipe: the one with the better prior."""
    best: dict[str, CandidateMove] = {}
    for c in found:
        have = best.get(c.child.hash)
        if have is None or c.mean > have.mean:
            best[c.child.hash] = c
    return sorted(best.values(), key=lambda c: (c.name, c.child.hash))


def affordable(pool: Sequence[CandidateMove], briefing: Briefing) -> list[CandidateMove]:
    """Candidates of which at least one trial still fits the budget."""
    left = briefing.budget_left.get(briefing.cost_unit)
    return [c for c in pool if left is None or c.cost * briefing.trial_cost <= left]


def _wanted_by_human(pool: list[CandidateMove], feedback: str) -> list[CandidateMove]:
    """A human's REVISE: factors named up to four words after no / not / avoid / without are left out, those after
    only / try are the only ones kept. Other words change nothing here: what they want cannot be told from a list."""
    words = [w.strip(".,;:!?()'\"`").lower() for w in feedback.split()]
    factors = {c.factor for c in pool}
    unwanted: set[str] = set()
    wanted: set[str] = set()
    for i, w in enumerate(words):
        before = set(words[max(0, i - 4) : i])
        refused = {"no", "not", "avoid", "without", "never", "don't"} & before
        if not refused and not {"only", "try"} & before:
            continue
        for f in factors:
            names = fields_of(f) if refused else ()  # a refused field is refused in composite factors, too
            if w == family_of(f) or any(w in (x, x + "s", x.rstrip("s")) for x in (f, *names)):
                (unwanted if refused else wanted).add(f)
    left = [c for c in pool if c.factor not in unwanted and (not wanted or c.factor in wanted)]
    return left or pool
