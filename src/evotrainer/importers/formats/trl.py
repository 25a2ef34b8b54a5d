"""TRL's logged completions: `completions/completions_<step>.parquet`, written with `log_completions`.

Columns: step, prompt and completion (text, or lists of chat messages), one column of numbers for each reward function
(NaN where it did not apply), columns a reward function logged itself, advantage. The first versions had one `reward`.

The file does not hold the training reward. It is the sum of the reward columns, by TRL's default weights of one, where
the logged advantages agree: within each prompt's group they rise with it. Numbers that were logged with the rewards
come after them, so the longest leading run of columns that agrees is taken. Where none does (other weights), the reward
stays unknown (None) and only the components are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from evotrainer.importers import chat
from evotrainer.importers.base import LogFormat, Skipped, Source, imported_id, task_of
from evotrainer.importers.lenient_json import number
from evotrainer.importers.lines import Counters, columns, convert_all
from evotrainer.records import caps
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import cut

_PLAIN = ("step", "prompt", "completion", "advantage")
_AGREE = 0.95
"""Share of informative groups that must agree with the sum."""
Grouped = dict[tuple[object, int], list[tuple[list[float | None], float]]]
"""Of each group (step and prompt) the components and the advantage of its rows."""


class Trl(LogFormat):
    """The importer of TRL's completions."""

    name = "trl"
    about = "TRL GRPOTrainer completions_*.parquet (log_completions): step, prompt, completion, rewards, advantage"
    asked = 20

    def one_reading(self, path: Path) -> Path | None:
        return path.parent

    def recognises(self, source: Source) -> bool:
        """A Parquet file with these columns."""
        if source.head[:4] != b"PAR1":
            return False
        import pyarrow.parquet as pq

        try:
            return _not_ours(set(pq.read_schema(source.path).names)) is None
        except Exception:
            return False

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        """One rollout a row."""
        return convert_all(path, columns(path, _not_ours), _Reader(path).rollout)


def _not_ours(names: set[str]) -> str | None:
    if {"step", "prompt", "completion"} <= names and names & {"advantage", "reward"}:
        return None
    return f"not TRL's columns: {cut(', '.join(sorted(names)), 160)}"


class _Reader:
    """Rows of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = Counters()
        self.numbers: list[str] = []
        self.rewards: list[str] = []
        try:
            self.numbers, self.rewards = _reward_columns(path)
        except Exception:
            return  # a damaged file: the rows say where

    def rollout(self, r: dict[str, Any], n: int) -> Rollout | str:
        if r.get("completion") is None:
            return "it has no completion"
        talk = chat.Conversation()
        chat.add(talk, r.get("prompt"))
        prompt = talk.turns()
        chat.add(talk, r["completion"], "assistant")
        step = r.get("step")
        step = step if chat.is_int(step) else 0
        task = task_of("\n".join(t.text for t in prompt))
        group = f"{self.path.name}@{step}#{task}"
        components = {c: number(r.get(c)) for c in self.numbers}
        # a function that returned None (NaN in the file) is left out of TRL's own sum as well
        paid = [components[c] for c in self.rewards]
        known = [v for v in paid if v is not None]
        extra = {k: _plain(v) for k, v in r.items() if k not in _PLAIN and k not in components}
        return Rollout(
            imported_id(self.path, n),
            task,
            talk.turns(),
            sum(known) if known else None,
            components=components,
            step=step,  # type: ignore[arg-type]
            group=group,
            k=self.count.next(group),
            advantage=number(r.get("advantage")),
            detail={
                "source": str(self.path),
                "record": n,
                **extra,
                **({} if self.rewards else {"reward": "the file does not hold the weights; its advantages exclude 1"}),
            },
        )


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)


def _reward_columns(path: Path) -> tuple[list[str], list[str]]:
    """Columns of numbers, and the leading ones whose sum agrees with the advantages (none: no such run)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        # A function that applied to no row is a column of nulls.
        numeric = [f.name for f in schema if pa.types.is_floating(f.type) or pa.types.is_null(f.type)]
        numeric = [name for name in numeric if name not in _PLAIN]
        if "reward" in numeric:
            return numeric, ["reward"]
        if not numeric or "advantage" not in schema.names:
            return numeric, numeric
        groups: Grouped = {}
        for batch in caps.batches(file, path, columns=["step", "prompt", "advantage", *numeric]):
            for r in batch.to_pylist():
                if (advantage := number(r["advantage"])) is not None:
                    # within one process only: salted hashes are good enough to group by
                    key = (r["step"], hash(str(r["prompt"])))
                    groups.setdefault(key, []).append(([number(r[c]) for c in numeric], advantage))
    return numeric, agreeing(groups, numeric)


def agreeing(groups: Grouped, names: list[str]) -> list[str]:
    """The leading components whose sum agrees with the advantages within the groups; none: no such run."""
    summed = [[(_sums(values), advantage) for values, advantage in rows] for rows in groups.values()]
    # the longest run first: extra logged numbers come after the rewards
    for n in range(len(names), 0, -1):
        agreement = [_agrees([(x, a) for sums, a in rows if (x := sums[n - 1]) is not None]) for rows in summed]
        verdicts = [v for v in agreement if v is not None]
        if sum(verdicts) >= _AGREE * len(verdicts):
            return names[:n]
    return []


def _sums(values: Sequence[float | None]) -> list[float | None]:
    """Sum of the first number, the first two, ...; None where none of them is known."""
    known = accumulate(v is not None for v in values)
    return [x if n else None for x, n in zip(accumulate(v or 0.0 for v in values), known, strict=True)]


def _agrees(pairs: Sequence[tuple[float, float]]) -> bool | None:
    """Whether advantage is a rising straight line over the sum within a group; None where neither varies."""
    n = len(pairs)
    if n < 2:
        return None
    mx, my = sum(x for x, _ in pairs) / n, sum(y for _, y in pairs) / n
    xx = sum((x - mx) ** 2 for x, _ in pairs)
    yy = sum((y - my) ** 2 for _, y in pairs)
    # a zero-variance group agrees with any weights; where only one side varies it contradicts them
    if xx < 1e-9 and yy < 1e-9:
        return None
    if xx < 1e-9 or yy < 1e-9:
        return False
    # correlation 1 up to rounding: a weighted sum of other weights falls short of it in some group
    return sum((x - mx) * (y - my) for x, y in pairs) > 0.99999 * (xx * yy) ** 0.5


IMPORTER = Trl()
