"""Micro-batches without padding: prompts once per group, rows flat, index tables for the padded attention view.

A *row* is one completion (or one multi-turn transcript) of a *group* that shares the prompt. The last prompt token is
repeated as first input of every row, so that a row of n inputs predicts exactly its n tokens and the rest of the prompt,
the *prefix*, is needed for its keys and values only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evotrainer.trainers.embedded.shape import Shape

NEG = float("-inf")


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence to train on. `loss[i]` says whether token i counts; None: all do."""

    index: int
    """Index of the rollout it came from."""
    prompt: tuple[int, ...]
    """At least one token."""
    tokens: tuple[int, ...]
    """What follows the prompt; at least one token."""
    loss: tuple[bool, ...] | None = None


@dataclass(frozen=True, slots=True)
class Pack:
    """Flat tokens [N]: prefixes first, then rows; positions that count are listed in `sel` [T]."""

    tokens: Tensor
    pos: Tensor
    n_prefix: int
    P: int
    """Groups."""
    G: int
    """Row slots per group."""
    Tp: int
    """Longest prefix."""
    Tc: int
    """Longest row."""
    gather: Tensor
    """Flat (token, head) -> padded q rows | k rows | v rows | prefix k | prefix v | prefix q."""
    scatter: Tensor
    """Padded -> flat (token, head); inverse of `gather` on real entries."""
    unpad_rows: Tensor
    """Padded q-row outputs -> flat (row token, head)."""
    unpad_prefix: Tensor
    bias_prefix: Tensor
    """[P, 1, Tp]: -inf at padding."""
    bias_rows: Tensor
    """[Tc, Tc] causal."""
    bias_self: Tensor
    """[Tp, Tp] causal."""
    sel: Tensor
    """Positions among the row tokens that count."""
    targets: Tensor
    """[T]"""
    row_of: Tensor
    """[T] number of the row within this pack."""
    rows: tuple[int, ...]
    """Rollout index of each row."""


def causal(n: int) -> Tensor:
    return torch.full((n, n), NEG).triu_(1)


def _grid(starts: np.ndarray, lengths: np.ndarray, width: int, fallback: int) -> tuple[np.ndarray, np.ndarray]:
    """Flat token number at [..., t] for t < length, `fallback` beyond; and which entries are real."""
    t = np.arange(width)
    real = t < lengths[..., None]
    return np.where(real, starts[..., None] + t, fallback), real


def pack(rows: Sequence[Row], shape: Shape) -> Pack:
    """Pack rows; rows of one prompt must be neighbours to share it."""
    groups: list[list[int]] = []
    for i, r in enumerate(rows):
        if i and r.prompt == rows[i - 1].prompt:
            groups[-1].append(i)
        else:
            groups.append([i])
    P, G = len(groups), max(len(g) for g in groups)
    prefixes = [rows[g[0]].prompt[:-1] for g in groups]
    inputs = [(r.prompt[-1], *r.tokens[:-1]) for r in rows]
    plen = np.array([len(p) for p in prefixes], dtype=np.int64)
    rlen = np.array([len(x) for x in inputs], dtype=np.int64)
    Tp, Tc, n_prefix = int(plen.max()), int(rlen.max()), int(plen.sum())
    pstart = np.concatenate([[0], np.cumsum(plen)[:-1]])
    rstart = n_prefix + np.concatenate([[0], np.cumsum(rlen)[:-1]])
    start_grid = np.full((P, G), n_prefix, dtype=np.int64)
    len_grid = np.zeros((P, G), dtype=np.int64)
    group_of = np.empty(len(rows), dtype=np.int64)
    for p, members in enumerate(groups):
        for g, i in enumerate(members):
            start_grid[p, g], len_grid[p, g], group_of[i] = rstart[i], rlen[i], p
    tok_r, real_r = _grid(start_grid, len_grid, Tc, n_prefix)  # [P, G, Tc]
    tok_p, real_p = _grid(pstart, plen, Tp, n_prefix)  # [P, Tp]
    tokens = np.fromiter((t for part in (prefixes, inputs) for x in part for t in x), dtype=np.int64)
    offsets = np.concatenate([np.zeros(n_prefix, np.int64), np.repeat(plen[group_of], rlen)])
    starts = np.concatenate([np.repeat(pstart, plen), np.repeat(rstart, rlen)])
    pos = np.arange(len(tokens)) - starts + offsets
    gather, scatter, unpad_rows, unpad_prefix = _tables(shape, tok_r, real_r, tok_p, real_p, n_prefix, len(tokens))
    loss = np.fromiter((b for r in rows for b in (r.loss or (True,) * len(r.tokens))), dtype=bool)
    targets = np.fromiter((t for r in rows for t in r.tokens), dtype=np.int64)
    row_of = np.repeat(np.arange(len(rows)), rlen)
    return Pack(
        tokens=torch.from_numpy(tokens),
        pos=torch.from_numpy(pos),
        n_prefix=n_prefix,
        P=P,
        G=G,
        Tp=Tp,
        Tc=Tc,
        gather=torch.from_numpy(gather),
        scatter=torch.from_numpy(scatter),
        unpad_rows=torch.from_numpy(unpad_rows),
        unpad_prefix=torch.from_numpy(unpad_prefix),
        bias_prefix=torch.from_numpy(np.where(real_p, 0.0, NEG).astype(np.float32))[:, None],
        bias_rows=causal(Tc),
        bias_self=causal(Tp),
        sel=torch.from_numpy(np.flatnonzero(loss)),
        targets=torch.from_numpy(targets[loss]),
        row_of=torch.from_numpy(row_of[loss]),
        rows=tuple(r.index for r in rows),
    )


