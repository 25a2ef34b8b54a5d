"""What now: every end of a run closes with one line of advice, from what happened."""

from __future__ import annotations

import ast
import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripts.settings_reference import keys

from evotrainer import api
from evotrainer.cli.status import status_json
from evotrainer.config.task import TaskFile
from evotrainer.errors import TrainerError
from evotrainer.executors.spec import TrialSpec
from evotrainer.projections.base_policy import too_weak
from evotrainer.projections.facts import KINDS, Fact, FactList
from evotrainer.records.chain import Event
from evotrainer.records.console import Console
from evotrainer.records.events import TrialFinished
from evotrainer.records.ledger import Ledger
from evotrainer.records.verdicts import Effect, GateResult
from evotrainer.views.advice import a_branch_is_undecided, advice
from evotrainer.views.fold import load_view, view_of
from evotrainer.views.report import write_report
from evotrainer.views.status import print_summary, render_status
from evotrainer.views.summary import state as state_of
from tests.letters_on_paper import QUICK, finish
from tests.paper import Paper
from tests.projections.test_facts import GREEDY, certified, compared, recorded, until, worse
from tests.test_docs import commands

CLOSED = next(e for e in recorded() if e.kind == "closed")


def ended(*, base: float, trained: float, reason: str = "run.rounds=0", last: str = "v0", **more: Any) -> list[Event]:
    """The starting recipe of the whole run, or what came until an event, with other scores, and the end; `more`: what
    else a training's result has."""

    def scored(e: Event) -> Event:
        if not isinstance(e.body, TrialFinished):
            return e
        of = base if e.body.branch == "base" else trained
        parts = more.get("components", {}).get("base" if e.body.branch == "base" else "trained")
        scores = [s.model_copy(update={"score": of} | ({"components": parts} if parts else {})) for s in e.body.scores]
        return replace(e, body=e.body.model_copy(update={"scores": tuple(scores)}))

    closed = replace(CLOSED, body=CLOSED.body.model_copy(update={"reason": reason, "champion": "b0"}))
    return [*map(scored, until(last)), closed]


def flat(**rows: float) -> list[Event]:
    """Trainings that changed no weight."""
    same = {"champion-base": compared(0, 0, 0, same_weights=1)}

    def still(e: Event) -> Event:
        if isinstance(e.body, TrialFinished) and e.body.branch == "b5":
            return replace(e, body=e.body.model_copy(update={"curve": (rows,)}))
        return e

    return [still(e) for e in certified(comparisons=same)]


def rejected() -> list[Event]:
    """One change, rejected."""
    out = ("b1", "b3", "v1", "r1/gate")
    kept = [e for e in until("b3/judged") if not e.id.startswith(out)]
    return [*kept, replace(CLOSED, body=CLOSED.body.model_copy(update={"champion": "b0"}))]


def below_start() -> list[Event]:
    return certified(comparisons={"champion-start": compared(-0.04, -0.07, -0.01)})


TABLE: tuple[tuple[str, Callable[[], list[Event]], str], ...] = (
    ("few successes", lambda: ended(base=0.05, trained=0.05), "few successes to learn from: start from a stronger"),
    ("nearly all", lambda: ended(base=0.97, trained=0.97), "the base policy solves 97.0% of the search tasks already"),
    ("never correct", lambda: ended(base=0.0, trained=0.0), "no attempt of any policy was ever correct: check that"),
    ("no reward", lambda: flat(reward=0.0, frac_reward_zero_std=1.0),
     "b5 learnt nothing: no attempt earned any reward"),
    ("no spread", lambda: flat(reward=0.7, frac_reward_zero_std=1.0),
     "all attempts at a task earned the same"),
    ("too slow", lambda: flat(reward=0.7, frac_reward_zero_std=0.2),
     "recipe.steps=30 at recipe.lr=0.0002 moves nothing: raise them"),
    ("proxy alone", lambda: ended(base=0.3, trained=0.3, components={
        "base": {"visible": 0.4, "hidden": 0.3}, "trained": {"visible": 0.6, "hidden": 0.3}}),
     "visible rose by 20.0 points under b0 and hidden by 0.0: training raised the proxy alone; pay "),
    ("nothing proposed", lambda: ended(base=0.3, trained=0.6),
     "nothing was proposed: run.rounds=0; `evotrainer resume R run.rounds=1` plays one round"),
    ("ceiling", lambda: ended(base=0.3, trained=0.99, reason="search score 99%", last="r1/opened"),
     "nothing was proposed: search score 99%; b0 solves 99.0% of the search tasks, so that little is left to gain"),
    ("exhausted", lambda: ended(base=0.3, trained=0.6, reason="nothing is left", last="r1/opened"),
     "nothing was proposed: nothing is left; `evotrainer resume R run.rounds=2` plays one more round, and finds more"),
    ("budget", lambda: ended(base=0.3, trained=0.6, reason="the budget is spent", last="r1/opened"),
     "the budget ended the search in round 1 (budget."),
    ("nothing helped", rejected, "no change that was tried is better; the diagnosis of round 1 ranks the "),
    ("unaudited", recorded, "before you use b5, look at what its gain consists of (`evotrainer why R b5`)"),
    ("below base", worse, "keep the base policy; train with a lower recipe.lr (now "),
    ("below start", below_start, "use the starting recipe (`evotrainer export R my-model --branch b0`); `evotrainer"),
    ("greedy", lambda: certified(greedy={"champion-base": GREEDY | {"excess_high": 0.1, "high": -0.01}}),
     "decoded greedily b5 is worse than the base policy, so keep that where answers are decoded so"),
    ("sharpening", lambda: certified(greedy={"champion-base": GREEDY}),
     "first try the base policy at a lower sampling temperature or greedily"),
    ("unconfirmed", lambda: certified(comparisons={"champion-start": compared(0.01, -0.02, 0.04)}),
     "do not take b5 for better yet: a new run with more evaluation.gate_tasks"),
)  # fmt: skip


