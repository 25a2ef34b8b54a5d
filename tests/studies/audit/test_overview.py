"""Many sources on one screen."""

from __future__ import annotations

from pathlib import Path

from evotrainer.harness.detectors import DETECTORS
from evotrainer.studies.audit import audit
from evotrainer.studies.audit.text import audit_json, render_audit
from tests.envs.helpers import jsonl as write


def test_many_sources_are_told_kind_by_kind_on_one_screen(tmp_path: Path) -> None:
    cheat = "sed -i 's/assert x/assert True/' tests/test_x.py"
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(120):
        call = {"name": "bash", "arguments": cheat if i % 3 == 0 else "ls src", "ok": True}
        turns = [{"role": "user", "content": "fix it"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
        write(folder / f"r{i:03}.jsonl", [{"task": f"t{i}", "turns": turns, "reward": 1.0}])
    done = audit([folder])
    text = render_audit(done)
    assert len(text.splitlines()) < 60
    assert "# 120 sources (120 jsonl): 120 rollouts in 120 readings" in text
    assert "- [warn, validity] test_tampering, in 40 of 120" in text
    assert "where: r000.jsonl, r003.jsonl, r006.jsonl, and 37 more" in text
    assert render_audit(done, full=True).count("# Health of") == 120


def test_many_policies_of_one_source_are_a_table_with_a_row_for_each(tmp_path: Path) -> None:
    rows = [
        {"task": f"t{i}", "text": f"{i}", "reward": float(i % 2), "correct": i < 4, "model": f"model-{m}"}
        for m in "abcdefgh"
        for i in range(6)
    ]
    text = render_audit(done := audit([write(tmp_path / "r.jsonl", rows)]))
    assert len(done.sources) == 1 and len(done.sources[0].readings) == 8
    assert "# 1 source (1 jsonl): 48 rollouts in 8 readings" in text and len(text.splitlines()) < 40
    (head,) = [x for x in text.splitlines() if x.startswith("reading ")]
    assert head.split()[1:3] == ["rollouts", "accuracy"]
    assert [x.split()[:4] for x in text.splitlines() if x.startswith("model-")] == [
        [f"model-{m}", "6", "66.7%", "0.5"] for m in "abcdefgh"
    ], "shares in percent, as in every other reading"
    assert render_audit(done, full=True).count("# Health of") == 8


def test_two_pairs_of_one_detector_are_two_kinds() -> None:
    from evotrainer.records.findings import Finding
    from evotrainer.studies.audit.overview import _compared

    def gap(claim: str, **numbers: float) -> str:
        told = {"detector": "d", "kind": "proxy_gap", "severity": "warn", "claim": claim, "numbers": numbers}
        return _compared(Finding.model_validate(told))

    pair = {"proxy": 0.8, "true": 0.5}
    assert gap("visible 82.3% against hidden 50.6%: a gap of 3 points", **pair) == "visible against hidden"
    assert (
        gap("robust 9% against outcome 100%: x", **pair)
        == "robust against outcome"
        != gap("59% of 300", dead=0.5)
        == ""
    )


def test_hundreds_of_other_files_take_three_lines(tmp_path: Path) -> None:
    """A repository of results: what is no rollout is counted by kind, and the advice is given once."""
    write(tmp_path / "r.jsonl", [{"task": "t", "text": "x", "reward": 1.0}])
    for i in range(40):
        (tmp_path / f"n{i}.{'md' if i % 4 else 'sh'}").write_text("notes")
    done = audit([tmp_path])
    text = render_audit(done)
    assert "Files of no known format: 40 (30 .md, 10 .sh)" in text and text.count("convert it to JSON lines") == 1
    assert len(done.unknown) == 40 and text.count(str(tmp_path / "n")) == 1


def test_the_report_says_how_many_detectors_could_not_look_and_in_full_which(tmp_path: Path) -> None:
    done = audit([write(tmp_path / "r.jsonl", [{"task": f"t{i}", "text": "five", "reward": 1.0} for i in range(4)])])
    (short,) = [x for x in render_audit(done).splitlines() if "so not looked at" in x]
    (long,) = [x for x in render_audit(done, full=True).splitlines() if "so not looked at" in x]
    assert "actions" in short and f" of {len(DETECTORS)} detectors; --all)" in short and "greedy" not in short
    assert "abandonment, action_timidity, answer_leak, laziness" in long and "learning curve (" in long
    told = audit_json(done)["sources"][0]["readings"][0]["not_looked_at"]
    assert told["answer_leak"] == ["actions"] and "constant_reward" not in told
