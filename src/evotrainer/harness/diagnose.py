"""Findings ranked into bottlenecks: rules that combine the layers.

Every kind with a finding of severity `warn` or `critical` becomes one bottleneck. Its base score comes from severity,
excess over the threshold and the kind's priority; then each rule may raise, lower, explain or fold bottlenecks. The
method's central rule: evidence of the score layer alone is never enough for the top of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from evotrainer.harness.bottlenecks import KINDS, MOVED, BottleneckKind
from evotrainer.harness.context import HarnessContext
from evotrainer.harness.registry import DETECTORS
from evotrainer.records.findings import Bottleneck, Finding, MetricValue

SEVERITY = {"info": 0.0, "warn": 0.35, "critical": 0.65}
SCORE_ONLY_CAP = 0.5


@dataclass
class BottleneckDraft:
    """A bottleneck while the rules work on it."""

    name: str
    score: float
    findings: list[Finding]
    remarks: list[str] = field(default_factory=list)

    @property
    def layers(self) -> set[str]:
        return {DETECTORS[f.detector].layer for f in self.findings if f.detector in DETECTORS}

    def add(self, delta: float, remark: str) -> None:
        self.score += delta
        self.remarks.append(remark)


@dataclass(frozen=True)
class Diagnosis:
    """All that the rules see; they edit `drafts` in place."""

    drafts: dict[str, BottleneckDraft]
    metrics: Mapping[str, MetricValue]
    context: HarnessContext

    def value(self, name: str) -> float | None:
        m = self.metrics.get(name)
        return m.value if m else None

    def fold(self, part: str, whole: str, delta: float, remark: str) -> None:
        """Make one bottleneck evidence of another; nothing happens unless both are there."""
        if part in self.drafts and whole in self.drafts:
            self.drafts[whole].findings += self.drafts.pop(part).findings
            self.drafts[whole].add(delta, remark)


Rule = Callable[[Diagnosis], None]
RULES: list[Rule] = []


def rule(f: Rule) -> Rule:
    """Register a rule; rules run in order of registration."""
    RULES.append(f)
    return f


def diagnose(
    metrics: Mapping[str, MetricValue], findings: Sequence[Finding], context: HarnessContext | None = None
) -> tuple[Bottleneck, ...]:
    """Ranked bottlenecks, worst first; empty where nothing is wrong."""
    case = Diagnosis(_drafts(findings), metrics, context or HarnessContext())
    for r in RULES:
        r(case)
    ranked = sorted(case.drafts.values(), key=lambda d: (-d.score, d.name))
    return tuple(
        Bottleneck(
            name=d.name,
            score=round(min(1.0, max(0.0, d.score)), 4),
            explanation=_explain(d),
            findings=tuple(dict.fromkeys(f.detector for f in d.findings)),
        )
        for d in ranked
    )


def _drafts(findings: Sequence[Finding]) -> dict[str, BottleneckDraft]:
    out: dict[str, BottleneckDraft] = {}
    for f in findings:
        if f.severity == "info":
            continue
        # severity leads (0.35, 0.65); priority and excess, 0.3 together, order within it: no warning starts above a
        # critical finding
        score = SEVERITY[f.severity] + 0.2 * _kind(f.kind).priority + 0.1 * _excess(f)
        d = out.setdefault(f.kind, BottleneckDraft(f.kind, 0.0, []))
        d.findings.append(f)
        d.score = max(d.score, score)
    return out


def _kind(name: str) -> BottleneckKind:
    return KINDS.get(name) or BottleneckKind(name)


def _excess(f: Finding) -> float:
    """How far beyond its threshold a finding's main number lies, in [0, 1]."""
    limit = f.thresholds.get("critical", f.thresholds.get("warn"))
    if limit is None or not f.numbers:
        return 0.5
    # detectors put the number that they compare first
    x = next(iter(f.numbers.values()))
    scale = max(abs(limit), 1e-9)
    return min(1.0, max(0.0, abs(x - limit) / (abs(x - limit) + scale)))


def _explain(d: BottleneckDraft) -> str:
    """Kind, claims, remarks, and where remedies lie."""
    kind = _kind(d.name)
    sentences = [kind.about + "".join(f"{': ' if i == 0 else '; '}{f.claim}" for i, f in enumerate(d.findings))]
    return ". ".join([*sentences, *(f"{r[0].upper()}{r[1:]}" for r in d.remarks)])


@rule
def validity_comes_first(case: Diagnosis) -> None:
    """A leaked or forged score cannot be judged by any other number."""
    for d in case.drafts.values():
        if any(f.validity for f in d.findings):
            worst = any(f.validity and f.severity == "critical" for f in d.findings)
            d.score = 1.0 if worst else max(d.score, 0.8)
            d.remarks.append("until it is ruled out, no score of this branch means anything")


@rule
def a_jump_has_its_cause(case: Diagnosis) -> None:
    """A score that jumped together with a leak, changed tests or a bypass: the jump is what it earned."""
    for cause, what in (
        ("answer_leak", "the answer is read"),
        ("test_tampering", "tests are changed"),
        ("grader_bypass", "the grader is bypassed"),
        ("special_casing", "visible tests are special-cased"),
    ):
        case.fold("score_jump", cause, 0.05, f"the score jumped, and {what}: explain the jump before anything else")
    if jump := case.drafts.get("score_jump"):
        jump.remarks.append("read rollouts from before and after the jump: nothing else explains it yet")


