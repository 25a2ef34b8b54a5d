"""What now: every end of a run closes with one line of advice, from what happened."""

from __future__ import annotations

import ast
import io
import json
import os
import random
import re
from collections.abc import Callable, Sequence
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
from evotrainer.executors.paper import draw_result
from evotrainer.executors.spec import TrialSpec
from evotrainer.extras.export import choose
from evotrainer.projections.caveats import caveats, told
from evotrainer.projections.facts import KINDS, Fact, FactList
from evotrainer.records.console import Console
from evotrainer.records.events import Certified, TrialFinished
from evotrainer.records.interventions import Intervention
from evotrainer.records.ledger import Ledger
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.records.verdicts import Effect, GateResult
from evotrainer.run.observer import SilentObserver
from evotrainer.views.advice import a_branch_is_undecided, advice
from evotrainer.views.card import model_card
from evotrainer.views.fold import load_view, view_of
from evotrainer.views.model import RunView
from evotrainer.views.report import write_report
from evotrainer.views.rounds import ProposalLine, RoundView
from evotrainer.views.status import print_summary, render_status
from evotrainer.views.summary import headline
from evotrainer.views.summary import state as state_of
from evotrainer.views.tree import branch_line
from tests.letters_on_paper import MORE, QUICK, WARM, Go, finish, rollouts
from tests.paper import Paper
from tests.test_docs import commands

Start = Callable[..., api.Run]
Numbers = tuple[float, float, float]


def scored(base: float, trained: float, **more: Any) -> Callable[[TrialSpec], TrialFinished]:
    """Trials of these shares of solved tasks; `more`: what else a result has."""

    def end(spec: TrialSpec) -> TrialFinished:
        share = base if spec.branch == "base" else trained
        done = draw_result(spec, share, lambda p: f"{spec.branch}-{spec.seed}-{p.split}", steps=15, tasks=150)
        return done.model_copy(update=more if spec.train else {k: v for k, v in more.items() if k != "curve"})

    return end


@pytest.fixture
def start(task_file: Path, tmp_path: Path) -> Start:
    def run(made: Paper, *overrides: str) -> api.Run:
        return made.start(task_file, tmp_path / "r", [*QUICK, *overrides])

    return run


