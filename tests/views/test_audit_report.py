"""The audit's report as a file, and quoted rollouts found again."""

from __future__ import annotations

import gc
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evotrainer.errors import StoreError
from evotrainer.records.ingest import ingest
from evotrainer.records.rollout import Rollout, ToolCall, Turn
from evotrainer.studies.audit import RolloutAudit, audit, sources, units
from evotrainer.studies.audit.quoted import fetch, quoted_name, write_html
from evotrainer.views import audit as page
from evotrainer.views.audit_model import view_of
from evotrainer.views.rollouts import fitted_entry
from tests.views.audits import IDS, hostile, hostile_rollout, read, write_steps
from tests.views.conftest import ATTACK


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> RolloutAudit:
    return read(write_steps(tmp_path_factory.mktemp("steps") / "steps.jsonl"))


def data_of(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    return json.loads(found.group(1))


def visible(text: str) -> str:
    return re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S)


def test_the_page_says_what_was_found_and_what_was_not(steps: RolloutAudit, tmp_path: Path) -> None:
    out = write_html(steps, tmp_path / "a.html")
    text = visible(out.read_text())
    assert out == tmp_path / "a.html"
    for said in ("proxy_gap", "proxy_divergence", "Factors that may help", "1 timeout", "steps.jsonl", "jsonl"):
        assert said in text, said
    assert "visible stands for what is paid, hidden for what is meant" in text
    assert "= 1 × visible" in text
    assert "too high" in text
    assert "Not recorded" in text and "mean_logprob" in text
    assert text.count('class="place"') == 2, "both broken lines are named"
    assert "None" not in text.replace("None of them", "")


def test_every_quote_of_an_ordinary_audit_can_be_read(steps: RolloutAudit, tmp_path: Path) -> None:
    text = write_html(steps, tmp_path / "a.html").read_text()
    data = data_of(text)
    assert "not in this file" not in visible(text)
    links = set(re.findall(r'href="#ro-([^"]+)"', text))
    assert links == set(data["rollouts"])
    answers = [r["turns"][1]["text"] for r in data["rollouts"].values() if r["turns"][1]["text"]]
    assert answers and all(a.startswith("def solve") for a in answers)
    assert data["weights"]["s0-0"] == {"visible": 1.0}


def test_curves_over_steps_with_the_proxy_pair_first(steps: RolloutAudit, tmp_path: Path) -> None:
    curve = data_of(write_html(steps, tmp_path / "a.html").read_text())["curves"]["s0-0"]
    assert curve["trials"][0]["x"] == [0, 1, 2, 3, 4, 5]
    want = ["reward", "score", "rewards/visible/mean", "rewards/hidden/mean", "frac_reward_zero_std"]
    assert curve["first"] == [*want, "completions/mean_length", "completions/clipped_ratio"]
    assert page.curves([{"step": 1.0, "reward": 1.0}]) is None
    assert page.curves([{"x": 1.0}, {"x": 2.0}]) is None


def test_without_a_fetcher_quotes_are_shown_and_say_that_the_rollout_is_not_there(
    steps: RolloutAudit, tmp_path: Path
) -> None:
    text = page.write_audit(steps, tmp_path / "a.html").read_text()
    assert "not in this file" in text
    assert data_of(text)["rollouts"] == {}


def test_the_same_audit_gives_the_same_bytes(steps: RolloutAudit, tmp_path: Path) -> None:
    assert write_html(steps, tmp_path / "a.html").read_bytes() == write_html(steps, tmp_path / "b.html").read_bytes()


def test_a_bad_place_is_an_error_with_advice(steps: RolloutAudit, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="--html"):
        write_html(steps, tmp_path / "no" / "folder.html")


def test_nothing_read_is_a_page_too(tmp_path: Path) -> None:
    (tmp_path / "noise.bin").write_bytes(b"\0\1\2" * 100)
    done = audit([tmp_path / "noise.bin"])
    text = visible(write_html(done, tmp_path / "a.html").read_text())
    assert "No finding in 0 rollouts" in text
    assert "noise.bin" in text


