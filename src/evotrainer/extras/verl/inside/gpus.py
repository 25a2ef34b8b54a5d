"""GPUs that verl could use: of this machine, or of the Ray cluster at the address given. Run by verl's Python."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any


def local() -> dict[str, Any]:
    """GPUs that PyTorch sees here."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {"gpus": count, "names": [torch.cuda.get_device_name(i) for i in range(count)]}


def cluster(address: str) -> dict[str, Any]:
    """GPUs by alive node of a Ray cluster."""
    import ray

    ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    nodes = [n for n in ray.nodes() if n["Alive"]]
    each = [int(n["Resources"].get("GPU", 0)) for n in nodes]
    return {"gpus": sum(each), "nodes": each}


if __name__ == "__main__":
    try:
        print(json.dumps(cluster(sys.argv[1]) if len(sys.argv) > 1 else local()))
    except Exception as e:
        print(json.dumps({"error": f"{type(e).__name__}: {e}"}))
