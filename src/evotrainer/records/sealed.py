"""Gate and cert, sealed until their run closes: which splits these are, what their tasks are drawn from, who can read
them when. All else asks `SealedSplits`; nothing outside of this file encrypts or decrypts.

A message is `EVOK`, 8 bytes that name the key, 12 random bytes, ciphertext of AES-256-GCM with its tag. A run's keys
follow from one master key, which lies in a file of the user's own, outside of every run folder, for a run that was
killed must go on. What is written up to the n-th end of the run is encrypted with the n-th key, and that end reveals
this one only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import tempfile
from collections.abc import Iterable
from contextlib import closing, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ValidationError

from evotrainer.errors import EncryptedError, IntegrityError, MissingDependencyError, StoreError
from evotrainer.records.durable import fsync, os_errors, replace_synced
from evotrainer.records.events import SplitScore, TrialFinished
from evotrainer.records.frozen import Frozen
from evotrainer.records.regular_file import read_bytes, read_text
from evotrainer.records.sqlite_file import open_database, sqlite_errors
from evotrainer.records.storage_folders import storage_folder
from evotrainer.records.text import cause

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"EVOK"
NONCE = 12
HEAD = len(MAGIC) + 8 + NONCE
MESSAGE_BYTES = (1 << 31) - 1 - 16
"""Longest message that AES-GCM of the library takes."""
PER_TASK = ("per_task", "proxy_per_task", "greedy_per_task")
"""What a sealed score loses until it is opened; means stay readable."""
NAMED = 64
"""Characters of an encrypted score that hold the name of its key."""
VARIABLE = "EVOTRAINER_KEYS"
"""Environment variable for task files that leave `run.keys` open: a folder, or off."""


class Key:
    """32 bytes that gate and cert are encrypted with."""

    _held: ClassVar[dict[str, Key]] = {}
    """Keys that this process has, or read from a ledger, by their id; with any other, reading is an EncryptedError."""

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise IntegrityError(f"a key has 32 bytes, not {len(key)}; restore it from a copy")
        self.key = key

    @cached_property
    def sha256(self) -> str:
        """64 hex: commits to the key and tells nothing of it."""
        return hashlib.sha256(self.key).hexdigest()

    @property
    def id(self) -> str:
        """16 hex digits that name it."""
        return self.sha256[:16]

    @cached_property
    def cipher(self) -> AESGCM:
        """MissingDependencyError without the library."""
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise MissingDependencyError(
                "gate and cert are encrypted with the library cryptography; pip install cryptography"
            ) from None
        return AESGCM(self.key)

    def __repr__(self) -> str:  # never the key itself, in no traceback and no log
        return f"Key({self.id})"

    def hold(self) -> Key:
        """From here on this process opens what was encrypted with it."""
        return Key._held.setdefault(self.id, self)

    def release(self) -> None:
        """And no more; what was read with it is forgotten."""
        Key._held.pop(self.id, None)
        _parquet.cache_clear()

    @staticmethod
    def held(id: str) -> Key:
        """The key of this name; EncryptedError where this process does not have it."""
        if id not in Key._held:
            raise EncryptedError(
                f"gate and cert are encrypted until the run closes (key {id}); its last event reveals the key"
            )
        return Key._held[id]

    @staticmethod
    def revealed(text: str) -> Key | None:
        """A key as an event reveals it; None where it is none."""
        try:
            return Key(bytes.fromhex(text))
        except (ValueError, IntegrityError):
            return None

    @staticmethod
    def of_cache(folder: Path) -> Key:
        """The user's key of cached evaluations, made when it is first asked for; `folder`: where keys lie."""
        name = "cache"
        if (found := _read_key(folder, name)) is None:
            _keep_key(folder, name, {"key": os.urandom(32).hex()})
            found = _read_key(folder, name)
        if found is None:
            raise IntegrityError(
                f"{_key_file(folder, name)} is damaged; delete it and the cache (`evotrainer cache clear`)"
            )
        return Key(found)

    def encrypt(self, data: bytes, purpose: str = "rollouts") -> bytes:
        """The message that opens for the same purpose."""
        if len(data) > MESSAGE_BYTES:
            raise IntegrityError(f"{len(data):,} bytes are too many for one encrypted message ({purpose})")
        nonce = os.urandom(NONCE)
        return MAGIC + bytes.fromhex(self.id) + nonce + self.cipher.encrypt(nonce, data, purpose.encode())

    def score(self, s: SplitScore) -> SplitScore:
        """A score as it is stored: of gate and cert without single tasks, which `SplitScore.encrypted` holds."""
        if not SealedSplits.covers(s.split) or s.encrypted:
            return s
        text = json.dumps({name: getattr(s, name) for name in PER_TASK}, separators=(",", ":"), allow_nan=False)
        message = base64.b64encode(self.encrypt(text.encode(), "scores")).decode()
        return s.model_copy(update={**{name: {} for name in PER_TASK}, "encrypted": message})

    def result(self, t: TrialFinished) -> TrialFinished:
        """A result as it is stored."""
        return t.model_copy(update={"scores": tuple(map(self.score, t.scores))})


