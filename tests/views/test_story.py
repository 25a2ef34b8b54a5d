"""The story of a run at the top of its report: built from the record alone, at any moment of any run."""

from __future__ import annotations

import re
from pathlib import Path

from evotrainer.projections.facts import Fact, FactList
from evotrainer.views.first_screen import tiles
from evotrainer.views.fold import load_view, view_of
from evotrainer.views.report import write_report
from evotrainer.views.story import doubts, story
from tests.projections.test_facts import void
from tests.whole_run import build_run


def parts(run: Path) -> dict[str, str]:
    return {p.title: " ".join((*p.lines, p.more)) for p in story(load_view(run))}


def test_it_tells_what_was_wrong_changed_doubted_and_not_taken(finished_run: Path) -> None:
    told = parts(finished_run)
    wrong = told["What was wrong"]
    assert "pays `visible` (passes every visible test)" in wrong and "a gap of 14.9 points" in wrong
    assert "The diagnosis of round 1 ranks the proxy gap first: 15 of 100 programs" in wrong
    changed = told["What was changed"]
    assert "b1: `rewards: - visible, + hidden 1`, because Paying visible tests leaves" in changed
    assert "+12.1 points [+8.4, +15.8] on the gate split" in changed and "because 59% of the groups" in changed
    assert "Nothing could be audited" in told["What stays in doubt"]
    lost = told["What was not taken"]
    assert "b4, `length" in lost and "vetoed before training; 97% of the rollouts" in lost
    assert "1 proposal got no training" in lost


def test_it_stands_before_the_figures_and_names_no_champion_where_there_is_none(tmp_path: Path) -> None:
    run = build_run(tmp_path, until="b2/judged")
    page = write_report(run).read_text()
    assert page.index("What was wrong") < page.index('id="lineage"')
    told = parts(build_run(tmp_path / "early", until="r1/proposed"))
    assert "What was changed" not in told
    assert told["What stays in doubt"].startswith("Nothing is certified")
    assert "What was wrong" in told


def test_a_shortcut_that_was_closed_is_told_as_a_change_and_its_start_as_void() -> None:
    view = view_of(void())
    (changed,) = (p.lines for p in story(view) if p.title == "What was changed")
    told = "Starting recipe trained again, the shortcut key closed (answer → other), as b9"
    assert changed[0] == f"{told}."
    found, tried, proven, _ = tiles(view)
    assert found.text.startswith("The key can be read. With key closed 90.0% of b0 become 20.0%")
    assert tried.text.startswith(told)
    assert "void" in proven.text, "there is no comparison with the base policy"


def test_before_anything_is_known_nothing_is_claimed(tmp_path: Path) -> None:
    assert set(parts(build_run(tmp_path, until="run"))) <= {"What stays in doubt"}


def test_the_metrics_of_a_decision_stand_open_and_the_rest_is_folded(finished_run: Path) -> None:
    page = write_report(finished_run).read_text()
    branch = page.partition('id="b5"')[2].partition("</details>\n</details>")[0].partition("<h4>Evidence</h4>")[2]
    first, _, rest = branch.partition("metrics in three layers")
    rows = [len(re.findall(r'<th scope="row" title="', part.partition("</details>")[0])) for part in (first, rest)]
    assert 0 < rows[0] <= 8 and rows[1] > rows[0]
    assert "proxy gap (paid minus meant)" in first


def test_what_is_paid_and_wrong_stands_beside_a_gain_that_is_proved(tmp_path: Path) -> None:
    view = load_view(build_run(tmp_path))
    gap = Fact(kind="unanswered", about=view.champion, text="robust rose by 8 points more")
    view.facts = FactList((*view.facts, gap))
    assert view.branches[view.champion].status == "promote"
    assert list(doubts(view))[-1] == f"Beside its proved gain, in {view.champion} robust rose by 8 points more."
