"""Columns that may be faults: what an audit asks about, and what `--fault` does with the answer."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evotrainer.cli import app
from evotrainer.errors import ConfigError, EvoTrainerError
from evotrainer.records.findings import Finding
from evotrainer.studies.audit import audit, bulk, sources
from evotrainer.studies.audit.query import query
from tests.envs.helpers import jsonl

Say = Callable[..., tuple[int, str]]


def row(t: int, k: int, **fields: Any) -> dict[str, Any]:
    """Every fifth attempt ran into the sandbox's time limit and earned 0; the others earn 0 or 1."""
    late = (4 * t + k) % 5 == 0
    right = (t + k) % 2 == 0 and not late
    own = {"sandbox_timeout": late, "similarity": 0.3, "exit": "timed out" if late else "submitted"}
    verdict = {
        "reward": float(right),
        "correct": right,
        "components": {"env_error": float(late), "tests": float(right)},
    }
    return {"task": f"t{t}", "text": f"answer {t} {k}"} | verdict | own | fields


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "r.jsonl", [row(t, k) for t in range(20) for k in range(4)])


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    monkeypatch.setenv("EVOTRAINER_CACHE", str(tmp_path / "cache"))

    def run(*args: Any) -> tuple[int, str]:
        try:
            code = app(["audit", *map(str, args)], standalone_mode=False) or 0
        except EvoTrainerError as e:
            return e.exit_code, str(e)
        return int(code), capsys.readouterr().out

    return run


def asked(path: Path) -> list[Finding]:
    found = audit([path]).sources[0].readings[0].health.findings
    return [f for f in found if f.detector == "suspected_fault"]


