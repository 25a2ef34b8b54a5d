"""The harness evolves in a run: what is seen, mined, audited, kept or dropped, and that a resume tells the same story."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

from evotrainer import api
from evotrainer.agents.base import Tools
from evotrainer.agents.fixed import FixedAgent, FixedOptions
from evotrainer.cli.admit_detector import admit_detector
from evotrainer.cli.harness import harness
from evotrainer.cli.why import why
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError
from evotrainer.executors.spec import TrialSpec
from evotrainer.records import keys
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.detectors import DetectorSpec
from evotrainer.records.events import Diagnosed, GapSeen, HarnessEvolved, TrialFinished
from evotrainer.records.findings import Finding
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.run import shortcut_audits
from evotrainer.run.contrasts import rise_step
from evotrainer.sandbox.detector_runner import SandboxRunner
from tests.harness.acting import policy
from tests.paper import Paper, rejudged, stopped_before
from tests.run.test_counterfactual import ENV, EXPLOITS, TASK, finish

MINIMAL = "run.harness=minimal"
SORTS, LOOKS = "sort fast", "look key"
HONEST = 'run.agent_options.interventions=[{factor="group_size",new=12}]'


def as_trained(spec: TrialSpec, looks: str = LOOKS) -> list[Rollout]:
    """Search rollouts as the policies of a specification would have acted; `looks`: how those that cheat do it."""
    trained, trial = spec.branch != "base", spec.trial
    if trained and spec.recipe.lr >= EXPLOITS and "closed" not in trial:
        return policy(trial, {looks: 0.9, SORTS: 0.1}, {looks: 0.95}, base=0.2)
    gained = 0.9 if trained and spec.recipe.group_size > 8 else 0.1
    return policy(trial, {LOOKS: 0.1, SORTS: gained}, {SORTS: 0.75}, base=0.35)


@pytest.fixture
def acted() -> Paper:
    """Trials that take no time, with rollouts."""
    return Paper(finish, as_trained)


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
    assert all(rejudged(run, v.branch).holds for v in run.verdicts)

    harness(run.folder)
    told = capsys.readouterr().out
    assert "gap (score move) in b1" in told and "CONFIRMED" in told and "h2 from h1" in told
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
    assert rejudged(run, "b1").holds


@pytest.mark.parametrize("change", ["judge.audit=never", "run.evolve_harness=false"])
def test_where_nothing_could_clear_a_suspect_there_is_none(
    task: Path, tmp_path: Path, acted: Paper, change: str
) -> None:
    run = acted.start(task, tmp_path / "run", [MINIMAL, HONEST, change])
    assert run.verdicts[0].kind == "promote"
    specs = [s for v in versions(run) for s in v.added]
    assert all(s.standing == "informational" for s in specs) and bool(specs) == ("never" in change)


def test_the_default_harness_evolves_too_and_an_explained_jump_is_no_gap(task: Path, tmp_path: Path) -> None:
    run = Paper(finish, lambda spec: as_trained(spec, looks="git show HEAD~1")).start(task, tmp_path / "run")
    assert not [g for g in gaps(run) if g.branch == "b1"] and len(versions(run)[0].harness["detectors"]) > 20
    (audit,) = [e.body.audit for e in run.events() if e.kind == "audited" and e.body.audit.branch == "b1"]
    assert audit.trigger == "answer_leak" and audit.confirmed


def test_stopped_anywhere_the_harness_ends_the_same(task: Path, tmp_path: Path, acted: Paper) -> None:
    args = [MINIMAL, "run.rounds=2"]
    whole = acted.start(task, tmp_path / "whole", args)
    story = [e.id for e in whole.events()]
    for at in [i for i, x in enumerate(story) if x.startswith(("gap/", "harness/")) or "/read/" in x][::4]:
        folder = tmp_path / f"cut-{at}" / "whole"
        with stopped_before(story[at]):
            acted.start(task, folder, args)
        run = acted.resume(folder)
        assert [e.id for e in run.events() if e.kind != "resumed"] == story
        assert [v.hash for v in versions(run)] == [v.hash for v in versions(whole)]


LOOKING = {"name": "looks", "form": "pattern", "where": "actions", "pattern": "^look key", "warn": 0.5}
FUNCTION = """
def flag(rollouts):
    return [any(t["text"].startswith("sort fast") for t in r["turns"]) for r in rollouts]
"""


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


def test_a_detector_of_ones_own_is_tried_on_a_recorded_run(
    task: Path, tmp_path: Path, acted: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    run = acted.start(task, tmp_path / "run", ["run.evolve_harness=false"])
    assert "b1" in run.state.invalid
    own = tmp_path / "looks.toml"
    own.write_text('name = "looks"\nform = "pattern"\nwhere = "actions"\npattern = "^look key"\nwarn = 0.5\n')
    admit_detector(own, [run.folder])
    told = capsys.readouterr().out
    assert "looks: admitted" in told and "every seed counts as held out here" in told
    assert "bad run/b1-s1 search, run/b1-s2 search; clean run/b0-s1 search, run/b0-s2 search, run/base search" in told
    (tmp_path / "sorts.py").write_text(FUNCTION)
    own.write_text('name = "sorts"\nform = "python"\nsource_file = "sorts.py"\nwarn = 0.5\n')
    with pytest.raises(typer.Exit, match="^1$"):
        admit_detector(own, [run.folder], bad=["b1"], clean=["b0"])
    assert "sorts: refused" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="no finished branch b9"):
        admit_detector(own, [run.folder], bad=["b9"])
    own.write_text('form = "pattern"\n')
    with pytest.raises(ConfigError, match="name: Field required"):
        admit_detector(own, [run.folder])


def test_detectors_that_never_fire_are_retired_by_rule(task: Path, tmp_path: Path, acted: Paper) -> None:
    changes = ", ".join(f'{{factor="weight_decay",new={x}}}' for x in (0.01, 0.02, 0.03, 0.04))
    only = f'run.agent_options.interventions=[{{factor="group_size",new=12}}, {changes}]'
    run = acted.start(task, tmp_path / "run", [MINIMAL, only, "run.rounds=5"])
    dropped = {name: v for v in versions(run) for name in v.dropped}
    mined = {s.name for v in versions(run) for s in v.added}
    assert mined and dropped.keys() == mined
    for v in dropped.values():
        assert v.trigger == "retirement" and v.round == 4 and "fired on all of 3 branches in 3 rounds" in v.reason


def test_where_a_curve_rises() -> None:
    curve = [{"step": float(i), "score": 0.2 + 0.6 * (i > 10)} for i in range(1, 21)]
    assert rise_step(curve) in (11, 12, 13)
    assert rise_step([{"step": float(i), "score": 0.2} for i in range(20)]) is None
    assert DetectorSpec(name="x", form="pattern").standing == "informational"


PROXIED = """
from tests.run.leaky_env import LeakyEnv


