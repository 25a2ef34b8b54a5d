"""Verdicts beside trajectories, prompts that are no rollouts, rewards that are no numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers import IMPORTERS, Skipped, read
from evotrainer.importers.results import is_results
from evotrainer.records.rollout import Rollout
from evotrainer.studies.audit import audit
from evotrainer.testing import check_importer

PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"


def trajectory(folder: Path, name: str, model: str = "m", submission: str = "") -> Path:
    """A mini-swe-agent file in a folder of its own."""
    config = {"model": {"model_name": model}}
    messages = [
        {"role": "user", "content": "fix x"},
        {"role": "assistant", "content": "look\n```bash\ncat a.py\n```"},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\nx = 1\n</output>"},
    ]
    info = {"exit_status": "Submitted", "submission": submission, "mini_version": "1", "config": config}
    path = folder / name / f"{name}.traj.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"messages": messages, "info": info, "trajectory_format": "mini-swe-agent-1"}))
    return path


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def rollouts(folder: Path) -> dict[str, Rollout]:
    return {r.task: r for _, _, r in read([folder]) if isinstance(r, Rollout)}


@pytest.mark.parametrize(
    "files",
    [
        {"run/logs/a__a-1/report.json": {"resolved": True}, "run/logs/b__b-2/report.json": {"resolved": False}},
        {"run/logs/run_evaluation/r/m/a__a-1/report.json": {"a__a-1": {"resolved": True, "tests_status": {}}},
         "run/logs/run_evaluation/r/m/b__b-2/report.json": {"b__b-2": {"resolved": False}}},
        {"run/m.report.json": {"resolved_ids": ["a__a-1"], "unresolved_ids": ["b__b-2"], "total_instances": 2}},
        {"run/some-model.nightly.json": {
            "total_instances": 3, "submitted_ids": ["a__a-1", "b__b-2"], "completed_ids": ["a__a-1", "b__b-2"],
            "resolved_ids": ["a__a-1"], "schema_version": 2}},
        {"run/results/results.json": {"resolved": ["a__a-1"], "generated": ["a__a-1", "b__b-2"], "no_logs": []}},
        {"run/results_summary.json": {"total": 2, "instances": [
            {"instance_id": "a__a-1", "resolved": True}, {"instance_id": "b__b-2", "resolved": False}]}},
    ],
)  # fmt: skip
def test_the_verdict_of_an_instance_is_its_outcome_and_no_reward(tmp_path: Path, files: dict[str, Any]) -> None:
    for name in ("a__a-1", "b__b-2", "c__c-3"):
        trajectory(tmp_path / "run" / "trajs", name)
    for name, value in files.items():
        write(tmp_path / name, value)
    found = rollouts(tmp_path)
    assert {k: r.outcome for k, r in found.items()} == {"a__a-1": "correct", "b__b-2": "incorrect", "c__c-3": "unknown"}
    assert {r.reward for r in found.values()} == {None}


def test_two_reports_known_by_content_that_disagree_leave_the_task_unknown(tmp_path: Path) -> None:
    for name in ("a__a-1", "b__b-2"):
        trajectory(tmp_path / "run" / "trajs", name)
    write(tmp_path / "run" / "a_base.json", {"total_instances": 2, "resolved_ids": ["b__b-2", "a__a-1"]})
    mine = {"total_instances": 2, "resolved_ids": ["b__b-2"], "unresolved_ids": ["a__a-1"]}
    write(tmp_path / "run" / "z_mine.json", mine)
    assert {k: r.outcome for k, r in rollouts(tmp_path).items()} == {"a__a-1": "unknown", "b__b-2": "correct"}
    (told,) = [x for _, _, x in read([tmp_path]) if isinstance(x, Skipped)]
    assert told.reason == "a_base.json and z_mine.json disagree on a__a-1: its outcome stays unknown"
    runs = tmp_path / "run" / "logs" / "run_evaluation"
    write(runs / "mine" / "m" / "a__a-1" / "report.json", {"a__a-1": {"resolved": False}})
    assert rollouts(tmp_path)["a__a-1"].outcome == "incorrect", "kept per instance"
    write(runs / "base" / "m" / "a__a-1" / "report.json", {"a__a-1": {"resolved": True}})
    assert rollouts(tmp_path)["a__a-1"].outcome == "unknown"


def test_a_report_that_came_after_the_first_reading_is_found_by_the_next(tmp_path: Path) -> None:
    trajectory(tmp_path / "run" / "trajs", "a__a-1")
    assert rollouts(tmp_path)["a__a-1"].outcome == "unknown"
    write(tmp_path / "run/results_summary.json", {"instances": [{"instance_id": "a__a-1", "resolved": True}]})
    assert rollouts(tmp_path)["a__a-1"].outcome == "correct"
    assert not [r for _, _, r in read([tmp_path]) if isinstance(r, Skipped)], (
        "results are no files of an unknown format"
    )


def test_an_evaluation_that_broke_is_a_fault_and_no_wrong_answer(tmp_path: Path) -> None:
    names = ["solved", "wrong", "broke", "badpatch", "slow", "absent", "empty"]
    for name in names:
        trajectory(tmp_path / "run" / "trajs", f"{name}__{name}-1")

    def ids(*some: str) -> list[str]:
        return [f"{n}__{n}-1" for n in some]

    report = {"completed_ids": ids("solved", "wrong"), "resolved_ids": ids("solved"), "unresolved_ids": ids("wrong")}
    report |= {"error_ids": ids("broke", "badpatch", "slow"), "empty_patch_ids": ids("empty")}
    write(tmp_path / "run" / "m.report.json", report | {"submitted_ids": ids(*names), "incomplete_ids": ids("absent")})
    for name, words in (("badpatch", ">>>>> Patch Apply Failed:\nmalformed"), ("slow", "Test timed out after 1800")):
        log = tmp_path / "run" / "logs" / "run_evaluation" / "r" / "m" / f"{name}__{name}-1" / "run_instance.log"
        log.parent.mkdir(parents=True)
        log.write_text(words)
    found = {k.partition("_")[0]: (r.outcome, r.error_kind) for k, r in rollouts(tmp_path).items()}
    assert found == {
        "solved": ("correct", None),
        "wrong": ("incorrect", None),
        "empty": ("incorrect", None),
        "badpatch": ("incorrect", None),  # the policy's own
        "broke": ("unknown", "judge"),
        "slow": ("unknown", "timeout"),
        "absent": ("unknown", None),
    }


def test_the_older_results_name_installations_that_failed(tmp_path: Path) -> None:
    for name in ("a__a-1", "b__b-2", "c__c-3"):
        trajectory(tmp_path / "trajs", name)
    lists = {"generated": ["a__a-1", "b__b-2", "c__c-3"], "no_logs": ["c__c-3"], "install_fail": ["b__b-2"]}
    write(tmp_path / "results" / "results.json", lists | {"resolved": []})
    found = {k: (r.outcome, r.error_kind) for k, r in rollouts(tmp_path).items()}
    assert found["a__a-1"] == ("incorrect", None)
    assert found["b__b-2"] == ("unknown", "container") and found["c__c-3"] == ("unknown", "judge")


def test_predictions_give_the_patch_where_none_is_recorded(tmp_path: Path) -> None:
    trajectory(tmp_path / "trajs", "a__a-1")
    trajectory(tmp_path / "trajs", "b__b-2", submission="own")
    rows = {n: {"instance_id": n, "model_name_or_path": "m", "model_patch": PATCH} for n in ("a__a-1", "b__b-2")}
    write(tmp_path / "trajs" / "preds.json", rows)
    found = rollouts(tmp_path)
    assert found["a__a-1"].detail["patch"] == PATCH and found["b__b-2"].detail["patch"] == "own"


EMPTIED = """diff --git a/tests/test_size.py b/tests/test_size.py
--- a/tests/test_size.py
+++ b/tests/test_size.py
@@ -1,3 +1,2 @@
 def test_size():