def _tables(
    s: Shape, tok_r: np.ndarray, real_r: np.ndarray, tok_p: np.ndarray, real_p: np.ndarray, n_prefix: int, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Index tables between flat (token, head) rows and the padded layouts of attention.

    Padded: q [P, Hkv, G, rep, Tc], k and v [P, Hkv, G, Tc], prefix k and v [P, Hkv, Tp], prefix q [P, Hkv, rep, Tp].
    """
    nh, H, K = s.qkv_heads, s.heads, s.kv_heads
    rep = H // K
    head = np.arange(K)
    q_head = (head[:, None] * rep + np.arange(rep)).reshape(K, rep)
    rq = tok_r[:, None, :, None, :] * nh + q_head[None, :, None, :, None]
    rk = tok_r[:, None] * nh + (H + head)[None, :, None, None]
    pk = tok_p[:, None] * nh + (H + head)[None, :, None]
    pq = tok_p[:, None, None, :] * nh + q_head[None, :, :, None]
    parts = [rq, rk, rk + K, pk, pk + K, pq]
    gather = np.concatenate([x.ravel() for x in parts])
    masks = [
        np.broadcast_to(real_r[:, None, :, None, :], rq.shape),
        np.broadcast_to(real_r[:, None], rk.shape),
        np.broadcast_to(real_r[:, None], rk.shape),
        np.broadcast_to(real_p[:, None], pk.shape),
        np.broadcast_to(real_p[:, None], pk.shape),
        np.broadcast_to(real_p[:, None, None], pq.shape),
    ]
    real = np.flatnonzero(np.concatenate([m.ravel() for m in masks]))
    scatter = np.zeros(n * nh, dtype=np.int64)
    scatter[gather[real]] = real
    table = scatter.reshape(n, nh)
    first_pq = len(gather) - pq.size
    return gather, scatter, table[n_prefix:, :H].reshape(-1), table[:n_prefix, :H].reshape(-1) - first_pq


def batches(rows: Sequence[Row], budget: int) -> Iterator[list[Row]]:
    """Split rows, neighbours in length, into micro-batches of at most `budget` padded row tokens and prompt tokens.

    Groups stay together unless one alone is over the budget. Order: longest rows first, deterministic.
    """
    groups: dict[tuple[int, ...], list[Row]] = {}
    for r in rows:
        groups.setdefault(r.prompt, []).append(r)
    units = sorted(groups.values(), key=lambda g: -max(len(r.tokens) for r in g))
    current: list[Row] = []
    cost = 0
    for unit in units:
        for r in sorted(unit, key=lambda r: -len(r.tokens)):
            shared = bool(current) and current[-1].prompt == r.prompt
            add = len(r.tokens) + (0 if shared else len(r.prompt))
            if current and cost + add > budget:
                yield current
                current, cost, add = [], 0, len(r.tokens) + len(r.prompt)
            current.append(r)
            cost += add
    if current:
        yield current
