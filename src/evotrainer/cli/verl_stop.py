"""`evotrainer verl stop`: a running verl training, ended."""

from __future__ import annotations

from evotrainer.cli._common import VerlFolder
from evotrainer.records.output import print


def verl_stop(folder: VerlFolder) -> None:
    """End the running training; a launch resumes it.

    Example: evotrainer verl stop runs/verl
    """
    from evotrainer.extras.verl.launch import stop

    a = stop(folder)
    print(f"attempt {a.number} (process {a.pid}) was ended; launch again to resume from the last checkpoint")
