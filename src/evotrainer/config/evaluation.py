"""`[evaluation]` of a task file: how much is read of every policy, and under which sampling."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from evotrainer.records.frozen import Frozen
from evotrainer.records.recipe import Knob


class EvaluationProtocol(Frozen):
    """What every evaluation of the run samples under, where that is not what the starting recipe trains under."""

    temperature: float | None = Field(None, gt=0)
    """Of sampled readings; a recipe's own `deploy_temperature` goes before it. None: the starting recipe's."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Nucleus of sampled readings; None: the starting recipe's."""
    max_tokens: int | None = Field(None, ge=1)
    """Most tokens of an answer, of a turn where there are several; None: the starting recipe's."""
    max_turns: int | None = Field(None, ge=1)
    """Most turns of an episode; None: the starting recipe's."""
    knobs: dict[str, Knob] | None = None
    """Environment knobs, in place of all of the starting recipe's; None: those."""


class Evaluation(Frozen):
    """How large evaluations are. Each trained policy is evaluated on search and gate, certified ones on cert."""

    search_tasks: int | None = Field(None, ge=1)
    """Tasks of the search split that are read, which harness and agent may see; None: all."""
    search_attempts: int = Field(4, ge=1)
    """Sampled attempts per search task."""
    gate_tasks: int | None = Field(None, ge=1)
    """Tasks of the gate split that are read, on which the judge compares branches; None: all. More of them: a smaller
    standard error of every effect, up to the noise between seeds."""
    gate_attempts: int = Field(4, ge=1)
    """Sampled attempts per gate task."""
    cert_tasks: int | None = Field(None, ge=1)
    """Tasks of the cert split that are read, once, for the certificate; None: all."""
    cert_attempts: int = Field(4, ge=1)
    """Sampled attempts per cert task."""
    greedy: bool = True
    """Read every evaluation a second time by greedy decoding, one attempt per task: a gain that only the sampled
    reading shows is named sharpening (docs/judge.md). false: one reading, and nothing can be said of it."""
    draw: Literal["fresh", "fixed"] | Annotated[int, Field(ge=0)] = "fresh"
    """Where gate and cert tasks come from. fresh: every run draws its own, where the environment generates its tasks. A
    number: drawn from it, the same in all runs that give it. fixed: the environment's own, as sets that are given
    always are. The last two are sets that runs share: a later run on one has less alpha (docs/judge.md)."""

    protocol: EvaluationProtocol = EvaluationProtocol()

    @field_validator("draw", mode="before")
    @classmethod
    def _drawn(cls, v: Any) -> Any:
        if v not in ("fresh", "fixed") and not (isinstance(v, int) and not isinstance(v, bool) and v >= 0):
            raise ValueError("give fresh, fixed, or a number from 0 on")
        return v
