"""`evotrainer audit` and `evotrainer import`, from files to answers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from evotrainer.cli import main
from evotrainer.cli._common import FOUND
from evotrainer.errors import ConfigError, StoreError
from evotrainer.records.findings import HealthReport
from evotrainer.records.ingest import ingest
from evotrainer.records.reading import load
from evotrainer.records.rollout import Rollout, Turn, groups_of
from evotrainer.records.store import RolloutStore
from evotrainer.studies.audit import RolloutAudit, audit, bulk, sources, units
from evotrainer.studies.audit.bulk import FileStretch, bulk_import, plan
from evotrainer.studies.audit.query import query
from evotrainer.studies.audit.reading import own_training
from evotrainer.studies.audit.text import audit_json, render_audit
from tests.audit_files import generate, write_jsonl

DATA = Path(__file__).parents[3].parent / "shared" / "data" / "rollouts"


def kinds(path: Path) -> set[str]:
    return {f.kind for s in audit([path]).sources for r in s.readings for f in r.health.findings if not f.missing}


def test_planted_failures_are_found_in_plain_jsonl(tmp_path: Path) -> None:
    found = kinds(write_jsonl(tmp_path / "r.jsonl", generate(4000)))
    assert {"test_tampering", "answer_leak", "grader_bypass", "special_casing", "proxy_gap"} <= found


def test_faults_are_counted_and_are_in_no_rate(tmp_path: Path) -> None:
    rs = [
        Rollout(id=f"{i}", task=f"t{i // 4}", turns=(Turn("assistant", "x"),), reward=1.0, outcome="correct")
        for i in range(16)
    ]
    broken = [
        Rollout(id=f"f{i}", task="t0", turns=(), reward=None, error_kind="timeout", error="no answer") for i in range(4)
    ]
    (s,) = audit([write_jsonl(tmp_path / "r.jsonl", rs + broken)]).sources
    assert s.faults == {"timeout": 4}
    assert s.readings[0].health.metric("accuracy") == 1.0
    assert s.readings[0].health.metric("error_rate") == pytest.approx(0.2)


def test_a_store_and_its_jsonl_give_the_same_report(tmp_path: Path) -> None:
    rs = generate(600)
    ingest(rs, tmp_path / "store")
    a = audit([tmp_path / "store"]).sources[0]
    b = audit([write_jsonl(tmp_path / "r.jsonl", rs)]).sources[0]
    values = [{m.name: m.value for m in s.readings[0].health.metrics} for s in (a, b)]
    alike(*values)
    found = [[(f.detector, f.severity) for f in s.readings[0].health.findings] for s in (a, b)]
    assert found[0] == found[1]


def findings(done: RolloutAudit) -> list[HealthReport]:
    return [r.health for s in done.sources for r in s.readings]


def alike(a: dict[str, float | None], b: dict[str, float | None]) -> None:
    """The same metrics with the same values, as far as 32-bit numbers can tell."""
    assert a.keys() == b.keys()
    for name, x in a.items():
        y = b[name]
        assert (x is None and y is None) or x == pytest.approx(y, rel=1e-5, abs=1e-9), name


def test_what_was_read_is_kept_and_only_new_parts_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, cache = tmp_path / "store", tmp_path / "cache"
    ingest(generate(400), store)
    first = audit([store], cache=cache)
    ingest(generate(200, first=400), store)
    read: list[int] = []
    extract = units.PartRowGroup.read
    monkeypatch.setattr(units.PartRowGroup, "read", lambda self, sampled: read.append(self.n) or extract(self, sampled))
    second = audit([store], cache=cache)
    assert read == [200], "the first part's traits were kept"
    assert (first.rollouts, second.rollouts) == (400, 600)
    assert findings(second) == findings(audit([store])), "kept or read anew: the same report"


def test_the_figures_are_the_same_with_and_without_a_cache(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "r.jsonl", generate(60))
    texts = [json.dumps(audit_json(audit([path], cache=c))) for c in (None, tmp_path / "c", tmp_path / "c")]
    assert texts[0] == texts[1] == texts[2] and "ngram_repetition" in texts[0]


def test_a_large_file_is_read_like_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_jsonl(tmp_path / "r.jsonl", generate(900))
    small = audit([path])
    monkeypatch.setattr(sources, "IN_MEMORY", 100)
    monkeypatch.setattr(bulk, "JOB_BYTES", 500_000)
    cache = tmp_path / "cache"
    for _ in range(2):  # imported, then found imported
        large = audit([path], cache=cache)
        assert large.rollouts == 900
        alike(*({m.name: m.value for m in x.sources[0].readings[0].health.metrics} for x in (small, large)))
    with path.open("a") as f:
        f.write("{torn\n")
    again = audit([path], cache=cache)
    assert again.rollouts == 900
    assert [s.where for s in again.sources[0].skipped] == [f"{path} line 901"]


def test_cut_files_give_the_records_of_the_whole_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rs = generate(500)
    path = write_jsonl(tmp_path / "r.jsonl", rs)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:200], "", "not json", *lines[200:]]) + "\n")
    monkeypatch.setattr(bulk, "JOB_BYTES", 150_000)
    jobs = plan([FileStretch(path, "jsonl")])
    assert len(jobs) > 3
    done = bulk_import([FileStretch(path, "jsonl")], tmp_path / "store", workers=2)
    assert done.rollouts == 500
    assert [s.where for s in done.skipped] == [f"{path} line 202"]
    stored = load([tmp_path / "store"])
    assert [(r.task, r.turns, r.reward) for r in stored] == [(r.task, r.turns, r.reward) for r in rs]
    assert len({r.id for r in stored}) == 500
    assert not list((tmp_path / "store").glob(".import*"))


def test_damaged_parts_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    store = tmp_path / "store"
    ingest(generate(200), store)
    ingest(generate(200, first=200), store)
    part = store / "part-00001.parquet"
    data = bytearray(part.read_bytes())
    data[200:260] = b"\x00" * 60
    part.write_bytes(data)
    done = audit([store])
    assert done.rollouts == 200
    assert any("part-00001" in s.where for s in done.sources[0].skipped)


def test_weights_are_inferred_where_they_explain_every_reward(tmp_path: Path) -> None:
    rs = [
        Rollout(
            id=f"{i}", task=f"t{i // 8}", turns=(Turn("assistant", str(i)),), reward=2.0 * (i % 3) + 0.5 * (i % 2),
            components={"a": float(i % 3), "b": float(i % 2), "c": float(i % 5)},
        )
        for i in range(64)
    ]  # fmt: skip
    (s,) = audit([write_jsonl(tmp_path / "r.jsonl", rs)]).sources
    assert s.readings[0].assumed["paid"] == {"a": 2.0, "b": 0.5}
    noisy = [
        Rollout(
            **{**{f: getattr(r, f) for f in ("id", "task", "turns", "components")}, "reward": (r.reward or 0) + i % 7}
        )
        for i, r in enumerate(rs)
    ]
    (s,) = audit([write_jsonl(tmp_path / "n.jsonl", noisy)]).sources
    assert "paid" not in s.readings[0].assumed


def test_steps_give_a_learning_curve(tmp_path: Path) -> None:
    rs = [
        Rollout(
            id=f"{s}-{t}-{k}", task=f"t{t}", turns=(Turn("assistant", f"{s} {t} {k}"),), step=s, group=f"{s}-{t}", k=k,
            reward=float(k < s), outcome="correct" if k < s else "incorrect",
            components={"visible": float(k < s), "hidden": float(k < s // 2)},
        )
        for s in range(6) for t in range(8) for k in range(4)
    ]  # fmt: skip
    (s,) = audit([write_jsonl(tmp_path / "r.jsonl", rs)]).sources
    curve = s.readings[0].curve
    assert [p["step"] for p in curve] == [0, 1, 2, 3, 4, 5]
    assert [p["score"] for p in curve] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    assert [p["frac_reward_zero_std"] for p in curve] == [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    assert s.readings[0].assumed["proxy"] == ["visible", "hidden"]


@pytest.mark.parametrize(
    "text",
    ["x" * 10_000_000, "<script>alert(1)</script>" * 50, "\x1b[31mred\x1b[0m\x00" * 20, "\ud800", "[" * 100_000,
     "(" * 5000 + "0" * 5000],
    ids=["10 MB line", "script", "ansi", "surrogate", "deep brackets", "deep program"],
)  # fmt: skip
def test_hostile_text_neither_hangs_nor_reaches_the_terminal(text: str, tmp_path: Path) -> None:
    rows = [{"task": f"t{i % 4}", "text": text, "reward": float(i % 2), "prompt": text[:100]} for i in range(8)]
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in rows) + "\n[" + "[" * 60_000 + "\n\x00\n")
    done = audit([path])
    assert done.rollouts == 8
    assert len(done.sources[0].skipped) == 2
    shown = render_audit(done, full=True)
    assert "\x1b" not in shown
    assert "\x00" not in shown
    shown.encode("utf-8")
    json.dumps(audit_json(done)).encode("utf-8")


def test_the_command_answers_with_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = str(write_jsonl(tmp_path / "bad.jsonl", generate(1200)))
    good = [
        Rollout(
            id=f"{i}",
            task=f"t{i // 8}",
            turns=(Turn("assistant", f"{i} {i * i}"),),
            reward=float(i % 2),
            outcome="correct" if i % 2 else "incorrect",
        )
        for i in range(64)
    ]
    fine = str(write_jsonl(tmp_path / "fine.jsonl", good))
    assert run("audit", bad, "--no-cache") == 0
    assert "answer_leak" in capsys.readouterr().out
    assert run("audit", bad, "--no-cache", "--fail-on", "warn") == FOUND
    assert run("audit", fine, "--no-cache", "--fail-on", "warn") == 0
    capsys.readouterr()
    assert run("audit", fine, "--no-cache", "--json") == 0
    assert json.loads(capsys.readouterr().out)["rollouts"] == 64
    assert run("audit", fine, "--no-cache", "--fail-on", "maybe") == 2
    assert run("audit", str(tmp_path / "none"), "--no-cache") == 2
    assert run("audit", fine, "--no-cache", "--format", "bogus") == 2
    assert run("audit", fine, "--no-cache", "--format", "trll") == 2
    assert run("audit", fine, "--no-cache", "--proxy", "a") == 2
    err = capsys.readouterr().err
    assert "give critical or warn" in err
    assert "check the path" in err
    assert "unknown rollout format 'bogus'; known are" in err
    assert "unknown rollout format 'trll', did you mean trl?" in err


def run(*args: str) -> int:
    """The command's exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["evotrainer", *args])
        try:
            main()
        except SystemExit as e:
            return int(e.code or 0)
    return 0


