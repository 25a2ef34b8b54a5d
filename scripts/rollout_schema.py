"""The rollout contract as JSON Schema and as a table of Arrow columns: `python scripts/rollout_schema.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from evotrainer.records.rollout import SCHEMA_VERSION, Rollout

JSON_FILE = f"rollout-v{SCHEMA_VERSION}.schema.json"
ARROW_FILE = f"rollout-v{SCHEMA_VERSION}.arrow.md"
REQUIRED = ["task", "turns", "reward"]
"""What a rollout cannot do without; readers give an id where there is none."""


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one rollout as a JSON object, one per line in plain JSONL."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(Rollout).json_schema()
    schema["required"] = REQUIRED
    for part in (schema, *schema.get("$defs", {}).values()):
        part["additionalProperties"] = True  # unknown fields are kept in `detail`, never refused
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"EvoTrainer rollout, version {SCHEMA_VERSION}",
        **{k: v for k, v in schema.items() if k != "title"},
    }


def arrow_table() -> str:
    """Markdown: name and type of every column of the Parquet parts and of `--sql`'s table `rollouts`."""
    from evotrainer.records.arrow_schema import VERSION_KEY, arrow_schema

    schema = arrow_schema()
    lines = [
        f"# Arrow schema of rollouts, version {SCHEMA_VERSION}",
        "",
        f"Schema metadata: `{VERSION_KEY.decode()}` = `{SCHEMA_VERSION}`. `knobs` and `detail` are JSON text.",
        "",
        "| column | type |",
        "|---|---|",
    ]
    return "\n".join([*lines, *(f"| `{f.name}` | `{f.type}` |" for f in schema)]) + "\n"


def write(folder: Path) -> None:
    """Write both files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JSON_FILE).write_text(json.dumps(json_schema(), indent=1) + "\n", encoding="utf-8")
    (folder / ARROW_FILE).write_text(arrow_table(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
