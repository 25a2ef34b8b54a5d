"""The audit's report in a real headless browser, opened from disk with the network off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evotrainer.studies.audit.quoted import write_html
from tests.views.audits import IDS, hostile, read, write_steps
from tests.views.test_report_in_browser import CHART_WIDTHS, CLICK_ALL, CONTRAST, quiet, visit


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    return write_html(read(write_steps(folder / "steps.jsonl")), folder / "audit.html")


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_html(hostile(), tmp_path_factory.mktemp("hostile-audit") / "audit.html")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_opens_offline_without_a_word_on_the_console(browser: Any, page: Path, theme: str) -> None:
    visit(browser, page, theme)
    quiet(browser)
    assert "audit" in browser.title
    assert "in 384 rollouts" in browser.find_element("css selector", "h1").text
    shade = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert shade == ("rgb(247, 246, 243)" if theme == "light" else "rgb(19, 22, 25)")


def test_every_rollout_link_opens_with_the_quoted_span_marked(browser: Any, page: Path) -> None:
    visit(browser, page)
    seen = browser.execute_script(CLICK_ALL)
    assert seen
    assert all(x["open"] and x["area"] > 50_000 for x in seen)
    assert all(x["mark"] == x["quote"] for x in seen if x["quote"])
    assert all("Reward components" in x["text"] and "weight 1" in x["text"] for x in seen)
    quiet(browser)


def test_curves_are_drawn(browser: Any, page: Path) -> None:
    visit(browser, page)
    inked = (
        "return [...document.querySelectorAll('#s0-0 canvas')]"
        ".map(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(x => x > 0))"
    )
    assert browser.execute_script(inked) == [True] * 7
    names = browser.execute_script(
        "return [...document.querySelectorAll('#s0-0 .chart select')].map(s => s.selectedOptions[0].text)"
    )
    assert names[:4] == ["reward", "score", "visible: mean reward", "hidden: mean reward"]


def test_charts_stay_in_their_columns(browser: Any, page: Path) -> None:
    visit(browser, page, width=1200)
    boxes = browser.execute_script(CHART_WIDTHS)
    assert len(boxes) > 2
    assert all(plot <= column + 1 for plot, column in boxes), boxes


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_in_both_themes(browser: Any, page: Path, theme: str) -> None:
    visit(browser, page, theme)
    worst, where, seen = browser.execute_script(CONTRAST)
    assert seen > 100
    assert worst >= 4.5, where


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_makes_the_page_scroll_sideways(browser: Any, page: Path, hostile_page: Path, width: int) -> None:
    for path in (page, hostile_page):
        visit(browser, path, width=width)
        browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_hostile_text_is_shown_and_never_run(browser: Any, hostile_page: Path) -> None:
    visit(browser, hostile_page)
    quiet(browser)
    seen = browser.execute_script(CLICK_ALL)
    assert {x["id"] for x in seen} == {f"r{i}" for i in range(len(IDS))}
    assert all(x["open"] and "</script><script>window.pwned=1</script>" in x["text"] for x in seen)
    assert all(c not in x["text"] for x in seen for c in "\x1b\x00\u202e")
    assert all("turns not shown" in x["text"] for x in seen)
    assert any(x["mark"] == "the needle of 5" for x in seen), "the span inside a line of ten million characters"
    assert browser.execute_script("return window.pwned") is None
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert "window.pwned=1" in browser.find_element("tag name", "main").text
    quiet(browser)


UNKNOWN = ("#ro-constructor", "#ro-__proto__")


@pytest.mark.parametrize("anchor", [*UNKNOWN, "#%zz", "#ro-r0"])
def test_any_address_opens(browser: Any, hostile_page: Path, anchor: str) -> None:
    visit(browser, hostile_page, anchor=anchor)
    quiet(browser)
    assert browser.find_element("id", "rollout").is_displayed() == anchor.startswith("#ro-")
    assert ("holds no such rollout" in browser.find_element("id", "ro-body").text) == (anchor in UNKNOWN)
