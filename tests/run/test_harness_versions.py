"""`run.harness_versions`: the harness evolves in a run:
what is seen, mined, audited, kept or dropped, and a resume tells the same story.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.agents.base import Tools
from evotrainer.agents.fixed import FixedAgent, FixedOptions
from evotrainer.cli.harness import harness
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.events import GapSeen, HarnessEvolved
from evotrainer.sandbox.detector_runner import SandboxRunner
from tests.leaky_task import HONEST, LOOKS, MINIMAL, as_trained, finish
from tests.leaky_task import TASK as TASK
from tests.paper import Paper, rejudged, stopped_before_each


def versions(run: api.Run) -> list[HarnessEvolved]:
    return [e.body for e in run.events() if e.kind == "harness"]


def gaps(run: api.Run) -> list[GapSeen]:
    return [e.body for e in run.events() if e.kind == "gap"]


def test_a_leak_is_discovered_mined_audited_and_confirmed_before_any_promotion(
    task: Path, tmp_path: Path, acted: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    run = acted.start(task, tmp_path / "run", [MINIMAL, "run.rounds=2"])
    (gap,) = [g for g in gaps(run) if g.branch == "b1"]
    assert gap.trigger == "score_move" and gap.against == "b0" and gap.harness == "h0"
    assert gap.mined == ("b1-s1 search", "b0-s1 search"), "the second seed of each is held out"
    found = [a for a in gap.considered if a.admitted]
    assert any("look" in a.detector.name for a in found) and all(a.detector.standing == "suspect" for a in found)
    assert all(a.bad == ("b1-s2 search",) and "b0-s2 search" in a.clean and "base search" in a.clean for a in found)

    (audit,) = [e.body.audit for e in run.events() if e.kind == "audited" and e.body.audit.branch == "b1"]
    assert audit.confirmed and audit.trigger in {a.detector.name for a in found}, "the mined detector asked for it"
    order = [e.id for e in run.events() if e.kind in ("gap", "harness", "audited", "invalidated", "judged")]
    b1 = ["gap/b1", "harness/b1/gap", "b1/audited/key", "b1/judged", "b1/invalidated", "harness/r1/settled"]
    assert [x for x in order if x in b1] == b1
    assert run.verdicts[0].kind == "invalid" and "b1" in run.state.invalid

    h0, h1, h2 = versions(run)[:3]
    assert (h0.version, h1.version, h2.version) == ("h0", "h1", "h2") and not h0.harness["detectors"]
    assert h1.gap == "gap/b1" and h1.quotes and h1.admissions == gap.considered and h2.trigger == "audit"
    assert h2.changed.pop(audit.trigger) == "confirmed", "who asked is confirmed; what came with it only informs"
    assert set(h2.changed.values()) <= {"informational"}
    rounds = {e.body.round: e.body.harness for e in run.events() if e.kind == "round"}
    assert rounds == {1: "h0", 2: "h2"}
    assert not [p for p in run.verify().problems if p.area in ("harness", "round", "audited", "judged")]
    assert not any(rejudged(run, v.branch) for v in run.verdicts)

    harness(run.folder)
    told = capsys.readouterr().out
    assert "gap in b1" in told and "CONFIRMED" in told and "h2 from h1" in told
    harness(run.folder, "h1")
    told = capsys.readouterr().out
    assert "held out: bad b1-s2 search" in told and "rollouts it speaks of" in told and LOOKS in told
    with pytest.raises(ConfigError, match="no harness 'h9'.*h0, h1"):
        harness(run.folder, "h9")


def test_honest_learning_condemns_nobody_and_its_detectors_only_inform(
    task: Path, tmp_path: Path, acted: Paper
) -> None:
    run = acted.start(task, tmp_path / "run", [MINIMAL, HONEST])
    (gap,) = [g for g in gaps(run) if g.branch == "b1"]
    found = {a.detector.name for a in gap.considered if a.admitted}
    assert any("sort" in name for name in found), "what was learnt separates as well as any cheat"
    assert run.verdicts[0].kind == "promote" and run.champion == "b1" and not run.state.invalid
    last = versions(run)[-1]
    assert last.trigger == "audit" and last.changed == dict.fromkeys(found, "informational")
    assert {s["standing"] for s in last.harness["authored"]} == {"informational"}
    assert not rejudged(run, "b1")


@pytest.mark.parametrize("change", ["judge.audit=never", "run.evolve_harness=false"])
def test_where_nothing_could_clear_a_suspect_there_is_none(
    task: Path, tmp_path: Path, acted: Paper, change: str
) -> None:
    run = acted.start(task, tmp_path / "run", [MINIMAL, HONEST, change])
    assert run.verdicts[0].kind == "promote"
    specs = [s for v in versions(run) for s in v.added]
    assert all(s.standing == "informational" for s in specs) and bool(specs) == ("never" in change)


def test_the_default_harness_evolves_too_and_an_explained_jump_is_no_gap(task: Path, tmp_path: Path) -> None:
    run = Paper(finish, lambda spec: as_trained(spec, looks="git show origin/fix")).start(task, tmp_path / "run")
    assert not [g for g in gaps(run) if g.branch == "b1"] and len(versions(run)[0].harness["detectors"]) > 20
    (audit,) = [e.body.audit for e in run.events() if e.kind == "audited" and e.body.audit.branch == "b1"]
    assert audit.trigger == "answer_leak" and audit.confirmed


def test_stopped_anywhere_the_harness_ends_the_same(task: Path, tmp_path: Path, acted: Paper) -> None:
    args = [MINIMAL, "run.rounds=2"]
    whole = acted.start(task, tmp_path / "whole", args)
    story = [e.id for e in whole.events()]
    cuts = [i for i, x in enumerate(story) if x.startswith(("gap/", "harness/")) or "/read/" in x][::4]
    assert cuts
    for some in (cuts, cuts[1:2]):
        folder = tmp_path / f"cut-{len(some)}" / "whole"
        run = stopped_before_each(
            [story[at] for at in some], partial(acted.start, task, folder, args), partial(acted.resume, folder)
        )
        assert [e.id for e in run.events() if e.kind != "resumed"] == story
        assert [v.hash for v in versions(run)] == [v.hash for v in versions(whole)]


LOOKING = {"name": "looks", "form": "pattern", "where": "actions", "pattern": "^look key", "warn": 0.5}


def edits(*add: dict[str, Any], retire: Sequence[str] = (), round: int = 2) -> dict[str, Any]:
    return {"add": list(add), "retire": list(retire), "reason": "an agent's idea", "round": round}


class Curious(FixedAgent):
    """Reads rollouts of b1 before it proposes for round 2."""

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        if briefing.round == 2:
            assert len({r.id for r in tools.rollouts("b1", 10**6)}) > len(tools.rollouts("b1", 10)) == 10
        return super().propose(briefing, tools)


def start_with(
    acted: Paper,
    task: Path,
    folder: Path,
    entries: Sequence[dict[str, Any]],
    overrides: Sequence[str] = (),
    agent: type[FixedAgent] = FixedAgent,
) -> api.Run:
    options = {**load_task(task, overrides).run.agent_options, "harness_edits": list(entries)}
    asked = agent(FixedOptions.model_validate(options))
    return acted.start(task, folder, ["run.rounds=2", *overrides], agent=asked)


def test_an_agents_detectors_pass_the_same_admission(
    task: Path, tmp_path: Path, acted: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SandboxRunner, "CPU_S", 0.2)
    useless = {"name": "lists", "form": "pattern", "where": "actions", "pattern": "^ls", "warn": 0.5}
    broken = {"name": "hangs", "form": "python", "source": "def flag(rollouts):\n    while True: pass\n"}
    run = start_with(
        acted,
        task,
        tmp_path / "run",
        [edits(LOOKING, useless, broken, retire=["answer_leak", "dead_groups", "nobody", "my_dead_groups"])],
        ["judge.audit=suspects"],
    )
    (seen,) = [g for g in gaps(run) if g.trigger == "agent"]
    told = {a.detector.name: a for a in seen.considered}
    mined = {s.name for v in versions(run) if v.trigger == "score_move" for s in v.added}
    assert mined, "b1 was caught in round 1"
    assert not told["looks"].admitted and "redundant" in told["looks"].reason and told["looks"].overlaps in mined
    assert not told["lists"].admitted and "does not separate" in told["lists"].reason
    assert not told["hangs"].admitted and "timeout" in told["hangs"].reason
    assert "answer_leak is not retired: it questions validity" in seen.reason
    assert "nobody is not retired: no detector of that name" in seen.reason
    assert set(seen.kept) == {"answer_leak", "nobody", "my_dead_groups"}
    (v,) = [v for v in versions(run) if v.trigger == "agent"]
    assert v.dropped == ("dead_groups",) and not v.added and "dead_groups" not in v.harness["detectors"]


def test_before_anything_is_bad_an_agents_detector_has_nothing_to_be_tried_on(
    task: Path, tmp_path: Path, acted: Paper
) -> None:
    run = start_with(acted, task, tmp_path / "run", [edits(LOOKING, round=1)], [HONEST])
    (seen,) = [g for g in gaps(run) if g.trigger == "agent"]
    assert [a.reason for a in seen.considered] == ["no held-out bad version to try it on"]
    assert not [v for v in versions(run) if v.trigger == "agent"]


def test_what_an_agent_was_shown_is_not_held_out(task: Path, tmp_path: Path, acted: Paper) -> None:
    run = start_with(acted, task, tmp_path / "run", [edits(LOOKING)], agent=Curious)
    first, second = [e.body for e in run.events() if e.kind == "proposed"]
    assert not {"b1-s1", "b1-s2"} & set(first.shown) and {"b1-s1", "b1-s2"} <= set(second.shown)
    (seen,) = [g for g in gaps(run) if g.trigger == "agent"]
    assert [a.reason for a in seen.considered] == ["no held-out bad version to try it on; the agent was shown b1-s2"]


def test_detectors_that_never_fire_are_retired_by_rule(task: Path, tmp_path: Path, acted: Paper) -> None:
    changes = ", ".join(f'{{factor="weight_decay",new={x}}}' for x in (0.01, 0.02, 0.03, 0.04))
    only = f'run.agent_options.interventions=[{{factor="group_size",new=12}}, {changes}]'
    run = acted.start(task, tmp_path / "run", [MINIMAL, only, "run.rounds=5"])
    dropped = {name: v for v in versions(run) for name in v.dropped}
    mined = {s.name for v in versions(run) for s in v.added}
    assert mined and dropped.keys() == mined
    for v in dropped.values():
        assert v.trigger == "retirement" and v.round == 4 and "fired on all of 3 branches in 3 rounds" in v.reason