def shown(folder: Path) -> str:
    """The closing lines of a run, as its owner reads them."""
    console = Console(file=io.StringIO(), width=400, highlight=False)
    print_summary(folder, console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_base_that_solves_five_percent_wants_a_longer_warm_start(start: Start) -> None:
    run = start(Paper(scored(0.05, 0.05)), "run.rounds=0", "policy.warm_start.steps=400")
    line = advice(load_view(run.folder))
    assert "few successes to learn from" in line
    assert "policy.warm_start.steps=800 (now 400)" in line
    assert f"next: {line}" in shown(run.folder)
    assert status_json(run)["next"] == line
    page = write_report(run.folder).read_text(encoding="utf-8")
    assert "policy.warm_start.steps=800" in page and 'id="next"' in page


@pytest.mark.parametrize(("base", "told"), [(0.05, True), (0.4, False)])
def test_a_base_that_solves_too_little_is_told_before_anything_is_trained(
    task_file: Path, tmp_path: Path, base: float, told: bool
) -> None:
    class Log(SilentObserver):
        def note(self, text: str) -> None:
            lines.append(text)

        def finished(self, trial: TrialFinished) -> None:
            lines.append(trial.trial)

    lines: list[str] = []
    Paper(scored(base, base)).start(
        task_file, tmp_path / "r", [*QUICK, "run.rounds=0", "policy.warm_start.steps=400"], view=Log()
    )
    found = [i for i, x in enumerate(lines) if "few successes to learn from" in x]
    assert bool(found) is told
    assert not told or (found[0] < lines.index("b0-s1") and "policy.warm_start.steps=800 (now 400)" in lines[found[0]])


def test_advice_that_takes_a_new_run_says_what_alpha_it_will_have(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOTRAINER_REGISTER", str(tmp_path / "looks.db"))
    line = advice(load_view(start(Paper(scored(0.05, 0.05)), "evaluation.draw=fixed").folder))
    assert "policy.warm_start.steps" in line
    assert "a new run on these gate tasks shares their alpha with this one: `--dry-run` says what is left" in line


def test_a_policy_worse_than_its_base_is_the_first_line_and_not_tagged_certified(start: Start) -> None:
    run = start(Paper(scored(0.6, 0.4)), "run.rounds=0")
    view = load_view(run.folder)
    assert headline(view).startswith("Worse than before training: b0, the starting recipe, solves ")
    assert shown(run.folder).startswith("Worse than before training")
    assert advice(view).startswith("keep the base policy; train with a lower recipe.lr (now ")
    for trial in ("b0-s1", "b0-s2", "b0-s3"):
        (run.folder / "trials" / trial / "policy").mkdir(parents=True)
    chosen = choose(run.folder, run.events(), "b0", 1, False)
    assert not chosen.certified and chosen.worse.startswith("it is worse than the base policy: -")
    told: dict[str, Any] = {"trial": "b0-s1", "seed": 1, "rule": "", "invalid": "", "caveats": (), "sha256": "0"}
    card = model_card(view, "b0", **told, certified=False, base="", name="m", worse=chosen.worse)
    assert "- worse-than-base" in card and "- certified" not in card
    assert "**Worse than its base policy:**" in card


def test_a_better_policy_is_still_certified(start: Start) -> None:
    run = start(Paper(scored(0.4, 0.6)), "run.rounds=0")
    assert "Worse" not in shown(run.folder)
    (run.folder / "trials" / "b0-s1" / "policy").mkdir(parents=True)
    chosen = choose(run.folder, run.events(), "b0", 1, False)
    assert chosen.certified and not chosen.worse and not chosen.unshown


def test_a_policy_like_its_base_is_exported_with_that_caveat(start: Start) -> None:
    run = start(Paper(scored(0.5, 0.5)), "run.rounds=0")
    (run.folder / "trials" / "b0-s1" / "policy").mkdir(parents=True)
    chosen = choose(run.folder, run.events(), "b0", 1, False)
    (caveat, *_) = run.caveats["b0"]
    assert chosen.certified and not chosen.unshown, "its caveats say it, in `status` as on the card"
    assert caveat.text.startswith("it is not shown to be better than the base policy: ")


def test_a_start_that_learnt_from_few_successes_is_not_told_that_it_cannot(start: Start) -> None:
    run = start(Paper(scored(0.05, 0.3)), "run.rounds=0", "policy.warm_start.steps=400")
    assert run.certification is not None and run.certification.comparisons["start-base"]["low"] > 0
    assert "successes to learn from" not in advice(load_view(run.folder))


def test_an_undecided_branch_is_told_what_keeps_it_open() -> None:
    def told(low: float, *gates: GateResult) -> str:
        effect = Effect(
            mean=0.08, low=low, high=0.14, confidence=0.9, se=0.02, df=4, seeds=3, tasks=150, noise_floor=0.0
        )
        verdict = SimpleNamespace(effect=effect, gates=gates)
        branch = SimpleNamespace(name="b1", status="inconclusive", verdict=verdict, intervention=None)
        return a_branch_is_undecided(SimpleNamespace(branches={"b1": branch}, folder=None))  # type: ignore[arg-type]

    dear = GateResult(gate="compute", passed=False, message="trained at 2.94 x the control's compute")
    line = told(0.018, GateResult(gate="effect", passed=True, message=""), dear)
    assert "not seeds are lacking: trained at 2.94 x the control's compute; run again with judge.max_cost" in line
    assert "which 3 seeds on 150 tasks cannot tell from chance" in told(-0.01, dear)


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


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ({"reward": 0.0, "frac_reward_zero_std": 1.0}, "no attempt earned any reward"),
        ({"reward": 0.7, "frac_reward_zero_std": 1.0}, "all attempts at a task earned the same"),
        ({"reward": 0.7, "frac_reward_zero_std": 0.2}, "raise them"),
    ],
)
def test_a_training_that_changed_no_weight_says_why(start: Start, rows: dict[str, float], why: str) -> None:
    curve = tuple({"step": float(i), "grad_norm": 0.0, **rows} for i in range(1, 4))
    run = start(Paper(scored(0.3, 0.3, policy_sha256="same", curve=curve)), "run.rounds=0")
    line = advice(load_view(run.folder))
    assert line.startswith("b0 learnt nothing (its weights are those of the base policy)")
    assert why in line


