"""Keys of the record are told in words, one name for each figure of noise, and a gap says of what it speaks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from evotrainer.harness.bottlenecks import KINDS
from evotrainer.harness.registry import METRICS
from evotrainer.projections import words
from evotrainer.projections.caveats import describe_gap
from evotrainer.records.detectors import Admission, DetectorSpec
from evotrainer.records.events import GapSeen
from evotrainer.records.ledger import Ledger
from evotrainer.views.fold import load_view
from evotrainer.views.folder import render_branch
from evotrainer.views.report import write_report
from evotrainer.views.report_data import page_data
from evotrainer.views.status import render_status
from tests.views.test_report_in_browser import visit
from tests.views.test_terminal import rendered

DOCS = Path(__file__).parents[2] / "docs"


def test_every_metric_of_the_harness_and_every_kind_has_words() -> None:
    import evotrainer.harness.metrics  # noqa: F401  (registers them)

    assert METRICS
    told = [words.metric(n) for n in METRICS] + [words.kind(k) for k in KINDS]
    assert not [t for t in told if re.search(r"[_/]", t)]
    assert words.metric("rewards/robust/mean") == "robust: mean reward"
    assert words.metric("harness: pass_rate/ops=2") == "share solved where ops is 2 (train, as the harness read it)"
    assert words.metric("my/new_metric") == "my, new metric"


def test_every_key_that_a_menu_shows_has_words(finished_run: Path) -> None:
    data = page_data(load_view(finished_run))
    keys = {k for c in data["curves"].values() for t in c["trials"] for k in t["y"]}
    assert keys <= set(data["words"])
    assert not [t for t in data["words"].values() if "_" in t or "/" in t]
    assert data["compare"]["b2"]["label"] == "b2: entropy_bonus: 0 → 0.01"


def test_menus_show_words_and_keep_the_key_for_commands(browser: Any, finished_run: Path) -> None:
    visit(browser, write_report(finished_run))
    shown = browser.execute_script("return [...document.querySelectorAll('.chart option')].map((o) => o.textContent)")
    assert shown and not [t for t in shown if "_" in t or "/" in t]
    keys = browser.execute_script("return [...document.querySelectorAll('.chart select')].map((s) => s.title)")
    assert "proxy_gap" in keys
    rows = "return [...document.querySelectorAll('#sides tr')].filter((r) => r.querySelector('th[title]') && !r.hidden)"
    before = len(browser.execute_script(rows))
    assert 0 < before <= 8
    browser.execute_script("document.getElementById('side-all').click()")
    browser.execute_script("document.querySelector('#sides .more').click()")
    assert len(browser.execute_script(rows)) > before, "the rest was folded"


def test_a_figure_of_noise_has_one_name_everywhere(finished_run: Path) -> None:
    page = write_report(finished_run).read_text().lower()
    for name in (words.RUN_FLOOR, words.LOOK_FLOOR, words.SEED_SD):
        assert name in page
        assert name in (DOCS / "read-a-verdict.md").read_text().lower(), name
        assert name in (DOCS / "judge.md").read_text().lower(), name
    assert words.RUN_FLOOR in rendered(render_status(finished_run))
    assert words.RUN_FLOOR in (DOCS / "commands" / "status.md").read_text().lower()
    assert words.LOOK_FLOOR in " ".join(rendered(render_branch(finished_run, "b1")).split())
    assert "repeated trials differ" not in page


def gap(**numbers: float) -> GapSeen:
    claim = "the score moved by +16.2 points (+4.0 standard errors, 100 tasks) and no finding says why"
    return GapSeen(
        round=0, branch="b0", against="base", trigger="score_move", harness="h0", claim=claim, numbers=numbers
    )


def test_a_gap_says_of_which_trainings_and_by_which_harness(finished_run: Path) -> None:
    assert gap(trials=1.0).summary.endswith("no finding says why (one training alone, harness h0)")
    assert gap(trials=3.0).summary.endswith("(3 trainings together, harness h0)")
    assert gap().summary.endswith("(harness h0)")
    named = (DetectorSpec(name=n, form="threshold", feature="words", value=3) for n in ("mined_a", "mined_b"))
    signs = [Admission(detector=d, admitted=d.name == "mined_a", reason="") for d in named]
    found = gap(trials=2.0).model_copy(update={"considered": tuple(signs)}).summary
    assert found.endswith("(2 trainings together, harness h0; since then mined_a tells what goes with it)")
    assert describe_gap([], gap(trials=1.0)) == gap(trials=1.0).summary


def test_a_gap_agrees_with_what_a_later_harness_finds_in_that_branch(finished_run: Path) -> None:
    seen = gap(trials=1.0)
    with Ledger.open(finished_run / "ledger.db") as ledger:
        event = next(e for e in ledger.events() if e.id == "r1/diagnosed")
    health = event.body.health
    later = health.model_copy(update={"harness": "h1", "subject": "b0@20 search"})
    events = [replace(event, body=event.body.model_copy(update={"health": later}))]
    assert re.search(r"; harness h1 finds in b0: proxy gap", describe_gap(events, seen))
    after = replace(event, id="gap/b0", kind="gap", body=seen)
    assert describe_gap([after, *events], seen) == describe_gap(events, seen), "read after the gap was seen"
    assert describe_gap([*events, after], seen) == seen.summary, "read before: the gap was seen although"
    other = health.model_copy(update={"harness": "h1", "subject": "b7@20 search"})
    events = [replace(event, body=event.body.model_copy(update={"health": other}))]
    assert describe_gap(events, seen) == seen.summary, "of another branch"
