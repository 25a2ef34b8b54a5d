"""Low-rank adapters of the embedded engine against peft: merged logits, gradients, folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from evotrainer.errors import ConfigError, TrainerError
from evotrainer.trainers.bases import NOTE, note_base
from evotrainer.trainers.embedded.folder import load_policy, save_policy
from evotrainer.trainers.embedded.forward import score
from evotrainer.trainers.embedded.lora import AdapterOptimizer, Adapters
from evotrainer.trainers.embedded.packing import pack
from evotrainer.trainers.embedded.policy import Policy, halves
from evotrainer.trainers.embedded.spec import check
from evotrainer.trainers.embedded.tokenizer import build_tokenizer
from evotrainer.trainers.lora import Lora
from tests.trainers.embedded.test_layouts import LAYOUTS, ROWS
from tests.trainers.reverse_env import logits

pytestmark = pytest.mark.xdist_group("trl")  # its imports take seconds: once

LORA = Lora(r=4, alpha=6)
IDS = [2, 7, 8, 31, 90, 4, 55]


def folder_of(name: str, tmp: Path) -> tuple[Path, Any]:
    """A base policy's folder, and its tokenizer."""
    words = [f"w{i} " for i in range(97)]
    tokenizer = build_tokenizer(words, "v")
    shape = LAYOUTS[name]
    policy = Policy(replace(shape, vocab=len(tokenizer))).init(1)
    save_policy(policy, tokenizer, tmp / "base")
    return tmp / "base", tokenizer


def writer(adapters: Adapters, folder: Path, base: Path) -> Callable[[Path], None]:
    """Writes the adapters of a policy folder, with a note of their base."""

    def write(written: Path) -> None:
        adapters.save(written)
        note_base(written, folder, base, None)

    return write


def step(adapters: Adapters) -> None:
    lp, _ = score(adapters.policy, pack(ROWS, adapters.policy.shape))
    lp.mean().neg().backward()


@pytest.mark.parametrize("name", ["llama", "qwen3", "granite"])
def test_a_trained_adapter_is_what_peft_computes_and_loads(name: str, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base, tokenizer = folder_of(name, tmp_path)
    policy = load_policy(base, trainable=True).policy
    adapters = Adapters(policy, LORA, 3)
    before = logits(policy, IDS)
    optimizer = AdapterOptimizer(adapters, 0.0)
    for _ in range(3):
        step(adapters)
        assert optimizer.step(0.05, 1.0) > 0
    after = logits(policy, IDS)
    assert (after - before).abs().max() > 0.1, "it learned something"
    folder = tmp_path / "policy"

    save_policy(policy, tokenizer, folder, save_weights=writer(adapters, folder, base))
    assert (folder / NOTE).is_file() and not (folder / "model.safetensors").exists()
    assert (logits(load_policy(folder).policy, IDS) - after).abs().max() < 1e-5
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(folder))
    with torch.no_grad():
        theirs = model(input_ids=torch.tensor([IDS])).logits[0]
    assert (theirs - after).abs().max() < 1e-4


def test_gradients_are_those_of_autograd_through_peft(tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base, tokenizer = folder_of("llama", tmp_path)
    adapters = Adapters(load_policy(base, trainable=True).policy, LORA, 3)
    generator = torch.Generator().manual_seed(1)
    for _, b, _, _ in adapters.pairs:
        b.normal_(0, 0.1, generator=generator)
    adapters.merge()
    folder = tmp_path / "policy"
    save_policy(adapters.policy, tokenizer, folder, save_weights=writer(adapters, folder, base))
    step(adapters)
    adapters.project()
    assert adapters.policy.grad is not None and not adapters.policy.grad.any()
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(folder), is_trainable=True)
    parts = []
    for r in ROWS:
        ids = torch.tensor([[*r.prompt, *r.tokens]])
        lp = torch.log_softmax(theirs(input_ids=ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0]
        parts.append(lp[len(r.prompt) - 1 :][torch.tensor(r.loss or [True] * len(r.tokens))])
    torch.cat(parts).mean().neg().backward()
    grads = {n: p.grad for n, p in theirs.named_parameters() if p.grad is not None}
    for p, (_, _, ga, gb) in zip(adapters.places, adapters.pairs, strict=True):
        a = grads[f"{p.key}.lora_A.default.weight"]
        assert (ga - a).abs().max() < 1e-5 * max(1.0, float(a.abs().max())), p.key
        b, gb = grads[f"{p.key}.lora_B.default.weight"], halves(gb, p.heads) if p.heads else gb
        assert (gb - b).abs().max() < 1e-5 * max(1.0, float(b.abs().max())), p.key


@pytest.mark.parametrize(
    ("change", "named"),
    [({"use_dora": True}, "use_dora=True"), ({"r": 0}, "cannot be read"), ({"rank_pattern": {"q": 2}}, "rank_pattern")],
)
def test_adapters_of_another_kind_are_refused(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    base, tokenizer = folder_of("llama", tmp_path)
    adapters = Adapters(load_policy(base, trainable=True).policy, LORA, 3)
    folder = tmp_path / "policy"
    save_policy(adapters.policy, tokenizer, folder, save_weights=writer(adapters, folder, base))
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | change))
    with pytest.raises(TrainerError, match=named):
        load_policy(folder)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lora": {"dropout": 0.1}}, "dropout"),
        ({"lora": {"rank": 4}}, "trainer.options.lora"),
        ({"lora": {"targets": ["q_proj", "lm_head"]}}, "no lm_head"),
        ({"vllm": True}, "no option vllm"),
    ],
)
def test_options_that_it_has_not_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check(options, (), "fp32")
