"""Harness evolution in a run: gaps are seen, detectors mined and admitted, audits settle them, versions recorded.

What a gap is, how contrasts are mined and what admission asks for is in `harness/` (gaps.py, mining.py, admission.py); here
rollouts of the run are split into what is mined and what is held out, and events written. Only search and train rollouts
are read. A version is never taken back: the next one drops what did not hold.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from evotrainer.errors import ConfigError, SandboxError
from evotrainer.projections.caveats import rising
from evotrainer.projections.lineage import BASE, Lineage
from evotrainer.records.events import GapSeen, HarnessEvolved, TrialFinished
from evotrainer.records.evidence import (
    OWN_TRIGGERS,
    Admission,
    DetectorSpec,
    Finding,
    Flip,
    HealthReport,
    Proposal,
    Quote,
)
from evotrainer.records.names import read_label
from evotrainer.run.shortcut_audits import findings

if TYPE_CHECKING:
    from evotrainer.harness import Harness
    from evotrainer.harness.columns.features import Views
    from evotrainer.harness.evolving.gaps import Gap
    from evotrainer.records.chain import Event
    from evotrainer.records.rollout import Rollout
    from evotrainer.run.context import Branch
    from evotrainer.run.loop import Loop

MOST_ADMITTED = 3
"""Detectors admitted for one gap."""
SILENT_ROUNDS = 3
"""Rounds in a row in which a detector fired never, or always, before it is retired."""
EDGE = 0.1
"""First and last share of a training's steps that stand for before and after, where a single seed moved."""
BINS = 8
"""Windows of a training that are read for the lead time, ..."""
WINDOW = 200
"""... and rollouts of each."""
PROTECTED = ("answer_leak", "test_tampering", "grader_bypass")
"""Built-in detectors of validity: no agent retires them."""


@dataclass
class Sides:
    """Rollouts of a contrast, by version: what is mined and what is held out."""

    bad: dict[str, Views] = field(default_factory=dict)
    clean: dict[str, Views] = field(default_factory=dict)
    held_bad: dict[str, Views] = field(default_factory=dict)
    held_clean: dict[str, Views] = field(default_factory=dict)
    steps: dict[str, list[tuple[int, Views]]] = field(default_factory=dict)
    damage: dict[str, int] = field(default_factory=dict)


