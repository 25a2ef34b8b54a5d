"""Shape of an embedded policy and its Hugging Face configuration (Granite: Llama with an embedding multiplier)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from evotrainer.errors import TrainerError

NORM_EPS = 1e-5
ROPE_BASE = 10000.0


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

    def __post_init__(self) -> None:
        if self.d % self.heads or (self.d // self.heads) % 2:
            raise TrainerError(f"shape: d={self.d} must be an even multiple of heads={self.heads}; change one of them")
        if self.heads % self.kv_heads:
            raise TrainerError(f"shape: heads={self.heads} must be a multiple of kv_heads={self.kv_heads}")
        if min(self.vocab, self.layers, self.hidden, self.context) < 1:
            raise TrainerError(f"shape: every size must be positive, got {asdict(self)}")

    @property
    def head_dim(self) -> int:
        return self.d // self.heads

    @property
    def qkv_heads(self) -> int:
        """Heads of the fused projection: queries, keys, values."""
        return self.heads + 2 * self.kv_heads

    @property
    def embed_scale(self) -> float:
        """Input embeddings are multiplied by sqrt(d), as in "Attention Is All You Need" section 3.4."""
        return math.sqrt(self.d)

    @property
    def attn_scale(self) -> float:
        return self.head_dim**-0.5

    def parameters(self) -> int:
        """Number of weights; input and output embeddings are tied."""
        attn = self.d * self.qkv_heads * self.head_dim + self.d * self.d
        return self.vocab * self.d + self.layers * (attn + 3 * self.d * self.hidden + 2 * self.d) + self.d

    def hf_config(self, dtype: str, pad: int, bos: int, eos: int) -> dict[str, Any]:
        """Body of config.json for `transformers.GraniteForCausalLM`."""
        return {
            "architectures": ["GraniteForCausalLM"],
            "model_type": "granite",
            "dtype": dtype,
            "vocab_size": self.vocab,
            "hidden_size": self.d,
            "intermediate_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "max_position_embeddings": self.context,
            "hidden_act": "silu",
            "rms_norm_eps": NORM_EPS,
            "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_BASE},
            "rope_theta": ROPE_BASE,
            "embedding_multiplier": self.embed_scale,
            "attention_multiplier": self.attn_scale,
            "residual_multiplier": 1.0,
            "logits_scaling": 1.0,
            "attention_bias": False,
            "mlp_bias": False,
            "attention_dropout": 0.0,
            "tie_word_embeddings": True,
            "use_cache": True,
            "initializer_range": self.d**-0.5,
            "pad_token_id": pad,
            "bos_token_id": bos,
            "eos_token_id": eos,
        }

    @classmethod
    def from_hf_config(cls, config: Mapping[str, Any], where: str) -> DecoderShape:
        """The shape behind a config.json that `hf_config` wrote; TrainerError for any other architecture."""
        if config.get("model_type") != "granite" or not config.get("tie_word_embeddings"):
            raise TrainerError(
                f"policy {where}: config.json is not an embedded policy (model_type {config.get('model_type')!r}); "
                "use one that warm_start wrote"
            )
        try:
            shape = cls(
                vocab=int(config["vocab_size"]),
                d=int(config["hidden_size"]),
                layers=int(config["num_hidden_layers"]),
                heads=int(config["num_attention_heads"]),
                kv_heads=int(config["num_key_value_heads"]),
                hidden=int(config["intermediate_size"]),
                context=int(config["max_position_embeddings"]),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise TrainerError(f"policy {where}: config.json lacks a size ({e}); write the policy anew") from None
        expected = shape.hf_config("", 0, 0, 0)
        # other multipliers make another network of the same weights: refused, as the code here has them built in
        for key in ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"):
            if not math.isclose(float(config.get(key, 1.0)), expected[key], rel_tol=1e-6):
                raise TrainerError(f"policy {where}: config.json has {key}={config.get(key)}, expected {expected[key]}")
        return shape
