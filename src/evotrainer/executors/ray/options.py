"""`[executor.options]` of trials on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from evotrainer.errors import ConfigError
from evotrainer.records.frozen import Frozen, parsed


class ClusterOptions(Frozen):
    """`[executor.options]` of a cluster (docs/cluster.md)."""

    address: str | None = None
    """`auto`: the cluster this machine belongs to; `host:port`; `ray://host:port`: from outside. None: RAY_ADDRESS,
    or else a cluster of this machine alone, which ends with the driver."""
    cpus: float = Field(1.0, ge=0)
    """CPUs reserved for each trial, or for each process of a data-parallel one; also its threads (at least 1)."""
    gpus: float = Field(0.0, ge=0)
    """GPUs reserved likewise. Not given: 1 for the trl trainer on a cluster that has GPUs, else 0."""
    memory: float | None = Field(None, gt=0)
    """Bytes reserved for each trial; Ray plans with them."""
    max_concurrent: int = Field(0, ge=0)
    """Trials at once; 0: as many as the cluster holds."""
    retries: int = Field(3, ge=0)
    """A trial that loses its node, or is killed there,
    is retried from its last checkpoint this often without a step gained."""
    artifacts: str | None = None
    """fsspec URL that driver and nodes can reach; None: the run folder lies on a file system they share."""
    artifacts_options: dict[str, Any] = {}
    """Options of its file system: endpoint, credentials (better: the environment's)."""
    files: tuple[str, ...] | None = None
    """What travels to the nodes in addition to the files that the task file names;
    None: the whole folder of each Python file it names."""
    scratch: str = ""
    """Folder for trials' files on the nodes, with `artifacts`; empty: the system's."""
    env: dict[str, str] = {}
    """Environment variables of trials."""
    runtime_env: dict[str, Any] = {}
    """Ray's runtime environment of trials: pip, working_dir, py_modules, ..."""
    resources: dict[str, float] = {}
    """Custom resources of Ray that each trial asks for, e.g. {"big" = 1}."""
    workers_per_trial: int = Field(1, ge=1)
    """Data-parallel processes of one training (Ray Train); its evaluations run in the first of them."""
    lease_s: float = Field(600.0, ge=5)
    """A trial that no driver asked about for this long ends itself; a driver that returns sooner finds it at work."""
    autoscaling: bool = False
    """The cluster grows on demand: trials may wait for nodes that do not exist yet."""
    object_store_mb: int | None = Field(None, ge=78)
    """Object store of a cluster that is started here; trials use next to none."""


def parse_cluster_options(options: Mapping[str, Any]) -> ClusterOptions:
    """ConfigError for unknown or malformed ones."""
    o = parsed(ClusterOptions, options, "executor.options")
    if o.workers_per_trial > 1 and o.artifacts:
        raise ConfigError(
            "executor.options: the processes of a data-parallel trial share its folder, "
            "so workers_per_trial above 1 needs a run folder on a file system that the nodes share; "
            "leave artifacts out, or set workers_per_trial to 1"
        )
    return o


def with_gpus(options: ClusterOptions, wanted: bool, there: float) -> ClusterOptions:
    """Options with a GPU for each process where the trainer wants one,
    the cluster has some and the user said nothing."""
    if wanted and there >= 1 and "gpus" not in options.model_fields_set:
        return options.model_copy(update={"gpus": 1.0})
    return options
