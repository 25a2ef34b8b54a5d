"""Low-rank adapters (LoRA, arXiv 2106.09685) of every projection, stored as peft stores them.

The policy computes with merged weights W = W0 + alpha/r B A. Gradients of A and B follow from that of W, which the
backward pass accumulates anyway: dB = alpha/r dW A^T, dA = alpha/r B^T dW. Only A and B have optimizer states and are
saved: a hundredth of a policy's weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from evotrainer.errors import TrainerError
from evotrainer.records.regular_file import read_text
from evotrainer.trainers.bases import ADAPTER
from evotrainer.trainers.embedded.optim import Optimizer
from evotrainer.trainers.embedded.policy import Policy, halves, pairs
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.lora import MODULES, Lora

FILE = "adapter_model.safetensors"
PLAIN = {
    "peft_type": "LORA", "bias": "none", "use_dora": False, "use_rslora": False, "modules_to_save": None,
    "rank_pattern": {}, "alpha_pattern": {}, "fan_in_fan_out": False, "layers_to_transform": None,
}  # fmt: skip
"""Of an adapter_config.json, what this module computes; absent is as here."""


class Projection(NamedTuple):
    """Rows of a fused weight of one layer that are one projection of the Hugging Face layout."""

    layer: int
    name: str
    weight: str
    """Key of `Policy.weights`."""
    first: int
    rows: int
    heads: int
    """Heads whose rotary pairs are stored as neighbours; 0: rows are as Hugging Face has them."""

    @property
    def key(self) -> str:
        """Name of its adapter in peft's file, less `.lora_A.weight`."""
        return f"base_model.model.model.layers.{self.layer}.{MODULES[self.name]}.{self.name}"


def projections(s: DecoderShape, targets: tuple[str, ...]) -> Iterator[Projection]:
    """All projections of the named kinds, layer by layer."""
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    places = {
        "q_proj": ("qkv", 0, q, s.heads),
        "k_proj": ("qkv", q, kv, s.kv_heads),
        "v_proj": ("qkv", q + kv, kv, 0),
        "o_proj": ("out", 0, s.d, 0),
        "gate_proj": ("gate_up", 0, s.hidden, 0),
        "up_proj": ("gate_up", s.hidden, s.hidden, 0),
        "down_proj": ("down", 0, s.d, 0),
    }
    for i in range(s.layers):
        for name in targets:
            weight, first, rows, heads = places[name]
            yield Projection(i, name, f"{i}.{weight}", first, rows, heads)


def targets_of(lora: Lora) -> tuple[str, ...]:
    """Kinds of projections that get an adapter."""
    return tuple(MODULES) if lora.targets == "all-linear" else tuple(lora.targets)