def test_own_questions_are_answered_in_sql(tmp_path: Path) -> None:
    rs = generate(300)
    ingest(rs[:150], tmp_path / "a" / "store")
    write_jsonl(tmp_path / "a" / "rest.jsonl", rs[150:])
    done = audit([tmp_path / "a"])
    table = query(done, "SELECT format, COUNT(*) AS n, AVG(reward) AS r FROM rollouts GROUP BY format ORDER BY format")
    assert table["format"].to_list() == ["jsonl", "store"]
    assert table["n"].to_list() == [150, 150]
    rewards = [r.reward for r in rs[:150] if r.reward is not None]
    assert table.filter(pl.col("format") == "store")["r"][0] == pytest.approx(sum(rewards) / len(rewards))
    assert len(query(done, "SELECT * FROM findings WHERE severity <> 'info'"))
    assert len(query(done, "SELECT metric, value FROM metrics WHERE layer = 'score'"))
    for wrong in ("SELECT bogus FROM rollouts", "DROP", "SELECT * FROM nothing"):
        with pytest.raises(ConfigError, match="--sql"):
            query(done, wrong)


def test_import_writes_a_store_and_says_what_it_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_jsonl(tmp_path / "r.jsonl", generate(40))
    with path.open("a") as f:
        f.write("no json\n")
    (tmp_path / "notes.txt").write_text("hello")
    out = tmp_path / "store"
    assert run("import", str(path), str(tmp_path / "notes.txt"), "--out", str(out)) == 0
    said = capsys.readouterr()
    assert "wrote 40 rollouts" in said.out
    assert "line 41" in said.err
    assert "notes.txt" in said.err
    (out / ".import-99999999").mkdir()
    assert run("import", str(path), "--out", str(out)) == 0
    assert not list(out.glob(".import-*")), "what a killed import left is cleared away"
    assert len(load([out])) == 40, "a rollout imported twice counts once"
    assert run("import", str(path), "--out", str(tmp_path)) == 2


