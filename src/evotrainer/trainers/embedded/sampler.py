"""Sampling with a static key/value cache, for one turn or several.

Prompts are prefilled once; the rollouts of a group share the prompt's cache. Rollouts that have drawn the same tokens
so far are one *node*, computed once, and branch where they draw differently; at the start of a turn those that also saw
the same observation are one again. Nodes without live rows are compacted away. Randomness is one uniform number per row
and step, drawn before sampling starts, so that none of this changes what is sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from evotrainer.errors import TrainerError
from evotrainer.trainers.embedded.decoder import Decoder
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.tokenizer import EOS, PAD
from evotrainer.trainers.embedded.weights import Weights

ROWS = 256
"""Rows decoded together; more leave the processor's caches."""
COMPACT_BELOW = 0.85
"""Compact once the live share of rows falls below this."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Completions of R rows, row p * group + k for rollout k of prompt p; padded with <pad> to the longest."""

    tokens: Tensor
    """[R, T] int64, the end included."""
    lengths: Tensor
    """[R]"""
    logprobs: Tensor
    """[R, T] under the temperature-scaled distribution, before top-p cuts it; 0 beyond the length."""
    entropies: Tensor
    """[R, T] nats, of the same distribution."""
    stopped: Tensor
    """[R] bool: ended by a stop token; otherwise cut at max_tokens."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    greedy: bool = False
    dtype: torch.dtype = torch.float32
    stops: tuple[int, ...] = (EOS,)
    """Tokens that end a completion."""


@dataclass(frozen=True, slots=True)
class _Distribution:
    """Temperature-scaled next-token distributions of the nodes."""

    logprob: Tensor
    """[n, V]"""
    entropy: Tensor
    """[n]"""
    cumulative: Tensor
    """[n, V] of what is drawn from, in the order of `order`; not normalised."""
    order: Tensor | None
    """[n, V] token at each place of `cumulative`; None: by token id."""


def _distribution(logits: Tensor, params: SamplingParams) -> _Distribution:
    lp = torch.log_softmax(logits / params.temperature if params.temperature != 1.0 else logits, -1)
    p = lp.exp()
    entropy = torch.linalg.vecdot(p, lp).neg_()
    if params.greedy:
        # greedy as a distribution of one token: the same draw serves both
        return _Distribution(lp, entropy, torch.ones(lp.shape[0], 1), lp.argmax(-1, keepdim=True))
    if params.top_p == 1.0:
        return _Distribution(lp, entropy, p.cumsum(-1), None)
    # stable, so that equal probabilities are cut alike on every machine
    p, order = p.sort(dim=-1, descending=True, stable=True)
    # the token that crosses top_p stays in: at least one is left
    before = p.cumsum(-1) - p
    return _Distribution(lp, entropy, p.masked_fill_(before >= params.top_p, 0.0).cumsum(-1), order)


def _draw(d: _Distribution, node: Tensor, u: Tensor) -> Tensor:
    """Token of each row: the first whose cumulative probability at the row's node exceeds u * total."""
    c = d.cumulative.index_select(0, node)
    # inverse-transform sampling; scaled by the total, which top-p leaves below 1
    i = torch.searchsorted(c, (u * c[:, -1]).unsqueeze(1), right=True).clamp_(max=c.shape[1] - 1)
    return (i if d.order is None else d.order.index_select(0, node).gather(1, i)).squeeze(1)


