"""`envs.data.tables`: files of four kinds, own splits onto ours, columns by name, filters, duplicates;
errors name the row.
"""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evotrainer.config.load import load_task
from evotrainer.config.preflight import fingerprints
from evotrainer.envs import open_environment
from evotrainer.envs.base import Task
from evotrainer.envs.data.rows import read_file
from evotrainer.envs.data.tables import DataOptions, Format, load_table
from evotrainer.errors import TaskSetError
from tests.envs.helpers import jsonl

pytest.importorskip("math_verify", reason="needs pip install 'evotrainer[math]'")
FORMS = (
    Format(
        "marked", {"question": ("question",), "answer": ("answer",)}, recognises=lambda r: "####" in str(r["answer"])
    ),
    Format("plain", {"question": ("question", "problem"), "answer": ("answer",)}, {"level": ("level",)}),
)
ROWS = [
    {"problem": f"What is {i} plus 1?", "answer": str(i + 1), "level": f"L{i % 3}", "rate": i / 40} for i in range(40)
]


def table(source: Path | str, **options: Any) -> Any:
    return load_table(DataOptions(source=str(source), **options), FORMS, "test")


def math(source: Path | str, **options: Any) -> Any:
    return open_environment({"name": "math", "source": str(source), **options})


def tasks(env: Any) -> list[Task]:
    return [t for s in env.describe()["splits"] for t in env.tasks(s)]