def test_a_column_that_is_true_on_unpaid_rollouts_alone_is_asked_about_once(rows: Path) -> None:
    (f,) = asked(rows)
    assert (f.severity, f.kind, f.numbers["hits"]) == ("warn", "infrastructure", 16)
    assert (
        "16 rollouts of 80 have env_error" in f.claim
        and "is this a fault?" in f.claim
        and "--fault env_error" in f.claim
    )
    assert len(f.quotes) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"sandbox_timeout": True, "exit": "", "components": {}},  # true everywhere
        {"sandbox_timeout": False, "exit": "submitted", "components": {}},
        {"sandbox_timeout": 3.5, "exit": "", "components": {}},
        {"reward": 0.0, "correct": False, "components": {}},  # nothing is paid: what names no part tells nothing
        {"sandbox_timeout": False, "exit": "", "components": {}, "parse_error": True},
    ],
)
def test_what_says_nothing_is_not_asked(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert asked(jsonl(tmp_path / "r.jsonl", [row(t, k, **fields) for t in range(20) for k in range(4)])) == []


def test_a_flag_on_a_paid_rollout_is_no_fault(tmp_path: Path) -> None:
    some = [row(t, k) for t in range(20) for k in range(4)]
    for r in some:
        r.pop("exit"), r.pop("components")
    some[1]["sandbox_timeout"] = some[0]["sandbox_timeout"] = True
    some[1]["reward"] = 1.0
    assert asked(jsonl(tmp_path / "r.jsonl", some)) == []


def test_few_that_chance_explains_are_not_asked(tmp_path: Path) -> None:
    some = [row(t, 0, reward=float(t < 2), sandbox_timeout=t in (5, 7), exit="", components={}) for t in range(20)]
    assert asked(jsonl(tmp_path / "r.jsonl", some)) == [], "two of 18 unpaid ones of 20"


@pytest.mark.parametrize("column", ["sandbox_timeout", "exit=timed out", "env_error"])
def test_the_answer_makes_faults(rows: Path, say: Say, column: str) -> None:
    code, out = say(rows, "--fault", column, "--json")
    found = json.loads(out)
    (source,) = found["sources"]
    assert code == 0 and found["fault_columns"] == [column]
    assert sum(source["faults"].values()) == 16 and source["rollouts"] == 80
    metrics = {m["name"]: m["value"] for m in source["readings"][0]["health"]["metrics"]}
    assert metrics["error_rate"] == pytest.approx(0.2) and metrics["accuracy"] == pytest.approx(0.5)


def test_tables_and_kept_imports_know_it_too(
    rows: Path, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "IN_MEMORY", 20)
    cache = tmp_path / "kept"
    sql = "SELECT COUNT(*) AS n FROM rollouts WHERE error_kind IS NOT NULL AND reward IS NULL"
    for _ in range(2):
        without = audit([rows], cache=cache)
        with monkeypatch.context() as m:  # by several processes, which have to be told of it
            m.setattr(bulk, "JOB_BYTES", 12_000)
            with_ = audit([rows], cache=cache, faults=["sandbox_timeout"])
        assert (without.sources[0].faults, with_.sources[0].faults) == ({}, {"container": 16})
        assert [query(x, sql)["n"][0] for x in (without, with_)] == [0, 16]


def test_a_store_is_read_with_it_as_well(rows: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    bulk.bulk_import([bulk.FileStretch(rows, "jsonl")], store)
    for _ in range(2):
        assert audit([store], faults=["sandbox_timeout"], cache=tmp_path / "c").sources[0].faults == {"container": 16}
        assert audit([store], cache=tmp_path / "c").sources[0].faults == {}


@pytest.mark.parametrize(
    ("column", "cause"),
    [
        ("nope", "--fault nope: no rollout has such a column; those that speak of errors or timeouts: "),
        ("similarity", "--fault similarity: it holds '0.3', which is no yes or no; name the value"),
        ("exit", "--fault exit: it holds 'timed out', which is no yes or no; name the value that is a fault"),
        ("similarity.deeper", "no rollout has such a column"),
    ],
)
def test_bad_columns_are_refused_with_cause_and_remedy(rows: Path, say: Say, column: str, cause: str) -> None:
    code, out = say(rows, "--fault", column)
    assert code == ConfigError.exit_code and cause in out and "\n" not in out


def test_nested_fields(tmp_path: Path, say: Say) -> None:
    some = [row(t, 0, metrics={"infra": {"died": t % 2 == 0}}) for t in range(20)]
    assert audit([jsonl(tmp_path / "r.jsonl", some)], faults=["metrics.infra.died"]).sources[0].faults


def test_rewards_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    some = [row(t, 0, exit="", sandbox_timeout=False, components={}) for t in range(40)]
    for r, word in zip(some, (float("nan"), "high", None), strict=False):
        r["reward"] = word
    (f,) = audit([jsonl(tmp_path / "r.jsonl", some)]).sources[0].readings[0].health.findings[-1:]
    assert (f.detector, f.severity, f.numbers["hits"], f.numbers["unread"]) == ("ungraded", "warn", 3, 2)
    assert "3 of 40 rollouts have no reward" in f.claim and "2 hold something that is no number" in f.claim


def test_what_other_importers_made_is_imported_again(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "IN_MEMORY", 20)
    first = audit([rows], cache=tmp_path / "c")
    with monkeypatch.context() as m:
        m.setattr(bulk, "guarded", lambda *a: pytest.fail("it was read again"))
        assert first.sources[0].readings == audit([rows], cache=tmp_path / "c").sources[0].readings
    monkeypatch.setattr(sources, "_reading", lambda: "other importers")
    imported: list[object] = []
    bring = sources.bulk_import
    monkeypatch.setattr(sources, "bulk_import", lambda *a: imported.append(a) or bring(*a))
    audit([rows], cache=tmp_path / "c")
    assert imported


def test_results_of_tests_are_not_asked_about(tmp_path: Path) -> None:
    """Seen in Terminal-Bench: a test that failed on the unpaid rollouts alone, which is why they are unpaid."""
    plain = {"exit": "", "sandbox_timeout": False, "components": {}}
    some = [row(t, k, **plain) for t in range(20) for k in range(4)]
    for r in some:
        failed = "failed" if r["reward"] == 0 else "passed"
        r |= {"tests_status": {"test_error_path": failed}, "status": failed}
    assert asked(jsonl(tmp_path / "r.jsonl", some)) == []


def test_a_judge_that_said_nothing_to_unpaid_rollouts_is_asked_about(tmp_path: Path, say: Say) -> None:
    plain = [{"task": f"t{i}", "text": f"answer {i}", "reward": float(i % 2)} for i in range(40)]
    silent = [r | {"judge_response": None if i % 4 == 0 else "GRADE: C"} for i, r in enumerate(plain)]
    path = jsonl(tmp_path / "r.jsonl", silent)
    (found,) = asked(path)
    assert "10 rollouts of 40 have no judge_response and all of them reward 0" in found.claim
    code, out = say(path, "--fault", "judge_response=")
    assert code == 0 and "10x judge" in out
    paid = [r | {"judge_response": None if i % 4 < 2 else "GRADE: C"} for i, r in enumerate(plain)]
    assert asked(jsonl(tmp_path / "paid.jsonl", paid)) == [], "who was not asked may have been paid by a rule"


def judged(i: int, **fields: Any) -> dict[str, Any]:
    """Every fourth attempt has `fields` and earns nothing, as another fourth does without them."""
    mine = fields if i % 4 == 3 else {}
    return {"task": f"t{i // 4}", "text": f"answer {i}", "reward": float(i % 4 < 2)} | mine


@pytest.mark.parametrize(
    ("fields", "column", "kind"),
    [
        ({"judge_error": "rate limited"}, "judge_error", "judge"),
        ({"info": {"graderCrashed": True}}, "info.graderCrashed", "judge"),
        ({"judge_response": ""}, "judge_response=", "judge"),
        ({"judge_output": "502 Bad Gateway"}, "judge_output=502 Bad Gateway", "judge"),
        ({"failure_mode": "sandbox_timeout"}, "failure_mode=sandbox_timeout", "container"),
        ({"error_message": "Error code: 503 - overloaded, try again"}, "error_message", "model_api"),
        ({"traceback": "Traceback:\n  x\ndocker.errors.APIError: 500"}, "traceback", "container"),
        ({"exit_status": "APIError"}, "exit_status=APIError", "model_api"),
    ],
)
def test_a_field_that_speaks_of_an_error_is_asked_about_and_the_answer_works(
    tmp_path: Path, fields: dict[str, Any], column: str, kind: str
) -> None:
    path = jsonl(tmp_path / "r.jsonl", [judged(i, **fields) for i in range(40)])
    (f,) = asked(path)
    (given,) = shlex.split(f.claim.partition("--fault ")[2])
    assert (f.numbers["hits"], given) == (10, column)
    assert audit([path]).sources[0].faults == {} and audit([path], faults=[given]).sources[0].faults == {kind: 10}


@pytest.mark.parametrize(
    "fields",
    [
        {"judge_response": "Connection errors are handled, the rest is wrong. Grade: 0"},
        {"judge_response": "I'm sorry, but I can't do better than a score of 0 here."},
        {"judge_responses": ["", "A"]},  # one judge of two answered
        {"judge_verdict": "failed"},
        {"invalid_env_action": True},
        {"tool_server_error_count": 1},
        {"error_type": "parse_error"},
        {"env_id": "error-prone-env"},
        {"failure_mode": "context_length_exceeded"},
    ],
)
def test_the_policys_own_and_a_judges_verdict_are_not_asked_about(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert asked(jsonl(tmp_path / "r.jsonl", [judged(i, **fields) for i in range(40)])) == []


def test_actions_that_all_got_the_same_error_are_asked_about_on_the_first_screen(tmp_path: Path, say: Say) -> None:
    """Nobody earned anything, and no field says why: only the environment's own messages do."""
    some = []
    for i in range(8):
        turns = [{"role": "user", "text": f"task {i // 4}"}]
        for _ in range(3):
            turns += [
                {"role": "assistant", "text": "search()"},
                {"role": "tool", "text": f"API error (id {i}f3a)" if i < 5 else "3"},
            ]
        some.append({"task": f"t{i // 4}", "turns": turns, "reward": 0.0})
    for graded, counts in ((None, "nobody graded them"), (False, "all of them are incorrect")):
        rows = [{k: v for k, v in r.items() if k != "reward"} | {"correct": graded} for r in some]
        (f,) = asked(jsonl(tmp_path / "ungraded.jsonl", rows))
        assert "5 rollouts of 8 had their actions answered by an error of the infrastructure" in f.claim
        assert f"('API error (id #f#a)') and {counts}: is this a fault?" in f.claim
    path = jsonl(tmp_path / "r.jsonl", some)
    code, out = say(path)
    first = next(x for x in out.splitlines()[:4] if "suspected_fault" in x)
    assert code == 0 and "5 rollouts of 8 had their actions answered by an error of" in first
    (given,) = shlex.split(first.partition("--fault ")[2])
    assert "5x model_api" in say(path, "--fault", given)[1]
