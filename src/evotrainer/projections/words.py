"""Words for what the record names by a key: metrics, columns of learning curves, kinds of findings, noise."""

from __future__ import annotations

import re

from evotrainer.records.findings import HealthReport

METRICS = {
    "score": "score, share correct",
    "accuracy": "share of attempts solved",
    "reward": "reward",
    "proxy_gap": "proxy gap (paid minus meant)",
    "greedy_minus_sampled": "greedy minus sampled score",
    "avg@n": "share solved, mean over tasks",
    "pass@k": "tasks solved in k attempts",
    "pass_rate": "share solved by property of the task",
    "rewards": "mean of each reward component",
    "transition": "tasks kept, lost and gained against before",
    "transition/kept": "tasks solved before and now",
    "transition/lost": "tasks solved before, not now",
    "transition/gained": "tasks solved now, not before",
    "transition/unsolved": "tasks solved neither before nor now",
    "train_minus_search": "score on train minus search",
    "late_gain": "score gained in the last half of training",
    "frac_reward_zero_std": "zero-variance groups, share",
    "dead_fail": "groups in which every attempt failed, share",
    "dead_pass": "groups that every attempt solved, share",
    "dead_other": "zero-variance groups neither all failed nor all solved, share",
    "effective_groups": "groups that carry the gradient, participation ratio",
    "groups": "groups in the batch",
    "kept_groups": "groups trained on",
    "reward_std": "standard deviation of the reward",
    "group_std": "standard deviation of the reward within groups",
    "component_coverage": "how often each component is earned",
    "component_variance": "share of the reward's variance by component",
    "component_correlation": "correlation of each component with the outcome",
    "reward_correlation": "correlation of reward and outcome within groups",
    "misranked_pairs": "wrong attempts paid more than right ones, share of pairs",
    "paid_but_wrong": "attempts paid like right ones that are wrong, share",
    "error_rate": "attempts lost to infrastructure faults, share",
    "errors": "attempts lost to infrastructure faults",
    "entropy": "entropy, nats",
    "mean_logprob": "mean log-probability per token",
    "kl": "KL divergence, nats",
    "ess": "effective sample size, share of the batch",
    "ratio_max": "largest importance ratio",
    "is_ratio_max": "largest importance ratio",
    "clip_ratio/region_mean": "tokens clipped, share",
    "clip_ratio/low_mean": "tokens clipped below, share",
    "clip_ratio/high_mean": "tokens clipped above, share",
    "outside_band": "groups outside the difficulty band",
    "sampling/sampling_logp_difference/mean": "log-probability, trainer against sampler, mean difference",
    "sampling/sampling_logp_difference/max": "log-probability, trainer against sampler, largest difference",
    "advantage_std": "standard deviation of the advantages",
    "advantage_agreement": "advantages that point to the right attempts, share",
    "zero_advantage": "attempts with advantage 0, share",
    "negative_share": "share of the gradient that pushes down",
    "filter_keep_rate": "attempts that the filter keeps, share",
    "grad_norm": "gradient norm",
    "loss": "loss",
    "sft_loss": "loss on demonstrations",
    "lr": "learning rate",
    "learning_rate": "learning rate",
    "trained_rollouts": "rollouts trained on",
    "tokens": "tokens sampled",
    "num_tokens": "tokens seen",
    "step_time": "time of a step, s",
    "cpu_s": "CPU time, s",
    "cpu_sample_s": "CPU time of sampling, s",
    "cpu_grade_s": "CPU time of grading, s",
    "cpu_update_s": "CPU time of the update, s",
    "cpu_record_s": "CPU time of recording, s",
    "tokens_forward": "tokens passed forward only, prompts included",
    "tokens_trained": "tokens trained on, prompts included",
    "completions/mean_length": "length, tokens",
    "completions/min_length": "shortest answer, tokens",
    "completions/max_length": "longest answer, tokens",
    "completions/clipped_ratio": "answers cut at the token limit, share",
    "mean_length": "length, tokens",
    "tokens_p10": "length, 10th percentile, tokens",
    "tokens_p90": "length, 90th percentile, tokens",
    "turns": "turns per attempt",
    "mean_turns": "turns per attempt",
    "empty_rate": "empty answers, share",
    "tool_calls": "tool calls per attempt",
    "tool_failure_rate": "tool calls that failed, share",
    "edit_ratio": "actions that edit, share",
    "search_ratio": "actions that look around, share",
    "self_test_rate": "attempts that run tests, share",
    "edit_coverage": "attempts with an edit that works, share",
    "first_effective_edit": "place of the first edit that works",
    "search_before_edit": "attempts that look before they edit, share",
    "distinct_solutions": "distinct answers within groups, share",
    "solution_similarity": "similarity of answers within groups",
    "ngram_repetition": "repeated word sequences, share",
    "action_run": "longest run of one action, 90th percentile",
    "program_rate": "answers that are programs, share",
    "literal_overlap": "programs that hold a visible test's output, share",
    "reads_input": "programs that read their input, share",
    "io_dependence": "answers that tell which prompt they answer, share",
}
"""Key -> what readers are told."""
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