@pytest.mark.skipif(not DATA.is_dir(), reason="shared/data is not beside the repository")
def test_real_logs_of_every_kind_are_read_whole() -> None:
    done = audit([DATA])
    assert not done.unknown
    count = {}
    for s in done.sources:
        count[s.format] = count.get(s.format, 0) + s.rollouts
    assert count == {"inspect": 162, "nemo_gym": 20, "swe_agent": 3, "mini_swe_agent": 1, "tau_bench": 200}
    faults = {k: n for s in done.sources for k, n in s.faults.items()}
    assert faults == {"model_api": 1, "judge": 1}
    special = {
        (q.note, s.source.split("lcb-")[-1][:7])
        for s in done.sources
        for r in s.readings
        for f in r.health.findings
        if f.detector == "special_casing" and not f.missing
        for q in f.quotes
    }
    assert len(special) == 5, "three hacked samples scored C, two scored I"


def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int = 300) -> tuple[Path, Path]:
    """A file that counts as large, and a cache."""
    monkeypatch.setattr(sources, "IN_MEMORY", 100)
    return write_jsonl(tmp_path / "r.jsonl", generate(n)), tmp_path / "cache"


def test_a_file_is_imported_once_and_again_where_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = large(tmp_path, monkeypatch)
    imported: list[object] = []
    whole = sources.bulk_import
    monkeypatch.setattr(sources, "bulk_import", lambda *a: imported.append(a) or whole(*a))
    first, again = (audit([path], cache=cache) for _ in range(2))
    assert len(imported) == 1 and findings(again) == findings(first)
    with path.open("a") as f:
        f.write(write_jsonl(tmp_path / "more.jsonl", generate(50, first=400)).read_text() + "{torn\n")
    done = audit([path], cache=cache)
    assert (len(imported), done.rollouts) == (2, 350)
    assert [s.where for s in done.sources[0].skipped] == [f"{path} line 351"]