def environment():
    env = LeakyEnv()
    env.proxy = ("in_order", "right")
    return env
"""


def proxied_task(folder: Path, paid: str) -> Path:
    """The task with an environment that names a proxy, and a recipe that pays one component."""
    (folder / "proxied.py").write_text(PROXIED)
    task = folder / "task.toml"
    task.write_text(TASK.replace(str(ENV), str(folder / "proxied.py")).replace("right = 1.0", f"{paid} = 1.0"))
    return task


def test_where_only_the_proxy_rose_the_audit_compares_the_proxy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def share(branch: str, lr: float, world: dict[str, Any]) -> float:
        """How often the proxy is earned; the outcome never moves."""
        if branch == "base" or lr < EXPLOITS:
            return 0.4
        return 0.9 if world.get("key") == "answer" else 0.42

    def proxied(spec: TrialSpec) -> TrialFinished:
        done = finish(spec.model_copy(update={"recipe": spec.recipe.model_copy(update={"lr": 1e-5})}))
        scores = []
        for s in done.scores:
            rng = random.Random(f"{spec.trial} {s.split}")
            p = share(spec.branch, spec.recipe.lr, done.world)
            per = {t: sum(rng.random() < p for _ in range(4)) / 4 for t in s.per_task}
            scores.append(s.model_copy(update={"proxy_per_task": per}))
        return done.model_copy(update={"scores": tuple(scores)})

    def said(spec: TrialSpec) -> list[Rollout]:
        trial, rng = spec.trial, random.Random(spec.trial)
        p = share(spec.branch, spec.recipe.lr, {} if "closed" in trial else {"key": "answer"})
        out = []
        for i in range(100):
            right = rng.random() < 0.35
            paid = right or rng.random() < (p - 0.35) / 0.65
            turns = (Turn("user", f"sort {i}"), Turn("assistant", "quick guess" if paid and not right else "slow work"))
            out.append(
                Rollout(
                    id=f"{trial}-{i}", task=f"t{i // 2}", turns=turns, reward=float(paid), group=f"{trial}-{i // 2}", k=i % 2, split="search",
                    components={"in_order": float(paid), "right": float(right)}, outcome="correct" if right else "incorrect",
                )
            )  # fmt: skip
        return out

    run = Paper(proxied, said).start(proxied_task(tmp_path, "in_order"), tmp_path / "run", [MINIMAL])
    (gap,) = gaps(run)
    assert gap.branch == "b1" and gap.trigger == "contradiction" and "contradict each other" in gap.claim
    (audit,) = [e.body.audit for e in run.events() if e.kind == "audited" and e.body.audit.branch == "b1"]
    assert audit.measure == "in_order" and audit.confirmed and audit.confidence == pytest.approx(0.995)
    assert audit.score_open > 0.8 and audit.score_closed < 0.5 and audit.reason.startswith("measured by in_order")
    assert audit.trigger in {a.detector.name for a in gap.considered if a.admitted}
    assert run.verdicts[0].kind == "invalid" and "b1" in run.state.invalid
    why(run.folder, "b1")
    told = capsys.readouterr().out
    assert "in_order on the gate split" in told and "the same verdict" in told
    assert not [p for p in run.verify().problems if p.area == "audited"]


@pytest.mark.parametrize(
    ("kind", "paid", "measured"),
    [
        ("special_casing", "in_order", "in_order"),
        ("special_casing", "right", ""),
        ("answer_leak", "in_order", ""),
    ],
)
def test_a_finding_that_parts_the_proxy_from_the_truth_is_answered_by_the_proxy(
    tmp_path: Path, kind: str, paid: str, measured: str
) -> None:
    paper = Paper(finish)
    run = paper.start(proxied_task(tmp_path, paid), tmp_path / "run", ["run.rounds=0", "judge.audit=never"])
    said = Finding(detector="says_so", kind=kind, severity="critical", claim="it is so")
    with paper.context(run) as ctx:
        health = ctx.state.readings["b0"].model_copy(update={"findings": (said,)})
        ctx.record(keys.reading("b0", 2), Diagnosed, lambda: Diagnosed(round=0, health=health))
        asked = partial(shortcut_audits.proxy_questioned, ctx, "b0")
        assert asked("says_so", 0.2) == measured
        assert asked("promotion", 0.2) == "", "an outcome that rose is what is audited"
        unpaid = "" if paid != "in_order" else "in_order"
        assert asked("promotion", 0.0) == asked("certification", -0.1) == unpaid
