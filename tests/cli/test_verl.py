"""Every verl command is documented, and its mistakes are answered with cause and remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evotrainer.cli import FAMILIES, app
from evotrainer.errors import ConfigError
from tests.extras.verl.rendering import HERE, recipe

PAGE = (HERE.parents[2] / "docs" / "commands" / "verl.md").read_text(encoding="utf-8")
NAMES = FAMILIES["verl"]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_an_example_and_a_row(name: str) -> None:
    shown = CliRunner().invoke(app, ["verl", name, "--help"]).stdout
    assert f"Example: evotrainer verl {name}" in re.sub(r"\s+", " ", shown)
    assert f"| `{name}` |" in PAGE and f"evotrainer verl {name}" in PAGE.split("```")[1]


def task_file(folder: Path) -> Path:
    values = "\n".join(f"{k} = {v}" for k, v in recipe().items() if k != "rewards")
    path = folder / "task.toml"
    path.write_text(
        f'[task]\nname = "sums"\n[environment]\nname = "python:{HERE / "environment.py"}:sums"\n'
        'payable = ["right"]\n'
        f"[recipe]\n{values}\n[recipe.rewards]\nright = 1.0\n"
    )
    return path


LORA = "trainer.options.lora={r = 8, alpha = 4}"


def test_the_command_renders_a_folder(tmp_path: Path) -> None:
    args = [
        "verl",
        "render",
        str(task_file(tmp_path)),
        "--out",
        str(tmp_path / "v"),
        "--model",
        "org/name",
        "--gpus",
        "2",
    ]
    done = CliRunner().invoke(
        app, [*args, "recipe.loss=dapo", LORA, "--set", "reward.num_workers=2"], catch_exceptions=False
    )
    assert done.exit_code == 0
    assert "8 training and 4 validation prompts; plug-ins evo_reward.py, evo_advantage.py" in done.stdout
    assert f"next: evotrainer verl validate {tmp_path / 'v'}" in done.stdout
    written = (tmp_path / "v" / "config.yaml").read_text()
    assert all(x in written for x in ("loss_agg_mode: token-mean", "lora_rank: 8", "lora_alpha: 4"))


def test_mistakes_are_answered_with_cause_and_remedy(tmp_path: Path) -> None:
    task = str(task_file(tmp_path))
    for args, said in [
        (["render", task, "--out", str(tmp_path / "v")],
         "policy of the embedded trainer; name a model for verl: --model"),
        (["render", task, "--out", str(tmp_path / "v"), "--model", "o/n", "recipe.sft_anchor=0.1"],
         "sft_anchor: verl's actor loss"),
        (["render", task, "--out", str(tmp_path / "v"), "policy.base=smollm2-135m"], "verl reads no GGUF"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match=said):
            CliRunner().invoke(app, ["verl", *args], catch_exceptions=False)
