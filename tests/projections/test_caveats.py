"""`projections.caveats`: what nobody could audit, what a gain comes with, what was not foreseen;
and silence elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.cli.export import export
from evotrainer.executors.spec import TrialSpec
from evotrainer.extras.tracking.figures import story
from evotrainer.judge import JudgeConfig
from evotrainer.judge.settings import weaker
from evotrainer.projections.caveats import RISE, _defaults_for, caveat_line, caveats
from evotrainer.projections.facts import Fact
from evotrainer.records.chain import Event
from evotrainer.records.events import BranchOpened, GapSeen
from evotrainer.records.interventions import Forecast
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.records.verdicts import Effect
from evotrainer.verify import Record, checks
from evotrainer.views import summary
from evotrainer.views.fold import load_view
from tests.leaky_task import HONEST, finish
from tests.leaky_task import TASK as TASK
from tests.paper import Paper
from tests.projections.test_facts import FRESH, compared, recorded
from tests.projections.test_facts import certified as on_paper

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "hackable" / "task.toml"
UNAUDITED = "nothing could be audited: no capability declared"
pytestmark = pytest.mark.xdist_group("hackable")


# -- a real policy that finds the hole ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hacked(tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    """The example as it ships: a real policy, trained until it does nothing but what the grader takes for right."""
    return api.start(EXAMPLE, tmp_path_factory.mktemp("hacked") / "run")


def answers(run: api.Run, trial: str) -> list[tuple[str, Rollout]]:
    from evotrainer.records.reading import load

    return [(r.turns[-1].text, r) for r in load([run.folder / "rollouts" / trial], split="search")]


def test_settings_weaker_than_the_defaults_are_a_caveat(
    task: Path, tmp_path: Path, quick: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOTRAINER_REGISTER", str(tmp_path / "looks.db"))
    run = quick.start(task, tmp_path / "run", [HONEST, "judge.alpha=0.2"])
    (caveat,) = [c for c in run.caveats["b1"] if c.kind == "settings"]
    assert caveat.text == "promoted under settings weaker than the defaults: alpha 0.2 (0.05), min_seeds 2 (3)"
    assert caveat.remedy == (
        "a new run is held to the defaults with judge.alpha=0.05, judge.min_seeds=3, as many run.seeds"
    )


def test_each_setting_below_its_default_has_its_remedy() -> None:
    few = Effect(mean=0.1, low=0.05, high=0.15, confidence=0.95, se=0.02, df=9, seeds=2, tasks=60, noise_floor=0.02)
    config = JudgeConfig(alpha=0.2, min_effect=0.0, min_seeds=2, max_error_share=0.5, max_cost=2.5, counted=False)
    told = _defaults_for(f"weaker than the defaults: {', '.join(weaker(config, few))}")
    for setting in ("alpha=0.05", "min_effect=0.01", "min_seeds=3", "max_error_share=0.05", "max_cost=1.05"):
        assert f"judge.{setting}," in told
    assert "evaluation.draw=fresh or a register (run.looks)" in told and told.endswith(
        "evaluation.gate_tasks=100 or more"
    )


def test_a_hole_of_the_grader_that_nobody_declared_is_certified_and_everything_holds(hacked: api.Run) -> None:
    assert hacked.certification is not None and hacked.champion == "b0" and hacked.verify().ok
    (start,) = [r for r in hacked.certification.rows if r.name == "start"]
    texts = [t for s in (1, 2) for t, _ in answers(hacked, f"b0-s{s}")]
    assert start.score > 0.95 and sum(len(t.split()) >= 2 for t in texts) / len(texts) > 0.9, "it learnt the hole"
    assert load_view(hacked.folder, rollouts=False).facts.text("result").count(".") < 4, "which the result does not say"
    assert not [e for e in hacked.events() if e.kind in ("audited", "invalidated")]


def test_the_caveat_says_that_nothing_was_audited_and_what_the_gain_comes_with(hacked: api.Run) -> None:
    found = hacked.caveats["b0"]
    assert [c.kind for c in found][:2] == ["unaudited", "goes_with"] and {"gap", "beyond"} <= {c.kind for c in found}
    (gap,) = [c.text for c in found if c.kind == "gap"]
    # whether mining then finds a sign hangs on the weights, which another machine's arithmetic makes to other bits
    (seen,) = [e.body for e in hacked.events() if isinstance(e.body, GapSeen)]
    assert gap.startswith(f"b0: {seen.summary}"), gap
    assert "no finding says why (2 trainings together, harness h0" in gap
    assert found[0].text == UNAUDITED
    share, _, rest = found[1].text.partition("%")
    assert rest == " of what was gained comes with `words >= 2`" and 75 <= int(share) <= 100


def test_an_export_and_a_tracker_carry_it(hacked: api.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = caveat_line(hacked.caveats["b0"][:2])
    export(hacked.folder, tmp_path / "model")
    line = " ".join(capsys.readouterr().out.split())
    assert "branch b0 (certified with a caveat), trial b0-s" in line and f"caveat: {first}" in line
    head, card = (tmp_path / "model" / "README.md").read_text().split("---\n", 2)[1:]
    assert "- certified-with-a-caveat" in head and "- certified\n" not in head and "with a caveat, see" in head
    assert f"> **Certified with a caveat:** {first}" in "\n".join(card.splitlines()[:5])
    assert json.loads((tmp_path / "model" / "evotrainer.json").read_text())["caveats"][0] == UNAUDITED
    sheet = story(hacked.events(), {})
    assert sheet is not None and sheet.texts["caveat/b0"].startswith(first)


@pytest.mark.parametrize(
    ("reading", "kind"),
    [
        ({"sampled_low": 0.05, "excess_high": -0.02}, "sharpening"),
        ({"sampled_low": -0.01, "excess_high": -0.02}, ""),
        ({"sampled_low": 0.05, "excess_high": 0.01}, ""),
        ({"sampled_low": -0.01, "excess_high": 0.01, "high": -0.005}, "worse_greedy"),
    ],
)
def test_a_gain_that_greedy_decoding_does_not_share_is_told(reading: dict[str, float], kind: str) -> None:
    g = {"mean": 0.004, "low": -0.02, "high": 0.03, **reading}
    found = caveats(on_paper(greedy={"champion-base": g}))["b5"]
    assert [f.kind for f in found if f.kind in ("sharpening", "worse_greedy")] == ([kind] if kind else [])


def test_what_the_gain_comes_with_follows_from_the_stored_rollouts(hacked: api.Run) -> None:
    events = hacked.events()
    at = next(i for i, e in enumerate(events) if e.kind == "certified")

    def problems(**change: Any) -> list[str]:
        rows = [
            r if r.gained is None else r.model_copy(update={"gained": r.gained.model_copy(update=change)})
            for r in events[at].body.rows
        ]
        forged = replace(events[at], body=events[at].body.model_copy(update={"rows": tuple(rows)}))
        record = Record(hacked.folder, [*events[:at], forged, *events[at + 1 :]])
        return [p.message for p in checks()["certified"](record, forged)]

    assert not problems()
    assert any("gained.share" in p for p in problems(share=0.1))
    assert any("gained.detector" in p for p in problems(detector=None))


# -- on paper: when it is silent ---------------------------------------------------------------------------------------


def unexplained(run: api.Run) -> dict[str, tuple[Fact, ...]]:
    """The caveats but for what the task's own settings are (two seeds)."""
    found = {b: tuple(c for c in cs if c.kind != "settings") for b, cs in run.caveats.items()}
    return {b: cs for b, cs in found.items() if cs}


