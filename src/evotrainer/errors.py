"""One error type per boundary. Every message names the cause and the remedy, in one line."""

from __future__ import annotations

from pathlib import Path


def install(extra: str) -> str:
    """The command that installs an optional part: EvoTrainer is on no index, a clone's parts come from the clone."""
    root = Path(__file__).resolve().parents[2]
    clone = (root / "pyproject.toml").is_file()
    return f"pip install -e '{root}[{extra}]'" if clone else f"pip install 'evotrainer[{extra}]'"


class EvoTrainerError(Exception):
    """Base of all errors a user can act upon: `cause; remedy`. The CLI prints it and exits with `exit_code`."""

    exit_code = 1


class ConfigError(EvoTrainerError):
    """The task file, an override or a recipe cannot be used."""

    exit_code = 2


class SingleFactorError(ConfigError):
    """A branch changes no factor or more than one factor against its parent; the message holds the diff."""


class BudgetError(EvoTrainerError):
    """A reservation does not fit what is left of the budget."""

    exit_code = 3


class StoreError(EvoTrainerError):
    """Ledger or rollout store cannot be read or written (corrupt, disk full, held by another writer)."""

    exit_code = 4


class IntegrityError(StoreError):
    """The ledger's hash chain or a file's checksum does not hold."""


class EncryptedError(StoreError):
    """It is encrypted until the run closes, and this process does not have the key."""


class SandboxError(EvoTrainerError):
    """No sandbox of the required tier, or the sandbox itself broke. Never the fault of the program it ran."""

    exit_code = 5


class TimeOverError(SandboxError):
    """Code was not run: what asked for it had an end to its time."""


class TrainerError(EvoTrainerError):
    """The trainer could not start or go on."""

    exit_code = 6


class MissingDependencyError(TrainerError):
    """An optional dependency (torch, ...) is not installed."""


class FaultsError(EvoTrainerError):
    """Most attempts were lost to infrastructure faults: the rest proves nothing, so nothing is recorded."""

    exit_code = 10


class TaskSetError(EvoTrainerError):
    """A task set or environment is malformed."""

    exit_code = 7


class AgentError(EvoTrainerError):
    """The agent gave no usable answer."""

    exit_code = 8


class AbortedError(EvoTrainerError):
    """A human gate answered ABORT, or the run was interrupted; `evotrainer resume` continues it."""

    exit_code = 9


class SeatEmptyError(AgentError):
    """A run went through, and whoever should have sat in its seat gave no answer that was taken."""

    exit_code = 11