def test_hostile_text_is_escaped_everywhere(tmp_path: Path) -> None:
    raw = write_html(hostile(), tmp_path / "h.html").read_bytes()
    text = raw.decode("utf-8")
    assert len(re.findall(r"<script", text)) == 3, "data and two scripts"
    assert not re.search(r"<img|<svg onload|onerror='window", text.split("<script", 1)[0])
    body = visible(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\ud800-\udfff]", body)
    assert "49" not in re.findall(r"</svg[^>]*>([^<]*)\{\{", body), "templates in data are not run"
    assert len(raw) < 8_000_000
    assert body.count('class="place"') == page.SKIPPED
    assert "801 more are not listed" in body


def test_hostile_files_go_through_the_whole_audit(tmp_path: Path) -> None:
    rows = [
        {"task": ATTACK, "text": ATTACK + "x" * (10**6 if i == 0 else 9), "reward": i % 2, "branch": ATTACK, "k": i}
        | {
            "components": {"constructor": 1.0, "__proto__": i % 2, ATTACK: 0.5},
            "step": i // 16,
            "detail": {ATTACK: ATTACK},
        }
        for i in range(64)
    ]
    (tmp_path / "h.jsonl").write_text("\n".join(json.dumps(r) for r in rows) + "\n{" + ATTACK.replace("\ud800", ""))
    text = write_html(read(tmp_path / "h.jsonl"), tmp_path / "h.html").read_text()
    assert len(re.findall(r"<script", text)) == 3
    assert "64 rollouts" in text
    assert text.count('class="place"') == 1


def test_hostile_names_are_found_again() -> None:
    done = hostile()
    names = [quoted_name(r) for r in map(hostile_rollout, IDS)]
    assert set(fetch(done, 0, names)) == set(names)
    assert fetch(done, 0, ["gone"]) == {}
    assert fetch(done, 7, names) == {}


def test_rollouts_in_parts_are_found_by_their_name_alone(tmp_path: Path) -> None:
    held = [
        Rollout(id=i, task="t", turns=(Turn("assistant", i),), reward=1.0) for i in ("a", "b#1", "x" * 200, "b\\x00")
    ]
    held += [Rollout(id=f"{i:032x}", task="t", turns=(), reward=0.0, k=i) for i in range(500)]
    ingest(held, tmp_path / "rollouts")
    done = audit([tmp_path / "rollouts"])
    names = [quoted_name(r) for r in (*held[:4], held[77], held[-1])]
    found = fetch(done, 0, names)
    assert {n: r.id for n, r in found.items()} == {quoted_name(r): r.id for r in (*held[:4], held[77], held[-1])}
    assert list(fetch(done, 0, [f"{9:032x}"])) == [f"{9:032x}"]
    for part in (tmp_path / "rollouts").glob("*.parquet"):
        part.write_bytes(b"gone")
    units._tables.clear()
    assert fetch(done, 0, names) == {}, "what was removed meanwhile stays without rollout"


def test_what_was_read_stays_readable_while_the_audit_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "IN_MEMORY", 50)
    done = read(write_steps(tmp_path / "steps.jsonl"))
    assert done.folder is not None
    folder = done.folder.path
    assert list(folder.rglob("*.parquet"))
    assert "not in this file" not in visible(write_html(done, tmp_path / "a.html").read_text())
    del done
    gc.collect()
    assert not folder.exists()


def test_at_most_so_many_rollouts_and_the_most_severe_first(
    steps: RolloutAudit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "ROLLOUTS", 2)
    text = write_html(steps, tmp_path / "a.html").read_text()
    data = data_of(text)["rollouts"]
    assert len(data) == 2
    worst = view_of(steps, {}, {}).readings[0].findings[0]
    assert data["r0"]["id"] == worst.quotes[0].rollout
    assert "not in this file" in text


