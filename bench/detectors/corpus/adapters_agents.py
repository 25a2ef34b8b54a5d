"""Agent trajectories, as plain JSONL: no importer reads these files. See adapters_code.py for the form."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bench.detectors.corpus.adapters_code import Files, Record


def intercode(files: Files) -> Iterator[Record]:
    """Commands for a shell, an SQL server, a Python interpreter or a CTF machine, with what came back and a reward."""
    for path, content in files:
        for key, r in json.loads(content).items():
            if not isinstance(r, dict) or "turn_history" not in r:  # settings, and runs of another form
                continue
            turns, history = [{"role": "user", "content": str(r.get("query", ""))}], r["turn_history"]
            tool = path.split("/")[2]
            for i, action in enumerate(history["actions"]):
                known = history.get("valid_action") or []
                call = {"name": tool, "arguments": str(action), "ok": bool(known[i]) if i < len(known) else None}
                said = (history.get("thoughts") or [])[i : i + 1]
                turns.append({"role": "assistant", "content": "".join(map(str, said)), "tool_calls": [call]})
                if i < len(history["observations"]):
                    turns.append({"role": "tool", "content": str(history["observations"][i])})
            best = (r.get("summary") or {}).get("max_reward")
            yield {
                "task": f"{tool}/{path.rsplit('_fs_', 1)[1][0] if '_fs_' in path else ''}/{r.get('task_id', key)}",
                "turns": turns,
                "policy": path.rsplit("/", 1)[-1].removesuffix(".json"),
                "reward": best,
                "correct": best == 1 if best is not None else None,
                "detail": {"key": f"{path}#{key}"},
            }
