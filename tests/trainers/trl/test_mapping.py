"""What the trl trainer makes of recipe and options:
the table is complete, the documentation is the table, bad input is named.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evotrainer.api import preflight
from evotrainer.config.bases import resolve_base
from evotrainer.config.load import load_task
from evotrainer.config.preflight import base_identity, fingerprints
from evotrainer.errors import ConfigError, TaskSetError, TrainerError
from evotrainer.records.hub import looks_like_id, parse_pinned, pinned
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.records.weights import weights_sha256
from evotrainer.trainers import check_recipes
from evotrainer.trainers.chat import ChatCodec, messages
from evotrainer.trainers.trl.mapping import OWN, config_fields
from evotrainer.trainers.trl.options import TrlOptions

ROOT = Path(__file__).parents[3]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def documented(marker: str) -> str:
    text = (ROOT / "docs" / "trainers.md").read_text()
    return text.partition(f"<!-- {marker}")[2].partition("-->\n")[2].partition("<!-- end -->")[0].strip()


def test_every_field_exists_in_grpo_config() -> None:
    trl = pytest.importorskip("trl")
    known = {f.name for f in dataclasses.fields(trl.GRPOConfig)}
    assert OWN - {"activation_checkpointing"} <= known
    assert config_fields(parse_recipe({"is_cap": 2.0, "rewards": {"x": 1.0}}), TrlOptions()).keys() <= known


def test_the_documentation_has_the_options() -> None:
    rows = ["| option | default | |", "|---|---|---|"]
    for name, f in TrlOptions.model_fields.items():
        default = "none" if f.default is None else f"`{json.dumps(f.default)}`"
        rows.append(f"| `{name}` | {default} | {' '.join((f.description or '').split())} |")
    assert documented("options") == "\n".join(rows)


def test_a_recipe_on_several_processes_in_micro_batches() -> None:
    recipe = parse_recipe({"prompts_per_step": 8, "group_size": 4, "updates_per_step": 2, "max_turns": 3, "steps": 5})
    f = config_fields(recipe, TrlOptions(micro_batch=4), processes=2)
    assert (f["per_device_train_batch_size"], f["gradient_accumulation_steps"]) == (4, 4)
    assert f["max_steps"] == 10 and f["num_iterations"] == 2 and f["max_completion_length"] == 3 * recipe.max_tokens
    on_gpu = config_fields(recipe, TrlOptions(), gpu=True)
    assert (on_gpu["per_device_train_batch_size"], on_gpu["gradient_accumulation_steps"]) == (16, 2)
    with pytest.raises(
        ConfigError, match="prompts_per_step=8 cannot be shared out among 3 processes; make it a multiple"
    ):
        config_fields(recipe, TrlOptions(), processes=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"chats": True}, "chats: unknown name, did you mean chat"),
        ({"dtype": "int8"}, "dtype: must be auto, float32 or bfloat16"),
        (
            {"config": {"beta": 0.1, "lr_scheduler_type": "x"}},
            r"beta \(recipe.kl_beta\), lr_scheduler_type \(recipe.schedule.kind\) follow from the recipe",
        ),
        ({"micro_batch": 7}, "micro_batch=7 does not divide the 256 rollouts"),
        ({"lora": {"targets": ["q_proj", "lm_head"]}}, "cannot train an adapter on lm_head"),
        ({"vllm": True}, "trainer.options.vllm needs vllm, which is not installed"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_a_bad_option_is_named_before_anything_is_spent(given: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, TrainerError), match=message):
        check_recipes("trl", given, [Recipe(rewards={"x": 1.0})])


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        (
            {"phases": [{"kind": "own", "steps": 3}, {"kind": "rl"}]},
            "phases: TRL's trainer has no supervised parts; leave them out, or set trainer.name = .embedded.",
        ),
        (
            {"credit": {"kind": "turn"}, "max_turns": 3},
            "credit: TRL has one advantage for a completion; set it to episode",
        ),
    ],
)
def test_what_trl_cannot_carry_out_is_refused_by_name(factors: dict[str, Any], message: str) -> None:
    from evotrainer.records.recipe import parse_recipe
    from evotrainer.trainers import check_recipes

    with pytest.raises(ConfigError, match=message):
        check_recipes("trl", {}, [parse_recipe({"rewards": {"exact": 1.0}, **factors})], "fp32")


def test_a_start_and_adapters_are_refused_by_name() -> None:
    recipe = Recipe(rewards={"x": 1.0})
    chained = recipe.with_factor("start", "champion")
    check_recipes("trl", {}, [chained])
    with pytest.raises(ConfigError, match="start: adapters would lie upon adapters that nobody keeps; set it to base"):
        check_recipes("trl", {"lora": {"r": 4}}, [chained])


def test_a_field_that_grpo_config_lacks_is_refused() -> None:
    pytest.importorskip("trl")
    recipes = [Recipe(rewards={"x": 1.0})]
    with pytest.raises(ConfigError, match=r"has no foo, optimm \(did you mean optim\?\); correct or remove"):
        check_recipes("trl", {"config": {"foo": 1, "optimm": "sgd", "optim": "sgd"}}, recipes)
    check_recipes("trl", {"config": {"optim": "sgd", "generation_kwargs": {}}}, recipes)


def test_a_task_file_is_refused_with_its_trainer() -> None:
    with pytest.raises(
        ConfigError, match=r"run.sampler_dtype is the embedded trainer's; for trl set trainer.options.dtype"
    ):
        preflight(load_task(ROOT / "tasks" / "math.toml", ["trainer.name=trl", "run.sampler_dtype=bf16"]))
    with pytest.raises(ConfigError, match="the embedded trainer has no option vllm"):
        preflight(load_task(ROOT / "tasks" / "math.toml", ["trainer.options.vllm=true"]))


def test_a_task_is_refused_where_its_trainer_cannot_play_it() -> None:
    tools = ROOT / "examples" / "trl-tools.toml"
    local = ["policy.base=warm-start", "trainer.options={}"]
    preflight(load_task(tools, local))
    with pytest.raises(TaskSetError, match='GuessEnv is played by TRL\'s own tool loop; set trainer.name = "trl"'):
        preflight(load_task(tools, [*local, "trainer.name=embedded"]))
    preflight(load_task(ROOT / "examples" / "trl-gsm8k.toml"))


def test_nothing_heavy_is_loaded_to_check_a_task_file() -> None:
    code = (
        "import sys; from evotrainer.trainers import check_recipes; from evotrainer.records.recipe import Recipe\n"
        "check_recipes('trl', {'lora': {}}, [Recipe(rewards={'x': 1.0})])\n"
        "print(sorted({'torch', 'trl', 'transformers', 'huggingface_hub'} & sys.modules.keys()))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert out.stdout.strip() == "[]"


# -- base policies ----------------------------------------------------------------------------------------------------


def test_an_id_is_told_from_a_path_and_pinned_to_its_commit(tmp_path: Path) -> None:
    assert looks_like_id("Qwen/Qwen3-0.6B") == ("Qwen/Qwen3-0.6B", None)
    assert looks_like_id("Qwen/Qwen3-0.6B@main") == ("Qwen/Qwen3-0.6B", "main")
    assert all(looks_like_id(x) is None for x in ("./a/b", "/a/b", "a", "a/b/c", "../a/b", "builtin:x"))
    folder = tmp_path / "snapshots" / COMMIT
    assert pinned("Qwen/Qwen3-0.6B", folder) == f"hf:Qwen/Qwen3-0.6B@{COMMIT}"
    assert parse_pinned(f"hf:Qwen/Qwen3-0.6B@{COMMIT}") == ("Qwen/Qwen3-0.6B", COMMIT)
    assert pinned("./mine", folder) is None


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that holds one model, and no network."""
    from huggingface_hub import constants

    repo = tmp_path / "hub" / "models--org--small"
    folder = repo / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return folder


