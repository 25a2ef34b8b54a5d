"""`audit --run`: programs of foreign rollouts are found, run and counted; nothing runs without the word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evotrainer.errors import SandboxError
from evotrainer.sandbox import Sandbox
from evotrainer.studies.audit import audit
from evotrainer.studies.audit.probing import probed_program
from evotrainer.studies.audit.text import audit_json, render_audit
from tests.harness_inputs import rollout

PROMPT = "Write solve(xs).\nassert solve([3, 1, 2]) == [1, 2, 3]\nassert solve([5, 4]) == [4, 5]"
HONEST = "def solve(xs):\n    return sorted(xs)"
EQUAL = "class E:\n    def __eq__(self, o): return True\ndef solve(xs):\n    return E()"


def write(folder: Path, *programs: str, language: str = "python") -> Path:
    rows = [{"task": "a", "prompt": PROMPT, "text": f"```{language}\n{p}\n```", "reward": 1.0} for p in programs]
    path = folder / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def test_facts_of_foreign_programs_are_on_the_first_screen_and_in_json(tmp_path: Path) -> None:
    path = write(tmp_path, HONEST, EQUAL, "import torch\n" + HONEST)
    first = audit([path], run=True, cache=tmp_path / "cache")
    text = render_audit(first)
    assert (
        "probes could run 2 of 3 rollouts' programs: 1 with certain facts; not run, so not judged: 1 needs torch"
        in text
    )
    assert "program_probes" in text and "equal to everything" in text and first.worst() == "critical"
    run = audit_json(first)["sources"][0]["run"]
    assert (run["tried"], run["ran"], run["facts"]) == (3, 2, 1)
    again = audit([path], run=True, cache=tmp_path / "cache")
    assert again.sources[0].run is not None and again.sources[0].run.cpu_s == 0.0, "records are kept"
    assert render_audit(again) == text


def test_a_program_that_never_ends_is_run_once(tmp_path: Path) -> None:
    path = write(tmp_path, "def solve(xs):\n    while True:\n        pass\n")
    spent = [audit([path], run=True, cache=tmp_path / "cache").sources[0].run for _ in range(2)]
    assert spent[0] is not None and spent[0].cpu_s > 1 and "does not end" in " ".join(spent[0].not_run)
    assert spent[1] is not None and spent[1].cpu_s == 0.0 and spent[1].not_run == spent[0].not_run


def test_without_the_word_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(**options: object) -> Sandbox:
        raise AssertionError("a sandbox was opened")

    monkeypatch.setattr(Sandbox, "open", never)
    text = render_audit(audit([write(tmp_path, EQUAL)]))
    assert "probes could run" not in text and "what programs do when they are run (audit --run)" in text


def test_a_weak_sandbox_refuses_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weak = Sandbox.open(tier="D")
    monkeypatch.setattr(Sandbox, "open", lambda **options: weak)
    with pytest.raises(SandboxError, match="tier D, and foreign programs need A, B or C.*audit without --run"):
        audit([write(tmp_path, HONEST)], run=True)


def given(prompt: str, text: str, **detail: object) -> object:
    from evotrainer.records.rollout import Turn

    return probed_program(rollout("t", 0, turns=(Turn("user", prompt), Turn("assistant", text)), detail=detail))


def test_programs_and_tests_are_found_where_they_stand() -> None:
    fenced = f"```python\n{HONEST}\n```"
    by_prompt = given(PROMPT, fenced)
    assert (by_prompt.form, by_prompt.entry, len(by_prompt.tests)) == ("call", "solve", 2)  # type: ignore[attr-defined]
    rows = [{"kind": "visible", "input": "[2, 1]", "expected": "[1, 2]"}, {"kind": "hidden", "input": "[9]"}]
    recorded = given("Sort.", fenced, tests=rows)
    assert [t.given for t in recorded.tests] == [[[2, 1]]]  # type: ignore[attr-defined]
    script = given("Add.\n\nInput\n1 2\nOutput\n3\n", "```python\nprint(sum(map(int, input().split())))\n```")
    assert (script.form, script.tests[0].given) == ("stdin", "1 2\n")  # type: ignore[attr-defined]
    assert given(PROMPT, "```rust\nfn solve() {}\n```") == "language not run: rust"
    assert given(PROMPT, "I cannot.") == "no program is handed in"
