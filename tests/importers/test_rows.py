"""Formats that are rows of named columns, and the lever that reads them."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evotrainer.errors import ConfigError
from evotrainer.importers import IMPORTERS, Skipped, Source, detect, read
from evotrainer.importers.forms import FORMS
from evotrainer.importers.rows import read_as, read_map
from evotrainer.records.rollout import Rollout
from evotrainer.testing import check_importer
from tests.cli.call import in_this_process
from tests.envs.helpers import jsonl

Rows = list[dict[str, Any]]


def rollouts(path: Path, **options: Any) -> list[Rollout]:
    out = [r for _, _, r in read([path], **options)]
    assert not [r for r in out if isinstance(r, Skipped)], out
    return [r for r in out if isinstance(r, Rollout)]


def swift(steps: int = 3, last: str = "advantages") -> Rows:
    """Lines of ms-swift: two prompts of four completions, rewards of two functions of weight 1."""
    out = []
    for step in range(1, steps + 1):
        right = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
        mean = [0.5] * 4 + [0.25] * 4
        out.append(
            {
                "step": [str(step)] * 8,
                "prompt": [f"multiply {step} by {i // 4}" for i in range(8)],
                "completion": [f"it is {i}" for i in range(8)],
                "Right": right,
                "Shape": [0.5] * 8,
                last: [r - m for r, m in zip(right, mean, strict=True)],
            }
        )
    return out


def prime(**more: Any) -> dict[str, Any]:
    said = [
        {"role": "assistant", "content": None, "reasoning_content": "I look", "tool_calls": [tool_call("find", "1")]},
        {"role": "tool", "content": "nothing", "tool_call_id": "1"},
        {"role": "assistant", "content": "not there"},
    ]
    return {
        "problem_id": 3,
        "sample_id": 1,
        "env_name": "us/finder",
        "task": "default",
        "run_id": "r",
        "step": 5,
        "prompt": json.dumps([{"role": "user", "content": "find it"}]),
        "completion": json.dumps(said),
        "metrics": json.dumps({"found": 0.0, "num_turns": 2.0}),
        "reward": 0.25,
        "advantage": -0.5,
        "num_output_tokens": 0,
        **more,
    }


def tool_call(name: str, id: str) -> str:
    return json.dumps({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}})


def lm_eval(n: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "doc_id": n,
        "doc": {"q": "?"},
        "target": "5",
        "arguments": {"gen_args_0": {"arg_0": f"Q: {n} + 5?", "arg_1": {"until": ["\n"]}}},
        "resps": [[" it is 5"]],
        "filtered_resps": ["5"],
        "filter": "none",
        "metrics": ["exact_match"],
        "exact_match": float(n == 0),
        **more,
    }


SAMPLES: dict[str, tuple[str, Any, int]] = {
    "ms_swift": ("completions.jsonl", swift(2), 16),
    "skyrl": (
        "dumped_evals/global_step_20_evals/sums.jsonl",
        [
            {"input_prompt": "1+1?", "output_response": "2", "score": s, "stop_reason": e, "data_source": "sums"}
            for s, e in (([0, 0, 0.5], "stop"), (0.25, "length"))
        ],
        2,
    ),
    "prime_hosted": ("results.jsonl", [prime(sample_id=i) for i in range(2)], 2),
    "lm_eval": ("samples_x.jsonl", [lm_eval(0), lm_eval(1)], 2),
    "math_eval": (
        "test.jsonl",
        [{"idx": 7, "question": "2*3?", "gt": "6", "code": ["6", "five"], "pred": ["6", "5"], "score": [True, False]}],
        2,
    ),
    "reasoning_gym": (
        "eval.json",
        {
            "name": "chain_sum",
            "category": "arithmetic",
            "results": [
                {
                    "question": "1+2",
                    "best_full_model_response": "3",
                    "best_score": 1.0,
                    "completions": [{"full_model_response": x, "score": y} for x, y in (("3", 1.0), (None, 0.01))],
                }
            ],
        },
        2,
    ),
    "rllm": (
        "episodes/train_step_4_epoch_0/episode_hash1_id2.json",
        {
            "id": "2:0",
            "task": {"question": "1+3?"},
            "is_correct": True,
            "termination_reason": "max_response_length_exceeded",
            "trajectories": [
                {
                    "name": "solver",
                    "reward": 1.0,
                    "steps": [
                        {
                            "chat_completions": [
                                {"role": "user", "content": "1+3?"},
                                {"role": "assistant", "content": "4"},
                            ]
                        }
                    ],
                }
            ],
        },
        1,
    ),
    "tinker": (
        "iteration_000002/train_rollout_summaries.jsonl",
        [
            {"split": "train", "iteration": 2, "group_idx": 1, "traj_idx": i, "total_reward": 0.5 * i, "steps": []}
            for i in range(2)
        ],
        2,
    ),
    "swe_bench": (
        "preds.json",
        {f"z__z-{i}": {"model_name_or_path": "m", "model_patch": f"+{i}", "cost": i} for i in range(3)},
        3,
    ),
}
"""Of each form a file of its own wording: name, content, rollouts."""


def sample(tmp_path: Path, form: str) -> Path:
    name, content, _ = SAMPLES[form]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, list):
        return jsonl(path, content)
    path.write_text(json.dumps(content, indent=1))
    return path


def test_every_form_has_a_sample() -> None:
    assert SAMPLES.keys() == FORMS.keys()


@pytest.mark.parametrize("form", FORMS)
def test_a_form_passes_the_kit_and_takes_no_file_of_another(tmp_path: Path, form: str) -> None:
    others = [sample(tmp_path / other, other) for other in FORMS if other != form]
    path = sample(tmp_path / form, form)
    assert detect(path).name == form
    check_importer(IMPORTERS[form], path, SAMPLES[form][2], others)


def test_a_line_of_columns_is_many_rollouts(tmp_path: Path) -> None:
    got = rollouts(jsonl(tmp_path / "completions.jsonl", swift()))
    assert len(got) == 24 and {r.step for r in got} == {1, 2, 3}
    assert sorted(Counter(r.group for r in got).values()) == [4] * 6
    assert got[0].components == {"Right": 1.0, "Shape": 0.5} and got[0].reward == 1.5 and got[0].advantage == 0.5
    assert (got[5].prompt, got[5].completion, got[5].k) == ("multiply 1 by 1", "it is 5", 1)


def test_rewards_that_the_advantages_contradict_are_not_summed(tmp_path: Path) -> None:
    rows = swift()
    for r in rows:
        r["advantages"] = [float(i % 3) for i in range(8)]
    got = rollouts(jsonl(tmp_path / "completions.jsonl", rows))
    assert {r.reward for r in got} == {None} and got[0].components["Right"] == 1.0


def test_swift_over_ray_writes_a_row_a_completion(tmp_path: Path) -> None:
    rows: Rows = [{"gen_step": 4, "prompt": "q", "completion": str(i), "reward": float(i)} for i in range(3)]
    got = rollouts(jsonl(tmp_path / "completions.jsonl", rows))
    assert [(r.step, r.completion, r.reward) for r in got] == [(4, "0", 0.0), (4, "1", 1.0), (4, "2", 2.0)]


def test_the_plain_form_takes_columns_too_and_names_a_line_that_is_uneven(tmp_path: Path) -> None:
    even = {"task": "t", "completion": ["a", "b"], "reward": [0, 1], "step": 3}
    path = jsonl(tmp_path / "x.jsonl", [even, {**even, "reward": [1]}, {"task": "t", "text": "c", "reward": 1}])
    out = [r for _, _, r in read([path])]
    assert [r.completion for r in out if isinstance(r, Rollout)] == ["a", "b", "c"]
    assert [r.reason for r in out if isinstance(r, Skipped)] == [
        "a line of columns of different lengths: completion 2, reward 1"
    ]
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    got = rollouts(jsonl(tmp_path / "y.jsonl", [{"prompt": prompt, "completion": ["a", "b"], "reward": [0, 1]}]))
    assert [len(r.turns) for r in got] == [3, 3]  # a prompt as long as the list by chance


def test_a_list_of_messages_is_one_conversation_and_no_column(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "add 2 and 3"}, {"role": "assistant", "content": "5"}]
    rows = [{"task": "sum", "messages": talk, "tokens": [7, 8, 9], "reward": i % 2} for i in range(2)]
    listed = tmp_path / "listed.json"
    listed.write_text(json.dumps({"records": rows}))
    path = jsonl(tmp_path / "talk.jsonl", rows)
    for got in (rollouts(listed), rollouts(path), rollouts(path, map={"task": "task"})):
        assert [(len(r.turns), r.completion, r.reward) for r in got] == [(2, "5", 0), (2, "5", 1)]
    # beside a column of texts it is every row's
    spoken = {"task": "sum", "messages": talk, "response": ["5", "6"], "reward": [1, 0]}
    assert [len(r.turns) for r in rollouts(jsonl(tmp_path / "two.jsonl", [spoken]))] == [2, 2]


def test_a_form_read_by_the_users_columns_stays_that_form(tmp_path: Path) -> None:
    from evotrainer.studies.audit.engine import sources_of

    for step in (20, 40):
        jsonl(tmp_path / f"dumped_evals/global_step_{step}_evals/sums.jsonl", SAMPLES["skyrl"][1])
    (source,), _ = sources_of([tmp_path], "skyrl", ["reward=score"])
    assert len(source.paths) == 2  # all steps are one source


def test_json_inside_strings_is_opened_and_an_answer_in_json_is_not(tmp_path: Path) -> None:
    got = rollouts(jsonl(tmp_path / "results.jsonl", [prime(), prime(problem_id=4), prime(problem_id=4)]))
    assert [r.task for r in got] == ["us/finder/3", "us/finder/4", "us/finder/4"]
    r = got[0]
    assert [t.role for t in r.turns] == ["user", "assistant", "tool", "assistant"]
    assert r.turns[1].text == "I look" and r.turns[1].tool_calls[0].name == "find"
    assert r.components == {"found": 0.0} and r.tokens is None and r.advantage == -0.5
    assert r.detail["tags"] == {"env_name": "us/finder"} and r.detail["task"] == "default"
    talk = json.dumps([{"role": "assistant", "content": "hello"}])
    answer = json.dumps([{"label": "good"}])
    rows: Rows = [{"task": "t", "completion": x, "reward": 1} for x in (talk, answer)]
    assert [r.completion for r in rollouts(jsonl(tmp_path / "own.jsonl", rows))] == ["hello", answer]


def test_skyrl_steps_are_one_source_with_tags_and_endings(tmp_path: Path) -> None:
    from evotrainer.studies.audit.engine import sources_of

    got = rollouts(sample(tmp_path, "skyrl"))
    assert [(r.reward, r.finish, r.step) for r in got] == [(0.5, "stop", 20), (0.25, "length", 20)]
    assert got[0].detail["tags"] == {"data_source": "sums"}
    rows = SAMPLES["skyrl"][1]
    jsonl(tmp_path / "dumped_evals/global_step_40_evals/sums.jsonl", rows)
    jsonl(tmp_path / "dumped_evals/global_step_40_evals/aggregated_results.jsonl", [{"eval/all/avg_score": 0.1}])
    (source,), unknown = sources_of([tmp_path], None)
    assert len(source.paths) == 2 and not unknown
    assert {r.step for r in rollouts(tmp_path)} == {20, 40}


def test_lm_eval_reads_generations_choices_and_filters(tmp_path: Path) -> None:
    choice = lm_eval(
        3,
        arguments=[["Is it?", " no"], ["Is it?", " yes"]],
        resps=[[["-3.5", "False"]], [["-0.5", "True"]]],
        metrics=["acc", "acc_norm"],
        acc=1.0,
        acc_norm=0.0,
    )
    chat = lm_eval(4, arguments=[[[json.dumps([{"role": "user", "content": "hey"}])], {}]], filter="strict")
    got = rollouts(jsonl(tmp_path / "samples_x.jsonl", [lm_eval(0), lm_eval(1), choice, chat]))
    assert [(r.outcome, r.completion, r.prompt) for r in got] == [
        ("correct", " it is 5", "Q: 0 + 5?"),
        ("incorrect", " it is 5", "Q: 1 + 5?"),
        ("correct", " yes", "Is it?"),
        ("incorrect", " it is 5", "hey"),
    ]
    (later,) = rollouts(jsonl(tmp_path / "samples_f1.jsonl", [lm_eval(metrics=["f1"], f1=["gold", ["said"]])]))
    assert later.reward is None and later.outcome == "unknown"  # scored over the data set, not by sample
    assert got[2].components == {"acc": 1.0, "acc_norm": 0.0} and got[3].split == "strict"


def test_lists_within_lists_are_rows_with_what_stands_beside_them(tmp_path: Path) -> None:
    got = rollouts(sample(tmp_path, "reasoning_gym"))
    assert [(r.prompt, r.completion, r.reward) for r in got] == [("1+2", "3", 1.0), ("1+2", "", 0.01)]
    assert got[0].detail["tags"] == {"name": "chain_sum", "category": "arithmetic"}
    one = SAMPLES["reasoning_gym"][1]  # what `--full-results` writes: all data sets of all categories in one file
    whole = {"metadata": {"model": "m"}, "categories": [{"name": "arithmetic", "datasets": [one]}]}
    (tmp_path / "results.json").write_text(json.dumps(whole, indent=2))
    assert [(r.completion, r.policy) for r in rollouts(tmp_path / "results.json")] == [("3", "m"), ("", "m")]
    (r,) = rollouts(sample(tmp_path / "r", "rllm"))
    assert (r.task, r.step, r.split, r.outcome, r.finish, r.completion) == (
        "1+3?",
        4,
        "train",
        "correct",
        "length",
        "4",
    )


def test_csv_and_an_object_with_a_list_are_read_as_the_plain_form(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("w", newline="") as f:
        csv.writer(f).writerows(
            [["prompt", "completion", "reward", "step"], ["a, b", 'x "y"', "0.5", "3"], ["q", "z", "", ""]]
        )
    got = rollouts(tmp_path / "a.csv")
    assert [(r.prompt, r.completion, r.reward, r.step) for r in got] == [("a, b", 'x "y"', 0.5, 3), ("q", "z", None, 0)]
    path = tmp_path / "b.json"
    path.write_text(json.dumps({"model": "m", "results": [{"task": "t", "text": "x", "correct": True}]}, indent=1))
    (r,) = rollouts(path)
    assert r.outcome == "correct" and r.detail["model"] == "m" and detect(path).name == "table"


def test_a_map_names_what_no_form_knows(tmp_path: Path) -> None:
    rows: Rows = [
        {"item": 1, "out": {"text": f"say {i}"}, "gain": str(i), "a_part": 0.5, "b_part": i, "task": "x"}
        for i in range(2)
    ]
    path = jsonl(tmp_path / "own.jsonl", rows)
    given = read_map("task=item,text=out.text, reward=gain,components=*_part")
    got = rollouts(path, map=given)
    assert [(r.task, r.completion, r.reward) for r in got] == [("1", "say 0", 0.0), ("1", "say 1", 1.0)]
    assert got[1].components == {"a_part": 0.5, "b_part": 1.0} and got[0].detail["task"] == "x"
    assert got[0].group == got[1].group and not hasattr(got[0], "item")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("task", "give FIELD=COLUMN"),
        ("problem=task", "did you mean task=problem"),
        ("rewad=score", "did you mean reward"),
    ],
)
def test_a_map_that_cannot_be_understood_is_refused(given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_map(given)


def test_a_row_without_the_columns_of_the_map_names_those_it_has(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "own.jsonl", [{"item": 1, "out": "x", "gain": 1}, {"job": 1, "out": "y", "gain": None}])
    given = {"task": "job", "text": "out", "reward": "gain"}
    first, second = (r for _, _, r in read([path], map=given))
    assert (
        isinstance(first, Skipped)
        and first.reason == "it has no job, which --map names; its columns are item, out, gain"
    )
    assert isinstance(second, Rollout) and second.reward is None
    with pytest.raises(ConfigError, match="verl is no format of rows with columns"):
        list(read([path], format="verl", map=given))


def test_what_was_read_as_what_is_said(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "results.jsonl", [prime()])
    said = read_as(detect(path), Source(path))
    assert said.startswith(
        "task <- env_name + problem_id, prompt <- prompt (JSON opened), text <- completion (JSON opened)"
    )
    assert said.endswith("not read: sample_id, task")
    own = jsonl(tmp_path / "own.jsonl", [{"task": "t", "text": "x", "reward": 1, "mood": "good"}])
    assert read_as(detect(own), Source(own)) == "task, text, reward; not read: mood"
    own.write_text('{"task": "t", "text": "x", "reward": 1, "reward": 0}\n')
    assert read_as(detect(own), Source(own)).endswith("twice in one record, so the last one counts: reward")


def test_the_audit_begins_with_what_was_read_as_what_and_reads_by_a_map(tmp_path: Path) -> None:

    rows: Rows = [{"item": n, "out": f"say {i}", "gain": 0.5} for n in range(4) for i in range(4)]
    path = jsonl(tmp_path / "own.jsonl", rows)
    given = ("--map", "task=item,text=out,reward=gain")
    shown = in_this_process("audit", str(path), "--no-cache", *given).stdout.splitlines()
    assert shown[1] == "- read as jsonl: task <- item, text <- out, reward <- gain"
    assert any("dead_groups: 100% of 4 groups" in x for x in shown)
    assert not in_this_process("import", str(path), "--out", str(tmp_path / "store"), *given).returncode
    assert len(rollouts(tmp_path / "store")) == 16


def test_older_swift_logs_without_advantages_are_read_and_a_broken_first_line_is_one_skip(tmp_path: Path) -> None:
    rows = swift(2)
    for r in rows:
        del r["advantages"]
    empty = {k: [] for k in rows[0]}
    uneven = {**rows[0], "completion": ["x"]}
    for first, reason in (({}, ""), (empty, "no rows"), (uneven, "different lengths")):
        path = jsonl(tmp_path / "completions.jsonl", [*filter(None, [first]), *rows])
        assert detect(path).name == "ms_swift"
        out = [r for _, _, r in read([path])]
        assert [r.reason for r in out if isinstance(r, Skipped) and reason not in r.reason] == []
        got = [r for r in out if isinstance(r, Rollout)]
        assert len(got) == 16 == len(out) - bool(first) and got[0].reward == 1.5


def test_functions_that_each_apply_to_some_rows_are_all_paid(tmp_path: Path) -> None:
    rows = swift()
    for r in rows:
        right = r["Right"]
        r["Right"] = [x if i < 4 else None for i, x in enumerate(right)]
        r["Shape"] = [float("nan") if i < 4 else x for i, x in enumerate(right)]
        r["image_paths"] = [None] * 8
    got = rollouts(path := jsonl(tmp_path / "completions.jsonl", rows))
    assert None not in {r.reward for r in got} and {len(r.components) for r in got} == {1}
    assert "components <- Right + Shape," in read_as(detect(path), Source(path))


def episode(attempt: int, step: int, *agents: str, **more: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": "1+3?"}, {"role": "assistant", "content": f"try {attempt}"}]
    found = [{"name": a, "reward": 0.0, "steps": [{"chat_completions": said}]} for a in agents]
    task = {"question": "1+3?"}
    ended = {"is_correct": False, "termination_reason": "env_done"}
    return {"episode_id": f"t:{attempt}", "task": task, **ended, "trajectories": found, **more}


def test_episodes_of_a_file_each_are_groups_of_task_and_step_with_agents_apart(tmp_path: Path) -> None:
    for run in "ab":
        for step in (1, 2):
            folder = tmp_path / run / f"episodes/train_step_{step}_epoch_0"
            for i in range(3):
                agents = ("solver", "judge") if run == "b" else ("solver",)
                jsonl(folder / f"episode_h_{i}.json", [episode(i, step, *agents)])
            lost = episode(3, step, termination_reason="error")
            jsonl(folder / "episode_h_3.json", [lost])
            jsonl(folder / "batch_summary.json", [{"num_episodes": 4}])
    got = rollouts(tmp_path / "a")
    assert sorted(Counter(r.group for r in got).values()) == [4, 4] and {r.policy for r in got} == {""}
    assert sorted(r.k for r in got) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [r.error for r in got if r.error_kind] == ["the episode has no steps (it ended with error)"] * 2
    both = rollouts(tmp_path)
    assert len({r.group for r in both}) == 8 and len({r.id for r in both}) == len(both)
    assert {r.policy for r in both} == {"", "solver", "judge"}


def test_tasks_that_are_row_numbers_name_their_benchmark_in_all_models_files(tmp_path: Path) -> None:
    for model in "ab":
        for name in ("sums", "arc_easy"):
            rows = [lm_eval(0), lm_eval(0, filter="strict")]
            jsonl(tmp_path / model / f"samples_{name}_2025-01-01T00-00-00.000000.jsonl", rows)
    got = rollouts(tmp_path)
    assert Counter(r.task for r in got) == {f"{n}/{t}": 2 for n in ("sums", "arc_easy") for t in ("0", "strict/0")}
    row = {"idx": 7, "question": "2*3?", "code": ["6"], "score": [True]}
    jsonl(tmp_path / "m" / "sums" / "test_qwen_-1_seed0_t0.jsonl", [row])
    jsonl(tmp_path / "m" / "a.jsonl", [row])
    jsonl(tmp_path / "m" / "b.jsonl", [row, {**row, "question": "2*4?"}])
    one, same, other, named = (r.task for r in rollouts(tmp_path / "m"))
    assert named == "sums/7" and one == same != other and other.endswith("/7")


def test_a_table_of_very_many_columns_is_read_to_a_cap_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOTRAINER_CAP_COMPONENTS", "5")
    path = tmp_path / "wide.csv"
    names = [*(f"c{i}" for i in range(20)), "task", "text", "reward"]
    path.write_text("\n".join(";".join(row) for row in (names, ["1"] * 23, ["2"] * 23)))
    *got, skip = (r for _, _, r in read([path]))
    assert [r.reward for r in got if isinstance(r, Rollout)] == [1.0, 2.0] and isinstance(skip, Skipped)
    assert "more than 5 columns" in skip.reason and "of 2 rollouts" in skip.reason
    assert {"c4", "source"} < got[0].detail.keys() and "c5" not in got[0].detail  # type: ignore[union-attr]
