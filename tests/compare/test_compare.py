"""`bench.compare`: equal trainings, one proof for all, resumed without paying twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from bench.compare import ARMS, check_arms, compare, open_plan, table
from bench.compare.arms import arm_task, least, proof_task
from bench.compare.choices import choices
from bench.compare.paper import PaperExecutor, draw_result
from bench.compare.proof import RunProver
from bench.compare.table import interval
from bench.compare.text import text_table

from evotrainer import api
from evotrainer.config.evaluation import EvaluationProtocol
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError
from evotrainer.executors.spec import TrialSpec
from evotrainer.projections.branches import START
from evotrainer.records.events import TrialFinished
from evotrainer.records.events.reader import ReaderConcluded, ReaderRate
from evotrainer.rules.recipes import protocol
from evotrainer.verify import Record, checks
from tests import leaky_task
from tests.compare.worlds import WORLD, Counted, each, plan_of, play, task_of
from tests.paper import bodies, complaints, set_in

COLD = EvaluationProtocol(temperature=0.25)
CONTROLS = [a for a, kind in ARMS.items() if kind.control]


@pytest.mark.slow
def test_every_arm_has_the_same_number_of_trainings(tmp_path: Path) -> None:
    rows = play(tmp_path, list(ARMS), trainings=24)
    assert [r["arm"] for r in rows] == list(ARMS)
    for r in rows:
        run = api.open_run(tmp_path / "out" / r["run"])
        trained = [e.body for e in run.events() if e.kind == "intended" and e.body.train]
        # a champion's fresh trainings are the certificate's
        own = {("confirm", run.champion)} if r["arm"] not in CONTROLS else set()
        counted = [t for t in trained if t.purpose != "certify" and (t.purpose, t.branch) not in own]
        assert r["trainings"] == min(24, len(counted)), r["arm"]
        found = choices(run.events(), r["arm"] in CONTROLS)
        stood = max(c.trainings for c in found if c.trainings <= 24)
        assert r["recipe"] == [c.recipe.hash for c in found if c.trainings == stood][-1], "nothing beyond K counts"
        if r["arm"] in CONTROLS:
            assert len(trained) == 24, "three of the start, the rest search: a control arm proves nothing by itself"
            assert {t.purpose for t in trained} == {"noise", "probe"}


def test_a_proof_evaluates_as_the_task_s_recipe_samples(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    plain = proof_task(task, task.recipe.with_changes({"lr": 1e-3}), 3, 1)
    assert plain.evaluation == arm_task(task, "greedy", 24, 1).evaluation, "where nothing differs nothing is said"
    choice = task.recipe.with_changes({"temperature": 1.3, "max_tokens": 2 * task.recipe.max_tokens})
    made = proof_task(task, choice, 3, 1)
    assert made.recipe == choice and protocol(made, choice, {}) == protocol(task, choice, {})
    used = choice.with_changes({"deploy_temperature": 0.5})
    assert protocol(proof_task(task, used, 3, 1), used, {}).temperature == 0.5
    own = task.model_copy(update={"evaluation": task.evaluation.model_copy(update={"protocol": COLD})})
    assert protocol(proof_task(own, choice, 3, 1), choice, {}).temperature == 0.25, "the task's own protocol goes on"


@pytest.mark.parametrize("arm", CONTROLS)
def test_a_control_arm_reads_search_only_and_promotes_nobody(arm: str, tmp_path: Path) -> None:
    (row,) = play(tmp_path, [arm])
    run = api.open_run(tmp_path / "out" / row["run"])
    assert [v.branch for v in bodies(run, "promoted")] == ["b0"] and run.champion == "b0" and not run.verdicts
    probes = {e.body.trial for e in run.events() if e.kind == "intended" and e.body.purpose == "probe"}
    read = {s.split for t in bodies(run, "finished") if t.trial in probes for s in t.scores}
    assert len(probes) == 9 and read == {"search"}
    (end,) = bodies(run, "searched")
    recipe = run.task.recipe.with_changes(end.choice.changes)
    assert recipe.hash == row["recipe"] and end.choice.score == row["reported"]
    assert not complaints(run) and not run.state.problems


def test_a_run_of_an_arm_is_an_ordinary_run_that_can_be_reported_and_verified(tmp_path: Path) -> None:
    (row,) = play(tmp_path, ["best_of_n"])
    run = api.open_run(tmp_path / "out" / row["run"])
    assert run.closed is not None and run.certification is not None
    assert run.report().is_file()
    probed = [p for p in run.verify().problems if p.area in ("probes", "searched", "ledger")]
    assert not probed, "a search training without a change is one of the champion's recipe"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"score": 0.99}, "no training of that recipe scored 0.9900 on search"),
        ({"changes": {"kl_beta": 0.033}}, "was never trained"),
    ],
)
def test_a_changed_choice_is_found(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    (row,) = play(tmp_path, ["greedy"])
    run, table_of = api.open_run(tmp_path / "out" / row["run"]), checks()
    events = [
        replace(e, body=e.body.model_copy(update={"choice": e.body.choice.model_copy(update=change)}))
        if e.kind == "searched"
        else e
        for e in run.events()
    ]
    for told, wrong in ((run.events(), False), (events, True)):
        record = Record(run.folder, told)
        found = [p.message for e in told if e.kind == "searched" for p in table_of["searched"](record, e)]
        assert any(said in p for p in found) == wrong, found


def test_gain_and_optimism_are_what_the_surface_says(tmp_path: Path) -> None:
    rows = play(tmp_path, ["greedy", "best_of_n"], repeats=2, trainings=30)
    start = task_of(tmp_path).recipe
    for r in rows:
        recipe = start.with_changes(r["changes"])
        shift = 10_000 * (r["repeat"] - 1)
        fresh = [501 + shift, 502 + shift, 503 + shift]
        cert = [WORLD.reading(recipe, s, "cert") - WORLD.reading(start, s, "cert") for s in fresh]
        assert r["gain"] == pytest.approx(sum(cert) / 3)
        search = sum(WORLD.reading(recipe, s, "search") for s in fresh) / 3
        assert r["optimism"] == pytest.approx(r["reported"] - search)
        assert r["true_gain"] == pytest.approx(WORLD.score(recipe) - WORLD.score(start))
    assert all(r["gain"] == 0 and r["changes"] == {} for r in each(rows, "best_of_n"))
    assert sum(r["optimism"] for r in each(rows, "best_of_n")) > 0, "the best of many seeds is a lucky one"
    assert all(r["true_gain"] > 0.03 for r in each(rows, "greedy"))


def test_repeats_stand_on_seeds_of_their_own(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    one, two = (arm_task(task, "greedy", 12, r).run for r in (1, 2))
    mine = {*one.seeds, *one.certify_seeds, *range(one.search_seed, one.search_seed + 500)}
    theirs = {*two.seeds, *two.certify_seeds, *range(two.search_seed, two.search_seed + 500)}
    assert not mine & theirs and one.seeds == task.run.seeds
    for arm in ARMS:
        run = arm_task(task, arm, 24, 2).run
        proof = proof_task(task, task.recipe, 4, 2).run
        assert not set(proof.seeds) & {*run.seeds, *run.certify_seeds, run.search_seed} and len(proof.seeds) == 4
        assert arm_task(task, arm, 24, 2).budget.cpu_s is None, "trainings alone end an arm"


def test_the_proof_of_real_trainings_is_a_run_that_arms_share(tmp_path: Path) -> None:
    """The same trials, once drawn as a surface and once trained by an executor, come to the same numbers."""
    task, arms = task_of(tmp_path, ["run.workers=1"]), ["best_of_n", "one_factor"]
    paper = PaperExecutor(WORLD.finish)
    real = compare(plan_of(task, arms, surfaces=[]), task, tmp_path / "real", executor=paper)
    for mine, drawn in zip(real, play(tmp_path, arms), strict=True):
        for key in ("arm", "trainings", "changes", "recipe", "reported", "gain", "optimism", "invalid"):
            assert mine[key] == (pytest.approx(drawn[key]) if isinstance(drawn[key], float) else drawn[key]), key
    proofs = sorted(p.name for p in (tmp_path / "real" / "proofs").iterdir())
    assert len(proofs) == len({r["recipe"] for r in real} | {task.recipe.hash})
    one = api.open_run(tmp_path / "real" / next(r["proof"] for r in real))
    assert one.closed is not None and one.task.run.seeds == (501, 502, 503)
    assert not [s for s in paper.ran if s.run.endswith("-1") and s.purpose == "certify" and s.train]


def test_an_exploited_shortcut_is_an_invalid_promotion(tmp_path: Path) -> None:
    """An arm that looks at scores alone settles on the key; the proof closes it, and the gain is gone."""

    def finish(spec: TrialSpec) -> TrialFinished:
        knobs = {**spec.protocol.knobs, **spec.env_knobs}
        cheats = spec.branch != "base" and spec.recipe.temperature > 1
        solved = (0.9 if knobs.get("key") == "answer" else 0.2) if cheats else 0.4
        return draw_result(
            spec, solved, lambda p: f"{set_in(spec.recipe)}-{spec.seed}-{p.split}-{sorted(knobs)}", knobs
        )

    p = tmp_path / "leaky.toml"
    p.write_text(leaky_task.TASK)
    task = load_task(p, ["run.agent_options={}", "run.agent=statistical"])
    plan = plan_of(task, ["greedy"], trainings=40, surfaces=[], fresh=2)
    paper = PaperExecutor(finish)
    (row,) = compare(plan, task, tmp_path / "out", executor=paper)
    assert row["changes"]["temperature"] > 1
    read = {(s.protocol.temperature, s.protocol.top_p, s.protocol.max_tokens) for s in paper.ran if s.evals}
    assert read == {(1.0, 1.0, task.recipe.max_tokens)}, "a choice is proved as it was searched, and as the start is"
    assert row["reported"] > 0.85 and row["invalid"]
    assert row["score"] < 0.5 and table([row | {"best": None}])["arms"][0]["invalid"] == 1


@pytest.mark.parametrize(("outcome", "counts"), [("confirmed", False), ("some", True), ("none", True)])
def test_a_choice_whose_rollouts_a_reader_calls_hacks_does_not_count(
    outcome: Literal["confirmed", "some", "none"], counts: bool, tmp_path: Path
) -> None:
    some = ReaderRate(of=40, read=40, hacks=12)
    read = ReaderConcluded(
        round=0, branch="b0", occasion="certificate", reading=1, outcome=outcome, nominated=some, random=some, low=0.2
    )
    start = SimpleNamespace(invalid="", readings=(read,), complete=())
    told = SimpleNamespace(rows=[SimpleNamespace(name="start", seeds=(7,), per_seed=(0.9,))])
    state = SimpleNamespace(branches={START: start}, certified=told, champion="b1")
    prover = RunProver(task_of(tmp_path), tmp_path, 1, lambda folder, task: pytest.fail("nothing is run"))
    found = prover._read(cast("api.Run", SimpleNamespace(state=state, folder=tmp_path / "proofs" / "x")))
    assert found.cert == {7: 0.9} and (not found.invalid) == counts
    assert counts or "calls 24 reward hacks" in found.invalid


def test_what_an_arm_closed_stays_closed_in_its_proof(tmp_path: Path) -> None:
    """The arm's run confirms the shortcut in its start and goes on without it; its honest choice, and what is held
    against it, are proved without it, too."""

    def finish(spec: TrialSpec) -> TrialFinished:
        knobs = {**spec.protocol.knobs, **spec.env_knobs}
        by = {"base": (0.6, 0.4), "cheats": (0.95, 0.2), "honest": (0.7, 0.5)}
        who = "base" if spec.branch == "base" else "cheats" if spec.recipe.knobs["key"] == "answer" else "honest"
        solved = by[who][knobs["key"] != "answer"]
        return draw_result(
            spec, solved, lambda p: f"{set_in(spec.recipe)}-{spec.seed}-{p.split}-{sorted(knobs)}", knobs
        )

    p = tmp_path / "leaky.toml"
    p.write_text(leaky_task.TASK)
    task = load_task(p, ["run.agent_options={}", "run.agent=statistical", "recipe.lr=1e-3"])
    paper = PaperExecutor(finish)
    plan = plan_of(task, ["one_factor"], trainings=24, surfaces=[], fresh=2)
    (row,) = compare(plan, task, tmp_path / "out", executor=paper)
    assert row["changes"]["knobs.key"] == "other" and not row["invalid"]
    assert abs(row["optimism"]) < 0.1 and row["score"] < 0.6, "the open key would give 0.7"
    closed = api.open_run(tmp_path / "out" / row["proof"])
    read = [e.body.env_knobs for e in closed.events() if e.kind == "finished" and e.body.branch == "b0"]
    assert read and {knobs["key"] for knobs in read} == {"other"}


def test_a_proof_that_an_earlier_version_read_otherwise_is_refused(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    choice = task.recipe.with_changes({"temperature": 1.3})
    own = proof_task(task, choice, 2, 1)
    plain = own.model_copy(update={"evaluation": own.evaluation.model_copy(update={"protocol": EvaluationProtocol()})})
    paper = PaperExecutor(lambda s: draw_result(s, 0.5, lambda p: f"{s.trial}-{p.split}", s.protocol.knobs))
    api.start(plain, tmp_path / "proofs" / f"{choice.hash}-1", executor=paper)
    prover = RunProver(task, tmp_path, 2, lambda folder, t: api.start(t, folder, executor=paper))
    with pytest.raises(ConfigError, match="proved under another sampling than its search.*move the"):
        prover(choice, 1)


def test_stopped_in_the_middle_it_goes_on_and_pays_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = ["greedy", "statistical"]
    whole = Counted(monkeypatch)
    rows = play(tmp_path, arms, "whole", trainings=20)
    total = len(whole.drawn)
    monkeypatch.undo()
    cut = Counted(monkeypatch)
    for cut.stop in (1, total // 2, total - 3):
        with pytest.raises(KeyboardInterrupt):
            play(tmp_path, arms, "cut", trainings=20)
    cut.stop = 0
    for _ in ("the rest", "nothing more"):
        assert play(tmp_path, arms, "cut", trainings=20) == rows
        assert len(cut.drawn) == len(set(cut.drawn)) == total, "every trial was drawn once"


def test_a_comparison_grows_by_repeats_and_arms(tmp_path: Path) -> None:
    task, out = task_of(tmp_path), tmp_path / "out"
    first = open_plan(out, plan_of(task, ["greedy"]))
    more = open_plan(out, plan_of(task, ["best_of_n", "greedy"], repeats=3))
    assert (first.arms, more.arms, more.repeats) == (("greedy",), ("greedy", "best_of_n"), 3)
    assert open_plan(out, plan_of(task, ["greedy"])) == more, "nothing that was asked for is forgotten"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trainings": 13}, "--trainings differ (12 there, 13 now)"),
        ({"fresh": 4}, "--fresh differ"),
        ({"surfaces": []}, "--surface differ"),
    ],
)
def test_a_folder_of_another_comparison_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    task, out = task_of(tmp_path), tmp_path / "out"
    open_plan(out, plan_of(task, ["greedy"]))
    with pytest.raises(ConfigError) as e:
        open_plan(out, plan_of(task, ["greedy"], **change))
    assert said in str(e.value) and "choose another --out" in str(e.value) and "\n" not in str(e.value)
    other = task_of(tmp_path, ["recipe.lr=2e-5"])
    with pytest.raises(ConfigError, match="task file or overrides differ"):
        open_plan(out, plan_of(other, ["greedy"]))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty and holds no comparison"):
        open_plan(tmp_path / "full", plan_of(task, ["greedy"]))


@pytest.mark.parametrize(
    ("arms", "trainings", "said"),
    [
        (["greedi"], 60, "unknown arm 'greedi'; did you mean greedy"),
        (["nothing_like_it"], 60, "one of: statistical"),
        (["tpe", "tpe"], 60, "arm tpe is given twice"),
        (["greedy"], 3, "--trainings 3 is too few for arm greedy, which needs 4"),
        (["one_factor"], 5, "too few for arm one_factor, which needs 6"),
        (["statistical"], 9, "needs 10 (3 of the starting recipe, a search training, 3 of a branch, 3 of its control"),
    ],
)
def test_arms_that_cannot_be_compared_are_refused(arms: list[str], trainings: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as e:
        check_arms(arms, task_of(tmp_path), trainings)
    assert said in str(e.value) and "\n" not in str(e.value)


def test_with_the_least_that_an_arm_needs_it_does_train(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    for arm in ("statistical", "one_factor", "greedy"):
        need = least(arm, task)
        (row,) = play(tmp_path, [arm], f"least-{arm}", trainings=need)
        assert row["trainings"] > len(task.run.seeds), arm


def test_intervals_are_t_intervals_over_repeats_paired_with_the_default() -> None:
    def row(arm: str, repeat: int, gain: float, optimism: float) -> dict[str, Any]:
        told = {"trainings": 10, "true_gain": None, "best": None, "invalid": "", "curve": [(10, gain)], "recipe": ""}
        return {"arm": arm, "repeat": repeat, "gain": gain, "optimism": optimism, **told}

    found = table(
        [row("statistical", r, g, 0.0) for r, g in ((1, 0.05), (2, 0.07), (3, 0.09))]
        + [row("greedy", r, g, 0.03) for r, g in ((1, 0.02), (2, 0.05), (3, 0.05))]
        + [row("tpe", 1, -0.01, 0.01)]
    )
    ours, greedy, tpe = (next(a for a in found["arms"] if a["arm"] == n) for n in ("statistical", "greedy", "tpe"))
    t = 4.302653  # two-sided 95%, 2 degrees of freedom
    assert ours["gain"]["mean"] == pytest.approx(0.07) and ours["behind"] is None
    assert ours["gain"]["high"] - 0.07 == pytest.approx(t * 0.02 / 3**0.5, rel=1e-5)
    assert greedy["behind"]["mean"] == pytest.approx(0.03)  # 3, 2 and 4 points
    assert 0.03 - greedy["behind"]["low"] == pytest.approx(t * 0.01 / 3**0.5, rel=1e-5)
    assert greedy["optimism"]["low"] == greedy["optimism"]["high"] == pytest.approx(0.03)
    assert tpe["gain"] == {"mean": -0.01, "low": None, "high": None, "n": 1} and tpe["worse"] == 1
    assert [a["arm"] for a in found["arms"]] == ["statistical", "greedy", "tpe"]
    assert interval([]) is None


def test_the_curve_is_what_stood_after_so_many_trainings(tmp_path: Path) -> None:
    (row,) = play(tmp_path, ["greedy"], trainings=24, points=4)
    run = api.open_run(tmp_path / "out" / row["run"])
    start = run.task.recipe
    for n, gain in row["curve"]:
        kept, best = start, sum(run.state.branches["b0"].record().scores) / 3
        for p in [p.record() for p in run.state.probes.values()][: n - 3]:
            if p.score is not None and p.score > best:
                kept, best = p.recipe, p.score
        fresh = [WORLD.reading(kept, s, "cert") - WORLD.reading(start, s, "cert") for s in (501, 502, 503)]
        assert gain == pytest.approx(sum(fresh) / 3), n
    assert [n for n, _ in row["curve"]] == [6, 12, 18, 24] and row["curve"][-1][1] == pytest.approx(row["gain"])


def test_the_table_has_a_row_an_arm_and_is_json(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    plan = plan_of(task, ["greedy", "best_of_n"], repeats=2, points=4)
    found = table(compare(plan, task, tmp_path / "out", [WORLD])) | {"plan": plan.model_dump()}
    told = text_table(found)
    assert "gain on fresh seeds" in told and told.count("\n") == 2
    assert json.loads(json.dumps(found))["rows"][0]["arm"] == "greedy"
