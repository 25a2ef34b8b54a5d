"""Reward components as code in a run: proposed, checked with labels, opened under their hash, verified and shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.cli import app
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.reading import load
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.records.store import RolloutStore
from evotrainer.records.written import content_name
from evotrainer.verify import Record
from evotrainer.verify.written import components
from tests import leaky_task
from tests.paper import Paper, bodies, complaints
from tests.run.test_payable import TASK as TASK
from tests.run.test_payable import noisy

GOOD = '''def reward(rollout):
    """1 where the answer is marked."""
    return float("!" in rollout["turns"][1]["text"])
'''
CHEATS = {
    "unparsable": "def reward(rollout:\n    return 1.0\n",
    "forbidden_import": "import os\n\ndef reward(rollout):\n    return float(os.path.exists('sealed'))\n",
    "signature": "def reward(rollout, gate=None):\n    return 1.0\n",
    "reads_protected": "def reward(rollout):\n    return rollout['components']['right']\n",
    "probe_failed": "def reward(rollout):\n    return rollout['components']['ri' + 'ght']\n",
    "constant": "def reward(rollout):\n    return 1.0\n",
}
"""Label -> a component that ends in it; `right` is the outcome of the task, which is not payable."""


def marked(spec: TrialSpec) -> list[Rollout]:
    """Rollouts whose right answers carry a mark, nine of ten of them: what nothing on offer says."""
    out = []
    for i, r in enumerate(noisy(spec)):
        mark = "!" if (r.outcome == "correct") == (i % 10 > 0) else "?"
        told = (r.turns[0], Turn("assistant", r.turns[1].text + mark))
        values = {n: float(mark == "!") for n in spec.recipe.written}
        out.append(replace(r, turns=told, components={**r.components, **values}))
    return out


class Writer:
    """Proposes one written component after the other."""

    name = "writer"

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources

    def propose(self, briefing: Briefing, tools: Any) -> Proposal:
        recipe = briefing.champion.recipe
        found = []
        for name, source in self.sources.items():
            new = {"rewards": {**recipe.rewards, name: 1.0}, "written": {name: source}}
            found.append(
                Intervention(
                    factor="written_reward", old=recipe.value("written_reward"), new=new, hypothesis=f"pay {name}",
                    prediction=Prediction(metric="accuracy", direction="up", size=0.01),
                    success_criterion="gate score +1 point", rollback="champion",
                )
            )  # fmt: skip
        return Proposal(agent=self.name, interventions=tuple(found))


@pytest.fixture
def written(task: Path, tmp_path: Path) -> Callable[..., api.Run]:
    def start(sources: dict[str, str], *overrides: str) -> api.Run:
        paper = Paper(leaky_task.finish, marked)
        return paper.start(task, tmp_path / "r", ["run.branches=7", *overrides], agent=Writer(sources))

    return start


def test_each_cheat_ends_in_its_label_and_no_branch(written: Callable[..., api.Run]) -> None:
    """Also without the veto of backtests: code that its checks refuse is not trained."""
    run = written(CHEATS, "run.veto=false")
    said = bodies(run, "backtested")
    assert [b.backtest.label for b in said] == list(CHEATS)
    assert all(b.vetoed for b in said)
    assert not [b for b in run.state.branches.values() if b.intervention]
    assert complaints(run) == []


def test_a_good_component_becomes_a_branch_that_is_verified_and_shown(
    written: Callable[..., api.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run = written({"marked": GOOD})
    (said,) = bodies(run, "backtested")
    assert (said.backtest.verdict, said.backtest.label) == ("supports", "")
    name = content_name("marked", GOOD)
    (b,) = [b for b in run.state.branches.values() if b.intervention]
    assert dict(b.recipe.written) == {name: GOOD} and b.recipe.rewards[name] == 1.0
    assert complaints(run) == []
    app(["why", str(run.folder), b.branch], standalone_mode=False)
    out = capsys.readouterr().out
    assert f"code       {name}" in out and "    |     return float(" in out
    app(["show", str(run.folder), b.branch], standalone_mode=False)
    assert "1 where the answer is marked." in capsys.readouterr().out
    page = run.report().read_text(encoding="utf-8")
    assert f"Code of {name}" in page and "1 where the answer is marked." in page


def test_a_value_that_its_source_does_not_give_is_found(written: Callable[..., api.Run]) -> None:
    run = written({"marked": GOOD})
    trial = next(e for e in run.events() if e.kind == "finished" and e.body.branch == "b1")
    # on paper nothing is sealed; a trial that names sealed parts is read
    sealed = replace(trial, body=trial.body.model_copy(update={"parts": ("part",)}))
    record = Record(run.folder, run.events())
    assert list(components(record, sealed)) == [] and record.checked["written components"] == 160
    name = content_name("marked", GOOD)
    store = run.folder / "rollouts" / trial.body.trial
    lied = [replace(r, components={**r.components, name: 1.0}) for r in load([store])]
    shutil.rmtree(store)
    with closing(RolloutStore(store)) as to:
        to.append([lied])
    (said,) = components(Record(run.folder, run.events()), sealed)
    assert f"values of {name} do not follow from its source" in said.message


def test_a_person_tries_a_file_on_a_run(
    written: Callable[..., api.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = written({})
    good, bad = tmp_path / "marked.py", tmp_path / "cheat.py"
    good.write_text(GOOD)
    bad.write_text(CHEATS["reads_protected"])
    assert not app(["try-code", str(good), str(run.folder)], standalone_mode=False)
    out = capsys.readouterr().out
    assert content_name("marked", GOOD) in out and "[pass] not backtest_contradicted" in out and "SUPPORTS" in out
    assert app(["try-code", str(bad), str(run.folder)], standalone_mode=False) == 10
    out = capsys.readouterr().out
    assert "[pass] not signature" in out and "[FAIL] not reads_protected" in out and "not constant" not in out
    app(["try-code", str(good), str(run.folder), "--instead-of", "in_order", "--json"], standalone_mode=False)
    (told,) = json.loads(capsys.readouterr().out)
    assert told["component"] == content_name("marked", GOOD)
