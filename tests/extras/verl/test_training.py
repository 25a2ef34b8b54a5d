"""A request in verl's terms: its prompts, its settings, and what may not be set."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.extras.verl.asking import ask

from evotrainer.errors import ConfigError
from evotrainer.extras.verl.__main__ import main
from evotrainer.extras.verl.training import VerlTraining


def test_prompts_are_in_verls_columns_and_hold_no_answer(tmp_path: Path) -> None:
    t = ask(tmp_path / "a")
    first, *rest = map(json.loads, t.prompts.read_text().splitlines())
    assert len(rest) == 7 and first == {
        "data_source": "evotrainer",
        "prompt": [{"role": "user", "content": "0+0="}],
        "ability": "evotrainer",
        "reward_model": {"style": "rule", "ground_truth": "train-0"},
        "extra_info": {"index": 0},
    }


def test_settings_lie_around_those_that_are_given(tmp_path: Path) -> None:
    t = ask(tmp_path / 'a "folder', max_turns=3)
    said = t.settings(["trainer.save_freq=20", "data.train_batch_size=4"], observation_tokens=10)
    assert said.index("trainer.save_freq=5") < said.index("trainer.save_freq=20"), "what is given counts"
    last = dict(x.split("=", 1) for x in said)
    assert last["data.max_response_length"] == "44" and last["data.seed"] == "7"
    assert json.loads(last["data.train_files"]) == str(t.prompts), "whatever is in a path"
    assert last["trainer.test_freq"] == "-1" and last["trainer.val_before_train"] == "false"
    assert t.variables()["EVOTRAINER_VERL_REQUEST"] == str(t.request)
    for given, says in [
        (["data.seed=1"], "data.seed is set by EvoTrainer itself; leave it out"),
        (["actor_rollout_ref.actor.optim.lr=1", "actor_rollout_ref.actor.optim.lr=2"],
         "belongs to recipe factor lr; change recipe.lr"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match=says):
            t.settings(given)


def test_what_verl_cannot_begin_with_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    t = ask(tmp_path / "a")
    assert main([str(t.request)]) == ConfigError.exit_code
    assert "has verl none, 0.9.1 is needed: " in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"is no request of a training: .*give \{request\}"):
        VerlTraining.read(tmp_path / "no.json")


def test_the_page_shows_the_command_that_the_module_takes() -> None:
    page = (Path(__file__).parents[3] / "docs" / "verl.md").read_text()
    line = next(x for x in page.splitlines() if x.startswith("command = "))
    words = shlex.split(line.partition("=")[2].strip().strip('"'))
    assert words[1:4] == ["-m", "evotrainer.extras.verl", "{request}"]
