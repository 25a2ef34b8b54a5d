"""The same thing in the same words and numbers, whichever command tells it; the answer first; each thing once."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.agents.moves import in_words
from evotrainer.cli import app
from evotrainer.cli.backtest import backtest
from evotrainer.cli.health import explained, health, held_by
from evotrainer.cli.show import show
from evotrainer.cli.why import why
from evotrainer.errors import ConfigError
from evotrainer.factors import FACTORS
from evotrainer.harness import render_text
from evotrainer.harness.evolving.render import history_lines
from evotrainer.judge.audits import _moves
from evotrainer.projections.caveats import answered
from evotrainer.projections.harness_lineage import Coevolution
from evotrainer.projections.labels import LABELS
from evotrainer.projections.state import RunState
from evotrainer.projections.text import value
from evotrainer.projections.trials import counts, labelled
from evotrainer.records.console import Console
from evotrainer.records.events import FromCache
from evotrainer.records.findings import Bottleneck, Finding, HealthReport
from evotrainer.records.ledger import Ledger
from evotrainer.views.evidence import HealthReading, finding_rows
from evotrainer.views.fold import load_view
from evotrainer.views.status import render_status
from evotrainer.views.summary import cost_lines
from evotrainer.views.tables import word_table
from evotrainer.views.trials import describe_labels, label_text, render_trials
from tests.views.test_coevolution import story

pytestmark = pytest.mark.xdist_group("loop")


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_health_answers_first_and_keeps_the_other_metrics_behind_all(
    finished: api.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    health(finished.folder)
    short = said(capsys).splitlines()
    health(finished.folder, every=True)
    whole = said(capsys).splitlines()
    assert re.match(r"Wrong first: |Worst: |Nothing wrong", short[2]), short[:4]
    metrics = {line for line in whole if re.match(r"- [\w/@]+: ", line)}
    shown = metrics & set(short)
    (left,) = [line for line in short if line.endswith(": --all")]
    assert int(left.split()[0]) == len(metrics) - len(shown) > len(shown) > 2
    assert any(line.startswith("- accuracy: ") for line in shown)
    assert not [line for line in metrics - shown if "(healthy: " in line], "what is outside its range is always told"


def test_health_explains_a_rise_by_the_promoted_change_and_names_its_harness(
    finished: api.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = "the score moved and nothing in the harness says why. Accuracy moved by +24.7 points; no detector"
    b = Bottleneck(name="unexplained", score=0.3, findings=(), explanation=moved)
    report = HealthReport(
        subject="b1@20 search", harness="h1", rollouts=9, groups=3, metrics=(), findings=(), bottlenecks=(b,)
    )
    events = story()
    proved = explained(events, RunState.of(events), "b2")
    assert proved.startswith("The score rose by its change, which was promoted: +10.0 points")
    told = render_text(report, every=False, size="score layer only", explained=proved)
    assert "Wrong first" not in told and proved in told and "Harness h1 (score layer only); 9 rollouts" in told
    assert "Wrong first: unexplained" in render_text(report, every=False, size="", explained="")
    fell = report.model_copy(update={"bottlenecks": (b.model_copy(update={"explanation": moved.replace("+", "-")}),)})
    assert "Wrong first" in render_text(fell, every=False, explained=proved), "a promotion explains no fall"
    health(finished.folder)
    out = said(capsys)
    version = re.search(r"^Harness (h\d+)", out, re.M).group(1)  # type: ignore[union-attr]
    size, builtin = held_by(finished.events(), version)
    assert f"Harness {version} ({size}); " in out and builtin != ("`evotrainer audit " in out)


def test_show_names_the_harness_that_health_names(finished: api.Run, capsys: pytest.CaptureFixture[str]) -> None:
    branch = finished.champion
    assert branch
    health(finished.folder)
    version = re.search(r"^Harness (h\d+)", said(capsys), re.M).group(1)  # type: ignore[union-attr]
    show(finished.folder, branch)
    assert re.search(rf"^read by +harness {version}\b", said(capsys), re.M)


@pytest.mark.parametrize("what", [None, "b0"])
def test_why_reads_the_ledger_once(
    finished: api.Run, what: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened, real = [], Ledger.open

    def counted(path: Path, **how: bool) -> Ledger:
        opened.append(path)
        return real(path, **how)

    monkeypatch.setattr(Ledger, "open", counted)
    why(finished.folder, what)
    assert len(opened) == 1 and "recomputed from the ledger" in said(capsys)


def test_audit_answers_first_and_full_is_all(finished: api.Run, capsys: pytest.CaptureFixture[str]) -> None:
    trial = str(finished.folder / "rollouts" / "b1-s1")
    app(["audit", trial, "--no-cache"], standalone_mode=False)
    first = said(capsys).splitlines()
    assert re.search(r"rollouts in 1 source; .*(worst finding|no finding)", first[0])
    app(["audit", trial, "--no-cache", "--all"], standalone_mode=False)
    whole = said(capsys)
    app(["audit", trial, "--no-cache", "--full"], standalone_mode=False)
    assert said(capsys) == whole and len(whole.splitlines()) > len(first)


def finding(claim: str, severity: str) -> Finding:
    return Finding(detector="dead_groups", kind="saturation", severity=severity, claim=claim)  # type: ignore[arg-type]


def test_a_finding_has_the_numbers_of_all_search_rollouts_and_says_so_where_it_has_not() -> None:
    def report(subject: str, *findings: Finding) -> HealthReport:
        return HealthReport(
            harness="h0", subject=subject, rollouts=8, groups=2, metrics=(), findings=findings, bottlenecks=()
        )

    alone = HealthReading.of(2, report("b1/2@9 search", finding("51% of 100 groups", "critical")))
    every = HealthReading.of(None, report("b1@9 search", finding("41% of 300 groups", "warn")))
    (row,) = finding_rows([alone, every])
    assert (row.finding.claim, row.severity, row.of) == ("41% of 300 groups", "warn", "")
    (row,) = finding_rows([alone])
    assert (row.finding.claim, row.severity, row.of) == ("51% of 100 groups", "critical", "seed 2, search")


def test_show_tells_the_findings_of_health(finished: api.Run, capsys: pytest.CaptureFixture[str]) -> None:
    from evotrainer.cli.health import readings_of

    branch = finished.champion or "b0"
    show(finished.folder, branch)
    text = " ".join(said(capsys).split())
    claims = [f for f in readings_of(finished.events(), branch)[-1].findings if not f.missing and f.severity != "info"]
    for f in claims[:3]:
        name = f.detector if f.detector == f.kind else f"{f.detector} (a case of {f.kind})"
        assert f"{f.severity} {name} {' '.join(f.claim.split())}" in text
    health(finished.folder, branch)
    whole = said(capsys)
    assert all(f.claim in whole for f in claims)


def test_why_tells_each_thing_once(finished: api.Run, capsys: pytest.CaptureFixture[str]) -> None:
    for v in finished.verdicts:
        why(finished.folder, v.branch)
        lines = [line.strip() for line in said(capsys).splitlines() if line.strip()]
        assert len(lines) == len(set(lines)), v.branch
        assert not [line for line in lines if line.startswith("changed") and re.search(r"\bnull\b|\bNone\b|[{]", line)]
        reason, gates = lines[1], [line.partition(": ")[2] for line in lines if re.match(r"\[(pass|FAIL|open)\]", line)]
        assert not [g for g in gates if f"; {g}" in reason]


def test_why_of_the_champion_is_why_of_its_branch(finished: api.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert finished.champion
    why(finished.folder, finished.champion)
    whole = said(capsys)
    why(finished.folder, "champion")
    assert said(capsys) == whole


def test_what_is_absent_has_one_word() -> None:
    assert value(None) == in_words(None) == "not set"
    assert "not set" in in_words({"a": None}) and "None" not in in_words({"a": None})


def test_the_verb_is_that_of_the_figures_as_shown() -> None:
    assert _moves(0.752, 0.601) == "falls from 75.2% to 60.1%"
    assert _moves(0.752, 0.753) == "rises from 75.2% to 75.3%"
    assert _moves(0.75204, 0.75196) == "goes from 75.2% to 75.2%"


def test_every_hypothesis_of_the_catalogue_is_a_reason() -> None:
    for m in (m for row in FACTORS.values() for m in row.all_moves()):
        assert len(m.why.split()) >= 4, f"{m.name}: {m.why}"
        assert not re.search(r"^\w+: ", m.why), f"{m.name} names a setting in place of a reason: {m.why}"


def test_a_gain_that_its_change_proved_is_no_gap_any_more() -> None:
    events = story()
    rose = [
        replace(e, body=e.body.model_copy(update={"numbers": {"move": 0.4}})) if e.id.startswith("gap/") else e
        for e in events
    ]
    told = answered(rose)
    assert list(told) == ["gap/b2"], "b1 is invalid: nothing explains its rise"
    assert told["gap/b2"] == "explained since by its change, which was promoted: +10.0 points"
    assert [g.branch for g, _ in Coevolution.of(rose).open_gaps] == []
    assert [g.branch for g, _ in Coevolution.of(events).open_gaps] == ["b2"], "no move is known of this one"
    lines = history_lines(rose, told)
    assert sum("explained since" in line for line in lines) == 1
    paid = [
        replace(e, body=e.body.model_copy(update={"trigger": "contradiction"})) if e.id == "gap/b2" else e for e in rose
    ]
    assert not answered(paid), "what is paid and wrong stays a gap, whatever was promoted"


def test_a_prediction_of_an_unknown_metric_is_refused_with_a_near_name(finished: api.Run) -> None:
    with pytest.raises(ConfigError, match=r"no metric is called 'proxygap'; did you mean proxy_gap"):
        backtest([str(finished.folder), "group_filter=zero_variance"], predict="proxygap down 0.1")
    with pytest.raises(ConfigError, match="METRIC up|down SIZE"):
        backtest([str(finished.folder), "group_filter=zero_variance"], predict="proxy_gap lower")


def test_labels_are_counted_with_what_they_are_of_and_explained(finished: api.Run) -> None:
    trials = labelled(finished.events())
    told = describe_labels(trials)
    branches = counts(t for t in trials if t.kind == "branch")
    assert (
        f"{sum(branches.values())} branches: {', '.join(f'{label_text(k)} {n}' for k, n in branches.items())}" in told
    )
    for label in counts(trials):
        assert f"{label_text(label)}: {LABELS[label]}" in told
    out = io.StringIO()
    Console(file=out, width=400).print(render_trials(trials))
    Console(file=out, width=400).print(render_status(finished.folder))
    assert out.getvalue().count(told) == 2


def test_show_names_what_there_is(finished: api.Run) -> None:
    with pytest.raises(ConfigError, match="branches: base, b0, b1"):
        show(finished.folder, "b99")


def test_what_the_cache_saved_is_named(finished: api.Run) -> None:
    view = load_view(finished.folder, rollouts=False)
    base = view.branches["base"].trials[0]
    assert base.finished is not None
    cached = FromCache(parts=("warm start 3f", "evaluation/gate 4e"), cpu_s=3.7, wall_s=4)
    hit = base.finished.model_copy(update={"steps": 0, "cached": cached})
    view.branches["base"].trials[0] = replace(base, finished=hit)
    cost = {name: text for name, text, *_ in cost_lines(view)}
    assert (
        "(3.7 s saved by the cache: 1 warm start, 1 evaluation)" in cost["CPU time"]
        and ", 0 from the cache" in cost["Trainings"]
    )


def test_a_table_of_words_breaks_between_them() -> None:
    out = io.StringIO()
    rows = [("b1", "lr 1 → 2, negative_weight 1 → 0.5, group_filter.kind none → ema", "yes")] * 2
    Console(file=out, width=44).print(word_table(("branch", "tried", "came true"), rows, "told below"))
    assert "negative_weight" in out.getvalue() and "came true" in out.getvalue() and "told below" in out.getvalue()