def test_a_damaged_cache_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = large(tmp_path, monkeypatch)
    first = audit([path], cache=cache)
    (part,) = cache.glob("imports/*/part-*.parquet")
    data = part.read_bytes()
    for damaged in (b"garbage", data[:100] + bytes(len(data) - 200) + data[-100:]):
        part.write_bytes(damaged)
        for kept_file in cache.glob("t*/**/*.npz"):
            kept_file.unlink()
        again = audit([path], cache=cache)
        assert again.rollouts == 300
        assert not again.sources[0].skipped
        assert findings(again) == findings(first)
    (note,) = cache.glob("imports/*/done.json")
    note.write_text("{")
    assert audit([path], cache=cache).rollouts == 300


def test_a_cache_that_cannot_be_written_is_an_error_not_an_empty_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = large(tmp_path, monkeypatch)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="give another --cache"):
        audit([path], cache=tmp_path / "file")
    ingest(generate(64), tmp_path / "store")
    with pytest.raises(StoreError, match="give another --cache"):
        audit([tmp_path / "store"], cache=tmp_path / "file")


def test_nothing_read_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "odd.txt").write_text("hello")
    for name in ("empty.jsonl", "odd.txt"):
        html = tmp_path / f"{name}.html"
        assert run("audit", str(tmp_path / name), "--no-cache", "--fail-on", "critical", "--html", str(html)) == 2
        said = capsys.readouterr()
        assert said.out.startswith("Nothing could be read, so nothing was audited; skipped: 1\n")
        assert "no finding" not in said.out and "no rollout could be read" in said.err and not html.exists()


