"""Words for what the record names by a key: metrics, columns of learning curves, kinds of findings, noise."""

from __future__ import annotations

import re

from evotrainer.records.findings import HealthReport

METRICS = {
    "proxy_gap": "proxy gap (paid minus meant)",
    "avg@n": "share solved, mean over tasks",
    "pass@k": "tasks solved in k attempts",
    "pass_rate": "share solved by property of the task",
    "late_gain": "score gained in the last half of training",
    "frac_reward_zero_std": "zero-variance groups, share",
    "dead_fail": "groups in which every attempt failed, share",
    "dead_pass": "groups that every attempt solved, share",
    "dead_other": "zero-variance groups neither all failed nor all solved, share",
    "effective_groups": "groups that carry the gradient, participation ratio",
    "kept_groups": "groups trained on",
    "group_std": "standard deviation of the reward within groups",
    "misranked_pairs": "wrong attempts paid more than right ones, share of pairs",
    "paid_but_wrong": "attempts paid like right ones that are wrong, share",
    "ess": "effective sample size, share of the batch",
    "ratio_max": "largest importance ratio",
    "is_ratio_max": "largest importance ratio",
    "outside_band": "groups outside the difficulty band",
    "advantage_agreement": "advantages that point to the right attempts, share",
    "zero_advantage": "attempts with advantage 0, share",
    "negative_share": "share of the gradient that pushes down",
    "io_dependence": "answers that tell which prompt they answer, share",
    "edit_coverage": "attempts with an edit that works, share",
    "first_effective_edit": "place of the first edit that works",
    "tool_calls": "tool calls per attempt",
    "tool_failure_rate": "tool calls that failed, share",
}
"""Key -> what readers are told, where the key itself, without its marks, does not say it."""
RUN_FLOOR = "noise floor of the run"
"""From all trainings so far, at 95%."""
LOOK_FLOOR = "noise floor at this look"
"""At the confidence of a verdict's interim analysis, for its numbers of seeds: the one that decides."""
SEED_SD = "standard deviation between seeds"
"""Of the score of one training."""
FLOOR_MEANS = "two sets of trainings of one recipe differ by less"
_OF_COMPONENT = {
    "mean": "mean reward",
    "std": "standard deviation",
    "coverage": "share of attempts that earn it",
    "variance_share": "share of the reward's variance",
    "correlation": "correlation with the outcome",
}
_COMPONENT = re.compile(r"rewards/(.+)/(mean|std|coverage|variance_share|correlation)")
_READ = "harness: "


def metric(name: str) -> str:
    """A metric or column of a learning curve in words; of an unknown one its key without the marks of a key."""
    if name.startswith(_READ):
        return f"{metric(name.removeprefix(_READ))} (train, as the harness read it)"
    if name in METRICS:
        return METRICS[name]
    if found := _COMPONENT.fullmatch(name):
        return f"{found[1]}: {_OF_COMPONENT[found[2]]}"
    if name.startswith("pass@"):
        return f"tasks solved in {name[5:]} attempts, share"
    head, _, rest = name.partition("/")
    if head == "pass_rate" and rest:
        return f"share solved where {rest.replace('=', ' is ', 1)}"
    if head in ("tool_calls", "tool_failure_rate") and rest:
        return f"{rest}: {METRICS[head]}"
    return name.replace("/", ", ").replace("_", " ")


def undiagnosed(health: HealthReport) -> str:
    """What a diagnosis without a bottleneck says, with its metrics in words."""
    off = [metric(m.name) for m in health.metrics if not m.in_range]
    return f"No detector names a cause; outside the healthy range: {'; '.join(off)}." if off else health.undiagnosed


def kind(name: str) -> str:
    """A kind of finding, a detector or a gate in words."""
    return LOOK_FLOOR if name == "noise_floor" else name.replace("_", " ")
