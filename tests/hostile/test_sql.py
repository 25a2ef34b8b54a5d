"""`audit --sql` answers questions about an audit and reaches nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from evotrainer.errors import ConfigError
from evotrainer.studies.audit import RolloutAudit, audit
from evotrainer.studies.audit.answer import opened
from evotrainer.studies.audit.query import query
from tests.audit_files import generate, write_jsonl

SECRET = "hunter2"
READS = [
    "SELECT * FROM read_csv('{p}')",
    "SELECT * FROM \"read_csv\"('{p}')",
    "SELECT * FROM read_csv/**/('{p}')",
    "SELECT * FROM rollouts, read_csv('{p}')",
    "SELECT * FROM read_parquet('{p}.parquet')",
    "SELECT * FROM read_json('{p}.json')",
    "SELECT content FROM read_text('{p}')",
    "SELECT content FROM read_blob('{p}')",
    "SELECT * FROM '{p}.parquet'",
    'SELECT * FROM "{p}.parquet"',
    "SELECT * FROM rollouts, '{p}.parquet'",
    "SELECT task, (SELECT max(secret) FROM read_csv('{p}')) FROM rollouts",
    "WITH x AS (SELECT * FROM read_csv('{p}')) SELECT * FROM x",
    "SELECT task FROM rollouts UNION ALL SELECT secret FROM read_csv('{p}')",
    "SELECT * FROM query('SELECT * FROM read_csv(''{p}'')')",
    "SELECT * FROM query_table('{p}.parquet')",
    "SELECT $$ ' $$ AS a, secret FROM read_csv('{p}') WHERE '' = ''",
]
"""All of these read a file where external access is on."""
OTHERS = [
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('{p}')",
    "COPY rollouts TO '{p}.out'",
    "EXPORT DATABASE '{p}.out'",
    "IMPORT DATABASE '{p}.out'",
    "ATTACH '{p}.out'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access=true",
    "RESET memory_limit",
    "SET python_enable_replacements=true",
    "CALL enable_logging(storage='file', storage_path='{p}.out')",
    "CREATE PERSISTENT SECRET s (TYPE http)",
    "SELECT getenv('HOME')",
    "SELECT * FROM planted_here",
    "SELECT \x00 FROM rollouts",
]
HONEST = [
    "SELECT task, AVG(reward) AS r FROM rollouts GROUP BY task ORDER BY r DESC LIMIT 5;",
    'select "task", count(*) from "rollouts" where task like \'%a%\' and reward > .5 group by task having count(*) > 1',
    "WITH hard AS (SELECT task FROM rollouts GROUP BY task HAVING AVG(reward) < 0.2) "
    "SELECT r.* FROM rollouts r JOIN hard h ON r.task = h.task",
    "SELECT m.metric, f.claim FROM metrics AS m LEFT JOIN findings f ON m.subject = f.subject",
    "SELECT * FROM (SELECT task, ROW_NUMBER() OVER (PARTITION BY task ORDER BY step) AS n FROM rollouts) q WHERE n = 1",
    "SELECT task, 'read_csv(''x'')' AS note FROM rollouts WHERE step BETWEEN 1 AND 2 AND (task IS DISTINCT FROM 'x')",
    "SELECT * EXCLUDE (turns) FROM rollouts UNION ALL SELECT * EXCLUDE (turns) FROM rollouts",
    "SELECT regexp_extract(task, '[a-z]+') AS word, sum(step) AS steps FROM rollouts GROUP BY ALL -- a comment",
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> RolloutAudit:
    return audit([write_jsonl(tmp_path_factory.mktemp("sql") / "r.jsonl", generate(60))])


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    p = tmp_path_factory.mktemp("secret") / "s"
    frame = pl.DataFrame({"secret": [SECRET]})
    frame.write_csv(p)
    frame.write_parquet(f"{p}.parquet")
    frame.write_ndjson(f"{p}.json")
    return str(p)


@pytest.fixture(scope="module")
def db() -> Any:
    return opened({"rollouts": [], "tables": {}}, 1000)


@pytest.mark.parametrize("sql", READS)
def test_a_file_is_read_by_duckdb_as_it_comes_and_not_by_ours(sql: str, planted: str, db: Any) -> None:
    sql = sql.replace("{p}", planted)
    plain = duckdb.connect()
    plain.execute("CREATE TABLE rollouts AS SELECT 'a' AS task")
    assert SECRET in str(plain.execute(sql).fetchall())
    with pytest.raises(duckdb.Error):
        db.execute(sql).fetchall()


@pytest.mark.parametrize("sql", OTHERS)
def test_nothing_is_written_loaded_set_or_taken_from_python(sql: str, planted: str, db: Any) -> None:
    planted_here = pl.DataFrame({"secret": [SECRET]})
    with pytest.raises((duckdb.Error, UnicodeError)):
        db.execute(sql.replace("{p}", planted)).fetchall()
    assert len(planted_here) == 1 and not Path(f"{planted}.out").exists()


@pytest.mark.parametrize("sql", HONEST)
def test_honest_questions_are_answered(sql: str, done: RolloutAudit) -> None:
    assert query(done, sql).width


def test_a_refusal_says_what_there_is(done: RolloutAudit) -> None:
    for sql, said in [
        ("SELECT * FROM read_csv('/etc/passwd')", "file system operations are disabled"),
        ("SELECT nothing FROM rollouts", "nothing"),
        ("DROP VIEW rollouts", "give one SELECT"),
        ("SELECT 1; SELECT 2", "give one SELECT"),
    ]:
        with pytest.raises(ConfigError, match="--sql: .*" + re.escape(said)):
            query(done, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.task FROM rollouts a, rollouts b, rollouts c, rollouts d WHERE a.task < b.task ORDER BY 1",
        "SELECT list_sum(range(1000000000))",
        "SELECT string_agg(repeat('x', 100000), '') FROM range(100000)",
    ],
)
def test_a_query_that_would_fill_the_machine_ends_with_its_own_process(
    sql: str, done: RolloutAudit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOTRAINER_CAP_SQL_MB", "64")
    with pytest.raises(ConfigError, match=r"needs more than 64 MiB; .*EVOTRAINER_CAP_SQL_MB"):
        query(done, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(a.task) FROM " + ", ".join(f"rollouts r{i}" for i in range(7)).replace("r0", "a"),
        "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x) SELECT max(n) FROM x",
        "SELECT " + "(" * 30_000,
    ],
)
def test_a_query_that_would_not_end_is_ended(sql: str, done: RolloutAudit, monkeypatch: pytest.MonkeyPatch) -> None:
    assert query(done, "SELECT COUNT(a.task) AS n FROM rollouts a, rollouts b")["n"].to_list() == [3600]
    monkeypatch.setenv("EVOTRAINER_CAP_SQL_SECONDS", "2")
    with pytest.raises(ConfigError, match=r"more than 2 s; .*EVOTRAINER_CAP_SQL_SECONDS"):
        query(done, sql)