@torch.inference_mode()
def sample(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    group: int,
    params: SamplingParams,
    generator: torch.Generator,
) -> Samples:
    """Sample `group` completions for each prompt (token ids, at least one each).

    Raises TrainerError where a prompt with max_tokens does not fit the policy's context.
    """
    R, T = len(prompts) * group, params.max_tokens
    uniforms = draw_uniforms(R, T, generator)
    out = _blank(R, T)
    weights = Weights(policy, params.dtype)
    # prompts of like length together: prefill pads to the longest of a chunk
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    per_chunk = max(1, ROWS // group)
    for at in range(0, len(order), per_chunk):
        chunk = order[at : at + per_chunk]
        rows = (torch.tensor(chunk).unsqueeze(1) * group + torch.arange(group)).view(-1)
        part = MultiTurnSampler(weights, [prompts[i] for i in chunk], group, params, turns=False).sample(uniforms[rows])
        n = part.tokens.shape[1]
        out.tokens[rows, :n], out.logprobs[rows, :n], out.entropies[rows, :n] = (
            part.tokens,
            part.logprobs,
            part.entropies,
        )
        out.lengths[rows], out.stopped[rows] = part.lengths, part.stopped
    return _trim(out)


def draw_uniforms(rows: int, steps: int, generator: torch.Generator) -> Tensor:
    """[rows, steps] in [0, 1)."""
    # so near to 1 u * total may round to total, and the search would end behind the last token
    return torch.rand(rows, steps, generator=generator).clamp_(max=1 - 1e-6)


def _blank(R: int, T: int) -> Samples:
    return Samples(
        torch.full((R, T), PAD),
        torch.full((R,), T),
        torch.zeros(R, T),
        torch.zeros(R, T),
        torch.zeros(R, dtype=torch.bool),
    )


def _trim(s: Samples) -> Samples:
    width = int(s.lengths.max())
    return replace(s, tokens=s.tokens[:, :width], logprobs=s.logprobs[:, :width], entropies=s.entropies[:, :width])


class MultiTurnSampler:
    """Rows that take turns with their environments: `sample`, `append_observations` for those that go on, `sample`, ...

    Row p * group + k is rollout k of prompt p. At most about ROWS rows belong into one. `turns` false: one turn only,
    whose caches are gone after it.
    """

    def __init__(
        self, w: Weights, prompts: Sequence[Sequence[int]], group: int, params: SamplingParams, turns: bool
    ) -> None:
        _check(prompts, params.max_tokens, w.shape.context)
        self.w, self.params, self.turns = w, params, turns
        R = len(prompts) * group
        self.group = torch.arange(R) // group
        self.start = torch.tensor([len(p) - 1 for p in prompts]).index_select(0, self.group)
        """Position of each row's first token in its own cache."""
        self.decoder = Decoder(w, prompts, R, params.max_tokens, turns)
        self.node = self.group.clone()
        """Node of each row; of ended ones, where its tokens lie."""
        self.current = torch.tensor([p[-1] for p in prompts])
        self.last = torch.zeros(R, dtype=torch.int64)
        """Last token sampled, not yet fed."""
        self.left = torch.zeros(R, dtype=torch.int64)
        self.length = torch.zeros(R, dtype=torch.int64)
        """Columns [left, left + length) of its node are a row's own tokens."""

    @torch.inference_mode()
    def sample(self, u: Tensor) -> Samples:
        """One turn, by uniform numbers [rows, max_tokens]."""
        params, d = self.params, self.decoder
        R, T = u.shape
        V = self.w.shape.vocab
        out = _blank(R, T)
        u = u.t().contiguous()
        stops = torch.tensor(params.stops, dtype=torch.int64)
        rows = torch.arange(R)
        node, current = self.node, self.current
        if self.turns:
            self.left = torch.zeros(R, dtype=torch.int64) if d.left is None else d.left.index_select(0, node)
            self.node = node.clone()
        for t in range(T):
            dist = _distribution(d.step(current), params)
            token = _draw(dist, node, u[t] if rows.shape[0] == R else u[t].index_select(0, rows))
            out.tokens[rows, t] = token
            out.logprobs[rows, t] = dist.logprob.view(-1).index_select(0, node * V + token)
            out.entropies[rows, t] = dist.entropy.index_select(0, node)
            going = ~torch.isin(token, stops)
            if not bool(going.all()):
                ended = rows[~going]
                out.stopped[ended] = True
                out.lengths[ended] = t + 1
                if self.turns:
                    self._ends(ended, node[~going], token[~going])
                rows, node, token = rows[going], node[going], token[going]
            if rows.shape[0] == 0 or t + 1 == T:
                if self.turns:
                    self._ends(rows, node, token)
                break
            # one number for (node, token): rows that drew the same token at the same node stay one node
            children, child_of_row = torch.unique(node * V + token, return_inverse=True)
            place = d.branch(children // V)
            if children.shape[0] < COMPACT_BELOW * d.nodes:
                place = self._compact(place)
            current = torch.full((d.nodes,), PAD)
            current[place] = children % V
            node = place[child_of_row]
        return _trim(out)

    def _ends(self, rows: Tensor, node: Tensor, token: Tensor) -> None:
        self.node[rows], self.last[rows] = node, token
        self.length[rows] = self.decoder.t - self.left[rows]

    def _compact(self, place: Tensor) -> Tensor:
        """Compact to the nodes of `place`; their new places."""
        n = self.decoder.nodes
        moved = self.decoder.keep(torch.sort(place)[0])
        if self.turns:  # nodes parked earlier lie behind the active ones and stay there
            known = self.node < n
            self.node[known] = moved[self.node[known]]
        return moved[place]

    @torch.inference_mode()
    def append_observations(self, rows: Sequence[int], observations: Sequence[Sequence[int]]) -> None:
        """Go on with these rows of the last turn, ascending; each has seen its observation, at least one token."""
        keep = torch.tensor(rows)
        node, left, length, last, group, start = (
            x.index_select(0, keep) for x in (self.node, self.left, self.length, self.last, self.group, self.start)
        )
        keys: dict[tuple[object, ...], list[int]] = {}
        facts = zip(node.tolist(), length.tolist(), last.tolist(), observations, strict=True)
        for i, (at, n, token, text) in enumerate(facts):
            keys.setdefault((at, n, token, *text), []).append(i)
        # longest observation first, as `realign` wants them: slabs feed the first m nodes
        order = sorted(keys, key=len, reverse=True)
        first = torch.tensor([keys[k][0] for k in order])
        new = torch.empty(len(rows), dtype=torch.int64)
        for j, k in enumerate(order):
            new[keys[k]] = j
        self.decoder.realign(
            node[first],
            left[first],
            length[first],
            group[first],
            (start + length)[first],
            len(rows),
            [k[2:-1] for k in order],  # type: ignore[misc]
        )
        self.node, self.start, self.last = new, start, last.clone()
        self.length, self.left = length.clone(), left.clone()
        self.group = self.decoder.group_of.index_select(0, new)
        self.current = torch.tensor([k[-1] for k in order])


def _check(prompts: Sequence[Sequence[int]], max_tokens: int, context: int) -> None:
    if min(len(p) for p in prompts) < 1:
        raise TrainerError("an empty prompt cannot be sampled from; start it with <bos>")
    longest = max(len(p) for p in prompts)
    if longest + max_tokens > context:
        raise TrainerError(
            f"a prompt of {longest} tokens and max_tokens={max_tokens} exceed the policy's context of "
            f"{context}; lower max_tokens or train a policy with a longer context"
        )
