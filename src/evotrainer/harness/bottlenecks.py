"""Bottleneck kinds: what a finding speaks of. Names of known failures of RL, and the recipe factors that may help."""

from __future__ import annotations

from dataclasses import dataclass

from evotrainer.factors import remedies

REMEDIES = 4
"""Factors that are named of a kind, at most."""


@dataclass(frozen=True, slots=True)
class BottleneckKind:
    about: str
    priority: float = 0.5
    """Rank among equally severe kinds, in [0, 1]: validity before signal before style."""


MOVED = "moved by "
"""What the explanation of an unexplained move says, its signed points after it."""
KINDS: dict[str, BottleneckKind] = {
    "answer_leak": BottleneckKind("the answer is read instead of found", 1.0),
    "test_tampering": BottleneckKind("tests or grader files are changed", 1.0),
    "grader_bypass": BottleneckKind("programs go for the grader instead of the task", 1.0),
    "dead_training": BottleneckKind("every advantage is 0: nothing is learnt", 0.95),
    "divergence": BottleneckKind("numbers of the training itself are no longer finite", 0.95),
    "infrastructure": BottleneckKind("faults of the infrastructure thin out the data", 0.9),
    "proxy_gap": BottleneckKind("what is rewarded is not what is wanted", 0.9),
    "special_casing": BottleneckKind("answers know the visible tests", 0.85),
    "edge_crash": BottleneckKind("programs pass what they are shown and crash on other inputs", 0.6),
    "policy_collapse": BottleneckKind("the policy is far worse than its start", 0.9),
    "entropy_collapse": BottleneckKind("the sampling distribution lost its spread", 0.6),
    "exploration_collapse": BottleneckKind("samples hardly differ", 0.6),
    "template_collapse": BottleneckKind("outputs no longer depend on the input", 0.7),
    "echo_trap": BottleneckKind("the same text or action over and over", 0.7),
    "efficiency_collapse": BottleneckKind("answers shrank and accuracy with them", 0.7),
    "length_gaming": BottleneckKind("length is rewarded, not correctness", 0.55),
    "truncation": BottleneckKind("answers hit the token budget", 0.55),
    "false_revival": BottleneckKind("reward spread comes from a component blind to correctness", 0.65),
    "constant_bonus": BottleneckKind("a paid component that nearly every rollout earns", 0.4),
    "dead_groups": BottleneckKind("groups without reward spread give no gradient", 0.6),
    "saturation": BottleneckKind("most groups are solved by every attempt", 0.45),
    "low_spread": BottleneckKind("rewards hardly differ within groups", 0.45),
    "action_timidity": BottleneckKind("looks around instead of acting", 0.5),
    "laziness": BottleneckKind("fewer actions and tests, no gain", 0.5),
    "abandonment": BottleneckKind("episodes are given up early or never end", 0.5),
    "tool_misuse": BottleneckKind("tool calls fail", 0.5),
    "off_policy_drift": BottleneckKind("trainer and sampler disagree", 0.6),
    "score_jump": BottleneckKind("the score jumped within a few steps: a leak, a broken grader or a skill found", 0.4),
    "sharpening": BottleneckKind(
        "the policy is sampled more narrowly, and hardly finds more right answers likeliest", 0.3
    ),
    "shortcut": BottleneckKind("a behaviour nobody had named came with the score", 0.5),
    "unexplained": BottleneckKind("the score moved and nothing in the harness says why", 0.3),
}


def factors_of(kind: str) -> tuple[str, ...]:
    """Recipe factors that may mend it, best answers first; the choice among them is the agent's."""
    return remedies(kind)[:REMEDIES]
