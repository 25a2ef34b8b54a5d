"""Reward functions run unchanged: what they are given here and by TRL's own trainer, over its kinds of data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.config.load import load_task
from evotrainer.envs import open_environment
from evotrainer.errors import ConfigError, TaskSetError
from evotrainer.records.recipe import parse_recipe
from evotrainer.trainers.base import EvalRequest, Identity
from evotrainer.trainers.trl.trainer import TrlTrainer
from tests.trainers.trl.small_policy import SHAPE

pytest.importorskip("trl", reason="TRL is an extra: pip install 'evotrainer[trl]'")
pytestmark = pytest.mark.xdist_group("trl")

USER, SYSTEM = {"role": "user", "content": "Say 3."}, {"role": "system", "content": "Be brief."}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
KINDS: dict[str, dict[str, Any]] = {
    "standard, prompt-only": {"prompt": "Say 3."},
    "conversational, prompt-only": {"prompt": [SYSTEM, USER]},
    "standard, prompt-completion": {"prompt": "Say 3.", "completion": "3"},
    "conversational, prompt-completion": {"prompt": [USER], "completion": [{"role": "assistant", "content": "3"}]},
    "conversational, with tools": {"prompt": [USER], "tools": [TOOL]},
}
REWARD = '''"""What a reward function is given, noted for comparison."""

import json
from pathlib import Path

NOTE = Path(__file__).with_suffix(".seen")


def shape(x):
    return [{**m, "content": "..."} for m in x] if isinstance(x, list) else type(x).__name__


def noted(prompts, completions, answer, **columns):
    """1 where the answer is said."""
    rest = {k: v for k, v in columns.items() if k not in ("completion_ids", "trainer_state", "log_extra", "log_metric")}
    for i, (p, c, a) in enumerate(zip(prompts, completions, answer)):
        row = {"prompt": p, "completion": shape(c), "answer": a, **{k: v[i] for k, v in rest.items() if v}}
        with NOTE.open("a") as f:
            f.write(json.dumps({k: v for k, v in row.items() if not callable(v)}, sort_keys=True) + "\\n")
    return [float(a in (c if isinstance(c, str) else c[0]["content"])) for c, a in zip(completions, answer)]
'''


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained policy of a few thousand weights, with a chat template."""
    import torch

    from evotrainer.trainers.trl.folder import save_folder
    from evotrainer.trainers.trl.scratch import make_model, make_tokenizer

    out = tmp_path_factory.mktemp("tiny") / "policy"
    tokenizer = make_tokenizer(["Say 3.", "Be brief.", "0123456789"] * 20, (), SHAPE["context"])
    torch.manual_seed(0)
    save_folder(out, [make_model(tokenizer, SHAPE, 0).save_pretrained, tokenizer.save_pretrained])
    return out


