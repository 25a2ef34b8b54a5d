"""Hooks in a run: proposed, checked with labels, opened under their hash, replayed, verified, shown and tried by a
person."""

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
from evotrainer.algorithm.advantages import advantages, flat, nested
from evotrainer.cli import app
from evotrainer.errors import ConfigError
from evotrainer.extras.export import write_sources
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.recipe import parse_recipe
from evotrainer.records.rollout import Rollout
from evotrainer.records.store import RolloutStore
from evotrainer.records.written import content_name
from evotrainer.sandbox.reward_runner import RewardRunner
from evotrainer.trainers.hooks import StepHooks
from evotrainer.verify import Record
from evotrainer.verify.written import hooks
from tests import leaky_task
from tests.paper import Paper, bodies, complaints
from tests.run.test_payable import TASK as TASK
from tests.run.test_written import marked
from tests.trainers.test_hooks import FRESH, GRPO, LIVE

MARKED = '''def advantages(group):
    """Doubles what the recipe gives where the reward is full."""
    rewards = group["rewards"]
    return [a if r != 1.0 else 2.0 * a for a, r in zip(group["advantages"], rewards)]
'''
LABELLED = {
    "unparsable": "def advantages(group:\n    return []\n",
    "forbidden_import": "import os\n\ndef weights(rollouts):\n    return [float(os.path.exists('sealed'))]\n",
    "signature": "def select(tasks):\n    return [0]\n",
    "reads_protected": "def weights(rollouts):\n    return [float(r['outcome'] == 'correct') for r in rollouts]\n",
    "probe_failed": "def weights(rollouts):\n    return [r['components']['ri' + 'ght'] for r in rollouts]\n",
    "constant": "def select(tasks, history):\n    return list(range(history['n']))\n",
    "backtest_contradicted": (
        "def advantages(group):\n    return [None if a is None else -a for a in group['advantages']]\n"
    ),
}
"""Label -> a hook that ends in it; `right` is the outcome of the task, which is not payable."""


class Hooker:
    """Proposes one hook after the other."""

    name = "hooker"

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources

    def propose(self, briefing: Briefing, tools: Any) -> Proposal:
        return Proposal(
            agent=self.name,
            interventions=tuple(
                Intervention(
                    factor="hooks",
                    old={},
                    new={name: source},
                    hypothesis=f"hook {name}",
                    prediction=Prediction(metric="accuracy", direction="up", size=0.01),
                    success_criterion="gate score +1 point",
                    rollback="champion",
                )
                for name, source in self.sources.items()
            ),
        )


@pytest.fixture
def hooked(task: Path, tmp_path: Path) -> Callable[..., api.Run]:
    def start(sources: dict[str, str], *overrides: str) -> api.Run:
        paper = Paper(leaky_task.finish, marked)
        return paper.start(task, tmp_path / "r", ["run.branches=8", *overrides], agent=Hooker(sources))

    return start


def test_each_faulty_hook_ends_in_its_label_and_no_branch(hooked: Callable[..., api.Run]) -> None:
    """Also without the veto of backtests: code that its checks refuse is not trained, what a replay contradicts is."""
    run = hooked(LABELLED, "run.veto=false", "recipe.prompts_per_step=4")
    said = bodies(run, "backtested")
    assert [b.backtest.label for b in said] == list(LABELLED)
    assert [b.vetoed for b in said] == [label != "backtest_contradicted" for label in LABELLED]
    assert complaints(run) == []


