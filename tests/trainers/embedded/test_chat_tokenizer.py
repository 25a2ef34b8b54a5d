"""`trainers.embedded.tokenizer.ChatTokenizer`: a language model's tokenizer in folders, its ends, its room, no TRL."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evotrainer.errors import TrainerError
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.trainers import chat
from evotrainer.trainers.base import EvalRequest, Identity, TrainRequest
from evotrainer.trainers.embedded.folder import load_policy, save_policy
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.spec import SPEC
from evotrainer.trainers.embedded.tokenizer import ChatTokenizer, load_tokenizer
from evotrainer.trainers.embedded.trainer import EmbeddedTrainer
from tests.trainers.embedded.test_layouts import LAYOUTS
from tests.trainers.reverse_env import GuessDigitEnv, ReverseEnv

pytestmark = pytest.mark.xdist_group("trl")  # imports of transformers take seconds: once

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FORGETS = TEMPLATE.replace(
    "{{ m['content'] }}", "{{ '<think>' if m['role'] == 'assistant' and loop.last else '' }}{{ m['content'] }}"
)
"""Renders an action otherwise once another turn follows it."""
END, OVER = 1, 2
"""Ids of <|im_end|> and <|endoftext|>."""
RECIPE = Recipe(rewards={"exact": 1.0}, steps=2, prompts_per_step=2, group_size=2, lr=1e-3, max_tokens=6, max_turns=2)


def tokenizer_of(folder: Path, template: str = TEMPLATE) -> Path:
    """A folder with the tokenizer of a language model: bytes and three special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    vocab = {t: i for i, t in enumerate([*names, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    backend = Tokenizer(models.BPE(vocab, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(n, special=True, normalized=False) for n in names])
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=names[END], pad_token=names[OVER])
    made.chat_template = template
    made.save_pretrained(folder)
    return folder


def policy_of(tmp: Path, more: tuple[int, ...] = (OVER,), context: int = 96, template: str = TEMPLATE) -> Path:
    """A small language model with random weights. `more`: ids that generation_config.json declares as ends."""
    tokenizer = ChatTokenizer(tokenizer_of(tmp / "tokenizer", template))
    shape = replace(LAYOUTS["llama"], vocab=len(tokenizer) + 5, context=context)  # rows for tokens that there are not
    save_policy(Policy(shape).init(1), tokenizer, tmp / "policy")
    path = tmp / "policy" / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": [END, *more]}))
    return tmp / "policy"


def evaluated(policy: Path, env: Any, recipe: Recipe = RECIPE) -> list[Rollout]:
    request = EvalRequest(Identity("run", "b0", 1), recipe, policy, "search", 0, attempts=4, tasks=8)
    groups = EmbeddedTrainer(keep_tokens=True).evaluate(request, env, lambda _: None)
    return [r for g in groups for r in g]


def test_a_saved_policy_reads_and_says_the_same(tmp_path: Path) -> None:
    first = load_policy(policy_of(tmp_path))
    save_policy(first.policy, first.tokenizer, tmp_path / "again")
    a, b = first.tokenizer, load_policy(tmp_path / "again").tokenizer
    assert isinstance(a, ChatTokenizer) and isinstance(b, ChatTokenizer)
    turns = [Turn("system", "Be brief."), Turn("user", "caf\u00e9 <|im_end|>")]
    for t in (a, b):
        assert (
            t.tokenizer.decode(t.prompt(turns[:1]))
            == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>assistant\n"
        )
        assert t.decode([*t.tokenizer("caf\u00e9")["input_ids"], OVER]) == "caf\u00e9"
    assert a.prompt(turns) == b.prompt(turns) and a.observation(turns, False) == b.observation(turns, False)
    assert a.demonstration(0, ("q", "one", "seen", "two")) == b.demonstration(0, ("q", "one", "seen", "two"))
    assert a.special_ids() == b.special_ids() == (OVER, None, [END, OVER]) and len(a) == len(b)
    assert a.tokenizer.chat_template == b.tokenizer.chat_template == TEMPLATE


@pytest.mark.parametrize(
    ("declared", "stops"),
    [
        ({"generation_config.json": [OVER, END, 7]}, [END, OVER, 7]),
        ({"generation_config.json": OVER, "config.json": 9}, [END, OVER]),
        ({"generation_config.json": None, "config.json": 9}, [END]),
        ({"config.json": [9, END]}, [END, 9]),
        ({}, [END]),
    ],
)
def test_all_ends_that_a_model_declares_end_an_action(
    declared: Mapping[str, Any], stops: list[int], tmp_path: Path
) -> None:
    folder = tokenizer_of(tmp_path)
    for name, ids in declared.items():
        (folder / name).write_text(json.dumps({"eos_token_id": ids}))
    tokenizer = load_tokenizer(folder)
    assert list(tokenizer.stops) == stops
    ids, loss = tokenizer.demonstration(0, ("q", "x"))
    assert ids[-1] == END and loss[-2:] == [True, True], "what is learned ends as the tokenizer's texts do"


def test_a_tokenizer_without_an_end_is_refused(tmp_path: Path) -> None:
    folder = tokenizer_of(tmp_path)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "eos_token"}))
    with pytest.raises(TrainerError, match="has no end-of-text token; set eos_token"):
        load_tokenizer(folder)


