"""Layouts of the embedded engine against transformers: logits, gradients, greedy samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from evotrainer.errors import TrainerError
from evotrainer.trainers.embedded import packing
from evotrainer.trainers.embedded.forward import score
from evotrainer.trainers.embedded.packing import TrainRow, pack
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.sampler import SamplingParams, sample
from evotrainer.trainers.embedded.shape import DecoderShape
from tests.trainers.reverse_env import logits

pytestmark = pytest.mark.xdist_group("trl")  # its imports take seconds: once

SHAPE = DecoderShape(97, d=48, layers=3, heads=6, kv_heads=2, hidden=72, context=96, rope_base=5e4, norm_eps=1e-6)
LAYOUTS = {
    "granite": replace(SHAPE, layout="granite"),
    "llama": replace(SHAPE, layout="llama"),
    "llama-untied": replace(SHAPE, layout="llama", tied=False),
    "llama-wide-heads": replace(SHAPE, layout="llama", head_size=16),
    "qwen3": replace(SHAPE, layout="qwen3", head_size=12),
    "qwen3-untied": replace(SHAPE, layout="qwen3", head_size=16, tied=False),
}
PROMPT = (2, 7, 8, 31, 90, 4, 55)
ROWS = [
    TrainRow(0, PROMPT, (9, 10, 11, 1)),
    TrainRow(1, PROMPT, (9, 10, 40)),
    TrainRow(2, (2, 5), (77, 3, 4, 5, 6, 1), (True, False, True, True, True, True)),
]


def make(name: str) -> tuple[Policy, Any]:
    """(ours, transformers' model) with the same random weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = LAYOUTS[name]
    policy = Policy(shape, trainable=True).init(1)
    for n, w in policy.weights.items():
        if "norm" in n:
            w.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(len(n)))
    config = shape.hf_config("float32", 0, 2, 1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    state = policy.to_hf()
    model.load_state_dict(state | ({"lm_head.weight": state["model.embed_tokens.weight"]} if shape.tied else {}))
    return policy, model


@pytest.mark.parametrize("name", LAYOUTS)
def test_logits_are_those_of_transformers(name: str) -> None:
    policy, model = make(name)
    ids = [int(i) for i in torch.randint(0, 97, (40,), generator=torch.Generator().manual_seed(3))]
    with torch.no_grad():
        theirs = model(input_ids=torch.tensor([ids])).logits[0]
    assert (logits(policy, ids) - theirs).abs().max() < 1e-4
    assert sum(p.numel() for p in model.parameters()) == policy.shape.parameters()


@pytest.mark.parametrize("name", LAYOUTS)
def test_gradients_are_those_of_autograd_through_transformers(name: str) -> None:
    policy, model = make(name)
    lp, _ = score(policy, pack(ROWS, policy.shape))
    lp.sum().backward()
    total = torch.zeros(())
    for r in ROWS:
        ids = torch.tensor([[*r.prompt, *r.tokens]])
        all_lp = torch.log_softmax(model(input_ids=ids).logits[0], -1)
        chosen = all_lp[:-1].gather(1, ids[0, 1:, None])[len(r.prompt) - 1 :, 0]
        total = total + chosen[torch.tensor(r.loss or [True] * len(r.tokens))].sum()
    total.backward()
    assert policy.grad is not None
    ours = Policy(policy.shape)
    ours.flat.copy_(policy.grad)
    for key, mine in ours.to_hf().items():
        theirs = model.get_parameter(key).grad
        assert (mine - theirs).abs().max() < 1e-4 * max(1.0, float(theirs.abs().max())), key


@pytest.mark.parametrize("name", LAYOUTS)
def test_greedy_samples_are_those_of_transformers(name: str) -> None:
    policy, model = make(name)
    prompts = [PROMPT, (2, 5), (2, 9, 9, 9)]
    s = sample(policy, prompts, 1, SamplingParams(20, greedy=True), torch.Generator())
    for r, prompt in enumerate(prompts):
        out = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=1)
        n = int(s.lengths[r])
        assert s.tokens[r, :n].tolist() == out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_common_beginning_is_computed_once_and_changes_no_number(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = LAYOUTS[name]
    system = tuple(range(3, 23))
    prompts = [(*system, 40, 41), (*system, 50, 51, 52, 53), (*system, 40)]
    rows = [TrainRow(i, p, (60 + i, 61, 1), (True, i > 1, True)) for i, p in enumerate(prompts) for _ in range(2)]
    found = []
    for least in (packing.SHARED, 1000):
        monkeypatch.setattr(packing, "SHARED", least)
        policy = Policy(shape, trainable=True).init(1)
        batch = pack(packing.with_common_prompt(rows), shape)
        lp, _ = score(policy, batch)
        (lp * lp.detach()).sum().backward()
        s = sample(policy, prompts, 2, SamplingParams(6), torch.Generator().manual_seed(5))
        assert policy.grad is not None
        order = batch.row_of.argsort(stable=True)
        found.append((lp.detach()[order], policy.grad, s.tokens, s.logprobs, batch.tokens.shape[0]))
    (a, ga, ta, la, few), (b, gb, tb, lb, many) = found
    assert few <= many - 2 * len(system)
    assert torch.equal(ta, tb)
    for x, y in ((a, b), (ga, gb), (la, lb)):
        assert (x - y).abs().max() < 1e-5 * max(1.0, float(y.abs().max()))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_shape_comes_back_from_its_config(name: str) -> None:
    shape = LAYOUTS[name]
    config = shape.hf_config("float32", 0, 2, 1)
    back = DecoderShape.from_hf_config(config, "x")
    assert (back.head_dim, replace(back, head_size=0)) == (shape.head_dim, replace(shape, head_size=0))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "gemma3"}, "model_type 'gemma3'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "rope_type=llama3"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}, "rope_parameters": None}, "rope_type=yarn"),
        ({"attention_bias": True}, "attention_bias=True"),
        ({"hidden_act": "gelu"}, "hidden_act=gelu"),
        ({"num_hidden_layers": None}, "lacks a size"),
    ],
)
def test_another_network_of_the_same_weights_is_refused(change: dict[str, Any], named: str) -> None:
    config = LAYOUTS["llama"].hf_config("float32", 0, 2, 1) | change
    with pytest.raises(TrainerError, match=named):
        DecoderShape.from_hf_config(config, str(Path("p")))
