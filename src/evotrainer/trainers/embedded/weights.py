"""Weights as decoding wants them, and the caches of prompts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from evotrainer.trainers.embedded.forward import rms, rotate_, silu
from evotrainer.trainers.embedded.packing import NEG, causal, common_beginning
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.embedded.tokenizer import PAD


class Weights:
    """Decoding weights: norms and the attention scale folded in, projections transposed for GEMM,
    in the sampler's precision."""

    def __init__(self, policy: Policy, dtype: torch.dtype) -> None:
        def t(w: Tensor, norm: Tensor | None = None) -> Tensor:
            return (w if norm is None else w * norm).t().to(dtype).contiguous()

        self.shape, self.dtype = policy.shape, dtype
        self.cis = policy.cis
        self.embed = (policy.embed * policy.shape.embed_scale).to(dtype)
        self.head = t(policy.head, policy.norm)
        self.layers = []
        self.head_norms: list[Tensor] = []
        s = policy.shape
        queries = s.heads * s.head_dim
        for w in policy.layers:
            gate, up = w.gate_up.chunk(2)
            qkv = w.qkv.clone()
            # scaled once here instead of in every attention product
            if s.head_norms:
                norms = w.head_norms(s)
                norms[: s.heads] *= s.attn_scale
                self.head_norms.append(norms.to(dtype))
            else:
                qkv[:queries] *= s.attn_scale
            self.layers.append(
                (t(qkv, w.norm1), t(w.out), t(gate, w.norm2), t(up, w.norm2), t(w.down)),
            )

    def project(self, i: int, h: Tensor, cis: Tensor) -> Tensor:
        """Rotated queries, keys and values [n, nh, D] of layer i from the residual stream."""
        s = self.shape
        x = (rms(h, s.norm_eps)[0] @ self.layers[i][0]).view(-1, s.qkv_heads, s.head_dim)
        if s.head_norms:
            heads = x[:, : s.heads + s.kv_heads]
            torch.mul(rms(heads, s.norm_eps)[0], self.head_norms[i], out=heads)
        return rotate(x, cis, s)


def prefill(w: Weights, prefixes: list[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Caches of the prefixes: keys and values [L, P, Hkv, Tp, D], additive mask [P, 1, Tp]. What all of them begin with
    is computed once."""
    s = w.shape
    P, T = len(prefixes), max(len(x) for x in prefixes)
    ids = torch.full((P, T), PAD)
    bias = torch.full((P, 1, T), NEG)
    for i, prefix in enumerate(prefixes):
        ids[i, : len(prefix)] = torch.tensor(prefix, dtype=torch.int64)
        bias[i, 0, : len(prefix)] = 0.0
    keys = torch.empty(s.layers, P, s.kv_heads, T, s.head_dim, dtype=w.dtype)
    values = torch.empty_like(keys)
    if n := common_beginning(prefixes):
        shared = keys[:, :1, :, :n].contiguous(), values[:, :1, :, :n].contiguous()
        _fill(w, ids[:1, :n], 0, *shared)
        keys[:, :, :, :n], values[:, :, :, :n] = shared
    if n < T:
        _fill(w, ids[:, n:], n, keys, values)
    return keys, values, bias.to(w.dtype)


def _fill(w: Weights, ids: Tensor, start: int, keys: Tensor, values: Tensor) -> None:
    """Write keys and values of tokens [P, n] from column `start` on, where the columns before are filled."""
    s = w.shape
    P, n = ids.shape
    K, D, H, T = s.kv_heads, s.head_dim, s.heads, start + n
    cis = w.cis[start:T].repeat(P, 1)
    h = w.embed[ids.reshape(-1)]
    mask = causal(T)[start:].to(w.dtype).repeat(H // K, 1)
    for i, (_, out, gate, up, down) in enumerate(w.layers):
        x = w.project(i, h, cis)
        x = x.view(P, n, s.qkv_heads, D).transpose(1, 2)
        keys[i][:, :, start:T], values[i][:, :, start:T] = x[:, H : H + K], x[:, H + K :]
        if i == s.layers - 1:
            break  # only keys and values are wanted of a prefix: nothing reads the last layer's output
        # the H / K query heads that share a key head are one longer run of queries: one product per key head
        q = x[:, :H].reshape(P * K, -1, D)
        k, v = keys[i].view(P * K, T, D), values[i].view(P * K, T, D)
        weights = torch.softmax(torch.baddbmm(mask, q, k.transpose(1, 2)), -1)
        att = (weights @ v).view(P, H, n, D).transpose(1, 2).reshape(P * n, H * D)
        h = torch.addmm(h, att, out)
        y = rms(h, s.norm_eps)[0]
        h.addmm_(silu(y @ gate).mul_(y @ up), down)


def rotate(qkv: Tensor, cis: Tensor, s: DecoderShape) -> Tensor:
    if qkv.dtype == torch.float32:
        return rotate_(qkv, cis, s)
    return rotate_(qkv.float(), cis, s).to(qkv.dtype)
