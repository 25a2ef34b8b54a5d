"""`[trainer.options]` of the trl trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field

from evotrainer.records.frozen import Frozen, parsed
from evotrainer.trainers.lora import Lora


class TrlOptions(Frozen):
    """How a policy is trained and sampled, as far as no recipe speaks of it; the same for all branches of a run."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    chat: bool | Literal["auto"] = "auto"
    """Prompts and observations as messages of the policy's chat template. auto: where it has one."""
    chat_template_kwargs: dict[str, Any] = {}
    """Passed to the template, e.g. {enable_thinking = false}."""
    lora: Lora | None = None
    """None: all weights are trained."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Numbers of forward passes; weights in training are fp32 either way (frozen ones under adapters are not). auto:
    bfloat16 on a GPU that has it, else float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: the GPU of this process, if there is one."""
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    """Activations computed again in the backward pass. auto: on a GPU."""
    micro_batch: int | None = Field(None, ge=1)
    """Rollouts of one forward and backward pass on a device; must divide the step's. None: the largest divisor up to 16
    on a GPU, all of them on a CPU."""
    sample_batch: int = Field(256, ge=1)
    """Rollouts that Hugging Face generate samples together."""
    attention: str | None = None
    """Attention of transformers (sdpa, flash_attention_2, ...); None: its own choice."""
    vllm: bool = False
    """Sample with vLLM in the same process (colocated). Needs vllm and a GPU."""
    vllm_memory: float = Field(0.3, gt=0, lt=1)
    """Share of the GPU's memory that vLLM may take while training."""
    keep_tokens: bool = True
    """Token ids and log-probabilities of what the policy said, in every stored rollout."""
    trust_remote_code: bool = False
    """Run Python that a model's repository brings along."""
    config: dict[str, Any] = {}
    """Further fields of TRL's GRPOConfig; what the recipe or these options decide is refused."""


def parse(options: Mapping[str, Any]) -> TrlOptions:
    """ConfigError names each bad option and what it allows."""
    return parsed(TrlOptions, options, "trainer.options")
