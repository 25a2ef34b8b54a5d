"""`audit --sql` answers questions about an audit and opens nothing else."""

from __future__ import annotations

import re

import polars as pl
import pytest

from evotrainer.errors import ConfigError
from evotrainer.studies.audit import RolloutAudit, audit
from evotrainer.studies.audit.query import query
from evotrainer.studies.audit.sql import RefusedError, check
from tests.audit_files import generate, write_jsonl

TABLES = ("rollouts", "metrics", "findings")

SECRET = "hunter2"
READS = [
    "SELECT * FROM \"read_csv\"('{p}')",
    "SELECT * FROM `read_csv`('{p}')",
    "SELECT * FROM 'read_csv'('{p}')",
    "SELECT * FROM \"READ_CSV\"('{p}')",
    "SELECT * FROM \"read_csv\" ('{p}')",
    "SELECT * FROM \"read_csv\"\n('{p}') AS t",
    "SELECT * FROM read_csv/**/('{p}')",
    "SELECT * FROM read_csv--\n('{p}')",
    "SELECT * FROM/**/read_csv/* ( */('{p}')",
    "SELECT * FROM \"read_csv\"/*'*/('{p}')/*'*/",
    "SELECT * FROM rollouts, \"read_csv\"('{p}')",
    "SELECT * FROM rollouts r, metrics m, \"read_csv\"('{p}') s",
    "SELECT * FROM rollouts JOIN \"read_csv\"('{p}') s ON TRUE",
    "SELECT * FROM rollouts LEFT JOIN \"read_csv\"('{p}') s ON TRUE",
    "SELECT * FROM rollouts CROSS JOIN \"read_csv\"('{p}')",
    "SELECT * FROM \"read_parquet\"('{p}.parquet')",
    "SELECT * FROM \"read_json\"('{p}.json')",
    "SELECT * FROM \"read_ipc\"('{p}.ipc')",
    "SELECT (SELECT secret FROM \"read_csv\"('{p}')) FROM rollouts",
    "SELECT COALESCE((SELECT MAX(secret) FROM \"read_csv\"('{p}')), 'x') FROM rollouts",
    "WITH x AS (SELECT * FROM \"read_csv\"('{p}')) SELECT * FROM x",
    'WITH "read_csv" AS (SELECT 1) SELECT * FROM "read_csv"(\'{p}\')',
    "SELECT * FROM (SELECT * FROM \"read_csv\"('{p}')) q",
    "SELECT * FROM (rollouts CROSS JOIN \"read_csv\"('{p}'))",
    "SELECT task FROM rollouts UNION ALL SELECT secret FROM \"read_csv\"('{p}')",
    "SELECT task FROM rollouts EXCEPT SELECT '' FROM rollouts UNION ALL SELECT secret FROM \"read_csv\"('{p}')",
    "SELECT $$ ' $$ AS a, secret FROM \"read_csv\"('{p}') WHERE '' = ''",
    "SELECT '\\' AS q, secret FROM \"read_csv\"('{p}') WHERE '' = ''",
]
"""All of these read a file where nothing but a query that holds `read_csv(` is refused."""
MORE = [
    "SELECT * FROM read_csv('{p}')",
    "SELECT * FROM scan_csv('{p}')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM '{p}'",
    'SELECT * FROM "{p}"',
    "SELECT * FROM rollouts, '{p}'",
    "SELECT * FROM U&\"read_csv\"('{p}')",
    "SELECT E'\\'' , * FROM \"read_csv\"('{p}')",
    "SELECT * FROM rollouts WHERE task IN (SELECT secret FROM \"read_csv\"('{p}'))",
    "SELECT * FROM table(\"read_csv\"('{p}'))",
    "SELECT * FROM LATERAL \"read_csv\"('{p}')",
    "SELECT * FROM unnest(\"read_csv\"('{p}')) u",
    "SELECT * FROM x.read_csv('{p}')",
    "EXPLAIN SELECT * FROM \"read_csv\"('{p}')",
    "(SELECT * FROM \"read_csv\"('{p}'))",
    "SELECT 1; SELECT * FROM \"read_csv\"('{p}')",
    "DROP TABLE rollouts",
    "CREATE TABLE y AS SELECT * FROM rollouts",
    "TRUNCATE TABLE rollouts",
    "DELETE FROM rollouts",
    "INSERT INTO rollouts VALUES (1)",
    "UPDATE rollouts SET task = 'x'",
    "SET x = 1",
    "SHOW TABLES",
    "DESCRIBE rollouts",
    "COPY rollouts TO '/tmp/out.csv'",
    "SELECT * INTO y FROM rollouts",
    "WITH x AS (SELECT 1) DELETE FROM rollouts",
    "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x) SELECT * FROM x",
    "SELECT * FROM rollouts TABLESAMPLE (1)",
    "SELECT REPEAT('x', 1000000000000) FROM rollouts",
    "SELECT secret_function(task) FROM rollouts",
    "SELECT \x00 FROM rollouts",
    "SELECT " + "(" * 30_000,
]
HONEST = [
    "SELECT task, AVG(reward) AS r FROM rollouts GROUP BY task ORDER BY r DESC LIMIT 5;",
    'select "task", count(*) from "rollouts" where task like \'%a%\' and reward > .5 group by task having count(*) > 1',
    "WITH hard AS (SELECT task FROM rollouts GROUP BY task HAVING AVG(reward) < 0.2) "
    "SELECT r.* FROM rollouts r JOIN hard h ON r.task = h.task",
    "SELECT m.metric, f.claim FROM metrics AS m "
    "LEFT JOIN findings f ON m.subject = f.subject, rollouts WHERE f.severity IN ('warn', 'critical')",
    "SELECT * FROM (SELECT task, ROW_NUMBER() OVER (PARTITION BY task ORDER BY step) AS n FROM rollouts) q WHERE n = 1",
    "SELECT task, 'read_csv(''x'')' AS note FROM rollouts WHERE step BETWEEN 1 AND 2 AND (task IS DISTINCT FROM 'x')",
    "SELECT CASE WHEN reward > 0 THEN 'yes' ELSE 'no' END AS won, CAST(step AS VARCHAR(5)) "
    "FROM rollouts, metrics WHERE 1 = 2",
    "SELECT * EXCLUDE (turns) FROM rollouts UNION ALL SELECT * EXCLUDE (turns) FROM rollouts",
    "SELECT SUBSTRING(task, 1, 2), EXTRACT(YEAR FROM DATE '2026-01-01') FROM rollouts",
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
    frame.write_ipc(f"{p}.ipc")
    return str(p)


def by_deny_list(sql: str) -> str:
    """A query answered where only `read_x(` and what begins with another word than SELECT is refused."""
    if not re.match(r"\s*(?:SELECT|WITH)\b", sql, re.I) or re.search(r"\b(?:read|scan)_\w+\s*\(", sql, re.I):
        return ""
    tables = {n: pl.DataFrame({"task": ["a"]}) for n in TABLES}
    return str(pl.SQLContext(**tables).execute(sql, eager=True).rows())


@pytest.mark.parametrize("sql", READS)
def test_a_file_is_read_past_a_deny_list_and_not_past_the_allow_list(sql: str, planted: str) -> None:
    sql = sql.replace("{p}", planted)
    assert SECRET in by_deny_list(sql)
    with pytest.raises(RefusedError):
        check(sql, TABLES)


@pytest.mark.parametrize("sql", MORE)
def test_what_is_no_select_over_the_tables_is_refused(sql: str) -> None:
    with pytest.raises(RefusedError):
        check(sql, TABLES)


@pytest.fixture(scope="module")
def tables(done: RolloutAudit) -> pl.SQLContext:
    return pl.SQLContext({n: query(done, f"SELECT * FROM {n}") for n in TABLES})


@pytest.mark.parametrize("sql", HONEST)
def test_honest_questions_pass_and_polars_understands_them(sql: str, tables: pl.SQLContext) -> None:
    check(sql, TABLES)
    assert tables.execute(sql, eager=True).width


def test_a_refusal_says_what_there_is(done: RolloutAudit) -> None:
    for sql, said in [
        ("SELECT * FROM '/etc/passwd'", "is no table; tables are rollouts, metrics, findings"),
        ("SELECT * FROM \"read_csv\"('/etc/passwd')", "no function that --sql knows; it knows: abs"),
        ("SELECT nothing FROM rollouts", "nothing"),
    ]:
        with pytest.raises(ConfigError, match="--sql: .*" + re.escape(said)):
            query(done, sql)


def test_a_join_that_would_fill_the_machine_ends_with_its_own_process(
    done: RolloutAudit, monkeypatch: pytest.MonkeyPatch
) -> None:
    cross = "SELECT COUNT(a.task) AS n FROM rollouts a, rollouts b, rollouts c, rollouts d"
    small = query(done, "SELECT COUNT(a.task) AS n FROM rollouts a, rollouts b")
    assert small["n"].to_list() == [3600], "without a cap it does work: 13 million rows would be next"
    monkeypatch.setenv("EVOTRAINER_CAP_SQL_MB", "64")
    with pytest.raises(ConfigError, match=r"needs more than 64 MiB; .*EVOTRAINER_CAP_SQL_MB"):
        query(done, cross + " WHERE a.task < b.task ORDER BY 1")
    monkeypatch.setenv("EVOTRAINER_CAP_SQL_MB", "100000")
    monkeypatch.setenv("EVOTRAINER_CAP_SQL_SECONDS", "1")
    with pytest.raises(ConfigError, match=r"more than 1 s; .*EVOTRAINER_CAP_SQL_SECONDS"):
        query(
            done, "SELECT COUNT(a.task) AS n FROM " + ", ".join(f"rollouts r{i}" for i in range(7)).replace("r0", "a")
        )
