"""`run.skills`: distilled after verdicts, provable, looked up, and moving priors; with and without them compared."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from bench.skills_ab import compare, main

from evotrainer import api
from evotrainer.cli.run import run as run_command
from evotrainer.cli.skills_import import skills_import
from evotrainer.cli.skills_list import skills_list
from evotrainer.cli.skills_validate import skills_validate
from evotrainer.errors import ConfigError, IntegrityError, StoreError
from evotrainer.projections.skill_evidence import distilled_skills, trigger_of
from evotrainer.projections.state import RunState
from evotrainer.records import keys
from evotrainer.records.briefing import Proposal
from evotrainer.records.events import Invalidated
from evotrainer.run import skills
from evotrainer.skills import check_skill, find_skills, read_library, read_skill, write_skill
from evotrainer.verify import verify
from tests.letters_on_paper import COLD, MORE, WARM, Go
from tests.paper import Paper


def problems(run: api.Run) -> list[str]:
    """What `verify` says of skills and library (trials on paper have no policies)."""
    return [p.message for p in verify(run.folder).problems if p.area in ("skill", "library")]


def test_every_verdict_teaches_also_a_negative_one(go: Go) -> None:
    run = go("one", "run.rounds=2", changes=f"{WARM},{MORE}")
    assert [v.kind for v in run.verdicts] == ["promote", "reject"]
    skills = read_library(run.folder)
    assert set(skills) == {"dead-groups-temperature-up", "dead-groups-group-size-up"}
    warm, more = skills["dead-groups-temperature-up"], skills["dead-groups-group-size-up"]
    assert warm.claim == "helps" and more.claim == "harms"
    assert warm.trials[0].severity == 0.47, "as the bottleneck was ranked"
    assert "does harm when dead_groups is diagnosed" in (run.folder / "skills" / more.name / "SKILL.md").read_text()
    (fresh,) = [e.body for e in run.events() if e.kind == "reestimated"]
    assert warm.trials[0].mean == fresh.effect.mean != run.verdicts[0].effect.mean  # type: ignore[union-attr]
    assert more.trials[0].mean == run.verdicts[1].effect.mean  # type: ignore[union-attr]
    assert not problems(run)
    assert all(check_skill(f) == ([], 0) for f in find_skills(run.folder))


def test_what_the_detectors_had_measured_is_its_condition(go: Go) -> None:
    run = go("one", changes=WARM)
    health = next(e.body.health for e in run.events() if e.id == "r1/diagnosed")
    (found,) = [f for f in health.findings if f.severity != "info"]
    found = found.model_copy(update={"numbers": {"dead": 0.5}, "thresholds": {"dead": 0.3}})
    iv = run.state.branches["b1"].intervention
    assert iv is not None
    name, severity, (c,) = trigger_of(health.model_copy(update={"findings": (found,)}), iv)
    assert (name, severity) == ("dead_groups", 0.47)
    assert (c.detector, c.number, c.relation, c.threshold, c.value) == ("dead_groups", "dead", ">=", 0.3, 0.5)


def test_evidence_on_one_change_joins_one_skill(go: Go) -> None:
    run = go("one", "run.branches=2", changes=f'{MORE},{{factor="group_size",new=16}}')
    (skill,) = read_library(run.folder).values()
    assert sorted(t.new for t in skill.trials) == [12, 16]
    assert skill.pooled is not None and skill.pooled.trials == 2 and skill.pooled.comparisons == 1, (
        "one control, one noise"
    )
    a, b = (t.se or 0.0 for t in skill.trials)
    assert skill.pooled.se == pytest.approx((a + b) / 2, abs=1e-6)
    assert not problems(run)


def test_a_changed_skill_is_found(go: Go, capsys: pytest.CaptureFixture[str]) -> None:
    run = go("one", changes=WARM)
    for file, old, new in (("SKILL.md", "helps", "does not help"), ("evidence.json", '"helps"', '"harms"')):
        path = run.folder / "skills" / "dead-groups-temperature-up" / file
        text = path.read_text()
        path.write_text(text.replace(old, new))
        assert any("SHA-256" in p for p in problems(run)), file
        with pytest.raises(IntegrityError):
            skills_validate(run.folder)
        assert "[FAIL]" in capsys.readouterr().out, file
        path.write_text(text)
    assert not any("SHA-256" in p for p in problems(run))


def test_an_effect_that_was_embellished_is_found_without_and_with_the_ledger(go: Go, tmp_path: Path) -> None:
    run = go("one", changes=MORE)
    (skill,) = read_library(run.folder).values()
    trial = skill.trials[0]
    better = trial.model_copy(update={"mean": 0.2, "low": 0.1, "high": 0.3})
    folder = write_skill(skill.model_copy(update={"trials": (better,)}), tmp_path / "lib")
    told, _ = check_skill(folder)
    assert any("mean is 0.2, its ledger row says" in p for p in told)
    moved = trial.model_copy(update={"domain": "elsewhere"})
    folder = write_skill(skill.model_copy(update={"trials": (moved,)}), tmp_path / "lib")
    assert check_skill(folder) == ([], 0), "the verdict's row says nothing of the domain ..."
    with pytest.raises(IntegrityError):
        skills_validate(tmp_path / "lib", run=[run.folder])  # ... the ledger does


def test_a_kill_between_event_and_file_is_made_good(go: Go, letters_paper: Paper) -> None:
    run = go("one", changes=WARM)
    folder = run.folder / "skills"
    shutil.rmtree(folder)
    assert problems(run), "the run is closed: its skill must be there"
    with letters_paper.context(run) as ctx:
        skills.distil(ctx, ["b1"])
    assert not problems(run) and (folder / "dead-groups-temperature-up" / "SKILL.md").is_file()


def test_the_library_is_copied_and_its_skills_move_the_prior(go: Go, tmp_path: Path) -> None:
    first = go("first", changes=WARM)
    plain = go("without", "run.seed=3")
    told = go("with", f'run.skills=["{first.folder}"]', "run.seed=3")
    shutil.rmtree(first.folder)  # the run has its own copy
    (library,) = [e.body for e in told.events() if e.kind == "library"]
    assert set(library.skills) == {"dead-groups-temperature-up"} and not problems(told)

    def considered(run: api.Run, new: float = 1.15) -> tuple[float, float]:
        p: Proposal = next(e.body.proposal for e in run.events() if e.kind == "proposed")
        return next((c.mean, c.sd) for c in p.considered if c.factor == "temperature" and c.new == new)

    before, after = considered(plain), considered(told)
    assert after[0] > before[0] + 0.01, "a skill that says +12 points raises what is expected"
    b1 = told.state.branches["b1"]
    assert b1.intervention is not None and b1.intervention.factor == "temperature"
    (use,) = b1.intervention.skills
    assert use.skill == "dead-groups-temperature-up" and use.after_mean > use.before_mean
    reasoning = next(e.body.proposal.reasoning for e in told.events() if e.kind == "proposed")
    assert f"skill {use.skill}" in reasoning and "moved its prior from" in reasoning
    page = told.report(tmp_path / "r.html").read_text()
    assert "Prior before" in page and use.skill in page


def test_a_changed_copy_of_the_library_is_refused(go: Go, letters_paper: Paper) -> None:
    first = go("first", changes=WARM)
    run = go("with", f'run.skills=["{first.folder}"]', changes=COLD)
    path = run.folder / "library" / "dead-groups-temperature-up" / "evidence.json"
    path.write_text(path.read_text() + " ")
    assert any("was changed" in p for p in problems(run))
    with letters_paper.context(run) as ctx, pytest.raises(IntegrityError, match="was changed"):
        skills.open_library(ctx)


def test_controls_ignore_skills(go: Go) -> None:
    first = go("first", changes=WARM)

    def proposed(run: api.Run) -> list[tuple[str, object]]:
        p = next(e.body.proposal for e in run.events() if e.kind == "proposed")
        assert all(not i.skills for i in p.interventions)
        return [(i.factor, i.new) for i in p.interventions]

    library = f'run.skills=["{first.folder}"]'
    assert proposed(go("a", "run.agent=random")) == proposed(go("b", "run.agent=random", library))


def test_other_domains_local_skills_wait_for_the_own_options_to_fail(
    go: Go, letters_paper: Paper, tmp_path: Path
) -> None:
    skill = read_skill(find_skills(go("one", changes=WARM).folder)[0])
    far = skill.model_copy(
        update={"trials": (skill.trials[0].model_copy(update={"domain": "elsewhere", "run": "f" * 64}),)}
    )
    write_skill(far, tmp_path / "far")
    in_vain = ",".join(f'{{factor="weight_decay",new={x}}}' for x in (0.01, 0.02, 0.03, 0.04))
    run = go("two", f'run.skills=["{tmp_path / "far"}"]', "run.rounds=4", changes=in_vain)
    offered = {}
    for n in range(1, 5):
        with letters_paper.context(run) as ctx:
            ctx.state = RunState.of(run.events()[: next(e.seq for e in run.events() if e.id == keys.diagnosed(n))])
            offered[ctx.state.failures] = skills.advice(ctx, ctx.state.readings["b0"])
    assert offered[0] == offered[1] == offered[2] == ()
    (advice,) = offered[3]
    assert advice.foreign and advice.domains == ("elsewhere",)


def test_libraries_merge_without_counting_twice(go: Go, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = go("a", changes=WARM)
    b = go("b", "run.seeds=[4,5,6]", changes=f"{WARM},{MORE}")
    lib = tmp_path / "lib"
    skills_import([a.folder], library=lib)
    skills_import([a.folder, b.folder], library=lib)
    warm = read_library(lib)["dead-groups-temperature-up"]
    assert len(warm.trials) == 2 and warm.pooled is not None and warm.pooled.comparisons == 2
    skills_validate(lib, run=[a.folder, b.folder])
    capsys.readouterr()
    skills_list(lib, as_json=True)
    assert [r["trials"] for r in json.loads(capsys.readouterr().out)] == [2]
    assert "## Trigger condition" in (lib / "dead-groups-temperature-up" / "SKILL.md").read_text()


def test_a_withdrawn_branch_speaks_against(go: Go, letters_paper: Paper) -> None:
    run = go("one", changes=WARM)
    gone = Invalidated(branch="b1", descendants=(), reason="a shortcut", champion="b0", capability="key")
    with letters_paper.context(run) as ctx:
        ctx.record(keys.invalidated("b1"), Invalidated, lambda: gone)
        skills.update_skills(ctx)
        (skill,) = distilled_skills(ctx.ledger.events()).values()
    assert skill.claim == "invalid" and len(skill.trials) == 1
    assert not problems(run)
    assert all(check_skill(f) == ([], 0) for f in find_skills(run.folder))


@pytest.mark.slow
def test_with_and_without_is_one_command_and_goes_on(
    go: Go, task_file: Path, tmp_path: Path, letters_paper: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.letters_on_paper import QUICK

    first = go("first", changes=WARM)
    out = tmp_path / "cmp"
    compare(task_file, QUICK, [str(first.folder)], out, 2, lambda folder: nullcontext(), letters_paper)
    told = json.loads((out / "results.json").read_text())
    arms = {(o["repeat"], o["arm"]): o for o in told["outcomes"]}
    assert set(arms) == {(r, a) for r in (0, 1) for a in ("without", "with")}
    assert all(arms[r, "with"]["used"] >= 1 and arms[r, "without"]["used"] == 0 for r in (0, 1))
    assert arms[0, "with"]["promoted"] and arms[0, "with"]["first"] == 3
    assert arms[0, "with"]["regret"] <= arms[0, "without"]["regret"]
    text = (out / "results.md").read_text()
    assert "with - without" in text and "trials until the first promotion" in text
    specs = api.open_run(out / "r1-with").task.run
    assert specs.seeds == (1001, 1002, 1003) and specs.seed == 1
    n = len(letters_paper.ran)
    main([str(task_file), *QUICK, "--skills", str(first.folder), "--out", str(out), "--repeats", "2"])
    assert len(letters_paper.ran) == n, "nothing is run twice"
    with pytest.raises(ConfigError, match="another recipe section"):
        main(
            [
                str(task_file),
                *QUICK,
                "recipe.lr=2e-3",
                "--skills",
                str(first.folder),
                "--out",
                str(out),
                "--repeats",
                "2",
            ]
        )
    capsys.readouterr()


def test_a_library_that_does_not_hold_is_refused_before_anything_is_spent(
    go: Go, task_file: Path, tmp_path: Path, letters_paper: Paper, capsys: pytest.CaptureFixture[str]
) -> None:
    first = go("first", changes=WARM)
    n = len(letters_paper.ran)
    path = first.folder / "skills" / "dead-groups-temperature-up" / "evidence.json"
    path.write_text(path.read_text().replace('"claim": "helps"', '"claim": "harms"'))
    with pytest.raises(IntegrityError, match="claim does not follow from the trials"):
        go("next", f'run.skills=["{first.folder}"]')
    with pytest.raises(StoreError, match="no such folder"):
        run_command(task_file, ['run.skills=["nowhere"]'], dry_run=True, plain=True)
    assert len(letters_paper.ran) == n and not (tmp_path / "next").exists()
    with pytest.raises(StoreError, match="no such folder"):
        run_command(task_file, skills=["nowhere"], dry_run=True)


def test_a_task_file_names_libraries_from_its_own_folder(task_file: Path, tmp_path: Path) -> None:
    from evotrainer.config.load import load_task

    here = tmp_path / "task.toml"
    text = task_file.read_text().replace("python:./environment.py", f"python:{task_file.parent}/environment.py")
    here.write_text(text.replace("[run]", '[run]\nskills = ["lib", "builtin"]'))
    assert load_task(here).run.skills == (str(tmp_path / "lib"), "builtin")
    plain = load_task(task_file)
    assert load_task(here).hash != plain.hash == load_task(task_file, ["run.skills=[]"]).hash