def test_many_sources_are_listed_and_the_worst_are_shown(
    steps: RolloutAudit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "DETAILED", 3)
    health = steps.sources[0].readings[0].health.model_copy(update={"findings": (), "bottlenecks": ()})
    dull = replace(steps.sources[0], readings=(replace(steps.sources[0].readings[0], health=health),))
    sources = (*(replace(dull, source=f"/logs/run/{i}/x.jsonl") for i in range(9)), steps.sources[0])
    text = visible(write_html(RolloutAudit(sources, (), ()), tmp_path / "a.html").read_text())
    assert text.count('<details class="card branch') == 3
    assert text.index('id="s9-0"') < text.index('id="s0-0"'), "the worst first"
    assert "The 3 most severe of 11 readings" in text


# -- one rollout, cut to size ------------------------------------------------------------------------------------------


def texts(entry: dict[str, Any]) -> str:
    return "\n".join(t["text"] + "".join(c["text"] for c in t["calls"]) for t in entry["turns"])


@pytest.mark.parametrize("turns", [1, 5, 400])
def test_a_long_rollout_is_cut_around_what_is_quoted(turns: int) -> None:
    long = [Turn("assistant", f"turn {i} " + "lorem ipsum\n" * 3000) for i in range(turns)]
    at = turns // 2
    long[at] = Turn("assistant", "x" * 30_000 + "THE QUOTED SPAN" + "y" * 30_000)
    entry = fitted_entry(Rollout("id", "t", tuple(long), 1.0), 20_000, ["THE QUOTED SPAN"])
    text = texts(entry)
    assert "THE QUOTED SPAN" in text
    assert "not shown" in text
    assert len(json.dumps(entry)) < 30_000
    assert [t["n"] for t in entry["turns"] if "n" in t] == sorted(t["n"] for t in entry["turns"] if "n" in t)
    if turns == 400:
        assert "of 400 turns not shown" in text


def test_a_short_rollout_is_whole() -> None:
    calls = (ToolCall("bash", "ls\npwd", True), ToolCall("edit", "x", False), ToolCall("think"))
    r = Rollout("id", "", (Turn("user", "do"), Turn("assistant", "yes", calls)), None, detail={"note": {"a": [1]}})
    entry = fitted_entry(r, 20_000)
    assert "not shown" not in json.dumps(entry)
    assert [c["text"] for c in entry["turns"][1]["calls"]] == ["bash ls\npwd", "edit x", "think"]
    assert [c["ok"] for c in entry["turns"][1]["calls"]] == [True, False, None]
    assert json.loads(entry["detail"]) == {"note": {"a": [1]}}
    assert entry["task"] == "id"


@pytest.mark.parametrize(
    "detail", [{"tests": "no list"}, {"tests": [1, 2]}, {"tests": []}, {"x": float("nan")}, {1: {2}}]
)
def test_unusual_details_are_shown_as_they_are(detail: dict[str, Any]) -> None:
    entry = fitted_entry(Rollout("id", "t", (), 1.0, detail=detail), 20_000)
    assert entry["tests"] == []
    assert entry["detail"]


def test_a_detail_nested_without_end_is_survived() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    shown = fitted_entry(Rollout("id", "t", (), 1.0, detail={"x": deep}), 20_000)["detail"]
    assert shown.startswith("{'x': [[[") and "..." in shown and len(shown) < 20_000


def test_tests_take_their_share_and_no_more() -> None:
    tests = [{"input": "i" * 900, "expected": None, "got": "g" * 900, "passed": True} for _ in range(100)]
    entry = fitted_entry(Rollout("id", "t", (Turn("assistant", "a" * 9000),), 1.0, detail={"tests": tests}), 20_000)
    assert 1 <= len(entry["tests"]) < 10
    assert entry["tests_cut"] == 100 - len(entry["tests"])
    assert entry["tests"][0]["expected"] is None
    assert entry["tests"][0]["status"] == "passed"
    assert len(json.dumps(entry)) < 25_000
