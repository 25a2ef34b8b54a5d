"""Low-rank adapters, as both local trainers are asked for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from evotrainer.records.frozen import Frozen

MODULES = {
    "q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn",
    "gate_proj": "mlp", "up_proj": "mlp", "down_proj": "mlp",
}  # fmt: skip
"""Name of a projection of a Llama-like layer -> the part of the layer that it is in."""


class Lora(Frozen):
    """Low-rank adapters (peft) in place of all weights."""

    r: int = Field(16, ge=1)
    alpha: int | None = Field(None, ge=1)
    """Scale of the update is alpha / r; None: 2 r."""
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of the modules that get an adapter; never the LM head, from which log-probabilities are computed."""

    def numbers(self, shapes: Mapping[str, Sequence[int]]) -> int:
        """How many numbers the adapters of a model have. `shapes`: of its tensors, by name."""
        targets = MODULES if self.targets == "all-linear" else self.targets
        lain_upon = (
            s for name, s in shapes.items() if len(s) == 2 and name.removesuffix(".weight").endswith(tuple(targets))
        )
        return sum(self.r * (a + b) for a, b in lain_upon)