def reward_file(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(REWARD)
    return folder / "mine.py"


def seen(file: Path) -> set[str]:
    return set(file.with_suffix(".seen").read_text().splitlines())


def rows(kind: str, n: int = 8) -> list[dict[str, Any]]:
    return [{"id": f"t{i}", "answer": str(i), **KINDS[kind]} for i in range(n)]


def by_trl(policy: Path, kind: str, folder: Path) -> set[str]:
    """One step of TRL's own trainer."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from evotrainer.envs.user_files import load_module

    file = reward_file(folder)
    args = GRPOConfig(
        output_dir=str(folder / "out"), max_steps=2, per_device_train_batch_size=8, num_generations=2,
        max_completion_length=4, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, bf16=False,
    )  # fmt: skip
    data = Dataset.from_list(rows(kind))
    GRPOTrainer(str(policy), load_module(file).noted, args=args, train_dataset=data).train()
    return seen(file)


def by_us(policy: Path, kind: str, folder: Path) -> set[str]:
    """The same rows, as a task's train split."""
    file = reward_file(folder)
    path = folder / "rows.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in rows(kind)))
    env = open_environment({"name": f"trl-rewards:{file}:noted", "source": str(path), "splits": {"search": 1.0}})
    recipe = parse_recipe({"rewards": {"noted": 1.0}, "max_tokens": 4, "group_size": 2})
    ask = EvalRequest(Identity("r", "b0", 1), recipe, policy, "search", 0, attempts=2)
    groups = TrlTrainer().evaluate(ask, env, lambda _: None)
    prompt = KINDS[kind]["prompt"]
    told = [t.text for t in groups[0][0].turns[:-1]]
    assert told == ([prompt] if isinstance(prompt, str) else [m["content"] for m in prompt])
    return seen(file)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reward_function_is_given_what_trl_itself_gives_it(policy: Path, tmp_path: Path, kind: str) -> None:
    ours, theirs = by_us(policy, kind, tmp_path / "ours"), by_trl(policy, kind, tmp_path / "theirs")
    assert ours == theirs or theirs < ours, "TRL draws prompts; all that it drew look the same here"
    assert theirs


def test_a_policy_without_a_template_takes_text_and_refuses_messages_before_the_run(
    policy: Path, tmp_path: Path
) -> None:
    import shutil

    bare = tmp_path / "bare"
    shutil.copytree(policy, bare)
    (bare / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((bare / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (bare / "tokenizer_config.json").write_text(json.dumps(config))
    assert by_us(bare, "standard, prompt-only", tmp_path / "text")
    file = reward_file(tmp_path / "messages")
    path = tmp_path / "rows.jsonl"
    told = [{"role": "user", "content": "Be brief. Say " + "3" * n} for n in range(1, 61)]
    path.write_text("\n".join(json.dumps({"prompt": [m], "answer": "3"}) for m in told))
    task = tmp_path / "task.toml"
    task.write_text(
        f'[task]\nname = "t"\n[environment]\nname = "trl-rewards:{file}:noted"\nsource = "{path}"\n'
        f'payable = ["noted"]\n[policy]\nbase = "{bare}"\n[trainer]\nname = "trl"\n'
        "[recipe]\nmax_tokens = 4\n[recipe.rewards]\nnoted = 1.0\n"
    )
    with pytest.raises(ConfigError, match="are messages, which the policy .* has no chat template for; give it one"):
        api.preflight(load_task(task), new=True)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (["Say 3.", [USER]], "'prompt' is text in row 1 and messages in row 2; use one of them"),
        (["Say 3.", ""], "row 2: field 'prompt' is empty"),
    ],
)
def test_what_trl_cannot_take_is_said_when_the_rows_are_read(tmp_path: Path, prompts: list[Any], message: str) -> None:
    file = reward_file(tmp_path / "mine")
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": p, "answer": str(i)}) for i, p in enumerate(prompts)))
    with pytest.raises(TaskSetError, match=message):
        open_environment({"name": f"trl-rewards:{file}:noted", "source": str(path)})


@pytest.mark.parametrize(("value", "message"), [("float('nan')", "gave nan"), ("exit(3)", r"called sys.exit\(3\)")])
def test_a_reward_that_is_no_number_or_exits_is_named(policy: Path, tmp_path: Path, value: str, message: str) -> None:
    (tmp_path / "bad.py").write_text(
        f"def bad(prompts, completions, **columns):\n    return [{value} for _ in prompts]\n"
    )
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"prompt": f"Say {i}."}) for i in range(4)))
    env = open_environment(
        {
            "name": f"trl-rewards:{tmp_path}/bad.py:bad",
            "source": str(tmp_path / "rows.jsonl"),
            "splits": {"search": 1.0},
        }
    )
    ask = EvalRequest(
        Identity("r", "b0", 1), parse_recipe({"rewards": {"bad": 1.0}, "max_tokens": 4}), policy, "search", 0, 2
    )
    with pytest.raises(TaskSetError, match=f"reward function 'bad' {message}"):
        TrlTrainer().evaluate(ask, env, lambda _: None)