class Seed(Frozen):
    """What gate and cert are drawn from: committed to in the first event, revealed in the last. Who knows it can make
    the tasks that the run will be judged on."""

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
        return hashlib.sha256(f"draw:{self.seed}".encode()).hexdigest()[:16]


class SealedSplits:
    """Gate and cert of one run folder, and the key that they are encrypted with up to the next end."""

    SPLITS = ("gate", "cert", "guard")
    """Splits that only the judge may read before the run closes."""
    STORES = ("rollouts", "sealed")
    """Folders of a run folder with a store per trial: of the open splits, of the sealed ones."""
    SUFFIX = ".enc"
    """Of files that hold one encrypted message."""
    DRAW = "sealed/draw"
    """Folder of the seed; nodes of a cluster get it, agents and harness do not."""

    def __init__(self, folder: Path, master: bytes = b"", ends: int = 0) -> None:
        """`master`: what the run's keys follow from, empty where nothing is encrypted; `ends`: those there were."""
        self.folder = folder
        self._master = master
        self.key = _nth(master, ends + 1).hold() if master else None

    @classmethod
    def begin(cls, folder: Path, keys: Path | None) -> SealedSplits:
        """Of a new run, with keys in the folder `keys`: those of a start that was killed before its first event where
        there was one. None: nothing is encrypted."""
        if keys is None:
            return cls(folder)
        found = None
        if first := cls(folder)._key_of_seed():
            with suppress(IntegrityError):  # lost with nothing recorded: the seed is drawn anew
                found = _find_master(keys, first)
        return cls(folder, found or _make_master(keys, folder))

    @classmethod
    def resume(cls, folder: Path, keys: Path | None, first: str, ends: int) -> SealedSplits:
        """Of a run that goes on; `first`: id of its first key. IntegrityError where the keys are lost."""
        return cls(folder, _find_master(keys, first), ends)

    @staticmethod
    def keys_folder(wanted: str = "") -> Path | None:
        """Where keys are kept: `wanted`, else $EVOTRAINER_KEYS, else the user's state folder; None: nothing is
        encrypted."""
        return storage_folder(wanted, VARIABLE, "XDG_STATE_HOME", "keys")

    # -- when they open ----------------------------------------------------------------------------------------------

    def reveal(self, end: int) -> tuple[str, str]:
        """At an end: the key up to it, and the SHA-256 of the next one (hex); empty where nothing is encrypted."""
        if not self._master:
            return "", ""
        return _nth(self._master, end).key.hex(), _nth(self._master, end + 1).sha256

    def release(self) -> None:
        """This process reads nothing of them any more but what was revealed."""
        if self.key is not None:
            self.key.release()

    @classmethod
    def covers(cls, split: str) -> bool:
        """Is this a sealed split, or the greedy reading of one?"""
        return split.startswith(cls.SPLITS)

    @classmethod
    def hold_back(cls, path: Path) -> bool:
        """Is this the sealed folder of a run, or a store in it?"""
        return cls.STORES[1] in (path.name, path.resolve().parent.name)

    # -- what tasks are drawn from -----------------------------------------------------------------------------------

    def _key_of_seed(self) -> str:
        """Id of the key that a kept seed is encrypted with; empty where none is kept, or in clear."""
        path = self.folder / self.DRAW / "seed.enc"
        return _key_of(read_bytes(path)) if path.is_file() else ""

    def draw(self, given: int | None = None) -> Seed:
        """The run's seed: the kept one, else a new one of 63 random bits, or the number `given`; on the disk before it
        is returned, encrypted where there is a key. A run that is killed between this and its first event goes on
        with it."""
        place = self.folder / self.DRAW
        name, other = ("seed.enc", "seed.json") if self.key else ("seed.json", "seed.enc")
        if (place / name).is_file() and (not self.key or self._key_of_seed() == self.key.id):
            kept = self.seed()
            if (kept.given, given) == (given is not None, int(kept.seed) if kept.given else None):
                return kept  # otherwise it is of a start that was killed at once, and whose task file was another one
        # a number that a TOML file holds: given as `evaluation.draw` once it is revealed, it draws the same tasks again
        seed = int.from_bytes(os.urandom(8)) >> 1 if given is None else given
        made = Seed(seed=str(seed), salt=os.urandom(16).hex(), given=given is not None)
        with os_errors(f"cannot write {place / name}"):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            data = made.model_dump_json().encode()
            (place / other).unlink(missing_ok=True)
            replace_synced(place / name, self.key.encrypt(data, "seed") if self.key else data)
            (place / name).chmod(0o600)
            fsync(place.parent)
            fsync(self.folder)
        return made

    def seed(self, name: str = "", commitment: str = "") -> Seed:
        """The kept seed; IntegrityError where it is lost, damaged, or not the one of this name or commitment,
        EncryptedError where it cannot be read yet."""
        path = self.folder / self.DRAW / "seed.enc"
        path = path if path.is_file() else path.with_name("seed.json")
        try:
            data = self.plain(read_bytes(path), self.folder, "seed")
            found = Seed.model_validate(json.loads(bytes(data)))
        except FileNotFoundError:
            raise IntegrityError(
                f"{path} is lost: gate and cert tasks of this run were drawn from the seed in it and cannot be made "
                "again; restore it from a copy, or start a new run"
            ) from None
        except (OSError, ValueError, ValidationError) as e:
            raise IntegrityError(
                f"{path} is damaged ({cause(e)}); restore it from a copy, or start a new run"
            ) from None
        if (name and found.name != name) or (commitment and found.commitment != commitment):
            raise IntegrityError(
                f"{path} does not hold the seed that the run committed itself to in its first event; restore it from a "
                "copy, or start a new run"
            )
        return found

    def give_tasks(self, environment: Any, name: str) -> None:
        """An environment with draws has the run's own gate and cert from here on; `name`: of the seed."""
        environment.redraw(self.seed(name).seed)

    # -- reading: with the keys that this process holds, or that an end revealed ---------------------------------------

    @staticmethod
    def plain(data: bytes | memoryview, run_dir: Path | None = None, purpose: str = "rollouts") -> bytes | memoryview:
        """What an encrypted message says; other data as it is. EncryptedError before the end of the run in
        `run_dir`, IntegrityError where it was changed."""
        if bytes(data[: len(MAGIC)]) != MAGIC:
            return data
        message = bytes(data)
        if run_dir is not None and _key_of(message) not in Key._held:
            _learn(run_dir)
        return _decrypt(message, purpose)

    @classmethod
    def parquet(cls, path: Path) -> Path | bytes:
        """A part of a store as Parquet: its path, or the content of an encrypted one."""
        if path.suffix != cls.SUFFIX:
            return path
        stat = path.stat()
        return _parquet(path, stat.st_size, stat.st_mtime_ns)

    @staticmethod
    def score(s: SplitScore) -> SplitScore:
        """A score with its single tasks, where this process has the key; IntegrityError where they were changed."""
        if not s.encrypted or _key_of(base64.b64decode(s.encrypted[:NAMED])) not in Key._held:
            return s
        told = json.loads(_decrypt(base64.b64decode(s.encrypted), "scores"))
        return s.model_copy(update={**told, "encrypted": ""})

    @classmethod
    def result(cls, t: TrialFinished) -> TrialFinished:
        """A result with the scores that this process can read."""
        return t.model_copy(update={"scores": tuple(map(cls.score, t.scores))}) if cls.unread(t.scores) else t

    @staticmethod
    def readable(s: SplitScore, trial: str) -> SplitScore:
        """The score; EncryptedError where its single tasks cannot be read here."""
        if s.encrypted:
            raise EncryptedError(f"trial {trial}: {s.split} scores of single tasks are encrypted until the run closes")
        return s

    @staticmethod
    def unread(scores: Iterable[SplitScore]) -> bool:
        """Does one have single tasks that this process cannot read?"""
        return any(s.encrypted for s in scores)


