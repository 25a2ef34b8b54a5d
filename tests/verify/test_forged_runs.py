"""`verify`: a forger of the whole chain must also forge what his numbers follow from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.coevolution import tampering

from evotrainer import api
from evotrainer.cli.verify import verify as verify_command
from evotrainer.cli.why import why
from evotrainer.records.chain import Event
from evotrainer.records.events import TrialFinished
from evotrainer.records.sealed import Key, SealedSplits
from evotrainer.verify import verify
from tests.thinned import thinned

Change = Callable[[dict[str, Any]], None]


def forge(run: Path, event: str, change: Change) -> None:
    """Change the body of the last event whose id matches, link the whole chain again,
    and every note beside the ledger."""

    def changed(rows: list[tampering.Row]) -> list[tampering.Row]:
        at = max(i for i, r in enumerate(rows) if re.fullmatch(event, r[1]))
        body = json.loads(rows[at][4])
        change(body) if rows[at][2] != "finished" else within(rows, body, change)
        rows[at][4] = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        if rows[at][2] == "finished":
            (run / "trials" / body["trial"] / "result.json").write_text(json.dumps(body, separators=(",", ":")))
        return tampering.relink(rows)

    tampering.edited(run, changed)
    tampering.note(run)


def within(rows: list[tampering.Row], body: dict[str, Any], change: Change) -> None:
    """Change a result whose single scores are encrypted: the end revealed the key, to a forger as well."""
    key = Key(bytes.fromhex(next(json.loads(r[4])["key"] for r in rows if r[2] == "closed")))
    key.hold()
    plain = SealedSplits.result(TrialFinished.model_validate(body)).model_dump(mode="json")
    change(plain)
    body |= key.result(TrialFinished.model_validate(plain)).model_dump(mode="json")


def set_(*path: str | int, to: Any) -> Change:
    def change(body: dict[str, Any]) -> None:
        at: Any = body
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to

    return change


def better(body: dict[str, Any]) -> None:
    for s in body["scores"]:
        task = next(iter(s["per_task"]))
        s["per_task"][task] = 1.0 if s["per_task"][task] < 0.5 else 0.0
        s["score"] = sum(s["per_task"].values()) / len(s["per_task"])


def greedier(body: dict[str, Any]) -> None:
    for s in body["scores"]:
        task = next(iter(s["greedy_per_task"]))
        s["greedy_per_task"][task] = 1.0 - s["greedy_per_task"][task]
        s["greedy"] = sum(s["greedy_per_task"].values()) / len(s["greedy_per_task"])


def test_the_finished_run_holds_and_every_kind_was_looked_at(finished: api.Run) -> None:
    report = finished.verify()
    assert report.problems == ()
    assert report.unchecked == ()
    assert report.notes == ()
    scores = [s for e in finished.events() if e.kind == "finished" for s in e.body.scores]
    assert report.checked["scores"] == report.checked["greedy readings"] == len(scores)
    assert set(report.chain_only) <= {"proposed", "gate", "refused", "escalated", "diagnosed"}


@pytest.mark.parametrize(
    ("event", "change", "complaint"),
    thinned(
        [
            (r"base-cert/finished", better, "trials: trial base-cert: 1 cert scores do not follow from its rollouts"),
            (r"b1-s1/finished", better, "trials: trial b1-s1: 1 gate scores do not follow from its rollouts"),
            (r"b1-s1/finished", set_("scores", 0, "score", to=0.9), r"trials: .*its search score 0.9 is not the mean"),
            (r"b1-s1/finished", greedier, "trials: trial b1-s1: 1 gate-greedy scores do not follow from its rollouts"),
            (r"b1-s1/finished", set_("scores", 0, "greedy", to=0.9), r"trials: .*its greedy search score 0.9 is not"),
            (
                r"b1-s1/finished",
                set_("scores", 0, "temperature", to=0.5),
                r"trials: .*at deployment temperature 0.5, its",
            ),
            (r"certified", set_("rows", 1, "low", to=0.99), r"certified: rows.1..low: 0.99 in the ledger"),
            (r"certified", set_("greedy", "start-base", "mean", to=0.9), "certified: greedy.start-base.mean: 0.9 in"),
            (r"certified", set_("rows", 1, "greedy", to=0.99), r"certified: rows.1..greedy: 0.99 in the ledger"),
            (r"noise/1", set_("noise_floor", to=0.001), "noise: noise/1: noise_floor: 0.001 in the ledger"),
            (
                r"b1/judged",
                set_("verdict", "gates", 0, "passed", to=None),
                r"judged: b1/judged .*gates.0..passed: None",
            ),
            (r"certified", set_("rows", 1, "seeds", to=[7]), "certified: start: seeds .7,. were certified"),
            (
                r"b1/judged",
                set_("verdict", "effect", "low", to=0.02),
                "judged: b1/judged .*effect.low: 0.02 in the ledger",
            ),
            (r"r1/opened", set_("champion", to="b1"), "round: round 1 starts from b1"),
            (r"r1/opened", set_("harness", to="h7"), "round: round 1 names harness h7"),
            (
                r"r1/backtested/0",
                set_("backtest", "rollouts", to=7),
                "backtested: r1/backtested/0: rollouts: 7 in the ledger",
            ),
            (r"v0", set_("version", to="v5"), "promoted: event v0 gives version v5"),
            (
                r"b1-s1/intended",
                set_("train", to=False),
                "trials: trial b1-s1 was to evaluate only, and trained 4 steps",
            ),
            (r"closed", set_("cpu_s", to=1.0), "closed: the run closed with 1.0 CPU-s"),
        ],
        3,
    ),
)
def test_a_forged_claim_does_not_follow_from_the_rest(
    copy: Callable[[], api.Run], event: str, change: Change, complaint: str
) -> None:
    run = copy()
    forge(run.folder, event, change)
    problems = [f"{p.area}: {p.message}" for p in verify(run.folder).problems]
    assert any(re.search(complaint, p) for p in problems), problems


def test_a_check_that_cannot_be_computed_is_a_problem_and_no_traceback(copy: Callable[[], api.Run]) -> None:
    run = copy()
    forge(run.folder, r"noise/1", set_("branch", to="b9"))
    problems = [p for p in verify(run.folder).problems if p.area == "noise"]
    assert "noise/1: it cannot be computed again: noise of b9" in problems[0].message


def test_the_noted_head_of_a_run_is_confirmed_and_a_foreign_one_refused(
    finished: api.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    from evotrainer.errors import IntegrityError

    events: list[Event] = finished.events()
    verify_command(finished.folder, head=events[-1].hash)
    said = capsys.readouterr().out
    assert f"head {len(events)} {events[-1].hash}, and the noted one is in it" in said
    assert "protected by the hash chain alone: " in said
    with pytest.raises(IntegrityError, match="1 problem"):
        verify_command(finished.folder, head="ab" * 32)
    assert "[FAIL] head: no event has the noted hash" in capsys.readouterr().out


def test_why_explains_a_skill_and_a_harness_version_and_names_what_there_is(
    finished: api.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    from evotrainer.errors import ConfigError

    (taught, *_) = [e.body for e in finished.events() if e.kind == "skill"]
    why(finished.folder, taught.skill)
    said = capsys.readouterr().out
    assert said.splitlines()[0].startswith(f"{taught.skill}: ")
    assert f"/{taught.branch} ({taught.trial.kind})" in said
    assert said.endswith("recomputed from the ledger: the same trials, pooled effect and files\n")
    why(finished.folder, "h0")
    said = capsys.readouterr().out
    assert said.startswith("h0 (opened")
    assert said.endswith("recomputed from the ledger: the hash of h0\n")
    with pytest.raises(
        ConfigError, match=rf"nothing is recorded of 'h9'.*harness versions: h0.*skills: .*{taught.skill}"
    ):
        why(finished.folder, "h9")


def test_why_of_a_changed_skill_says_what_differs(
    copy: Callable[[], api.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    from evotrainer.errors import ConfigError

    run = copy()
    skill = sorted((run.folder / "skills").iterdir())[0]
    text = (skill / "SKILL.md").read_text()
    (skill / "SKILL.md").write_text(text.replace("points", "percent", 1))
    with pytest.raises(ConfigError, match=f"skill {skill.name} does not follow"):
        why(run.folder, skill.name)
    assert "differs: " in capsys.readouterr().out
    assert any(p.area == "skill" for p in run.verify().problems)


def test_a_forged_harness_version_is_not_its_parent_with_its_difference(copy: Callable[[], api.Run]) -> None:
    run = copy()
    forge(run.folder, r"harness/opened", set_("harness", "detectors", to=["dead_groups"]))
    problems = [p.message for p in verify(run.folder).problems if p.area == "harness"]
    assert any("computed from h0" in p for p in problems), problems
