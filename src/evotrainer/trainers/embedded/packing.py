"""Micro-batches without padding and without repetition, and index tables for the padded view attention needs.

A *row* is one completion (or one multi-turn transcript) of a *group* that shares the prompt. The last prompt token is
the first input of every row, so that n inputs predict a row's n tokens and the rest of the prompt, the *prefix*, is
needed for its keys and values only. Rows that begin alike are merged into a tree: each distinct beginning is one *node*
and is computed once for all rows that share it. The results are those of the separate rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evotrainer.trainers.embedded.shape import DecoderShape

NEG = float("-inf")


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One sequence to train on. `loss[i]` says whether token i counts; None: all do."""

    index: int
    """Index of the rollout it came from."""
    prompt: tuple[int, ...]
    """At least one token."""
    tokens: tuple[int, ...]
    """What follows the prompt; at least one token."""
    loss: tuple[bool, ...] | None = None

    @property
    def counted(self) -> int:
        """Tokens that enter the loss."""
        return len(self.tokens) if self.loss is None else sum(self.loss)


@dataclass(frozen=True, slots=True)
class Pack:
    """Flat tokens [N]: prefixes first, then nodes. T counted tokens look up their node in `node_of`."""

    tokens: Tensor
    pos: Tensor
    n_prefix: int
    P: int
    """Groups."""
    G: int
    """Slots per group for rows that bring nodes of their own."""
    Tp: int
    """Longest prefix."""
    Tc: int
    """Longest row."""
    gather: Tensor
    """Flat (token, head) -> padded q | k | v of rows | prefix k | prefix v | prefix q."""
    scatter: Tensor
    """Padded -> flat (token, head), from the first occurrence of every node."""
    repeat_from: Tensor
    """Padded keys and values of later occurrences, ..."""
    repeat_to: Tensor
    """... and the flat (token, head) they add to."""
    unpad_rows: Tensor
    """Padded q-row outputs -> flat (node, head)."""
    unpad_prefix: Tensor
    bias_prefix: Tensor
    """[P, 1, Tp]: -inf at padding."""
    bias_rows: Tensor
    """[Tc, Tc] causal."""
    bias_self: Tensor
    """[Tp, Tp] causal."""
    used: Tensor | None
    """Nodes that counted tokens refer to; None: all."""
    node_of: Tensor
    """[T] into `used`."""
    targets: Tensor
    """[T]"""
    row_of: Tensor
    """[T] number of the row within this pack."""
    rows: tuple[int, ...]
    """Rollout index of each row."""


def causal(n: int) -> Tensor:
    """Additive causal mask [n, n]."""
    return torch.full((n, n), NEG).triu_(1)


@dataclass(slots=True)
class _Tree:
    """Nodes of all groups. Row i has node `nodes[i][t]` at input t and owns those from `first[i]` on."""

    nodes: list[np.ndarray]
    first: list[int]
    tokens: list[int]
    depth: list[int]
    """Input position of each node within its row."""
    group: list[int]


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    n = min(len(a), len(b))
    for i in range(n):
        if a[i] != b[i]:
            return i
    return n


def _merge(rows: Sequence[TrainRow], groups: Sequence[Sequence[int]]) -> _Tree:
    """Merge equal beginnings within groups; members of a group must be in lexicographic order of their tokens."""
    empty = np.empty(0, dtype=np.int64)
    tree = _Tree([empty] * len(rows), [0] * len(rows), [], [], [])
    for p, members in enumerate(groups):
        before: tuple[int, ...] | None = None
        nodes = empty
        for i in members:
            r = rows[i]
            n = len(r.tokens)
            # Input t stands for the beginning tokens[:t], so one more input than tokens is shared.
            s = 0 if before is None else min(_shared(before, r.tokens) + 1, n, len(before))
            start = len(tree.tokens)
            nodes = np.concatenate([nodes[:s], np.arange(start, start + n - s)])
            tree.nodes[i], tree.first[i] = nodes, s
            tree.tokens += (r.prompt[-1], *r.tokens[:-1])[s:]
            tree.depth += range(s, n)
            tree.group += [p] * (n - s)
            before = r.tokens
    return tree


SHARED = 16
"""Tokens that prompts have in common, such as a system prompt, from which it pays to compute them once for all."""


