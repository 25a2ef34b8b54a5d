"""Traits kept in a file, so that a rollout that was read once is not read again."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from evotrainer.harness.columns.chunk import CodedColumn
from evotrainer.harness.columns.traits import FLOATS, VERSION, Traits


def save(t: Traits) -> bytes:
    """As bytes: an uncompressed .npz, floats at 32 bits (rewards and components at 64)."""
    exact = {"reward", "truth", "step", "tokens"}
    arrays: dict[str, np.ndarray] = {f"key/{k}": v for k, v in t.keys.items()}
    for name, v in t.columns.items():
        kept = v if name in exact else v.astype(np.float32)
        # a column that nobody recorded is one NaN in the file instead of n of them
        if len(v) and np.isnan(v).all():
            kept = np.full(1, np.nan, dtype=np.float32)
        arrays[f"column/{name}"] = kept
    arrays |= {f"component/{k}": v for k, v in t.components.items()}
    arrays |= {f"call/{k}": v for k, v in t.calls.items()}
    arrays |= {"solution": t.solution, "sketch": t.sketch}
    arrays |= {"fault": t.fault.code.astype(np.int16), "subject": t.subject.code.astype(np.int32)}
    meta = json.dumps(
        {"version": VERSION, "n": t.n, "faults": t.fault.names, "subjects": t.subject.names, "tools": t.tools}
    )
    arrays["meta"] = np.frombuffer(meta.encode(), dtype=np.uint8)
    out = io.BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def load(source: Path | io.BytesIO) -> Traits | None:
    """What `save` wrote; None where it is damaged or of another version."""
    try:
        # no pickle: a cache file may be handed in by others, and unpickling runs code
        with np.load(source, allow_pickle=False) as z:
            arrays = {k: z[k] for k in z.files}
        meta = json.loads(arrays["meta"].tobytes())
        if meta["version"] != VERSION:
            return None
        n = int(meta["n"])

        def part(prefix: str) -> dict[str, np.ndarray]:
            return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}

        columns: dict[str, np.ndarray] = {
            k: np.full(n, math.nan, dtype=np.float32) if len(v) != n else v for k, v in part("column/").items()
        }
        return Traits(
            n=n,
            keys=part("key/"),
            columns={name: columns[name] for name in FLOATS},
            components=part("component/"),
            solution=arrays["solution"],
            sketch=arrays["sketch"],
            fault=CodedColumn(arrays["fault"].astype(np.int64), tuple(meta["faults"])),
            subject=CodedColumn(arrays["subject"].astype(np.int64), tuple(meta["subjects"])),
            calls=part("call/"),
            tools=tuple(meta["tools"]),
        )
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
