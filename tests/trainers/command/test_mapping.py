"""A mapping takes factors to flags, files and overrides; what nothing tells the script is refused by name."""

from __future__ import annotations

import dataclasses
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from evotrainer.errors import ConfigError
from evotrainer.records.recipe import Recipe
from evotrainer.trainers import check_recipes
from evotrainer.trainers.base import installed
from evotrainer.trainers.command.mapping import Mapped, rendered
from evotrainer.trainers.command.options import parse
from evotrainer.trainers.command.presets import PRESETS
from tests.trainers.command.own import options

RECIPE = Recipe(
    lr=3e-4, rewards={"exact": 1.0, "short": 0.5}, loss="dr_grpo", clip={"low": 0.1, "high": 0.3}, mask_truncated=True
)
NAMES = {"policy": "/base", "out": "/out", "seed": 7, "request": "/r.json", "tasks": "/t.jsonl"}


def line(folder: Path, recipe: Recipe = RECIPE, **given: Any) -> list[str]:
    """The command line that a mapping makes of a recipe."""
    return rendered(Mapped.of(parse({"command": ["train"], **given})), recipe, NAMES, folder)


def refused(recipe: Recipe, **given: Any) -> list[str]:
    return Mapped.of(parse({"command": ["train"], **given})).refusals(recipe)


def test_a_mapping_takes_factors_to_flags_and_says_how_the_loss_is_aggregated(tmp_path: Path) -> None:
    rows = {
        "lr": "--lr",
        "clip": {"low": "--eps", "high": "--eps-high"},
        "rewards": {"exact": "--w-exact", "short": "--w-short", "unpaid": "--w-unpaid"},
        "loss": {"to": "--agg", "values": {"dr_grpo": "constant", "dapo": "token"}},
        "mask_truncated": "--mask",
    }
    assert not refused(RECIPE, map=rows)
    assert line(tmp_path, command="train --seed {seed} {other}", map=rows) == [
        *("train", "--seed", "7", "{other}", "--lr", "0.0003", "--eps", "0.1", "--eps-high", "0.3"),
        *("--w-exact", "1.0", "--w-short", "0.5", "--agg", "constant", "--mask", "true"),
    ]
    (why,) = refused(RECIPE.with_factor("loss", "cispo"), map=rows)
    assert why.startswith("loss: the mapping has no value for it; take one of dr_grpo, dapo")


@pytest.mark.parametrize("suffix", [".toml", ".yaml", ".json"])
def test_or_to_places_in_a_configuration_file(suffix: str, tmp_path: Path) -> None:
    base = {"model": "{policy}", "seed": "{seed}", "optim": {"name": "adam", "lr": 1.0}, "env": [{"id": "a"}]}
    text = {".json": json.dumps(base), ".yaml": yaml.safe_dump(base)}
    text[".toml"] = 'model = "{policy}"\nseed = "{seed}"\n[optim]\nname = "adam"\nlr = 1.0\n[[env]]\nid = "a"\n'
    mine = tmp_path / f"mine{suffix}"
    mine.write_text(text[suffix])
    rows = {"lr": "optim.lr", "rewards.exact": "env.0.weight", "loss": "loss.type"}
    (tmp_path / "home").mkdir()
    said = line(tmp_path / "home", command="train @ {config}", map=rows, config=str(mine))
    written = (tmp_path / "home" / f"config{suffix}").read_text()
    assert said == ["train", "@", str(tmp_path / "home" / f"config{suffix}")] and text[suffix] == mine.read_text()
    found = {".json": json.loads, ".yaml": yaml.safe_load, ".toml": tomllib.loads}[suffix](written)
    assert found == {
        "model": "/base",
        "seed": 7,
        "optim": {"name": "adam", "lr": 3e-4},
        "loss": {"type": "dr_grpo"},
        "env": [{"id": "a", "weight": 1.0}],
    }


def test_or_to_overrides_of_hydra_or_the_request_alone(tmp_path: Path) -> None:
    assert line(tmp_path, map={"lr": "optim.lr", "mask_truncated": "+mask", "loss": "request"}) == [
        *("train", "optim.lr=0.0003", "+mask=true"),
    ]