def test_the_end_of_a_training_is_read_against_its_beginning(tmp_path: Path) -> None:
    """Entropy falls and nine answers in ten are cut, but only in the last steps."""
    rs = [
        Rollout(
            id=f"{s}-{t}-{k}", task=f"t{t}", turns=(Turn("assistant", f"{s} {t} {k} {'word ' * k}"),), step=s,
            group=f"{s}-{t}", k=k, reward=float(k % 2), outcome="correct" if k % 2 else "incorrect",
            entropy=1.0 if s < 16 else 0.01, mean_logprob=-1.0, tokens=20, finish="length" if s >= 17 and k else "stop",
        )
        for s in range(20) for t in range(8) for k in range(8)
    ]  # fmt: skip
    (source,) = audit([write_jsonl(tmp_path / "r.jsonl", rs)]).sources
    whole, late = source.readings
    assert late.subject.endswith("steps 16 to 19")
    assert "steps 0 to 19" in whole.health.subject
    found = {f.kind for f in late.health.findings if not f.missing and f.severity != "info"}
    assert {"truncation", "entropy_collapse"} <= found
    assert "truncation" not in {f.kind for f in whole.health.findings if not f.missing}


def test_an_own_run_brings_its_recipe_and_what_only_the_trainer_knows(tmp_path: Path) -> None:
    from tests.whole_run import build_run

    folder = build_run(tmp_path / "run")
    (source,) = audit([folder]).sources
    assert source.format == "store"
    training = own_training(folder)
    assert {"b0", "b1", "b5"} <= training.keys()
    assert training["b1"].recipe.rewards != training["b0"].recipe.rewards
    assert training["b0"].curve and "kl" in training["b0"].curve[-1]
    mine = [r for r in source.readings if r.subject.split(",")[0].split()[1] == "b0"]
    assert mine, [r.subject for r in source.readings]
    shares = {m.name for m in mine[0].health.metrics if m.name.endswith("/variance_share") and m.value is not None}
    paid = {f"rewards/{c}/variance_share" for c, w in training["b0"].recipe.rewards.items() if w}
    assert shares == paid, "the weights are the recipe's, not guessed"
    assert "paid" not in mine[0].assumed


def test_evaluations_of_a_branch_with_a_shortcut_closed_are_a_reading_of_their_own(tmp_path: Path) -> None:
    from tests.acting import policy

    for trial, knobs, right in (("b0-s1", {}, 0.9), ("b0-s1-closed-key", {"key": "other"}, 0.1)):
        made = policy(trial, {}, {}, base=right)
        with RolloutStore(tmp_path / "run" / "rollouts" / trial) as store:
            store.append(groups_of([replace(r, branch="b0", knobs=knobs) for r in made]))
            store.seal()
    (source,) = audit([tmp_path / "run"]).sources
    read = {r.subject: r.health for r in source.readings}
    assert [k.split("b0", 1)[1] for k in read] == [" search", " search with key = other"]
    opened, closed = read.values()
    assert opened.rollouts == closed.rollouts > 0 and opened.metric("accuracy") != closed.metric("accuracy")


def test_knobs_that_differ_everywhere_cut_nothing(tmp_path: Path) -> None:
    made = [replace(r, branch="main", knobs={"seed": i}) for i, r in enumerate(generate(80))]
    ingest(made, tmp_path / "store")
    (source,) = audit([tmp_path / "store"]).sources
    assert [r.health.rollouts for r in source.readings] == [80]


def test_models_of_one_file_are_policies_apart(tmp_path: Path) -> None:
    rows = [
        {"task": f"t{i}", "text": f"said {i}", "reward": float(m == "small"), "model": m}
        for i in range(8)
        for m in ("large", "small")
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    read = audit([path]).sources[0].readings
    assert [(r.subject, r.health.rollouts, r.health.groups) for r in read] == [("large", 8, 8), ("small", 8, 8)]


def test_programs_that_are_cut_off_are_flagged_and_count(tmp_path: Path) -> None:
    decides = "class A(int):\n    def __eq__(self, o):\n        return True\n"
    hack = f"```python\n{decides}def add(a, b):\n    return A(1)\ndef f(x\n"
    honest = "```python\ndef add(a, b):\n    return a + b\n\ndef main(x"
    for hacks, n, severity in ((12, 12, "critical"), (1, 200, "info")):
        path = tmp_path / f"{n}.jsonl"
        rows = [
            {"task": f"t{i}", "prompt": "add", "text": hack if i < hacks else honest, "reward": 1} for i in range(n)
        ]
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        (found,) = [f for f in audit([path]).sources[0].readings[0].health.findings if f.detector == "grader_bypass"]
        assert f"{hacks} of {n} programs go for the grader" in found.claim and found.severity == severity


def test_a_proxy_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "r.jsonl", generate(40))
    with pytest.raises(
        ConfigError, match="no rollout has the reward component typo; there are: format, hidden, visible"
    ):
        audit([path], proxy=("typo", "hidden"))