def common_beginning(texts: Sequence[Sequence[int]]) -> int:
    """Tokens that several texts, not all the same, begin with; 0 where they are fewer than SHARED."""
    # in lexicographic order all others lie between the first and the last
    first, last = min(map(tuple, texts)), max(map(tuple, texts))
    n = _shared(first, last)
    return n if first != last and n >= SHARED else 0


def with_common_prompt(rows: Sequence[TrainRow]) -> Sequence[TrainRow]:
    """The same rows with what all their prompts begin with as their prompt: one group, whose tree computes the rest of
    each prompt once, too."""
    n = common_beginning([r.prompt for r in rows])
    # the rest of a prompt becomes a part of every row, whose attention grows with its square
    if n == 0 or max(len(r.prompt) for r in rows) > 3 * n:
        return rows
    return [
        TrainRow(
            r.index,
            r.prompt[:n],
            r.prompt[n:] + r.tokens,
            (False,) * (len(r.prompt) - n) + (r.loss or (True,) * len(r.tokens)),
        )
        for r in rows
    ]


def pack(rows: Sequence[TrainRow], shape: DecoderShape) -> Pack:
    """Pack rows; rows of one prompt must be neighbours to share it."""
    groups: list[list[int]] = []
    for i, r in enumerate(rows):
        if i and r.prompt == rows[i - 1].prompt:
            groups[-1].append(i)
        else:
            groups.append([i])
    # in lexicographic order the row before shares the longest beginning of all before
    groups = [sorted(g, key=lambda i: rows[i].tokens) for g in groups]
    tree = _merge(rows, groups)
    # a row that is the beginning of another one brings no nodes of its own and needs no slot
    own = [[i for i in g if tree.first[i] < len(rows[i].tokens)] for g in groups]
    prefixes = [rows[g[0]].prompt[:-1] for g in groups]
    plen = np.array([len(p) for p in prefixes], dtype=np.int64)
    P, G, Tp, n_prefix = len(groups), max(map(len, own)), int(plen.max()), int(plen.sum())
    Tc = max(len(r.tokens) for r in rows)
    pstart = np.concatenate([[0], np.cumsum(plen)[:-1]])
    t = np.arange(max(Tp, Tc))
    real_p = t[:Tp] < plen[:, None]
    # padding points at the first row token: a place that exists, whose score the mask takes out
    tok_p = np.where(real_p, pstart[:, None] + t[:Tp], n_prefix)
    tok_r = np.full((P, G, Tc), n_prefix, dtype=np.int64)
    real_r = np.zeros((P, G, Tc), dtype=bool)
    first_r = np.zeros((P, G, Tc), dtype=bool)
    for p, members in enumerate(own):
        for g, i in enumerate(members):
            n = len(rows[i].tokens)
            tok_r[p, g, :n] += tree.nodes[i]
            real_r[p, g, :n] = True
            first_r[p, g, tree.first[i] : n] = True
    prefix_tokens = np.fromiter((x for p in prefixes for x in p), dtype=np.int64)
    tokens = np.concatenate([prefix_tokens, np.array(tree.tokens, dtype=np.int64)])
    prefix_pos = np.arange(n_prefix) - np.repeat(pstart, plen)
    pos = np.concatenate([prefix_pos, plen[tree.group] + np.array(tree.depth, dtype=np.int64)])
    tables = _tables(shape, tok_r, real_r, first_r, tok_p, real_p, n_prefix, len(tokens))
    loss = np.fromiter((b for r in rows for b in (r.loss or (True,) * len(r.tokens))), dtype=bool)
    # several rows may look up one node: its logits are computed once, its gradients add up
    node_of = np.concatenate(tree.nodes)[loss]
    used = np.unique(node_of)
    everything = len(used) == len(tree.tokens)
    lengths = [len(r.tokens) for r in rows]
    return Pack(
        tokens=torch.from_numpy(tokens),
        pos=torch.from_numpy(pos),
        n_prefix=n_prefix,
        P=P,
        G=G,
        Tp=Tp,
        Tc=Tc,
        **tables,
        bias_prefix=torch.from_numpy(np.where(real_p, 0.0, NEG).astype(np.float32))[:, None],
        bias_rows=causal(Tc),
        bias_self=causal(Tp),
        used=None if everything else torch.from_numpy(used),
        node_of=torch.from_numpy(node_of if everything else np.searchsorted(used, node_of)),
        targets=torch.from_numpy(np.fromiter((x for r in rows for x in r.tokens), dtype=np.int64)[loss]),
        row_of=torch.from_numpy(np.repeat(np.arange(len(rows)), lengths)[loss]),
        rows=tuple(r.index for r in rows),
    )


