"""`python -m evotrainer.trainers.command`: the JSON Schema of what a command is told."""

from __future__ import annotations

import json

from evotrainer.trainers.command.request import schema

if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))
