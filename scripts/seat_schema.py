"""What a seat, and a training command, is asked and answers, as JSON Schema: `python scripts/seat_schema.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from evotrainer.records.seat import SeatBriefing, SeatProposal
from evotrainer.trainers.command.request import CommandRequest, TaskLine


def of_a_command() -> dict[str, Any]:
    """JSON Schema of `request.json` and of a line of the tasks' file."""
    request = CommandRequest.model_json_schema()
    line = TaskLine.model_json_schema()
    request["$defs"] = {**request.get("$defs", {}), **line.pop("$defs", {}), "TaskLine": line}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **request}


def texts() -> dict[str, str]:
    """File name -> content."""
    found = {
        "seat-briefing-v1": SeatBriefing.model_json_schema(by_alias=True),
        "seat-proposal-v1": SeatProposal.model_json_schema(by_alias=True),
        "command-request-v1": of_a_command(),
    }
    return {
        f"{name}.schema.json": json.dumps(body, indent=2, ensure_ascii=False) + "\n" for name, body in found.items()
    }


if __name__ == "__main__":
    for name, text in texts().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