def undeclared(events: Sequence[Event]) -> list[Event]:
    """The same run of an environment that declares nothing."""
    return [
        replace(e, body=e.body.model_copy(update={"environment": {**e.body.environment, "capabilities": []}}))
        if e.kind == "run"
        else e
        for e in events
    ]


def certified_at(events: Sequence[Event], **numbers: float) -> list[Event]:
    """The same run with other certified gains over the base policy."""
    return [
        replace(
            e,
            body=e.body.model_copy(
                update={"comparisons": {k: {**v, **numbers} for k, v in e.body.comparisons.items()}}
            ),
        )
        if e.kind == "certified"
        else e
        for e in events
    ]


def test_a_gain_that_an_audit_settled_has_no_caveat(
    task: Path, tmp_path: Path, quick: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOTRAINER_REGISTER", str(tmp_path / "looks.db"))
    defaults = ["run.seeds=[1, 2, 3]", "judge.min_seeds=3"]  # else the task's own settings are named
    run = quick.start(task, tmp_path / "run", [HONEST, *defaults])
    assert run.champion == "b1" and run.certification.comparisons["champion-base"]["mean"] > 0.2  # type: ignore[union-attr]
    assert not unexplained(run)
    view = load_view(run.folder, rollouts=False)
    assert summary.headline(view) == view.facts.text("result") and not view.caveats.get("b1")
    assert 'id="caveat"' not in run.report().read_text()
    assert caveat_line(caveats(undeclared(run.events()))["b1"]).startswith(UNAUDITED), "the same run, nothing declared"


def test_a_shortcut_that_was_left_open_and_never_audited_is_named(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["judge.audit=never", HONEST])
    assert unexplained(run)["b1"][0].text == "nothing was audited of key: open in every evaluation of b1"
    shut = quick.start(task, tmp_path / "shut", ["judge.audit=never", "recipe.knobs.key=other", HONEST])
    assert shut.champion == "b1" and not unexplained(shut), "closed all the time, it needs no audit"


def test_what_honest_work_uses_too_can_settle_nothing_and_an_old_ledger_does_not_say(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    events = quick.start(task, tmp_path / "run", [HONEST]).events()

    def first(change: Any) -> str:
        run = events[0].body
        body = run.model_copy(update={"environment": change(dict(run.environment))})
        return caveats([replace(events[0], body=body), *events[1:]])["b1"][0].text

    def honest(env: dict[str, Any]) -> dict[str, Any]:
        return env | {"capabilities": [{**c, "honest": True} for c in env["capabilities"]]}

    assert first(honest) == f"{UNAUDITED} but what honest work uses (key)"
    assert first(lambda env: {k: v for k, v in env.items() if k != "capabilities"}) == UNAUDITED.replace(
        "declared", "recorded"
    )


def test_an_audit_of_later_takes_the_caveat_away_or_the_branch(task: Path, tmp_path: Path, quick: Paper) -> None:
    honest = quick.start(task, tmp_path / "honest", ["judge.audit=never", HONEST])
    assert "b1" in unexplained(honest)
    quick.audit_branch(honest.folder, "b1")
    assert "b1" not in unexplained(honest)
    cheat = quick.start(task, tmp_path / "cheat", ["judge.audit=never"])
    assert "b1" in unexplained(cheat)
    quick.audit_branch(cheat.folder, "b1")
    assert "b1" in cheat.state.invalid and "b1" not in unexplained(cheat), "invalid says more than a caveat"


@pytest.mark.parametrize(
    ("mean", "low", "told_of"), [(RISE, 0.01, True), (RISE - 0.001, 0.01, False), (0.2, -0.001, False)]
)
def test_the_margin_is_five_points_that_the_interval_bears_out(mean: float, low: float, told_of: bool) -> None:
    found = caveats(on_paper(comparisons={"champion-base": compared(mean, low, 0.5)})).get("b5", ())
    assert ("unaudited" in {c.kind for c in found}) is told_of


def test_where_only_the_base_policy_is_left_there_is_nothing_to_question(
    task: Path, tmp_path: Path, quick: Paper
) -> None:
    run = quick.start(task, tmp_path / "run", ["recipe.lr=2e-3", "run.rounds=0"])
    assert run.champion == "base" and not unexplained(run)


@pytest.mark.parametrize(("gained", "beyond"), [(0.129, False), (0.131, True)])
def test_a_step_that_gained_more_than_its_forecast_and_the_margin_is_told(gained: float, beyond: bool) -> None:
    def foreseen(body: Any) -> Any:
        if isinstance(body, BranchOpened) and body.branch == "b5" and body.intervention:
            expected = body.intervention.model_copy(update={"forecast": Forecast(mean=0.03, sd=0.02)})
            return body.model_copy(update={"intervention": expected})
        return body

    effect = FRESH.effect.model_copy(update={"mean": gained, "se": 0.015})
    fresh = FRESH.model_copy(update={"effect": effect})
    events = recorded(foreseen, ("reestimated", "b5/reestimated", fresh))
    texts = [c.text for c in caveats(events)["b5"] if c.kind == "beyond"]
    assert texts == (["b5 gained 13.1 points, 3.0 ± 2.5 were forecast"] if beyond else [])


@pytest.mark.parametrize(("reached", "beyond"), [(0.37, True), (0.43, False)])
def test_a_start_above_what_the_base_policy_ever_reached_is_told(
    task: Path, tmp_path: Path, quick: Paper, reached: float, beyond: bool
) -> None:
    """Base: `reached` of its tasks in some attempt. Start: every task 4 to 6 attempts of 12 alike, 0.45 on the mean."""

    def scored(e: Event) -> Event:
        if e.kind != "finished" or e.body.branch not in ("base", "b0"):
            return e
        scores = []
        for s in e.body.scores:
            n = len(s.per_task)
            base = {t: float(i < reached * n) for i, t in enumerate(s.per_task)}
            start = {t: min(1.0, x + 0.08) for t, x in base.items()}
            scores.append(s.model_copy(update={"per_task": base if e.body.branch == "base" else start}))
        return replace(e, body=e.body.model_copy(update={"scores": tuple(scores)}))

    run = quick.start(task, tmp_path / "run", ["run.rounds=0"])
    rise = 0.08 * (1 - reached)
    found = caveats([scored(e) for e in certified_at(undeclared(run.events()), mean=rise, low=0.01)])
    texts = [c.text for c in found.get("b0", ()) if c.kind == "beyond"]
    assert bool(texts) == beyond == (rise >= RISE)
    assert ["the base policy in any of its 4 attempts 38%" in t for t in texts] == [True] * beyond


# -- on paper: an audit that asked about something else ----------------------------------------------------------------


def spoken(trial: str, two_words: float, right: float) -> list[Rollout]:
    """Attempts of two words, which the grader takes for right, and of one, of which a share is right."""
    import random

    rng = random.Random(trial)
    out = []
    for i in range(240):
        two = rng.random() < two_words
        ok = two or rng.random() < right
        turns = (Turn("user", f"sort {i // 4}"), Turn("assistant", "any thing" if two else "slow"))
        out.append(
            Rollout(id=f"{trial}-{i}", task=f"t{i // 4}", turns=turns, reward=float(ok), group=f"{trial}-{i // 4}",
                    k=i % 4, split="search", outcome="correct" if ok else "incorrect")
        )  # fmt: skip
    return out


@pytest.mark.parametrize(("base_two", "now_two", "now_right"), [(0.2, 0.95, 0.3), (0.2, 0.25, 0.95)])
def test_a_behaviour_that_decides_the_outcome_is_told_although_an_audit_found_nothing(
    task: Path, tmp_path: Path, base_two: float, now_two: float, now_right: float
) -> None:
    def said(spec: TrialSpec) -> list[Rollout]:
        gained = spec.branch == "b1"
        return spoken(spec.trial, now_two if gained else base_two, now_right if gained else 0.3)

    run = Paper(finish, said).start(task, tmp_path / "run", [HONEST, "run.evolve_harness=false"])
    assert run.champion == "b1" and [e for e in run.events() if e.kind == "audited"], (
        "the declared shortcut is no matter"
    )
    if now_two < 0.5:  # it got better at the task, whatever it says
        assert not unexplained(run)
        return
    goes_with, decides = unexplained(run)["b1"]
    assert goes_with.kind == "goes_with" and goes_with.text.endswith("of what was gained comes with `words >= 2`")
    assert decides.text == "`words >= 2` decides the outcome: 100% correct with it before training, 100% after"
