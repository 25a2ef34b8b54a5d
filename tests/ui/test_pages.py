"""What the server answers, and what it refuses, asked over HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from evotrainer.cli._page import listen
from evotrainer.errors import ConfigError
from evotrainer.records.events import Invalidated
from evotrainer.records.ledger import Ledger
from evotrainer.records.rollout import groups_of
from evotrainer.records.store import RolloutStore
from evotrainer.ui.app import hosts_of
from evotrainer.ui.server import place_of
from tests.ui_server import asked, events, port_of, serving
from tests.whole_run import SPECS, build_run, rollouts_of, story


def test_a_folder_of_runs_lists_them_with_state_gain_and_cost(page: str) -> None:
    status, text, headers = asked(page, "/")
    assert status == 200 and "3 runs" in text
    done = text.partition('id="run-done"')[2].partition("</tr>")[0]
    assert "ended" in done and re.search(r"\+\d+\.\d \[\+", done) and "CPU time" in done
    assert "stopped" in text.partition('id="run-early"')[2].partition("</tr>")[0]
    damaged = text.partition('id="run-damaged"')[2].partition("</tr>")[0]
    assert "cannot be read" in damaged and "restore a copy" in damaged
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff" and "set-cookie" not in headers


def test_the_page_of_a_run_is_its_report_with_the_answers_first(page: str, runs: Path) -> None:
    from evotrainer.views.report import write_report

    status, text, _ = asked(page, "/run/done/")
    assert status == 200
    offline = write_report(runs / "done", runs.parent / "offline.html").read_text()
    for name in ("summary", "lineage", "verdicts", "rounds", "branches", "cost", "reproduce"):
        assert f'<section id="{name}">' in text and f'<section id="{name}">' in offline
    first = text.partition('<section id="lineage">')[0]
    assert re.findall(r'<a class="tile".*?<h3>(\w+)</h3>', first) == ["Found", "Tried", "Proven", "Now"]
    assert re.search(r"\d changes", first) and "2 promoted" in first and "ended" in first
    assert "<script>" not in text and "http-equiv" not in text and "onclick" not in text
    assert "%2527" not in text and 'href="/run/done/rollout/' in text, "quotes lead to the rollouts that they are of"


def test_a_branch_has_a_page_with_its_evidence_and_an_unknown_one_is_told(page: str) -> None:
    status, text, _ = asked(page, "/run/done/branch/b2")
    assert status == 200 and "noise floor" in text and 'id="side-a"' in text and "b2" in text
    status, text, _ = asked(page, "/run/done/branch/b99")
    assert status == 400 and "there are: base, b0, b1" in text


def rewards(text: str) -> list[list[str]]:
    return [re.findall(r"</span>(-?[\d.]+)", g) for g in text.split('<article class="card group">')[1:]]


def test_rollouts_are_shown_in_whole_groups_and_filtered(page: str) -> None:
    status, text, _ = asked(page, "/run/done/rollouts?branch=b1&sort=spread")
    assert status == 200 and "288 rollouts of" in text and "72 groups" in text
    assert all(len(g) == 4 for g in rewards(text)) and len(rewards(text)) == 20
    assert set(rewards(text)[0]) == {"0", "1"}, "the group of the largest spread comes first"
    more = asked(page, "/run/done/rollouts?branch=b1&sort=spread&start=60")[1]
    assert len(rewards(more)) == 12
    text = asked(page, "/run/done/rollouts?branch=b1&component=hidden%3E%3D1&outcome=correct")[1]
    assert int(re.search(r"<h1>(\d+) rollouts", text)[1]) < 288  # type: ignore[index]
    assert "No rollout meets this" in asked(page, "/run/done/rollouts?component=hidden%3E%3D2")[1]
    text = asked(page, "/run/done/rollouts?finding=paid_but_wrong")[1]
    assert "⚑" in text and "paid_but_wrong" in text
    for bad in ("step=x", "component=hidden", "sort=worst%3B--"):
        status, text, _ = asked(page, f"/run/done/rollouts?{bad}")
        assert status == 400 and "This page cannot be shown" in text


def test_a_group_shows_its_prompt_once_and_a_quote_is_marked(page: str) -> None:
    text = asked(page, "/run/done/")[1]
    link = re.search(r'href="(/run/done/rollout/[0-9a-f]{32}\?quote=[^"#]+)#hit"', text)[1]  # type: ignore[index]
    status, text, _ = asked(page, link)
    assert status == 200 and text.count("Read integers; keep multiples of 3") == 1
    assert text.count('<article class="card attempt') == 4 and "hidden" in text and "reward" in text
    assert re.search(r'<mark class="hit" id="hit">print\(max\(ys\)\)</mark>', text)
    all_of_it = re.search(r'<a class="flag" href="/run/done/(branch/\w+)#(findings-\w+)">\w+</a>: [^<]{20}', text)
    assert all_of_it and f'id="{all_of_it[2]}"' in asked(page, f"/run/done/{all_of_it[1]}")[1]
    whole = asked(page, link.partition("?")[0] + "/text")
    assert whole[2]["content-type"].startswith("text/plain") and "print(max(ys))" in whole[1]


def test_a_search_streams_what_it_finds_and_says_what_is_no_expression(page: str) -> None:
    lines = [json.loads(x) for x in asked(page, "/run/done/search?q=DEFAULT%3D0&branch=b1")[1].splitlines()]
    assert lines[0]["html"].startswith("<li>") and "default=0" in lines[0]["html"]
    assert lines[-1]["done"] and lines[-1]["hits"] == sum("rollout/" in x.get("html", "") for x in lines) > 0
    (line,) = asked(page, "/run/done/search?q=(&regex=1")[1].splitlines()
    assert "is no expression" in json.loads(line)["error"]
    found = asked(page, "/run/done/search?regex=1&q=max.ys%2C%20default")[1]
    assert '"hits": 200' in found or "html" in found
    lines = [json.loads(x) for x in asked(page, "/run/done/search?q=DEFAULT%3D0&branch=b1")[1].splitlines()]
    hits, more = [x["html"] for x in lines if "html" in x][:-1], lines[-2]["html"]
    assert (
        len(hits) == 200
        and lines[-1]["cut"]
        and re.search(r'<code>.{20,}<mark class="hit">default=0</mark>', hits[0], re.S)
    )
    rest = asked(page, "/run/done/search" + unescape(re.search(r'href="([^"]+)"', more)[1]))[1]  # type: ignore[index]
    assert "skip=200" in more and hits[0] not in [json.loads(x).get("html") for x in rest.splitlines()]


def test_what_was_written_last_comes_first(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", until="b1-s0/finished")
    for part in (run / "rollouts").glob("*/*"):
        os.utime(part, (2e9, 2e9) if part.parent.name == "b0-s1" else (1e9, 1e9))
    with serving(run) as address:
        assert "b0, seed 1" in asked(address, "/run/run/rollouts")[1].partition("card group")[2].partition("</p>")[0]
        hit = json.loads(asked(address, "/run/run/search?q=max")[1].splitlines()[0])["html"]
        assert "b0 · " in hit


def test_a_group_of_an_invalid_branch_says_so_and_leads_there(tmp_path: Path, runs: Path) -> None:
    run = Path(shutil.copytree(runs / "early", tmp_path / "run"))
    with Ledger.open(run / "ledger.db") as ledger:
        found = Invalidated(branch="b1", descendants=(), reason="reads the answer", champion="b0")
        ledger.append("invalidated", "b1/invalidated", found)
    with serving(run) as address:
        link = re.search(r'href="(/run/run/rollout/[0-9a-f]{32})"', asked(address, "/run/run/rollouts?branch=b1")[1])
        text = asked(address, link[1])[1]  # type: ignore[index]
        assert "Its branch is invalid: reads the answer" in text and 'href="/run/run/branch/b1' in text
        assert "<dt>knobs</dt>" in text.partition("<summary>Facts")[0]


def test_gate_and_cert_rollouts_never_leave(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    sealed = [replace(r, id=f"gate{i}", split=("gate", "cert-greedy")[i % 2])
              for i, r in enumerate(rollouts_of(SPECS[0], 0)[:8])]  # fmt: skip
    with RolloutStore(run / "rollouts" / "b9-s9") as store:
        store.append([sealed])
    with RolloutStore(run / "sealed" / "b0-s0") as store:
        store.append([[replace(r, id=f"other{r.id}") for r in sealed]])
    with serving(run) as address:
        assert asked(address, "/run/run/rollout/gate0")[0] == 404
        assert asked(address, "/run/run/rollout/othergate0")[0] == 404
        text = asked(address, "/run/run/rollouts?split=gate")[1]
        assert "No rollout meets this" in text and "cert-greedy" not in text
        assert '"gate' not in asked(address, "/run/run/search?q=max&split=cert-greedy")[1]


@pytest.mark.parametrize(
    "path",
    ["/static/../report.py", "/static/..%2freport.py", "/static/%2e%2e/%2e%2e/errors.py", "/run/..%2f..%2fetc/",
     "/run/~~/", "/run/no%20run/", "/run/%2Fetc%2Fpasswd/", "/run/done/rollout/..%2F..%2Fledger.db", "/run/..~..~etc/",
     "/run/done/branch/..%2f..%2fledger.db", "//etc/passwd", "/run/done/ledger.db", "/run/done/../../ledger.db"],
)  # fmt: skip
def test_no_path_leads_out(page: str, path: str) -> None:
    status, text, _ = asked(page, path)
    assert status in (400, 404) and "root:" not in text and "SQLite" not in text


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8642", "", "[::2]", "10.0.0.1"]
)
def test_a_name_that_was_made_to_point_here_is_refused(page: str, host: str) -> None:
    assert asked(page, "/run/done/", Host=host)[0] in (400, 403)


def test_this_machines_names_are_answered_and_other_methods_are_not(page: str) -> None:
    for host in ("localhost", "127.0.0.1:9", f"localhost:{port_of(page)}", "[::1]:80", "LOCALHOST."):
        assert asked(page, "/", Host=host)[0] == 200, host
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert asked(page, "/run/done/", method)[0] == 405
    assert "*" in hosts_of("0.0.0.0") and "*" not in hosts_of("127.0.0.1")


def test_oversized_queries_are_refused(page: str) -> None:
    assert asked(page, "/run/done/rollouts?task=" + "x" * 5000)[0] == 414
    assert asked(page, "/" + "x" * 5000)[0] == 414
    assert "300" in asked(page, "/run/done/search?q=" + "x" * 400)[1]
    assert asked(page, "/run/done/rollout/" + "f" * 3000)[0] == 404
    assert asked(page, "/run/done/rollouts?start=99999999")[0] == 200


def test_a_damaged_run_and_one_that_goes_away_are_pages_with_cause_and_remedy(tmp_path: Path, runs: Path) -> None:
    shutil.copytree(runs / "early", tmp_path / "gone")
    shutil.copytree(runs / "damaged", tmp_path / "damaged")
    with serving(tmp_path) as address:
        status, text, _ = asked(address, "/run/damaged/")
        assert status == 500 and "restore a copy" in text and "Traceback" not in text
        assert 'id="live"' in text and "It looks again by itself" in text
        status, text, _ = asked(address, "/run/damaged/rollouts")
        assert status == 500 and "ledger.db and of the ledger.* files" in text and "Not found" not in text
        assert "by itself" not in text, "nothing looks again"
        assert asked(address, "/run/gone/")[0] == 200
        shutil.rmtree(tmp_path / "gone")
        status, text, _ = asked(address, "/run/gone/")
        assert status == 404 and "moved or deleted" in text
        assert asked(address, "/")[0] == 200


# -- live --------------------------------------------------------------------------------------------------------------


def append(run: Path, first: str, last: str = "") -> int:
    """Go on with a recorded run, from an event to another; the number of its events."""
    ids = [id for _, id, _ in story()]
    with Ledger.open(run / "ledger.db") as ledger:
        for kind, id, body in story()[ids.index(first) : ids.index(last or first) + 1]:
            ledger.append(kind, id, body)
        return ledger.head[0]


def message(text: str) -> tuple[int, dict[str, Any]]:
    lines = dict(x.partition(": ")[::2] for x in text.strip().splitlines())
    return int(lines["id"]), json.loads(lines["data"])


def test_who_comes_back_is_sent_what_he_missed_and_no_more(tmp_path: Path, runs: Path) -> None:
    run = Path(shutil.copytree(runs / "early", tmp_path / "run"))
    with serving(run) as address:
        page = asked(address, "/run/run/")[1]
        at = int(re.search(r'data-position="(\d+)"', page)[1])  # type: ignore[index]
        now = append(run, "b3/judged")
        seen, body = message(events(address, f"/run/run/events?after={at}", 1)[0])
        assert seen == now and "verdicts" in body["parts"] and "branches" in body["parts"]
        assert "reproduce" in body["parts"], "it names the last event"
        assert "harness" not in body["parts"] and set(body["order"]) > {"harness", "verdicts"}
        seen, body = message(events(address, "/run/run/events", 1, **{"Last-Event-ID": str(now)})[0])
        assert seen == now and not body["parts"], "who knows all is sent nothing"
        assert not body["driven"], "nobody goes on with it"
        seen, body = message(events(address, "/run/run/events?after=3", 1)[0])
        assert "harness" in body["parts"], "who comes from another time is sent all"


def test_what_trains_now_is_drawn_from_its_stored_rollouts(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", until="b1-s0/finished")
    (run / "trials" / "b1-s1").mkdir(parents=True)
    beat = {"pid": os.getpid(), "step": 2, "steps": 30, "phase": "training", "cpu_s": 21.5, "time": time.time()}
    (run / "trials" / "b1-s1" / "heartbeat").write_text(json.dumps(beat))
    spec = next(s for s in SPECS if s.name == "b1")
    with Ledger.open(run / "ledger.db"), RolloutStore(run / "rollouts" / "b1-s1") as store, serving(run) as address:
        for step in (1, 2):
            rows = [replace(r, id=f"{step}{r.id}", split="train", step=step, group="") for r in rollouts_of(spec, 1)]
            store.append(groups_of(rows))
        text = asked(address, "/run/run/")[1]
        first = text.partition('<section id="now">')
        assert "b1-s1 (branch) training 2 of 30" in first[0] and "2 of 30 steps" in first[2]
        data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])  # type: ignore[index]
        live = next(t for t in data["curves"]["b1"]["trials"] if t["seed"] == 1)
        assert live["x"] == [1, 2] and data["curves"]["b1"]["first"][:2] == ["reward", "rewards/format/mean"]
        paid = [r.components["hidden"] for r in rollouts_of(spec, 1)]
        assert live["y"]["rewards/hidden/mean"][0] == pytest.approx(sum(paid) / len(paid), rel=1e-3)
        assert 0 < live["y"]["frac_reward_zero_std"][0] < 1 and live["y"]["entropy"][0] == pytest.approx(0.18)
        seen, body = message(events(address, "/run/run/events", 1)[0])
        assert body["data"]["curves"]["b1"]["trials"][-1]["x"] == [1, 2] and body["driven"]
        assert seen > 0


def test_a_finished_run_opens_in_one_message(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    with serving(run) as address:
        seen, body = message(events(address, "/run/run/events", 1)[0])
        assert seen == len(story()) and len(body["parts"]) > 8


# -- starting ----------------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_and_a_folder_without_runs_are_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(ConfigError, match="another program serves there: give another --port"):
            listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigError, match="give --host 127.0.0.1"):
        listen("203.0.113.7", 0)
    with pytest.raises(ConfigError, match="there is no run in"):
        place_of(tmp_path)
    with pytest.raises(ConfigError, match="is no folder"):
        place_of(tmp_path / "nowhere")


def test_without_its_libraries_it_names_the_extra(runs: Path) -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from evotrainer.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "ui", str(runs)], capture_output=True, text=True, check=False)
    assert done.returncode == 6 and "[ui]" in done.stderr and "Traceback" not in done.stderr


def contents(run: Path) -> dict[str, bytes]:
    """What lies in a run folder, but for the index that SQLite keeps for its readers."""
    files = [p for p in sorted(run.rglob("*")) if p.is_file() and "-shm" not in p.name]
    return {str(p): data for p in files if (data := p.read_bytes())}


def test_looking_changes_no_byte(page: str, runs: Path) -> None:
    before = contents(runs / "done")
    for path in ("/", "/run/done/", "/run/done/branch/b1", "/run/done/rollouts", "/run/done/search?q=x"):
        assert asked(page, path)[0] == 200
    assert contents(runs / "done") == before
