"""The page beside a run, an audit that is served, a human's answer in the browser."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evotrainer.cli import _page
from evotrainer.cli._page import page_beside
from evotrainer.records.answers import read_answer
from evotrainer.records.events import GateAsked
from evotrainer.records.ledger import Ledger
from evotrainer.ui import places
from evotrainer.views.style import MARK
from evotrainer.views.summary import Standing
from tests.ui_server import asked, port_of, serving
from tests.whole_run import build_run


@contextmanager
def command(*words: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command that serves; with the address that it printed."""
    with subprocess.Popen(
        [sys.executable, "-m", "evotrainer", *map(str, words)], stdout=subprocess.PIPE, text=True
    ) as p:
        try:
            assert p.stdout is not None
            shown = next(x for x in p.stdout if x.startswith("page: "))
            yield p, shown.split()[1]
        finally:
            p.terminate()
            p.wait(60)


def eventually(address: str, path: str, what: str) -> str:
    end = time.monotonic() + 60
    text = ""
    while time.monotonic() < end:
        text = asked(address, path)[1]
        if what in text:
            return text
        time.sleep(0.3)
    raise AssertionError(f"no {what!r} in {text[:3000]}")


def test_the_page_stands_beside_a_run_from_before_it_begins_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with page_beside(tmp_path / "run", True):
        address = capsys.readouterr().out.split()[1]
        text = eventually(address, "/run/run/", "it has not begun")
        assert "What to do" in text
        build_run(tmp_path / "run", until="b0-s1/finished")
        assert 'id="lineage"' in eventually(address, "/run/run/", 'id="summary"')
        assert asked(address, "/")[0] == 307
    with pytest.raises(OSError):
        asked(address, "/")


def test_the_page_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from evotrainer.cli._page import page_beside\n"
        "with page_beside(Path(sys.argv[1]), True): time.sleep(300)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout is not None
        address = p.stdout.readline().split()[1]
        eventually(address, f"/run/{tmp_path.name}/", "What to do")
        p.send_signal(signal.SIGKILL)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            asked(address, "/")
        except OSError:
            return
        time.sleep(0.2)
    raise AssertionError("the page outlives its run")


def test_a_run_goes_on_where_there_can_be_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with page_beside(tmp_path, True):
        assert "[ui]" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(_page.subprocess, "Popen", lambda *a, **k: (_ for _ in ()).throw(OSError("no process")))
    with page_beside(tmp_path, True):
        assert "the run goes on" in capsys.readouterr().err


def test_an_audit_is_served_with_its_findings_and_all_rollouts(tmp_path: Path) -> None:
    texts = ("42", "import sys\nsys.exit(0)", "import sys\nsys.exit(0)")
    rows = [
        {
            "task": f"t{i // 4}",
            "prompt": f"What is {i // 4} and 1?",
            "completion": texts[i % 3],
            "reward": 1.0,
            "step": 1,
        }
        for i in range(64)
    ]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with command("audit", tmp_path / "mine.jsonl", "--serve", "--no-cache", "--port", "0") as (_, address):
        status, text, _ = asked(address, "/run/audit/")
        assert status == 200 and '<section id="kinds">' in text and "/run/audit/rollout/" in text
        link = re.search(r'href="(/run/audit/rollout/[^"]+)#hit"', text)[1]  # type: ignore[index]
        status, group, _ = asked(address, link)
        assert status == 200 and group.count('<article class="card attempt') == 4
        assert re.search(r'<a class="flag" href="/run/audit/#readings">\w+</a>: [^<]{20}', group)
        listed = asked(address, "/run/audit/rollouts")[1]
        assert "64 rollouts" in listed and "16 groups" in listed
        assert "Flagged by" in listed and '<option value="flagged" selected>' in listed
        first = ["⚑" in g for g in listed.split("card group")[1:]]
        assert any(first) and first == sorted(first, reverse=True), "flagged ones before all others"
        detector = re.search(r'name="finding">.*?<option value="([a-z_]+)"', listed, re.S)[1]  # type: ignore[index]
        assert "⚑" in asked(address, f"/run/audit/rollouts?finding={detector}")[1]
        assert '"hits": ' in asked(address, "/run/audit/search?q=sys.exit")[1]


# -- answers -----------------------------------------------------------------------------------------------------------


QUESTION = "r1/gate/verdict/b1/asked"