class Evolver:
    """The harness versions of one run."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.runner = SandboxRunner(loop.task.sandbox.accept_tier_e)

    # -- versions --------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """h0 as the task file asks for it."""

        def opened() -> HarnessEvolved:
            h = self.loop.harness
            reason = "score layer only, as the task file asks" if not h.detectors else "all built-in detectors"
            return HarnessEvolved(
                version=h.version, hash=h.hash, harness=h.model_dump(mode="json"), trigger="opened", reason=reason
            )

        self.take(self.loop.record("harness/opened", "harness", opened))

    def recall(self, events: Sequence[Event]) -> None:
        """The last recorded version is in force."""
        for e in events:
            if e.kind == "harness":
                self.take(e.body)

    def take(self, body: HarnessEvolved) -> None:
        self.loop.harness = version_of(body)

    def for_trials(self) -> dict[str, Any]:
        """The version in force as trials read with it, empty for the default h0."""
        from evotrainer.harness import Harness

        h = self.loop.harness.plain
        return {} if h == Harness.default() else h.model_dump(mode="json")

    def evolve(
        self,
        at: str,
        n: int,
        trigger: str,
        reason: str,
        *,
        add: Sequence[DetectorSpec] = (),
        drop: Sequence[str] = (),
        standing: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """The next version, recorded once under `harness/<at>`, and in force from here on."""

        def made() -> HarnessEvolved:
            old = self.loop.harness
            named = {s.name: s for s in old.authored}
            moved = [named[k].model_copy(update={"standing": v}) for k, v in (standing or {}).items()]
            version = f"h{1 + sum(e.body.trigger != 'opened' for e in self.loop.ledger.events('harness'))}"
            new = old.evolve(version, drop=drop, authored=[*add, *moved])
            return HarnessEvolved(
                version=version,
                parent=old.version,
                hash=new.hash,
                round=n,
                harness=new.model_dump(mode="json"),
                trigger=trigger,
                reason=reason,
                added=tuple(add),
                dropped=tuple(drop),
                changed=dict(standing or {}),
                flips=tuple(self.flips(add)),
                **more,
            )

        body: HarnessEvolved = self.loop.record(f"harness/{at}", "harness", made)
        self.take(body)
        self.loop.view.note(f"harness {body.version} ({body.trigger}): {body.reason}")

    @property
    def names_used(self) -> set[str]:
        """Names of every authored detector there ever was."""
        used = {s.name for e in self.loop.ledger.events("harness") for s in e.body.added}
        return used | {a.detector.name for e in self.loop.ledger.events("gap") for a in e.body.considered}

    # -- gaps ------------------------------------------------------------------------------------------------------

    def review(self, n: int, names: Sequence[str]) -> None:
        """Look for gaps in branches that were just read; where the harness evolved, they are read again with it."""
        if not self.loop.task.run.evolve_harness:
            return
        branches = [b for name in names if (b := self.loop.branches[name]).complete and b.health]
        for b in branches:
            self.look(n, b)
        version = self.loop.harness.version
        for b in branches:
            if b.health and b.health.harness != version:
                b.health = self.loop.read(
                    f"{b.name}/read{self.loop.again(b)}/{version}", n, b.name, self.loop.collect(b.name)
                )

    def look(self, n: int, b: Branch) -> None:
        """One branch: its gap, if it has one, what was mined for it, and the version that followed."""
        key = f"gap/{b.name}"
        if self.loop.ledger.get(key) is None:
            seen = None if self.over(b) else self.examine(n, b)
            if seen is None:
                return
            self.loop.record(key, "gap", lambda: seen)
        event = self.loop.ledger.get(key)
        assert event is not None
        gap: GapSeen = event.body
        admitted = [a.detector for a in gap.considered if a.admitted]
        if not admitted:
            self.loop.view.note(f"gap in {b.name}: {gap.claim}; {gap.reason or 'no candidate was admitted'}")
            return
        reason = f"{b.name}: {gap.claim}; mined: {', '.join(s.name for s in admitted)}"
        self.evolve(
            f"{b.name}/gap",
            n,
            gap.trigger,
            reason,
            add=admitted,
            gap=key,
            branches=(b.name,),
            quotes=self.quotes(admitted, b),
            admissions=gap.considered,
        )

    def over(self, b: Branch) -> bool:
        """Was the branch judged, or given its version, before gaps were looked for? History is not looked at anew."""
        promoted = any(e.body.branch == b.name for e in self.loop.ledger.events("promoted"))
        return promoted or self.loop.ledger.get(f"{b.name}/judged") is not None

    def examine(self, n: int, b: Branch) -> GapSeen | None:
        """The gap of a branch against what it came from, with the candidates that contrast mining finds for it."""
        from evotrainer.harness.evolving.gaps import find_gap
        from evotrainer.harness.evolving.mining import mine, named

        against, before = self.before(b)
        now = {t.trial: self.search(t.trial) for t in b.complete}
        if not before or not all(map(len, now.values())):
            return None
        was = _joined(self.search(t.trial) for t in before)
        gap = find_gap(now, was, findings(b), self.pairs(b))
        if gap is None:
            return None
        self.loop.view.step(f"harness: {gap.trigger.replace('_', ' ')} of {b.name}")
        sides = self.sides(b, gap, before, now)
        mined = mine(_joined(sides.bad.values()), _joined(sides.clean.values()), self.differences(b, gap))
        standing = "suspect" if gap.up and self.closable(b) else "informational"
        considered: list[Admission] = []
        taken = self.names_used
        for c in mined.candidates:
            spec = named(c, taken).spec.model_copy(update={"standing": standing})
            taken.add(spec.name)
            a = self.admission(spec, sides, len(mined.candidates), [x.detector for x in considered if x.admitted])
            numbers = {"mined_bad": round(c.share_bad, 6), "mined_clean": round(c.share_clean, 6), "mined_p": c.p}
            considered.append(a.model_copy(update={"numbers": numbers | a.numbers}))
        reason = "" if considered else f"none of {mined.compared} predicates separates the two sides"
        return GapSeen(
            round=n,
            branch=b.name,
            against=against,
            trigger=gap.trigger,
            harness=self.loop.harness.version,
            claim=gap.claim,
            numbers={k: round(v, 6) for k, v in gap.numbers.items()},
            mined=(*sides.bad, *sides.clean),
            candidates=mined.compared,
            considered=tuple(considered),
            reason=reason,
        )

    def admission(
        self, spec: DetectorSpec, sides: Sides, together: int, admitted: Sequence[DetectorSpec] = ()
    ) -> Admission:
        """A detector's trial on the held-out sides, beside those in force and those admitted just now."""
        from evotrainer.harness.evolving.admission import admit

        if len(admitted) >= MOST_ADMITTED:
            why = f"{MOST_ADMITTED} better detectors were admitted for this gap already"
            return Admission(detector=spec, admitted=False, reason=why)
        return admit(
            spec,
            sides.held_bad,
            sides.held_clean,
            together=max(1, together),
            builtin=self.loop.harness.detectors,
            authored=[*self.loop.harness.authored, *admitted],
            runner=self.runner,
            spent=self.runner.spent,
            steps=sides.steps,
            damage=sides.damage,
        )

    def closable(self, b: Branch) -> bool:
        """Is a shortcut open in the branch's evaluations that an audit may close? Where none is, nothing can clear a suspect,
        so nothing is one."""
        return self.loop.task.judge.audit != "never" and any(
            not c.honest and self.loop.auditor.is_open(c, b) for c in self.loop.auditor.capabilities
        )

    def proxy_questioned(self, branch: str, trigger: str, gain: float) -> str:
        """The paid proxy component, where an audit has to compare it as well; else empty.

        Where only the proxy rose, the outcome cannot fall when the shortcut is closed; what was gained, the proxy, can.
        Who says so: a detector that was mined for a contradiction; a finding of a kind that parts the proxy from the
        truth; or no detector at all (before a promotion, a certificate), and the outcome is not above the reference's
        (`gain`, score units): then the proxy is all that training bought.
        """
        from evotrainer.harness.evolving.gaps import DIVERGED

        pair, b = self.loop.proxy(), self.loop.branches[branch]
        if pair is None or b.recipe.rewards.get(pair[0], 0) <= 0:
            return ""
        event = self.loop.ledger.get(f"gap/{branch}")
        said = event.body.considered if event and event.body.trigger == "contradiction" else ()
        mined = any(a.admitted and a.detector.name == trigger for a in said)
        parted = any(f.detector == trigger and f.kind in DIVERGED for f in findings(b))
        last = trigger in OWN_TRIGGERS and gain <= 0
        return pair[0] if mined or parted or last else ""

    # -- rollouts, mined and held out ------------------------------------------------------------------------------

    def search(self, trial: str) -> Views:
        from evotrainer.harness.columns.features import Views

        return Views(self.loop.load(trial, "search"))

    def before(self, b: Branch) -> tuple[str, list[TrialFinished]]:
        """What a branch is compared with: its parent, else the base policy, as evaluated in the branch's world."""
        world = b.complete[0].world
        for name in (b.parent, BASE):
            if name is None:
                continue
            trials: dict[int, TrialFinished] = {}
            for e in self.loop.ledger.events("finished"):
                t: TrialFinished = e.body
                known = t.branch == name and t.status == "complete" and any(s.split == "search" for s in t.scores)
                if (
                    known
                    and (t.seed in self.loop.task.run.seeds or name == BASE)
                    and self.loop.auditor.same(t.world, world)
                ):
                    trials.setdefault(t.seed, t)
            if trials:
                return name, [trials[s] for s in sorted(trials)]
        return "", []

    def sides(self, b: Branch, gap: Gap, before: Sequence[TrialFinished], now: Mapping[str, Views]) -> Sides:
        """Half of the moved seeds is mined and the others are held out; a single moved seed is held out by its steps."""
        out = Sides()
        moved = sorted(gap.moved)
        k = max(1, len(moved) // 2)
        out.bad = {f"{t} search": now[t] for t in moved[:k]}
        out.held_bad = {f"{t} search": now[t] for t in moved[k:]}
        old = [(f"{t.trial} search", self.search(t.trial)) for t in before]
        if len(old) == 1:
            old = [(f"{name}, {half} tasks", v) for name, whole in old for half, v in _halves(whole)]
        k = max(1, len(old) // 2)
        out.clean, out.held_clean = dict(old[:k]), dict(old[k:])
        if (
            before[0].branch != BASE
            and (base := self.loop.base)
            and self.loop.auditor.same(base.world, before[0].world)
        ):
            out.held_clean["base search"] = self.search("base")
        if before[0].branch == BASE:
            self.first_steps(b, out)
        watched = moved[k] if len(moved) > 1 and k < len(moved) else moved[-1]
        self.by_steps(b, watched, single=len(moved) == 1, out=out)
        return out

    def first_steps(self, b: Branch, out: Sides) -> None:
        """Every training begins with the base policy: what its first step sampled is one more clean version, where it was
        sampled in the world of the evaluations."""
        from evotrainer.harness.columns.features import Views

        if not self.loop.auditor.same(b.recipe.knobs, b.complete[0].world):
            return
        for t in b.complete:
            rollouts = self.loop.load(t.trial, "train")
            if rollouts:
                first = min(r.step for r in rollouts)
                out.held_clean[f"{t.trial} step {first}"] = Views([r for r in rollouts if r.step == first])

    def by_steps(self, b: Branch, trial: str, single: bool, out: Sides) -> None:
        """The training of one moved trial in windows, for the lead time; its ends are held out where it moved alone."""
        from evotrainer.harness.columns.features import Views
        from evotrainer.harness.evolving.mining import thin

        by_step: dict[int, list[Rollout]] = {}
        for r in self.loop.load(trial, "train"):
            by_step.setdefault(r.step, []).append(r)
        if len(by_step) < 4:
            return
        order = sorted(by_step)
        if single:
            edge = max(1, round(EDGE * len(order)))
            ends = {"first": order[:edge], "last": order[-edge:]}
            views = {k: Views([r for s in v for r in by_step[s]]) for k, v in ends.items()}
            out.held_bad[f"{trial} last {edge} steps"] = views["last"]
            out.held_clean[f"{trial} first {edge} steps"] = views["first"]
        width = max(1, len(order) // BINS)
        windows = [order[i : i + width] for i in range(0, len(order), width)]
        name = next((k for k in out.held_bad if read_label(k).trial == trial), "")
        finished = next((t for t in b.complete if t.trial == trial), None)
        if name and finished:
            out.steps[name] = [(w[-1], thin(Views([r for s in w for r in by_step[s]]), WINDOW)) for w in windows]
            if (at := rise_step(finished.curve)) is not None:
                out.damage[name] = at

    def pairs(self, b: Branch) -> list[tuple[str, str]]:
        """(paid, true) whose gap is watched: the environment's declaration, and what makes half of the pay against the
        outcome."""
        declared = self.loop.proxy()
        paid = {k: w for k, w in b.recipe.rewards.items() if w > 0}
        out = [declared] if declared else []
        heavy = [k for k, w in paid.items() if w >= sum(paid.values()) / 2 and (not declared or k not in declared)]
        return [*out, *((k, "outcome") for k in heavy)]

    def differences(self, b: Branch, gap: Gap) -> list[tuple[str, str]]:
        """Pairs of reward components whose disagreement may be mined: a paid one says yes, another one no."""
        paid = [k for k, w in b.recipe.rewards.items() if w > 0]
        named = [(k, other) for k in paid for other in self.loop.env.get("components", {}) if other != k]
        if (declared := self.loop.proxy()) and declared not in named:
            named.append(declared)
        return named

    # -- what an agent wants ---------------------------------------------------------------------------------------

    def edits(self, n: int, k: int, proposal: Proposal) -> None:
        """Detectors that an agent wrote or wants retired: the same admission, on trials the agent was not shown."""
        if not self.loop.task.run.evolve_harness:
            return
        for i, edit in enumerate(proposal.harness_edits):
            at = f"r{n}/edit/{i}" + (f"/{k}" if k else "")

            def tried(edit: Any = edit) -> GapSeen:
                sides, left_out = self.labelled()
                considered: list[Admission] = []
                for s in edit.add:
                    spec = s.model_copy(update={"standing": "suspect", "origin": "agent"})
                    if spec.name in self.names_used or spec.name in {a.detector.name for a in considered}:
                        why = f"the name {spec.name} was used in this run already; choose another"
                        considered.append(Admission(detector=spec, admitted=False, reason=why))
                        continue
                    so_far = [a.detector for a in considered if a.admitted]
                    a = self.admission(spec, sides, len(edit.add), so_far)
                    if gone := left_out.get(a.reason.removeprefix("no held-out ").partition(" ")[0]):
                        why = f"{a.reason}; the agent was shown {', '.join(gone)}"
                        a = a.model_copy(update={"reason": why})
                    considered.append(a)
                kept = {name: why for name in edit.retire if (why := self.unretirable(name))}
                return GapSeen(
                    round=n,
                    branch=self.loop.champion,
                    against="",
                    trigger="agent",
                    harness=self.loop.harness.version,
                    claim=edit.reason or "no reason given",
                    considered=tuple(considered),
                    reason="; ".join(f"{name} is not retired: {why}" for name, why in kept.items()),
                    kept=kept,
                )

            seen: GapSeen = self.loop.record(f"gap/{at}", "gap", tried)
            add = [a.detector for a in seen.considered if a.admitted]
            # ledgers of older versions name those that stay in the reason only
            said = "" if seen.kept else seen.reason
            drop = [x for x in edit.retire if x not in seen.kept and f"{x} is not retired" not in said]
            for a in seen.considered:
                self.loop.view.note(
                    f"detector {a.detector.name}: {'admitted' if a.admitted else 'refused'}: {a.reason}"
                )
            if add or drop:
                self.evolve(at, n, "agent", seen.claim, add=add, drop=drop, gap=f"gap/{at}", admissions=seen.considered)

    def unretirable(self, name: str) -> str:
        """Why an agent may not retire a detector; empty where it may."""
        h = self.loop.harness
        spec = h.detector(name)
        if spec is None and name not in h.detectors:
            return f"no detector of that name is in {h.version}"
        if name in PROTECTED or (spec and spec.standing != "informational"):
            return "it questions validity; only its own record retires it"
        return ""

    def labelled(self) -> tuple[Sides, dict[str, list[str]]]:
        """(the run's branches, trials left out because agents were shown them, by side `bad` and `clean`): bad branches are
        invalid, or moved without an explanation that an audit cleared. Each branch's first seed, which mining reads, is left out as well."""
        shown = {t for e in self.loop.ledger.events("proposed") for t in e.body.shown}
        left_out: dict[str, list[str]] = {"bad": [], "clean": []}
        tree = Lineage.from_events(self.loop.ledger.events())
        rising = rising_branches(self.loop.ledger.events())
        out = Sides()
        for name, b in self.loop.branches.items():
            audits = self.loop.auditor.audits_of(name)
            bad = name in tree.invalid or (name in rising and not audits)
            for t in b.complete[1:]:
                if t.trial in shown:
                    left_out["bad" if bad else "clean"].append(t.trial)
                    continue
                v = self.search(t.trial)
                (out.held_bad if bad else out.held_clean)[f"{t.trial} search"] = v
        if self.loop.base is not None:
            out.held_clean["base search"] = self.search("base")
        return out, left_out

    # -- what came of the detectors --------------------------------------------------------------------------------

    def settle(self, n: int, at: str = "") -> None:
        """After verdicts and audits: what an audit confirmed is marked, what it cleared only informs, what pays nothing is
        retired."""
        key = at or f"r{n}"
        if not self.loop.task.run.evolve_harness or self.settled_before(n, key):
            return
        changed, why = self.answered()
        for name, reason in self.silent(n).items():
            if name not in changed:
                why[name] = reason
        if not why:
            return
        drop = [name for name in why if name not in changed]
        trigger = "audit" if changed else "retirement"
        reason = "; ".join(f"{name} {text}" for name, text in why.items())
        branches = tuple(
            sorted({a.branch for e in self.loop.ledger.events("audited") if (a := e.body.audit).trigger in changed})
        )
        self.evolve(f"{key}/settled", n, trigger, reason, drop=drop, standing=changed, branches=branches)

    def settled_before(self, n: int, key: str) -> bool:
        """True where the run went on after this point without a new version: nothing is decided afterwards."""
        ledger = self.loop.ledger
        later = ledger.get("certified") if key == "end" else ledger.get(f"r{n + 1}/opened") or ledger.get("certified")
        return later is not None and ledger.get(f"harness/{key}/settled") is None

    def answered(self) -> tuple[dict[str, str], dict[str, str]]:
        """(detector -> new standing, detector -> why) of suspects whose branches were audited."""
        changed: dict[str, str] = {}
        why: dict[str, str] = {}
        for spec in self.loop.harness.authored:
            if spec.standing == "informational":
                continue
            on = [
                b
                for b in self.loop.branches.values()
                if any(f.detector == spec.name and f.validity and not f.missing for f in findings(b))
            ]
            audits = {b.name: self.loop.auditor.audits_of(b.name) for b in on}
            proven = [a for x in audits.values() for a in x if a.confirmed]
            cleared = [name for name, x in audits.items() if x and not any(a.confirmed for a in x)]
            if spec.standing == "suspect" and proven:
                a = next((a for a in proven if a.trigger == spec.name), proven[0])
                asked = a.trigger == spec.name
                changed[spec.name] = "confirmed" if asked else "informational"
                why[spec.name] = (
                    f"is confirmed: the audit of {a.branch} ({a.capability}) that it asked for found {100 * a.excess:+.1f} points"
                    if asked
                    else f"came with the shortcut that {a.trigger} found in {a.branch}, and only informs"
                )
            elif spec.standing == "suspect" and cleared:
                a = audits[cleared[0]][0]
                changed[spec.name] = "informational"
                why[spec.name] = (
                    f"is cleared: the audit of {a.branch} ({a.capability}) found no shortcut ({100 * a.excess:+.1f} points)"
                )
        return changed, why

    def silent(self, n: int) -> dict[str, str]:
        """Detectors that fired in none, or in all, of the last SILENT_ROUNDS rounds' readings; confirmed ones stay on guard."""
        born: dict[str, int] = {}
        for e in self.loop.ledger.events("harness"):
            born.update({s.name: e.body.round for s in e.body.added})
        read = [e for e in self.loop.ledger.events("diagnosed") if "/read" in e.id and not e.id.startswith(BASE)]
        out: dict[str, str] = {}
        for spec in self.loop.harness.authored:
            since = max(born.get(spec.name, 0), n - SILENT_ROUNDS)
            later = [
                e.body
                for e in read
                if since < e.body.round <= n and reads_with(e.body.health, self.versions_with(spec.name))
            ]
            if spec.standing == "confirmed" or len({d.round for d in later}) < SILENT_ROUNDS:
                continue
            fired = [any(f.detector == spec.name and not f.missing for f in d.health.findings) for d in later]
            if not any(fired):
                out[spec.name] = f"is retired: it fired on none of {len(fired)} branches in {SILENT_ROUNDS} rounds"
            elif all(fired):
                out[spec.name] = f"is retired: it fired on all of {len(fired)} branches in {SILENT_ROUNDS} rounds"
        return out

    def versions_with(self, name: str) -> set[str]:
        """Harness versions in which an authored detector is in force."""
        return {
            e.body.version
            for e in self.loop.ledger.events("harness")
            if any(s["name"] == name for s in e.body.harness.get("authored", ()))
        }

    # -- evidence --------------------------------------------------------------------------------------------------

    def quotes(self, specs: Sequence[DetectorSpec], b: Branch) -> tuple[Quote, ...]:
        """Rollouts of a branch that the new detectors flag."""
        rollouts = [r for t in b.complete for r in self.loop.load(t.trial, "search")]
        return tuple(q for f in read_with(specs, rollouts, self.runner) for q in f.quotes[:2])

    def flips(self, specs: Sequence[DetectorSpec]) -> list[Flip]:
        """Past verdicts that new suspects would have questioned before they were given."""
        out: list[Flip] = []
        suspects = [s for s in specs if s.standing == "suspect"]
        for v in self.loop.verdicts if suspects else ():
            b, control = self.loop.branches.get(v.branch), self.loop.branches.get(v.control)
            if v.kind not in ("promote", "reject", "inconclusive") or b is None or control is None:
                continue
            shown = {f.detector for f in read_with(suspects, self.loop.collect(control.name), self.runner)}
            for f in read_with(suspects, self.loop.collect(b.name), self.runner):
                if f.detector not in shown and v.kind == "promote":
                    would = (
                        "suspected: an audit decides"
                        if self.closable(b)
                        else "inconclusive: suspected, and nothing closes"
                    )
                    out.append(
                        Flip(branch=b.name, was=v.kind, would=would, detector=f.detector, share=f.numbers["share"])
                    )
        return out


class SandboxRunner:
    """Runs a Python detector's source in the sandbox, opened when it is first needed and closed after each use."""

    BLOCK = 100
    """Rollouts per call."""
    CPU_S = 2.0
    """CPU-seconds per call."""

    def __init__(self, accept_tier_e: bool = False) -> None:
        self.accept_tier_e = accept_tier_e
        self.cpu_s = 0.0

    def spent(self) -> float:
        """CPU-seconds of this process and of the functions that ran in the sandbox."""
        return time.process_time() + self.cpu_s

    def __call__(self, source: str, rollouts: list[dict[str, object]]) -> list[object]:
        """Answers of `flag`, block by block; ConfigError with the cause where one fails, SandboxError where the machine did."""
        from evotrainer.harness.columns.text import clean
        from evotrainer.sandbox import Call, Limits, Program, Sandbox

        out: list[object] = []
        before = time.process_time()
        limits = Limits(cpu_s=self.CPU_S, memory_mb=512, output_kb=256)
        with Sandbox.open(accept_tier_e=self.accept_tier_e) as box:
            opened = time.process_time() - before
            for i in range(0, len(rollouts), self.BLOCK):
                block = rollouts[i : i + self.BLOCK]
                try:
                    (result,) = box.run([Program(source=source, calls=(Call("flag", (block,)),), limits=limits)])
                except ValueError as e:  # a policy can write more turns than a function is handed at once
                    raise ConfigError(f"{len(block)} rollouts cannot be handed to flag(rollouts): {e}") from None
                self.cpu_s += result.cpu_s
                case = result.cases[0]
                said = clean(": ".join(case.error)) if case.error else "no message"
                if case.status == "sandbox":
                    raise SandboxError(
                        f"the sandbox broke while a detector ran ({said}); `evotrainer resume` tries again"
                    )
                if not case.ok:
                    raise ConfigError(
                        f"flag(rollouts) ended with {case.status} ({said}) on {len(block)} rollouts; mend its source"
                    )
                value = case.value
                if not isinstance(value, list) or len(value) != len(block):
                    what = f"{len(value)} values" if isinstance(value, list) else type(value).__name__
                    raise ConfigError(f"flag must return one bool per rollout, {len(block)} here; it returned {what}")
                out += value
        self.cpu_s -= opened  # the machinery's, not the detector's
        return out


def version_of(body: HarnessEvolved) -> Harness:
    """The harness as it was recorded."""
    from evotrainer.harness import Harness

    return Harness.model_validate(body.harness)


def read_with(specs: Iterable[DetectorSpec], rollouts: Sequence[Rollout], runner: Any) -> list[Finding]:
    """Findings of authored detectors alone."""
    from evotrainer.harness import Harness, HarnessContext

    if not rollouts:
        return []
    h = Harness(metrics=(), authored=tuple(specs))
    report: HealthReport = h.read(rollouts, "backtest", HarnessContext(sandboxed=runner))
    return [f for f in report.findings if not f.missing]


def reads_with(health: HealthReport, versions: set[str]) -> bool:
    return health.harness in versions


def rising_branches(events: Iterable[Event]) -> set[str]:
    """Branches with a gap in which something rose."""
    return {e.body.branch for e in events if e.kind == "gap" and rising(e.body)}


def rise_step(curve: Sequence[Mapping[str, float]]) -> int | None:
    """Training step at which the score has made half of its way up; None where it does not rise."""
    key = next((k for k in ("score", "accuracy", "reward") if curve and k in curve[0]), None)
    if key is None or len(curve) < 6:
        return None
    y = [row[key] for row in curve if key in row]
    edge = max(1, round(EDGE * len(y)))
    first, last = sum(y[:edge]) / edge, sum(y[-edge:]) / edge
    if last - first < 0.05:
        return None
    smooth = [sum(y[max(0, i - 2) : i + 1]) / len(y[max(0, i - 2) : i + 1]) for i in range(len(y))]
    return next((int(curve[i].get("step", i + 1)) for i, x in enumerate(smooth) if x >= (first + last) / 2), None)


def _joined(views: Iterable[Views]) -> Views:
    from evotrainer.harness.columns.features import Views

    return Views([r for v in views for r in v.rollouts])


def _halves(v: Views) -> list[tuple[str, Views]]:
    """Two halves of the tasks, by a hash of their names."""
    from evotrainer.harness.columns.features import Views

    rows: dict[str, list[Rollout]] = {"even": [], "odd": []}
    for r in v.rollouts:
        rows["odd" if crc32(r.task.encode("utf-8", "replace")) & 1 else "even"].append(r)
    return [(k, Views(x)) for k, x in rows.items()]


# -- what `verify` computes again --------------------------------------------------------------------------------------


def gap_problems(folder: Path, event: Event) -> list[str]:
    """Flagged shares of a gap's detectors that the stored rollouts do not give again. Python detectors are left out."""
    from evotrainer.harness.evolving.admission import pooled
    from evotrainer.harness.evolving.authored import flags

    out: list[str] = []
    views: dict[str, Views] = {}
    for a in event.body.considered:
        if a.detector.form == "python" or "share_bad" not in a.numbers:
            continue
        for side, names in (("share_bad", a.bad), ("share_clean", a.clean)):
            for name in names:
                if name not in views:
                    views[name] = named_views(folder, name)
            if empty := [name for name in names if not len(views[name])]:
                out.append(f"{a.detector.name}: no rollouts of {empty[0]}")
                continue
            of = {name: views[name] for name in names}
            share = pooled({name: flags(a.detector, v) for name, v in of.items()}, of)[0]
            if abs(share - a.numbers[side]) > 1e-5:
                out.append(
                    f"{a.detector.name}: {side} is {a.numbers[side]:.4f} in the ledger, {share:.4f} in the rollouts"
                )
    return out


def named_views(folder: Path, name: str) -> Views:
    """Rollouts of a version by the name that gaps and admissions give it: `b1-s2 search`, `base search, odd tasks`,
    `b1-s1 step 1`, `b1-s1 first 4 steps`."""
    from evotrainer.harness.columns.features import Views
    from evotrainer.records.store import load

    label = read_label(name)
    store = [folder / "rollouts" / label.trial]
    if label.step is None and not label.end:
        whole = Views(load(store, split="search"))
        return dict(_halves(whole))[label.half] if label.half else whole
    rollouts = load(store, split="train")
    steps = sorted({r.step for r in rollouts})
    chosen = steps[: label.steps] if label.end == "first" else steps[-label.steps :] if label.end else [label.step]
    return Views([r for r in rollouts if r.step in chosen])
