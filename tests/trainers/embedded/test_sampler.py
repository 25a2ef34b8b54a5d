"""`trainers.embedded.sampler` against the network's own distribution and against transformers."""

from __future__ import annotations

import pytest
import torch

from evotrainer.errors import TrainerError
from evotrainer.trainers.embedded.forward import score
from evotrainer.trainers.embedded.packing import TrainRow, pack
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.sampler import Samples, SamplingParams, sample
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.embedded.tokenizer import BOS, EOS, PAD
from tests.trainers.reverse_env import logits

SHAPE = DecoderShape(20, d=32, layers=3, heads=4, kv_heads=2, hidden=48, context=96)
PROMPTS = [(BOS, *range(5, 5 + n)) for n in (7, 1, 0, 12, 4)]


@pytest.fixture(scope="module")
def policy() -> Policy:
    """Nearly uniform over 20 tokens, so that rows finish at different steps."""
    p = Policy(SHAPE).init(4)
    p.embed.mul_(0.4)
    for name, w in p.weights.items():
        if "norm" in name:
            w.uniform_(0.7, 1.3, generator=torch.Generator().manual_seed(1))
    return p


def draw(policy: Policy, params: SamplingParams, group: int = 6, seed: int = 0) -> Samples:
    return sample(policy, PROMPTS, group, params, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.4])
def test_recomputed_logprobs_and_entropies_match_the_samplers(policy: Policy, temperature: float) -> None:
    group = 6
    s = draw(policy, SamplingParams(40, temperature), group)
    assert len(set(s.lengths.tolist())) > 5, "rows must finish at different steps"
    for r, n in enumerate(s.lengths.tolist()):
        row = TrainRow(r, PROMPTS[r // group], tuple(s.tokens[r, :n].tolist()))
        lp, ent = score(policy, pack([row], SHAPE), temperature)
        assert (lp - s.logprobs[r, :n]).abs().max() < 1e-4
        assert (ent - s.entropies[r, :n]).abs().max() < 1e-4


def test_rows_end_with_eos_or_at_the_limit_and_are_padded_beyond(policy: Policy) -> None:
    s = draw(policy, SamplingParams(12))
    assert s.stopped.any()
    assert not s.stopped.all()
    for r, n in enumerate(s.lengths.tolist()):
        ids = s.tokens[r].tolist()
        assert EOS not in ids[: n - 1]
        assert (ids[n - 1] == EOS) == bool(s.stopped[r])
        assert bool(s.stopped[r]) or n == 12
        assert all(i == PAD for i in ids[n:])
        assert not s.logprobs[r, n:].any()


@pytest.mark.parametrize("temperature", [1.0, 0.15])
def test_compaction_batching_and_group_sharing_change_nothing(
    policy: Policy, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Randomness belongs to the row, so the same tokens come out however rows are arranged.

    At the low temperature rollouts of a group begin alike and branch late.
    """
    from evotrainer.trainers.embedded import sampler

    base = draw(policy, SamplingParams(40, temperature))
    alike = sum(torch.equal(base.tokens[g * 6, :3], base.tokens[g * 6 + 1, :3]) for g in range(len(PROMPTS)))
    assert alike >= 3 or temperature == 1.0
    for change in ("no compaction", "chunks of 12 rows"):
        with monkeypatch.context() as m:
            m.setattr(sampler, *(("COMPACT_BELOW", 0) if change == "no compaction" else ("ROWS", 12)))
            other = draw(policy, SamplingParams(40, temperature))
        assert torch.equal(base.tokens, other.tokens), change
        assert torch.equal(base.lengths, other.lengths), change
        assert (base.logprobs - other.logprobs).abs().max() < 1e-4
    expanded = [p for p in PROMPTS for _ in range(6)]
    alone = sample(policy, expanded, 1, SamplingParams(40, temperature), torch.Generator().manual_seed(0))
    assert torch.equal(base.tokens, alone.tokens)


def test_frequencies_follow_the_models_distribution(policy: Policy) -> None:
    """Chi-square of 20,000 first tokens against softmax(logits / T)."""
    from scipy.stats import chi2

    n, temperature = 20_000, 0.8
    s = sample(policy, [PROMPTS[0]], n, SamplingParams(1, temperature), torch.Generator().manual_seed(3))
    p = torch.softmax(logits(policy, list(PROMPTS[0]))[-1].double() / temperature, -1)
    counts = torch.bincount(s.tokens[:, 0], minlength=SHAPE.vocab).double()
    frequent = p * n >= 5
    stat = float(((counts - p * n) ** 2 / (p * n))[frequent].sum())
    assert stat < float(chi2.ppf(0.9999, int(frequent.sum()) - 1))


def test_top_p_draws_from_the_nucleus_only(policy: Policy) -> None:
    n, top_p = 5_000, 0.4
    s = sample(policy, [PROMPTS[0]], n, SamplingParams(1, 1.0, top_p), torch.Generator().manual_seed(3))
    p = torch.softmax(logits(policy, list(PROMPTS[0]))[-1], -1).sort(descending=True)
    size = int((p.values.cumsum(0) < top_p).sum()) + 1
    nucleus = set(p.indices[:size].tolist())
    drawn = set(s.tokens[:, 0].tolist())
    assert drawn == nucleus
    share = float((s.tokens[:, 0] == p.indices[0]).float().mean())
    assert share == pytest.approx(float(p.values[0] / p.values[:size].sum()), abs=0.03)


@pytest.mark.xdist_group("trl")  # its imports take seconds: once
def test_greedy_equals_transformers_greedy(policy: Policy) -> None:
    from transformers import GraniteConfig, GraniteForCausalLM

    config = {k: v for k, v in SHAPE.hf_config("float32", PAD, BOS, EOS).items() if k != "architectures"}
    model = GraniteForCausalLM(GraniteConfig(**config))
    model.load_state_dict(policy.to_hf() | {"lm_head.weight": policy.embed})
    s = sample(policy, PROMPTS, 1, SamplingParams(20, greedy=True), torch.Generator())
    for r, prompt in enumerate(PROMPTS):
        out = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, pad_token_id=PAD)
        n = int(s.lengths[r])
        assert s.tokens[r, :n].tolist() == out[0, len(prompt) :].tolist()


def test_bf16_sampling_stays_near_the_fp32_distribution(policy: Policy) -> None:
    s = draw(policy, SamplingParams(10, dtype=torch.bfloat16))
    n = int(s.lengths[0])
    lp, _ = score(policy, pack([TrainRow(0, PROMPTS[0], tuple(s.tokens[0, :n].tolist()))], SHAPE))
    gap = (lp - s.logprobs[0, :n]).abs().max()
    assert 0 < gap < 0.2


def test_a_prompt_that_does_not_fit_is_refused(policy: Policy) -> None:
    with pytest.raises(TrainerError, match="context of 96"):
        draw(policy, SamplingParams(90))
    with pytest.raises(TrainerError, match="empty prompt"):
        sample(policy, [()], 1, SamplingParams(3), torch.Generator())
