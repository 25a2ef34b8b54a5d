"""The seed that a run draws its gate and cert tasks from: committed in the first event, revealed in the last.

Until then it lies in `sealed/draw` of the run folder, where the judge's rollouts lie, too, and like them encrypted. Who
knows it can make the tasks that the run will be judged on.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from pydantic import ValidationError

from evotrainer.errors import IntegrityError
from evotrainer.records.durable import fsync, os_errors, replace_synced
from evotrainer.records.encryption import DataKey, is_encrypted, key_of
from evotrainer.records.frozen import Frozen
from evotrainer.records.regular_file import read_bytes
from evotrainer.records.revealed import decrypted_message
from evotrainer.records.text import cause

PLACE = "sealed/draw"
"""Folder in a run folder; nodes of a cluster get it, agents and harness do not."""
FILE = "seed.json"
ENCRYPTED = "seed.enc"
PURPOSE = "seed"


class Seed(Frozen):
    """What gate and cert are drawn from."""

    seed: str
    salt: str
    given: bool = False
    """It is the task file's number, which anybody may know."""

    @property
    def commitment(self) -> str:
        """SHA-256 (64 hex) of both: tells nothing of the seed, and fits no other one."""
        return hashlib.sha256(f"{self.seed}:{self.salt}".encode()).hexdigest()

    @property
    def name(self) -> str:
        """16 hex digits of the seed alone, by which evaluations name their tasks: equal seeds, equal tasks, whichever
        run draws them."""
        return name_of(self.seed)


def name_of(seed: str) -> str:
    """See `Seed.name`."""
    return hashlib.sha256(f"draw:{seed}".encode()).hexdigest()[:16]


def stored_seed_key(run_dir: Path) -> str:
    """Name of the key that a kept seed is encrypted with; empty where none is kept, or in clear."""
    path = run_dir / PLACE / ENCRYPTED
    return key_of(read_bytes(path)) if path.is_file() else ""


def keep_seed(run_dir: Path, given: int | None = None, key: DataKey | None = None) -> Seed:
    """The run's seed: the kept one, else a new one of 63 random bits, or the number `given`; on the disk before it is
    returned, encrypted where a key is given. A run that is killed between this and its first event goes on with it."""
    place = run_dir / PLACE
    name, other = (ENCRYPTED, FILE) if key else (FILE, ENCRYPTED)
    if (place / name).is_file() and (not key or stored_seed_key(run_dir) == key.id):
        kept = read_seed(run_dir)
        if (kept.given, given) == (given is not None, int(kept.seed) if kept.given else None):
            return kept  # otherwise it is of a start that was killed at once, and whose task file was another one
    # a number that a TOML file holds: given as `evaluation.draw` once it is revealed, it draws the same tasks again
    seed = int.from_bytes(os.urandom(8)) >> 1 if given is None else given
    made = Seed(seed=str(seed), salt=os.urandom(16).hex(), given=given is not None)
    with os_errors(f"cannot write {place / FILE}"):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = made.model_dump_json().encode()
        (place / other).unlink(missing_ok=True)
        replace_synced(place / name, key.encrypt(data, PURPOSE) if key else data)
        (place / name).chmod(0o600)
        fsync(place.parent)
        fsync(run_dir)
    return made


def read_seed(run_dir: Path, name: str = "", commitment: str = "") -> Seed:
    """The kept seed; IntegrityError where it is lost, damaged, or not the one of this name or commitment,
    EncryptedError where it cannot be read yet."""
    path = run_dir / PLACE / ENCRYPTED
    path = path if path.is_file() else run_dir / PLACE / FILE
    try:
        data = read_bytes(path)
        found = Seed.model_validate(
            json.loads(decrypted_message(data, run_dir, PURPOSE) if is_encrypted(data) else data)
        )
    except FileNotFoundError:
        raise IntegrityError(
            f"{path} is lost: gate and cert tasks of this run were drawn from the seed in it and cannot be made "
            "again; restore it from a copy, or start a new run"
        ) from None
    except (OSError, ValueError, ValidationError) as e:
        raise IntegrityError(f"{path} is damaged ({cause(e)}); restore it from a copy, or start a new run") from None
    if (name and found.name != name) or (commitment and found.commitment != commitment):
        raise IntegrityError(
            f"{path} does not hold the seed that the run committed itself to in its first event; restore it from a "
            "copy, or start a new run"
        )
    return found
