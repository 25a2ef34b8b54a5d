"""What a first trial refuses for files and configuration is refused by `--dry-run`, and by every training again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.config.load import load_task
from evotrainer.envs import open_environment
from evotrainer.errors import ConfigError, EvoTrainerError, TaskSetError
from evotrainer.records.recipe import Recipe
from tests.trainers.trl.small_policy import SHAPE

trl = pytest.importorskip("trl")
pytestmark = pytest.mark.xdist_group("trl")
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
LEVEL = '''
class Level:
    """A lift."""

    def reset(self, **row):
        {reset}

    def press(self, {taken}) -> str:
        """Press a button.

        Args:
            floor: The floor.
        """
        return "ding"

    def get_reward(self):
        return 1.0


def told(completions, **columns):
    return [float("4" in c[0]["content"]) for c in completions]
'''


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untrained, a few thousand weights, with a chat template."""
    import torch

    from evotrainer.trainers.trl.folder import save_folder
    from evotrainer.trainers.trl.scratch import make_model, make_tokenizer

    out = tmp_path_factory.mktemp("checked") / "policy"
    tokenizer = make_tokenizer(["Which floor?", "0123456789"] * 20, (), 512)
    torch.manual_seed(0)
    model = make_model(tokenizer, {**SHAPE, "context": 512}, 0)
    save_folder(out, [model.save_pretrained, tokenizer.save_pretrained])
    return out


def task(folder: Path, policy: Path, name: str = "trl-rewards:{}:told", **more: Any) -> Path:
    """A task file over forty messages; `more`: of rows, of the class, and of the file."""
    (folder / "lift.py").write_text(
        LEVEL.format(reset=more.pop("reset", "return None"), taken=more.pop("taken", "floor: str"))
    )
    rows = [
        {"prompt": [{"role": "user", "content": f"Which floor? {n}"}], "n": n, **more.get("row", {})} for n in range(40)
    ]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    reward = "reward" if name.startswith("trl:") else "told"
    text = (
        f'[task]\nname = "lift"\n[environment]\nname = "{name.format(folder / "lift.py")}"\n'
        f'source = "{folder / "rows.jsonl"}"\npayable = ["{reward}"]\n'
        "splits = {train = 1, search = 1, gate = 1, cert = 1}\n"
        f'[policy]\nbase = "{policy}"\n[trainer]\nname = "trl"\n[trainer.options]\n{more.pop("options", "")}\n'
        f"[recipe]\nmax_tokens = 4\nmax_turns = {2 if reward == 'reward' else 1}\n[recipe.rewards]\n{reward} = 1.0\n"
    )
    (folder / "task.toml").write_text(text)
    return folder / "task.toml"


def refused(file: Path) -> str:
    with pytest.raises(EvoTrainerError) as e:
        api.preflight(load_task(file), new=True)
    return str(e.value)


def changed(policy: Path, out: Path, **config: Any) -> Path:
    """A copy whose config.json says something else."""
    shutil.copytree(policy, out)
    now = json.loads((out / "config.json").read_text()) | config
    (out / "config.json").write_text(json.dumps(now))
    return out


def test_what_can_be_trained_is_let_through(policy: Path, tmp_path: Path) -> None:
    api.preflight(load_task(task(tmp_path, policy)), new=True)
    api.preflight(load_task(task(tmp_path, policy, "trl:{}:Level")), new=True)


def test_a_policy_folder_that_a_trial_could_not_load_is_named_with_its_fault(policy: Path, tmp_path: Path) -> None:
    cut = changed(policy, tmp_path / "cut")
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "model.safetensors cannot be read" in refused(task(tmp_path, cut))
    wide = changed(policy, tmp_path / "wide", hidden_size=2 * SHAPE["d"])
    assert "by config.json; restore the policy folder" in refused(task(tmp_path, wide))
    unknown = changed(policy, tmp_path / "unknown", model_type="nobody-knows-it")
    assert "transformers cannot load it" in refused(task(tmp_path, unknown))
    endless = changed(policy, tmp_path / "endless")
    told = json.loads((endless / "tokenizer_config.json").read_text())
    (endless / "tokenizer_config.json").write_text(json.dumps({**told, "eos_token": None}))
    assert "no end-of-text token; set eos_token" in refused(task(tmp_path, endless))


def test_a_tokenizer_with_more_tokens_than_the_model_embeds_is_refused(policy: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    other = changed(policy, tmp_path / "other")
    tokenizer = AutoTokenizer.from_pretrained(other)
    n = len(tokenizer)
    tokenizer.add_tokens(["<first>", "<second>"])
    tokenizer.save_pretrained(other)
    assert f"its tokenizer has {n + 2} tokens, its model embeds {n}" in refused(task(tmp_path, other))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ('lora = {targets = ["qq_proj"]}', "trainer.options.lora.targets: Target modules {'qq_proj'} not found"),
        ('config = {optim = "by-hand"}', "trainer.options.config: TRL refuses it: by-hand is not a valid"),
        ("config = {optimus = 1}", "GRPOConfig of the installed TRL has no optimus"),
    ],
)
def test_options_that_trl_or_peft_would_refuse(policy: Path, tmp_path: Path, options: str, says: str) -> None:
    pytest.importorskip("peft")
    assert says in refused(task(tmp_path, policy, options=options))


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"images": ["a.png"]}, "images"),
        ({"prompt": [{"role": "user", "content": [{"type": "audio"}, {"type": "text", "text": "?"}]}]}, "type audio"),
    ],
)
def test_rows_with_more_than_text_are_refused_by_dry_run_and_by_the_trial(
    policy: Path, tmp_path: Path, row: dict[str, Any], named: str
) -> None:
    file = task(tmp_path, policy, row=row)
    assert "the trl trainer is for text only" in (said := refused(file)) and named in said
    with pytest.raises(TaskSetError, match=r"jsonl, row \d+ has more than text"):
        open_environment(load_task(file).environment)