def test_the_same_rows_come_from_every_kind_of_file(tmp_path: Path) -> None:
    flat = [{"problem": 'a "quoted", b\nnext line', "answer": "1"}, {"problem": "caf\u00e9", "answer": "2"}]
    jsonl(tmp_path / "a.jsonl", flat)
    (tmp_path / "b.json").write_text(json.dumps(flat))
    (tmp_path / "c.json").write_text(json.dumps({"data": flat}))
    (tmp_path / "d.json").write_text("".join(json.dumps(r) + "\n" for r in flat))
    (tmp_path / "e.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    pl.DataFrame(flat).write_parquet(tmp_path / "f.parquet")
    with open(tmp_path / "g.csv", "w", newline="", encoding="utf-8-sig") as f:
        writer = csv.DictWriter(f, ["problem", "answer"])
        writer.writeheader()
        writer.writerows(flat)
    for path in sorted(tmp_path.iterdir()):
        assert [dict(r) for r in read_file(path)] == flat, path.name
        assert [i.row["question"] for i in table(path).items] == [r["problem"] for r in flat]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "x,y\n1,2,3\n", r"a.csv, line 2: 3 cells under 2 columns"),
        ("a.csv", "x,x\n1,2\n", "the columns' names, each once"),
        ("a.csv", 'x\n"open\n', r"a.csv, line \d: not CSV"),
        ("a.json", "[1, 2]", "is no JSON list of objects"),
        ("a.json", '{"a": ', "cannot read .*a.json"),
        ("a.parquet", "no", "cannot read .*a.parquet"),
        ("a.txt", "x", r"no file of rows; give .jsonl, .json, .csv, .parquet"),
        ("a.jsonl", "", "has no rows"),
    ],
)
def test_damaged_files_are_refused_with_their_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TaskSetError, match=message):
        table(tmp_path / name)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (
            [{"problm": "q", "answer": "1"}],
            {},
            r"columns problm, answer are of no format .*\(marked: question, answer; plain",
        ),
        (
            [{"problm": "q", "answer": "1"}],
            {"format": "plain"},
            r"d.jsonl, row 1: no column 'question' or 'problem' \(format plain\); it has: problm, answer; did you mean "
            r"'problm'\?; set environment.columns = \{question",
        ),
        (
            [{"q": "1", "answer": "1"}, {"answer": "2"}],
            {"columns": {"question": "q"}},
            r"d.jsonl, row 2: no column 'q' \(format plain\); it has: answer; set environment.columns",
        ),
        (
            [{"problem": "q", "answer": "1"}],
            {"format": "plane"},
            r"knows no format 'plane'; one of: marked, plain; did you mean 'plain'",
        ),
        (
            [{"problem": "q", "answer": "1"}],
            {"columns": {"quest": "problem"}, "format": "plain"},
            r"format plain has no column 'quest'; it has: question, answer, level; did you mean 'question'",
        ),
        (
            [{"problem": "q", "answer": "1"}],
            {"where": {"levle": "x"}},
            r"row 1: where speaks of a column 'levle'; it has: problem",
        ),
        ([{"problem": "q", "answer": "1"}], {"where": {"answer": "2"}}, r"no row is left by where .*; answer holds 1"),
        (
            [{"problem": "q", "answer": "1"}],
            {"where": {"answer": {"above": 2}}},
            r"must be a value, a list of values, or",
        ),
        ([{"problem": "q", "answer": "x"}], {"where": {"answer": {"min": 2}}}, r"'x' is no number to compare"),
        ([{"problem": "q", "answer": "1"}], {"splits": {"test": 1.0}}, "unknown split 'test'"),
        ([{"problem": "q", "answer": "1"}], {"splits": {"train": 1.0}, "parts": {}}, "give splits .* or parts"),
        (
            [{"problem": "q", "answer": "1"}],
            {"parts": {"dd": "cert"}},
            r"has no split 'dd'; it has: d; did you mean 'd'",
        ),
    ],
)
def test_missing_and_malformed_columns_are_named_with_near_ones(
    tmp_path: Path, rows: list[dict[str, Any]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TaskSetError, match=message):
        table(jsonl(tmp_path / "d.jsonl", rows), **options)


def test_formats_are_told_by_their_columns(tmp_path: Path) -> None:
    assert table(jsonl(tmp_path / "a.jsonl", [{"question": "q", "answer": "so #### 4"}])).format.name == "marked"
    assert table(jsonl(tmp_path / "b.jsonl", [{"question": "q", "answer": "4"}])).format.name == "plain"
    mapped = table(jsonl(tmp_path / "c.jsonl", [{"Q": "q", "A": "4"}]), columns={"question": "Q", "answer": "A"})
    assert (mapped.format.name, mapped.items[0].row["question"], mapped.items[0].row["answer"]) == ("plain", "q", "4")


def test_filters_take_values_lists_and_ranges(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "d.jsonl", [{**r, "domain": ["a", f"d{i % 2}"]} for i, r in enumerate(ROWS)])

    def left(**where: Any) -> list[int]:
        return [i.number for i in table(path, where=where).items]

    assert left(level="L1") == [n for n in range(1, 41) if (n - 1) % 3 == 1]
    assert left(level=["L1", "L2"]) == [n for n in range(1, 41) if (n - 1) % 3]
    assert left(rate={"min": 0.5, "max": 0.6}) == [21, 22, 23, 24, 25]
    assert left(domain="d1") == [n for n in range(1, 41) if n % 2 == 0]
    assert left(level="L0", rate={"max": 0.2}) == [1, 4, 7]
    assert [i.number for i in table(path, where={"level": "L1"}, limit=2).items] == [2, 5]


def test_a_data_sets_own_splits_become_ours(tmp_path: Path) -> None:
    jsonl(tmp_path / "s" / "train-00000-of-00002.jsonl", ROWS[:15])
    jsonl(tmp_path / "s" / "train-00001-of-00002.jsonl", ROWS[15:30])
    jsonl(tmp_path / "s" / "test.jsonl", ROWS[30:])
    env = math(tmp_path / "s")
    assert env.describe()["splits"]["cert"] == 10
    assert {t.tags["part"] for t in env.tasks("cert")} == {"test"}
    assert {t.tags["part"] for t in env.tasks("train")} == {"train"}
    jsonl(
        tmp_path / "s" / "data" / "validation.jsonl",
        [{"problem": f"Twice {i}?", "answer": str(2 * i)} for i in range(20)],
    )
    env = math(tmp_path / "s")
    assert env.describe()["splits"]["train"] == 30
    assert {t.tags["part"] for s in ("search", "gate") for t in env.tasks(s)} == {"validation"}
    jsonl(tmp_path / "s" / "extra.jsonl", [{"problem": "What is 7 plus 7?", "answer": "14"}])
    with pytest.raises(TaskSetError, match=r"'extra' is assigned to none of ours; set environment.parts"):
        math(tmp_path / "s")
    env = math(tmp_path / "s", parts={"train": {"train": 0.5, "gate": 0.5}, "extra": "cert"})
    sizes = env.describe()["splits"]
    assert (
        sizes["cert"] == 1
        and sizes["train"] + sizes["gate"] == 30
        and env.describe()["data"]["rows"] == {"train": 30, "extra": 1}
    )


def test_certification_never_overlaps_training(tmp_path: Path) -> None:
    jsonl(tmp_path / "s" / "train.jsonl", [*ROWS[:20], {"problem": "What  is 33 PLUS 1?", "answer": "34"}, ROWS[0]])
    jsonl(tmp_path / "s" / "test.jsonl", ROWS[30:])
    with pytest.raises(
        TaskSetError, match=r"big-math-test-4 and big-math-train-21 ask the same in splits cert and train"
    ):
        math(tmp_path / "s", parts={"train": "train", "test": "cert"})
    env = math(tmp_path / "s", duplicates="merge", parts={"train": "train", "test": "cert"})
    assert env.describe()["splits"] == {"train": 20, "cert": 10}
    assert env.describe()["data"]["duplicates_left_out"] == 2
    assert "big-math-train-21" not in {t.id for t in env.tasks("train")}


def test_hashed_shares_keep_a_row_in_its_split_when_rows_are_added(tmp_path: Path) -> None:
    shares = {"train": 0.4, "search": 0.2, "gate": 0.2, "cert": 0.2}
    few = math(jsonl(tmp_path / "few.jsonl", ROWS[:20]), splits=shares)
    all_ = math(jsonl(tmp_path / "all.jsonl", ROWS), splits=shares)
    where = {t.data["question"]: t.split for t in tasks(all_)}
    assert all(where[t.data["question"]] == t.split for t in tasks(few))
    assert set(where.values()) == set(shares)


def test_the_task_file_says_all_of_it_and_its_files_are_fingerprinted(tmp_path: Path) -> None:
    jsonl(tmp_path / "s" / "train.jsonl", ROWS[:30])
    jsonl(tmp_path / "s" / "test.jsonl", ROWS[30:])
    (tmp_path / "task.toml").write_text(
        '[task]\nname = "m"\n[environment]\nname = "math"\nsource = "./s"\nformat = "big-math"\n'
        '[environment.columns]\nquestion = "problem"\n[environment.where]\nlevel = ["L0", "L1"]\n'
        '[environment.parts]\ntest = "cert"\ntrain = {train = 0.8, gate = 0.2}\n[recipe.rewards]\ncorrect = 1.0\n'
    )
    environment = load_task(tmp_path / "task.toml").environment
    env = open_environment(environment)
    assert {t.tags["level"] for t in tasks(env)} == {"L0", "L1"}
    assert sorted(Path(p).name for p in fingerprints(environment)) == ["test.jsonl", "train.jsonl"]
    with pytest.raises(TaskSetError, match="where_: unknown name"):
        open_environment({**environment, "where_": {}})
    with pytest.raises(
        TaskSetError, match=r"no file or folder org/name; a Hugging Face data set is written hf:org/name"
    ):
        math("org/name")
    with pytest.raises(TaskSetError, match="source is empty"):
        math("")
