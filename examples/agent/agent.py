"""Who sits in the seat: reads a request on standard input, writes a proposal on standard output.

Put a language model here, or a coding agent (`command = ["claude", "-p", ...]`). This one needs none: it tries the
learning rates around the champion's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def proposal(request: dict[str, Any]) -> dict[str, Any]:
    """At most as many trainings as there are places; nothing that was tried before."""
    lr = request["factors"]["lr"]
    tried = [lr["now"], *lr["tried"]]
    wanted = [round(lr["now"] * f, 8) for f in (3, 0.3, 2, 0.5)]
    new = [v for v in wanted if all(abs(v - t) > 1e-9 for t in tried)][: max(1, request["places"])]
    if not new:
        return {"stop": "every learning rate nearby was tried"}
    return {
        "trials": [
            {"changes": {"lr": v}, "why": f"the step may be {'short' if v > lr['now'] else 'long'}"} for v in new
        ]
    }


if __name__ == "__main__":
    print(json.dumps(proposal(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
