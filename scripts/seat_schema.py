"""What a seat is asked and answers, as JSON Schema: `python scripts/seat_schema.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from evotrainer.records.seat import schemas


def texts() -> dict[str, str]:
    """File name -> content."""
    return {name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in schemas().items()}


if __name__ == "__main__":
    for name, text in texts().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
