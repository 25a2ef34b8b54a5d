"""What a seat, and a training command, is asked and answers, as JSON Schema: `python scripts/seat_schema.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from evotrainer.records.seat import schemas
from evotrainer.trainers.command.request import schema


def texts() -> dict[str, str]:
    """File name -> content."""
    found = {**schemas(), "command-request-v1.schema.json": schema()}
    return {name: json.dumps(body, indent=2, ensure_ascii=False) + "\n" for name, body in found.items()}


if __name__ == "__main__":
    for name, text in texts().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
