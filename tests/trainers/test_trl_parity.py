"""Our losses and gradients against TRL's own, on the same batch, through a real GRPOTrainer on the exported policy.

The batch has groups of unequal length, zero-advantage rollouts and a truncated one, and micro-batches of our own size.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.trainers.embedded import update as update_module
from evotrainer.trainers.embedded.attempts import EmbeddedAttempt
from evotrainer.trainers.embedded.folder import save_policy
from evotrainer.trainers.embedded.optim import Optimizer
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.embedded.tokenizer import BOS, EOS, build_tokenizer
from evotrainer.trainers.embedded.update import Example, StepSums, _accumulate, _micros, normaliser

trl = pytest.importorskip("trl", reason="TRL is a development dependency: pip install -e '.[dev]'")
pytestmark = pytest.mark.xdist_group("trl")  # its imports take seconds: once

MAX_TOKENS = 12
GROUP = 4
# TRL: option -> value, for each loss name of ours
TRL_LOSS: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "dapo": {"loss_type": "dapo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "bnpo": {"loss_type": "bnpo"},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "cispo": {"loss_type": "cispo"},
}


def _policy(seed: int, vocab: int) -> Policy:
    policy = Policy(DecoderShape(vocab, d=32, layers=2, heads=4, kv_heads=2, hidden=48, context=64), True).init(seed)
    gen = torch.Generator().manual_seed(seed)
    for name, w in policy.weights.items():
        if "norm" in name:
            w.uniform_(0.7, 1.3, generator=gen)
    return policy


def _reference(vocab: int) -> Policy:
    """A start policy not far from the one in training."""
    policy = _policy(1, vocab).clone()
    policy.flat += 0.03 * torch.randn(policy.flat.shape, generator=torch.Generator().manual_seed(2))
    return policy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trl") / "policy"
    tokenizer = build_tokenizer(["ab", "cde"], "parity")
    save_policy(_policy(1, len(tokenizer)), tokenizer, out)
    return out


def _attempts(vocab: int) -> list[EmbeddedAttempt]:
    """Three groups; one attempt is cut at MAX_TOKENS; sampling log-probabilities are a little off."""
    rng = random.Random(5)
    out = []
    for g in range(3):
        prompt = (BOS, *(rng.randrange(4, vocab) for _ in range(2 + 2 * g)))
        for k in range(GROUP):
            cut = g == 1 and k == 2
            n = MAX_TOKENS if cut else rng.randrange(1, MAX_TOKENS)
            ids = [rng.randrange(4, vocab) for _ in range(n)]
            if not cut:
                ids[-1] = EOS
            a = EmbeddedAttempt(None, k, None, prompt, ids, [True] * n, finish="length" if cut else "stop")
            a.logprobs = [-rng.uniform(3, 6) for _ in range(n)]
            out.append(a)
    return out


ADVANTAGES = [1.2, -0.4, 0.0, -0.8, 0.0, 0.0, 0.0, 0.0, 0.9, 0.3, -1.1, -0.1]


def _ours(folder: Path, recipe: Recipe, old: list[torch.Tensor] | None, monkeypatch: Any) -> tuple[float, Policy]:
    """(loss, policy with gradients) of one pass; `old` per rollout."""
    monkeypatch.setattr(update_module, "MICRO_TOKENS", 40)
    vocab = len(build_tokenizer(["ab", "cde"], "parity"))
    policy, reference = _policy(1, vocab), _reference(vocab)
    examples = [Example(a, adv) for a, adv in zip(_attempts(vocab), ADVANTAGES, strict=True)]
    norm, sums = normaliser(examples, recipe), StepSums()
    micros = _micros(policy, examples, recipe)
    assert len(micros) > 1
    for m in micros:
        if old is not None:
            m.old = torch.cat([old[i] for i in m.batch.rows])
        _accumulate(policy, m, recipe, norm, reference if recipe.kl_beta else None, 1, sums)
    return sums.loss, policy


def _trl_trainer(folder: Path, tmp: Path, recipe: Recipe) -> Any:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    args = trl.GRPOConfig(
        output_dir=str(tmp),
        per_device_train_batch_size=len(ADVANTAGES),
        num_generations=GROUP,
        max_completion_length=MAX_TOKENS,
        epsilon=recipe.clip.low,
        epsilon_high=recipe.clip.high + (1.0 if recipe.loss == "cispo" else 0.0),
        beta=recipe.kl_beta,
        temperature=recipe.temperature,
        entropy_coef=recipe.entropy_bonus,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        **TRL_LOSS[recipe.loss],
    )
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=[lambda completions, **kw: [0.0] * len(completions)],
        args=args,
        train_dataset=Dataset.from_dict({"prompt": ["ab"] * len(ADVANTAGES)}),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def _trl_inputs(trainer: Any, recipe: Recipe, old: list[torch.Tensor] | None, vocab: int) -> dict[str, torch.Tensor]:
    """The batch as TRL's _generate_and_score_completions lays it out: prompts left-, completions right-padded."""
    attempts = _attempts(vocab)
    R, Tp = len(attempts), max(len(a.prompt) for a in attempts)
    prompt_ids, prompt_mask = torch.zeros(R, Tp, dtype=torch.long), torch.zeros(R, Tp, dtype=torch.long)
    ids, mask = torch.zeros(R, MAX_TOKENS, dtype=torch.long), torch.zeros(R, MAX_TOKENS, dtype=torch.long)
    old_lp, sampler = torch.zeros(R, MAX_TOKENS), torch.zeros(R, MAX_TOKENS)
    for i, a in enumerate(attempts):
        prompt_ids[i, Tp - len(a.prompt) :] = torch.tensor(a.prompt)
        prompt_mask[i, Tp - len(a.prompt) :] = 1
        n = len(a.ids)
        ids[i, :n], sampler[i, :n] = torch.tensor(a.ids), torch.tensor(a.logprobs)
        mask[i, :n] = 0 if recipe.mask_truncated and a.finish == "length" else 1
        if old is not None:
            old_lp[i, :n] = old[i]
    batch = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": torch.tensor(ADVANTAGES),
        "num_items_in_batch": mask.sum(),
    }
    if old is not None:
        batch["old_per_token_logps"] = old_lp
    if recipe.is_cap is not None:
        base = old_lp if old is not None else None
        assert base is not None, "TRL's importance ratio is taken against the old log-probabilities"
        batch["importance_sampling_ratio"] = torch.exp((base - sampler) * mask).clamp(max=recipe.is_cap)
    if recipe.kl_beta:
        trainer.ref_model.load_state_dict(_reference(vocab).to_hf(), strict=False)
        with torch.no_grad():
            batch["ref_per_token_logps"], _, _ = trainer._get_per_token_logps_and_entropies(
                trainer.ref_model, torch.cat([prompt_ids, ids], 1), torch.cat([prompt_mask, mask], 1), MAX_TOKENS
            )
    return batch