FOLDS = (
    ("edge_crash", "proxy_gap", 0.05, "the reward never sees the inputs on which these programs crash"),
    ("constant_bonus", "false_revival", 0.0, "the same component is nearly constant"),
    ("dead_groups", "dead_training", 0.1, "no group has reward spread"),
    ("saturation", "dead_training", 0.0, "every group is solved"),
    ("low_spread", "dead_groups", 0.02, "the live groups have little spread, too"),
    ("truncation", "length_gaming", 0.05, "answers already hit the budget"),
    ("entropy_collapse", "echo_trap", 0.1, "entropy falls with it"),
    ("exploration_collapse", "echo_trap", 0.05, "samples no longer differ"),
    ("exploration_collapse", "entropy_collapse", 0.05, "samples no longer differ"),
)
"""(symptom, its cause, what it adds to the score, remark), in this order: a bottleneck that is folded is gone for the
next row."""


@rule
def a_symptom_is_evidence_of_its_cause(case: Diagnosis) -> None:
    """Two readings of one failure are one bottleneck."""
    for row in FOLDS:
        case.fold(*row)


@rule
def special_casing_explains_a_proxy_gap(case: Diagnosis) -> None:
    """Special-cased tests and the gap corroborate each other; the larger share names the bottleneck."""
    gap, special = case.drafts.get("proxy_gap"), case.drafts.get("special_casing")
    if gap is None or special is None:
        return
    share = max((f.numbers.get("share", 0.0) for f in special.findings), default=0.0)
    size = max((f.numbers.get("gap", f.numbers.get("gap_change", 0.0)) for f in gap.findings), default=0.0)
    if share >= size / 2:
        case.fold("proxy_gap", "special_casing", 0.1, "it explains most of the gap between proxy and truth")
    else:
        gap.add(0.03, "part of it are special-cased visible tests")


@rule
def a_widening_gap_is_worse(case: Diagnosis) -> None:
    """The gap's size and its slope over training are two readings of one failure."""
    gap = case.drafts.get("proxy_gap")
    if gap and {"proxy_divergence", "proxy_slopes"} <= {f.detector for f in gap.findings}:
        gap.add(0.05, "training widens it")


@rule
def a_proxy_without_weight_misleads_nobody(case: Diagnosis) -> None:
    """The gap is there, but the recipe pays something else: a warning to readers of the proxy, no cause to act."""
    gap = case.drafts.get("proxy_gap")
    weights, pair = case.context.weights, case.context.proxy
    if gap and weights is not None and pair is not None and not weights.get(pair[0], 0.0) > 0:
        gap.add(-0.25, "the recipe does not pay the proxy, so training is not misled by it")


@rule
def a_paid_proxy_saturates_early(case: Diagnosis) -> None:
    """Groups count as solved because the proxy says so: the gap is the cause, the saturation its symptom."""
    gap, full = case.drafts.get("proxy_gap"), case.drafts.get("saturation")
    accuracy = case.value("accuracy")
    if gap and full and accuracy is not None and accuracy < 0.9:
        full.add(-0.2, "part of the groups that look solved are not")


@rule
def collapse_shows_in_the_other_layers(case: Diagnosis) -> None:
    """A fallen score with its mechanism named: the mechanism is the bottleneck to work on."""
    fall = case.drafts.get("policy_collapse")
    if fall is None:
        return
    for name in ("entropy_collapse", "echo_trap", "template_collapse", "efficiency_collapse", "off_policy_drift"):
        if d := case.drafts.get(name):
            d.add(0.15, "accuracy fell below the start policy's")
            fall.findings += d.findings


@rule
def score_alone_is_never_enough(case: Diagnosis) -> None:
    """A bottleneck known from the score layer only is capped, unless it compares two scores of the same rollouts."""
    for d in case.drafts.values():
        if d.layers == {"score"} and not any("gap" in f.numbers or "gap_change" in f.numbers for f in d.findings):
            if d.score > SCORE_ONLY_CAP:
                d.score = SCORE_ONLY_CAP
            d.remarks.append("only the score says so: no signal or behaviour corroborates it yet")


@rule
def a_moved_score_wants_an_explanation(case: Diagnosis) -> None:
    """Accuracy moved by more than 3 standard errors against the last reading and no finding says why: a diagnostic
    gap."""
    if not case.context.previous or case.drafts:
        return
    last = next((m for m in case.context.previous[-1].metrics if m.name == "accuracy"), None)
    now = case.metrics.get("accuracy")
    if last is None or now is None or last.value is None or now.value is None:
        return
    error = ((last.se or 0.0) ** 2 + (now.se or 0.0) ** 2) ** 0.5
    move = now.value - last.value
    if error > 0 and abs(move) > 3 * error and abs(move) > 0.03:
        text = f"accuracy {MOVED}{100 * move:+.1f} points since the last reading; no detector has a finding"
        case.drafts["unexplained"] = BottleneckDraft("unexplained", 0.3, [], [text])
