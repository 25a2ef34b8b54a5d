"""What the harness reads of a trial: its training every k steps, and its search evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evotrainer.executors.spec import TrialSpec
from evotrainer.records.findings import HealthReport

WINDOW = 2
"""Steps of rollouts in one reading of a training."""


def read_health(
    spec: TrialSpec,
    store: Path,
    proxy: tuple[str, str] | None,
    curve: Sequence[Mapping[str, float]],
    greedy: Mapping[str, float] | None = None,
) -> tuple[HealthReport, ...]:
    """Readings of stored rollouts, oldest first: `<branch>/<seed>@<step> train` at every k-th step and at the last one,
    over the WINDOW steps up to it, then `<branch>/<seed>@<steps> search`. Empty where the task file asks for none.

    `greedy`: the search evaluation's second reading, by task."""
    from evotrainer.harness import Harness, HarnessContext
    from evotrainer.harness.columns.batch import Batch
    from evotrainer.harness.columns.source import stored
    from evotrainer.records.reading import read_batches

    every = spec.health_every
    if not every or not spec.train:
        return ()
    steps = spec.recipe.whole_steps
    harness = Harness.model_validate(spec.harness) if spec.harness else Harness.default()
    who = f"{spec.branch}/{spec.seed}"
    out: list[HealthReport] = []

    def context(upto: int) -> HarnessContext:
        return HarnessContext(
            recipe=spec.recipe.at(upto),
            proxy=proxy,
            previous=tuple(out[-1:]),
            base=out[0] if out else None,
            curve=tuple(curve[spec.recipe.at(upto).before : upto]),
        )

    windows = {
        end: range(max(0, end - min(WINDOW, every)) + 1, end + 1) for end in {*range(every, steps + 1, every), steps}
    }
    train = stored(read_batches([store], split="train", steps={s for w in windows.values() for s in w}))
    step = train.column("step", range(train.n))
    for end, window in sorted(windows.items()):
        if rows := [i for i, s in enumerate(step) if s in window]:
            out.append(harness.read(Batch.over(train.take(rows)), f"{who}@{end} train", context(end)))
    search = stored(read_batches([store], split="search"))
    if search.n:
        plain = HarnessContext(
            recipe=spec.protocol,
            proxy=proxy,
            curve=tuple(curve[spec.recipe.before :]),
            greedy=greedy,
        )
        out.append(harness.read(Batch.over(search), f"{who}@{steps} search", plain))
    return tuple(out)
