"""Reward functions for TRL are called before a run is paid for: `try_rewards`, by `--dry-run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.config.load import load_task, resolve
from evotrainer.envs import open_environment
from evotrainer.envs.base import Environment
from evotrainer.errors import ConfigError, TaskSetError
from evotrainer.run.checks.rewards import try_rewards

TASK = resolve(
    {"task": {"name": "t"}, "environment": {}, "trainer": {"name": "trl"}, "recipe": {"rewards": {"right": 1.0}}}
)
ROWS = [{"prompt": f"Add {i} and 1.", "answer": str(i + 1)} for i in range(40)]


def probed(environment: Environment) -> list[str]:
    return list(try_rewards(TASK, environment))


def tried(folder: Path, body: str, signature: str = "prompts, completions, answer, **kwargs") -> list[str]:
    rows, file = folder / "rows.jsonl", folder / "reward.py"
    rows.write_text("".join(json.dumps(r) + "\n" for r in ROWS), encoding="utf-8")
    file.write_text(f"import os\nimport sys\n\n\ndef right({signature}):\n    {body}\n", encoding="utf-8")
    return probed(open_environment({"name": f"trl-rewards:{file}:right", "source": str(rows)}))


def test_one_that_works_is_let_through_without_a_word(tmp_path: Path) -> None:
    assert tried(tmp_path, "return [float(a in c) for a, c in zip(answer, completions)]") == []
    assert tried(tmp_path, "return [None if i else 0.0 for i in range(len(completions))]") == []
    assert tried(tmp_path, "return [0.0 for _ in range(len(completions) + kwargs['trainer_state'].global_step)]") == []


@pytest.mark.parametrize(
    ("body", "signature", "says"),
    [
        ("return [0.0] * len(completions)", "prompts, completions", "cannot be called as TRL calls it.*kwargs"),
        ("return [0.0] * len(completions)", "completions, gold, **kwargs", "missing a required argument: 'gold'"),
        ("return [0.0]", "completions, **kwargs", "gave 1 value for 2 completions"),
        ("sys.exit(3)", "completions, **kwargs", r"called sys.exit\(3\)"),
        ("return 'good'", "completions, **kwargs", r"gave str 'good'; it must give a list"),
        ("return 1.0", "completions, **kwargs", "gave float '1.0'; it must give a list: a number, or None, for each"),
        ("return ['good'] * 2", "completions, **kwargs", "'right' gave the text 'good' for attempt 0 .* finite number"),
        ("return [[1.0]] * 2", "completions, **kwargs", r"'right' gave list \[1.0\] for attempt 0"),
        ("return [float('nan')] * 2", "completions, **kwargs", "'right' gave nan for attempt 0"),
        ("return [0.0, float('-inf')]", "completions, **kwargs", "'right' gave -inf for attempt 1"),
        ("return [1 + 2j] * 2", "completions, **kwargs", "'right' gave the complex number"),
        ("return [1e300] * 2", "completions, **kwargs", r"'right' gave 1e\+300 for attempt 0 .*-1,000,000 and"),
        ("return [1e7 * len(c) for c in completions]", "completions, **kwargs", "'right' gave 10000000.0 for att"),
        ("os._exit(0)", "completions, **kwargs", r"called os._exit\(0\)"),
    ],
)
def test_what_training_would_end_by_is_refused(tmp_path: Path, body: str, signature: str, says: str) -> None:
    with pytest.raises(TaskSetError, match=says):
        tried(tmp_path, body, signature)


def test_what_newer_trl_hands_over_is_there(tmp_path: Path) -> None:
    assert (
        tried(tmp_path, "log_metric('x', 1.0); return [0.0] * len(completions)", "completions, log_metric, **kwargs")
        == []
    )
    assert tried(tmp_path, "return (len(c) / 1000 for c in completions)", "completions, **kwargs") == []


def test_noise_and_what_raises_at_one_length_are_said(tmp_path: Path) -> None:
    (noisy,) = tried(tmp_path, "import random; return [random.random() for _ in completions]")
    assert "'right' gave 0." in noisy and "for the same answer" in noisy and "from a seed" in noisy
    (raises,) = tried(tmp_path, "return [1 / (len(c) - 6) for c in completions]")
    assert "raised ZeroDivisionError" in raises and "empty answers, and some of every small length" in raises


def reward_task(folder: Path, body: str, task_file: Path) -> list[str]:
    rows, file = folder / "rows.jsonl", folder / "reward.py"
    rows.write_text("".join(json.dumps(r) + "\n" for r in ROWS), encoding="utf-8")
    file.write_text(f"def right(completions, **kwargs):\n    {body}\n", encoding="utf-8")
    values = load_task(task_file).model_dump(mode="json")
    values["environment"] = {"name": f"trl-rewards:{file}:right", "source": str(rows), "payable": ["right"]}
    values["recipe"] |= {"rewards": {"right": 1.0}, "knobs": {}}
    values["trainer"] = {"name": "trl"}
    return api.preflight(resolve(values), new=True)


def test_a_faulty_reward_does_not_hide_behind_the_base_policy(tmp_path: Path, task_file: Path) -> None:
    with pytest.raises(TaskSetError, match="'right' gave float '1.0'"):
        reward_task(tmp_path, "return 1.0", task_file)
    with pytest.raises(ConfigError, match='offers no demonstrations .* set policy.base to .*"builtin:math-v1"'):
        reward_task(tmp_path, "return [0.0] * len(completions)", task_file)


def test_an_error_that_an_empty_answer_may_cause_is_a_note(tmp_path: Path) -> None:
    (note,) = tried(tmp_path, "return [float(c.split()[0] == a) for c, a in zip(completions, answer)]")
    assert (
        "'right' raised IndexError" in note
        and "(reward.py, line 6)" in note
        and "empty answers; a training stops" in note
    )


def test_none_throughout_is_a_note_that_names_the_function(tmp_path: Path) -> None:
    (note,) = tried(tmp_path, "return [None for c in completions]")
    assert "outcome, 'right', gave None for each of 2 answers" in note and "nothing could be measured" in note


def test_one_number_for_every_completion_is_a_note(tmp_path: Path) -> None:
    always, note = tried(tmp_path, "return [1.0] * len(completions)")
    assert "an empty answer is correct by right" in always
    assert "'right', which is paid, gave 1.0 for every answer that was tried (27:" in note and "no gradient" in note
    assert tried(tmp_path, "return [0.0] * len(completions)") == [], "it may want the right answer"


def test_columns_are_renamed(tmp_path: Path) -> None:
    rows, file = tmp_path / "rows.jsonl", tmp_path / "reward.py"
    rows.write_text("".join(json.dumps({"question": r["prompt"], "gold": r["answer"]}) + "\n" for r in ROWS))
    file.write_text(
        "def right(prompts, completions, answer, **kwargs):\n    return [float(len(c)) for c in completions]\n"
    )
    config = {"name": f"trl-rewards:{file}:right", "source": str(rows)}
    with pytest.raises(TaskSetError, match=r'row 1: field .prompt. is empty.*columns = .prompt = "question".'):
        open_environment(config)
    environment = open_environment({**config, "columns": {"prompt": "question", "answer": "gold"}})
    task = environment.tasks("train")[0]
    assert set(task.data) == {"prompt", "answer"} and task.prompt.startswith("Add ")
    assert probed(environment) == []
    for columns, says in (
        ({"prompt": "frage"}, "row 1: environment.columns names the column 'frage'; there are: question,"),
        ({"prompt": "question", "answer": "question"}, "gives one column two names"),
        ({"gold": "question"}, "renames 'question' to 'gold', and there is such a column already"),
    ):
        with pytest.raises(TaskSetError, match=says):
            open_environment({**config, "columns": columns})
    swapped = open_environment({**config, "columns": {"prompt": "question", "question": "gold"}})
    assert set(swapped.tasks("train")[0].data) == {"prompt", "question"}
