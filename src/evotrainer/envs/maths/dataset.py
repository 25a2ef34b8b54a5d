"""Maths problems from a data set: GSM8K's form, MATH's (`\\boxed{}` in a solution), or a question with its answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import field_validator

from evotrainer.envs.base import Task
from evotrainer.envs.data.rows import Row, field, split_of
from evotrainer.envs.data.tables import DataOptions, Format, TableRow, load_table, without_duplicates
from evotrainer.envs.maths.equality import same_number
from evotrainer.envs.maths.expressions import evaluate
from evotrainer.envs.maths.holdout import ASK
from evotrainer.envs.maths.latex import LatexJudge, boxed
from evotrainer.envs.maths.rewards import BOX, MARK
from evotrainer.envs.maths.row_source import RowSource
from evotrainer.errors import TaskSetError
from evotrainer.records.frozen import parsed
from evotrainer.records.text import quoted

ASK_BOXED = "\nPut the answer in \\boxed{}.\n"
_QUESTION = ("question", "problem", "prompt")
_TAGS = {"level": ("level", "difficulty"), "subject": ("subject", "type"), "of": ("source",), "domain": ("domain",)}
FORMATS = (
    Format("gsm8k", {"question": ("question",), "answer": ("answer",)}, recognises=lambda r: MARK in str(r["answer"])),
    Format("math", {"question": _QUESTION, "solution": ("solution",)}, {"answer": ("answer",), **_TAGS}),
    Format(
        "big-math",
        {"question": _QUESTION, "answer": ("answer", "final_answer", "expected_answer")},
        {"solution": ("solution",), **_TAGS},
    ),
)


_CALCULATOR = re.compile(r"<<[^<>]*>>")


def gold_answer(answer: str) -> str | None:
    """What stands after the last ####, without thousands separators; None where that is no number."""
    _, mark, text = answer.rpartition(MARK)
    text = text.strip().replace(",", "").replace("$", "")
    return text if mark and evaluate(text) is not None else None


class MathDataConfig(DataOptions):
    """`[environment]` of a task file with name = "math" and a source."""

    name: Literal["math"] = "math"
    marks: tuple[str, ...] = ()
    """What an attempt's answer stands after; default: `####` for gsm8k, else `\\boxed{`."""
    ask: str | None = None
    """Stands after every question; default: asks for the answer in that form."""
    unmarked: bool = False
    """An attempt without a mark is graded by its last line."""

    @field_validator("marks")
    @classmethod
    def _marks(cls, v: tuple[str, ...]) -> tuple[str, ...]:
        if not all(m.strip() for m in v):
            raise ValueError("marks must not be empty texts")
        return v


class MathRows(RowSource):
    """Tasks of a data set."""

    def __init__(self, config: MathDataConfig) -> None:
        table = load_table(config, FORMATS, "math")
        hashed = table.format.name == "gsm8k"
        marks = config.marks or ((MARK,) if hashed else (BOX,))
        ask = config.ask if config.ask is not None else ASK_BOXED if BOX in marks else ASK
        tasks = table.each(lambda item: _task(table.format.name, item, ask), config.malformed)
        tasks, dropped = without_duplicates(
            "math", tasks, config.duplicates, of=lambda t: t, ask=lambda t: str(t.data["question"])
        )
        super().__init__("math", tasks, marks, config.unmarked)
        self.judge = LatexJudge()
        self._hashed = hashed
        self._about = table.description(duplicates_left_out=dropped)

    def correct(self, task: Task, answer: str) -> bool:
        gold = str(task.data["answer"])
        return same_number(gold, answer) if self._hashed else self.judge.same(gold, answer)

    def close(self) -> None:
        self.judge.close()

    def about(self) -> dict[str, Any]:
        return {**super().about(), "data": self._about}


def _task(form: str, item: TableRow, ask: str) -> Task:
    row, where = item.row, item.where
    question = field(row, "question", str, where).strip()
    if not question:
        raise TaskSetError(f"{where}: the question is empty; remove or correct the row")
    gold, worked = GOLDS[form](row, where)
    tags = {"part": item.part} | {t: _tag(row[t]) for t in _TAGS if row.get(t) not in (None, "")}
    data = {"question": question, "answer": gold, "worked": worked, "steps": []}
    return Task(f"{form}-{item.part}-{item.number}", split_of(question, item.shares), question + ask, data, tags)


def _tag(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _gsm8k(row: Row, where: str) -> tuple[str, str]:
    worked = field(row, "answer", str, where)
    if (gold := gold_answer(worked)) is None:
        raise TaskSetError(
            f"{where}: field 'answer' does not end in `#### NUMBER` (it ends {worked[-40:]!r}); correct it"
        )
    return gold, _CALCULATOR.sub("", worked)  # of notes such as <<48/2=24>>


def _math(row: Row, where: str) -> tuple[str, str]:
    worked = field(row, "solution", str, where)
    given = row.get("answer")
    gold = given.strip() if isinstance(given, str) else boxed(worked)
    if not gold:
        raise TaskSetError(
            f"{where}: field 'solution' has no \\boxed{{}} with an answer in it (it ends {worked[-40:]!r}), "
            "and there is no column 'answer'; correct the row"
        )
    return boxed(gold) or gold, worked


def _big_math(row: Row, where: str) -> tuple[str, str]:
    value = row["answer"]
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not str(value).strip():
        raise TaskSetError(
            f"{where}: field 'answer' is {quoted(value, 40)}, a text or number expected; correct the row"
        )
    gold = str(value).strip()
    return boxed(gold) or gold, str(row.get("solution") or "")


GOLDS = {"gsm8k": _gsm8k, "math": _math, "big-math": _big_math}


def parse_config(options: Any) -> MathDataConfig:
    """Validate `[environment]`; TaskSetError names what is wrong."""
    return parsed(MathDataConfig, options, "environment math", TaskSetError)
