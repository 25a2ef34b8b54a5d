"""`run.propose`: what is replayed, vetoed, refused and opened."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.run.observer import SilentObserver
from tests import leaky_task
from tests.leaky_task import TASK as TASK
from tests.paper import Paper
from tests.run.kill_driver import finish
from tests.small_run import TINY


def flat(spec: TrialSpec) -> list[Rollout]:
    """Search rollouts in which one component never differs: paying it changes no advantage."""
    out = []
    for i in range(80):
        right = float(random.Random(f"{spec.trial} {i}").random() < 0.5)
        said = (Turn("user", f"sort {i // 4}"), Turn("assistant", f"answer {i}"))
        out.append(
            Rollout(
                id=f"{spec.trial}-{i}", task=f"t{i // 4}", turns=said, reward=right, split="search", k=i % 4,
                group=f"{spec.trial}-{i // 4}", components={"right": right, "in_order": 1.0},
                outcome="correct" if right else "incorrect",
            )
        )  # fmt: skip
    return out


@pytest.mark.parametrize("veto", [True, False])
def test_without_the_veto_what_is_contradicted_goes_on_to_training(task: Path, tmp_path: Path, veto: bool) -> None:
    change = 'run.agent_options.interventions=[{factor="rewards",new={right=1.0,in_order=0.5}}]'
    paper = Paper(leaky_task.finish, flat)
    run = paper.start(task, tmp_path / "run", [change, f"run.veto={str(veto).lower()}", "judge.audit=never"])
    (replayed,) = [e.body for e in run.events() if e.kind == "backtested"]
    assert replayed.backtest.verdict == "contradicts" and replayed.vetoed == veto
    assert {s.branch for s in paper.ran if s.train} == ({"b0"} if veto else {"b0", "b1"})


class Stubborn:
    """Proposes what must be refused, each for another reason, and one thing that may pass."""

    name = "stubborn"

    def propose(self, briefing: Briefing, tools: object) -> Proposal:
        old = briefing.champion.recipe

        def iv(factor: str, new: object) -> Intervention:
            return Intervention(
                factor=factor,
                old=old.factors().get(factor),
                new=new,
                hypothesis="if this changes, the score rises, because we say so",
                prediction=Prediction(metric="accuracy", direction="up", size=0.01),
                success_criterion="gate score +1 point",
                rollback="champion",
            )

        return Proposal(
            agent=self.name,
            interventions=(
                iv("rewards", {"sorted_word": 1.0, "brevity": 0.5}),  # two moves
                iv("learning_rate", 1e-3),  # no such factor
                iv("lr", old.lr),  # no change
                iv("resample", 2),  # silent: no filter
                iv("rewards", {"kindness": 1.0}),  # no such component
                iv("temperature", 0.4),
                iv("kl_beta", 0.05),
            ),
        )


@pytest.mark.xdist_group("loop")
def test_bad_branches_are_refused_with_the_reason(task_file: Path, trained_base: Path, tmp_path: Path) -> None:
    quick = Paper(finish)
    overrides = [*TINY, f"policy.base={trained_base}", "run.branches=2"]
    said: list[str] = []
    view = SilentObserver()
    view.note = said.append  # type: ignore[method-assign]
    run = quick.start(task_file, tmp_path / "run", overrides, agent=Stubborn(), view=view)
    vetoed = {e.body.index: e.body.backtest.reason for e in run.events() if e.kind == "backtested" and e.body.vetoed}
    refused = {e.body.index: e.body.reason for e in run.events() if e.kind == "refused"} | vetoed
    assert refused.keys() == {0, 1, 2, 3, 4}
    assert "2 moves in the reward composition" in refused[0]
    assert "learning_rate" in refused[1]
    assert refused[2] == "lr already has this value: nothing would change"
    assert "group_filter" in refused[3]
    assert "kindness" in refused[4]
    told = [x for x in said if " is not trained: " in x]
    for reason in set(refused.values()) - set(vetoed.values()):
        assert [x for x in told if x.endswith(f" is not trained: {reason}")], "a line in the run's log, too"
    assert len(told) == len(refused) - len(vetoed)
    opened = [e.body for e in run.events() if e.kind == "branch"]
    assert [b.intervention.factor for b in opened if b.intervention] == ["temperature", "kl_beta"]
    colder = next(s for s in quick.ran if s.trial == "b1-s1")
    assert colder.recipe.temperature == 0.4
    assert colder.protocol.temperature == 1.0, "a branch that samples colder is evaluated like all others"
    assert {v.control for v in run.verdicts} == {"b0"}, "each branch is judged against what it was branched from"


@pytest.mark.xdist_group("loop")
def test_a_protocol_of_the_task_file_holds_for_every_policy(
    task_file: Path, trained_base: Path, tmp_path: Path
) -> None:
    quick = Paper(finish)
    own = ["evaluation.protocol.temperature=0.7", "evaluation.protocol.max_tokens=7"]
    task = load_task(task_file, [*TINY, f"policy.base={trained_base}", "run.branches=2", *own])
    run = quick.start(task, tmp_path / "run", agent=Stubborn())
    assert {(s.protocol.temperature, s.protocol.max_tokens) for s in quick.ran} == {(0.7, 7)}
    assert {s.recipe.temperature for s in quick.ran if s.train} == {1.0, 0.4}, "training does not see it"
    assert run.task.hash != load_task(task_file, [*TINY, f"policy.base={trained_base}", "run.branches=2"]).hash
    spec = next(s for s in quick.ran if s.trial == "b1-s1")
    written = run.folder / "trials" / "b1-s1" / "spec.json"
    written.parent.mkdir(parents=True)
    for temperature, held in ((0.7, True), (0.3, False)):
        forged = spec.protocol.model_copy(update={"temperature": temperature})
        written.write_text(spec.model_copy(update={"protocol": forged}).model_dump_json(), encoding="utf-8")
        told = [p for p in run.verify().problems if "the run's protocol is 0.7" in p.message]
        assert bool(told) is not held
    with pytest.raises(ConfigError, match=r"evaluation.protocol.max_tokens=\d+ leaves no room for a prompt"):
        quick.start(task_file, tmp_path / "long", [*TINY, f"policy.base={trained_base}", f"{own[1]}0000"])
