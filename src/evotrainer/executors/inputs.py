"""Which files of the driver's machine a trial needs, as its specification names them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.executors.path_map import SCHEME
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.durable import sha256_file
from evotrainer.records.sealed import SealedSplits
from evotrainer.trainers.bases import base_of, is_adapter, noted

MAX_BYTES, MAX_FILES = 64 << 20, 2_000
"""A user module's folder goes to the nodes whole up to this size."""


@dataclass(frozen=True, slots=True)
class TreeFile:
    """One file: its path relative to the root of its tree, SHA-256, bytes."""

    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Tree:
    """A file or folder that a trial needs. `place`: where in the run folder it belongs; empty: it may lie anywhere."""

    root: str
    items: tuple[TreeFile, ...]
    place: str = ""
    single: bool = False

    @property
    def key(self) -> str:
        """Name of the tree in a node's cache: 16 hex digits of its content and its own name."""
        import hashlib

        text = "\n".join(f"{i.path} {i.sha256}" for i in self.items) + Path(self.root).name
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(slots=True)
class Inputs:
    """Collects what specifications need; each file is read once while it stays as it is.

    `extra`: further files and folders for the nodes. Where it is given, a user module travels alone with them;
    otherwise with its whole folder.
    """

    run_dir: Path
    extra: Sequence[str] | None = None
    known: dict[tuple[str, int, int], str] = field(default_factory=dict)

    def of(self, spec: TrialSpec) -> tuple[list[Tree], dict[TreeFile, Path]]:
        """Trees that the specification names, and where their files lie here.
        ConfigError for a module's folder too large."""
        trees: list[Tree] = []
        files: dict[TreeFile, Path] = {}

        def add(root: Path, place: str = "", paths: list[Path] | None = None) -> None:
            if any(t.root == str(root) for t in trees):
                return
            single = root.is_file()
            if single:
                found = [root]
            elif paths is not None:
                found = paths
            else:
                found = [p for p in root.rglob("*") if p.is_file()]
            at = root.parent if single else root
            items = {self._item(p, at): p for p in sorted(found)}
            trees.append(Tree(str(root), tuple(items), place, single))
            files.update(items)

        if spec.policy_dir:
            path = Path(spec.policy_dir)
            for policy, place in self._bases(path if path.is_absolute() else self.run_dir / path, path):
                add(policy, place)
        if any(p.draw for p in spec.evals):
            add(self.run_dir / SealedSplits.DRAW, SealedSplits.DRAW)
        for path in {*named_files(spec.environment), *named_files(spec.trainer_options)}:
            if path.suffix == ".py" and self.extra is None:
                add(path.parent, paths=_module_folder(path))
            else:
                add(path)
        for text in self.extra or ():
            path = Path(text).expanduser()
            if not path.is_absolute() or not path.exists():
                raise ConfigError(f"executor.options.files: no {text}; give absolute paths of files or folders")
            add(path)
        return trees, files

    def _bases(self, policy: Path, named: Path) -> Iterator[tuple[Path, str]]:
        """A policy and what its adapters lie upon, each with its place in the run folder;
        TrainerError where one is gone."""
        place, run = "" if named.is_absolute() else named.as_posix(), Path(os.path.normpath(self.run_dir.absolute()))
        yield policy, place
        while is_adapter(policy):
            name, base = noted(policy)[0], base_of(policy)
            inside = place and not Path(name).is_absolute() and base.is_relative_to(run)
            policy, place = base, base.relative_to(run).as_posix() if inside else ""
            yield policy, place

    def _item(self, p: Path, root: Path) -> TreeFile:
        s = p.stat()
        key = (str(p), s.st_size, s.st_mtime_ns)
        if key not in self.known:
            self.known[key] = sha256_file(p)
        return TreeFile(p.relative_to(root).as_posix(), self.known[key], s.st_size)


def named_files(value: Any) -> Iterator[Path]:
    """Absolute paths in a section's values that exist here: files, folders,
    modules behind `python:` and the like or before `:name`."""
    if isinstance(value, Mapping):
        for v in value.values():
            yield from named_files(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from named_files(v)
    elif isinstance(value, str):
        name = SCHEME.sub("", value)
        path = Path(name.split(".py:")[0] + ".py" if ".py:" in name else name)
        if path.is_absolute() and len(path.parts) > 2 and path.exists():
            yield path


def _files(root: Path) -> Iterator[Path]:
    """Files below a folder without hidden ones, caches, virtual environments and run folders."""
    for at, folders, names in os.walk(root):
        here = Path(at)
        folders[:] = sorted(
            f
            for f in folders
            if not f.startswith(".")
            and f != "__pycache__"
            and not (here / f / "pyvenv.cfg").exists()
            and not (here / f / "ledger.db").exists()
        )
        yield from (here / n for n in names if not n.startswith(".") and (here / n).is_file())


def _module_folder(module: Path) -> list[Path]:
    found: list[Path] = []
    size = 0
    for p in _files(module.parent):
        found.append(p)
        size += p.stat().st_size
        if len(found) > MAX_FILES or size > MAX_BYTES:
            raise ConfigError(
                f"{module.parent}, the folder of {module.name}, is too large to send to the nodes (over {MAX_FILES} "
                f"files or {MAX_BYTES >> 20} MB); put the module into a folder of its own, or list what it needs in "
                "executor.options.files ([] for nothing), or leave executor.options.artifacts out on a shared "
                "file system"
            )
    return found
