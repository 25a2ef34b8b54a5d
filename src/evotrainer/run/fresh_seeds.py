"""The winner measured again: a promoted branch's gate effect on fresh seeds, which is the effect that is reported.

A branch is promoted because its seeds did well (and its control's perhaps badly), so its effect as selected is too large on
average. Fresh trainings of the same recipe know nothing of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from evotrainer.judge import effect, scores_of
from evotrainer.records.events import Reestimated, TrialFinished
from evotrainer.records.evidence import Effect

if TYPE_CHECKING:
    from evotrainer.executors.spec import EvalPlan, TrialSpec
    from evotrainer.run.context import Branch
    from evotrainer.run.loop import Loop

START = "b0"


class Reestimator:
    """Re-estimations of one run."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.loop.task.run.certify_seeds

    # -- certification's trainings ---------------------------------------------------------------------------------

    def certify_specs(self, b: Branch, cert: EvalPlan) -> list[TrialSpec]:
        """What certification still needs of a champion: fresh trainings that read cert as well, or where those were trained
        before, evaluations of their policies.
        """
        out = []
        for s in self.seeds:
            spec = self.loop.spec(b, s, "confirm", (cert,))
            known = self.loop.ledger.get(f"{spec.trial}/finished")
            if known is not None and all(x.split != "cert" for x in known.body.scores):
                spec = self.loop.eval_spec(f"{spec.trial}-cert", b, s, known.body.policy_path, (cert,), "certify")
            out.append(spec)
        return out

    # -- the effect ------------------------------------------------------------------------------------------------

    def promotion(self, b: Branch) -> None:
        """Right after a promotion, where the task file asks for it: branch and control trained on fresh seeds."""
        loop = self.loop
        if loop.task.judge.reestimate != "promotions" or b.parent is None:
            return
        if loop.ledger.get(f"{b.name}/reestimated") is None:
            loop.view.step(f"9 verify: {b.name} on fresh seeds")
            sides = (b, loop.branches[b.parent])
            loop.run_trials([loop.spec(x, s, "confirm") for s in self.seeds for x in sides])
        self.record(b)

    def record(self, b: Branch) -> Reestimated | None:
        """The effect on fresh seeds, from trainings there are; None for a starting recipe."""
        if b.parent is None:
            return None
        body: Reestimated = self.loop.record(f"{b.name}/reestimated", "reestimated", partial(self.measure, b))
        said = f"{100 * body.effect.mean:+.1f} points [{100 * body.effect.low:+.1f}, {100 * body.effect.high:+.1f}]"
        was = f", {100 * body.selected.mean:+.1f} at selection" if body.selected else ""
        self.loop.view.note(f"{b.name} on fresh seeds: {said} on gate{was}")
        self.loop.librarian.remeasure(b.name)
        return body

    def measure(self, b: Branch) -> Reestimated:
        """Fresh branch against its control, both with scores of the world in force now."""
        loop = self.loop
        control, start = loop.branches[b.parent or START], loop.branches[START]
        fresh = self.fresh(b)
        others = self.fresh(control)
        sides = [fresh, others or control.complete]
        if control is not start:
            sides.append(self.fresh(start) or start.complete)
        world = loop.auditor.world()
        evaluated = [
            loop.auditor.evaluations(_as(b, side), world) for b, side in zip((b, control, start), sides, strict=False)
        ]
        noise = loop.ledger.events("noise")[-1].id
        return reestimated(
            b.name,
            control.name,
            sides,
            evaluated,
            {e.id: e.body for e in loop.ledger.events("noise")},
            noise,
            selected=b.verdict.effect if b.verdict else None,
            control_fresh=bool(others),
            confidence=CONFIDENCE,
        )

    def fresh(self, b: Branch) -> list[TrialFinished]:
        """The branch's complete trainings on fresh seeds."""
        found = [self.loop.ledger.get(f"{b.name}-s{s}/finished") for s in self.seeds]
        return [e.body for e in found if e is not None and e.body.status == "complete"]


CONFIDENCE = 0.95


def reestimated(
    branch: str,
    control: str,
    sides: Sequence[Sequence[TrialFinished]],
    evaluated: Sequence[Sequence[TrialFinished]],
    noises: Mapping[str, Any],
    noise: str,
    *,
    selected: Effect | None,
    control_fresh: bool,
    confidence: float = CONFIDENCE,
    split: str = "gate",
) -> Reestimated:
    """The re-estimation from ledger bodies. `sides`: trials of branch, control, and of the starting recipe where that is
    not the control; `evaluated`: what stands in for their scores, per side, empty where nothing does.
    """
    from evotrainer.judge import closed_world

    scores = [scores_of(closed_world(s, e) if e else s, split) for s, e in zip(sides, evaluated, strict=True)]
    pooled = noises.get(noise)
    third = sides[2] if len(sides) > 2 else ()
    return Reestimated(
        branch=branch,
        control=control,
        split=split,
        effect=effect(scores[0], scores[1], pooled, confidence, names=(branch, control)),
        selected=selected,
        start=effect(scores[0], scores[2], pooled, confidence, names=(branch, START)) if third else None,
        seeds=tuple(sorted(scores[0])),
        control_fresh=control_fresh,
        trials=tuple(t.trial for t in sides[0]),
        control_trials=tuple(t.trial for t in sides[1]),
        start_trials=tuple(t.trial for t in third),
        evaluations=tuple(t.trial for e in evaluated for t in e),
        noise=noise,
    )


def again(recorded: Reestimated, events: Sequence[Any]) -> list[str]:
    """Numbers of a recorded re-estimation that the ledger's own bodies do not give again; empty where it holds."""
    finished = {e.body.trial: e.body for e in events if e.kind == "finished"}
    names = [x for x in (recorded.trials, recorded.control_trials, recorded.start_trials) if x]
    sides = [[finished[t] for t in x] for x in names]
    stand_ins = [finished[t] for t in recorded.evaluations]
    evaluated = [[e for e in stand_ins if (e.branch, e.seed) in {(t.branch, t.seed) for t in s}] for s in sides]
    fresh = reestimated(
        recorded.branch,
        recorded.control,
        sides,
        evaluated,
        {e.id: e.body for e in events if e.kind == "noise"},
        recorded.noise,
        selected=recorded.selected,
        control_fresh=recorded.control_fresh,
        confidence=recorded.effect.confidence,
        split=recorded.split,
    )
    out = []
    for name in ("effect", "start"):
        old, new = getattr(recorded, name), getattr(fresh, name)
        pairs = zip(old.model_dump().items(), new.model_dump().values(), strict=True) if old and new else ()
        out += [f"{name}.{k}: {x!r} in the ledger, {y!r} recomputed" for (k, x), y in pairs if abs(x - y) > 1e-9]
    return out


def _as(b: Branch, trials: Sequence[TrialFinished]) -> Branch:
    """The branch with other trials."""
    from dataclasses import replace

    return replace(b, trials=list(trials))
