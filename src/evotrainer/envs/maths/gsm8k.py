"""GSM8K, or any file of its form, as a task set: questions with answers that end in `#### 42`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from evotrainer.envs.base import Task
from evotrainer.envs.data.rows import Row, check_shares, field, load_rows, read_jsonl, split_of
from evotrainer.envs.maths.equality import check_library, same_number
from evotrainer.envs.maths.expressions import evaluate
from evotrainer.envs.maths.holdout import prompt
from evotrainer.envs.maths.rewards import MARK
from evotrainer.envs.maths.row_source import RowSource
from evotrainer.envs.options import parse_options
from evotrainer.errors import TaskSetError
from evotrainer.records.frozen import Frozen
from evotrainer.records.text import quoted

ALL_CERT: Mapping[str, float] = {"cert": 1.0}
OF_TRAIN: Mapping[str, float] = {"train": 0.9, "search": 0.05, "gate": 0.05}
"""Shares of the rows of a folder's train.jsonl; its test.jsonl is cert."""
_DATA = frozenset((".jsonl", ".gz", ".parquet", ".arrow", ".json", ".csv"))
"""Files of a folder that could be a data set; `.jsonl` and `.gz` are read here, the rest by the `datasets` library."""
_CALCULATOR = re.compile(r"<<[^<>]*>>")


class Gsm8kConfig(Frozen):
    """`[environment]` of a task file with name = "gsm8k"."""

    name: Literal["gsm8k"] = "gsm8k"
    path: str
    """A .jsonl or .jsonl.gz file, a folder with train.jsonl and test.jsonl, or a Hugging Face id."""
    question: str = "question"
    answer: str = "answer"
    """Names of the columns."""
    splits: dict[str, float] | None = None
    """Shares of all rows per split, by a stable hash of the question."""
    files: dict[str, str] | None = None
    """Split -> file in the folder; excludes `splits`."""
    marks: tuple[str, ...] = Field((MARK,), min_length=1)
    """What an attempt's answer stands after."""
    unmarked: bool = True
    """An attempt without a mark is graded by its last line, as math-verify reads it."""
    hf_config: str | None = "main"
    hf_split: str = "test"


def parse_config(config: Mapping[str, Any]) -> Gsm8kConfig:
    """Validate `[environment]`; TaskSetError names what is wrong."""
    c = parse_options(Gsm8kConfig, config, "gsm8k")
    if c.splits is not None and c.files is not None:
        raise TaskSetError("environment gsm8k: give splits (shares by hash) or files (one per split), not both")
    if not all(m.strip() for m in c.marks):
        raise TaskSetError("environment gsm8k: marks must not be empty texts; the default is ####")
    return c


def gold_answer(answer: str) -> str | None:
    """What stands after the last ####, without thousands separators; None where that is no number."""
    _, mark, text = answer.rpartition(MARK)
    text = text.strip().replace(",", "").replace("$", "")
    return text if mark and evaluate(text) is not None else None


def plain(answer: str) -> str:
    """A worked answer without GSM8K's calculator notes `<<48/2=24>>`."""
    return _CALCULATOR.sub("", answer)


class Gsm8kSource(RowSource):
    """Tasks of a GSM8K-like data set."""

    def __init__(self, config: Gsm8kConfig) -> None:
        self.config = config
        check_library()
        super().__init__("gsm8k", [t for rows in self._rows() for t in rows], config.marks, config.unmarked)
        self._refuse_overlap()

    def _rows(self) -> list[list[Task]]:
        c = self.config
        folder = Path(c.path).expanduser() if c.path else None
        if folder is not None and folder.is_dir() and not any(p.suffix in _DATA for p in folder.rglob("*")):
            raise TaskSetError(
                f"{folder} has no train.jsonl or test.jsonl, nor any other data file; "
                "put GSM8K's files there or set environment.path to where they are"
            )
        if folder is None or not folder.is_dir() or not any(folder.glob("*.jsonl*")):
            if c.files is not None:
                raise TaskSetError(
                    f"environment gsm8k: files needs path to be a folder of .jsonl files, not {c.path!r}"
                )
            rows = load_rows(c.path, c.hf_config, c.hf_split)
            return [self._tasks(rows, c.path, Path(c.path).name.split(".")[0], c.splits or ALL_CERT)]
        plan: list[tuple[str, Mapping[str, float]]]
        if c.files is not None:
            check_shares(dict.fromkeys(c.files, 1.0))
            plan = [(f, {split: 1.0}) for split, f in c.files.items()]
        else:
            plan = [("train.jsonl", c.splits or OF_TRAIN), ("test.jsonl", c.splits or ALL_CERT)]
            plan = [(f, shares) for f, shares in plan if (folder / f).is_file()]
        if not plan:
            raise TaskSetError(
                f"{folder} has no train.jsonl or test.jsonl; name its files: environment.files={{cert=...}}"
            )
        return [self._tasks(read_jsonl(folder / f), str(folder / f), f.split(".")[0], shares) for f, shares in plan]

    def _tasks(self, rows: Sequence[Row], where: str, stem: str, shares: Mapping[str, float]) -> list[Task]:
        settled = check_shares(shares)
        return [self._task(row, f"{where}, row {i}", f"{stem}-{i}", settled) for i, row in enumerate(rows, 1)]

    def _task(self, row: Row, where: str, name: str, shares: Mapping[str, float]) -> Task:
        question = field(row, self.config.question, str, where).strip()
        worked = field(row, self.config.answer, str, where)
        gold = gold_answer(worked)
        if not question:
            raise TaskSetError(f"{where}: the question is empty; remove or correct the row")
        if gold is None:
            raise TaskSetError(
                f"{where}: field {self.config.answer!r} does not end in `#### NUMBER` (it ends {worked[-40:]!r}); "
                "correct it"
            )
        data = {"question": question, "answer": gold, "worked": plain(worked), "steps": []}
        return Task(f"gsm8k-{name}", split_of(question, shares), prompt(question), data, {"source": name.split("-")[0]})

    def _refuse_overlap(self) -> None:
        where: dict[str, Task] = {}
        for tasks in self._splits.values():
            for t in tasks:
                if (other := where.setdefault(t.prompt, t)).split != t.split:
                    raise TaskSetError(
                        f"environment gsm8k: {t.id} and {other.id} ask the same in splits {t.split} and {other.split}: "
                        f"{quoted(t.data['question'])}; remove one, or split all rows by hash (environment.splits)"
                    )

    def correct(self, task: Task, answer: str) -> bool:
        return same_number(task.data["answer"], answer)
