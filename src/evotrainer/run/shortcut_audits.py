"""Counterfactual audits in a run: which capability is questioned, the evaluations with it closed, what follows.

The loop's own, and those of `evotrainer audit-branch`, also long after a promotion. The judge's arithmetic is in
`judge/audits.py`; here trials are evaluated again and events written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import ConfigError
from evotrainer.judge import answers, closed_world, settle_audit
from evotrainer.judge.audits import CONFIDENCE
from evotrainer.judge.checks import findings_of
from evotrainer.projections.lineage import BASE, Lineage, last_audits
from evotrainer.records.events import Audited, Invalidated, TrialFinished
from evotrainer.records.evidence import Audit, Capability, Finding
from evotrainer.records.names import joined, slug

if TYPE_CHECKING:
    from evotrainer.executors.spec import TrialSpec
    from evotrainer.records.recipe import Recipe
    from evotrainer.run.context import Branch, Observer
    from evotrainer.run.loop import Loop

JUMP = "score_jump"
"""Detector whose finding asks for an explanation, whatever it may be: everything that can be closed is."""
SPLITS = ("search", "gate")
"""Evaluated with the capability closed: gate decides, search can be read."""


class Auditor:
    """The audits of one run."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    # -- what can be closed ----------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> list[Capability]:
        """What the environment declares."""
        return [Capability.model_validate(c) for c in self.loop.env.get("capabilities", ())]

    def world(self) -> dict[str, Any]:
        """Environment knobs of evaluations as they are now: the starting recipe's, with what was closed since."""
        return dict(self.loop.protocol_knobs())

    def in_force(self, c: Capability, world: Mapping[str, Any]) -> str:
        """Value of a capability's knob in a world, the environment's default where the world says nothing."""
        default = str(self.loop.env.get("knobs", {}).get(c.knob, "")).split(", ")[0]
        return str(world.get(c.knob, default))

    def is_open(self, c: Capability, b: Branch | None = None) -> bool:
        """Is it open in the evaluations as they are now, or as they were for a branch?"""
        world = b.complete[0].world if b and b.complete else self.world()
        return self.in_force(c, world) == str(c.open)

    def closed_names(self, world: Mapping[str, Any] | None = None) -> list[str]:
        """Capabilities that are closed in a world."""
        there = self.world() if world is None else world
        return sorted(c.name for c in self.capabilities if self.in_force(c, there) == str(c.closed))

    def offered(self, recipe: Recipe) -> dict[str, str]:
        """Environment knobs as agents see them: a shortcut that is closed in training is not offered for opening, nor what
        honest work uses for closing."""
        out = dict(self.loop.env["knobs"])
        for c in self.capabilities:
            if c.honest:
                out.pop(c.knob, None)
            if c.knob in out and not c.honest and self.in_force(c, recipe.knobs) != str(c.open):
                out[c.knob] = ", ".join(v for v in out[c.knob].split(", ") if v != str(c.open))
        return out

    def opened_by(self, parent: Recipe, child: Recipe) -> Capability | None:
        """The shortcut that a branch would open in training; None where it opens none."""
        for c in self.capabilities:
            before, after = (self.in_force(c, r.knobs) for r in (parent, child))
            if not c.honest and before != str(c.open) == after:
                return c
        return None

    # -- which branch is questioned --------------------------------------------------------------------------------

    def questioned(self, b: Branch) -> list[tuple[Capability, str]]:
        """Open capabilities that a finding of the branch asks about, with the detector."""
        out: list[tuple[Capability, str]] = []
        seen = [f for f in findings(b) if f.severity != "info"]
        for c in self.capabilities:
            if not self.is_open(c):
                continue
            asks = (
                f.detector
                for f in seen
                if (f.validity and c.answers(f.kind)) or (f.severity == "critical" and f.kind in c.kinds)
            )
            trigger = "" if c.honest else next(asks, "")
            jumped = not c.honest and any(f.detector == JUMP for f in seen)
            if trigger or jumped:
                out.append((c, trigger or JUMP))
        return out

    def examine(self, n: int, b: Branch) -> list[Audit]:
        """Audit what the branch's findings question; all audits of the branch there are."""
        if self.loop.task.judge.audit != "never":
            for c, trigger in self.questioned(b):
                self.audit(n, b, c, trigger)
        return self.audits_of(b.name)

    def everything(self, n: int, b: Branch, trigger: str) -> list[Audit]:
        """Audit every open shortcut (those that honest work uses aside); all audits of the branch there are."""
        if self.loop.task.judge.audit == "promotions":
            for c in self.capabilities:
                if self.is_open(c) and not c.honest:
                    self.audit(n, b, c, trigger)
        return self.audits_of(b.name)

    def audits_of(self, branch: str) -> list[Audit]:
        """Recorded audits of a branch, the last of each capability."""
        return last_audits(self.loop.ledger.events("audited"), branch)

    def answered(self, b: Branch, audits: Sequence[Audit]) -> dict[str, bool]:
        """Detector -> confirmed or cleared, for the judge."""
        closed = [*self.closed_names(), *(a.capability for a in audits)]  # judged with what was audited closed
        return answers(findings(b), self.capabilities, audits, closed)

    # -- evaluations with a capability closed ----------------------------------------------------------------------

    def audit(self, n: int, b: Branch, c: Capability, trigger: str) -> Audit:
        """The recorded audit of a branch, made first where there is none, or none of the seeds that were added since."""
        made: list[Audit] = [e.body.audit for e in self.loop.ledger.events("audited")]
        made = [a for a in made if (a.branch, a.capability) == (b.name, c.name)]
        for known in made:
            if known.confirmed or len(known.trials) >= len(b.complete):
                return known
        key = f"{b.name}/audited/{slug(c.name)}" + (f"/{len(made) + 1}" if made else "")
        self.loop.view.step(f"audit {b.name} with {c.name} closed ({trigger})")
        base = self.loop.base
        if base is None or not b.complete:
            raise ConfigError(f"{b.name} has no finished trial to audit; finish the run: evotrainer resume")
        reference = _as_branch(base)
        opened, closed = self.world() | {c.knob: c.open}, self.world() | {c.knob: c.closed}
        # one call, so that all cores have work
        self.loop.run_trials([x for w in (opened, closed) for y in (b, reference) for x in self.specs(y, w)])

        def audited() -> Audited:
            scored = [self.scored(x, w) for x in (b, reference) for w in (opened, closed)]
            least = self.loop.task.judge.min_effect
            settled = settle_audit(b.name, c, trigger, *scored, min_effect=least)
            gain = settled.score_open - settled.reference_open
            if proxy := self.loop.evolver.proxy_questioned(b.name, trigger, gain):
                both = [
                    settle_audit(
                        b.name, c, trigger, *scored, min_effect=least, confidence=1 - (1 - CONFIDENCE) / 2, measure=m
                    )
                    for m in ("", proxy)
                ]
                settled = next((a for a in both if a.confirmed), both[1])
            named = {
                "trials_open": self.names(b, opened),
                "trials": self.names(b, closed),
                "reference_trials_open": self.names(reference, opened),
                "reference_trials": self.names(reference, closed),
            }
            return Audited(round=n, audit=settled.model_copy(update=named))

        audit: Audit = self.loop.record(key, "audited", audited).audit
        self.loop.view.note(f"audit {audit.verdict.replace('_', ' ')}: {audit.reason}")
        return audit

    def scored(self, b: Branch, world: Mapping[str, Any]) -> list[TrialFinished]:
        """The branch's complete trials with their gate scores in a world, evaluated there first where they were not."""
        evaluations = self.evaluations(b, world)
        return closed_world(b.complete, evaluations) if evaluations else list(b.complete)

    def evaluations(self, b: Branch, world: Mapping[str, Any]) -> list[TrialFinished]:
        """Evaluations that stand in for the trials' own gate scores; none where those are of this world."""
        specs = self.specs(b, world)
        return self.loop.run_trials(specs) if specs else []

    def names(self, b: Branch, world: Mapping[str, Any]) -> tuple[str, ...]:
        """Trials that hold the branch's scores in a world."""
        return tuple(t.trial for t in self.evaluations(b, world) or b.complete)

    def specs(self, b: Branch, world: Mapping[str, Any]) -> list[TrialSpec]:
        """What is to be evaluated so that the branch has scores of this world; nothing where it has them."""
        if all(self.same(t.world, world) for t in b.complete):
            return []
        plans = [p for s in SPLITS if (p := self.loop.plan_eval(s))]
        closed = self.closed_names(world)
        return [
            self.loop.eval_spec(
                f"{t.trial}-{'closed-' + joined(closed, [c.name for c in self.capabilities]) if closed else 'open'}",
                None if b.name == BASE else b,
                t.seed,
                t.policy_path,
                plans,
                "audit",
                world=world,
            )
            for t in b.complete
        ]

    def same(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
        """Do two worlds differ in no capability?"""
        return all(self.in_force(c, a) == self.in_force(c, b) for c in self.capabilities)

    # -- what follows ----------------------------------------------------------------------------------------------

    def invalidate(self, audit: Audit) -> Invalidated:
        """The branch and its descendants lose their standing; the last valid version is champion again.

        From here on every evaluation of the run has the capability closed.
        """
        loop = self.loop
        tree = Lineage.from_events(loop.ledger.events())
        descendants = tree.descendants(audit.branch)
        lost = {audit.branch, *descendants, *tree.invalid}
        valid = [v.branch for v in tree.versions if v.branch not in lost]
        body: Invalidated = loop.record(
            f"{audit.branch}/invalidated",
            "invalidated",
            partial(
                Invalidated,
                branch=audit.branch,
                descendants=tuple(descendants),
                reason=audit.reason,
                champion=valid[-1] if valid else BASE,
                capability=audit.capability,
            ),
        )
        loop.closed[audit.knob] = audit.closed
        loop.champion = body.champion
        loop.librarian.withdraw((body.branch, *body.descendants))
        fallen = ", ".join((body.branch, *body.descendants))
        loop.view.note(f"invalid: {fallen}; {audit.capability} stays closed; champion {body.champion}")
        return body

    def settle(self, audits: Sequence[Audit]) -> bool:
        """Invalidate what is confirmed; True where anything was."""
        confirmed = [a for a in audits if a.confirmed]
        if confirmed:
            self.invalidate(confirmed[0])
            for a in confirmed[1:]:
                self.loop.closed[a.knob] = a.closed
        return bool(confirmed)


def findings(b: Branch) -> tuple[Finding, ...]:
    """Findings of a branch's own reading, and what its trials' readings say of validity."""
    return (*(b.health.findings if b.health else ()), *findings_of(b.complete))


def _as_branch(base: TrialFinished) -> Branch:
    """The base policy in a branch's clothes."""
    from evotrainer.records.recipe import Recipe
    from evotrainer.run.context import Branch

    return Branch(BASE, None, 0, Recipe(), trials=[base])


def audit_branch(
    folder: Path, branch: str, capabilities: Sequence[str] = (), view: Observer | None = None
) -> tuple[list[Audit], Lineage]:
    """Audit a branch of a run that stands still; `capabilities` empty: every shortcut that its evaluations leave open.

    Returns its audits and the lineage after them. ConfigError for a branch or capability that is not there.
    """
    from evotrainer import api
    from evotrainer.records.ledger import Ledger

    run = api.open_run(folder)
    with contextlib.closing(Ledger.open(folder / "ledger.db")) as ledger, contextlib.ExitStack() as stack:
        loop = api.make_loop(folder, run.task, ledger, view=view)
        stack.callback(loop.executor.close)
        loop.recall()
        if branch not in loop.branches:
            known = ", ".join(loop.branches) or "none yet"
            raise ConfigError(f"no branch {branch!r} in {folder}; there are: {known}")
        auditor = loop.auditor
        every = {c.name: c for c in auditor.capabilities}
        if unknown := [n for n in capabilities if n not in every]:
            known = ", ".join(every) or "none: its environment declares nothing that can be closed"
            raise ConfigError(f"no capability {unknown[0]!r}; there are: {known}")
        chosen = [every[n] for n in capabilities] or [
            c for c in every.values() if not c.honest and auditor.is_open(c, loop.branches[branch])
        ]
        if not chosen:
            raise ConfigError(
                f"nothing to audit: every capability was closed in the evaluations of {branch}; there are: "
                f"{', '.join(every) or 'none'}"
            )
        audits = [
            auditor.audit(
                max((e.body.round for e in ledger.events("round")), default=0), loop.branches[branch], c, "asked"
            )
            for c in chosen
        ]
        if branch not in Lineage.from_events(ledger.events()).invalid:
            auditor.settle(audits)
        return audits, Lineage.from_events(ledger.events())
