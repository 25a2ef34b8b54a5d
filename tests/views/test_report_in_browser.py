"""The report in a real headless browser, opened from disk with the network off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evotrainer.records.reading import load
from evotrainer.views.report import write_report

CLICK_ALL = """
const dialog = document.getElementById('rollout'), out = [];
for (const d of document.querySelectorAll('details.branch')) d.open = true;
for (const a of document.querySelectorAll('a.ro')) {
  a.click();
  const box = dialog.getBoundingClientRect(), \
pres = [...dialog.querySelectorAll('#ro-body > pre')].map(p => p.textContent);
  out.push({id: a.hash.slice(4), open: dialog.open, area: box.width * box.height, pres, text: dialog.innerText,
            mark: dialog.querySelector('mark')?.textContent ?? null, quote: a.dataset.quote ?? null});
  dialog.close();
}
return out;
"""
CHART_WIDTHS = """
return [...document.querySelectorAll('.chart')].filter(c => c.offsetParent && c.querySelector('canvas'))
  .map(c => [c.querySelector('canvas').getBoundingClientRect().width, c.getBoundingClientRect().width]);
"""
CONTRAST = """
const c = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = s => { c.clearRect(0, 0, 1, 1); c.fillStyle = s; c.fillRect(0, 0, 1, 1); \
const d = c.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
const lum = p => { const f = p.slice(0, 3).map(v => { v /= 255; \
return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
const back = e => { for (; e; e = e.parentElement) { \
const p = rgba(getComputedStyle(e).backgroundColor); if (p[3] > .99) return p; } return rgba('Canvas'); };
let worst = [99, ''];
for (const d of document.querySelectorAll('details')) d.open = true;
const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
const seen = new Set();
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || seen.has(e) || e.closest('script, option, title, .sr')) continue;
  seen.add(e);
  const s = getComputedStyle(e), svg = e instanceof SVGElement;
  const a = lum(rgba(svg ? s.fill : s.color)), b = lum(back(svg ? e.ownerSVGElement.parentElement : e));
  const r = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (r < worst[0]) worst = [r, e.outerHTML.slice(0, 120)];
}
return [...worst, seen.size];
"""


def visit(browser: Any, path: Path, theme: str = "light", width: int = 1400, anchor: str = "") -> None:
    media = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    )
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(path.as_uri() + anchor)


def quiet(browser: Any) -> None:
    """The page is up, its console is empty, nothing was fetched."""
    assert browser.execute_script("return document.documentElement.dataset.ready") == "1"
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').map(r => r.name)") == []


@pytest.fixture(scope="module")
def page(finished_run: Path) -> Path:
    return write_report(finished_run)


def test_it_opens_offline_without_a_word_on_the_console(browser: Any, page: Path) -> None:
    visit(browser, page)
    quiet(browser)
    assert browser.title == "quickstart · EvoTrainer report"
    assert "The champion solves 79.7% of unseen tasks" in browser.find_element("css selector", "h1").text


def test_every_rollout_link_opens_a_dialog_with_the_right_program(browser: Any, page: Path, finished_run: Path) -> None:
    visit(browser, page)
    seen = browser.execute_script(CLICK_ALL)
    stored = {r.id: r for r in load(sorted((finished_run / "rollouts").iterdir()))}
    assert len(seen) > 100
    for x in seen:
        r = stored[x["id"]]
        assert x["open"], x["id"]
        assert x["area"] > 50_000
        assert x["pres"][0] == r.prompt
        assert x["pres"][1] == r.completion
        assert all(str(t["expected"]) in x["text"] for t in r.detail["tests"])
        if x["quote"]:
            assert x["mark"] == x["quote"], "the quoted span is not marked"
    assert any(x["quote"] for x in seen)
    quiet(browser)


def test_a_click_opens_a_rollout_and_escape_closes_it(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    visit(browser, page, anchor="#b0")
    browser.find_element("css selector", "#b0 .quotes a.ro").click()
    dialog = browser.find_element("id", "rollout")
    assert dialog.is_displayed()
    assert "max() arg is an empty sequence" in dialog.text
    title = dialog.text
    dialog.find_element("id", "ro-next").click()
    assert dialog.text != title
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not dialog.is_displayed()


def test_a_rollout_can_be_linked_to(browser: Any, page: Path, finished_run: Path) -> None:
    visit(browser, page)
    id = browser.execute_script("return document.querySelector('a.ro').hash")
    told = browser.execute_script("return JSON.parse(document.getElementById('data').textContent).rollouts")[id[4:]]
    for anchor, says in ((id, told["task"]), (id[:16], told["task"]), ("#ro-", "give more digits"),
                         ("#ro-0000000000", "holds no such rollout")):  # fmt: skip
        visit(browser, page, anchor=anchor)
        assert says in browser.find_element("id", "rollout").text, "as it was quoted, a beginning is enough"


def test_the_tree_uses_the_width_and_no_text_leaves_its_box(browser: Any, page: Path) -> None:
    visit(browser, page)
    over = """return [...document.querySelectorAll('#tree a')].flatMap((a) => {
      const box = a.querySelector('rect').getBBox();
      return [...a.querySelectorAll('text')].filter((t) => t.getBBox().x + t.getBBox().width > box.width)
        .map((t) => t.textContent); })"""
    assert browser.execute_script(over) == []
    drawn, room = browser.execute_script(
        "const t = document.getElementById('tree'); return [t.firstChild.getBoundingClientRect().width, t.clientWidth]"
    )
    assert drawn > 0.9 * room


def test_on_a_phone_every_interval_has_its_axis(browser: Any, page: Path) -> None:
    visit(browser, page, width=390)
    shown = """return [...document.querySelectorAll('.verdicts td.wide')].filter((x) => x.querySelector('.plot')).map(
      (x) => [...x.querySelectorAll('.ticks.own text')].filter((t) => t.getBoundingClientRect().width > 0).length)"""
    counts = browser.execute_script(shown)
    assert counts and min(counts) > 1


BROKEN = """
for (const d of document.querySelectorAll('details')) d.open = true;
const out = [], words = (root) => {
  const w = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (w.nextNode()) {
    const n = w.currentNode;
    if (!n.parentElement.closest('td, th') || n.parentElement.closest('pre, code')) continue;
    for (const m of n.data.matchAll(/[A-Za-z]{3,10}/g)) {
      const r = document.createRange();
      r.setStart(n, m.index); r.setEnd(n, m.index + m[0].length);
      if (new Set([...r.getClientRects()].map(x => Math.round(x.top))).size > 1) out.push(m[0]);
    }
  }
};
document.querySelectorAll('.gates, .budget').forEach(words);
const dialog = document.getElementById('rollout');
for (const a of [...document.querySelectorAll('a.ro')].slice(0, 20)) { a.click(); words(dialog); dialog.close(); }
return out;
"""


def test_on_a_phone_no_table_breaks_its_words(browser: Any, page: Path) -> None:
    visit(browser, page, width=390)
    assert browser.execute_script(BROKEN) == []


def test_a_node_of_the_tree_leads_to_its_branch(browser: Any, page: Path) -> None:
    visit(browser, page)
    nodes = browser.find_elements("css selector", "#tree a")
    assert len(nodes) == 9, "base and b0 to b7"
    assert not browser.execute_script("return document.getElementById('b4').open")
    browser.find_element("css selector", "#tree a[href='#b4']").click()
    browser.execute_script("return new Promise(r => setTimeout(r, 100))")
    assert browser.execute_script("return document.getElementById('b4').open")
    top = browser.execute_script("return document.getElementById('b4').getBoundingClientRect().top")
    assert -5 < top < 500


def test_verdicts_differ_by_icon_and_word_not_only_by_colour(browser: Any, page: Path) -> None:
    visit(browser, page)
    icons = browser.execute_script(
        "return [...document.querySelectorAll('.verdicts .chip')]"
        ".map(c => [c.textContent.trim(), c.querySelector('use').getAttribute('href')])"
    )
    assert {tuple(i) for i in icons} >= {
        ("promoted over b0", "#i-promote"),
        ("invalid", "#i-invalid"),
        ("failed", "#i-failed"),
    }
    missing = browser.execute_script(
        "return [...document.querySelectorAll('use')]"
        ".filter(u => !document.querySelector(u.getAttribute('href'))).length"
    )
    assert missing == 0


def test_charts_stay_in_their_columns(browser: Any, page: Path) -> None:
    visit(browser, page, width=1200)
    boxes = browser.execute_script(CHART_WIDTHS)
    assert len(boxes) > 2
    assert all(plot <= column + 1 for plot, column in boxes), boxes


def test_learning_curves_are_drawn_for_all_seeds_and_any_metric(browser: Any, page: Path) -> None:
    visit(browser, page)
    inked = (
        "return [...document.querySelectorAll('#b5 canvas')]"
        ".map(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(x => x > 0))"
    )
    assert browser.execute_script(inked) == [True] * 6
    titles = "return [...document.querySelectorAll('#b5 .chart select')].map(s => s.value)"
    shown = ["reward", "score", "proxy_gap", "frac_reward_zero_std", "entropy", "completions/mean_length"]
    assert browser.execute_script(titles) == shown
    label = "return document.querySelector('#b5 .chart [role=img]').getAttribute('aria-label')"
    before = browser.execute_script(label)
    assert all(f"seed {s} from" in before for s in (0, 1, 2))
    assert "b1 mean from" in before
    browser.execute_script(
        "const s = document.querySelector('#b5 .chart select'); s.value = 'grad_norm'; "
        "s.dispatchEvent(new Event('change'))"
    )
    assert browser.execute_script(label).startswith("grad norm")
    quiet(browser)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.slow
def test_it_follows_the_systems_theme_with_readable_contrast(browser: Any, page: Path, theme: str) -> None:
    visit(browser, page, theme)
    shade = browser.execute_script("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(shade) > 600) == (theme == "light")
    ratio, where, checked = browser.execute_script(CONTRAST)
    assert checked > 500
    assert ratio >= 4.5, f"contrast {ratio:.2f} of {where}"


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_makes_the_page_scroll_sideways(browser: Any, page: Path, width: int) -> None:
    visit(browser, page, width=width)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_hostile_text_is_shown_and_never_run(browser: Any, hostile_run: Path) -> None:
    visit(browser, write_report(hostile_run))
    seen = browser.execute_script(CLICK_ALL)
    assert len(seen) > 100
    assert all(x["open"] and "</script><script>window.pwned=1</script>" in x["text"] for x in seen)
    assert not set().union(*(x["text"] for x in seen)) & set("\x1b\x00\u202e\u200b")
    assert any("more characters on this line" in x["text"] for x in seen), "the ten-million-character line is missing"
    assert browser.execute_script("return window.pwned") is None
    assert "window.pwned=1" in browser.find_element("tag name", "main").text
    quiet(browser)


def test_even_an_unescaped_script_would_not_run(browser: Any, page: Path, tmp_path: Path) -> None:
    """The content security policy is a second wall: break the first one on purpose."""
    broken = tmp_path / "broken.html"
    broken.write_text(
        page.read_text().replace(
            "</main>", "<script>window.pwned=1</script><img src=x onerror='window.pwned=2'></main>"
        )
    )
    visit(browser, broken)
    assert browser.execute_script("return document.documentElement.dataset.ready") == "1"
    assert browser.execute_script("return window.pwned") is None
    assert any("Content Security Policy" in x["message"] for x in browser.get_log("browser"))


def test_an_unfinished_run_says_so(browser: Any, killed_run: Path) -> None:
    visit(browser, write_report(killed_run))
    quiet(browser)
    notice = browser.find_element("id", "unfinished")
    assert notice.is_displayed()
    assert "evotrainer resume" in browser.find_element("id", "next").text
    browser.execute_script("document.getElementById('b1').open = true")
    text = browser.find_element("id", "b1").text
    assert "train step 8 of 30" in text
    assert "no verdict yet" in text.lower()


def test_a_branch_has_one_colour_in_every_chart(browser: Any, page: Path) -> None:
    visit(browser, page)
    shown = browser.execute_script("""
      for (const d of document.querySelectorAll('details.branch')) d.open = true;
      const stroke = (key) => getComputedStyle(key.querySelector('line')).stroke;
      const keys = (root) => [...root.querySelectorAll('.keys span')];
      return new Promise((done) => setTimeout(() => done({
        means: Object.fromEntries(keys(document.getElementById('all-curves')).map((k) => [k.textContent, stroke(k)])),
        seeds: keys(document.getElementById('b5')).map((k) => [k.textContent, stroke(k)]),
      }), 300));
    """)
    assert len(set(shown["means"].values())) == 8
    own, parent = shown["means"]["b5"], shown["means"]["b1"]
    start = ["b0 (start) mean", shown["means"]["b0"]]
    assert shown["seeds"] == [["seed 0", own], ["seed 1", own], ["seed 2", own], ["b1 mean", parent], start]


def test_rewards_of_branches_that_pay_other_components_are_not_compared_without_a_word(
    browser: Any, page: Path
) -> None:
    visit(browser, page)
    first = browser.execute_script(
        "return [...document.querySelectorAll('#all-curves .chart select')].map((s) => s.value)"
    )
    assert first[0] == "score" and "reward" not in first, "b0 pays visible tests, the others hidden ones"
    told = browser.execute_script("""
      const chart = document.querySelector('#all-curves .chart'), select = chart.querySelector('select');
      select.value = 'reward'; select.dispatchEvent(new Event('change'));
      document.getElementById('b1').open = true;
      return new Promise((done) => setTimeout(() => done([
        chart.querySelector('.remark').textContent, document.querySelector('#b1 .remark').textContent,
        document.querySelector('#all-curves p.keys').textContent]), 300));
    """)
    assert told[0].startswith("Each branch is shown by what it pays itself (b0: visible 1; b1: hidden 1; ")
    assert told[1] == "b0 is not drawn: it pays visible 1, b1 hidden 1."
    assert told[2] == "Bands: from the lowest to the highest seed."