def test_a_pinned_model_is_found_without_a_network_and_recorded(cache: Path) -> None:
    base = f"hf:org/small@{COMMIT}"
    assert resolve_base(base) == cache
    assert resolve_base("org/small") == cache
    found = base_identity(base, cache)
    assert found["id"] == "org/small" and found["commit"] == COMMIT and found["sha256"] == weights_sha256(cache)


def test_a_model_that_is_nowhere_is_refused_with_cause_and_remedy(cache: Path) -> None:
    with pytest.raises(ConfigError, match=r"org/other: cannot be fetched .*HF_HUB_OFFLINE.* or give a local folder"):
        resolve_base("org/other")


def test_shards_and_adapters_have_a_checksum_and_missing_ones_none(tmp_path: Path) -> None:
    assert weights_sha256(tmp_path) is None
    index = '{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'
    (tmp_path / "model.safetensors.index.json").write_text(index)
    (tmp_path / "model-1.safetensors").write_bytes(b"1")
    assert weights_sha256(tmp_path) is None
    (tmp_path / "model-2.safetensors").write_bytes(b"2")
    first = weights_sha256(tmp_path)
    (tmp_path / "model-2.safetensors").write_bytes(b"3")
    assert first is not None and weights_sha256(tmp_path) != first
    (tmp_path / "adapter_model.safetensors").write_bytes(b"a")
    assert weights_sha256(tmp_path) not in (None, first)


