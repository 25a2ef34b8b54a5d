"""The process of one `--sql` query: `python -m evotrainer.studies.audit.answer <MiB> <parent>` takes the job
on stdin.

DuckDB opens no file, loads no extension and takes no setting once the tables are there. Its own memory limit holds for
tables and not for every function (`list_sum(range(1000000000))`), so the process has one as well.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

from evotrainer.executors.process import die_with_parent
from evotrainer.records.arrow_schema import arrow_schema
from evotrainer.records.output import print

MIB = 2**20
THREADS = 4


def main() -> int:
    """Write the answer; prints {"trouble": why there is none, or ""}."""
    import duckdb

    die_with_parent(int(sys.argv[2]))
    job, most = json.load(sys.stdin), int(sys.argv[1])
    db = opened(job, most)
    _limit(most * MIB)
    trouble = ""
    try:
        _answer(db, job["sql"], job["answer"])
    except (MemoryError, duckdb.OutOfMemoryException):
        raise MemoryError from None
    except Exception as e:  # DuckDB has many error types of its own
        trouble = (str(e).strip().splitlines() or [type(e).__name__])[0]
    print(json.dumps({"trouble": trouble}))
    return 0


def _answer(db: Any, sql: str, to: str) -> None:
    """Write the rows of one SELECT as an Arrow file."""
    import duckdb
    import pyarrow as pa

    if [s.type for s in db.extract_statements(sql)] != [duckdb.StatementType.SELECT]:
        raise ValueError("give one SELECT (WITH may stand before it)")
    table = db.execute(sql).to_arrow_table()
    for i, column in enumerate(table.schema):  # what SUM of whole numbers gives, and literals such as 1.5
        if pa.types.is_decimal(column.type):
            plain = pa.int64() if column.type.scale == 0 else pa.float64()
            table = table.set_column(i, column.name, table.column(i).cast(plain))
    with pa.OSFile(to, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _limit(more: int) -> None:
    """Let this process take up to `more` further bytes of memory; beyond that it ends."""
    with open("/proc/self/statm", encoding="ascii") as f:
        now = int(f.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (now + more, now + more))


def opened(job: dict[str, Any], most: int) -> Any:
    """A database in memory with the tables of a job, which reaches nothing else. `most`: MiB that a query may take."""
    import duckdb
    import pyarrow.dataset as ds
    import pyarrow.feather as feather

    db = duckdb.connect(config={"enable_external_access": "false", "threads": str(THREADS)})
    db.execute(f"SET python_enable_replacements=false; SET memory_limit='{most}MiB'")
    sides = []
    for i, s in enumerate(job["rollouts"] or [{"parts": [], "source": "", "format": ""}]):
        db.register(f"rollouts_{i}", ds.dataset(s["parts"]) if s["parts"] else arrow_schema().empty_table())
        source, format = (s[k].replace("'", "''") for k in ("source", "format"))
        sides.append(f"SELECT *, '{source}' AS source, '{format}' AS format FROM rollouts_{i}")
    db.execute(f"CREATE VIEW rollouts AS SELECT DISTINCT ON (id) * FROM ({' UNION ALL BY NAME '.join(sides)})")
    for name, path in job["tables"].items():
        db.register(name, feather.read_table(path))
    db.execute("SET lock_configuration=true")
    return db


if __name__ == "__main__":
    raise SystemExit(main())