@pytest.mark.parametrize("empty", [{"images": []}, {"images": None}, {"image": None}, {"images": [None]}])
def test_a_column_of_images_without_any_is_none(policy: Path, tmp_path: Path, empty: dict[str, Any]) -> None:
    from evotrainer.trainers.trl.tools import rows_of

    environment: Any = open_environment(load_task(task(tmp_path, policy, row=empty)).environment)
    assert all(
        not empty.keys() & r.keys() for r in rows_of([(t, (0,)) for t in environment.tasks("train")], environment)
    )


class TestTools:
    """Of classes that TRL's tool loop plays."""

    def said(self, policy: Path, folder: Path, **more: Any) -> str:
        return refused(task(folder, policy, "trl:{}:Level", **more))

    def other(self, policy: Path, out: Path, template: str) -> Path:
        """The policy with another template, and no response template of its own."""
        shutil.copytree(policy, out)
        told = json.loads((out / "tokenizer_config.json").read_text())
        told.pop("response_template", None)
        (out / "tokenizer_config.json").write_text(json.dumps(told))
        (out / "chat_template.jinja").write_text(template)
        return out

    def test_a_class_that_cannot_be_reset_or_made(self, policy: Path, tmp_path: Path) -> None:
        said = self.said(policy, tmp_path, reset='raise ValueError("out of order")')
        assert "reset of the class Level failed on a train row: ValueError: out of order (lift.py, line 6)" in said

    def test_a_tool_that_transformers_cannot_describe(self, policy: Path, tmp_path: Path) -> None:
        said = self.said(policy, tmp_path, taken="floor")
        assert "cannot render messages of user with tools: Argument floor is missing a type hint" in said

    def test_a_template_that_leaves_tool_calls_out(self, policy: Path, tmp_path: Path) -> None:
        silent = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
        other = self.other(policy, tmp_path / "silent", silent)
        assert "its chat template leaves tool calls or their answers out" in self.said(other, tmp_path)

    def test_a_template_that_trl_cannot_read_calls_from(self, policy: Path, tmp_path: Path) -> None:
        own = (policy / "chat_template.jinja").read_text()
        said = self.said(self.other(policy, tmp_path / "unread", own), tmp_path)
        assert "TRL does not know how to read tool calls back" in said and "set response_template in" in said

    def test_a_template_that_trl_knows_needs_no_response_template(self, policy: Path, tmp_path: Path) -> None:
        known = self.other(policy, tmp_path / "known", (TEMPLATES / "qwen2_5.jinja").read_text())
        roomy = json.loads((known / "config.json").read_text()) | {"max_position_embeddings": 4096}
        (known / "config.json").write_text(json.dumps(roomy))
        api.preflight(load_task(task(tmp_path, known, "trl:{}:Level")), new=True)

    def test_prompts_that_fill_the_context_with_their_tools(self, policy: Path, tmp_path: Path) -> None:
        short = changed(policy, tmp_path / "short", max_position_embeddings=64)
        assert "tokens as policy" in (said := self.said(short, tmp_path)) and "fills its context of 64" in said


def test_roles_that_the_template_refuses_are_named(policy: Path, tmp_path: Path) -> None:
    strict = changed(policy, tmp_path / "strict")
    (strict / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
        "{{ m.content }}{% endfor %}"
    )
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Which floor?"}]
    said = refused(task(tmp_path, strict, row={"prompt": prompt}))
    assert "cannot render" in said and "no system here" in said


def test_a_training_begins_with_the_same_check(policy: Path, tmp_path: Path) -> None:
    from evotrainer.trainers import check_trial, get_trainer
    from evotrainer.trainers.base import Identity, TrainRequest

    wide = changed(policy, tmp_path / "wide", hidden_size=2 * SHAPE["d"])
    loaded = load_task(task(tmp_path, wide))
    environment = open_environment(loaded.environment)
    with pytest.raises(EvoTrainerError) as before:
        check_trial("trl", {}, wide, [loaded.recipe], environment)
    request = TrainRequest(Identity("r", "b0", 1), loaded.recipe, wide, tmp_path / "work")
    with pytest.raises(type(before.value)) as then:
        get_trainer("trl").train(request, environment, lambda _: None, lambda _: None)
    assert str(then.value) == str(before.value)


def test_a_damaged_policy_of_the_embedded_trainer_is_refused_too(tmp_path: Path) -> None:
    from evotrainer.trainers import check_trial
    from evotrainer.trainers.base import WarmStartRequest
    from evotrainer.trainers.embedded.warmstart import warm_start

    shape = {"d": 16, "layers": 1, "heads": 2, "kv_heads": 1, "hidden": 16, "context": 32}
    warm_start(WarmStartRequest([("1+1=", "2")], (), "v", shape, 1, 1, 1e-3, 0, tmp_path / "p"))
    recipe, environment = Recipe(rewards={"x": 1.0}), object()
    assert check_trial("embedded", {}, tmp_path / "p", [recipe], environment) == []  # type: ignore[arg-type]
    file = tmp_path / "p" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(EvoTrainerError, match="model.safetensors cannot be read"):
        check_trial("embedded", {}, tmp_path / "p", [recipe], environment)  # type: ignore[arg-type]


def test_a_policy_without_a_template_and_messages(policy: Path, tmp_path: Path) -> None:
    bare = changed(policy, tmp_path / "bare")
    (bare / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="the prompts of told are messages, which the policy .* has no chat template"):
        api.preflight(load_task(task(tmp_path, bare)), new=True)
