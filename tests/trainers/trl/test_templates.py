"""Chat templates as TRL bundles them: several turns under Qwen3's own, refusal of one that cannot carry them."""

from __future__ import annotations

import json
import struct
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evotrainer.api import preflight
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Turn
from evotrainer.trainers import check_trial
from evotrainer.trainers.chat import SWAPPED, ChatCodec
from evotrainer.trainers.trl.folder import load_tokenizer
from evotrainer.trainers.trl.templates import check_tools

trl = pytest.importorskip("trl")
pytestmark = pytest.mark.xdist_group("trl")  # its imports take seconds: once
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
ROOT = Path(__file__).parents[3]
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|endoftext|>"]
REFUSED = "{% for m in messages %}{% if loop.last %}<|im_start|>{{ m.content }}<|im_end|>{% endif %}{% endfor %}"


def tokenizer_of(template: str) -> Any:
    """Bytes and ChatML's special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    plain = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    plain.pre_tokenizer, plain.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=SPECIAL
    )
    tokenizer.chat_template = template
    return tokenizer


def policy(folder: Path, template: str) -> Path:
    """A policy folder as far as its template is concerned."""
    tokenizer_of(template).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "eos_token_id": 1, "num_hidden_layers": 1}))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    return folder


def bundled(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


def transcript(name: str, **kwargs: Any) -> ChatCodec:
    tokenizer = tokenizer_of(bundled(name))
    stops = [tokenizer.convert_tokens_to_ids(t) for t in SPECIAL[1:]]
    return ChatCodec(tokenizer, stops, kwargs=kwargs)


@pytest.mark.parametrize("name", ["qwen3", "qwen3_5_nothink", "qwen3_5_think", "qwen3_6"])
@pytest.mark.parametrize("kwargs", [{}, {"enable_thinking": False}], ids=["", "nothink"])
def test_a_template_that_drops_thoughts_gives_way_to_trls(name: str, kwargs: dict[str, Any]) -> None:
    t = transcript(name, **kwargs)
    own = t.tokenizer.chat_template
    t.check_turns()
    assert t.note == SWAPPED and own == bundled(name)
    for turns in ([Turn("user", "q")], [Turn("system", "s"), Turn("user", "q")]):
        said = [{"role": x.role, "content": x.text} for x in turns]
        assert t.prompt(turns) == t.tokenizer.apply_chat_template(
            said, add_generation_prompt=True, tokenize=True, return_dict=False, **kwargs
        )
    start = t.tokenizer.decode(t.prompt([Turn("user", "q")])).partition("<|im_end|>\n")[2]
    seen = t.observation([Turn("tool", "seen")], True)
    assert t.tokenizer.decode(seen) == f"\n<|im_start|>user\nseen<|im_end|>\n{start}"
    assert t.observation([Turn("tool", "seen")], False) == [t.stops[0], *seen]


@pytest.mark.parametrize("name", ["gptoss", "phi3"])
def test_a_template_without_a_fitting_variant_is_read_behind_the_action(name: str) -> None:
    t = transcript(name)
    t.check_turns()
    said = t.tokenizer.decode(t.observation([Turn("tool", "seen")], False))
    assert not t.note and said.startswith(("<|return|>", "<|end|>")) and "seen" in said and "!" not in said


def test_a_prefix_preserving_template_stays() -> None:
    t = transcript("qwen2_5")
    t.check_turns()
    assert not t.note and "seen" in t.tokenizer.decode(t.observation([Turn("tool", "seen")], True))


def test_a_policy_folder_is_checked_without_its_weights(tmp_path: Path) -> None:
    good, bad = policy(tmp_path / "good", bundled("qwen3")), policy(tmp_path / "bad", REFUSED)
    one, two = Recipe(rewards={"x": 1.0}), Recipe(rewards={"x": 1.0}, max_turns=2)
    environment: Any = SimpleNamespace()
    assert check_trial("trl", {}, good, [two], environment) == [check_tools(good, load_tokenizer(good))] == [SWAPPED]
    with pytest.raises(ConfigError, match=r"bad: .*turns cannot be appended; .*set trainer.options.chat=false"):
        check_trial("trl", {}, bad, [one, two], environment)
    assert check_trial("trl", {"chat": False}, bad, [two], environment) == []
    assert check_trial("trl", {}, bad, [one], environment) == []


def test_a_run_of_several_turns_is_noted_or_refused_before_it_begins(tmp_path: Path) -> None:
    def notes(template: str) -> list[str]:
        folder = policy(tmp_path / "p", template)
        more = ["trainer.name=trl", f"policy.base={folder}", "recipe.max_turns=2", "run.evaluate_only=true"]
        return preflight(load_task(ROOT / "tasks" / "math.toml", more))

    assert notes(bundled("qwen3")) == [SWAPPED]
    with pytest.raises(ConfigError, match="turns cannot be appended"):
        notes(REFUSED)


def test_train_prompts_that_the_template_makes_too_long_are_refused_before_a_run(
    tmp_path: Path, task_file: Path
) -> None:
    folder = policy(tmp_path / "p", bundled("qwen3"))

    def check(context: int) -> list[str]:
        config = {"model_type": "qwen3", "eos_token_id": 1, "max_position_embeddings": context}
        (folder / "config.json").write_text(json.dumps(config))
        more = ["trainer.name=trl", f"policy.base={folder}", "run.probes=16"]
        return preflight(load_task(task_file, more), new=True)

    check(200)
    # a prompt has ten characters and max_tokens is 10: only what the template writes around it is too much
    with pytest.raises(ConfigError, match=r"a train prompt has (29|30) tokens .* context of 35 leaves 25 beside"):
        check(35)


def test_training_and_evaluation_use_the_same_template_and_the_policy_keeps_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from evotrainer.records.recipe import parse_recipe
    from evotrainer.records.rollout import Rollout
    from evotrainer.trainers.base import EvalRequest, Identity, TrainRequest
    from evotrainer.trainers.trl.scratch import make_model
    from evotrainer.trainers.trl.trainer import TrlTrainer
    from tests.trainers.talk_env import TalkEnv

    tokenizer = tokenizer_of(bundled("qwen3"))
    base = tmp_path / "base"
    make_model(
        tokenizer, {"d": 16, "layers": 1, "heads": 2, "kv_heads": 1, "hidden": 16, "context": 512}, 0
    ).save_pretrained(base)
    tokenizer.save_pretrained(base)
    env, identity = TalkEnv(4, turns=3), Identity("r", "b0", 1)
    recipe = parse_recipe(
        {"steps": 1, "prompts_per_step": 2, "group_size": 2, "max_tokens": 4, "max_turns": 3, "temperature": 1.0,
         "rewards": dict.fromkeys(env.components, 1.0)}
    )  # fmt: skip
    trainer, stored = TrlTrainer({"device": "cpu"}), list[Rollout]()
    done = trainer.train(
        TrainRequest(identity, recipe, base, tmp_path / "w"),
        env,
        lambda groups: stored.extend(chain(*groups)),
        lambda row: None,
    )
    seen = trainer.evaluate(EvalRequest(identity, recipe, done.policy_dir, "search", 1, 1), env, lambda r: None)
    assert capsys.readouterr().out.count(SWAPPED) == 1
    kept = (done.policy_dir / "chat_template.jinja").read_text()
    assert kept == (base / "chat_template.jinja").read_text() == bundled("qwen3")
    assert len(stored) == 4 and any(sum(t.role == "assistant" for t in r.turns) > 1 for r in stored) and seen
