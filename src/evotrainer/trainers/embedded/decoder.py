"""Key/value caches of rows being sampled: prompts shared per group, own tokens per node.

A node is a distinct transcript of one group, however many rows share it. All nodes write the same column of their own
cache at the same step. Between turns caches are aligned at the right, so that only their left ends differ, and the
observation is fed in slabs of columns. Nodes whose rows have ended this turn are parked behind the active ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from evotrainer.trainers.clock import LIFE
from evotrainer.trainers.embedded.forward import rms, silu
from evotrainer.trainers.embedded.packing import NEG
from evotrainer.trainers.embedded.prefix_attention import PrefixAttention
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.embedded.tokenizer import PAD
from evotrainer.trainers.embedded.weights import Weights, prefill

LONG = 48
"""Columns from which caches are copied node by node."""
SLAB_SCORES = 4_000_000
"""Attention scores computed at once while an observation is fed."""


class Decoder:
    """Caches of the nodes alive. With `turns`, those of ended rows survive until `realign`."""

    def __init__(
        self, w: Weights, prompts: Sequence[Sequence[int]], rows: int, max_tokens: int, turns: bool = False
    ) -> None:
        s = self.s = w.shape
        self.w, self.turns, self.max_tokens = w, turns, max_tokens
        self.prefix = self.active = prefill(w, [p[:-1] for p in prompts])
        self.P = len(prompts)
        self.group_of = torch.arange(self.P)
        self.pos = torch.tensor([len(p) - 1 for p in prompts])
        self.rows = max(rows, self.P)
        size = (2, self.rows, s.kv_heads, max_tokens, s.head_dim)
        self.own = [torch.empty(size, dtype=w.dtype) for _ in range(s.layers)]
        self._memory = [x.view(-1) for x in self.own]
        self._spare = torch.empty(0, dtype=w.dtype)
        self.t = 0
        """Columns written."""
        self.left: Tensor | None = None
        """[nodes] first column of each node's cache; None: 0."""
        self.parked = 0
        self._arrange()

    @property
    def nodes(self) -> int:
        return self.pos.shape[0]

    def _arrange(self) -> None:
        """Set attention up for the nodes there are; mask what is left of caches."""
        n, K = self.nodes, self.s.kv_heads
        self.attention = PrefixAttention(self.active, self.group_of, K)
        self._own_bias = None
        if self.left is not None:
            hidden = torch.arange(self.own[0].shape[3]) < self.left.unsqueeze(1)
            bias = torch.zeros(hidden.shape, dtype=self.w.dtype).masked_fill_(hidden, NEG)
            self._own_bias = bias.unsqueeze(1).expand(n, K, -1).reshape(n * K, 1, -1)

    def step(self, tokens: Tensor) -> Tensor:
        """Logits [nodes, V] after feeding one token to every node."""
        s, w, t = self.s, self.w, self.t
        n, K, D = tokens.shape[0], s.kv_heads, s.head_dim
        H, rep = s.heads, s.heads // s.kv_heads
        cis = w.cis.index_select(0, self.pos)
        h = w.embed.index_select(0, tokens)
        bias = None if self._own_bias is None else self._own_bias[..., : t + 1]
        for i, (_, out, gate, up, down) in enumerate(w.layers):
            LIFE.give()
            own = self.own[i]
            x = w.project(i, h, cis)
            # x holds queries, keys and values in this order: keys and values go to both halves of the cache at once
            own[:, :n, :, t] = x[:, H:].view(n, 2, K, D).transpose(0, 1)
            keys, values = (own[j, :n].view(n * K, -1, D)[:, : t + 1] for j in (0, 1))
            q = x[:, :H].reshape(n * K, rep, D)
            scores = (
                torch.bmm(q, keys.transpose(1, 2)) if bias is None else torch.baddbmm(bias, q, keys.transpose(1, 2))
            )
            h.addmm_(self.attention(q, scores, values, i).view(n, H * D), out)
            y = rms(h, s.norm_eps)[0]
            h.addmm_(silu(y @ gate).mul_(y @ up), down)
        self.pos += 1
        self.t += 1
        return (rms(h, s.norm_eps)[0] @ w.head).float()

    def branch(self, parent: Tensor) -> Tensor:
        """Node of each child, given its parent (ascending): the first child takes its parent's place."""
        n, m = self.nodes, parent.shape[0]
        later = torch.zeros(m, dtype=torch.bool)
        later[1:] = parent[1:] == parent[:-1]
        extra = int(later.sum())
        place = parent.clone()
        if extra == 0:
            return place
        if self.turns:  # a node without children is remembered by rows that have ended
            target = torch.arange(n, n + extra)
        else:
            # nodes without children are free to be written over; new places only where there are too few
            free = torch.ones(n + extra, dtype=torch.bool)
            free[parent] = False
            target = free.nonzero().squeeze(1)[:extra]
        source = parent[later]
        place[later] = target
        grown = max(n, int(target[-1]) + 1)
        if grown > n:
            self.pos = torch.cat([self.pos, self.pos.new_empty(grown - n)])
            self.group_of = torch.cat([self.group_of, self.group_of.new_empty(grown - n)])
            if self.left is not None:
                self.left = torch.cat([self.left, self.left.new_empty(grown - n)])
        self.pos[target], self.group_of[target] = self.pos[source], self.group_of[source]
        if self.left is not None:
            self.left[target] = self.left[source]
        self._copy(source, target)
        self._arrange()
        return place

    def _copy(self, source: Tensor, target: Tensor) -> None:
        """Caches of nodes to other places; no place is in both."""
        if self.t < LONG:
            for own in self.own:
                own[:, target, :, : self.t] = own[:, source, :, : self.t]
            return
        pairs = list(zip(source.tolist(), target.tolist(), strict=True))
        for own in self.own:
            used = own[..., : self.t, :]
            for a, b in pairs:
                used[:, b] = used[:, a]

    def keep(self, live: Tensor) -> Tensor:
        """Drop or park all nodes but `live` (ascending), and the prefixes of groups without any.

        Returns the new place of each node so far; that of a dropped one means nothing.
        """
        n, m = self.nodes, live.shape[0]
        dead = torch.ones(n, dtype=torch.bool)
        dead[live] = False
        gone = dead.nonzero().squeeze(1)
        # the m that live move to the front: each of the last ones fills a hole that a dead one leaves
        holes, tails = gone[gone < m], live[live >= m]
        moved = torch.arange(n)
        moved[tails] = holes
        if self.turns:
            # dead ones are parked at the end of the cache, before those parked earlier
            end = self.rows - self.parked
            slots = torch.arange(end - gone.shape[0], end)
            away, to = gone[~torch.isin(gone, slots)], slots[~torch.isin(slots, gone)]
            moved[away] = to
            self.parked += gone.shape[0]
            self._exchange(away, to, tails, holes)
        else:
            self._copy(tails, holes)
        order = torch.arange(m)
        order[holes] = tails
        self.pos = self.pos[order]
        self.left = None if self.left is None else self.left[order]
        groups, self.group_of = self.group_of[order].unique(return_inverse=True)
        if groups.shape[0] < self.P:
            self._select_groups(groups)
        self._arrange()
        return moved

    def _exchange(self, away: Tensor, to: Tensor, tails: Tensor, holes: Tensor) -> None:
        """Caches at `away` to `to`, while those at `tails` take the place of `holes`."""
        # places overlap: what is parked may lie where a live one goes to, and the other way round
        parked = list(zip(away.tolist(), to.tolist(), strict=True))
        free, taken = [x for x in parked if x[1] >= self.nodes], [x for x in parked if x[1] < self.nodes]
        filled = list(zip(tails.tolist(), holes.tolist(), strict=True))
        for own in self.own:
            used = own[..., : self.t, :]
            for a, b in free:
                used[:, b] = used[:, a]
            aside = [used[:, a].clone() for a, _ in taken]
            for a, b in filled:
                used[:, b] = used[:, a]
            for x, (_, b) in zip(aside, taken, strict=True):
                used[:, b] = x

    def _select_groups(self, groups: Tensor) -> None:
        pk, pv, bias = self.active
        self.active = pk.index_select(1, groups), pv.index_select(1, groups), bias.index_select(0, groups)
        self.P = groups.shape[0]
        if not self.turns:
            self.prefix = self.active

    def realign(self, node: Tensor, left: Tensor, length: Tensor, group: Tensor, pos: Tensor, rows: int,
                feeds: Sequence[Sequence[int]]) -> None:  # fmt: skip
        """Begin the next turn with new nodes, each going on from a node of the last, and feed them tokens.

        For each new node: the old one's place, the first column and the number of columns to keep, its group (of those
        the decoder was made with or last kept here), the position of its next token, and at least one token to feed;
        longest `feeds` first. `rows`: how many nodes it may become.
        """
        s, n = self.s, node.shape[0]
        K, D = s.kv_heads, s.head_dim
        fed = torch.tensor([len(f) for f in feeds])
        t = int((length + fed).max())
        # right-aligned: every node's next column is `t`, so that one step writes one column for all
        new_left = t - length - fed
        C, width = self.own[0].shape[3], t + self.max_tokens
        # Column c of a node's new cache comes from column c + left - new_left of its old one. Columns outside of
        # what is kept are copied from its ends: masked at the left, and written before they are read at the right.
        column = torch.arange(width) + (left - new_left).unsqueeze(1)
        column = torch.minimum(column.clamp_(min=0), (left + length - 1).unsqueeze(1))
        column = torch.maximum(column, left.unsqueeze(1))
        at = ((node.unsqueeze(1) * K + torch.arange(K)) * C).unsqueeze(2) + column.unsqueeze(1)
        at, size = at.view(-1), 2 * rows * K * width * D
        for i, old in enumerate(self.own):
            if self._spare.shape[0] < size:
                self._spare = old.new_empty(size * 3 // 2)
            new = self._spare[:size].view(2, rows, K, width, D)
            for j in (0, 1):
                torch.index_select(old[j].view(-1, D), 0, at, out=new[j, :n].view(-1, D))
            self.own[i] = new
            # each layer's old memory is the next one's new: one spare for all of them, not a second cache
            self._memory[i], self._spare = self._spare, self._memory[i]
        self.active = self.prefix
        self.P = self.prefix[0].shape[1]
        groups, self.group_of = group.unique(return_inverse=True)
        self.rows, self.parked = rows, 0
        self.left, self.pos = new_left, pos.clone()
        if groups.shape[0] < self.P:
            self._select_groups(groups)
            self.prefix = self.active
        self.t = t
        self._arrange()
        self._feed(feeds, fed)

    def _feed(self, feeds: Sequence[Sequence[int]], fed: Tensor) -> None:
        """Keys and values of the tokens, which end at column `t`."""
        n, longest = len(feeds), int(fed[0])
        tokens = torch.tensor([[PAD] * (longest - len(f)) + list(f) for f in feeds])
        inside = torch.arange(longest) >= (longest - fed).unsqueeze(1)
        positions = self.pos.unsqueeze(1) + torch.arange(longest) - (longest - fed).unsqueeze(1)
        columns = self.t + self.prefix[0].shape[3]
        # all columns at once would need scores of n * heads * fed * columns
        slab = max(1, SLAB_SCORES // (n * self.s.heads * columns))
        for a in range(0, longest, slab):
            b = min(a + slab, longest)
            m = int((fed > longest - b).sum())  # nodes are sorted by length: the first m have tokens in this slab
            row, col = inside[:m, a:b].nonzero().unbind(1)
            self._feed_slab(tokens[row, a + col], positions[row, a + col], row, col, m, self.t - longest + a, b - a)
        self.pos += fed

    def _feed_slab(self, tokens: Tensor, pos: Tensor, row: Tensor, col: Tensor, m: int, start: int, width: int) -> None:
        """Flat tokens of the first m nodes; token i belongs to node row[i], column start + col[i]."""
        s, w = self.s, self.w
        K, D, H = s.kv_heads, s.head_dim, s.heads
        assert self.left is not None
        end = start + width
        cis = w.cis.index_select(0, pos)
        h = w.embed.index_select(0, tokens)
        # a token sees its node's columns up to its own; those left of the node's first one hold nothing
        column = torch.arange(end)
        later = column > torch.arange(start, end).unsqueeze(1)
        empty = column < self.left[:m].view(-1, 1, 1)
        hidden = later | empty
        bias = torch.zeros(hidden.shape, dtype=w.dtype).masked_fill_(hidden, NEG).view(m, 1, 1, width, end)
        to, asked, back = slab_rows(row, col, m, width, start, self.own[0].shape, s)
        for i, (_, out, gate, up, down) in enumerate(w.layers):
            LIFE.give()
            own = self.own[i]
            x = w.project(i, h, cis)
            own.view(-1, D).index_copy_(0, to, x[:, H:].reshape(-1, D))
            if i == s.layers - 1:
                break  # only keys and values are wanted of an observation: nothing reads the last layer's output
            q = x.view(-1, D).index_select(0, asked).view(m * K, -1, D)
            keys, values = (own[j, :m].view(m * K, -1, D)[:, :end] for j in (0, 1))
            scores = torch.bmm(q, keys.transpose(1, 2))
            scores.view(m, K, H // K, width, end).add_(bias)
            att = self.attention(q, scores, values, i).view(-1, D).index_select(0, back)
            h.addmm_(att.view(-1, H * D), out)
            y = rms(h, s.norm_eps)[0]
            h.addmm_(silu(y @ gate).mul_(y @ up), down)


def slab_rows(
    row: Tensor, col: Tensor, m: int, width: int, start: int, size: Sequence[int], s: DecoderShape
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of head_dim numbers: where keys and values of a slab's tokens go in a cache of that size, where the padded
    queries [m, heads, width] come from among the tokens' projections, and where what each token sees is among them."""
    K, H = s.kv_heads, s.heads
    _, rows, _, columns, _ = size
    both = torch.arange(2 * K)
    head = both + (rows - 1) * K * (both >= K)  # values lie behind the keys of all rows
    to = ((row * K).unsqueeze(1) + head) * columns + (start + col).unsqueeze(1)
    of = torch.zeros(m, width, dtype=torch.int64)  # what pads is some token's query, whose output nobody reads
    of[row, col] = torch.arange(row.shape[0])
    asked = of.unsqueeze(1) * s.qkv_heads + torch.arange(H).unsqueeze(1)
    back = ((row * H).unsqueeze(1) + torch.arange(H)) * width + col.unsqueeze(1)
    return to.view(-1), asked.view(-1), back.view(-1)
