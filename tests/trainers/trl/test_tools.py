"""Users' own TRL environment classes and reward functions, unchanged: trained, evaluated, recorded."""

from __future__ import annotations

import json
import random
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from evotrainer.envs import open_environment
from evotrainer.errors import TaskSetError
from evotrainer.records.recipe import parse_recipe
from evotrainer.records.rollout import Rollout
from evotrainer.trainers.base import EvalRequest, Identity, TrainRequest
from evotrainer.trainers.trl.trainer import TrlTrainer
from tests.trainers.trl.small_policy import SHAPE, fork_trials

pytest.importorskip("trl", reason="TRL is an extra: pip install 'evotrainer[trl]'")
pytestmark = pytest.mark.xdist_group("trl")

FILE = Path(__file__).parents[2] / "data" / "guess_env.py"


def rows(folder: Path, n: int = 40) -> Path:
    out = folder / "rows.jsonl"
    lines = [json.dumps({"id": f"t{i}", "prompt": "", "number": i % 4 + 1}) for i in range(n)]
    out.write_text("\n".join(lines))
    return out


def environment(folder: Path, name: str = f"trl:{FILE}:GuessEnv", **options: Any) -> Any:
    shares = {"train": 0.4, "search": 0.2, "gate": 0.2, "cert": 0.2}
    return open_environment({"name": name, "source": str(rows(folder)), "id_column": "id", "splits": shares, **options})


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Knows the form of a call, and guesses at random: one to three guesses, then a word."""
    from evotrainer.trainers.trl.folder import save_folder
    from evotrainer.trainers.trl.generate import padded
    from evotrainer.trainers.trl.scratch import make_model, make_tokenizer

    rng = random.Random(0)
    texts = ["Guess 1-4.", '{"name": "guess", "arguments": {"n": 1}}', "higher lower correct", "ok"] * 20
    tokenizer = make_tokenizer(texts, (), 512)
    # The tool's schema is as TRL renders it for the class's method.
    from transformers.utils import get_json_schema

    scope: dict[str, Any] = {}
    exec(FILE.read_text(), scope)
    tool = get_json_schema(scope["GuessEnv"]().guess)
    torch.manual_seed(0)
    model = make_model(tokenizer, {**SHAPE, "context": 512}, 0)
    examples = []
    for _ in range(128):
        turns: list[dict[str, Any]] = [{"role": "user", "content": "Guess 1-4."}]
        for _ in range(rng.randint(1, 3)):
            call = {"type": "function", "function": {"name": "guess", "arguments": {"n": rng.randint(1, 4)}}}
            turns.append({"role": "assistant", "content": "", "tool_calls": [call]})
            turns.append({"role": "tool", "name": "guess", "content": rng.choice(["higher", "lower", "correct"])})
        turns.append({"role": "assistant", "content": "ok"})
        ids = tokenizer.apply_chat_template(turns, tools=[tool], return_dict=False)
        start = tokenizer.convert_tokens_to_ids("<|im_start|>")
        loss, on = [], False
        for i, t in enumerate(ids):  # loss on what follows "<|im_start|>assistant\n"
            if t == start:
                on = tokenizer.decode(ids[i : i + 12]).startswith("<|im_start|>assistant")
            loss.append(on)
        examples.append((ids, loss))
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
    for _ in range(60):
        batch = [examples[j] for j in rng.sample(range(len(examples)), 12)]
        ids, mask, labels = padded(batch, tokenizer.pad_token_id, model.device)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    out = tmp_path_factory.mktemp("player") / "base"
    save_folder(out, [model.save_pretrained, tokenizer.save_pretrained])
    return out


RECIPE = {"steps": 2, "prompts_per_step": 4, "group_size": 4, "max_tokens": 40, "max_turns": 4, "lr": 1e-3}


def train(policy: Path, work: Path, env: Any, **factors: Any) -> tuple[Any, list[Rollout]]:
    stored: list[Rollout] = []
    recipe = parse_recipe(RECIPE | {"rewards": {"reward": 1.0}} | factors)
    request = TrainRequest(Identity("r", "b0", 1), recipe, policy, work)
    return TrlTrainer().train(request, env, lambda groups: stored.extend(chain(*groups)), lambda row: None), stored


def test_a_users_class_is_trained_unchanged_and_its_calls_are_recorded(player: Path, tmp_path: Path) -> None:
    env = environment(tmp_path, rewards=[f"{FILE}:brief"])
    assert set(env.components) == {"reward", "brief"}
    result, stored = train(player, tmp_path / "w", env, group_filter={"kind": "zero_variance"}, resample=1,
                           kl_beta=0.01, updates_per_step=2, rewards={"reward": 1.0, "brief": 0.1})  # fmt: skip
    assert result.steps == 2 and result.curve[-1]["grad_norm"] > 0
    called = [r for r in stored if any(t.tool_calls for t in r.turns)]
    assert len(called) > len(stored) / 2
    for r in called:
        assert r.turns[0].text.startswith("Guess 1-4.") and r.task.startswith("t")
        assert r.reward == pytest.approx(r.components["reward"] + 0.1 * r.components["brief"])  # type: ignore[operator]
        assert r.token_ids is not None and r.tokens == len(r.token_ids) == len(r.logprobs or ()) and r.entropy
    won = [r for r in stored if r.outcome == "correct"]
    assert won and all(sum(t.text == "correct" for t in r.turns) == 1 and r.components["reward"] == 1.0 for r in won)
    answers = {t.text for r in called for t in r.turns if t.role == "tool"}
    assert {"higher", "lower"} & answers
    for r in called:
        for turn, answer in zip(r.turns, r.turns[1:], strict=False):
            if turn.tool_calls and answer.role == "tool":
                assert turn.tool_calls[0].ok is ("error" not in answer.text)


def test_evaluation_plays_by_the_same_loop(player: Path, tmp_path: Path) -> None:
    env = environment(tmp_path)
    recipe = parse_recipe(RECIPE | {"rewards": {"reward": 1.0}, "sft_anchor": 0.1})
    ask = EvalRequest(Identity("r", "b0", 3), recipe, player, "search", 0, attempts=3, tasks=4)
    one, two = ([*chain(*TrlTrainer().evaluate(ask, env, lambda _: None))] for _ in range(2))
    assert [r.turns for r in one] == [r.turns for r in two] and len({r.id for r in one}) == 12
    assert [r.task for r in one[::3]] == [t.id for t in env.tasks("search")[:4]]
    assert any(t.tool_calls for r in one for t in r.turns)


def test_plain_reward_functions_over_a_file_of_prompts(player: Path, tmp_path: Path) -> None:
    rewards = tmp_path / "mine.py"
    rewards.write_text(
        'def even(completions, number, **kwargs):\n    """1 for an even number of characters, None for task 1."""\n'
        '    return [None if n == 1 else float(len(c[0]["content"]) % 2 == 0) for c, n in zip(completions, number)]\n'
    )
    said = [{"role": "user", "content": "Guess 1-4."}]
    path = tmp_path / "messages.jsonl"
    path.write_text("\n".join(json.dumps({"id": f"t{i}", "prompt": said, "number": i % 4 + 1}) for i in range(40)))
    env = open_environment({"name": f"trl-rewards:{rewards}:even", "source": str(path), "id_column": "id"})
    result, stored = train(player, tmp_path / "w", env, max_turns=1, max_tokens=8, rewards={"even": 1.0})
    assert result.steps == 2
    assert {r.components["even"] for r in stored} <= {0.0, 1.0, None} and len(
        {r.components["even"] for r in stored}
    ) > 1
    unpaid = [r for r in stored if r.components["even"] is None]
    assert unpaid and all(r.detail.get("unpaid") == ["even"] and r.outcome == "unknown" for r in unpaid)


def test_what_is_wrong_with_a_class_is_said_by_name(player: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskSetError, match=r"guess_env.py, line \d+, get_reward: KeyError: 'score'; correct it"):
        train(player, tmp_path / "w", environment(tmp_path, name=f"trl:{FILE}:BrokenEnv"))
    with pytest.raises(TaskSetError, match="has no Class 'Nope'"):
        environment(tmp_path, name=f"trl:{FILE}:Nope")
    with pytest.raises(TaskSetError, match="rows.jsonl, row 1: field 'fold' is missing"):
        environment(tmp_path, split_column="fold")
    with pytest.raises(TaskSetError, match="played by TRL's own tool loop; set trainer.name"):
        environment(tmp_path).step([], [], [])
    with pytest.raises(TaskSetError, match="truth 'nope' is none of reward"):
        environment(tmp_path, truth="nope")


@pytest.mark.slow
def test_a_users_class_goes_through_the_whole_loop(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evotrainer.api import start

    fork_trials(monkeypatch)
    example = FILE.parents[2] / "examples" / "trl-tools.toml"
    small = [
        *(f"policy.base={player}", "trainer.options={}", "recipe.steps=1", "recipe.prompts_per_step=2"),
        *("recipe.group_size=2", "recipe.max_turns=2", "recipe.max_tokens=24", "run.rounds=0", "run.seeds=[1, 2]"),
        *("run.certify_seeds=[101]", "run.workers=1", "run.agent=random", f"environment.name=trl:{FILE}:GuessEnv"),
        *("evaluation.search_tasks=2", "evaluation.gate_tasks=2", "evaluation.cert_tasks=2"),
    ]
    run = start(example, tmp_path / "run", small)
    assert run.certification is not None and not run.verify().problems
    opened = next(e.body for e in run.events() if e.kind == "run")
    assert opened.base_policy["path"] == str(player) and str(FILE) in opened.environment["files"]


def test_a_class_is_told_otherwise_and_answers_otherwise_where_a_recipe_says_so(player: Path, tmp_path: Path) -> None:
    """Descriptions of tools, the system prompt and the format of answers; parameters and rewards stay the class's."""
    from transformers.utils import get_json_schema

    env = environment(tmp_path)
    assert [s.name for s in env.slots] == ["system", "prompt", "tool_guess", "observation"]
    assert {s.name: s.default for s in env.slots}["tool_guess"] == "Guess the hidden number."
    plain = env.environment_factory
    env.use_scaffold(
        {"system": "Halve.", "tool_guess": "Guess 1 to 4 by halves.", "observation": "said: {observation}"}
    )
    assert env.environment_factory is not plain and issubclass(env.environment_factory, plain)
    told = get_json_schema(env.environment_factory().guess)["function"]
    assert told["description"] == "Guess 1 to 4 by halves." and "n" in told["parameters"]["properties"]
    _, stored = train(player, tmp_path / "w", env)
    assert {(r.turns[0].role, r.turns[0].text) for r in stored} == {("system", "Halve.")}
    answers = {t.text for r in stored for t in r.turns if t.role == "tool" and "error" not in t.text}
    assert answers and answers <= {"said: higher", "said: lower", "said: correct"}
    with pytest.raises(TaskSetError, match="tool_guess describes the tool in words"):
        env.use_scaffold({"tool_guess": "Guess.\n\nArgs:\n    k: Another."})
    env.use_scaffold({})
    assert env.environment_factory is plain and get_json_schema(plain().guess)["function"] != told
