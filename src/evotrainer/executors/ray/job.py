"""Messages between driver and node: an attempt at a trial, and its progress."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from evotrainer import __version__
from evotrainer.executors.inputs import Tree, TreeFile
from evotrainer.executors.spec import Heartbeat

State = Literal["preparing", "running", "finished", "killed", "busy", "expired", "refused", "fault"]
ENDED = ("finished", "killed", "busy", "expired", "refused", "fault")


@dataclass(frozen=True, slots=True)
class NodeJob:
    """One attempt at one trial, as the driver hands it to a node."""

    key: str
    """Key of the run on this cluster."""
    run: str
    spec: str
    """The specification as JSON."""
    trial: str
    attempt: int
    run_dir: str = ""
    """The run folder, where nodes and driver share a file system; empty: the artifacts carry the files."""
    artifacts: str = ""
    artifacts_options: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[Tree, ...] = ()
    heartbeat: str = ""
    """The last one seen of an earlier attempt: what it used counts."""
    scratch: str = ""
    """Folder for a trial's files on the node; empty: the system's folder for temporary files."""
    env: dict[str, str] = field(default_factory=dict)
    threads: int = 1
    lease_s: float = 600.0
    workers: int = 1
    """Data-parallel processes."""
    resources: dict[str, float] = field(default_factory=dict)
    """CPU and GPU of each process, where there are several."""
    runtime_env: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    data_key: str = ""
    """The key of gate and cert (64 hex), where the trial evaluates them; in no file and no environment."""

    def pack(self) -> dict[str, Any]:
        """The job as plain values, which any version can read."""
        return asdict(self)

    @classmethod
    def unpack(cls, d: Mapping[str, Any]) -> NodeJob:
        trees = tuple(Tree(**{**t, "items": tuple(TreeFile(**i) for i in t["items"])}) for t in d["inputs"])
        return cls(**{**d, "inputs": trees})


@dataclass(frozen=True, slots=True)
class Report:
    """The progress of an attempt. `number` rises with every change."""

    trial: str
    attempt: int
    number: int = 0
    state: State = "preparing"
    node: str = ""
    heartbeat: str = ""
    result: str = ""
    """JSON of TrialFinished, once finished."""
    error: str = ""
    kind: str = ""
    """Name of the error's class, of a fault or refusal."""
    saved: int = -1
    """Step of the last checkpoint that is safe outside the node's process."""
    sent_bytes: int = 0
    """Bytes uploaded so far."""

    def beat(self) -> Heartbeat | None:
        with contextlib.suppress(ValueError):
            return Heartbeat.model_validate_json(self.heartbeat)
        return None


def versions() -> dict[str, str]:
    """Settings on which driver and nodes must agree."""
    return {"evotrainer": __version__, "python": ".".join(platform.python_version_tuple()[:2])}