def test_a_proxy_that_rose_alone_is_said(start: Start) -> None:
    def end(spec: TrialSpec) -> TrialFinished:
        done = scored(0.3, 0.3)(spec)
        proxy = 0.4 if spec.branch == "base" else 0.6
        paid = {"right_letters": proxy, "sorted_word": 0.3}
        return done.model_copy(update={"scores": tuple(s.model_copy(update={"components": paid}) for s in done.scores)})

    line = advice(load_view(start(Paper(end), "run.rounds=0").folder))
    assert line.startswith("right_letters rose by 20.0 points under b0 and sorted_word by 0.0")
    assert "brevity" in line


def rare(spec: TrialSpec) -> Sequence[Rollout]:
    """Two attempts in a hundred are right, half of them earn the proxy."""
    rng = random.Random(f"{spec.branch}-{spec.seed}")
    out = []
    for task in range(50):
        for k in range(4):
            right, near = (task, k) in ((3, 0), (9, 1)), rng.random() < 0.5
            paid = {"sorted_word": float(right), "right_letters": float(right or near), "brevity": 0.6}
            out.append(
                Rollout(
                    id=f"{spec.trial}-{task}-{k}", task=f"search-{task}", group=f"{spec.trial}-{task}", k=k,
                    split="search", turns=(Turn("user", "sort ab\n"), Turn("assistant", "ab" if right else "ba")),
                    reward=paid["right_letters"], tokens=3, finish="stop", components=paid,
                    outcome="correct" if right else "incorrect",
                )
            )  # fmt: skip
    return out


def test_the_right_reward_that_was_vetoed_is_worth_a_try_beside_the_present_one(start: Start) -> None:
    change = '{factor="rewards",new={right_letters=0.0,sorted_word=1.0}}'
    agent = ["run.agent=fixed", f"run.agent_options.interventions=[{change}]"]
    run = start(Paper(scored(0.3, 0.3), rare), *agent, 'environment.payable=["sorted_word"]')
    line = advice(load_view(run.folder))
    assert line.startswith("sorted_word, which tasks are judged by, was vetoed as a reward: it differs on 1.0% of")
    assert "recipe.rewards={right_letters = 1, sorted_word = 1}" in line


def test_a_budget_that_ended_the_search_says_in_which_round_and_how_to_go_on(start: Start) -> None:
    change = [f"run.agent_options.interventions=[{MORE},{WARM}]", "run.agent=fixed"]
    run = start(Paper(finish), *change, "run.rounds=4", "budget.trials=7")
    line = advice(load_view(run.folder), "runs/x")
    assert "the budget ended the search in round 1 of 4 (budget.trials: 7)" in line
    assert "`evotrainer resume runs/x budget.trials=14` goes on" in line, "three of its rounds are left"
    played = len(load_view(run.folder).rounds)
    Paper(finish).resume(run.folder, ["budget.trials=14"])
    assert len(load_view(run.folder).rounds) > played, "the command does what it says"


def test_a_promoted_champion_can_be_looked_at_or_exported(go: Go) -> None:
    run = go("won", changes=WARM)
    assert run.champion == "b1"
    assert "b1" in advice(load_view(run.folder))


def certified(run: api.Run, gain: Numbers, greedy: Numbers | None = None, bounds: Numbers = (0.0, 0.0, 0.0)) -> RunView:
    """The run with another certificate: a champion's gain over the start, and over the base policy by greedy
    decoding; `bounds`: of the sampled gain, of what greedy decoding has beyond half of it."""
    names = ("mean", "low", "high")
    found = {
        "champion-start": dict(zip(names, gain, strict=True)),
        "champion-base": {"mean": 0.2, "low": 0.1, "high": 0.3},
    }
    sides = dict(zip(("sampled_low", "excess_high"), bounds, strict=False))
    read = {"champion-base": {**dict(zip(names, greedy, strict=True)), **sides}} if greedy else {}
    return changed(run, lambda c: {"comparisons": c.comparisons | found, "greedy": read})


