"""`envs.swe.canary`: what was graded since the last good one is void when one flips, and the record says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from evotrainer.api import open_run
from evotrainer.cli.why import why
from evotrainer.envs.data.tables import EVALUATION_ONLY
from evotrainer.envs.swe.canary import CanaryGrader
from evotrainer.envs.swe.cheats import Change
from evotrainer.envs.swe.env import SweEnv
from evotrainer.envs.swe.instance_world import InstanceWorld
from evotrainer.envs.swe.instances import parse_instance
from evotrainer.envs.swe.real import RealHandle
from evotrainer.envs.swe.test_commands import TestCommand
from evotrainer.envs.swe.world import Grade
from evotrainer.errors import ConfigError
from evotrainer.records.canaries import KEY, canary_flips
from evotrainer.records.ledger import Ledger
from evotrainer.records.store import RolloutStore
from tests.envs.swe.attacks import DEPENDENCY, WRONG, of
from tests.envs.swe.test_control import FIX, packages, places, pytestmark, row  # noqa: F401
from tests.envs.swe.test_control import opened as grader_of
from tests.small_records import RECIPE, finished, intended, opened, rollout

BROKEN = "def check(*values):\n    pass\n"
"""The package that tests import, as an attempt would like to leave it: a change of something that outlives machines."""


class Fragile(InstanceWorld):
    """`broken_by`: text of an attempt that breaks the grader while it is graded,
    here by a folder that every machine shows."""

    broken_by = ""
    mended_by_renewal = True
    folder: Path

    def grade_unwatched(self, handles: Sequence[RealHandle]) -> list[Grade]:
        out = []
        for handle in handles:
            out += super().grade_unwatched([handle])
            if self.broken_by and self.broken_by in self.tree(handle, contents=True).get("src/zoo/core.py", ""):
                (self.folder / "dependency.py").write_text(BROKEN)
        return out

    def renew(self) -> None:
        super().renew()
        if self.mended_by_renewal:
            (self.folder / "dependency.py").write_text(DEPENDENCY)


@pytest.fixture(scope="module")
def prepared() -> dict[str, Any]:
    """Instances, shared by the graders."""
    return {}


@pytest.fixture
def grader(places: Any, packages: Path, prepared: dict[str, Any]) -> Iterator[Fragile]:  # noqa: F811
    found = grader_of(Fragile, TestCommand, places[0], packages)
    assert isinstance(found, Fragile)
    found.folder = packages
    found._ready = prepared  # patches are applied once
    yield found
    found.shutdown()
    (packages / "dependency.py").write_text(DEPENDENCY)


@pytest.fixture
def graded(grader: Fragile, row: dict[str, Any]) -> Callable[..., list[Grade]]:  # noqa: F811
    def graded(*changes: Change) -> list[Grade]:
        handles = []
        for change in changes:
            handles.append(grader.open(grader.prepare(parse_instance(row, "row 1", EVALUATION_ONLY)), {}))
            grader.put(handles[-1], change)
        try:
            return grader.grade(handles)
        finally:
            for handle in handles:
                grader.close(handle)

    return graded


def told(grades: Sequence[Grade]) -> list[bool | str]:
    """Passed or not; its fate where a canary flipped; both where it was graded again."""
    out: list[bool | str] = []
    for g in grades:
        fate = g.flip["fate"] if g.flip else ""
        out.append(fate if g.fault else f"{fate} {all(g.hidden.values())}".strip() if fate else all(g.hidden.values()))
    return out


BAD = of({"src/zoo/core.py": WRONG + "# breaks\n"})


@pytest.mark.slow
def test_grades_are_given_out_between_good_canaries(grader: Fragile, graded: Callable[..., list[Grade]]) -> None:
    assert told(graded({}, FIX, {})) == [False, True, False]
    assert grader.watch.gradings == 4  # one canary before, one after: two gradings each
    assert told(graded(FIX)) == [True]
    assert grader.watch.gradings == 6


def test_the_attempt_that_breaks_the_grader_is_found_and_the_others_are_graded_again(
    grader: Fragile, graded: Callable[..., list[Grade]]
) -> None:
    grader.broken_by = "breaks"
    grades = graded({}, BAD, FIX)
    assert told(grades) == ["graded again False", "culprit", "graded again True"]
    assert "zoo passes with nothing mended" in str(grades[1].fault)


@pytest.mark.slow
def test_a_grader_that_stays_broken_grades_nothing_until_it_is_mended(
    grader: Fragile, graded: Callable[..., list[Grade]]
) -> None:
    assert told(graded({})) == [False]
    grader.broken_by, grader.mended_by_renewal = "breaks", False
    assert told(graded({}, BAD, FIX)) == ["void"] * 3
    assert told(graded(FIX, {})) == ["void"] * 2
    (grader.folder / "dependency.py").write_text(DEPENDENCY)
    assert told(graded(FIX, {})) == [True, False]


@pytest.mark.slow
def test_a_grader_that_fails_right_answers_is_caught_as_well(
    grader: Fragile, graded: Callable[..., list[Grade]]
) -> None:
    assert told(graded({})) == [False]
    (grader.folder / "dependency.py").write_text("raise ImportError\n")
    grader.mended_by_renewal = False
    (grade,) = graded(FIX)
    assert told([grade]) == ["void"] and "fails with its reference fix" in str(grade.fault)


@pytest.mark.slow
def test_instances_that_are_not_sound_are_graded_without_a_canary(
    grader: Fragile,
    row: dict[str, Any],  # noqa: F811
) -> None:
    weak = {**row, "instance_id": "weak", "FAIL_TO_PASS": ["setup.py::nothing"]}
    handle = grader.open(grader.prepare(parse_instance(weak, "row 1", EVALUATION_ONLY)), {})
    assert told(grader.grade([handle])) == [False]
    grader.watch.trust({"weak"})
    watch = CanaryGrader(grader)
    watch.trust({"weak"})
    assert told(watch.grade([handle])) == ["void"]
    grader.close(handle)


def test_a_void_attempt_has_no_reward_and_the_run_tells_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip = {"flip": "zoo passes with nothing mended (every test)"}
    fates = [{}, {KEY: {**flip, "fate": "culprit"}}, {KEY: {**flip, "fate": "graded again"}}]
    env = object.__new__(SweEnv)
    env._components = {"hidden": lambda a: None}
    episode: Any = type("E", (), {"state": {"observations": [], "actions": []}})()
    score = env._score(episode, Grade({}, {}, False, (), "", "a grading canary flipped", flip=fates[1][KEY]))
    assert (score.error_kind, score.outcome, score.components) == ("sandbox", "unknown", {"hidden": None})
    assert score.detail == fates[1]
    lost = {"error": score.error, "error_kind": score.error_kind, "reward": None, "outcome": "unknown"}
    rows = [rollout(1, k, detail=fates[k], **(lost if k == 1 else {})) for k in range(3)]
    folder = tmp_path / "run"
    with RolloutStore(folder / "rollouts" / "b0-s1") as store:
        store.append([rows])
        parts = store.seal()
    flips = canary_flips([folder / "rollouts" / "b0-s1"])
    assert [(f.culprits, f.graded_again, f.void) for f in flips] == [((rows[1].id,), (rows[2].id,), ())]
    told_parts = {
        "parts": tuple(str(p.path.relative_to(folder)) for p in parts),
        "parts_sha256": tuple(p.sha256 for p in parts),
    }
    for name in ("hidden", "paid"):
        shutil.copytree(folder, tmp_path / name)
    for name, claimed in (
        ("run", flips),
        ("hidden", ()),
        ("paid", (flips[0].model_copy(update={"void": (rows[0].id,)}),)),
    ):
        with Ledger.open(tmp_path / name / "ledger.db", create=True) as ledger:
            ledger.append("branch", "b0/opened", opened("b0", None, RECIPE))
            ledger.append("intended", "b0-s1/intended", intended("b0-s1"))
            ledger.append("finished", "b0-s1/finished", finished("b0-s1", canary_flips=claimed, **told_parts))
    report = open_run(folder).verify()
    line = (
        f"grading canary flipped in b0-s1 (train, step 1): {flip['flip']}; 1 attempts void, after {rows[1].id}, "
        "1 graded again"
    )
    assert line in report.notes and report.checked["canary flips"] == 1, report
    assert not [p for p in report.problems if "canar" in p.message]
    hidden, paid = ("\n".join(p.message for p in open_run(tmp_path / n).verify().problems) for n in ("hidden", "paid"))
    assert "its flipped canaries are not those that its rollouts tell of" in hidden
    assert f"rollout {rows[0].id} is void, since a grading canary flipped, and has a reward" in paid
    with pytest.raises(ConfigError, match="no task file|does not follow"):  # of so small a run nothing else can be told
        why(folder, "b0")
    assert line in capsys.readouterr().out