def waiting_run(tmp_path: Path) -> Path:
    """A run that waits for a human."""
    run = build_run(tmp_path / "run", until="b1/judged")
    with Ledger.open(run / "ledger.db") as ledger:
        asks = GateAsked(round=1, where="verdict", text="Promote b1?", branch="b1")
        ledger.append("gate_asked", QUESTION, asks)
    return run


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    return waiting_run(tmp_path)


def send(address: str, **headers: str) -> tuple[int, str]:
    c = http.client.HTTPConnection("127.0.0.1", port_of(address.partition("#")[0]), timeout=60)
    body = json.dumps({"to": QUESTION, "answer": "revise", "words": "leave the reward"})
    try:
        c.request("POST", "/run/run/answer", body, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = c.getresponse()
        return answer.status, answer.read().decode()
    finally:
        c.close()


def test_only_the_page_with_the_token_answers_and_once(waiting: Path) -> None:
    with command("ui", waiting, "--port", "0", "--allow-actions") as (_, printed):
        address, _, token = printed.partition("#token=")
        assert len(token) > 20
        text = asked(address, "/run/run/")[1]
        assert "waits for a human" in text and "Promote b1?" in text and 'id="answer"' in text and token not in text
        own = address.rstrip("/")
        good = {"X_EvoTrainer_Token": token, "Origin": own}
        assert send(address, Origin=own)[0] == 403
        assert send(address, **{**good, "X_EvoTrainer_Token": "x" * len(token)})[0] == 403
        assert send(address, **{**good, "Origin": "http://evil.example"})[0] == 403
        assert send(address, X_EvoTrainer_Token=token)[0] == 403, "without an origin"
        assert send(address, **{**good, "Host": "evil.example"})[0] == 403
        assert read_answer(waiting, QUESTION) is None
        status, said = send(address, **good)
        assert status == 200 and "revise" in said
        given = read_answer(waiting, QUESTION)
        assert given and given.words == "leave the reward" and "in the browser" in given.by
        assert send(address, **good)[0] == 409, "the first answer counts"
        assert (
            text.index("<form") < text.index("<summary>The verdict gate of round 1, of b1") < text.index("Promote b1?")
        )
        assert asked(address, "/run/run/", "POST")[0] == 405


def test_a_run_that_waits_is_a_row_and_says_who_goes_on(waiting: Path) -> None:
    with serving(waiting.parent) as address:
        row = asked(address, "/")[1].partition('id="run-run"')[2].partition("</tr>")[0]
        assert "waits for an answer" in row and "data-sort=" in row
        text = asked(address, "/run/run/")[1]
        now = text.partition("<h3>Now</h3>")[2].partition("</a>")[0]
        assert "at the verdict gate of round 1, of b1 since" in now and "no process drives it" in now
        with Ledger.open(waiting / "ledger.db"):  # somebody drives it
            text = asked(address, "/run/run/")[1]
        now = text.partition("<h3>Now</h3>")[2].partition("</a>")[0]
        assert "waits for an answer" in now and "evotrainer answer" in now and "left" not in now


def test_each_standing_has_its_own_words_and_a_mark() -> None:
    assert len({s.value[0] for s in Standing}) == len(Standing) and all(s.value[1] in MARK for s in Standing)


def test_an_error_in_one_row_stays_in_it_and_is_logged(
    waiting: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    build_run(waiting.parent / "done")
    usual = places.row_of
    monkeypatch.setattr(places, "row_of", lambda name, *a: {}["odd"] if name == "run" else usual(name, *a))
    html = places.RunsPlace(waiting.parent)._rendered().html
    row = html.partition('id="run-run"')[2].partition("</tr>")[0]
    assert "cannot be read" in row and "odd" in row and "KeyError" in caplog.text
    assert "ended" in html.partition('id="run-done"')[2].partition("</tr>")[0]


def test_nobody_answers_where_it_was_not_allowed(waiting: Path) -> None:
    with command("ui", waiting, "--port", "0") as (_, address):
        text = asked(address, "/run/run/")[1]
        assert "evotrainer answer" in text and 'id="answer"' not in text
        assert send(address, Origin=address.rstrip("/"))[0] == 405
    words = [sys.executable, "-m", "evotrainer", "ui", str(waiting), "--allow-actions", "--host", "0.0.0.0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "for this machine alone" in done.stderr