def _tables(
    s: DecoderShape,
    tok_r: np.ndarray,
    real_r: np.ndarray,
    first_r: np.ndarray,
    tok_p: np.ndarray,
    real_p: np.ndarray,
    n_prefix: int,
    n: int,
) -> dict[str, Tensor]:
    """Index tables between flat (token, head) rows and the padded layouts of attention.

    Padded: q [P, Hkv, G, rep, Tc], k and v [P, Hkv, G, Tc], prefix k and v [P, Hkv, Tp], prefix q [P, Hkv, rep, Tp].
    """
    nh, H, K = s.qkv_heads, s.heads, s.kv_heads
    head = np.arange(K)
    q_head = np.arange(H).reshape(K, H // K)
    # token * nh + head: the row of a [N * nh, D] view; broadcasting lays it out in the padded order
    rq = tok_r[:, None, :, None, :] * nh + q_head[None, :, None, :, None]
    rk = tok_r[:, None] * nh + (H + head)[None, :, None, None]
    pk = tok_p[:, None] * nh + (H + head)[None, :, None]
    pq = tok_p[:, None, None, :] * nh + q_head[None, :, :, None]
    # values lie K heads behind their keys
    gather = np.concatenate([x.ravel() for x in (rq, rk, rk + K, pk, pk + K, pq)])

    def spread(mask: np.ndarray, like: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.expand_dims(mask, tuple(range(1, 1 + like.ndim - mask.ndim))), like.shape).ravel()

    q_first = np.broadcast_to(first_r[:, None, :, None, :], rq.shape).ravel()
    k_first, k_later = spread(first_r, rk), spread(real_r & ~first_r, rk)
    p_real, pq_real = spread(real_p, pk), spread(real_p, pq)
    # gradients leave by the first occurrence of each node; later ones are added to it (`repeat_to`)
    first = np.flatnonzero(np.concatenate([q_first, k_first, k_first, p_real, p_real, pq_real]))
    # keys and values of a merged beginning are read by several rows; its queries count once, where it first occurs
    later = rq.size + np.flatnonzero(np.concatenate([k_later, k_later]))
    scatter = np.zeros(n * nh, dtype=np.int64)
    # the inverse of `gather`; where a node occurs several times, by its first occurrence
    scatter[gather[first]] = first
    table = scatter.reshape(n, nh)
    first_pq = len(gather) - pq.size
    arrays = {
        "gather": gather,
        "scatter": scatter,
        "repeat_from": later,
        "repeat_to": gather[later],
        "unpad_rows": table[n_prefix:, :H].reshape(-1),
        "unpad_prefix": table[:n_prefix, :H].reshape(-1) - first_pq,
    }
    return {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in arrays.items()}


def batches(rows: Sequence[TrainRow], budget: int) -> Iterator[list[TrainRow]]:
    """Split rows, neighbours in length, into micro-batches of at most `budget` row and prompt tokens.

    Groups stay together unless one alone is over the budget. Order: longest first, deterministic.
    """
    groups: dict[tuple[int, ...], list[TrainRow]] = {}
    for r in rows:
        groups.setdefault(r.prompt, []).append(r)
    units = sorted(groups.values(), key=lambda g: -max(len(r.tokens) for r in g))
    current: list[TrainRow] = []
    cost = 0
    for unit in units:
        for r in sorted(unit, key=lambda r: -len(r.tokens)):
            shared = bool(current) and current[-1].prompt == r.prompt
            # a prompt is computed once for the neighbours that share it
            add = len(r.tokens) + (0 if shared else len(r.prompt))
            if current and cost + add > budget:
                yield current
                current, cost, add = [], 0, len(r.tokens) + len(r.prompt)
            current.append(r)
            cost += add
    if current:
        yield current
