"""Weights of a policy: one flat buffer, named views into it, exchange with the Hugging Face layout.

All weights share one buffer and all gradients another, so that the optimizer, the norm and the reset are single
operations. Projections are fused (queries, keys, values; gate and up). Inside, the two halves of a rotary pair are
neighbours (complex numbers); Hugging Face keeps them half a head apart, so q and k rows are permuted on the way.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from evotrainer.errors import TrainerError
from evotrainer.trainers.embedded.shape import DecoderShape


class Layer:
    """Views of one layer's weights, [out, in]."""

    __slots__ = ("down", "gate_up", "k_norm", "norm1", "norm2", "out", "q_norm", "qkv")

    def __init__(self, w: Mapping[str, Tensor], i: int) -> None:
        self.qkv, self.out = w[f"{i}.qkv"], w[f"{i}.out"]
        self.gate_up, self.down = w[f"{i}.gate_up"], w[f"{i}.down"]
        self.norm1, self.norm2 = w[f"{i}.norm1"], w[f"{i}.norm2"]
        empty = torch.empty(0)
        self.q_norm, self.k_norm = w.get(f"{i}.q_norm", empty), w.get(f"{i}.k_norm", empty)

    def head_norms(self, s: DecoderShape) -> Tensor:
        """Weights of the norms of queries and keys, [H+K, D]."""
        return torch.cat([self.q_norm.expand(s.heads, -1), self.k_norm.expand(s.kv_heads, -1)])


def layout(shape: DecoderShape) -> dict[str, tuple[int, ...]]:
    """Name -> size of every weight, matrices first: weight decay applies to the first `n_matrix` numbers only."""
    s, d = shape, shape.d
    matrices: dict[str, tuple[int, ...]] = {"embed": (s.vocab, d)}
    if not s.tied:
        matrices["head"] = (s.vocab, d)
    norms: dict[str, tuple[int, ...]] = {}
    for i in range(s.layers):
        matrices[f"{i}.qkv"] = (s.qkv_heads * s.head_dim, d)
        matrices[f"{i}.out"] = (d, s.heads * s.head_dim)
        matrices[f"{i}.gate_up"] = (2 * s.hidden, d)
        matrices[f"{i}.down"] = (d, s.hidden)
        norms[f"{i}.norm1"] = norms[f"{i}.norm2"] = (d,)
        if s.head_norms:
            norms[f"{i}.q_norm"] = norms[f"{i}.k_norm"] = (s.head_dim,)
    return matrices | norms | {"norm": (d,)}


