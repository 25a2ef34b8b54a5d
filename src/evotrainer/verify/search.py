"""Search trainings, and what a search ended with, computed again."""

from __future__ import annotations

from collections.abc import Iterator

from evotrainer.config.load import apply_overrides
from evotrainer.factors.change_rules import RECORDED, ProposedChange, why_not
from evotrainer.projections.branches import BASE
from evotrainer.projections.pooled import noise_of
from evotrainer.records.chain import Event
from evotrainer.rules.recipes import SHARES, continues
from evotrainer.verify.report import Problem, Record, check_list


def probes(record: Record, event: Event) -> Iterator[Problem]:
    """Each differs from the champion in what it declares, on a seed of its own; no more than the task file allows."""
    body, state, run = event.body, record.state_before(event), record.task.run
    yield from settled_on(record, event)
    champion = state.incumbent or BASE
    if body.incumbent != champion:
        yield Problem("probes", f"{event.id}: they differ from {body.incumbent}; the champion was {champion}")
    earlier = [p for p in state.probes.values() if p.round == body.round]
    raised = [o for e in record.before(event, "resumed") for o in e.body.overrides if o.startswith("run.probes=")]
    most = int(apply_overrides({}, raised)["run"]["probes"]) if raised else run.probes
    if len(earlier) + len(body.probes) > most:
        yield Problem("probes", f"{event.id}: more search trainings than run.probes={most}")
    used = {*run.seeds, *run.certify_seeds}
    known = {p.probe: (p.seed, p.recipe) for p in state.probes.values()}
    for p in body.probes:
        if p.recipe_hash != p.recipe.hash:
            yield Problem("probes", f"{p.probe}: recipe hash {p.recipe_hash} recorded, {p.recipe.hash} computed")
        alike = [r for seed, r in known.values() if seed == p.seed]
        shared = len(alike) < SHARES and any(continues(p.recipe, r) for r in alike)
        if p.seed in used or (alike and not shared) or p.recipe.hash in {r.hash for r in alike}:
            yield Problem("probes", f"{p.probe}: seed {p.seed} belongs to another training")
        known[p.probe] = p.seed, p.recipe
        parent = state.branches.get(body.incumbent)
        if parent:
            change = ProposedChange(parent.recipe, p.changes, run.changes, state.environment, p.recipe)
            if why := why_not(change, RECORDED):
                yield Problem("probes", f"{p.probe}: {why}")


def read_search_only(record: Record, event: Event) -> Iterator[Problem]:
    """A finished search training was read on the search split, and nothing else."""
    t = event.body
    others = sorted({s.split for s in t.scores} - {"search"})
    if t.branch in record.state.probes and others:
        yield Problem("probes", f"{t.trial}: a search training was read on {', '.join(others)}")


def settled_on(record: Record, event: Event) -> Iterator[Problem]:
    """What a control arm settled on was trained, and the score that speaks for it is one of that recipe's."""
    choice, state = event.body.choice, record.state_before(event)
    champion = state.branches.get(state.incumbent or BASE)
    if choice is None or champion is None:
        return
    own = champion.record().scores
    trained = {champion.recipe.hash: [sum(own) / len(own)] if own else []}
    for p in (p.record() for p in state.probes.values()):
        trained.setdefault(p.recipe.hash, []).extend([] if p.score is None else [p.score])
    scores = trained.get(champion.recipe.with_changes(choice.changes).hash)
    if scores is None:
        yield Problem(event.kind, f"{event.id}: the recipe that it settled on was never trained")
    elif choice.score is not None and not any(abs(choice.score - s) < 1e-9 for s in scores):
        yield Problem(event.kind, f"{event.id}: no training of that recipe scored {choice.score:.4f} on search")


def searched(record: Record, event: Event) -> Iterator[Problem]:
    """It names the round's probes, its noise is that of all search scores by then, and what it settled on was
    trained."""
    body, state = event.body, record.state_before(event)
    yield from settled_on(record, event)
    mine = [p.probe for p in state.probes.values() if p.round == body.round]
    yield from check_list("searched", event, "probes", body.probes, mine)
    if body.trainings:
        by_recipe: dict[str, list[float]] = {}
        for b in state.branches.values():
            by_recipe.setdefault(b.recipe.hash, []).extend(b.record().scores)
        probes = [p.record() for p in state.probes.values()]
        for p in probes:
            if p.score is not None and not p.invalid:
                by_recipe.setdefault(p.recipe.hash, []).append(p.score)
        again = round(noise_of(by_recipe.values()), 6)
        # a failed or questioned training counts as a loss whose size the agent chooses: its recipe tells no noise
        lost = [p.recipe.hash for p in probes if p.score is None or p.invalid]
        known = len(set(lost)) == len(lost) and not any(by_recipe.get(h) for h in lost)
        if known and body.noise_sd != again:
            yield Problem("searched", f"{event.id}: noise {body.noise_sd} in the ledger, {again} recomputed")