@pytest.mark.parametrize(("events", "line"), [r[1:] for r in TABLE], ids=[r[0] for r in TABLE])
def test_each_end_of_a_run_has_its_line(events: Callable[[], list[Event]], line: str) -> None:
    assert line in advice(view_of(events()), "R")


def test_a_base_that_solves_too_little_wants_a_longer_warm_start() -> None:
    assert "policy.warm_start.steps=800 (now 400)" in too_weak(0.05, "warm-start", 400)
    assert too_weak(0.4, "warm-start", 400) == too_weak(None, "warm-start", 400) == ""
    learnt = certified(comparisons={"start-base": compared(0.2, 0.1, 0.3)})
    assert "successes" not in advice(view_of(learnt)), "however few there were, the start learnt from them"


def test_the_line_is_the_same_in_every_view(task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVOTRAINER_REGISTER", str(tmp_path / "looks.db"))
    run = Paper(finish).start(task_file, tmp_path / "r", [*QUICK, "run.rounds=0", "evaluation.draw=fixed"])
    line, console = advice(load_view(run.folder), str(run.folder)), Console(file=io.StringIO(), width=900)
    print_summary(run.folder, console)
    assert " ".join(f"next: {line}".split()) in " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert status_json(run)["next"] == line
    assert 'id="next"' in write_report(run.folder).read_text(encoding="utf-8")
    assert "a new run on these gate tasks shares their alpha" in line or not any(
        f.new_run for f in load_view(run.folder).branches["b0"].facts.caveats[:1]
    )


def test_an_undecided_branch_is_told_what_keeps_it_open() -> None:
    def told(low: float, *gates: GateResult) -> str:
        effect = Effect(
            mean=0.08, low=low, high=0.14, confidence=0.9, se=0.02, df=4, seeds=3, tasks=150, noise_floor=0.0
        )
        verdict = SimpleNamespace(gates=gates)
        branch = SimpleNamespace(name="b1", status="inconclusive", effect=effect, verdict=verdict, intervention=None)
        return a_branch_is_undecided(SimpleNamespace(branches={"b1": branch}, folder=None))  # type: ignore[arg-type]

    dear = GateResult(gate="compute", passed=False, message="trained at 2.94 x the control's compute")
    line = told(0.018, GateResult(gate="effect", passed=True, message=""), dear)
    assert "not seeds are lacking: trained at 2.94 x the control's compute; run again with judge.max_cost" in line
    assert "which 3 seeds on 150 tasks cannot tell from chance" in told(-0.01, dear)


def test_every_caveat_has_an_advice_that_answers_it() -> None:
    about = dict.fromkeys(
        ("branch", "start", "steps", "pay", "fell", "other", "greedy", "audit", "longer", "wanted", "still"), "X"
    )
    for kind, answer in ((k, x) for k, x in KINDS.items() if x.severity):
        remedy = answer.remedy.format(run="{run}", more="{more}", lr=0.1, **about)
        view = view_of(recorded())
        view.branches["b5"].facts = FactList((Fact(kind=kind, text="t", severity=answer.severity, remedy=remedy),))
        line = advice(view, "R")
        assert remedy.replace("{run}", "R").partition("{more}")[0] in line, kind
        assert "{" not in line, line


def test_a_reward_that_does_not_return_is_named(task_file: Path, tmp_path: Path) -> None:
    made = Paper(finish)
    with made.stopped(lambda spec: spec.trial == "b0-s2"):
        made.start(task_file, tmp_path / "r", QUICK)
    beat = {"phase": "waiting for reward function 'slow'", "step": 3, "steps": 15, "cpu_s": 1.0, "pid": os.getpid()}
    with Ledger.open(tmp_path / "r" / "ledger.db") as ledger:
        waits = next(e.body.trial for e in reversed(ledger.events("intended")))
        (tmp_path / "r" / "trials" / waits).mkdir(parents=True, exist_ok=True)
        (tmp_path / "r" / "trials" / waits / "heartbeat").write_text(json.dumps(beat))
        line = advice(load_view(tmp_path / "r"))
    assert line.startswith(f"{waits} is waiting for reward function 'slow', which does not return: stop the run")


def test_a_run_that_stopped_says_resume_and_one_that_runs_does_not(task_file: Path, tmp_path: Path) -> None:
    made = Paper(finish)
    with made.stopped(lambda spec: spec.trial == "b0-s2"):
        made.start(task_file, tmp_path / "r", QUICK)
    view = load_view(tmp_path / "r")
    assert f"`evotrainer resume {tmp_path / 'r'}`" in advice(view, str(tmp_path / "r"))

    def state() -> str:
        console = Console(file=io.StringIO(), width=300, highlight=False)
        console.print(render_status(tmp_path / "r"))
        return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]

    assert "Not finished: the ledger has no closing event" in state()
    with Ledger.open(tmp_path / "r" / "ledger.db"):  # its writer, as `evotrainer run` is
        told = state()
        assert f"Running, by process {os.getpid()}: trial 3 of at most 14" in told
        assert "resume" not in told
        found = status_json(api.open_run(tmp_path / "r"))
        assert (found["state"], found["driver"]) == ("running", os.getpid())
        json.dumps(found)
    assert status_json(api.open_run(tmp_path / "r"))["driver"] is None


