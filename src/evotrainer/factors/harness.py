"""Rows of the factors that say what the policy acts in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evotrainer.factors.signal import ROLLOUT
from evotrainer.factors.table import UNSET, Factor, Move, MoveContext, TrainerSupport, Variant, tag, warning

GIVEN = TrainerSupport(note="given to the environment")


def knob_values(text: str) -> list[Any]:
    """Allowed values of a knob from its description: comma-separated, up to the first `:`."""
    return [_literal(x.strip()) for x in text.split(":", 1)[0].split(",") if x.strip()]


def _literal(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def knobs(s: MoveContext) -> Iterator[Variant]:
    """Every other value of every knob; the first of its values is the default."""
    for name, text in sorted(s.knobs.items()):
        values = knob_values(text)
        now = s.recipe.knobs.get(name, values[0] if values else None)
        for v in values:
            if v != now:
                why = f"with {name} at {tag(now)} a shortcut may be open that {tag(v)} closes"
                yield Variant(v, f"{name}={tag(v)}", why, f"knobs.{name}")


ROWS = (
    Factor(
        "max_tokens",
        names="max_completion_length max_response_length response_length max_new_tokens",
        moves=(
            Move(
                "longer_budget",
                lambda s: [Variant(round(s.recipe.max_tokens * 1.5), "x1.5")],
                "cut-off answers score 0 whatever they held",
                "truncation",
            ),
        ),
        embedded=True,
        trl=TrainerSupport(
            # TRL's limit is of the whole completion, tool answers included; ours is per turn
            {"max_completion_length": lambda r: r.max_tokens * r.max_turns},
            "per turn; GRPOConfig's is max_tokens x max_turns",
        ),
        verl=TrainerSupport(
            {"data.max_response_length": None},
            "with several turns: max_tokens for each, and room for the observations between them "
            "(--observation-tokens)",
        ),
    ),
    Factor(
        "max_turns",
        names="max_tool_calling_iterations max_assistant_turns",
        moves=(
            Move(
                "more_turns",
                lambda s: [Variant(s.recipe.max_turns + 4, "+4")] if s.recipe.max_turns > 1 else [],
                "episodes end before the work is submitted",
                "abandonment; truncation",
            ),
            Move(
                "turn_cap",
                lambda s: [Variant(s.recipe.max_turns - 2, "-2")] if s.recipe.max_turns > 4 else [],
                "fewer turns leave no room for repetition",
                "echo_trap",
            ),
        ),
        embedded=True,
        trl=TrainerSupport(
            {"max_tool_calling_iterations": lambda r: r.max_turns - 1},
            "turns of the environment; tool calls of a TRL class: max_turns - 1",
        ),
        verl=TrainerSupport(
            {f"{ROLLOUT}.agent.default_agent_loop": lambda r: "evotrainer" if r.max_turns > 1 else UNSET},
            "more than one turn: the agent loop `evotrainer` plays our environment's episodes; observations carry "
            "no loss",
            "evo_agent.py",
        ),
    ),
    Factor(
        "deploy_temperature",
        lint=(
            warning(
                lambda r: r.deploy_temperature is not None and r.deploy_temperature < 0.1,
                "below 0.1 sampling is greedy in all but name",
            ),
            warning(
                lambda r: r.deploy_temperature is not None and r.deploy_temperature > 1.5,
                "above 1.5 the policy is used where it was never trained to be right",
            ),
        ),
        # no moves: the certificate offers it to every policy alike; a branch for it would sharpen one side only
        embedded=True,
        trl="of evaluations, by EvoTrainer's sampler; training does not see it",
        verl="of evaluations, which verl does not make",
    ),
    Factor(
        "knobs",
        moves=(
            Move(
                "environment_knob",
                knobs,
                "the environment leaves a shortcut open",
                "answer_leak test_tampering grader_bypass special_casing score_jump infrastructure shortcut; proxy_gap "
                "edge_crash",
            ),
        ),
        embedded=True,
        trl=GIVEN,
        verl=TrainerSupport(
            note="prompts are rendered with them; rewards and episodes use them", plugins="evo_reward.py"
        ),
    ),
    Factor(
        "scaffold",
        embedded=True,
        trl="given to the environment, which shows its tasks and tools in these texts",
        verl=TrainerSupport(note="prompts are rendered with it; episodes use it", plugins="evo_reward.py"),
    ),
)
