"""Where a run's key lies until its end: a file of the user's own, outside of every run folder.

A run that was killed must go on, so the key outlives its process. One master key a run; what is encrypted up to the
n-th end of the run is encrypted with the n-th key that follows from it, and the end reveals that one only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from evotrainer.errors import IntegrityError
from evotrainer.records.durable import fsync, os_errors
from evotrainer.records.encryption import DataKey
from evotrainer.records.regular_file import read_text
from evotrainer.records.storage_folders import storage_folder

VARIABLE = "EVOTRAINER_KEYS"
"""Environment variable for task files that leave `run.keys` open: a folder, or off."""
SUFFIX = ".key"
CACHE = "cache"
"""Name of the key of cached evaluations, which belong to no run."""


@dataclass(frozen=True)
class RunKeys:
    """Keys that follow from one master key."""

    master: bytes = field(repr=False)

    def nth(self, number: int) -> DataKey:
        """What holds up to the end of this number (from 1); no other follows from it."""
        return DataKey(hmac.digest(self.master, f"evotrainer end {number}".encode(), hashlib.sha256))


def keys_folder(wanted: str = "") -> Path | None:
    """Where keys are kept: `wanted`, else $EVOTRAINER_KEYS, else the user's state folder; None: nothing is
    encrypted."""
    return storage_folder(wanted, VARIABLE, "XDG_STATE_HOME", "keys")


def make_keys(folder: Path, run: Path) -> RunKeys:
    """A new master key, on the disk before it is returned. `run`: named in the file, for whoever cleans up."""
    keys = RunKeys(os.urandom(32))
    _put(folder, keys.nth(1).id, {"run": str(run.absolute()), "key": keys.master.hex()})
    return keys


def find_keys(folder: Path | None, first: str) -> RunKeys:
    """The keys whose first one has this name; IntegrityError where they are not here."""
    path = None if folder is None else folder / f"{first}{SUFFIX}"
    found = path and _get(path)
    if not found or RunKeys(found).nth(1).id != first:
        raise IntegrityError(
            f"the key of this run is not in {path or 'any folder (run.keys is off)'}: what it holds of gate and cert "
            f"cannot be read; copy {first}{SUFFIX} from where the run began, or set {VARIABLE} to its folder"
        )
    return RunKeys(found)


def cache_key(folder: Path) -> DataKey:
    """The user's key of cached evaluations, made when it is first asked for."""
    path = folder / f"{CACHE}{SUFFIX}"
    if (found := _get(path)) is None:
        _put(folder, CACHE, {"key": os.urandom(32).hex()})
        found = _get(path)
    if found is None:
        raise IntegrityError(f"{path} is damaged; delete it and the cache (`evotrainer cache clear`)")
    return DataKey(found)


def _get(path: Path) -> bytes | None:
    """The key in a file; None where there is none that can be used."""
    try:
        return bytes.fromhex(json.loads(read_text(path))["key"])
    except FileNotFoundError:
        return None
    except OSError as e:
        raise IntegrityError(f"cannot read the key {path}: {e.strerror}; give yourself permission") from None
    except (ValueError, LookupError, TypeError):
        return None


def _put(folder: Path, name: str, values: dict[str, str]) -> None:
    """A key file for its owner alone; one that is there already stays."""
    with os_errors(f"cannot keep the run's key in {folder} (run.keys)"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd, temporary = tempfile.mkstemp(dir=folder, prefix=".")  # mode 0600
        with os.fdopen(fd, "w", encoding="utf-8") as f:
            f.write(json.dumps(values) + "\n")
            f.flush()
            os.fsync(f.fileno())
        try:
            os.link(temporary, folder / f"{name}{SUFFIX}")
        except FileExistsError:
            pass  # another run was faster
        finally:
            os.unlink(temporary)
        fsync(folder)