def test_a_hook_becomes_a_branch_that_is_verified_and_shown(
    hooked: Callable[..., api.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run = hooked({"doubled": MARKED})
    (said,) = bodies(run, "backtested")
    assert (said.backtest.verdict, said.backtest.label) == ("silent", "")
    assert said.backtest.numbers["kept_share"] == 1.0 and said.backtest.numbers["pairs"] > 0
    name = content_name("doubled", MARKED)
    (b,) = [b for b in run.state.branches.values() if b.intervention]
    assert dict(b.recipe.hooks) == {name: MARKED}
    assert complaints(run) == []
    app(["why", str(run.folder), b.branch], standalone_mode=False)
    out = capsys.readouterr().out
    assert f"code       {name}" in out and "Doubles what the recipe gives" in out
    page = run.report().read_text(encoding="utf-8")
    assert f"Code of {name}" in page and "Doubles what the recipe gives" in page


def trained(recipe: dict[str, Any], rollouts: list[Rollout]) -> list[Rollout]:
    """Rollouts as a training with the recipe's hooks stores them."""
    with closing(RewardRunner(accept_tier_e=True)) as runner:
        whole = parse_recipe(recipe)
        asked = StepHooks(whole, runner, ("right",))
        groups = [rollouts[i : i + 4] for i in range(0, len(rollouts), 4)]
        weights = asked.weights(groups, 1)
        kept = [g for g, w in zip(groups, weights, strict=True) if any(w)]
        rewards = flat([[r.reward for r in g] for g in kept])
        own = nested(advantages(*rewards, whole), kept)
        rows = zip(kept, asked.advantages(kept, own, 1), strict=True)
        found = {r.id: a for g, row in rows for r, a in zip(g, row, strict=True)}
    return [
        replace(r, split="train", step=1, advantage=found.get(r.id), detail={"hook": {"weight": w, "round": 0}})
        for g, row in zip(groups, weights, strict=True)
        for r, w in zip(g, row, strict=True)
    ]


def test_a_weight_or_an_advantage_that_its_source_does_not_give_is_found(hooked: Callable[..., api.Run]) -> None:
    both = MARKED + "\n\n" + LIVE
    run = hooked({"both": both})
    event = next(e for e in run.events() if e.kind == "finished" and e.body.branch == "b1")
    # on paper nothing is trained or sealed: rollouts are put there as a training leaves them
    event = replace(event, body=event.body.model_copy(update={"parts": ("part",)}))
    recipe = next(b.recipe for b in run.state.branches.values() if b.intervention)
    store = run.folder / "rollouts" / event.body.trial
    true = trained(recipe.model_dump(mode="json"), marked_of(event.body.trial))

    def said(rows: list[Rollout]) -> list[str]:
        shutil.rmtree(store)
        with closing(RolloutStore(store)) as to:
            to.append([rows])
        record = Record(run.folder, run.events())
        found = [p.message for p in hooks(record, event)]
        assert record.checked["hooked rollouts"] == len(rows)
        return found

    assert said(true) == []
    assert any(r.advantage is None for r in true) and any(r.advantage for r in true)
    at = next(i for i, r in enumerate(true) if r.advantage)
    (lie,) = said([*true[:at], replace(true[at], advantage=0.25), *true[at + 1 :]])
    assert "advantages of both@" in lie and f"rollout {true[at].id}: 0.25 stored" in lie
    (lie,) = said([*true[:at], replace(true[at], detail={"hook": {"weight": 0.5, "round": 0}}), *true[at + 1 :]])
    assert "weights of both@" in lie and "0.5 stored, 1.0 computed" in lie


def marked_of(trial: str) -> list[Rollout]:
    """Rollouts of a trial of eight groups; every other one has no spread."""
    out = []
    for i in range(32):
        reward = float(i % 2) if (i // 4) % 2 else 1.0
        out.append(
            Rollout(
                id=f"{trial}-t{i}", task=f"t{i // 4}", turns=(), reward=reward, split="train", k=i % 4,
                group=f"{trial}-g{i // 4}", components={"right": reward, "in_order": reward}, outcome="unknown",
            )
        )  # fmt: skip
    return out


def test_a_person_tries_hooks_on_a_run(
    hooked: Callable[..., api.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = hooked({}, "recipe.prompts_per_step=4")
    files = {"grpo": GRPO, "fresh": FRESH, "cheat": LABELLED["reads_protected"], "both": GRPO + "\n\n" + MARKED}
    for name, source in files.items():
        (tmp_path / f"{name}.py").write_text(source)
    assert app(["try-code", str(tmp_path / "grpo.py"), str(run.folder)], standalone_mode=False) == 10
    out = capsys.readouterr().out
    assert content_name("grpo", GRPO) in out and "GRPO's own" in out
    assert "all advantages stay the same" in out and "[FAIL] not backtest_contradicted" in out
    assert not app(["try-code", str(tmp_path / "fresh.py"), str(run.folder), "--json"], standalone_mode=False)
    (told,) = json.loads(capsys.readouterr().out)
    assert told["component"] == content_name("fresh", FRESH) and "draws 100% of the tasks" in json.dumps(told)
    assert app(["try-code", str(tmp_path / "cheat.py"), str(run.folder)], standalone_mode=False) == 10
    assert "[FAIL] not reads_protected" in capsys.readouterr().out
    assert app(["try-code", str(tmp_path / "both.py"), str(run.folder)], standalone_mode=False) == 10
    assert "[FAIL] not signature" in capsys.readouterr().out, "one file, one function of a name"
    (tmp_path / "two.py").write_text(GRPO + "\n\ndef reward(rollout):\n    return 1.0\n")
    with pytest.raises(ConfigError, match="two changes; make it two files"):
        app(["try-code", str(tmp_path / "two.py"), str(run.folder)], standalone_mode=False)


def test_hooks_are_exported_with_the_model(tmp_path: Path) -> None:
    first = parse_recipe({"rewards": {"exact": 1.0}, "hooks": {"grpo": GRPO}, "steps": 2})
    later = first.with_changes({"start": "champion", "hooks": {"fresh": FRESH}})
    write_sources(tmp_path, later)
    assert {p.name for p in (tmp_path / "hooks").iterdir()} == {
        f"{content_name('grpo', GRPO)}.py", f"{content_name('fresh', FRESH)}.py",
    }  # fmt: skip
    assert not (tmp_path / "rewards").exists()