class Adapters:
    """A and B of every projection, in one flat buffer, upon a policy whose weights are merged."""

    def __init__(self, policy: Policy, lora: Lora, seed: int, base: Tensor | None = None) -> None:
        assert policy.grad is not None
        self.policy, self.lora = policy, lora
        self.scale = (lora.alpha or 2 * lora.r) / lora.r
        self.base = policy.flat.clone() if base is None else base
        """The policy's weights before; `base`: a copy that somebody keeps anyway."""
        self.places = list(projections(policy.shape, targets_of(lora)))
        sizes = [(lora.r * self._weight(p).shape[1], p.rows * lora.r) for p in self.places]
        self.flat = torch.zeros(sum(a + b for a, b in sizes))
        self.grad = torch.zeros_like(self.flat)
        self.n_matrix = self.flat.numel()
        generator = torch.Generator().manual_seed(seed)
        self.pairs: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        """A [r, in], B [out, r] and their gradients."""
        at = 0
        for p, (n, m) in zip(self.places, sizes, strict=True):
            wide = self._weight(p).shape[1]
            a, ga = (x[at : at + n].view(lora.r, wide) for x in (self.flat, self.grad))
            b, gb = (x[at + n : at + n + m].view(p.rows, lora.r) for x in (self.flat, self.grad))
            # peft's: A uniform in +-1/sqrt(in), B zero, so that training begins at the base
            a.uniform_(-1 / math.sqrt(wide), 1 / math.sqrt(wide), generator=generator)
            self.pairs.append((a, b, ga, gb))
            at += n + m

    def _weight(self, p: Projection, of: Mapping[str, Tensor] | None = None) -> Tensor:
        return (self.policy.weights if of is None else of)[p.weight][p.first : p.first + p.rows]

    def project(self) -> None:
        """Take the policy's gradients over; they are zero then."""
        for p, (a, b, ga, gb) in zip(self.places, self.pairs, strict=True):
            dw = self._weight(p, self.policy.grads)
            gb.addmm_(dw, a.t(), alpha=self.scale)
            ga.addmm_(b.t(), dw, alpha=self.scale)
        assert self.policy.grad is not None
        self.policy.grad.zero_()

    def merge(self) -> None:
        """Set the policy's weights to the base and the adapters."""
        self.policy.flat.copy_(self.base)
        for p, (a, b, _, _) in zip(self.places, self.pairs, strict=True):
            self._weight(p).addmm_(b, a, alpha=self.scale)

    def save(self, folder: Path) -> None:
        """Write peft's two files; what they lie upon is for `bases.note_base` to say."""
        state: dict[str, Tensor] = {}
        for p, (a, b, _, _) in zip(self.places, self.pairs, strict=True):
            state[f"{p.key}.lora_A.weight"] = a.clone()
            state[f"{p.key}.lora_B.weight"] = halves(b, p.heads) if p.heads else b.clone()
        save_file({k: v.contiguous() for k, v in state.items()}, folder / FILE, metadata={"format": "pt"})
        config = PLAIN | {
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "",
            "r": self.lora.r,
            "lora_alpha": self.lora.alpha or 2 * self.lora.r,
            "lora_dropout": 0.0,
            "target_modules": list(targets_of(self.lora)),
            "inference_mode": True,
        }
        (folder / ADAPTER).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


class AdapterOptimizer(Optimizer):
    """AdamW of adapters; the policy has their merged weights after each step."""

    def __init__(self, adapters: Adapters, weight_decay: float) -> None:
        super().__init__(adapters, weight_decay)
        self.adapters = adapters

    def step(self, lr: float, clip: float) -> float:
        self.adapters.project()
        norm = super().step(lr, clip)
        self.adapters.merge()
        return norm


def merge_saved(policy: Policy, folder: Path) -> None:
    """Add the adapters of a peft folder to a policy's weights; TrainerError for what is not plain LoRA, or not this
    policy's."""
    try:
        config: dict[str, Any] = json.loads(read_text(folder / ADAPTER))
        state = load_file(folder / FILE)
        scale = config["lora_alpha"] / config["r"]
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, SafetensorError) as e:
        raise TrainerError(f"policy {folder}: its adapters cannot be read ({e}); restore the policy folder") from None
    if odd := [k for k, v in PLAIN.items() if config.get(k) not in (v, None, False, {}, [])]:
        raise TrainerError(
            f"policy {folder}: {ADAPTER} has {odd[0]}={config[odd[0]]}, which the embedded trainer does not compute; "
            'merge the adapters, or take trainer.name="trl"'
        )
    for p in projections(policy.shape, tuple(MODULES)):
        a, b = state.pop(f"{p.key}.lora_A.weight", None), state.pop(f"{p.key}.lora_B.weight", None)
        if a is None or b is None:
            continue
        w = policy.weights[p.weight][p.first : p.first + p.rows]
        if (b.shape[0], a.shape[1]) != tuple(w.shape) or a.shape[0] != b.shape[1]:
            raise TrainerError(f"policy {folder}: adapter {p.key} does not fit its base; restore the policy folder")
        w.addmm_(pairs(b.float(), p.heads) if p.heads else b.float(), a.float(), alpha=scale)
    if state:
        raise TrainerError(
            f"policy {folder}: {FILE} holds {next(iter(state))}, which is no projection of a layer; take "
            'trainer.name="trl"'
        )
