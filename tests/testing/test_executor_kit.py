"""The kit for executors (`testing/executors.py`): the shipped one passes, broken ones do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from bench.compare.paper import PaperExecutor, draw_result

from evotrainer.cli.init import init
from evotrainer.config.load import load_task
from evotrainer.config.task import TaskFile
from evotrainer.executors import make_executor
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.events import TrialFinished
from evotrainer.testing import check_executor

pytestmark = pytest.mark.xdist_group("kits")

SMALL = (
    "recipe.steps=2", "recipe.prompts_per_step=4", "recipe.group_size=4", "policy.warm_start.steps=20",
    "evaluation.search_tasks=6", "evaluation.gate_tasks=8", "evaluation.cert_tasks=8", "evaluation.search_attempts=1",
    "evaluation.gate_attempts=1", "evaluation.cert_attempts=1", "judge.min_seeds=2", "run.rounds=0", "run.seeds=[1, 2]",
    "run.certify_seeds=[101]",
)  # fmt: skip


@pytest.fixture
def small(tmp_path: Path) -> TaskFile:
    """The scaffolded task, as small as it gets."""
    init(tmp_path / "letters")
    return load_task(tmp_path / "letters" / "task.toml", SMALL)


@pytest.mark.slow
def test_the_executor_of_this_machine_conforms(small: TaskFile, tmp_path: Path) -> None:
    check_executor(make_executor, small, tmp_path / "run")


class Broken(PaperExecutor):
    """Does with the results what a test says."""

    def __init__(self, change: Callable[[list[TrialFinished]], Sequence[TrialFinished]]) -> None:
        super().__init__(lambda spec: draw_result(spec, 0.5))
        self.change = change

    def run(self, specs: Sequence[TrialSpec], on_progress: Any = lambda _: None) -> Iterator[TrialFinished]:
        yield from self.change(list(super().run(specs, on_progress)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rs: rs[:-1], "no result of"),
        (lambda rs: [*rs, rs[0]], "came twice"),
        (lambda rs: [r.model_copy(update={"seed": 99}) for r in rs], "seed is 99 in the result"),
        (lambda rs: [r.model_copy(update={"branch": "other"}) for r in rs], "branch is 'other'"),
        (lambda rs: [r.model_copy(update={"scores": ()}) for r in rs], "no score on gate, search"),
        (lambda rs: [r.model_copy(update={"status": "failed"}) for r in rs], "does not say why"),
        (lambda rs: rs, "does not verify"),  # its policies are nowhere
    ],
)
def test_a_broken_executor_does_not_conform(
    change: Callable[[list[TrialFinished]], Sequence[TrialFinished]], said: str, small: TaskFile, tmp_path: Path
) -> None:
    broken = Broken(change)
    with pytest.raises(AssertionError, match=said):
        check_executor(broken, small, tmp_path / "run")


def test_results_that_change_when_asked_again_do_not_conform(small: TaskFile, tmp_path: Path) -> None:
    drawn: list[float] = []

    def finish(spec: TrialSpec) -> TrialFinished:
        drawn.append(len(drawn))
        return draw_result(spec, 0.5).model_copy(update={"cpu_s": drawn[-1]})

    with pytest.raises(AssertionError, match="another result when it is asked for again"):
        check_executor(PaperExecutor(finish), small, tmp_path / "run")
