"""`projections.history`: cases, the search trace, and nothing is tried twice unless a cited assumption changed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from evotrainer import api
from evotrainer.agents.briefing import render
from evotrainer.agents.changes import earlier_attempt
from evotrainer.cli.cases import cases as cases_command
from evotrainer.projections.history import PresentSituation, cases, changed_since, likeness
from evotrainer.projections.predictions import outcomes
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.events import HarnessEvolved
from evotrainer.records.findings import Finding
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.views.fold import view_of
from tests.letters_on_paper import QUICK, WARM, Go


def iv(recipe: Any, factor: str, new: Any, **more: str) -> Intervention:
    return Intervention(
        factor=factor,
        old=recipe.factors().get(factor),
        new=new,
        hypothesis="if it changes, the score rises, because we say so",
        prediction=Prediction(metric="accuracy", direction="up", size=0.01),
        success_criterion="gate +1",
        rollback="champion",
        **more,
    )


class Scripted:
    """Round -> what it proposes; remembers its briefings."""

    name = "scripted"

    def __init__(self, *rounds: list[tuple[str, Any, dict[str, str]]]) -> None:
        self.rounds, self.briefings = rounds, {}

    def propose(self, briefing: Briefing, tools: object) -> Proposal:
        self.briefings[briefing.round] = briefing
        wanted = self.rounds[briefing.round - 1]
        return Proposal(
            agent=self.name,
            interventions=tuple(iv(briefing.champion.recipe, f, new, **more) for f, new, more in wanted),
        )


@pytest.fixture
def again(task_file: Any, letters_paper: Any, tmp_path: Any) -> tuple[api.Run, Scripted]:
    """b1 (colder) is rejected, b2 (warmer) promoted; then the first is proposed in five ways on the new champion."""
    agent = Scripted(
        [("lr", 2e-3, {}), ("temperature", 1.3, {})],
        [
            ("lr", 2e-3, {}),
            ("lr", 2e-3, {"reopens": "b1", "changed": "recipe.kl_beta"}),
            ("lr", 2e-3, {"reopens": "b2", "changed": "recipe.temperature"}),
            ("kl_beta", 0.1, {"reopens": "b1", "changed": "recipe.temperature"}),
            ("lr", 2e-3, {"reopens": "b1", "changed": "recipe.temperature"}),
            ("temperature", 1.0, {}),
        ],
    )
    more = ["run.rounds=2", "run.branches=2", "run.veto=false"]
    return letters_paper.start(task_file, tmp_path / "run", [*QUICK, *more], agent=agent), agent


def test_a_repetition_is_refused_unless_what_it_cites_has_changed(again: tuple[api.Run, Scripted]) -> None:
    run, _ = again
    assert [v.kind for v in run.verdicts[:2]] == ["promote", "reject"] and run.state.branches["b2"].version == "v1"
    refused = {e.body.index: e.body.reason for e in run.events() if e.kind == "refused"}
    assert "tried before as b1 (reject); to try it again" in refused[0]
    assert (
        "because recipe.kl_beta changed, which the ledger does not bear out; changed since: recipe.temperature"
        in refused[1]
    )
    assert "cites b2, but b1 tried it last" in refused[2]
    assert "cites b1, which did not try this value of kl_beta" in refused[3]
    assert "trained already as b0" in refused[5]
    b3 = run.state.branches["b3"]
    assert b3.parent == "b2" and b3.intervention is not None and b3.intervention.reopens == "b1"


def test_agents_are_told_what_they_may_reopen(again: tuple[api.Run, Scripted]) -> None:
    _, agent = again
    second = agent.briefings[2]
    assert second.reopenable["b1"] == ("recipe.temperature",)
    assert earlier_attempt(second, "lr", 2e-3) == ("b1", "recipe.temperature")
    assert earlier_attempt(second, "lr", 3e-3) is None
    assert earlier_attempt(agent.briefings[1], "lr", 2e-3) is None
    stuck = second.model_copy(update={"reopenable": {}})
    assert earlier_attempt(stuck, "lr", 2e-3) == ("b1", "")
    text = render(second)
    assert "## Cases" in text and "- b1: recipe.temperature" in text and "`reopens`" in text


def test_cases_tell_seen_tried_expected_happened(again: tuple[api.Run, Scripted]) -> None:
    run, agent = again
    told = cases(run.events())
    assert [c.branch for c in told] == ["b1", "b2", "b3"]
    assert told[1].seen == {"dead_groups": 0.47} and told[1].kind == "promote" and told[1].effect is not None
    assert told[1].came_true is True and told[2].reopens == "b1"
    assert [c.likeness for c in agent.briefings[2].cases] == [1.0, 1.0]


def test_the_command_shows_cases_and_every_trial(
    again: tuple[api.Run, Scripted], capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = again
    cases_command(run.folder)
    assert "came true" in capsys.readouterr().out
    cases_command(run.folder, trials=True, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert {t["trial"] for t in rows} >= {"b1", "b2", "b3"} and any(t["kind"] == "proposal" for t in rows)


def test_a_prediction_is_told_by_the_readings_that_were_there_when_the_branch_was_judged(
    again: tuple[api.Run, Scripted],
) -> None:
    events = list(again[0].events())
    at = next(i for i, e in enumerate(events) if e.id == "b1/judged")
    read = next(e for e in events if e.id == "b0/read")
    other = read.body.health.model_copy(
        update={"metrics": tuple(m.model_copy(update={"value": 1.0}) for m in read.body.health.metrics)}
    )
    anew = replace(read, id="r9/diagnosed", body=read.body.model_copy(update={"health": other}))
    first = outcomes(events)["b1"]
    assert first.change is not None and first.seeds == (3, 3)
    for told, same in (([*events, anew], True), ([*events[:at], anew, *events[at:]], False)):
        case, shown = next(c for c in cases(told) if c.branch == "b1"), view_of(told).branches["b1"].outcome
        assert shown is not None and (shown == first) is same and shown.came_true is case.came_true


def test_a_closed_world_and_another_harness_are_assumptions(go: Go) -> None:
    run = go("run", changes=WARM)
    events, recipe = run.events(), run.state.branches["b0"].recipe
    seeds = len(run.task.run.seeds)
    assert changed_since(events, "b1", PresentSituation(recipe, {}, "h0", seeds)) == ()
    (opened,) = [e for e in events if isinstance(e.body, HarnessEvolved)]
    further = {**opened.body.harness, "authored": [{"name": "mined_new", "standing": "confirmed"}]}
    evolved = replace(opened, body=opened.body.model_copy(update={"version": "h1", "harness": further}))
    now = PresentSituation(recipe, {"key": "other"}, "h1", seeds)
    assert changed_since([*events, evolved], "b1", now) == ("closed.key", "harness")
    assert "seeds" in changed_since(events, "b1", PresentSituation(recipe, {}, "h0", seeds + 2))
    warmer = recipe.with_factor("temperature", 1.5)
    assert changed_since(events, "b1", PresentSituation(warmer, {}, "h0", seeds)) == (), (
        "the factor itself is what is tried"
    )


def test_only_a_detector_that_mattered_to_a_branch_reopens_it(go: Go) -> None:
    run = go("run", changes=WARM)
    events, recipe = run.events(), run.state.branches["b0"].recipe
    h0 = next(e for e in events if e.kind == "harness")
    (i,) = [i for i, e in enumerate(events) if e.id == "b1/read"]
    health = events[i].body.health

    def since(fired: str = "", drop: str = "", standing: str = "") -> tuple[str, ...]:
        """What changed for b1 under an h1 that drops a built-in detector, or adds one of its own."""
        own = [{"name": "mined_x", "standing": standing}] if standing else []
        detectors = [d for d in h0.body.harness["detectors"] if d != drop]
        h1 = h0.body.model_copy(
            update={"version": "h1", "harness": {**h0.body.harness, "detectors": detectors, "authored": own}}
        )
        found = Finding(detector=fired, kind=fired, severity="warn", claim="it is so")
        read = health.model_copy(update={"findings": (found,) if fired else ()})
        later = [*events, replace(h0, id="harness/x", body=h1)]
        later[i] = replace(events[i], body=events[i].body.model_copy(update={"health": read}))
        return changed_since(later, "b1", PresentSituation(recipe, {}, "h1", len(run.task.run.seeds)))

    assert since() == since(standing="informational") == since(drop="dead_groups") == ()
    assert since(standing="suspect") == since(fired="dead_groups", drop="dead_groups") == ("harness",)


def test_likeness_is_an_overlap() -> None:
    assert likeness({}, {}) == 1.0
    assert likeness({"a": 0.5}, {"b": 0.5}) == 0.0
    assert likeness({"a": 0.4, "b": 0.2}, {"a": 0.2}) == pytest.approx(1 / 3, abs=1e-3)
