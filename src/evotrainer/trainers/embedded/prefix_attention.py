"""Attention of nodes over the prompt that their group shares, each prompt's keys read once for all of its nodes.

Nodes of one group may stand anywhere among the others, and groups differ in size. Every node is given a slot [P, G]
(group, place in the group), so that one batched product per group serves all of its nodes; unused slots hold zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor


class PrefixAttention:
    """`prefix`: keys and values [layers, P, K, Tp, D], bias [P, 1, Tp]; `group_of`: each node's group, [nodes]."""

    def __init__(self, prefix: tuple[Tensor, Tensor, Tensor], group_of: Tensor, kv_heads: int) -> None:
        self.prefix, self.K = prefix, kv_heads
        self.P = P = prefix[0].shape[1]
        n = group_of.shape[0]
        counts = torch.bincount(group_of, minlength=P)
        self.G = int(counts.max())
        order = group_of.argsort(stable=True)
        first = torch.cumsum(counts, 0) - counts
        within = torch.empty_like(order)
        # place in the group: rank among its nodes, in node order
        within[order] = torch.arange(n) - first[group_of[order]]
        slot = group_of * self.G + within
        in_order = n == P * self.G and bool((slot[1:] > slot[:-1]).all())
        self.slot = None if in_order else slot
        """[nodes] place in the flattened [P, G]; None where node i is in slot i: nothing has to be moved."""
        self.bias = prefix[2].expand(P, kv_heads, -1).reshape(P * kv_heads, 1, -1)

    def __call__(self, q: Tensor, own: Tensor, values: Tensor, i: int) -> Tensor:
        """Output [n*K, rep, D] of layer i: scaled queries over the group's prefix and, with scores `own`,
        over the node's own cache."""
        pk, pv, _ = self.prefix
        P, K, Tp, D = pk.shape[1:]
        if Tp == 0:
            return torch.bmm(torch.softmax(own, -1), values)
        n = q.shape[0] // K
        pre = torch.baddbmm(self.bias, self._to_slots(q), pk[i].view(P * K, Tp, D).transpose(1, 2))
        # one softmax over prefix and own columns; two separate ones would need their log-sum-exps to be merged
        probs = torch.softmax(torch.cat([self._from_slots(pre, n), own], -1), -1)
        att = self._from_slots(torch.bmm(self._to_slots(probs[..., :Tp]), pv[i].view(P * K, Tp, D)), n)
        return att.baddbmm_(probs[..., Tp:], values)

    def _to_slots(self, x: Tensor) -> Tensor:
        """[n*K, rep, m] of the first n nodes -> [P*K, G*rep, m]; unused slots hold zeros."""
        P, G, K = self.P, self.G, self.K
        rep, m = x.shape[1:]
        n = x.shape[0] // K
        if self.slot is None and G == 1 and n == P:
            return x
        x = x.reshape(-1, K, rep, m)
        if self.slot is not None or n < P * G:
            slot = torch.arange(n) if self.slot is None else self.slot[:n]
            x = x.new_zeros(P * G, K, rep, m).index_copy_(0, slot, x)
        return x.view(P, G, K, rep, m).transpose(1, 2).reshape(P * K, G * rep, m)

    def _from_slots(self, x: Tensor, n: int) -> Tensor:
        """[P*K, G*rep, m] -> [n*K, rep, m]."""
        P, G, K = self.P, self.G, self.K
        if self.slot is None and G == 1 and n == P:
            return x
        m = x.shape[2]
        x = x.view(P, K, G, -1, m).transpose(1, 2).reshape(P * G, K, -1, m)
        if self.slot is not None or n < P * G:
            x = x[:n] if self.slot is None else x.index_select(0, self.slot[:n])
        return x.flatten(0, 1)