def _old_logprobs(vocab: int) -> list[torch.Tensor]:
    """Near the policy's own, so that some ratios leave the clip range on either side."""
    from evotrainer.trainers.embedded.forward import score
    from evotrainer.trainers.embedded.packing import pack

    gen = torch.Generator().manual_seed(3)
    policy = _policy(1, vocab)
    out = []
    for i, a in enumerate(_attempts(vocab)):
        with torch.no_grad():
            lp, _ = score(policy, pack([a.row(i)], policy.shape), 0.8)
        out.append(lp + 0.3 * torch.randn(lp.shape, generator=gen))
    return out


CASES = [({"loss": name}, stale) for name in TRL_LOSS for stale in (False, True)] + [
    ({"loss": "grpo", "kl_beta": 0.1, "entropy_bonus": 0.02}, True),
    ({"loss": "dapo", "kl_beta": 0.1, "mask_truncated": True}, False),
    ({"loss": "gspo", "kl_beta": 0.1}, True),
    ({"loss": "grpo", "mask_truncated": True}, True),
    ({"loss": "dr_grpo", "entropy_bonus": 0.05, "clip": {"low": 0.2, "high": 0.28}}, True),
    ({"loss": "bnpo", "is_cap": 2.0}, True),
    ({"loss": "cispo", "is_cap": 1.5, "clip": {"low": 0.2, "high": 0.1}}, True),
]


@pytest.mark.parametrize(
    ("values", "stale"), CASES, ids=lambda x: "-".join(map(str, x.values())) if isinstance(x, dict) else f"stale={x}"
)
def test_loss_and_gradients_equal_trl(
    values: dict[str, Any], stale: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = parse_recipe(values | {"temperature": 0.8, "max_tokens": MAX_TOKENS, "rewards": {"x": 1.0}})
    vocab = len(build_tokenizer(["ab", "cde"], "parity"))
    old = _old_logprobs(vocab) if stale else None
    loss, policy = _ours(folder, recipe, old, monkeypatch)

    trainer = _trl_trainer(folder, tmp_path, recipe)
    trainer.model.train()
    if recipe.is_cap is not None:
        trainer.use_vllm, trainer.vllm_importance_sampling_correction = True, True
    theirs = trainer.compute_loss(trainer.model, _trl_inputs(trainer, recipe, old, vocab))
    theirs.backward()

    assert abs(loss - theirs.item()) < 1e-5
    assert policy.grad is not None
    grads = Policy(policy.shape)
    grads.flat.copy_(policy.grad)
    mine = grads.to_hf()
    largest = 0.0
    for name, p in trainer.model.named_parameters():
        assert (mine[name] - p.grad).abs().max() < 1e-5, name
        largest = max(largest, float(p.grad.abs().max()))
    assert largest > 1e-2, "a batch without gradient would prove nothing"


def test_one_optimizer_step_equals_torch_adamw_on_the_exported_model(folder: Path) -> None:
    """Flat buffers, clipping and decay change nothing against per-tensor AdamW."""
    from transformers import AutoModelForCausalLM

    vocab = len(build_tokenizer(["ab", "cde"], "parity"))
    policy = _policy(1, vocab)
    optimizer = Optimizer(policy, weight_decay=0.1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    named = dict(model.named_parameters())
    decayed = [p for n, p in named.items() if "norm" not in n]
    plain = [p for n, p in named.items() if "norm" in n]
    adam = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=1e-2,
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    gen = torch.Generator().manual_seed(0)
    for _ in range(3):
        assert policy.grad is not None
        policy.grad.normal_(generator=gen)
        grads = Policy(policy.shape)
        grads.flat.copy_(policy.grad)
        for n, g in grads.to_hf().items():
            named[n].grad = g
        theirs = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        assert optimizer.step(1e-2, 1.0) == pytest.approx(float(theirs), rel=1e-5)
    mine = policy.to_hf()
    assert all((mine[n] - p).abs().max() < 1e-5 for n, p in named.items())