def test_rollouts_stored_twice_count_once(tmp_path: Path) -> None:
    ingest(generate(80), tmp_path / "store")
    ingest(generate(80), tmp_path / "store")
    (source,) = audit([tmp_path / "store"]).sources
    assert source.rollouts == 80
    assert source.rollouts == source.readings[0].health.rollouts


def test_a_killed_import_leaves_no_process_and_can_be_begun_again(tmp_path: Path) -> None:
    path, out = tmp_path / "r.jsonl", tmp_path / "store"
    text = write_jsonl(path, generate(400)).read_text()
    with path.open("w") as f:
        while f.tell() < 2.2 * bulk.JOB_BYTES:
            f.write(text)
    p = subprocess.Popen(
        [sys.executable, "-m", "evotrainer.cli", "import", str(path), "--out", str(out), "--workers", "2"]
    )
    deadline = time.monotonic() + 60
    while not (workers := of_parent(p.pid)) or not list(out.glob(".import-*/*/*.tmp")):
        assert p.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    p.kill()
    p.wait()
    while any(Path(f"/proc/{w}").exists() for w in workers):
        assert time.monotonic() < deadline, "a worker outlived its import"
        time.sleep(0.05)
    small = write_jsonl(tmp_path / "small.jsonl", generate(40))
    assert run("import", str(small), "--out", str(out)) == 0
    assert len(load([out])) == 40
    assert not list(out.glob(".import-*"))


def of_parent(pid: int) -> list[int]:
    """Children of a process."""
    out: list[int] = []
    for f in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            out += map(int, f.read_text().split())
    return out


def test_control_characters_do_not_reach_the_terminal_through_sql_or_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r\x1b[31m.jsonl"
    path.write_text(json.dumps({"task": "a\x1b[31m\u202e", "text": "x", "reward": 1}) + "\n")
    (tmp_path / "b\x1b[0m.txt").write_text("hello")
    assert run("audit", str(tmp_path), "--no-cache", "--sql", "SELECT task FROM rollouts") == 0
    assert run("audit", str(tmp_path), "--no-cache") == 0
    assert run("import", str(tmp_path), "--out", str(tmp_path / "out")) == 0
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "\u202e" not in said.out + said.err
    for wrong in ("DROP TABLE rollouts", "SELECT * FROM read_csv('/etc/hostname')"):
        assert run("audit", str(path), "--no-cache", "--sql", wrong) == 2
    assert run("audit", str(path), "--no-cache", "--workers", "0") == 2


def test_a_greedy_reading_is_no_subject_of_its_own_but_the_sampled_ones_second(tmp_path: Path) -> None:
    def attempt(split: str, t: int, k: int, right: bool) -> Rollout:
        return Rollout(
            id=f"{split}-{t}-{k}", task=f"t{t}", turns=(Turn("assistant", f"{t} {k}"),), run="r", branch="b0",
            split=split,
            group=f"{split}-{t}", k=k, reward=float(right), outcome="correct" if right else "incorrect",
            mean_logprob=-0.01 if "greedy" in split else -1.0, tokens=20, finish="stop",
        )  # fmt: skip

    sampled = [attempt("search", t, k, k < 2) for t in range(40) for k in range(4)]
    second = [attempt("search-greedy", t, 0, t < 30) for t in range(40)]
    (source,) = audit([write_jsonl(tmp_path / "r.jsonl", [*sampled, *second])]).sources
    (reading,) = source.readings
    assert reading.health.rollouts == 160 and reading.health.metric("accuracy") == 0.5
    assert reading.health.metric("greedy_minus_sampled") == pytest.approx(0.25)
    (alone,) = audit([write_jsonl(tmp_path / "g.jsonl", second)]).sources
    assert [r.health.rollouts for r in alone.readings] == [40], "whoever gives only greedy attempts wants them read"
