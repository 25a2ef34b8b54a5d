"""A task file rendered for verl: what is in the folder, and what is refused before anything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.extras.verl.rendering import machine, task

from evotrainer.config.evaluation import EvaluationProtocol
from evotrainer.config.load import load_task
from evotrainer.config.task import TaskFile
from evotrainer.errors import ConfigError
from evotrainer.extras.verl.configuration import configuration, parse_setting
from evotrainer.extras.verl.folder import intact
from evotrainer.extras.verl.mapping import translate
from evotrainer.extras.verl.render import model_of, nested, render
from evotrainer.records.durable import sha256_file

TOOLS = Path(__file__).parents[3] / "examples" / "trl-tools.toml"


def flat(tree: object, at: str = "") -> dict[str, object]:
    if isinstance(tree, dict) and tree:
        return {k: v for name, x in tree.items() for k, v in flat(x, f"{at}.{name}" if at else str(name)).items()}
    return {at: tree}


def test_the_folder_holds_configuration_prompts_plugins_and_hashes(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    t = task(group_filter={"kind": "zero_variance"}, resample=1)
    m = render(t, tmp_path / "v", machine(gpus=2, nodes=2))
    folder = tmp_path / "v"
    assert m == intact(folder)
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} - {"manifest.json"}
    assert files == set(m["files"]) == {
        "config.yaml", "launch.sh", "recipe.json", "task.toml", "data/train.parquet", "data/search.parquet",
        "plugins/evo_reward.py", "plugins/evo_advantage.py", "plugins/evo_filter.py",
    }  # fmt: skip
    assert m["files"]["recipe.json"] == sha256_file(folder / "recipe.json")
    assert (m["recipe_hash"], m["task_hash"], m["tasks"]) == (t.recipe.hash, t.hash, {"train": 8, "search": 4})
    assert next(iter(m["environment_files"])).endswith("tests/extras/verl/environment.py")
    (row, *_) = pq.read_table(folder / "data" / "train.parquet").to_pylist()
    assert row == {
        "data_source": "evotrainer/sums",
        "prompt": [{"role": "user", "content": "0+0="}],
        "ability": "sums",
        "reward_model": {"style": "rule", "ground_truth": "train-0"},
        "extra_info": {"index": 0, "split": "train", "task": "train-0"},
    }


def test_the_configuration_lays_the_recipe_over_verls_own(tmp_path: Path) -> None:
    t = task(max_turns=3, max_tokens=8)
    render(t, tmp_path / "v", machine(gpus=2, nodes=2, settings={"reward.num_workers": 2}))
    config = yaml.safe_load((tmp_path / "v" / "config.yaml").read_text())
    assert config["defaults"] == ["ppo_trainer", "_self_"] and config["hydra"]["searchpath"] == [
        "pkg://verl.trainer.config"
    ]
    got = flat({k: v for k, v in config.items() if k not in ("defaults", "hydra")})
    folder = str(tmp_path / "v")
    for key, value in translate(t.recipe)[0].items():
        want = f"{folder}/{value}" if isinstance(value, str) and value.startswith("plugins/") else value
        assert got[key] == want or key == "data.max_response_length", key
    assert got["trainer.n_gpus_per_node"] == 2 and got["trainer.nnodes"] == 2 and got["reward.num_workers"] == 2
    assert got["data.max_response_length"] == 3 * 8 + 2 * 32
    assert got["trainer.rollout_data_dir"] and got["trainer.validation_data_dir"], "dumps are on"
    assert got["actor_rollout_ref.rollout.calculate_log_probs"] is True, "the mask is written back only with them"


def test_lora_and_attention_are_rendered(tmp_path: Path) -> None:
    render(task(), tmp_path / "v", machine(attention="sdpa", lora_rank=16))
    model = yaml.safe_load((tmp_path / "v" / "config.yaml").read_text())["actor_rollout_ref"]["model"]
    assert model == {"path": "org/name", "override_config": {"attn_implementation": "sdpa"},
                     "use_remove_padding": False, "lora_rank": 16, "lora_alpha": 32}  # fmt: skip


def test_gate_and_cert_are_never_shown_to_verl(tmp_path: Path) -> None:
    render(task("guessing", prompts_per_step=4), tmp_path / "v", machine())
    raw = b"".join(p.read_bytes() for p in (tmp_path / "v" / "data").iterdir())
    assert b"train-0" in raw and b"search-0" in raw and b"gate-0" not in raw and b"cert-0" not in raw


def test_plugins_are_the_tested_files(tmp_path: Path) -> None:
    import evotrainer.extras.verl

    render(task(), tmp_path / "v", machine())
    home = Path(evotrainer.extras.verl.__file__).parent
    written = list((tmp_path / "v" / "plugins").iterdir())
    assert written
    for p in written:
        assert p.read_bytes() == (home / "plugins" / p.name).read_bytes()


def test_what_cannot_be_trained_is_said_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "v"
    cases = [
        (lambda: render(task(curriculum={"kind": "pass_rate_band"}), out, machine()), "curriculum: verl [0-9.]+ draws"),
        (lambda: render(task(prompts_per_step=9), out, machine()), "8 tasks, fewer than recipe.prompts_per_step = 9"),
        (lambda: render(task(rewards={"kindness": 1.0}), out, machine()), "unknown reward component kindness"),
        (lambda: render(task(knobs={"x": 1}), out, machine()), "unknown environment knob x"),
        (lambda: model_of(task(), None), "--model ORG/NAME or a folder"),
        (lambda: model_of(task(), "./nonexist"), r"model './nonexist': there is no such folder; correct the path, or"),
        (lambda: model_of(task(), str(tmp_path / "gone")), "there is no such folder"),
        (lambda: render(load_task(TOOLS), out, machine()), 'GuessEnv is played by TRL.* with trainer.name = "trl"'),
        (lambda: render(protocol(max_turns=2), out, machine()), "evaluation.protocol.max_turns: verl validates with"),
        (lambda: render(task(), out, machine(engine="hf")), "--engine hf: choose vllm or sglang"),
        (lambda: render(task(), out, machine(attention="eager")), "--attention eager: choose"),
    ]
    for call, said in cases:
        with pytest.raises(ConfigError, match=said):
            call()
    assert not out.exists()
    assert model_of(task(), str(tmp_path)) == str(tmp_path) and model_of(task(), "org/name") == "org/name"


def protocol(**values: Any) -> TaskFile:
    made = task()
    own = made.evaluation.model_copy(update={"protocol": EvaluationProtocol(**values)})
    return made.model_copy(update={"evaluation": own})


def test_validation_samples_as_the_task_file_s_protocol_says(tmp_path: Path) -> None:
    keys, _ = configuration(protocol(temperature=0.6, top_p=0.9), tmp_path, machine())
    rollout = "actor_rollout_ref.rollout"
    assert [keys[f"{rollout}.val_kwargs.{x}"] for x in ("temperature", "top_p")] == [0.6, 0.9]
    assert [keys[f"{rollout}.{x}"] for x in ("temperature", "top_p")] == [1.0, 1.0]


def test_settings_that_belong_to_a_factor_are_refused_with_its_name(tmp_path: Path) -> None:
    for key, said in [
        ("actor_rollout_ref.rollout.n", "belongs to recipe factor group_size; change recipe.group_size"),
        ("actor_rollout_ref.actor.loss_agg_mode", "recipe factor loss"),
        ("trainer.default_local_dir", "EvoTrainer sets it itself"),
    ]:
        with pytest.raises(ConfigError, match=said):
            render(task(), tmp_path / "v", machine(settings={key: 1}))
    for bad in (0, -1, "often"):
        with pytest.raises(ConfigError, match="trainer.save_freq=.*number of steps from 1 on"):
            render(task(), tmp_path / "v", machine(settings={"trainer.save_freq": bad}))
    assert parse_setting("+a.b=[1, 2]") == ("a.b", [1, 2]) and parse_setting("a=sdpa") == ("a", "sdpa")
    assert parse_setting("a=null") == ("a", None) and nested({"a.b": 1, "a.c": 2}) == {"a": {"b": 1, "c": 2}}
    with pytest.raises(ConfigError, match="not of the form key=value"):
        parse_setting("a")


def test_a_changed_or_moved_folder_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    render(task(), folder, machine())
    render(task(lr=1e-5), folder, machine())  # never launched: rendered anew
    with (folder / "config.yaml").open("a") as f:
        f.write("\n")
    with pytest.raises(ConfigError, match="config.yaml is not the file that was rendered"):
        intact(folder)
    render(task(), folder, machine())
    (folder / "data" / "train.parquet").unlink()
    with pytest.raises(ConfigError, match="train.parquet is missing"):
        intact(folder)
    render(task(), folder, machine())
    folder.rename(tmp_path / "w")
    with pytest.raises(ConfigError, match="was rendered as .*/v"):
        intact(tmp_path / "w")
    with pytest.raises(ConfigError, match="holds no rendered verl training; make one"):
        intact(tmp_path)
    (tmp_path / "w" / "metrics").mkdir()
    with pytest.raises(ConfigError, match="nothing of it is overwritten"):
        render(task(), tmp_path / "w", machine())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").write_text("x")
    with pytest.raises(ConfigError, match="is not empty and was not rendered by us"):
        render(task(), tmp_path / "other", machine())
    assert (tmp_path / "other" / "mine").read_text() == "x"


def test_the_recipe_of_a_folder_is_the_task_files(tmp_path: Path) -> None:
    t = task(length={"kind": "overlong", "weight": 0.5}, mask_truncated=True)
    render(t, tmp_path / "v", machine())
    assert json.loads((tmp_path / "v" / "recipe.json").read_text()) == json.loads(t.recipe.canonical())
