"""Every view says a fact in the words of the list of facts; what it words itself is no fact of the list."""

from __future__ import annotations

import ast
import html
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from evotrainer.agents.briefing import render as briefing_text
from evotrainer.cli._ladder import print_ladder
from evotrainer.projections.facts import KINDS, FactList
from evotrainer.projections.history import cases
from evotrainer.projections.run_facts import facts_of
from evotrainer.records.console import Console
from evotrainer.records.ledger import Ledger
from evotrainer.verify import Record
from evotrainer.views.card import model_card
from evotrainer.views.fold import load_view
from evotrainer.views.folder import render_branch
from evotrainer.views.history import render_cases
from evotrainer.views.plain_data import branch_json
from evotrainer.views.report import render
from evotrainer.views.status import print_summary, render_status
from tests.agents.briefings import briefing
from tests.projections.test_facts import TABLE

SRC = Path(__file__).parents[2] / "src" / "evotrainer"
TERMINAL = {"status", "changes"}
"""Kinds that a terminal shows in the line above the others."""
PAGE = {k for k in KINDS if KINDS[k].label != "caveat"} - {
    "hypothesis",
    "measures",
    "no_caveat",
    "reader",
    "noise",
    "comparison",
    "harness",
    "taught",
    "unanswered",
}
"""Kinds that the page shows of every branch word for word."""


def words(text: str) -> str:
    """A text without its line breaks and marks, as it reads."""
    plain = html.unescape(re.sub(r"<[^>]+>", "", text))
    return re.sub(r"[`⏎]|\s+", "", re.sub(r"(evotrainer [a-z-]+) \S+", r"\1", plain))


def printed(*shown: object) -> str:
    console = Console(file=io.StringIO(), width=4000, highlight=False)
    for x in shown:
        console.print(x)
    return words(console.file.getvalue())  # type: ignore[attr-defined]


def missing(facts: FactList, text: str, without: set[str]) -> list[str]:
    return [f.text for f in facts if f.kind not in without and words(f.text) not in text]


ALTERED = {f"{kind}-{about}": run for run, about, kind, _ in reversed(TABLE)}
"""A history for each kind of the table of facts."""


@pytest.fixture(scope="module", params=["finished", "killed", *ALTERED])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param not in ALTERED:
        return Path(request.getfixturevalue(f"{request.param}_run"))
    made = tmp_path_factory.mktemp("altered")
    with Ledger.open(made / "ledger.db", create=True) as ledger:
        for e in ALTERED[request.param]():
            ledger.append(e.kind, e.id, e.body)
    return made


def test_views_of_a_branch_show_its_facts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = load_view(folder)
    with Ledger.open(folder / "ledger.db", readonly=True) as ledger:
        record = Record(folder, list(ledger.events()))
    assert view.facts == facts_of(record.events), "one list"
    page, tree = words(render(view)), printed(render_status(folder))
    for name, b in view.branches.items():
        shown = printed(render_branch(folder, name))
        assert not missing(b.facts, shown, set() if b.intervention else {"status"}), name
        assert missing(b.facts, tree, KINDS.keys() - (TERMINAL if b.intervention else {"changes"})) == [], name
        if b.known is not None:
            print_ladder(record, b.facts, name)
            assert not missing(b.facts, words(capsys.readouterr().out), {"status"}), name
        if b.intervention:
            assert not missing(b.facts, page, KINDS.keys() - PAGE), name
        shown = words(json.dumps(branch_json(b, view), ensure_ascii=False))
        assert all(words(c.text) in shown for c in b.facts.caveats), name


def test_views_of_a_run_show_its_facts_and_its_champions_caveats(folder: Path) -> None:
    view = load_view(folder)
    console = Console(file=io.StringIO(), width=4000, highlight=False)
    print_summary(folder, console)
    end = words(console.file.getvalue())  # type: ignore[attr-defined]
    run, own = view.facts.of(""), view.facts.of(view.champion)
    status, page = printed(render_status(folder)), words(render(view))
    pairs = [f"{what}{text}" for what, _, text in (f.text.partition(": ") for f in run.of_kinds("comparison"))]
    assert not missing(run, status, {"comparison", "diagnosis"}) and all(words(p) in status for p in pairs)
    assert not missing(FactList(run.of_kinds("diagnosis")[-1:]), status, set())
    assert not missing(FactList(run.of_kinds("diagnosis")[:1]), page.replace("The", "the"), set())
    assert not missing(FactList(run.of_kinds("result", "comparison")), end, set())
    assert not missing(FactList(run.of_kinds("result", "tasks")), page, set()) and all(words(p) in page for p in pairs)
    assert not missing(FactList((*own.caveats, *view.facts.unmeasured)), status, set())
    assert not missing(FactList(view.facts.unmeasured), page, set())
    assert not missing(FactList(own.caveats[:2]), page, set()) and not missing(FactList(own.caveats[:2]), end, set())
    if view.branches[view.champion].known:
        told = {"trial": "t", "seed": 1, "rule": "", "invalid": "", "caveats": [f.text for f in own.caveats]}
        card = words(model_card(view, view.champion, **told, certified=True, sha256="0", base="", name="m"))  # type: ignore[arg-type]
        parts = (
            *run.of_kinds("comparison", "noise", "tasks", "sandbox"),
            *run.unmeasured,
            *own.unmeasured,
            *own.caveats,
            *own.of_kinds("verdict", "effect", "audit"),
        )
        assert not missing(FactList(parts), card.replace("\\", ""), set())


def test_cases_and_the_briefing_show_the_effect_that_is_told_and_on_which_seeds(folder: Path) -> None:
    view = load_view(folder)
    with Ledger.open(folder / "ledger.db", readonly=True) as ledger:
        found = cases(list(ledger.events()))
    records = tuple(b.record() for b in view.state.branches.values())
    lineage = words(briefing_text(briefing(branches=records)))
    tables = (printed(render_cases(found, view.state)), words(briefing_text(briefing(cases=tuple(found)))))
    for c in found:
        own = view.facts.of(c.branch)
        fact, fresh = own.text("effect") or own.text("measured"), bool(own.text("effect"))
        figure = fact.partition(" at ")[0]
        assert bool(fact) is (c.effect is not None) and c.on_fresh_seeds is fresh
        for text, before in ((lineage, ""), *((t, c.kind) for t in tables)):
            assert words(f"{before} {figure}") in text, c.branch
            assert not fact or (words(f"{figure} on fresh seeds") in text) is fresh, c.branch


# -- a sentence stands in one file -------------------------------------------------------------------------------------

SPEAK = ("projections", "views", "cli/why.py", "cli/_ladder.py", "cli/status.py", "cli/show.py")


def sentences(path: Path) -> Iterator[str]:
    """Pieces of at least five words of the strings of a module, docstrings left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bare = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for n in ast.walk(tree):
        text = n.value if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in bare else ""
        if " " in text and len(re.findall(r"[A-Za-z]{2,}", text)) >= 5:
            yield text.strip(" ;,.")


def test_a_sentence_stands_in_one_file() -> None:
    files = [p for name in SPEAK for p in ([SRC / name] if name.endswith(".py") else sorted((SRC / name).glob("*.py")))]
    seen = Counter(s for p in files for s in set(sentences(p)))
    assert not [s for s, n in seen.items() if n > 1]
    templates = [p.read_text(encoding="utf-8") for p in sorted((SRC / "views" / "templates").glob("*.j2"))]
    assert not [s for s in seen for t in templates if s in t]
