"""Kit for executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.executors.spec import TrialSpec

if TYPE_CHECKING:
    from evotrainer.config.task import TaskFile
    from evotrainer.executors import Executor, MakeExecutor
    from evotrainer.records.events import TrialFinished


def check_executor(make: MakeExecutor, task: TaskFile, folder: Path) -> None:
    """A whole run of a small task in `folder` (new), with what `make(folder, task)` gives, and its proof.

    Every trial it was asked for comes back once, with its branch, seed and scores; asked again, for instance after the
    driver was killed, it gives the same results and trains nothing anew; a trial that is unknown can be forgotten; it
    can be closed twice. The run that it served verifies: policies, rollouts and scores are where the results say.
    """
    from evotrainer import api

    served: dict[str, tuple[TrialSpec, TrialFinished]] = {}

    def watched(folder: Path, task: TaskFile) -> Executor:
        return _Watched(make(folder, task), served)

    run = api.start(task, folder, executor=watched)
    assert run.closed is not None, "the run did not come to its end"
    assert served, "the run asked for no trial"
    again = make(folder, task)
    try:
        came = {r.trial: r for r in again.run([spec for spec, _ in served.values()])}
        for trial, (_, first) in served.items():
            assert trial in came, f"{trial} is lost when it is asked for again"
            assert came[trial] == first, f"{trial} gives another result when it is asked for again: was it run anew?"
        again.forget("no-such-trial")
    finally:
        again.close()
    again.close()
    problems = [p.message for p in run.verify().problems]
    assert not problems, f"the run does not verify: {problems[:3]}"


class _Watched:
    """Passes calls on, and looks at what comes back."""

    def __init__(self, executor: Executor, served: dict[str, tuple[TrialSpec, TrialFinished]]) -> None:
        self.executor, self.served = executor, served

    def run(
        self, specs: Sequence[TrialSpec], on_progress: Callable[[list[Any]], None] = lambda _: None
    ) -> Iterator[TrialFinished]:
        asked = {s.trial: s for s in specs}
        for result in self.executor.run(specs, on_progress):
            spec = asked.pop(result.trial, None)
            assert spec is not None, f"{result.trial} was not asked for, or came twice"
            check_result(spec, result)
            self.served[spec.trial] = spec, result
            yield result
        assert not asked, f"no result of {', '.join(asked)}"

    def forget(self, trial: str) -> None:
        self.executor.forget(trial)

    def close(self) -> None:
        self.executor.close()


def check_result(spec: TrialSpec, result: TrialFinished) -> None:
    """A result is of its specification; a complete one has a score on each split that was asked for."""
    for name in ("branch", "seed"):
        got, wanted = getattr(result, name), getattr(spec, name)
        assert got == wanted, f"{spec.trial}: {name} is {got!r} in the result, {wanted!r} in the specification"
    assert result.status in ("complete", "failed"), f"{spec.trial}: status {result.status!r}"
    if result.status == "failed":
        assert result.error, f"{spec.trial} failed and does not say why"
        return
    missing = {plan.split for plan in spec.evals} - {s.split for s in result.scores}
    assert not missing, f"{spec.trial}: no score on {', '.join(sorted(missing))}"
    twice = {plan.split for plan in spec.evals if plan.greedy} - {
        s.split for s in result.scores if s.greedy is not None
    }
    assert not twice, f"{spec.trial}: no greedy reading of {', '.join(sorted(twice))}"
    assert not spec.train or result.policy_path, f"{spec.trial} was trained and names no policy"
