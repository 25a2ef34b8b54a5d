"""Rows of the factors that say what is paid. Moves of reward components are made by `agents/rewards.py`, from what the
environment offers."""

from __future__ import annotations

from evotrainer.factors.signal import PLUGINS
from evotrainer.factors.table import Factor, Move, TrainerSupport, error, refused, symptoms_of, warning
from evotrainer.records.written import LABELS, MODULES

LENGTH, CLIPPED = "completions/mean_length", "completions/clipped_ratio"
"""Metrics, as the harness and TRL name them."""
IN_REWARD = "in the reward"
VERL_REWARD = TrainerSupport(note="in the reward function, on the tokens sampled", plugins="evo_reward.py")
REWARDS = (
    "object: component -> weight, all that is paid; one component added, removed, weighted otherwise or replaced; "
    "components: {components}"
)
WRITTEN = (
    "object of rewards (component -> weight) and written (name -> Python source); pay one component more, or in "
    "another's place, by its name without a hash. The source defines def reward(rollout), a pure function that "
    "answers a number from 0 to 1 or None; rollout is {turns: [{role, text, calls}], components: {name: value}, "
    "tests: [{kind: visible or perturbed (these where they failed), input, got, status, ...}]}; imports: "
    f"{', '.join(sorted(MODULES))}. Checked in the sandbox and backtested first: {', '.join(LABELS)}"
)
MENDS = (
    "proxy_gap special_casing false_revival constant_bonus edge_crash shortcut dead_training; grader_bypass "
    "dead_groups action_timidity abandonment efficiency_collapse length_gaming laziness"
)
"""What a change of the components that are paid may mend."""
FITS = symptoms_of(MENDS)

ROWS = (
    Factor(
        "rewards",
        names="reward_weights reward_funcs reward",
        lint=(
            error(
                lambda r: not any(r.rewards.values()),
                "no reward component has a weight: every advantage is 0; give one a weight",
            ),
            warning(
                lambda r: any(r.rewards.values()) and all(w <= 0 for w in r.rewards.values()),
                "all weights are negative: doing nothing is the optimum",
            ),
        ),
        legal=REWARDS,
        replay="advantages",
        embedded=True,
        trl=TrainerSupport({"reward_weights": None}, "the environment's components, weighted into one reward"),
        verl=TrainerSupport(
            {
                "reward.custom_reward_function.path": lambda r: f"{PLUGINS}.evo_reward",
                "reward.custom_reward_function.name": lambda r: "compute_score",
                "reward.reward_manager.source": lambda r: "importlib",
                "reward.reward_manager.name": lambda r: "EvoRewardManager",
                "reward.reward_manager.module.path": lambda r: f"{PLUGINS}.evo_reward",
            },
            "the environment's own components, weighted; a fault of the infrastructure is tried again, then the "
            "rollout is left out (never reward 0)",
            "evo_reward.py",
        ),
    ),
    Factor(
        "written",
        legal="changes with its weight, as written_reward",
        replay="advantages",
        embedded=True,
        trl="in the sandbox: components that the recipe holds as code",
        verl=refused(
            "reward functions that a recipe holds run in our sandbox only",
            "set it to none",
            lambda r: bool(r.written),
        ),
    ),
    Factor("written_reward", legal=WRITTEN, replay="advantages"),
    Factor(
        "length",
        lint=(
            warning(
                lambda r: r.length.kind != "none" and r.length.weight == 0,
                "length rule {r.length.kind} has weight 0: no effect",
            ),
            warning(
                lambda r: r.length.kind == "token_penalty" and r.length.weight * r.max_tokens > 1,
                "token penalty can outweigh correctness: known to collapse length",
            ),
        ),
        moves=(
            Move(
                "overlong_penalty",
                ({"kind": "overlong", "weight": 0.5, "soft": 0.75},),
                "a soft penalty near the limit stops growth without touching short answers",
                "length_gaming truncation",
            ),
            Move(
                "short_if_correct",
                ({"kind": "correct_bonus", "weight": 0.1, "soft": 0.75},),
                "only correct answers are paid for being short",
                "length_gaming",
            ),
        ),
        off="the length rule pays for stopping early, right or wrong",
        off_addresses="efficiency_collapse laziness; action_timidity abandonment false_revival",
        replay="advantages",
        embedded=True,
        trl=IN_REWARD,
        verl=VERL_REWARD,
    ),
    Factor(
        "repetition_penalty",
        moves=(
            Move(
                "repetition_penalty",
                (0.1, 0.2),
                "text that repeats itself is unlearnt once it costs reward",
                "echo_trap; length_gaming",
            ),
        ),
        off="the penalty makes spread that is not about the task",
        off_addresses="; false_revival",
        replay="advantages",
        embedded=True,
        trl=f"{IN_REWARD} (GRPOConfig's is a sampling rule, left at 1)",
        verl=VERL_REWARD,
    ),
)