def test_what_nothing_tells_the_script_is_refused_by_name_before_anything_is_spent() -> None:
    rows = {"loss": "--loss", "clip.low": "--eps", "rewards.exact": "--w"}
    said = refused(RECIPE, map=rows, fixed={"lr": 1e-4})
    assert [x.split(":")[0] for x in said] == [
        "clip.high = 0.3",
        "lr = 0.0003",
        "rewards.short = 0.5",
        "mask_truncated = true",
    ]
    assert "the script always has 0.0001" in said[1] and 'trainer.options.map.clip.high = "--flag"' in said[0]
    knobs = RECIPE.model_copy(update={"knobs": {"hint": "hidden"}})
    assert [x for x in refused(knobs, map=rows) if x.startswith("knobs.hint")]
    assert not [x for x in refused(knobs, map=rows, command="train {tasks}") if x.startswith("knobs")], "in the prompts"
    with pytest.raises(ConfigError, match="trainer command: grad_clip = 0.5: nothing tells the script; map it"):
        check_recipes("command", options(), [Recipe(steps=3, grad_clip=0.5, prompts_per_step=4, group_size=4,
                                                    max_tokens=4, rewards={"digits": 1.0})])  # fmt: skip


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"map": {"lr": "--lr"}}, "nothing says how the script aggregates its loss; map it .* fixed.loss"),
        ({"map": {"lrr": "--lr", "loss": "--l"}}, "no factor 'lrr' in a recipe; did you mean lr"),
        ({"map": "trll"}, "no preset 'trll'; there are trl, ms-swift, prime-rl, verl, verl-plain"),
        ({"map": {"loss": "--l"}, "metric": "x"}, "metric: unknown name, did you mean metrics"),
        ({"map": {"loss": "--l"}, "command": ["no-such-program"]}, "no program 'no-such-program'; install it"),
        ({"map": {"loss": "--l"}, "config": "no.toml"}, "trainer.options.config no.toml: .*No such file"),
        ({"map": {"loss": "--l"}, "cwd": "/no/such"}, "trainer.options.cwd /no/such: no such folder"),
        (
            {"map": {"loss": "--l"}, "evaluation": {"by": "endpoint", "base_url": "http://127.0.0.1:1", "model": "m"}},
            "model 'm' names no policy, so that all trials would be scored by one",
        ),
        ({"map": {"loss": "--l"}, "evaluation": {"by": "command"}}, "belong together; give both or neither"),
    ],
)
def test_what_cannot_be_is_told_with_the_remedy(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_recipes("command", {"command": [sys.executable], **given}, [Recipe(rewards={"a": 1.0})])


@pytest.mark.parametrize("place", ["weights.7", "weights.x", "name.first"])
def test_a_place_that_the_configuration_lacks_is_told_before_anything_is_spent(place: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("weights: [0.0, 0.0]\nname: one\n")
    given = {"command": [sys.executable], "config": str(tmp_path / "c.yaml"), "fixed": {"loss": "grpo"}}
    recipes = [Recipe(rewards={"a": 1.0})]
    check_recipes("command", given | {"map": {"rewards.a": "weights.1"}}, recipes)
    with pytest.raises(ConfigError, match=f"map: {place} is no place in trainer.options.config; correct it"):
        check_recipes("command", given | {"map": {"rewards.a": place}}, recipes)


def test_presets_know_their_trainers_names_and_what_they_cannot_do(tmp_path: Path) -> None:
    fixed = {"rewards": dict(RECIPE.rewards)}
    said = line(tmp_path, map="trl", fixed=fixed)
    flags = dict(zip(said[1::2], said[2::2], strict=True))
    assert flags["--loss_type"] == "dr_grpo" and flags["--mask_truncated_completions"] == "true"
    assert flags["--per_device_train_batch_size"] == "256" and flags["--epsilon_high"] == "0.3"
    assert flags["--lr_scheduler_type"] == "constant_with_warmup" and flags["--warmup_steps"] == "5"
    assert not refused(RECIPE, map="trl", fixed=fixed)
    more = {"map": {"preset": "trl", "lr": "--my-lr"}, "fixed": fixed}
    assert "--my-lr" in line(tmp_path, **more) and "--learning_rate" not in line(tmp_path, **more)
    verl = line(tmp_path, map="verl-plain", fixed=fixed)
    assert "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm" in verl
    assert "algorithm.norm_adv_by_std_in_grpo=true" in verl
    prime = RECIPE.with_changes({"loss": "dapo", "reward_scaling": "none", "schedule": {"kind": "linear", "warmup": 3}})
    line(tmp_path, prime, command="rl @ {config} --dry-run", map="prime-rl", fixed=fixed)
    found = tomllib.loads((tmp_path / "config.toml").read_text())
    assert found["orchestrator"]["batch_size"] == 256 and found["trainer"]["scheduler"]["decay_steps"] == 27
    told = refused(RECIPE, map="prime-rl", fixed=fixed)
    assert [x.partition(":")[0] for x in told] == [
        "loss",
        "clip.low = 0.1",
        "clip.high = 0.3",
        "reward_scaling",
        "schedule",
        "mask_truncated = true",
    ]
    swift = dict(zip(*[iter(line(tmp_path, map="ms-swift", fixed=fixed)[1:])] * 2, strict=True))
    assert swift["--overlong_filter"] == "true" and swift["--dynamic_sample"] == "false"


@pytest.mark.skipif(not installed("trl"), reason="needs trl")
def test_every_key_of_the_trl_preset_is_one_of_its_configuration() -> None:
    from trl import GRPOConfig

    known = {f.name for f in dataclasses.fields(GRPOConfig)}
    assert {k for how in PRESETS["trl"].rows.values() for k in how.sets} <= known