class Policy:
    """fp32 weights of a decoder, with gradients where `trainable`."""

    def __init__(self, shape: DecoderShape, trainable: bool = False) -> None:
        self.shape = shape
        sizes = layout(shape)
        total = sum(int(torch.Size(v).numel()) for v in sizes.values())
        self.flat = torch.zeros(total)
        self.grad = torch.zeros(total) if trainable else None
        self.n_matrix = sum(int(torch.Size(v).numel()) for v in sizes.values() if len(v) == 2)
        self.weights: dict[str, Tensor] = {}
        self.grads: dict[str, Tensor] = {}
        at = 0
        for name, size in sizes.items():
            n = int(torch.Size(size).numel())
            self.weights[name] = self.flat[at : at + n].view(size)
            if self.grad is not None:
                self.grads[name] = self.grad[at : at + n].view(size)
            at += n
        self.layers = [Layer(self.weights, i) for i in range(shape.layers)]
        self.layer_grads = [Layer(self.grads, i) for i in range(shape.layers)] if trainable else []
        self.cis = rotary(shape)

    @property
    def embed(self) -> Tensor:
        return self.weights["embed"]

    @property
    def head(self) -> Tensor:
        """The output projection [V, d]."""
        return self.weights.get("head", self.embed)

    @property
    def head_grad(self) -> Tensor:
        return self.grads.get("head", self.grads["embed"])

    @property
    def norm(self) -> Tensor:
        return self.weights["norm"]

    def init(self, seed: int) -> Policy:
        """Normal init: std d^-0.5 into the residual width, outputs scaled down by sqrt(2 * layers)."""
        gen = torch.Generator().manual_seed(seed)
        s = self.shape
        for name, w in self.weights.items():
            if "norm" in name:
                w.fill_(1.0)
                continue
            # the embedding is the output projection, too (tied): its fan-in is d, not the vocabulary
            fan_in = s.d if name in ("embed", "head") else w.shape[1]
            std = fan_in**-0.5
            if name.endswith((".out", ".down")):
                # two residual additions a layer: their sum keeps about unit variance at any depth (GPT-2's rule)
                std *= (2 * s.layers) ** -0.5
            w.normal_(0.0, std, generator=gen)
        return self

    def clone(self) -> Policy:
        """A frozen copy."""
        other = Policy(self.shape)
        other.flat.copy_(self.flat)
        return other

    def to_hf(self) -> dict[str, Tensor]:
        """State dict of transformers' class, copies in fp32."""
        s = self.shape
        q_rows, kv_rows = s.heads * s.head_dim, s.kv_heads * s.head_dim
        out = {"model.embed_tokens.weight": self.embed.clone(), "model.norm.weight": self.norm.clone()}
        if not s.tied:
            out["lm_head.weight"] = self.head.clone()
        for i, layer in enumerate(self.layers):
            q, k, v = layer.qkv.split([q_rows, kv_rows, kv_rows])
            gate, up = layer.gate_up.chunk(2)
            p = f"model.layers.{i}."
            out[p + "self_attn.q_proj.weight"] = halves(q, s.heads)
            out[p + "self_attn.k_proj.weight"] = halves(k, s.kv_heads)
            out[p + "self_attn.v_proj.weight"] = v.clone()
            out[p + "self_attn.o_proj.weight"] = layer.out.clone()
            out[p + "mlp.gate_proj.weight"] = gate.clone()
            out[p + "mlp.up_proj.weight"] = up.clone()
            out[p + "mlp.down_proj.weight"] = layer.down.clone()
            out[p + "input_layernorm.weight"] = layer.norm1.clone()
            out[p + "post_attention_layernorm.weight"] = layer.norm2.clone()
            if s.head_norms:
                out[p + "self_attn.q_norm.weight"] = halves(layer.q_norm.unsqueeze(1), 1).squeeze(1)
                out[p + "self_attn.k_norm.weight"] = halves(layer.k_norm.unsqueeze(1), 1).squeeze(1)
        return out

    def from_hf(self, state: Mapping[str, Tensor], where: str) -> Policy:
        """Take the weights of a state dict of transformers' class; TrainerError for missing or misshapen ones."""
        s = self.shape

        def get(name: str, *size: int) -> Tensor:
            w = state.get(name)
            if w is None or tuple(w.shape) != size:
                got = "missing" if w is None else f"of size {tuple(w.shape)}"
                raise TrainerError(
                    f"policy {where}: weight {name} is {got}, expected {size}; restore the policy folder"
                )
            if not torch.isfinite(w).all():
                raise TrainerError(f"policy {where}: weight {name} holds NaN or infinity; restore an earlier policy")
            return w.float()

        d, D = s.d, s.head_dim
        self.embed.copy_(get("model.embed_tokens.weight", s.vocab, d))
        self.norm.copy_(get("model.norm.weight", d))
        if not s.tied:
            self.head.copy_(get("lm_head.weight", s.vocab, d))
        for i, layer in enumerate(self.layers):
            p = f"model.layers.{i}."
            q = pairs(get(p + "self_attn.q_proj.weight", s.heads * D, d), s.heads)
            k = pairs(get(p + "self_attn.k_proj.weight", s.kv_heads * D, d), s.kv_heads)
            v = get(p + "self_attn.v_proj.weight", s.kv_heads * D, d)
            layer.qkv.copy_(torch.cat([q, k, v]))
            layer.out.copy_(get(p + "self_attn.o_proj.weight", d, s.heads * D))
            gate, up = (get(p + f"mlp.{n}_proj.weight", s.hidden, d) for n in ("gate", "up"))
            layer.gate_up.copy_(torch.cat([gate, up]))
            layer.down.copy_(get(p + "mlp.down_proj.weight", d, s.hidden))
            layer.norm1.copy_(get(p + "input_layernorm.weight", d))
            layer.norm2.copy_(get(p + "post_attention_layernorm.weight", d))
            if s.head_norms:
                layer.q_norm.copy_(pairs(get(p + "self_attn.q_norm.weight", D).unsqueeze(1), 1).squeeze(1))
                layer.k_norm.copy_(pairs(get(p + "self_attn.k_norm.weight", D).unsqueeze(1), 1).squeeze(1))
        return self


def halves(w: Tensor, heads: int) -> Tensor:
    """Rows from neighbouring rotary pairs to half-split heads."""
    rows, d = w.shape
    return w.view(heads, rows // heads // 2, 2, d).transpose(1, 2).reshape(rows, d)


def pairs(w: Tensor, heads: int) -> Tensor:
    """Rows from half-split heads to neighbouring rotary pairs."""
    rows, d = w.shape
    return w.view(heads, 2, rows // heads // 2, d).transpose(1, 2).reshape(rows, d)


def rotary(shape: DecoderShape) -> Tensor:
    """Rotary table, complex64 [context, head_dim / 2] (RoFormer, eq. 34)."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.int64).float() / shape.head_dim
    angles = torch.outer(torch.arange(shape.context).float(), 1.0 / (shape.rope_base**half))
    return torch.polar(torch.ones_like(angles), angles)