def _key_of(message: bytes) -> str:
    """Id of a message's key; IntegrityError where it is no message."""
    if not message.startswith(MAGIC) or len(message) < HEAD + 16:
        raise IntegrityError("no encrypted message, or a cut one; restore a copy")
    return message[len(MAGIC) : len(MAGIC) + 8].hex()


def _decrypt(message: bytes, purpose: str) -> bytes:
    """What was encrypted for this purpose; EncryptedError without the key, IntegrityError where it was changed."""
    key = Key.held(_key_of(message))
    from cryptography.exceptions import InvalidTag

    try:
        return key.cipher.decrypt(message[HEAD - NONCE : HEAD], message[HEAD:], purpose.encode())
    except InvalidTag:
        raise IntegrityError(f"encrypted {purpose} were changed after they were written; restore a copy") from None


def _learn(run_dir: Path) -> None:
    """Take in the keys that a run's ends revealed; a folder without a readable ledger reveals none. Who forges one
    opens nothing with it: a message names its key by hash."""
    path = run_dir / "ledger.db"
    if not path.is_file():
        return
    with suppress(StoreError, ValueError), closing(open_database(path, readonly=True, create=False)) as db:
        with sqlite_errors(path):
            rows = db.execute("SELECT body FROM event WHERE kind = 'closed'").fetchall()
        for (body,) in rows:
            if key := Key.revealed(json.loads(body).get("key", "")):
                key.hold()


