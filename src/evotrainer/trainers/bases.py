"""What an adapter's base model is and where it lies: noted in the adapter's folder, found again after the policy moved.

`base_policy.json` holds `base`: a path relative to the policy folder where both lie in one run folder, else
`hf:id@commit` for a model of the Hub, else the absolute path of a folder outside; `sha256` of its weights
(`records.weights`); and `gguf`, the policy.base that made it, where it was de-quantised (`trainers.gguf`).
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from evotrainer.errors import ConfigError, TrainerError
from evotrainer.records.hub import hub_name, looks_like_id, parse_pinned, snapshot
from evotrainer.records.regular_file import read_text
from evotrainer.records.weights import weight_files, weights_sha256
from evotrainer.trainers.gguf import gguf_note

ADAPTER = "adapter_config.json"
NOTE = "base_policy.json"

_places: dict[str, str] = {}


def use_places(places: Mapping[str, str]) -> None:
    """Where folders of the driver's machine lie in this process's machine: {"path there": "path here"}."""
    _places.clear()
    _places.update(places)


def is_adapter(folder: Path) -> bool:
    return (folder / ADAPTER).is_file()


def note_base(written: Path, policy: Path, base: Path, run_dir: Path | None) -> None:
    """Note the base of an adapter in `written`, the folder that is to become `policy`; peft's own name of it follows.

    `run_dir`: folder that may move as a whole. peft's README.md goes: it names the base by this machine's path.
    """
    name = _name(policy, base, run_dir)
    body = {"base": name, "sha256": weights_sha256(base)}
    if source := gguf_note(base).get("source"):
        body["gguf"] = source
    (written / NOTE).write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    config = json.loads(read_text(written / ADAPTER))
    hub = parse_pinned(name)
    # peft follows the name in its own file when others load the adapter, so it must say the same as our note
    config["base_model_name_or_path"], config["revision"] = hub or (name, None)
    (written / ADAPTER).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (written / "README.md").unlink(missing_ok=True)


def _name(policy: Path, base: Path, run_dir: Path | None) -> str:
    at = base.resolve()
    if (
        run_dir is not None
        and at.is_relative_to(run_dir.resolve())
        and policy.resolve().is_relative_to(run_dir.resolve())
    ):
        # a relative path only inside a run folder, which moves as a whole; two folders elsewhere need not move together
        return Path(os.path.relpath(at, policy.resolve())).as_posix()
    asked = _asked(base.absolute())
    return hub_name(asked) or asked


def _asked(folder: Path) -> str:
    """A folder's path on the driver's machine."""
    return next((there for there, here in _places.items() if Path(here) == folder), str(folder))


def noted(folder: Path) -> tuple[str, str]:
    """(base, SHA-256 of its weights, empty where unknown) of an adapter folder, also of one that peft alone wrote.

    TrainerError where it names none.
    """
    try:
        if (folder / NOTE).is_file():
            body = json.loads(read_text(folder / NOTE))
            return str(body["base"]), str(body["sha256"] or "")
        body = json.loads(read_text(folder / ADAPTER))
        name, revision = str(body["base_model_name_or_path"] or ""), body.get("revision")
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise TrainerError(
            f"policy {folder}: its adapters name no base model ({e}); restore the policy folder"
        ) from None
    if not name:
        raise TrainerError(f"policy {folder}: {ADAPTER} names no base model; restore the policy folder")
    return f"{name}@{revision}" if revision and looks_like_id(name) else name, ""


def base_of(folder: Path) -> Path:
    """The folder of an adapter's base model, which may be an adapter itself;
    fetched where it is a Hub id and not cached.

    TrainerError where it is gone, or where its weights are not those the adapter was trained on.
    """
    name, sha = noted(folder)
    base = _find(folder, name)
    if not ((base / "config.json").is_file() or is_adapter(base)):
        raise TrainerError(
            f"policy {folder}: its adapters belong to the base model {name}, which is not at {base}; "
            + _remedy(folder, name, base)
        )
    if sha and _sha256(base) != sha:
        raise TrainerError(
            f"policy {folder}: the weights of its base model {base} are not those its adapters were trained on "
            f"(SHA-256 {sha[:16]}...); put the former ones back"
        )
    return base


def _remedy(folder: Path, name: str, base: Path) -> str:
    """How the base of an adapter comes back."""
    source = json.loads(read_text(folder / NOTE)).get("gguf") if (folder / NOTE).is_file() else None
    if source:
        return (
            f"it was made from a GGUF: `EVOTRAINER_BASES={quote(str(base.parent))} evotrainer run TASK.toml "
            f"{quote(f'policy.base={source}')} --dry-run` makes it again"
        )
    whole = "" if Path(name).is_absolute() else " (a run folder moves and is copied as a whole)"
    return "put that folder back or link it there" + whole


def _find(folder: Path, name: str) -> Path:
    if Path(name).is_absolute():
        return Path(_places.get(name, name))
    there = os.path.normpath(os.path.join(_asked(folder.absolute()), name))
    near = Path(_places.get(there) or os.path.normpath(folder.absolute() / name))
    # a folder wins over a Hub id of the same spelling ("org/model" is both)
    if near.is_dir() or not (found := looks_like_id(name)):
        return near
    if (Path(name) / "config.json").is_file():  # peft's own form, relative to the working directory
        return Path(name).absolute()
    for asked, here in _places.items():
        if (known := hub_name(asked)) and (known == name or (not found[1] and known.startswith(f"hf:{found[0]}@"))):
            return Path(here)
    try:
        return snapshot(*found)
    except ConfigError as e:
        why = str(e).removeprefix("policy.base ")
        raise TrainerError(f"policy {folder}: its adapters belong to a base model of the Hub: {why}") from None


def _sha256(folder: Path) -> str | None:
    """Of the weights; read once while the files stay as they are."""
    stats = [(f, f.stat()) for f in weight_files(folder)]
    # name, size and modification time as the cache's key: a base model of gigabytes is hashed once, and again if
    # replaced
    return _read(folder, tuple((f.name, s.st_size, s.st_mtime_ns) for f, s in stats))


@functools.lru_cache(maxsize=16)
def _read(folder: Path, files: tuple[tuple[str, int, int], ...]) -> str | None:
    return weights_sha256(folder)