def changed(run: api.Run, update: Callable[[Certified], dict[str, Any]]) -> RunView:
    """The run's view with another certificate, its caveats computed from it."""
    events = [
        replace(e, body=e.body.model_copy(update=update(e.body))) if e.kind == "certified" else e for e in run.events()
    ]
    view = view_of(events)
    view.folder = run.folder
    settings = [e.kind for e in events]
    assert "certified" in settings and view.caveats == caveats(events)
    for b in view.branches.values():
        out = ("settings", "unaudited", "goes_with", "gap", "beyond")
        b.facts = FactList(tuple(f for f in b.facts if f.kind not in out))
    return view


def caveat(view: RunView) -> str:
    return told(view.caveats[view.champion])


def test_next_answers_the_caveat_on_top(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    run = go("won", changes=WARM)
    assert advice(certified(run, (0.1, 0.05, 0.15)), "R").startswith("`evotrainer export R my-model` writes b1")
    worse = certified(run, (0.1, 0.05, 0.15), (-0.04, -0.07, -0.01))
    line = advice(worse, "R")
    assert caveat(worse).startswith("by greedy decoding it is worse than the base policy: -4.0 [-7.0, -1.0] points")
    assert line.startswith("decoded greedily b1 is worse than the base policy, so keep that where answers are")
    assert "`evotrainer why R b1`" in line and "recipe.deploy_temperature" in line and "export" not in line
    assert "`evotrainer resume R run.rounds=2` plays one more round" in line
    assert "export" in advice(certified(run, (0.1, 0.05, 0.15), (-0.04, -0.09, 0.01)), "R"), "not shown to be worse"
    unshown = certified(run, (0.01, -0.02, 0.04))
    line = advice(unshown, "R")
    assert caveat(unshown).startswith("a gain over the starting recipe is not shown: +1.0")
    assert line.startswith("do not take b1 for better yet: ")
    assert "run.certify_seeds" in line and "run.rounds=2" in line and "export" not in line
    with monkeypatch.context() as m:  # whatever else may be said of the run
        m.setattr("evotrainer.views.advice.WHY", ((lambda view: "the budget ended it", False),))
        assert advice(unshown, "R") == line
    below = advice(certified(run, (-0.04, -0.07, -0.01)), "R")
    assert below.startswith("use the starting recipe (`evotrainer export R my-model --branch b0`); `evotrainer resume")
    both = certified(run, (0.01, -0.02, 0.04), (-0.04, -0.07, -0.01))
    assert advice(both).startswith("decoded greedily"), "the worst first, in the caveats as in the advice"
    assert [f.kind for f in both.caveats["b1"]][:2] == ["worse_greedy", "unconfirmed"]


def test_a_gain_of_sharpening_alone_is_answered_as_that_and_not_by_capabilities(go: Go) -> None:
    view = certified(go("won", changes=WARM), (0.1, 0.05, 0.15), (0.0, -0.02, 0.02), bounds=(0.05, -0.02, 0.0))
    assert caveat(view).startswith("sharpening: of +20.0 points over the base policy on unseen tasks greedy decoding")
    line = advice(view, "R")
    assert line.startswith("first try the base policy at a lower sampling temperature or greedily")
    assert "capability" not in line and "audit" not in line and "recipe.deploy_temperature" in line


def test_a_champion_below_the_base_is_never_advised_to_pay_something_else_than_what_counts(start: Start) -> None:
    """It said `pay something else than sorted_word`, and showed a trend of one column."""
    run = start(
        Paper(scored(0.6, 0.4)),
        "run.rounds=0",
        'environment.payable=["sorted_word"]',
        "recipe.rewards={sorted_word=1.0}",
    )
    line = advice(load_view(run.folder), "R")
    assert line.startswith("keep the base policy; train with a lower recipe.lr (now ") and "pay" not in line
    assert "--trend" not in line and "with run.health_every=3 a new run shows at which step the score falls" in line


def test_every_view_of_a_champion_below_the_base_says_the_same(go: Go) -> None:
    """It said `worse than before training` above a green tick, and advised to export it."""
    lost = {"champion-base": {"mean": -0.1, "low": -0.2, "high": -0.05}}
    view = changed(go("won", changes=WARM), lambda c: {"comparisons": c.comparisons | lost})
    b1 = view.branches["b1"]
    assert headline(view).startswith("Worse than before training: the champion b1 solves ")
    assert view.caveats["b1"][0].severity == "critical" and b1.status == "worse"
    assert b1.facts.text("status") == "promoted over b0 in round 1, but it is worse than the base policy"
    assert branch_line(b1)[0] == ("▼ b1", "bold red")
    assert advice(view, "R").startswith("keep the base policy; train with a lower recipe.lr (now ")


def test_every_caveat_has_an_advice_that_answers_it(go: Go) -> None:
    run = go("won", changes=WARM)
    about = dict.fromkeys(
        ("branch", "start", "steps", "pay", "fell", "other", "greedy", "audit", "longer", "wanted"), "X"
    )
    for kind, answer in ((k, x) for k, x in KINDS.items() if x.severity):
        fact = Fact(
            kind=kind,
            text="t",
            severity=answer.severity,
            remedy=answer.remedy.format(run="{run}", more="{more}", lr=0.1, **about),
        )
        view = changed(run, lambda c: {})
        view.branches[view.champion].facts = FactList((fact,))
        line = advice(view, "R")
        assert fact.remedy.replace("{run}", "R").partition("{more}")[0] in line, kind
        assert "{" not in line, line


def test_nothing_helped_names_the_diagnosis(go: Go) -> None:
    run = go("lost", changes=MORE)
    line = advice(load_view(run.folder))
    assert "; no change that was tried is better; the diagnosis names dead groups first" in line
    assert "run.rounds=2` plays one more round, with other changes" in line


def test_where_nothing_was_proposed_it_says_why_and_what_to_do(start: Start, tmp_path: Path) -> None:
    run = start(Paper(scored(0.5, 0.99), rollouts))
    line = advice(load_view(run.folder))
    assert "; nothing was proposed: search score 99" in line
    assert "is at the ceiling of 97%; b0 solves 99" in line and line.endswith(
        "look at what counts as right there (`evotrainer show RUN b0`), then give it harder tasks"
    )


def test_a_run_without_rounds_says_so_and_how_to_play_one(start: Start) -> None:
    run = start(Paper(scored(0.3, 0.6), rollouts), "run.rounds=0")
    line = advice(load_view(run.folder))
    first = "nothing was proposed: run.rounds=0; `evotrainer resume RUN run.rounds=1` plays one round"
    assert line.startswith("before you use b0, look at what its gain consists of"), "the caveat on top comes first"
    assert line.endswith(f"; {first}")


def test_a_search_that_found_nothing_to_prove_says_what_would_find_more(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(Paper(scored(0.3, 0.6), rollouts), "run.rounds=0")
    view = load_view(run.folder)
    assert view.closed
    end = view.closed.model_copy(update={"reason": "every recipe that it can reach has been trained"})
    monkeypatch.setattr(type(view), "closed", end)
    view.rounds[1] = RoundView(1)
    line = advice(view)
    assert "; nothing was proposed: every recipe that it can reach has been trained; `evotrainer resume" in line
    assert line.endswith("finds more where more may be changed: reward components, environment knobs, run.agent")


def test_what_was_refused_before_it_was_trained_is_said(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    view = load_view(start(Paper(scored(0.3, 0.6), rollouts), "run.rounds=0").folder)
    assert view.closed
    end = view.closed.model_copy(update={"reason": "every round of the task file was played"})
    monkeypatch.setattr(type(view), "closed", end)
    change = Intervention.model_construct(factor="resample", old=0, new=2)
    view.rounds[1] = RoundView(1, lines=[ProposalLine(change, fate="refused", reason="group_filter is none")])
    line = advice(view)
    assert "was refused before it was trained: group_filter is none (`evotrainer cases RUN --trace`)" in line


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
    for path in ("views/advice.py", "projections/base_policy.py", "judge/checks.py"):
        said += re.sub(r'"\s*\n\s*f?"', "", (ROOT / "src" / "evotrainer" / path).read_text(encoding="utf-8"))
    quoted = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert len(quoted) >= 12
    assert not [q for q in quoted if q not in said]
