"""Plain JSONL: the documented minimal form and every optional field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import evotrainer.importers as importers
from evotrainer.importers.base import Skipped, Source
from evotrainer.importers.jsonl import IMPORTER
from evotrainer.records.rollout import Rollout, ToolCall, Turn
from evotrainer.testing import check_importer


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def rollouts(path: Path) -> list[Rollout]:
    out = list(IMPORTER.read(path))
    assert all(isinstance(r, Rollout) for r in out), out
    return [r for r in out if isinstance(r, Rollout)]


def test_the_minimal_form_is_enough(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", *({"task": f"t{i // 4}", "text": f"answer {i}", "reward": i / 8} for i in range(8))
    )
    check_importer(IMPORTER, path, count=8)
    read = rollouts(path)
    assert read[3].turns == (Turn("assistant", "answer 3"),)
    assert read[3].reward == 3 / 8 and read[3].outcome == "unknown"
    assert [r.k for r in read] == [0, 1, 2, 3] * 2
    assert len({r.group for r in read}) == 2


def test_every_field_of_a_rollout_may_be_given(tmp_path: Path) -> None:
    given = {
        "task": 7,
        "prompt": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}],
        "text": "four",
        "reward": 1,
        "correct": True,
        "group": "g",
        "k": 5,
        "step": 3,
        "seed": 2,
        "attempt": 1,
        "run": "r",
        "branch": "b1",
        "policy": "b1/2@3",
        "split": "train",
        "components": {"exact": 1, "style": None},
        "finish": "length",
        "tokens": 9,
        "advantage": -0.5,
        "mean_logprob": -0.1,
        "entropy": 0.3,
        "token_ids": [1, 2],
        "logprobs": [-0.1, -0.2],
        "sandbox_tier": "none",
        "knobs": {"tests": 3},
        "env_hash": "abc",
        "detail": {"gold": "4"},
        "tool_calls": [{"name": "calc", "arguments": {"x": 1}, "ok": False}],
        "judge": "a field of my own",
    }
    (r,) = rollouts(write(tmp_path / "a.jsonl", given))
    assert r.task == "7" and r.outcome == "correct" and r.reward == 1
    assert [t.role for t in r.turns] == ["system", "user", "assistant"]
    assert r.turns[2].tool_calls == (ToolCall("calc", '{"x": 1}', False),)
    assert (r.group, r.k, r.step, r.seed, r.attempt, r.tokens) == ("g", 5, 3, 2, 1, 9)
    assert (r.run, r.branch, r.policy, r.split, r.finish) == ("r", "b1", "b1/2@3", "train", "length")
    assert r.components == {"exact": 1, "style": None}
    assert (r.advantage, r.mean_logprob, r.entropy) == (-0.5, -0.1, 0.3)
    assert r.token_ids == (1, 2) and r.logprobs == (-0.1, -0.2)
    assert r.knobs == {"tests": 3} and r.sandbox_tier == "none" and r.env_hash == "abc"
    assert r.detail["gold"] == "4" and r.detail["judge"] == "a field of my own" and r.detail["record"] == 1


def test_messages_and_turns_carry_tools_and_what_they_replied(tmp_path: Path) -> None:
    chat = [
        {"role": "user", "content": [{"type": "text", "text": "list"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "function": {"name": "ls", "arguments": '{"p": "."}'}},
                {"id": "2", "function": {"name": "cat", "arguments": {"p": "x"}}},
                {"id": "3", "function": {"name": "nop"}},
            ],
        },
        {"role": "tool", "tool_call_id": "2", "content": "Error: no such file"},
        {"role": "tool", "tool_call_id": "1", "content": '{"output": "a", "exit_code": 0}'},
        {"role": "tool", "tool_call_id": "3", "content": "fine"},
        {"role": "assistant", "content": "done"},
    ]
    own = [
        {"role": "user", "text": "go"},
        {"role": "assistant", "text": "ok", "tokens": 3, "tool_calls": [{"name": "ls", "arguments": "a", "ok": True}]},
    ]
    path = write(
        tmp_path / "a.jsonl", {"task": "a", "messages": chat, "reward": 0}, {"task": "b", "turns": own, "reward": 0}
    )
    a, b = rollouts(path)
    assert a.turns[1].tool_calls == (
        ToolCall("ls", '{"p": "."}', True),
        ToolCall("cat", '{"p": "x"}', False),
        ToolCall("nop", "", None),
    )
    assert a.prompt == "list" and a.completion == "\ndone"
    assert b.turns[1] == Turn("assistant", "ok", (ToolCall("ls", "a", True),), 3)


def test_a_fault_has_no_reward_and_no_outcome(tmp_path: Path) -> None:
    rows = [
        {"task": "a", "text": "x", "reward": 0, "error_kind": "timeout", "error": "the sandbox hung"},
        {"task": "a", "text": "x", "reward": 0, "correct": False, "error_kind": "sandbox died"},
        {"task": "a", "reward": 0.0, "error": "boom"},
        {"task": "a", "text": "x", "reward": 0, "error": None, "error_kind": ""},
    ]
    a, b, c, d = rollouts(write(tmp_path / "a.jsonl", *rows))
    assert (a.error_kind, a.error, a.reward, a.outcome) == ("timeout", "the sandbox hung", None, "unknown")
    assert (b.error_kind, b.error, b.reward, b.outcome) == ("container", "sandbox died", None, "unknown")
    assert (c.error_kind, c.turns, c.detail["reward_of_fault"]) == ("other", (), 0.0)
    assert (d.error_kind, d.reward) == (None, 0)


def test_no_score_is_unknown_and_a_verdict_is_taken_only_where_it_is_one(tmp_path: Path) -> None:
    rows = [
        {"reward": None},
        {"reward": 1.0},
        {"reward": True},
        {"reward": False},
        {"reward": 0.3, "outcome": "correct"},
        {"reward": 1, "outcome": False},
        {"reward": 0, "outcome": 1},
        {"reward": 1, "outcome": "Incorrect"},
        {"reward": 1, "outcome": "it ran", "correct": 0},
        {"reward": True, "outcome": "it ran"},
        {"reward": 1, "correct": "B"},
    ]
    read = rollouts(write(tmp_path / "a.jsonl", *({"task": "t", "text": "x", **r} for r in rows)))
    wanted = "unknown unknown correct incorrect correct incorrect correct incorrect incorrect correct unknown"
    assert [r.outcome for r in read] == wanted.split()
    assert [r.reward for r in read] == [None, 1, 1, 0, 0.3, 1, 0, 1, 1, 1, 1]
    assert [r.detail.get("unread") for r in read[-4:]] == [None, ["outcome"], ["outcome"], ["correct"]]


def test_wrong_types_are_left_out_and_named(tmp_path: Path) -> None:
    wrong = {"step": "x", "seed": 1.5, "tokens": 2**70, "run": 3, "components": [1], "knobs": 7, "finish": 9, "k": "a"}
    (r,) = rollouts(write(tmp_path / "a.jsonl", {"task": "t", "text": "x", "reward": {"a": 1}, **wrong}))
    assert r.reward is None and r.step == 0 and r.tokens is None
    assert set(r.detail["unread"]) == {*wrong, "reward"}


def test_records_that_are_none_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good = json.dumps({"task": "t", "text": "x", "reward": 1}).encode()
    bad = [
        b'{"task": "t", ',
        b"[1]",
        b"17",
        b'{"text": "x", "reward": 1}',
        b'{"task": "t", "reward": 1}',
        b"\0\0",
        b"\xff",
    ]
    bad += [b'{"task": {"a": 1}, "text": "x", "reward": 0}', b'{"task": "t", "text": 7, "reward": 0}', b"[" * 100000]
    path.write_bytes(b"\n".join([good, *bad, good]))
    read = list(IMPORTER.read(path))
    assert [type(r).__name__ for r in read] == ["Rollout", *["Skipped"] * len(bad), "Rollout"]
    for n, r in enumerate(read[1:-1], 2):
        assert isinstance(r, Skipped) and r.where.endswith(f" {n}") and r.reason


def test_an_array_of_records_is_read_up_to_where_it_is_torn(tmp_path: Path) -> None:
    rows = [{"task": f"t{i}", "text": "x", "reward": i} for i in range(10)]
    path = tmp_path / "a.json"
    for indent in (None, 2):
        path.write_text(json.dumps(rows, indent=indent))
        assert IMPORTER.recognises(Source(path))
        check_importer(IMPORTER, path, count=10)
        whole = path.read_text()
        path.write_text(whole[: len(whole) // 2])
        read = list(IMPORTER.read(path))
        assert 3 <= len(read) <= 6 and isinstance(read[-1], Skipped)
        assert [r.task for r in read if isinstance(r, Rollout)] == [f"t{i}" for i in range(len(read) - 1)]


def test_texts_stay_as_they_are(tmp_path: Path) -> None:
    text = "  \x00\x1b[31m<script>\u2028\ud800\r\n "
    (r,) = rollouts(write(tmp_path / "a.jsonl", {"task": " t ", "text": text, "reward": 1}))
    assert r.turns[0].text == text and r.task == " t "


def test_long_lines_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"task": "t", "text": "x" * 10_000_000, "reward": 1})
    assert IMPORTER.recognises(Source(path))
    assert len(rollouts(path)[0].turns[0].text) == 10_000_000


def test_records_of_other_forms_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for value in (
        {},
        [],
        1,
        {"task": "t"},
        {"task": "t", "reward": 1},
        {"text": "x", "reward": 1},
        [[1]],
        {"task": 1, "text": ""},
    ):
        path.write_text(json.dumps(value))
        assert not IMPORTER.recognises(Source(path)), value


def test_a_masked_sample_is_a_fault(tmp_path: Path) -> None:
    rows = [{"mask_sample": True}, {"mask_sample": False}, {"mask_sample": True, "error_kind": "judge"}]
    read = rollouts(write(tmp_path / "a.jsonl", *({"task": "t", "text": "x", "reward": 0, **r} for r in rows)))
    assert [(r.error_kind, r.reward) for r in read] == [("masked", None), (None, 0), ("judge", None)]
    assert read[0].error == "mask_sample" and read[0].outcome == "unknown" and read[0].detail["reward_of_fault"] == 0


def test_an_own_id_is_the_rollouts_id_wherever_it_is_read(tmp_path: Path) -> None:
    row = {"task": "t", "text": "x", "reward": 1}
    rows = [{"id": "r-1", **row}, {"id": "r-1", **row}, {"id": "r-1", **row, "text": "y"}, {"id": "", **row}]
    a, again, other, none = rollouts(write(tmp_path / "a.jsonl", *rows))
    assert a.id == again.id == "r-1" and a.detail["id"] == "r-1"
    assert len({"r-1", other.id, none.id}) == 3
    (moved,) = rollouts(write(tmp_path / "b.jsonl", rows[2]))
    assert moved.id == "r-1"
    for folder in ("x", "y"):
        (tmp_path / "same" / folder).mkdir(parents=True)
        write(tmp_path / "same" / folder / "a.jsonl", {"id": "r-1", **row}, {"id": 7, **row}, row)
    ids = [r.id for _, _, r in importers.read([tmp_path / "same"]) if isinstance(r, Rollout)]
    assert ids[:2] == ids[3:5] and ids[2] != ids[5]


def test_ids_that_number_lines_or_tasks_do_not_hide_other_rollouts(tmp_path: Path) -> None:
    steps = [
        [{"id": own, "task": "q", "text": f"{i} {step}", "reward": 0} for i, own in enumerate((0, "1", "q"))]
        for step in (1, 2)
    ]
    read = [rollouts(write(tmp_path / f"{n}.jsonl", *rows)) for n, rows in enumerate(steps)]
    assert len({r.id for rs in read for r in rs}) == 6
    assert [r.id for r in rollouts(write(tmp_path / "copy.jsonl", *steps[0]))] == [r.id for r in read[0]]


def test_a_group_is_of_one_run_branch_policy_seed_and_step(tmp_path: Path) -> None:
    row = {"task": "t", "text": "x", "reward": 1}
    apart = [{}, {"run": "a"}, {"branch": "a"}, {"policy": "a"}, {"seed": 1}, {"step": 1}]
    read = rollouts(write(tmp_path / "a.jsonl", *({**row, **a} for a in apart * 2)))
    assert len({r.group for r in read}) == len(apart) and [r.k for r in read] == [0] * 6 + [1] * 6


def test_numbers_that_are_none_and_counts_below_zero_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    numbers = ("NaN", "Infinity", "-Infinity", "1e999")
    path.write_text("".join(f'{{"task": "t", "text": "x", "reward": {x}}}\n' for x in numbers))
    for r in rollouts(path):
        assert r.reward is None and r.detail["unread"] == ["reward"]
    path.write_text('{"task": "t", "text": "x", "reward": 1, "tokens": -3, "components": {"a": NaN, "b": null}}')
    (r,) = rollouts(path)
    assert r.tokens is None and r.components == {"a": None, "b": None}
    assert r.detail["unread"] == ["components.a", "tokens"]


def test_response_is_a_name_of_the_text_and_a_record_without_any_names_them(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        {"task": "t", "response": "x", "reward": 1},
        {"task": "t", "response": {"raw": 1}, "text": "y", "reward": 1},
        {"task": "t", "output": "x", "reward": 1},
    )
    assert IMPORTER.recognises(Source(path))
    a, b, none = IMPORTER.read(path)
    assert isinstance(a, Rollout) and a.completion == "x" and "response" not in a.detail
    assert isinstance(b, Rollout) and b.completion == "y" and b.detail["response"] == {"raw": 1}
    assert isinstance(none, Skipped) and "text, completion, turns, messages, response" in none.reason


def test_classes_of_faults_by_their_names(tmp_path: Path) -> None:
    kinds = {"Timeout": "timeout", "TimeoutError": "timeout", "time_out": "timeout", "Docker": "container"}
    kinds |= {"sandbox": "container", "MODEL_API": "model_api", "RateLimitError": "model_api"}
    kinds |= {"grader": "judge", "canceled": "cancelled", "OTHER": "other", "gremlins": "other"}
    rows = [{"task": "t", "reward": 0, "error_kind": k, "error": "it broke"} for k in kinds]
    read = rollouts(write(tmp_path / "a.jsonl", *rows))
    assert [r.error_kind for r in read] == list(kinds.values())
    assert read[-1].error == "gremlins: it broke" and read[0].error == "it broke"
