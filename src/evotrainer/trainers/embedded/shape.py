"""Shape of an embedded policy and its Hugging Face configuration.

Three layouts of one decoder: Llama's; Qwen3's, which is Llama's with a norm on the queries and keys of each head; and
Granite's, Llama's with an embedding multiplier, in which our own policies are stored. Other Granite models are refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evotrainer.errors import TrainerError
from evotrainer.records.regular_file import read_text

ARCHITECTURES = {"granite": "GraniteForCausalLM", "llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""`model_type` of a config.json -> class of transformers."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes of the decoder. The defaults make about 0.8 M parameters with a vocabulary of 250."""

    vocab: int
    d: int = 128
    """Residual width."""
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    """Key/value heads; each serves heads / kv_heads query heads."""
    hidden: int = 416
    """Width of the gated MLP."""
    context: int = 512
    """Longest sequence, prompt and completion together."""
    layout: str = "granite"
    """A key of ARCHITECTURES."""
    head_size: int = 0
    """Width of a head; 0: d / heads."""
    rope_base: float = 10000.0
    norm_eps: float = 1e-5
    tied: bool = True
    """The output projection is the embedding."""

    def __post_init__(self) -> None:
        if self.head_dim % 2 or (not self.head_size and self.d % self.heads):
            raise TrainerError(f"shape: d={self.d} must be an even multiple of heads={self.heads}; change one of them")
        if self.heads % self.kv_heads:
            raise TrainerError(f"shape: heads={self.heads} must be a multiple of kv_heads={self.kv_heads}")
        if min(self.vocab, self.layers, self.hidden, self.context) < 1:
            raise TrainerError(f"shape: every size must be positive, got {asdict(self)}")

    @property
    def head_dim(self) -> int:
        return self.head_size or self.d // self.heads

    @property
    def qkv_heads(self) -> int:
        """Heads of the fused projection: queries, keys, values."""
        return self.heads + 2 * self.kv_heads

    @property
    def embed_scale(self) -> float:
        """Granite's input embeddings are multiplied by sqrt(d), as in "Attention Is All You Need" section 3.4."""
        return math.sqrt(self.d) if self.layout == "granite" else 1.0

    @property
    def head_norms(self) -> bool:
        """Are queries and keys normed head by head?"""
        return self.layout == "qwen3"

    @property
    def attn_scale(self) -> float:
        return self.head_dim**-0.5

    def parameters(self) -> int:
        """Number of weights."""
        attn = self.d * (self.qkv_heads + self.heads) * self.head_dim + 2 * self.head_dim * self.head_norms
        layers = self.layers * (attn + 3 * self.d * self.hidden + 2 * self.d)
        return (2 - self.tied) * self.vocab * self.d + layers + self.d

    def hf_config(self, dtype: str, pad: int | None, bos: int | None, eos: int | Sequence[int]) -> dict[str, Any]:
        """Body of config.json for transformers' class of this layout."""
        granite = self.layout == "granite"
        return {
            "architectures": [ARCHITECTURES[self.layout]],
            "model_type": self.layout,
            "dtype": dtype,
            "vocab_size": self.vocab,
            "hidden_size": self.d,
            "intermediate_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            **({} if granite else {"head_dim": self.head_dim}),
            "max_position_embeddings": self.context,
            "hidden_act": "silu",
            "rms_norm_eps": self.norm_eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_base},
            "rope_theta": self.rope_base,
            **(self._multipliers() if granite else {}),
            "attention_bias": False,
            "mlp_bias": False,
            "attention_dropout": 0.0,
            "tie_word_embeddings": self.tied,
            "use_cache": True,
            "initializer_range": self.d**-0.5,
            "pad_token_id": pad,
            "bos_token_id": bos,
            "eos_token_id": eos,
        }

    def _multipliers(self) -> dict[str, float]:
        return {
            "embedding_multiplier": self.embed_scale,
            "attention_multiplier": self.attn_scale,
            "residual_multiplier": 1.0,
            "logits_scaling": 1.0,
        }

    @classmethod
    def of(cls, folder: Path) -> DecoderShape:
        """That of a policy folder; TrainerError where its config.json cannot be read, or is of none."""
        try:
            config = json.loads(read_text(folder / "config.json"))
        except (OSError, ValueError) as e:
            raise TrainerError(f"policy {folder}: config.json cannot be read ({e}); restore the folder") from None
        return cls.from_hf_config(config, str(folder))

    @classmethod
    def from_hf_config(cls, config: Mapping[str, Any], where: str) -> DecoderShape:
        """The shape behind a config.json; TrainerError for an architecture that is not one of ARCHITECTURES."""
        layout = config.get("model_type")
        if layout not in ARCHITECTURES:
            raise TrainerError(
                f"policy {where}: config.json has model_type {layout!r}, and the embedded trainer knows "
                f'{", ".join(ARCHITECTURES)}; take such a policy, or trainer.name="trl"'
            )
        rope = {"rope_theta": config.get("rope_theta", 10000.0), **(config.get("rope_scaling") or {})}
        rope |= config.get("rope_parameters") or {}
        try:
            shape = cls(
                vocab=int(config["vocab_size"]),
                d=int(config["hidden_size"]),
                layers=int(config["num_hidden_layers"]),
                heads=int(config["num_attention_heads"]),
                kv_heads=int(config["num_key_value_heads"]),
                hidden=int(config["intermediate_size"]),
                context=int(config["max_position_embeddings"]),
                layout=layout,
                head_size=int(config.get("head_dim") or 0),
                rope_base=float(rope["rope_theta"]),
                norm_eps=float(config["rms_norm_eps"]),
                tied=bool(config.get("tie_word_embeddings")),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise TrainerError(f"policy {where}: config.json lacks a size ({e}); restore the policy folder") from None
        # each of these makes another network of the same weights: refused, as the code here computes the plain one
        plain = {
            "rope_type": "default",
            "attention_bias": False,
            "mlp_bias": False,
            "use_sliding_window": False,
            "hidden_act": "silu",
        }
        had = dict(config) | {"rope_type": rope.get("rope_type", rope.get("type", "default"))}
        odd = [f"{k}={had[k]}" for k, v in plain.items() if had.get(k, v) not in (v, None)]
        expected = shape._multipliers() if layout == "granite" else {}
        odd += [
            f"{k}={had.get(k, 1.0)}" for k, v in expected.items() if not math.isclose(had.get(k, 1.0), v, rel_tol=1e-6)
        ]
        if odd:
            raise TrainerError(
                f"policy {where}: config.json has {', '.join(odd)}, which the embedded trainer does not compute; take "
                'another policy, or trainer.name="trl"'
            )
        return shape
