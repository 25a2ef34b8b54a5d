"""The page in a real headless browser: it follows a run, survives its server, and runs nothing of what rollouts say."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from evotrainer.records.answers import read_answer
from evotrainer.records.ledger import Ledger
from evotrainer.records.rollout import groups_of
from evotrainer.records.store import RolloutStore
from tests.run.test_seat import GOOD, TASK, Paper, finish
from tests.ui.test_beside import QUESTION, command, waiting_run
from tests.ui.test_pages import append
from tests.ui_server import port_of, serving
from tests.views.conftest import ATTACK, hostile_body, hostile_rollout
from tests.views.test_report_in_browser import CONTRAST
from tests.whole_run import SPECS, build_run, rollouts_of

GOOD_CHANGES = json.loads(GOOD["proposal0"])["trials"][0]["changes"]
HOMOGLYPH = "se\u0430rch-96"
"""The third letter is Cyrillic."""


@pytest.fixture
def online(browser: Any) -> Any:
    """The browser with a network, its console empty."""
    browser.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
    )
    browser.get("about:blank")
    browser.get_log("browser")
    return browser


def show(browser: Any, url: str, theme: str = "light", width: int = 1400) -> None:
    media = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(url)


def until(true: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


def live(browser: Any) -> str:
    return str(browser.execute_script("return document.getElementById('live').textContent"))


def verdicts(browser: Any) -> str:
    return str(browser.find_element("css selector", "table.verdicts[data-csv]").text)


def test_a_row_appears_while_one_looks_and_a_server_that_was_killed_is_caught_up_with(
    online: Any, tmp_path: Path, runs: Path
) -> None:
    run = Path(shutil.copytree(runs / "early", tmp_path / "run"))
    with serving(run) as address:
        show(online, f"{address}run/run/")
        until(lambda: "event" in live(online), "the page follows")
        online.execute_script(
            "window.mine = 1; document.getElementById('b0').open = true;"
            "document.querySelectorAll('table.verdicts[data-csv] thead th')[5].click();"
        )
        assert "crash" not in verdicts(online) and "b6" not in verdicts(online)
        seen = append(run, "b3/judged")
        until(lambda: f"event {seen}" in live(online), "the event that was appended")
        rows = until(lambda: "rejected" in verdicts(online) and verdicts(online), "the verdict of b3")
        assert "b3" in rows and online.execute_script("return window.mine") == 1, "without a reload"
        kept = (
            "return [document.getElementById('b0').open, "
            "document.querySelectorAll('table.verdicts[data-csv] thead th')[5].ariaSort]"
        )
        assert online.execute_script(kept) == [True, "ascending"], "what was opened and sorted stays"
        assert online.execute_script("return document.querySelectorAll('#b0 .chart canvas').length") > 2
        assert online.get_log("browser") == []
    until(lambda: "lost" in live(online), "the page says that its server is gone")
    later = append(run, *rest_of_round())
    with serving(run, port=port_of(address)):
        until(lambda: f"event {later}" in live(online), "it caught up")
        assert online.execute_script("return window.mine") == 1
    said = {x["message"].partition(" - ")[2].split(":")[-1] for x in online.get_log("browser")}
    assert all("ERR_CONNECTION" in x or "ERR_INCOMPLETE" in x or "ERR_EMPTY" in x for x in said), said


def rest_of_round() -> tuple[str, str]:
    from tests.whole_run import story

    ids = [id for _, id, _ in story()]
    at = ids.index("b3/judged") + 1
    return ids[at], ids[at + 4]


def test_what_rollouts_say_is_text(online: Any, tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", body=hostile_body, rollout=hostile_rollout)
    odd = {"task": HOMOGLYPH, "group": "fake", "components": {"<img src=x onerror=window.pwned=9>": 1.0}}
    fake = [replace(r, id=f"{'f' * 30}{i:02d}", **odd) for i, r in enumerate(rollouts_of(SPECS[0], 0)[:4])]
    with RolloutStore(run / "rollouts" / "b0-s7") as store:
        store.append(groups_of(fake))
    with Ledger.open(run / "ledger.db", readonly=True) as ledger:
        assert ATTACK[:9] in str(ledger.events())
    with serving(run) as address:
        base = f"{address}run/run/"
        show(online, base)
        until(lambda: "event" in live(online), "the page follows")
        harmless(online)
        show(online, f"{base}branch/b2")
        harmless(online)
        show(online, f"{base}rollouts?branch=b0&sort=worst")
        online.execute_script(
            "const f = document.getElementById('text-search'); f.elements.q.value = 'onerror='; f.requestSubmit();"
        )
        found = "return document.querySelectorAll('#hits li').length"
        until(lambda: online.execute_script(found) >= 20, "hits of the search")
        harmless(online)
        online.execute_script("document.querySelector('#hits a').click()")
        until(lambda: online.execute_script("return !!document.getElementById('hit')"), "the hit is marked")
        assert online.execute_script("return document.getElementById('hit').textContent") == "onerror="
        place = "const r = document.getElementById('hit').getBoundingClientRect(); "
        assert online.execute_script(place + "return r.top >= 0 && r.bottom <= innerHeight"), "the page jumps to it"
        text = online.execute_script("return document.getElementById('main').textContent")
        assert not set(text) & set("\u202e\u200b\x1b") and "\\u202e" in text and "ze\\u200bro" in text
        harmless(online)
        show(online, f"{base}rollouts?component={quote('<img src=x onerror=window.pwned=9>>=1')}")
        assert "mixed alphabets" in online.find_element("css selector", ".group h2").text
        harmless(online)
        show(online, f"{base}rollout/{'f' * 30}00")
        assert "mixed alphabets" in online.find_element("css selector", "h1").text
        harmless(online)
        long = next(r for r in map(hostile_rollout, rollouts_of(SPECS[0], 0)) if len(r.completion) > 10**6)
        show(online, f"{base}rollout/{long.id}?quote=print(max#hit")
        assert len(online.page_source) < 600_000, "ten million letters are cut"
        harmless(online)


def harmless(browser: Any) -> None:
    assert browser.execute_script("return window.pwned") is None
    assert (
        browser.execute_script(
            "return document.querySelectorAll('main img, main iframe, main script, main style').length"
        )
        == 0
    )
    assert browser.get_log("browser") == []
    outside = (
        "return performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith(location.origin))"
    )
    assert [x for x in browser.execute_script(outside) if not x.startswith("data:")] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_fits_a_phone_and_can_be_read(online: Any, page: str, theme: str) -> None:
    for path in ("", "run/done/", "run/done/branch/b1", "run/done/rollouts?sort=spread"):
        show(online, page + path, theme, 390)
        wide = online.execute_script("return document.documentElement.scrollWidth")
        assert wide <= 390, (path, wide)
        ratio, where, seen = online.execute_script(CONTRAST)
        assert ratio >= 4.5 and seen > 15, (path, where)


def test_it_goes_by_the_keyboard_alone(online: Any, page: str) -> None:
    from selenium.webdriver.common.keys import Keys

    show(online, page + "run/done/rollouts?sort=spread")
    online.find_element("css selector", "body").send_keys(Keys.TAB)
    assert online.switch_to.active_element.text == "Skip to the report"
    link = online.find_element("css selector", ".attempts a")
    link.send_keys(Keys.ENTER)
    until(lambda: "/rollout/" in online.current_url, "the group opens")
    assert online.find_elements("css selector", ".attempt.chosen")
    before = online.execute_script("return document.querySelector('.columns').scrollLeft")
    online.find_element("css selector", "body").send_keys("jj")
    until(
        lambda: online.execute_script("return document.querySelector('.columns').scrollLeft") > before, "j goes right"
    )


def test_a_human_answers_with_the_address_that_was_printed(online: Any, tmp_path: Path) -> None:
    run = waiting_run(tmp_path)
    with command("ui", run, "--port", "0", "--allow-actions") as (_, printed):
        show(online, printed.replace("#", "run/run/#"))
        until(lambda: "event" in live(online), "the page follows")
        assert "token" not in online.current_url, "it stays in no history"
        online.execute_script("document.querySelector('#answer textarea').value = 'fine'")
        online.find_element("css selector", "#answer button[value=approve]").click()
        given = until(lambda: read_answer(run, QUESTION), "the answer lies in the run")
        assert (given.answer, given.words) == ("APPROVE", "fine")
        until(lambda: not online.find_elements("id", "question"), "the question goes away by itself")
        assert online.get_log("browser") == []


def test_rollouts_that_are_written_are_counted_and_shown_where_asked_for(online: Any, tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", until="b1/judged")
    with serving(run) as address:
        show(online, f"{address}run/run/rollouts?branch=b0")
        until(lambda: "rollouts" in live(online), "the page follows")
        online.execute_script("window.mine = 1; document.querySelector('[name=task]').value = 'typed'")
        before = heading(online)
        new = [
            replace(r, id=f"{'e' * 30}{i:02d}", group="new", step=99) for i, r in enumerate(rollouts_of(SPECS[0], 0))
        ]
        with RolloutStore(run / "rollouts" / "b0-s8") as store:
            store.append(groups_of([*new[:4], *(replace(r, branch="b1", group="other") for r in new[4:8])]))
        bar = online.find_element("id", "newer")
        until(bar.is_displayed, "the bar")
        assert bar.text == "4 newer: show", "only those that are asked for"
        assert heading(online) == before, "what is read does not move"
        bar.find_element("css selector", "button").click()
        until(lambda: heading(online) != before and not bar.is_displayed(), "they are shown")
        assert number(heading(online)) == number(before) + 4
        first = online.find_element("css selector", ".group .attempts a").get_attribute("href")
        assert "e" * 30 in first, "the last written are first"
        kept = online.execute_script("return [window.mine, document.querySelector('[name=task]').value]")
        assert kept == [1, "typed"], "without a reload"
        assert online.get_log("browser") == []


def heading(browser: Any) -> str:
    return str(browser.find_element("css selector", "#rollouts h1").text)


def number(text: str) -> int:
    return int(text.split()[0].replace(",", ""))


def test_a_run_that_is_deleted_while_one_looks_is_told_and_comes_back(online: Any, tmp_path: Path, runs: Path) -> None:
    run, away = Path(shutil.copytree(runs / "early", tmp_path / "run")), tmp_path / ".away"
    lost = "return document.getElementById('live').classList.contains('lost')"
    with serving(tmp_path) as address:
        for path in ("run/run/", "run/run/rollouts"):
            show(online, f"{address}{path}")
            until(lambda: "connecting" not in live(online), "the page follows")
            run.rename(away)
            until(lambda: online.execute_script(lost), "it is told")
            assert "moved or deleted" in live(online) and "evotrainer ui" in live(online)
            assert online.find_elements("css selector", "main h1"), "what was read stays"
            away.rename(run)
            until(lambda: not online.execute_script(lost), "it goes on by itself")
        show(online, address)
        names = "return [...document.querySelectorAll('.runs tbody th a')].map(a => a.textContent)"
        until(lambda: online.execute_script(names) == ["run"], "the list of runs")
        run.rename(away)
        until(lambda: online.execute_script(names) == [], "it is in no list any more")
        assert online.get_log("browser") == []


def test_a_seat_is_answered_in_the_browser_and_nothing_written_is_lost(online: Any, tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(TASK)
    options = ["run.agent_options.carrier=queue", "run.agent_options.timeout_s=120", "run.probes=2"]
    got: list[Any] = []
    folder = tmp_path / "run"
    worker = threading.Thread(target=lambda: got.append(Paper(finish).start(tmp_path / "task.toml", folder, options)))
    worker.start()
    until(lambda: (folder / "ledger.db").exists(), "the run begins")
    said = "return document.querySelector('#answer [role=status]').textContent"
    words = "return document.querySelector('#answer textarea').value"
    with command("ui", folder, "--port", "0", "--allow-actions") as (_, printed):
        show(online, printed.replace("#", "run/run/#"))
        until(lambda: online.find_elements("id", "answer"), "the request")
        text = online.find_element("id", "question").text
        assert "search 0 of round 1" in text and "the statistical agent chooses" in text
        assert "waits for an answer" in online.find_element("css selector", ".tiles").text
        online.execute_script(WRITE, '{"trials": [{"changes": {"lrr": 1}, "why": "x"}]}')
        online.find_element("css selector", "#answer button[value=propose]").click()
        until(lambda: "did you mean lr" in online.execute_script(said), "what is wrong is told")
        online.execute_script(WRITE, '{"trials": [')
        online.find_element("css selector", "#answer [data-add]").click()
        assert "no JSON" in online.execute_script(said)
        online.refresh()
        until(lambda: online.find_elements("id", "answer"), "the request")
        assert online.execute_script(words) == '{"trials": [', "what was written is there again"
        online.execute_script(WRITE, '{"trials": []}')
        for factor, value in (("group_size", "12"), ("prompts_per_step", "20")):
            fields = "[f.factor.value, f.value.value, f.why.value] = [...arguments, 'larger']"
            online.execute_script(f"const f = document.getElementById('answer').elements; {fields}", factor, value)
            online.find_element("css selector", "#answer [data-add]").click()
        online.find_element("css selector", "#answer button[value=check]").click()
        until(lambda: "valid" in online.execute_script(said), "it is checked")
        online.find_element("css selector", "#answer button[value=propose]").click()
        until(lambda: "proposal 0" in online.find_element("id", "main").text, "the next request")
        assert online.execute_script(words) == '{"format": "evotrainer-proposal-v1", "trials": []}'
        online.execute_script(WRITE, GOOD["proposal0"])
        online.find_element("css selector", "#answer button[value=propose]").click()
        worker.join(120)
        until(lambda: not online.find_elements("id", "question"), "the question goes away by itself")
        errors = [x for x in online.get_log("browser") if "409" not in x["message"]]
        assert errors == []
    with Ledger.open(folder / "ledger.db", readonly=True) as ledger:
        given = [e.body for e in ledger.events("answered")]
    trials = [[t.changes for t in a.proposal.trials] for a in given]
    assert trials == [[{"group_size": 12}, {"prompts_per_step": 20}], [GOOD_CHANGES]]
    assert all(a.by.endswith("in the browser") and "@" in a.by and a.at.startswith("20") for a in given)


WRITE = (
    "const t = document.querySelector('#answer textarea'); t.value = arguments[0];"
    "t.dispatchEvent(new Event('input', {bubbles: true}))"
)
