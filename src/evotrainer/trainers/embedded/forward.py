"""Log-probabilities and entropies of packed rows, with a hand-written backward pass.

The network is Llama's, Qwen3's or our own (`shape.py`): pre-norm RMSNorm, rotary attention with shared key/value
heads, gated SiLU MLP.
Written out because at this size autograd's bookkeeping and temporaries cost as much as the arithmetic: norm weights are
folded into the following projection, residual additions into the GEMMs, weight gradients accumulate in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from evotrainer.trainers.clock import LIFE
from evotrainer.trainers.embedded.packing import Pack
from evotrainer.trainers.embedded.policy import Layer, Policy
from evotrainer.trainers.embedded.shape import DecoderShape

silu = torch.nn.functional.silu


@dataclass(slots=True)
class SavedActivations:
    """What one layer's backward needs."""

    y1: Tensor
    r1: Tensor
    padded: Tensor
    probs: Tensor
    self_probs: Tensor | None
    att: Tensor
    y2: Tensor
    r2: Tensor
    gate: Tensor
    up: Tensor
    act: Tensor
    heads: tuple[Tensor, Tensor] | None
    """Normed queries and keys [N, H+K, D] with their factors, where heads have norms."""


@lru_cache
def _tensor(x: float, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # one tensor serves sampling and training
        return torch.tensor(x, dtype=dtype)


def rms(h: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(h / rms(h), 1 / rms(h)) over the last dimension; the norm's weight is folded into the next projection."""
    # the norm and not mean(h * h): one fused pass instead of a temporary of h's size
    n = torch.linalg.vector_norm(h, dim=-1, keepdim=True)
    r = torch.addcmul(_tensor(eps, h.dtype), n, n, value=1.0 / h.shape[-1]).rsqrt_()
    return h * r, r


def rms_backward(dy: Tensor, y: Tensor, r: Tensor) -> Tensor:
    """Gradient at h from the gradient at y = h * r; overwrites dy."""
    m = torch.linalg.vecdot(dy, y, dim=-1).div_(y.shape[-1]).neg_().unsqueeze(-1)
    # d/dh of h / rms(h): the part of dy along y is taken out, what is left is scaled as h was
    return dy.addcmul_(y, m).mul_(r)


class PackViews:
    """The padded buffer of one pack, cut into its parts."""

    __slots__ = ("pk", "pq", "pv", "q", "rk", "rv")

    def __init__(self, buf: Tensor, p: Pack, s: DecoderShape) -> None:
        K, rep, D = s.kv_heads, s.heads // s.kv_heads, s.head_dim
        nq, nr, np_ = p.P * K * p.G * rep * p.Tc, p.P * K * p.G * p.Tc, p.P * K * p.Tp
        q, rk, rv, pk, pv, pq = buf.split([nq, nr, nr, np_, np_, buf.shape[0] - nq - 2 * nr - 2 * np_])
        self.q = q.view(p.P * K, p.G * rep * p.Tc, D)
        self.rk = rk.view(p.P * K * p.G, p.Tc, D)
        self.rv = rv.view(p.P * K * p.G, p.Tc, D)
        self.pk = pk.view(p.P * K, p.Tp, D)
        self.pv = pv.view(p.P * K, p.Tp, D)
        self.pq = pq.view(p.P * K, -1, D)


def _split_scores(x: Tensor, p: Pack, s: DecoderShape) -> tuple[Tensor, Tensor]:
    """Scores [P*K, G*rep*Tc, Tp+Tc] as (prefix part, own part [P*K*G, rep*Tc, Tc])."""
    own = x.view(p.P * s.kv_heads * p.G, -1, p.Tp + p.Tc)
    return x[..., : p.Tp], own[..., p.Tp :]


def attention(qkv: Tensor, p: Pack, s: DecoderShape, with_prefix: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """(output [n, H*D], padded inputs, probabilities, prefix probabilities) of rotated qkv [N, nh, D].

    Rows attend to their group's prefix and to themselves; prefixes to themselves where `with_prefix`.
    """
    K, rep, D, scale = s.kv_heads, s.heads // s.kv_heads, s.head_dim, s.attn_scale
    n_pq = p.P * K * rep * p.Tp
    gather = p.gather if with_prefix else p.gather[: p.gather.shape[0] - n_pq]
    padded = qkv.view(-1, D).index_select(0, gather)
    v = PackViews(padded, p, s)
    scores = qkv.new_empty(p.P * K, p.G * rep * p.Tc, p.Tp + p.Tc)
    s_pre, s_own = _split_scores(scores, p, s)
    q_own = v.q.view(p.P * K * p.G, rep * p.Tc, D)
    if p.Tp:
        bias = p.bias_prefix.expand(p.P, K, p.Tp).reshape(p.P * K, 1, p.Tp)
        torch.baddbmm(bias, v.q, v.pk.transpose(1, 2), alpha=scale, out=s_pre)
    torch.baddbmm(p.bias_rows.repeat(rep, 1), q_own, v.rk.transpose(1, 2), alpha=scale, out=s_own)
    probs = torch.softmax(scores, -1)
    p_pre, p_own = _split_scores(probs, p, s)
    if p.Tp:
        out = torch.bmm(p_pre, v.pv)
        out.view(p.P * K * p.G, rep * p.Tc, D).baddbmm_(p_own, v.rv)
    else:
        out = torch.bmm(p_own, v.rv)
    flat = out.view(-1, D).index_select(0, p.unpad_rows).view(-1, s.heads * D)
    if not with_prefix or not p.Tp:
        return flat, padded, probs, None
    s_self = torch.baddbmm(p.bias_self.repeat(rep, 1), v.pq, v.pk.transpose(1, 2), alpha=scale)
    self_probs = torch.softmax(s_self, -1)
    pre = torch.bmm(self_probs, v.pv).view(-1, D).index_select(0, p.unpad_prefix).view(-1, s.heads * D)
    return torch.cat([pre, flat]), padded, probs, self_probs


def attention_backward(
    da: Tensor, padded: Tensor, probs: Tensor, self_probs: Tensor | None, p: Pack, s: DecoderShape
) -> Tensor:
    """Gradient at the rotated qkv [N, nh, D] from the gradient at the output [n, H*D]."""
    K, rep, D, scale = s.kv_heads, s.heads // s.kv_heads, s.head_dim, s.attn_scale
    H = s.heads
    v = PackViews(padded, p, s)
    grads = padded.new_empty(p.gather.shape[0], D)
    g = PackViews(grads, p, s)
    n_pre = da.shape[0] * H - p.unpad_rows.shape[0]
    da = da.reshape(-1, D)
    do = padded.new_zeros(v.q.shape)
    do.view(-1, D).index_copy_(0, p.unpad_rows, da[n_pre:])
    do_own = do.view(p.P * K * p.G, rep * p.Tc, D)
    dprobs = torch.empty_like(probs)
    d_pre, d_own = _split_scores(dprobs, p, s)
    if p.Tp:
        torch.bmm(do, v.pv.transpose(1, 2), out=d_pre)
    torch.bmm(do_own, v.rv.transpose(1, 2), out=d_own)
    ds = torch._softmax_backward_data(dprobs, probs, -1, probs.dtype)
    s_pre, s_own = _split_scores(ds, p, s)
    p_pre, p_own = _split_scores(probs, p, s)
    q_own = v.q.view(p.P * K * p.G, rep * p.Tc, D)
    dq_own = g.q.view(p.P * K * p.G, rep * p.Tc, D)
    torch.baddbmm(dq_own, s_own, v.rk, beta=0, alpha=scale, out=dq_own)
    torch.baddbmm(g.rk, s_own.transpose(1, 2), q_own, beta=0, alpha=scale, out=g.rk)
    torch.bmm(p_own.transpose(1, 2), do_own, out=g.rv)
    if p.Tp:
        g.q.baddbmm_(s_pre, v.pk, alpha=scale)
        torch.baddbmm(g.pk, s_pre.transpose(1, 2), v.q, beta=0, alpha=scale, out=g.pk)
        torch.bmm(p_pre.transpose(1, 2), do, out=g.pv)
    if self_probs is not None:
        dop = padded.new_zeros(v.pq.shape)
        dop.view(-1, D).index_copy_(0, p.unpad_prefix, da[:n_pre])
        dsp = torch._softmax_backward_data(torch.bmm(dop, v.pv.transpose(1, 2)), self_probs, -1, probs.dtype)
        torch.baddbmm(g.pq, dsp, v.pk, beta=0, alpha=scale, out=g.pq)
        g.pk.baddbmm_(dsp.transpose(1, 2), v.pq, alpha=scale)
        g.pv.baddbmm_(self_probs.transpose(1, 2), dop)
    out = grads.index_select(0, p.scatter)
    if p.repeat_to.shape[0]:
        # keys and values of a shared beginning are read by every row that has it: their gradients add up
        out.index_add_(0, p.repeat_to, grads.index_select(0, p.repeat_from))
    return out.view(-1, s.qkv_heads, D)


def rotate_(qkv: Tensor, cis: Tensor, s: DecoderShape) -> Tensor:
    """Rotate queries and keys of qkv [N, nh, D] in place by cis [N, D/2]."""
    n = s.heads + s.kv_heads
    x = qkv[:, :n].view(-1, n, s.head_dim // 2, 2)
    torch.view_as_complex(x).mul_(cis.unsqueeze(1))
    return qkv


def norm_heads_(qkv: Tensor, w: Layer, s: DecoderShape) -> tuple[Tensor, Tensor]:
    """Norm queries and keys of qkv [N, nh, D] in place, head by head; what its backward needs."""
    x = qkv[:, : s.heads + s.kv_heads]
    y, r = rms(x, s.norm_eps)
    torch.mul(y, w.head_norms(s), out=x)
    return y, r


def norm_heads_backward_(dqkv: Tensor, kept: tuple[Tensor, Tensor], w: Layer, g: Layer, s: DecoderShape) -> None:
    """Gradient before the norm of heads from that after it, in place; the weights' gradients accumulate."""
    y, r = kept
    dx = dqkv[:, : s.heads + s.kv_heads]
    per_head = (dx * y).sum(0)
    g.q_norm.add_(per_head[: s.heads].sum(0))
    g.k_norm.add_(per_head[s.heads :].sum(0))
    dx.copy_(rms_backward(dx * w.head_norms(s), y, r))


class Network:
    """Forward with everything kept for one backward."""

    def __init__(self, policy: Policy, batch: Pack, keep: bool) -> None:
        self.policy, self.batch, self.keep = policy, batch, keep
        self.saved: list[SavedActivations] = []
        self.cis = policy.cis.index_select(0, batch.pos)

    def forward(self) -> Tensor:
        """Normed hidden states at the used nodes [U, d], the final norm's weight left out."""
        policy, p = self.policy, self.batch
        h = policy.embed.index_select(0, p.tokens).mul_(policy.shape.embed_scale)
        last = policy.shape.layers - 1
        for i in range(last + 1):
            LIFE.give()
            h = self._layer(h, i, i < last)
        h = h if p.used is None else h.index_select(0, p.used)
        self.y, self.r = rms(h, policy.shape.norm_eps)
        return self.y

    def _layer(self, h: Tensor, i: int, full: bool) -> Tensor:
        """One block; the last one (`full` false) computes prefix tokens only as far as their keys and values."""
        s, w, p = self.policy.shape, self.policy.layers[i], self.batch
        y1, r1 = rms(h, s.norm_eps)
        w_qkv = w.qkv * w.norm1
        q_width = s.heads * s.head_dim
        if full:
            qkv = y1 @ w_qkv.t()
        else:
            qkv = h.new_empty(h.shape[0], w_qkv.shape[0])
            torch.mm(y1[p.n_prefix :], w_qkv.t(), out=qkv[p.n_prefix :])
            torch.mm(y1[: p.n_prefix], w_qkv[q_width:].t(), out=qkv[: p.n_prefix, q_width:])
            # nobody asks for the queries of prefixes in the last layer; what lies in new memory may be NaN
            qkv[: p.n_prefix, :q_width] = 0.0
            h = h[p.n_prefix :]
        qkv = qkv.view(-1, s.qkv_heads, s.head_dim)
        heads = norm_heads_(qkv, w, s) if s.head_norms else None
        qkv = rotate_(qkv, self.cis, s)
        att, padded, probs, self_probs = attention(qkv, p, s, full)
        h2 = torch.addmm(h, att, w.out.t())
        y2, r2 = rms(h2, s.norm_eps)
        w_gate, w_up = (w.gate_up * w.norm2).chunk(2)
        gate, up = y2 @ w_gate.t(), y2 @ w_up.t()
        act = silu(gate)
        if self.keep:
            self.saved.append(SavedActivations(y1, r1, padded, probs, self_probs, att, y2, r2, gate, up, act, heads))
            return torch.addmm(h2, act * up, w.down.t())
        return h2.addmm_(act.mul_(up), w.down.t())

    def backward(self, dy: Tensor) -> None:
        """Accumulate weight gradients from the gradient at `forward`'s result; overwrites dy."""
        policy, p = self.policy, self.batch
        dh = rms_backward(dy, self.y, self.r)
        n_rows = p.tokens.shape[0] - p.n_prefix
        if p.used is not None:
            dh = dh.new_zeros(n_rows, dh.shape[1]).index_copy_(0, p.used, dh)
        for i in reversed(range(policy.shape.layers)):
            LIFE.give()
            dh = self._layer_backward(dh, i, i < policy.shape.layers - 1)
        policy.grads["embed"].index_add_(0, p.tokens, dh, alpha=policy.shape.embed_scale)

    def _layer_backward(self, dh: Tensor, i: int, full: bool) -> Tensor:
        s, w, g, p = self.policy.shape, self.policy.layers[i], self.policy.layer_grads[i], self.batch
        k = self.saved.pop()
        dm = dh @ w.down
        g.down.addmm_(dh.t(), k.act * k.up)
        dup = dm * k.act
        dgate = torch.ops.aten.silu_backward(dm.mul_(k.up), k.gate)
        w_gate, w_up = (w.gate_up * w.norm2).chunk(2)
        d_folded = torch.cat([dgate.t() @ k.y2, dup.t() @ k.y2])
        _unfold(d_folded, w.gate_up, w.norm2, g.gate_up, g.norm2)
        dy2 = (dgate @ w_gate).addmm_(dup, w_up)
        # add_(dh): the residual's own gradient, straight through
        dh2 = rms_backward(dy2, k.y2, k.r2).add_(dh)
        da = dh2 @ w.out
        g.out.addmm_(dh2.t(), k.att)
        dqkv = attention_backward(da, k.padded, k.probs, k.self_probs, p, s)
        # a rotation's transpose is its inverse: the complex conjugate
        dqkv = rotate_(dqkv, self.cis.conj(), s)
        if k.heads is not None:
            if not full:
                dqkv[: p.n_prefix, : s.heads] = 0.0  # of queries that nobody asked for: what lies in new memory
            norm_heads_backward_(dqkv, k.heads, w, g, s)
        dqkv = dqkv.view(-1, w.qkv.shape[0])
        w_qkv = w.qkv * w.norm1
        if full:
            dy1 = dqkv @ w_qkv
            d_folded = dqkv.t() @ k.y1
            dh1 = rms_backward(dy1, k.y1, k.r1).add_(dh2)
        else:
            n, q_width = p.n_prefix, s.heads * s.head_dim
            dy1 = torch.empty_like(k.y1)
            torch.mm(dqkv[n:], w_qkv, out=dy1[n:])
            torch.mm(dqkv[:n, q_width:], w_qkv[q_width:], out=dy1[:n])
            d_folded = dqkv[n:].t() @ k.y1[n:]
            d_folded[q_width:].addmm_(dqkv[:n, q_width:].t(), k.y1[:n])
            dh1 = rms_backward(dy1, k.y1, k.r1)
            # the last layer computes prefixes only for their keys and values: no residual stream goes on from them
            dh1[n:] += dh2
        _unfold(d_folded, w.qkv, w.norm1, g.qkv, g.norm1)
        return dh1


def _unfold(d_folded: Tensor, weight: Tensor, norm: Tensor, g_weight: Tensor, g_norm: Tensor) -> None:
    """Split the gradient of (weight * norm) into both."""
    g_norm.add_((d_folded * weight).sum(0))
    g_weight.addcmul_(d_folded, norm)


SLICE = 4_000_000
"""Numbers of a slice of [nodes, V] that is worked on at once."""


class _Score(torch.autograd.Function):
    """(log-probability of the targets, entropy), each [T], of softmax(logits / temperature)."""

    @staticmethod
    def forward(
        ctx: Any, handle: Tensor, net: Network, temperature: float, entropy: bool, pulled: bool
    ) -> tuple[Tensor, Tensor]:
        policy, p = net.policy, net.batch
        y = net.forward()
        x = y @ (policy.head * policy.norm).t()
        if temperature != 1.0:
            x.div_(temperature)
        V = x.shape[1]
        flat = p.node_of * V + p.targets
        ent = x.new_zeros(x.shape[0])
        chosen = x.new_empty(flat.shape)
        lps = torch.empty_like(x) if pulled and net.keep else None
        # in slices, each in the place of its logits: of a large vocabulary every [nodes, V] counts in gigabytes
        step = max(1, SLICE // V)
        for i in range(0, x.shape[0], step):
            lp = torch.log_softmax(x[i : i + step], -1)
            at = ((p.node_of >= i) & (p.node_of < i + step)).nonzero().squeeze(1)
            chosen[at] = lp.view(-1).index_select(0, flat[at] - i * V)
            if lps is not None:
                lps[i : i + step] = lp
            # entropy is H = -sum p log p; without it and without a backward pass the probabilities are not wanted
            if entropy or net.keep:
                probs = torch.exp(lp, out=x[i : i + step])
                if entropy:
                    ent[i : i + step] = torch.linalg.vecdot(probs, lp).neg_()
        if net.keep:
            ctx.net, ctx.temperature, ctx.lp, ctx.probs, ctx.ent, ctx.flat = net, temperature, lps, x, ent, flat
        return chosen, ent.index_select(0, p.node_of)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[None, None, None, None, None]:
        g_lp, g_ent = grads
        net, lp, probs = ctx.net, ctx.lp, ctx.probs
        policy, p = net.policy, net.batch
        g = p.targets.new_zeros(p.targets.shape, dtype=probs.dtype) if g_lp is None else g_lp
        # d logp[target] / d logits = onehot(target) - p; d entropy / d logits = -p (logp + entropy). Both share the
        # factor p: the sums over a node's tokens come first, then one product over the vocabulary
        coef = torch.zeros_like(ctx.ent).index_add_(0, p.node_of, g, alpha=-1).unsqueeze(1)
        if g_ent is not None and lp is not None and bool(g_ent.any()):
            weight = torch.zeros_like(ctx.ent).index_add_(0, p.node_of, g_ent, alpha=-1).unsqueeze(1)
            d = (lp + ctx.ent.unsqueeze(1)).mul_(weight).add_(coef).mul_(probs)
        else:
            d = probs.mul_(coef)
        d.view(-1).index_add_(0, ctx.flat, g)
        if ctx.temperature != 1.0:
            d.div_(ctx.temperature)
        _unfold(d.t() @ net.y, policy.head, policy.norm, policy.head_grad, policy.grads["norm"])
        dy = d @ (policy.head * policy.norm)
        del d, ctx.probs, probs, ctx.lp, lp  # before the layers' own gradients are made
        net.backward(dy)
        return None, None, None, None, None


def score(
    policy: Policy, batch: Pack, temperature: float = 1.0, entropy: bool = True, pulled: bool = True
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the targets and token entropies, both [T], in nats.

    Under grad mode and with a trainable policy, `backward` through them accumulates into `policy.grad`, once. `pulled`:
    the entropies get a gradient, too.
    """
    keep = policy.grad is not None and torch.is_grad_enabled()
    # autograd calls a Function's backward only if an input requires grad; the weights' gradients go past autograd
    handle = torch.zeros((), requires_grad=keep)
    return _Score.apply(handle, Network(policy, batch, keep), temperature, entropy, pulled)