def test_a_failed_trial_that_the_run_needs_is_told_with_the_way_on(task_file: Path, tmp_path: Path) -> None:
    """A reward function that raised in training left a run of which `status` said only that it had not ended."""

    def broken(spec: TrialSpec) -> TrialFinished:
        told = {"status": "failed", "label": "crash", "error": "ValueError: my reward is broken", "scores": ()}
        return finish(spec) if spec.purpose == "base" else finish(spec).model_copy(update=told)

    with pytest.raises(TrainerError, match="my reward is broken"):
        Paper(broken).start(task_file, tmp_path / "r", QUICK)
    view = load_view(tmp_path / "r")
    assert "trial b0-s1 failed: ValueError: my reward is broken" in state_of(view)[1]
    assert status_json(api.open_run(tmp_path / "r"))["reason"].endswith("my reward is broken")
    assert advice(view, "runs/x").startswith("fix the cause and `evotrainer resume runs/x` tries it again")
    Paper(finish).resume(tmp_path / "r")
    assert "broken" not in state_of(load_view(tmp_path / "r"))[1]


ROOT = Path(__file__).parents[2]
ADVISES = ("views/advice", "projections/facts", "projections/caveats", "projections/base_policy")


def sentences(path: str) -> list[str]:
    """The strings of a module, a formatted one whole, with a mark for each value in it."""
    tree = ast.parse((ROOT / "src" / "evotrainer" / f"{path}.py").read_text(encoding="utf-8"))
    inside = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    parts = [n.values if isinstance(n, ast.JoinedStr) else [n] for n in ast.walk(tree) if id(n) not in inside]
    texts = [p for p in parts if all(isinstance(getattr(v, "value", None), str | ast.expr) for v in p)]
    return ["".join(v.value if isinstance(v.value, str) else "…" for v in p) for p in texts]


def test_every_command_option_and_setting_that_is_advised_exists() -> None:
    """A finished run once said `evotrainer export RUN --out FOLDER`, which no export takes."""
    text = "\n".join(s for path in ADVISES for s in sentences(path))
    advised = re.findall(r"`evotrainer ([a-z-]+)([^`]*)`", text)
    assert len(advised) > 10 and {name for name, _ in advised} <= commands().keys()
    wrong = [(n, o) for n, rest in advised for o in re.findall(r"(?<!\S)--[a-z-]+", rest) if o not in commands()[n]]
    assert not wrong
    sections = "|".join(TaskFile.model_fields)
    named = set(re.findall(rf"\b(?:{sections})\.[a-z]\w+(?:\.[a-z]\w+)*", text))
    known = {key for key, *_ in keys(TaskFile)} | {"environment.payable"}
    assert len(named) > 15 and not named - known


PAGE = ROOT / "docs" / "nothing-promoted.md"


def test_every_line_that_the_page_on_runs_without_a_promotion_explains_is_said() -> None:
    """Its first column quotes `views.advice` and the judge, whose sentences stand in the source in pieces."""
    said = ""
    for path in ("views/advice.py", "projections/base_policy.py", "projections/facts.py", "judge/checks.py"):
        said += re.sub(r'"\s*\n\s*f?"', "", (ROOT / "src" / "evotrainer" / path).read_text(encoding="utf-8"))
    quoted = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert len(quoted) >= 11
    assert not [q for q in quoted if q not in said]
