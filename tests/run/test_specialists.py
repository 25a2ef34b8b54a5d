"""Several agents in one search: each changes its own factors, all learn from all, and every trial has a label."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import pytest

from evotrainer import api
from evotrainer.cli.doctor import _seat
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError
from evotrainer.executors.paper import draw_result
from evotrainer.executors.spec import TrialSpec
from evotrainer.factors import FACTORS, family_of
from evotrainer.factors.roster import GENERICS, SPECIALISTS, AgentRow
from evotrainer.projections.labels import LABELS, label_of_refusal
from evotrainer.projections.trials import LabelledTrial, counts, labelled
from evotrainer.records.events import TrialFinished
from evotrainer.records.recipe import COMPOSITES, Recipe
from evotrainer.run.opening import check_task
from evotrainer.verify import Record, checks
from tests.cli.call import in_this_process as evotrainer
from tests.leaky_task import ENV, RECIPE
from tests.paper import Paper, bodies, ids, stopped_before_each

TASK = f"""
[task]
name = "several"
[environment]
name = "python:{ENV}:environment"
payable = ["right"]
{RECIPE}[judge]
audit = "never"
max_seeds = 3
[run]
agent = "specialists"
rounds = 1
branches = 1
probes = 15
workers = 2
seeds = [1, 2, 3]
certify_seeds = [101, 102, 103]
health_every = 0
evolve_harness = false
[budget]
trial_cpu_s = 10
[run.agent_options]
worth = 0
"""


def finish(spec: TrialSpec) -> TrialFinished:
    """A higher rate and larger batches help; four updates a step hurt; a training with much weight decay breaks off."""
    r = spec.recipe
    p = 0.45 + 0.08 * (r.lr > 1e-5) + 0.08 * (r.prompts_per_step > 16) - 0.1 * (r.updates_per_step > 1)
    p += random.Random(f"{r.hash}-{spec.seed}").gauss(0, 0.004) - 0.2 * (spec.branch == "base")
    done = draw_result(spec, p, lambda plan: f"{r.hash}-{spec.seed}-{plan.split}", spec.protocol.knobs)
    if spec.purpose == "probe" and r.weight_decay > 0:
        return done.model_copy(update={"status": "failed", "label": "train_budget_overrun", "error": "too long"})
    return done


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "task.toml").write_text(TASK)
    return tmp_path / "task.toml"


@pytest.fixture
def quick() -> Paper:
    return Paper(finish)


def rows(run: api.Run) -> list[LabelledTrial]:
    return labelled(run.events())


def own(role: str, t: LabelledTrial) -> bool:
    """Did a trial change what its role owns, against what it was made from? (No change: another seed of a recipe.)"""
    return all(family_of(f) == role for f in t.changes)


def problems(run: api.Run, *kinds: str) -> list[str]:
    record, check = Record(run.folder, run.events()), checks()
    return [str(p) for e in run.events() if e.kind in kinds for p in check[e.kind](record, e)]


def test_every_factor_of_a_recipe_is_owned_by_one_surface() -> None:
    assert {*Recipe.model_fields, *COMPOSITES} == set(FACTORS)
    assert family_of("knobs.hint") == family_of("scaffold.system") == "harness"
    assert AgentRow(role="x", surface=("all",)).owns("lr")
    assert AgentRow(role="mine", surface=("reward", "lr")).owns("lr")
    assert not AgentRow(role="mine", surface=("reward", "lr")).owns("clip")


def test_each_changes_its_own_and_builds_upon_what_others_found(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(
        task, tmp_path / "run", ["run.agent_options.confirm=0", "run.seed=3"]
    )  # 15 trainings: one begins with 14 alone
    trials = [t for t in rows(run) if t.kind == "search"]
    assert len(trials) == 15 and {t.by for t in trials} <= {r.role for r in SPECIALISTS}
    assert len({t.by for t in trials}) >= 4
    assert all(own(t.by, t) for t in trials)
    by = {t.trial: t.by for t in trials}
    assert any(t.parent in by and by[t.parent] != t.by for t in trials), "nobody built upon another's training"
    assert all(t.verified and t.hypothesis and t.expected for t in trials)
    (branch,) = [t for t in rows(run) if t.kind == "branch"]
    assert "+" in branch.by, "what they found together is proposed together"
    assert branch.label == "keep" and branch.verified and branch.expected and branch.measured
    assert not problems(run, "probes", "searched", "branch") and not run.state.problems


def test_without_a_lineage_each_knows_its_own_trainings_alone(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["run.lineage=false"])
    probes = [p for b in bodies(run, "probes") for p in b.probes]
    by = {p.probe: p.by for p in probes}
    assert len({*by.values()}) >= 4
    for p in probes:
        assert not p.departs or by[p.departs] == p.by
        assert all(family_of(f) == p.by for f in p.changes), "another's change is in force"
    (branch,) = [t for t in rows(run) if t.kind == "branch"]
    assert branch.by in by.values() and all(family_of(f) == branch.by for f in branch.changes)
    assert not problems(run, "probes", "searched")


def test_agents_without_a_family_of_their_own_share_the_places(task: Path, tmp_path: Path, quick: Paper) -> None:
    several = json.dumps([{"role": r.role, "surface": ["all"]} for r in GENERICS]).replace('":', '"=')
    run = quick.start(task, tmp_path / "run", ["run.agent=statistical", f"run.agents={several}", "run.probes=10"])
    made = [t.by for t in rows(run) if t.kind == "search"]
    assert sorted(made) == sorted([r.role for r in GENERICS] * 2)
    assert run.state.opened and run.state.opened.agent == "specialists"


def test_a_run_without_several_agents_is_recorded_as_before(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["run.agent=statistical"])
    import sqlite3

    with sqlite3.connect(run.folder / "ledger.db") as db:
        for kind, body in db.execute("select kind, body from event where kind in ('probes', 'proposed', 'branch')"):
            told = json.loads(body)
            for one in [*told.get("probes", ()), *told.get("proposal", {}).get("interventions", ())]:
                assert not {"by", "why", "gain"} & one.keys(), kind


def test_a_run_that_was_killed_goes_on_the_same(task: Path, tmp_path: Path, quick: Paper) -> None:
    whole, folder = quick.start(task, tmp_path / "whole"), tmp_path / "run"
    points = ("r1/probes/2", "r1/proposed")
    run = stopped_before_each(points, partial(quick.start, task, folder), partial(quick.resume, folder))
    assert ids(run) == ids(whole)
    assert [p.recipe_hash for b in bodies(run, "probes") for p in b.probes] == [
        p.recipe_hash for b in bodies(whole, "probes") for p in b.probes
    ]


def test_without_a_search_the_branches_are_the_members_in_turn(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run", ["run.probes=0", "run.branches=3", "run.rounds=2"])
    made = [t for t in rows(run) if t.kind == "branch"]
    assert len({t.by for t in made}) >= 2 and all(own(t.by, t) for t in made)


def test_labels_are_shown_in_status_cases_lineage_and_report(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(
        task, tmp_path / "run", ["run.agent_options.sure=0.9", "run.agent_options.screen=0", "run.seed=2"]
    )
    found = counts(rows(run))
    assert found["train_budget_overrun"] == sum(
        t.label == "train_budget_overrun" for t in rows(run) if t.kind == "search"
    )
    assert found["keep"] and found["discard"] and set(found) <= set(LABELS)
    status = evotrainer("status", str(run.folder)).stdout
    assert f"keep {found['keep']}" in status and "algorithm" in status and "ideas" in status
    assert json.loads(evotrainer("status", str(run.folder), "--json").stdout)["labels"] == found
    shown = evotrainer("cases", str(run.folder), "--trials", "--json").stdout
    assert [t["trial"] for t in json.loads(shown)] == [t.trial for t in rows(run)]
    wide = evotrainer("cases", str(run.folder), "--trials", env={"COLUMNS": "600"}).stdout
    assert "train budget overrun: too long" in wide
    assert "keep" in evotrainer("cases", str(run.folder), "--trials").stdout
    searched = counts(t for t in rows(run) if t.kind == "search")
    assert f"discard {searched['discard']}" in evotrainer("lineage", str(run.folder)).stdout.replace("\n", " ")
    page = run.report().read_text()
    assert "train_budget_overrun" in page and "Every trial" in page and "<dt>algorithm</dt>" in page


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("over budget: 24 trials asked, 20 left of budget.trials=63", "size_blocked"),
        ("not among the first 1 of this round", "not_taken"),
        ("tried before as b1 (reject); to try it again, cite it", "repeated"),
        ("this recipe was trained already as b2", "repeated"),
        ("opens hint, which honest training has no need of (x)", "disqualified"),
        ("recipe.rewards pays right: the outcome of x, or derived from it, which is not for sale; reward y",
         "disqualified"),
        ("declared factor lr, but the recipes differ in clip", "preflight_crash"),
        ("branch changes 2 factors, exactly one is allowed; split it", "size_blocked"),
        ("trials.0: it changes 7 factors, at most 3 are possible here", "size_blocked"),
        ("the answer holds no JSON object; give one, no prose", "preflight_crash"),
        ("lr: Input should be greater than 0", "preflight_crash"),
    ],
)  # fmt: skip
def test_a_refusal_has_a_label(reason: str, label: str) -> None:
    assert label_of_refusal(reason) == label


@pytest.mark.parametrize(
    ("override", "wrong"),
    [
        ("run.agents=[{role='reward'}, {role='reward'}]", "two of run.agents have the same role"),
        ("run.agents=[{role='poet'}]", "'poet' is no surface and no factor"),
        ("run.agents=[{role='reward', carrier='pigeon'}]", "run.agents reward: carrier"),
        ("run.agents=[{role='reward', carrier='command'}]", "needs run.agent_options.command"),
        ("run.agents=[{role='reward', options={model='x'}}]", "takes run.agent_options, not options of its own"),
        ("run.agents=[{role='re ward'}]", "role"),
    ],
)
def test_a_roster_that_cannot_be_has_one_line_of_cause(override: str, wrong: str, task: Path) -> None:
    with pytest.raises(ConfigError, match=wrong) as e:
        check_task(load_task(task, [override]))
    assert "\n" not in str(e.value)
    with pytest.raises(ConfigError, match="run.lineage is of several agents"):
        load_task(task, ["run.agent=statistical", "run.lineage=false"])
    with pytest.raises(ConfigError, match="drop one"):
        load_task(task, ["run.agent=random", "run.agents=[{role='reward'}]"])


def test_somebody_sits_for_one_role_and_the_others_stay_statistical(task: Path, tmp_path: Path, quick: Paper) -> None:
    script = tmp_path / "agent.py"
    script.write_text(
        "import json, sys\nr = json.load(open(sys.argv[1]))\n"
        "assert r['role'] == 'algorithm' and 'lr' in r['factors'] and 'rewards' not in r['factors'], r['role']\n"
        "new = {1: {'rewards': {'right': 1.0}}, 0: {'lr': 1e-5 + 1e-6 * (1 + r['number'])}}[not r['complaint']]\n"
        "new = {'lr': 1e-5 + 1e-6 * (1 + r['number'])} if r['complaint'] else {'rewards': {'right': 0.5}}\n"
        "t = {'changes': new, 'why': 'a step too small', 'gain': 0.01, 'sd': 0.02}\n"
        "t |= {'departs': r['departs'][-1]} if r['departs'] and r['complaint'] else {}\n"
        "print(json.dumps({'trials': [t]}))\n"
    )
    command = json.dumps(["python3", str(script), "{request_file}"])
    several = f"[{{role='reward'}}, {{role='algorithm', carrier='command', options={{command={command}}}}}]"
    run = quick.start(task, tmp_path / "run", [f"run.agents={several}", "run.probes=6", "run.workers=1"])
    trials = [t for t in rows(run) if t.kind == "search"]
    assert [t.by for t in trials] == ["reward", "algorithm"] * 3
    mine = [t for t in trials if t.by == "algorithm"]
    assert all(set(t.changes) == {"lr"} and t.hypothesis == "a step too small" for t in mine)
    assert all(t.expected == (0.01, 0.02) for t in mine) and all(t.parent.startswith("p") for t in mine)
    answered = [(a.step, a.stage) for a in bodies(run, "answered")]
    assert answered[:2] == [("search1-algorithm", "schema"), ("search1-algorithm", "")]
    refused = [t for t in rows(run) if t.kind == "answer"]
    assert {t.by for t in refused} == {"algorithm"} and {t.label for t in refused} == {"preflight_crash"}
    assert not problems(run, "asked", "answered", "probes")
    replay = several.replace("command'", "replay'").replace(f"command={command}", f"run='{run.folder}'")
    again = quick.start(task, tmp_path / "again", [f"run.agents={replay}", "run.probes=6", "run.workers=1"])
    assert [p.recipe_hash for b in bodies(again, "probes") for p in b.probes] == [
        p.recipe_hash for b in bodies(run, "probes") for p in b.probes
    ]


def test_doctor_asks_every_seat_of_a_roster(task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.dumps({"trials": [{"changes": {"lr": 0.001}, "why": "too small"}]})
    options = f"{{command={json.dumps(['echo', answer])}}}"
    seats = f"[{{role='reward'}}, {{role='algorithm', carrier='command', options={options}}}]"
    (tmp_path / "seats.toml").write_text(task.read_text().replace('agent = "specialists"', f"agents = {seats}"))
    assert not _seat(tmp_path / "seats.toml") and "seat of algorithm: command gives a valid" in capsys.readouterr().out
    assert "only agent seat, and run.agents, ask somebody" in str(_seat(task))


@pytest.mark.parametrize(
    ("answer", "mark", "said"),
    [
        ({"lr": 0.001}, "[ ok ]", "command gives a valid answer"),
        ({"rewards": {"right": 1.0}}, "[warn]", "factors lr and steps: trials.0: unknown factor 'rewards'"),
        ({"rewards": {"right": 1.0}, "lr": 0.001}, "[warn]", "command speaks the format, but did not answer this"),
        ({"lr": 1e-4}, "[FAIL]", "lr is 0.0001 already"),
        ("rewards", "[FAIL]", "command answers a made-up request with the factors lr and steps, but "),
    ],
)
def test_doctor_does_not_fail_a_seat_for_a_factor_that_its_made_up_request_has_not(
    task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: object, mark: str, said: str
) -> None:
    told = json.dumps({"trials": [{"changes": answer, "why": "too small"}]})
    options = f"{{command={json.dumps(['echo', told])}}}"
    own = f"agents = [{{role='reward'}}, {{role='algorithm', carrier='command', options={options}}}]"
    (tmp_path / "seat.toml").write_text(task.read_text().replace('agent = "specialists"', own))
    assert bool(_seat(tmp_path / "seat.toml")) is (mark == "[FAIL]")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{mark} seat") and said in line
