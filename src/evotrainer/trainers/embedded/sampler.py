"""Sampling with a static key/value cache.

Prompts are prefilled once; the rollouts of a group share the prompt's cache and own a cache of their completion only,
in which all rows write the same slot at the same step. Finished rows are compacted away. Randomness is one uniform
number per row and step, drawn before sampling starts, so that compaction and batching change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evotrainer.errors import TrainerError
from evotrainer.trainers.embedded.forward import rms, rotate_, silu
from evotrainer.trainers.embedded.packing import causal
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.shape import Shape
from evotrainer.trainers.embedded.tokenizer import EOS, PAD

ROWS = 256
"""Rows decoded together; more leave the processor's caches."""
COMPACT_BELOW = 0.85
"""Compact once the live share of rows falls below this."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Completions of R rows, row p * group + k for rollout k of prompt p; padded with <pad> to the longest."""

    tokens: Tensor
    """[R, T] int64, <eos> included."""
    lengths: Tensor
    """[R]"""
    logprobs: Tensor
    """[R, T] under the temperature-scaled distribution, before top-p cuts it; 0 beyond the length."""
    entropies: Tensor
    """[R, T] nats, of the same distribution."""
    stopped: Tensor
    """[R] bool: ended with <eos>; otherwise cut at max_tokens."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    greedy: bool = False
    compact: bool = True
    dtype: torch.dtype = torch.float32


class Weights:
    """Decoding weights: norms folded in, projections transposed for GEMM, in the sampler's precision."""

    def __init__(self, policy: Policy, dtype: torch.dtype) -> None:
        def t(w: Tensor, norm: Tensor | None = None) -> Tensor:
            return (w if norm is None else w * norm).t().to(dtype).contiguous()

        self.shape, self.dtype = policy.shape, dtype
        self.cis = policy.cis
        self.embed = (policy.embed * policy.shape.embed_scale).to(dtype)
        self.head = t(policy.embed, policy.norm)
        self.layers = []
        for w in policy.layers:
            gate, up = w.gate_up.chunk(2)
            self.layers.append(
                (t(w.qkv, w.norm1), t(w.out), t(gate, w.norm2), t(up, w.norm2), t(w.down)),
            )


def bf16_pays() -> bool:
    """Whether the processor multiplies bf16 natively; emulated bf16 is slower than fp32."""
    capability = torch.backends.cpu.get_cpu_capability()
    flags = ("amx" in capability.lower()) or _cpu_flag("avx512_bf16") or _cpu_flag("amx_bf16")
    return flags


def _cpu_flag(flag: str) -> bool:
    try:
        with open("/proc/cpuinfo") as f:
            return any(flag in line.split() for line in f if line.startswith("flags"))
    except OSError:
        return False