def test_an_action_is_cut_at_the_first_of_several_ends(tmp_path: Path) -> None:
    more = (OVER, *range(3, 60))
    rollouts = evaluated(policy_of(tmp_path, more), ReverseEnv())
    ends = {END, *more}
    last = []
    for r in rollouts:
        assert r.token_ids is not None and not ends.intersection(r.token_ids[:-1])
        assert (r.finish == "stop") == (r.token_ids[-1] in ends) and (r.finish == "stop" or r.tokens == 6)
        last += [r.token_ids[-1]] if r.finish == "stop" else []
    assert len(set(last)) > 3 and len(last) < len(rollouts), "it was cut at several ends, and by the budget"


def test_prompts_are_measured_with_the_template(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, context=80)
    turns = [[Turn("user", "1")], [Turn("system", "s"), Turn("user", "1")]]
    rendered = [f"<|im_start|>{c}<|im_end|>\n" for c in ("user\n1", "system\ns")]
    tail = len("<|im_start|>assistant\n") - len("<|im_start|>") + 1
    sizes = [len(t) - len("<|im_start|><|im_end|>") + 2 for t in rendered]
    assert SPEC.room is not None
    assert SPEC.room(policy, {}, turns) == ([sizes[0] + tail, sum(sizes) + tail], 80)


@pytest.mark.parametrize("template", [TEMPLATE, FORGETS], ids=["keeps", "forgets"])
def test_it_trains_over_turns_without_trl(template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("trl", "trl.chat_template_utils"):
        monkeypatch.setitem(sys.modules, name, None)
    policy = policy_of(tmp_path, context=128, template=template)
    tokenizer = load_policy(policy).tokenizer
    assert isinstance(tokenizer, ChatTokenizer) and chat.training_template(tokenizer.tokenizer) is None
    assert tokenizer._preserves() is (template == TEMPLATE)
    rollouts: list[Rollout] = []
    request = TrainRequest(Identity("run", "b0", 1), RECIPE, policy, tmp_path / "work")
    result = EmbeddedTrainer().train(
        request, GuessDigitEnv(), lambda groups: rollouts.extend(r for g in groups for r in g), lambda _: None
    )
    assert {len(r.turns) for r in rollouts} == {4} and result.steps == 2
    assert all(e["sampling/sampling_logp_difference/max"] < 1e-4 for e in result.curve)
    assert list(load_policy(result.policy_dir).tokenizer.stops) == [END, OVER]