-    assert size(2) == 4
-    assert size(3) == 9
+    pass
"""


@pytest.mark.parametrize("layout", ["preds.json", "all_preds.jsonl", "array.json"])
def test_predictions_alone_are_rollouts_whose_patches_are_read(tmp_path: Path, layout: str) -> None:
    rows = [{"instance_id": f"a__a-{i}", "model_name_or_path": "me/m", "model_patch": EMPTIED} for i in range(4)]
    rows[3]["model_patch"] = ""
    path = tmp_path / "mine" / layout
    write(path, {r["instance_id"]: r for r in rows} if layout == "preds.json" else rows)
    if layout.endswith("l"):
        path.write_text("\n".join(json.dumps(r) for r in rows))
    check_importer(IMPORTERS["swe_bench"], path, count=4)
    write(tmp_path / "mine" / "logs" / "a__a-0" / "report.json", {"resolved": True})
    done = audit([tmp_path])
    (source,) = done.sources
    tampered = next(f for f in source.readings[0].health.findings if f.detector == "test_tampering")
    assert (source.format, source.rollouts, tampered.numbers["hits"]) == ("swe_bench", 4, 3)
    found = rollouts(tmp_path)
    assert found["a__a-0"].outcome == "correct" and found["a__a-1"].outcome == "unknown"
    assert found["a__a-3"].policy == "me/m" and "patch" not in found["a__a-3"].detail


def test_beside_predictions_of_several_models_a_verdict_is_of_the_model_it_names(tmp_path: Path) -> None:
    for model in ("one", "two"):
        row = {"instance_id": "a__a-1", "model_name_or_path": f"me/{model}", "model_patch": PATCH}
        write(tmp_path / f"{model}.preds.json", [row])
    write(tmp_path / "me__one.nightly.json", {"resolved_ids": ["a__a-1"], "total_instances": 1})
    found = {r.policy: r.outcome for _, _, r in read([tmp_path]) if isinstance(r, Rollout)}
    assert found == {"me/one": "correct", "me/two": "unknown"}


def test_predictions_beside_trajectories_are_no_second_source_unless_they_are_named(tmp_path: Path) -> None:
    trajectory(tmp_path / "run" / "trajs", "a__a-1")
    row = {"instance_id": "a__a-1", "model_name_or_path": "m", "model_patch": PATCH}
    write(tmp_path / "run" / "submission.json", [row])
    assert [s.format for s in audit([tmp_path]).sources] == ["mini_swe_agent"]
    assert [f for _, f, _ in read([tmp_path / "run" / "submission.json"])] == ["swe_bench"]


def test_rollouts_that_are_named_like_results_are_rollouts(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"task": "1", "text": "x", "reward": 1.0}\n{"task": "2", "text": "y", "reward": 0.0}\n')
    assert not is_results(path) and len(rollouts(tmp_path)) == 2


def test_only_files_that_begin_like_predictions_or_verdicts_are_parsed_to_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evotrainer.importers import lenient_json, rollout_sources

    write(tmp_path / "results.json", [{"task": "1", "text": "x", "reward": 1.0}])
    write(tmp_path / "report.json", {"resolved_ids": ["a__a-1"], "unresolved_ids": []})
    write(tmp_path / "own.json", [{"instance_id": "a__a-1", "model_patch": PATCH}])
    parsed: list[str] = []
    first = lenient_json.first_value
    monkeypatch.setattr(lenient_json, "first_value", lambda path, head: parsed.append(path.name) or first(path, head))
    assert [p.name for p in rollout_sources([tmp_path], "swe_bench")] == ["own.json", "results.json"]
    assert parsed == ["own.json", "report.json"]


def test_a_folder_of_attempts_is_one_reading_for_each_model(tmp_path: Path) -> None:
    for i in range(6):
        trajectory(tmp_path / "run", f"a__a-{i}", model="one" if i < 2 else "two")
    cache = tmp_path / "cache"
    done = audit([tmp_path / "run"], cache=cache)
    assert [(s.rollouts, [r.subject for r in s.readings]) for s in done.sources] == [(6, ["run one", "run two"])]
    kept = sorted(p.name for p in cache.rglob("*.npz"))
    again = audit([tmp_path / "run"], cache=cache)
    assert kept and kept == sorted(p.name for p in cache.rglob("*.npz"))
    assert [r.health for r in again.sources[0].readings] == [r.health for r in done.sources[0].readings]


def test_policies_that_take_turns_in_a_file_are_read_apart_with_what_is_theirs(tmp_path: Path) -> None:
    """Rows of two policies and faults in turn: a batch orders its rollouts by group, and nobody's get mixed up."""
    rows: list[dict[str, Any]] = []
    for i in range(48):
        policy = "tuned" if i % 2 == 0 else "base"
        row = {"task": f"t{i // 4}", "text": f"x {i}", "policy": policy, "reward": float(policy == "tuned")}
        rows.append(row | ({"reward": None, "error_kind": "judge"} if i % 8 == 2 else {}))
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    ((base, tuned),) = [s.readings for s in audit([path]).sources]
    assert [(r.subject, r.health.rollouts, r.health.groups) for r in (base, tuned)] == [
        ("base", 24, 12),
        ("tuned", 24, 12),
    ]
    assert [r.health.metric("reward") for r in (base, tuned)] == [0.0, 1.0]
    assert [r.health.metric("error_rate") for r in (base, tuned)] == [0.0, 0.25]