def _prefill(w: Weights, prefixes: list[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Caches of the prefixes: keys and values [L, P, Hkv, Tp, D], additive mask [P, 1, Tp]."""
    s = w.shape
    P, T = len(prefixes), max(len(x) for x in prefixes)
    K, D, H = s.kv_heads, s.head_dim, s.heads
    ids = torch.full((P, T), PAD)
    bias = torch.full((P, 1, T), float("-inf"))
    for i, prefix in enumerate(prefixes):
        ids[i, : len(prefix)] = torch.tensor(prefix, dtype=torch.int64)
        bias[i, 0, : len(prefix)] = 0.0
    keys = torch.empty(s.layers, P, K, T, D, dtype=w.dtype)
    values = torch.empty_like(keys)
    if T == 0:
        return keys, values, bias
    cis = w.cis[:T].repeat(P, 1)
    h = w.embed[ids.view(-1)]
    mask = causal(T).to(w.dtype).repeat(H // K, 1)
    for i, (qkv, out, gate, up, down) in enumerate(w.layers):
        last = i == s.layers - 1
        x = _rotate((rms(h)[0] @ qkv).view(-1, s.qkv_heads, D), cis, s).view(P, T, s.qkv_heads, D).transpose(1, 2)
        keys[i], values[i] = x[:, H : H + K], x[:, H + K :]
        if last:
            break
        q = x[:, :H].reshape(P * K, -1, D)
        k, v = keys[i].view(P * K, T, D), values[i].view(P * K, T, D)
        att = torch.softmax(torch.baddbmm(mask, q, k.transpose(1, 2), alpha=s.attn_scale), -1) @ v
        h = torch.addmm(h, att.view(P, H, T, D).transpose(1, 2).reshape(P * T, H * D), out)
        y = rms(h)[0]
        h.addmm_(silu(y @ gate).mul_(y @ up), down)
    return keys, values, bias.to(w.dtype)


def _rotate(qkv: Tensor, cis: Tensor, s: Shape) -> Tensor:
    if qkv.dtype == torch.float32:
        return rotate_(qkv, cis, s)
    return rotate_(qkv.float(), cis, s).to(qkv.dtype)


class _Decoder:
    """State of the rows still alive. Rows are ordered by group; group p has its prefix cached once."""

    def __init__(self, w: Weights, prompts: list[Sequence[int]], group: int, params: SamplingParams) -> None:
        s = self.s = w.shape
        self.w = w
        self.pk, self.pv, self.bias = _prefill(w, [p[:-1] for p in prompts])
        self.P, self.G = len(prompts), group
        self.rows = torch.arange(self.P * group)
        self.group_of = self.rows // group
        self.slot: Tensor | None = None
        self.pos = torch.tensor([len(p) - 1 for p in prompts]).repeat_interleave(group)
        size = (s.layers, self.P * group, s.kv_heads, params.max_tokens, s.head_dim)
        self.sk = torch.empty(size, dtype=w.dtype)
        self.sv = torch.empty(size, dtype=w.dtype)
        self.t = 0

    def step(self, tokens: Tensor) -> Tensor:
        """Logits [R, V] after feeding one token to every row."""
        s, w, t = self.s, self.w, self.t
        R, K, D = tokens.shape[0], s.kv_heads, s.head_dim
        H, rep = s.heads, s.heads // s.kv_heads
        cis = w.cis.index_select(0, self.pos)
        h = w.embed.index_select(0, tokens)
        for i, (qkv, out, gate, up, down) in enumerate(w.layers):
            x = _rotate((rms(h)[0] @ qkv).view(R, s.qkv_heads, D), cis, s)
            sk, sv = self.sk[i, :, :, : t + 1], self.sv[i, :, :, : t + 1]
            sk[:, :, t], sv[:, :, t] = x[:, H : H + K], x[:, H + K :]
            q = x[:, :H].mul(s.attn_scale).view(R, K, rep, D)
            h.addmm_(self._attend(q, sk, sv, i).view(R, H * D), out)
            y = rms(h)[0]
            h.addmm_(silu(y @ gate).mul_(y @ up), down)
        self.pos += 1
        self.t += 1
        return (rms(h)[0] @ w.head).float()

    def _attend(self, q: Tensor, sk: Tensor, sv: Tensor, i: int) -> Tensor:
        """Output [R, K, rep, D] of scaled queries over the group's prefix and the row's own cache."""
        _, K, rep, D = q.shape
        own = torch.matmul(q, sk.transpose(2, 3))
        Tp = self.pk.shape[3]
        if Tp == 0:
            return torch.matmul(torch.softmax(own, -1), sv)
        P, G = self.P, self.G
        pre = torch.baddbmm(
            self._bias, self._to_slots(q).view(P * K, G * rep, D), self.pk[i].view(P * K, Tp, D).transpose(1, 2)
        )
        pre = self._from_slots(pre.view(P, K, G, rep, Tp))
        probs = torch.softmax(torch.cat([pre, own], -1), -1)
        att = torch.matmul(probs[..., Tp:], sv)
        p = self._to_slots(probs[..., :Tp]).view(P * K, G * rep, Tp)
        return att.add_(self._from_slots(torch.bmm(p, self.pv[i].view(P * K, Tp, D)).view(P, K, G, rep, D)))

    @property
    def _bias(self) -> Tensor:
        return self.bias.expand(self.P, self.s.kv_heads, -1).reshape(self.P * self.s.kv_heads, 1, -1)

    def _to_slots(self, x: Tensor) -> Tensor:
        """[R, K, rep, n] -> contiguous [P, K, G, rep, n]; unused slots hold zeros."""
        _, K, rep, n = x.shape
        if self.slot is None:
            return x.reshape(self.P, self.G, K, rep, n).transpose(1, 2).contiguous()
        full = x.new_zeros(self.P * self.G, K, rep, n).index_copy_(0, self.slot, x)
        return full.view(self.P, self.G, K, rep, n).transpose(1, 2).contiguous()

    def _from_slots(self, x: Tensor) -> Tensor:
        """[P, K, G, rep, n] -> [R, K, rep, n]."""
        P, K, G, rep, n = x.shape
        x = x.transpose(1, 2).reshape(P * G, K, rep, n)
        return x if self.slot is None else x.index_select(0, self.slot)

    def keep(self, live: Tensor) -> None:
        """Drop all rows but `live` (indices, ascending), and the prefixes of groups without rows."""
        self.rows, self.pos = self.rows[live], self.pos[live]
        t = self.t
        for name in ("sk", "sv"):
            old = getattr(self, name)
            new = old.new_empty(old.shape[0], live.shape[0], *old.shape[2:])
            new[:, :, :, :t] = old[:, :, :, :t].index_select(1, live)
            setattr(self, name, new)
        groups, self.group_of, counts = self.group_of[live].unique_consecutive(return_inverse=True, return_counts=True)
        if groups.shape[0] < self.P:
            self.pk, self.pv, self.bias = (
                self.pk.index_select(1, groups),
                self.pv.index_select(1, groups),
                self.bias.index_select(0, groups),
            )
        self.P, self.G = groups.shape[0], int(counts.max())
        first = torch.cumsum(counts, 0) - counts
        within = torch.arange(live.shape[0]) - first[self.group_of]
        full = live.shape[0] == self.P * self.G
        self.slot = None if full else self.group_of * self.G + within


def _choose(logits: Tensor, u: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor, Tensor]:
    """(token, its log-probability, entropy), each [R], by inversion of the cumulative distribution at u."""
    lp = torch.log_softmax(logits / params.temperature if params.temperature != 1.0 else logits, -1)
    p = lp.exp()
    entropy = torch.linalg.vecdot(p, lp).neg_()
    if params.greedy:
        token = lp.argmax(-1)
    elif params.top_p < 1.0:
        sorted_p, order = p.sort(dim=-1, descending=True, stable=True)
        before = sorted_p.cumsum(-1) - sorted_p
        sorted_p = sorted_p.masked_fill(before >= params.top_p, 0.0)
        token = order.gather(1, _invert(sorted_p, u)).squeeze(1)
    else:
        token = _invert(p, u).squeeze(1)
    return token, lp.gather(1, token.unsqueeze(1)).squeeze(1), entropy


def _invert(p: Tensor, u: Tensor) -> Tensor:
    """First index [R, 1] whose cumulative probability exceeds u * total."""
    c = p.cumsum(-1)
    i = torch.searchsorted(c, (u * c[:, -1]).unsqueeze(1), right=True)
    return i.clamp_(max=p.shape[1] - 1)


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
    s = policy.shape
    longest = max(len(p) for p in prompts)
    if min(len(p) for p in prompts) < 1:
        raise TrainerError("an empty prompt cannot be sampled from; start it with <bos>")
    if longest + params.max_tokens > s.context:
        raise TrainerError(
            f"a prompt of {longest} tokens and max_tokens={params.max_tokens} exceed the policy's context of "
            f"{s.context}; lower max_tokens or train a policy with a longer context"
        )
    R, T = len(prompts) * group, params.max_tokens
    uniforms = torch.rand(R, T, generator=generator).clamp_(max=1 - 1e-6)
    tokens = torch.full((R, T), PAD)
    logprobs, entropies = torch.zeros(R, T), torch.zeros(R, T)
    lengths = torch.zeros(R, dtype=torch.int64)
    stopped = torch.zeros(R, dtype=torch.bool)
    weights = Weights(policy, params.dtype)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    per_chunk = max(1, ROWS // group)
    for at in range(0, len(order), per_chunk):
        chunk = order[at : at + per_chunk]
        rows = (torch.tensor(chunk).unsqueeze(1) * group + torch.arange(group)).view(-1)
        out = _decode(weights, [prompts[i] for i in chunk], group, params, uniforms[rows])
        tokens[rows], lengths[rows], logprobs[rows], entropies[rows], stopped[rows] = out
    width = int(lengths.max())
    return Samples(tokens[:, :width], lengths, logprobs[:, :width], entropies[:, :width], stopped)


def _decode(
    w: Weights, prompts: list[Sequence[int]], group: int, params: SamplingParams, u: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Tokens, lengths, logprobs, entropies, stopped of one chunk."""
    R, T = u.shape
    tokens = torch.full((R, T), PAD)
    logprobs, entropies = torch.zeros(R, T), torch.zeros(R, T)
    lengths = torch.full((R,), T)
    stopped = torch.zeros(R, dtype=torch.bool)
    d = _Decoder(w, prompts, group, params)
    u = u.t().contiguous()
    current = torch.tensor([p[-1] for p in prompts]).repeat_interleave(group)
    done = torch.zeros(R, dtype=torch.bool)
    for t in range(T):
        token, lp, ent = _choose(d.step(current), u[t].index_select(0, d.rows), params)
        rows = d.rows
        tokens[rows, t], logprobs[rows, t], entropies[rows, t] = token, lp, ent
        newly = (token == EOS) & ~done
        if t + 1 == T:
            stopped[rows[newly]] = True
            break
        if bool(newly.any()):
            stopped[rows[newly]] = True
            lengths[rows[newly]] = t + 1
            done |= newly
            live = (~done).nonzero().squeeze(1)
            if live.shape[0] == 0:
                break
            if params.compact and live.shape[0] < COMPACT_BELOW * done.shape[0]:
                d.keep(live)
                token, done = token[live], done[live]
        current = token
    beyond = torch.arange(T) >= lengths.unsqueeze(1)
    return (
        tokens.masked_fill_(beyond, PAD),
        lengths,
        logprobs.masked_fill_(beyond, 0.0),
        entropies.masked_fill_(beyond, 0.0),
        stopped,
    )