@lru_cache(maxsize=2)
def _parquet(path: Path, size: int, mtime_ns: int) -> bytes:
    try:
        return bytes(SealedSplits.plain(read_bytes(path), path.absolute().parents[2]))
    except EncryptedError as e:
        raise EncryptedError(f"{path}: {e}") from None


# -- key files -------------------------------------------------------------------------------------------------------


def _make_master(folder: Path, run: Path) -> bytes:
    """A new master key, on the disk before it is returned. `run`: named in the file, for whoever cleans up."""
    master = os.urandom(32)
    _keep_key(folder, _nth(master, 1).id, {"run": str(run.absolute()), "key": master.hex()})
    return master


def _find_master(folder: Path | None, first: str) -> bytes:
    """The master key whose first key has this id; IntegrityError where it is not here."""
    found = _read_key(folder, first) if folder else None
    if not found or _nth(found, 1).id != first:
        raise IntegrityError(
            f"the key of this run is not in {_key_file(folder, first) if folder else 'any folder (run.keys is off)'}: "
            f"what it holds of gate and cert cannot be read; copy {first}.key from where the run began, or set "
            f"{VARIABLE} to its folder"
        )
    return found


def _nth(master: bytes, end: int) -> Key:
    """What holds up to the end of this number (from 1); no other follows from it."""
    return Key(hmac.digest(master, f"evotrainer end {end}".encode(), hashlib.sha256))


def _key_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.key"


def _read_key(folder: Path, name: str) -> bytes | None:
    """The key in a file; None where there is none that can be used."""
    path = _key_file(folder, name)
    try:
        return bytes.fromhex(json.loads(read_text(path))["key"])
    except FileNotFoundError:
        return None
    except OSError as e:
        raise IntegrityError(f"cannot read the key {path}: {e.strerror}; give yourself permission") from None
    except (ValueError, LookupError, TypeError):
        return None


def _keep_key(folder: Path, name: str, values: dict[str, str]) -> None:
    """A key file for its owner alone; one that is there already stays."""
    with os_errors(f"cannot keep the run's key in {folder} (run.keys)"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd, temporary = tempfile.mkstemp(dir=folder, prefix=".")  # mode 0600
        with os.fdopen(fd, "w", encoding="utf-8") as f:
            f.write(json.dumps(values) + "\n")
            f.flush()
            os.fsync(f.fileno())
        try:
            os.link(temporary, _key_file(folder, name))
        except FileExistsError:
            pass  # another run was faster
        finally:
            os.unlink(temporary)
        fsync(folder)