def test_files_behind_trl_names_are_fingerprinted(tmp_path: Path) -> None:
    f = tmp_path / "e.py"
    f.write_text("x = 1")
    assert fingerprints({"name": f"trl:{f}:Env"}).keys() == fingerprints({"rewards": [f"{f}:g"]}).keys() == {str(f)}


# -- turns to tokens --------------------------------------------------------------------------------------------------


class Turns:
    """A tokenizer of characters whose template is `[role:text]`, with `]` as the end of a turn."""

    chat_template = "yes"

    def __init__(self, forgetful: bool = False, silent: bool = False) -> None:
        self.forgetful, self.silent = forgetful, silent

    def apply_chat_template(self, said: list[dict[str, str]], add_generation_prompt: bool, **kwargs: Any) -> list[int]:
        texts = [f"[{m['role'][0]}:{m['content']}]" for m in said]
        if self.forgetful:
            texts[:-2] = ["[...]" for _ in texts[:-2]]
        if self.silent and len(said) > 2:
            texts = [t for t, m in zip(texts, said, strict=True) if m["role"] != "assistant"]
        return [ord(c) for c in "".join(texts) + ("[a:" if add_generation_prompt else "")]

    def __call__(self, text: str, **kwargs: Any) -> dict[str, list[int]]:
        return {
            "input_ids": [ord("^"), *map(ord, text)] if kwargs.get("add_special_tokens", True) else [*map(ord, text)]
        }

    def decode(self, ids: list[int], **kwargs: Any) -> str:
        return "".join(map(chr, ids))


def text(ids: list[int]) -> str:
    return "".join(map(chr, ids))


def test_prompts_observations_and_demonstrations_are_the_templates() -> None:
    from evotrainer.records.rollout import Turn

    t = ChatCodec(Turns(), [ord("]")])
    assert text(t.prompt([Turn("system", "s"), Turn("user", "q"), Turn("tool", "r")])) == "[s:s][u:q\nr][a:"
    assert text(t.observation([Turn("tool", "seen")], ended=True)) == "[u:seen][a:"
    assert text(t.observation([Turn("tool", "seen")], ended=False)) == "][u:seen][a:"
    assert t.decode([*map(ord, "yes]")]) == "yes" and t.decode([*map(ord, "ye")]) == "ye"
    ids, loss = t.demonstration(0, ("q", "one", "seen", "two"))
    assert text(ids) == "[u:q][a:one][u:seen][a:two]"
    assert text([i for i, b in zip(ids, loss, strict=True) if b]) == "one]two]"
    assert messages([Turn("tool", "a"), Turn("user", "b")]) == [{"role": "user", "content": "a\nb"}]
    with pytest.raises(TrainerError, match="demonstration 3 has 3 texts"):
        t.demonstration(3, ("a", "b", "c"))


def test_without_a_template_texts_follow_one_another() -> None:
    from evotrainer.records.rollout import Turn

    t = ChatCodec(Turns(), [ord("]")], chat=False)
    assert text(t.prompt([Turn("user", "q")])) == "^q" and text(t.observation([Turn("tool", "seen")], True)) == "^seen"


def test_a_template_that_forgets_earlier_turns_is_read_behind_the_action() -> None:
    from evotrainer.records.rollout import Turn

    t = ChatCodec(Turns(forgetful=True), [ord("]")])
    assert text(t.observation([Turn("tool", "seen")], True)) == "[u:seen][a:"
    assert text(t.observation([Turn("tool", "seen")], False)) == "][u:seen][a:"
    assert not t.note


def test_a_template_that_cannot_carry_turns_is_refused() -> None:
    from evotrainer.records.rollout import Turn

    for bad in (ChatCodec(Turns(silent=True), [ord("]")]), ChatCodec(Turns(forgetful=True), [ord("$")])):
        with pytest.raises(
            TrainerError, match="turns cannot be appended; give the policy a prefix-preserving template"
        ):
            bad.check_turns()
        assert bad.prompt([Turn("user", "q")])
    plain = Turns()
    plain.chat_template = ""
    with pytest.raises(ConfigError, match="has no chat template; set it to auto or false"):
        ChatCodec(plain, [1], chat=True)
