"""`evotrainer verl import`: rollouts of a verl training, copied into a rollout store."""

from __future__ import annotations

from evotrainer.cli._common import StoreOut, VerlFolder, Workers
from evotrainer.cli.import_ import import_
from evotrainer.errors import ConfigError


def verl_import(folder: VerlFolder, *, out: StoreOut, workers: Workers = None) -> None:
    """Copy rollouts of training and validation, all reward components included, into a rollout store.

    Example: evotrainer verl import runs/verl --out store/
    """
    from evotrainer.extras.verl.folder import read_manifest

    read_manifest(folder)
    parts = [folder / name for name in ("rollouts", "validation") if (folder / name).is_dir()]
    if not parts:
        raise ConfigError(f"{folder} holds no rollouts yet; verl writes them step by step once it trains")
    import_(parts, out=out, format="verl", workers=workers)