def test_policies_that_differ_by_their_step_are_one(tmp_path: Path) -> None:
    def file(*policies: str) -> Path:
        rows = [{"task": str(i), "text": "x", "reward": 1.0, "policy": p} for i, p in enumerate(policies)]
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        return path

    def subjects(path: Path) -> list[str]:
        return [r.subject for s in audit([path]).sources for r in s.readings]

    assert subjects(file("gpt-4", "qwen-2.5", "qwen-2.5")) == ["gpt-4", "qwen-2.5"]
    assert subjects(file("run/step_10", "run/step_20", "run@30")) == [""]


def test_rewards_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"task": "1", "text": "x", "reward": NaN}\n{"task": "1", "text": "y", "reward": "high"}\n')
    found = [r for _, _, r in read([path])]
    assert [r.reward for r in found if isinstance(r, Rollout)] == [None, None]
    (told,) = [r for r in found if isinstance(r, Skipped)]
    assert "2 rewards are no finite numbers" in told.reason and "record 1, 2" in told.where


def test_prompts_of_nemo_gym_are_no_rollouts_and_its_index_makes_the_group(tmp_path: Path) -> None:
    def row(**fields: Any) -> dict[str, Any]:
        return {"responses_create_params": {"input": "2 + 2?"}, "agent_ref": {"name": "a"}, "task_id": "1"} | fields

    response = {"output": [[{"role": "assistant", "type": "message", "content": "4"}]], "model": "m"}
    rows = [row(_ng_task_index=i // 2, _ng_rollout_index=i % 2, response=response, reward=1.0) for i in range(4)]
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in [*rows, row(_ng_task_index=0)]))
    found = [r for _, _, r in read([path], "nemo_gym")]
    kept = [r for r in found if isinstance(r, Rollout)]
    assert [r.completion for r in kept] == ["4"] * 4 and [r.k for r in kept] == [0, 1, 0, 1]
    assert len({r.group for r in kept}) == 2
    assert ["an input, no rollout" in r.reason for r in found if isinstance(r, Skipped)] == [True]
