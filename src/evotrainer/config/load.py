"""Reading a task file: overrides, validation, lint."""

from __future__ import annotations

import codecs
import difflib
import json
import os
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evotrainer.config.overrides import Overrides, as_texts
from evotrainer.config.task import TaskFile
from evotrainer.errors import ConfigError, StoreError
from evotrainer.factors.change_rules import lint_errors
from evotrainer.records.frozen import explain
from evotrainer.records.regular_file import read_bytes
from evotrainer.records.text import counted, quoted


def _as_text(data: bytes, path: Path) -> str:
    """A task file's text, without a byte order mark; ConfigError where it is not UTF-8, with the place."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(f"{path} is UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as e:
        n = data.count(b"\n", 0, e.start) + 1
        line = data.split(b"\n")[n - 1].decode("latin-1").strip()
        raise ConfigError(f"{path}, line {n}: not UTF-8 ({quoted(line)} in Latin-1); save it as UTF-8") from None


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def apply_overrides(values: dict[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Apply `a.b.c=value` overrides; values are TOML, or else plain strings. Relative paths are the caller's."""
    out: dict[str, Any] = json.loads(json.dumps(values))
    for item in as_texts(overrides):
        key, eq, text = item.partition("=")
        path = [p for p in key.strip().split(".") if p]
        if not eq or not path:
            raise ConfigError(f"override {item!r} is not of the form section.name=value, e.g. recipe.lr=1e-4")
        node = out
        for p in path[:-1]:
            node = node.setdefault(p, {})
            if not isinstance(node, dict):
                raise ConfigError(f"override {item!r}: {p!r} is a value, not a section")
        node[path[-1]] = _anchored(tuple(path), _parse_value(text.strip()), Path.cwd())
    return out


def load_task(path: Path | str, overrides: Overrides = ()) -> TaskFile:
    """Read, override, validate and lint a task file; ConfigError names cause and remedy.

    Relative paths in `environment`, `policy` and `harness.reader` are taken from the task file's folder,
    those of overrides from the caller's.
    """
    p = as_path(path, "task")
    if p.is_dir():
        raise ConfigError(_folder(p))
    try:
        raw = _without_dates(tomllib.loads(_as_text(read_bytes(p), p)))
    except FileNotFoundError:
        raise ConfigError(
            f"no task file {p}; `evotrainer init DIR` makes one, the shipped one is tasks/code.toml"
        ) from None
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"{p} is not valid TOML: {e}") from None
    except OSError as e:
        raise ConfigError(f"cannot read {p}: {e.strerror}") from None
    return resolve(apply_overrides(_anchored((), raw, p.resolve().parent), overrides), source=str(p))


def _without_dates(v: Any) -> Any:
    """TOML's own dates as text: everything else of a task file is JSON."""
    if isinstance(v, dict):
        return {k: _without_dates(x) for k, x in v.items()}
    return v.isoformat() if isinstance(v, date) else v


def _folder(p: Path) -> str:
    """What to give in place of a folder that was given as a task file."""
    if (p / "ledger.db").is_file():
        return f"{p} is a run folder; `evotrainer resume {p}` goes on with it, `evotrainer run {p / 'task.toml'}` anew"
    if files := first_paths(p.glob("*.toml")):
        return f"{p} is a folder; give a task file in it: {files}"
    return f"{p} is a folder without a task file (*.toml); `evotrainer init DIR` makes one"


def as_path(value: Path | str, what: str) -> Path:
    """ConfigError where a program gives something else than a path."""
    if not isinstance(value, str | os.PathLike):
        raise ConfigError(f"{what} is {value!r}, which is no path; give a text or a Path")
    return Path(value)


def no_run(p: Path) -> str:
    """What to give in place of a path that was given as a run folder and is none."""
    if p.is_file():
        if (p.parent / "ledger.db").is_file():
            return f"{p} is a file of a run; give its folder, {p.parent}"
        if p.suffix == ".toml":
            return f"{p} is a task file and no run folder; `evotrainer run {p}` makes one"
        return f"{p} is a file and no run folder; give the folder that `evotrainer run` wrote"
    if runs := first_paths(x.parent for x in p.glob("*/ledger.db")):
        return f"{p} is not a run folder, it holds runs; give one of them: {runs}"
    if files := first_paths(p.glob("*.toml")):
        return f"{p} is not a run folder, it holds a task file; `evotrainer run` makes a run of it: {files}"
    siblings = {x.parent.name: x.parent for x in p.parent.glob("*/ledger.db")}
    if near := difflib.get_close_matches(p.name, siblings, 1):
        return f"{p} is not a run folder (no ledger.db); did you mean {siblings[near[0]]}?"
    return f"{p} is not a run folder (no ledger.db); `evotrainer run TASK --out {p}` makes one"


def first_paths(found: Iterable[Path], most: int = 5) -> str:
    """The first of some paths, by name, and how many more there are."""
    paths = sorted(found)
    return ", ".join(map(str, paths[:most])) + (f" and {len(paths) - most} more" if len(paths) > most else "")


def load_run_task(folder: Path) -> TaskFile:
    """The task file of a run folder; StoreError where the folder has lost it."""
    path = folder / "task.toml"
    if not path.is_file():
        raise StoreError(f"{folder} has lost task.toml, which the run began with; restore it from a copy of the run")
    return load_task(path)


READER, TRAINER, SEAT = ("harness", "reader"), ("trainer", "options"), ("run", "agent_options")


def _anchored(place: tuple[str, ...], v: Any, folder: Path) -> Any:
    """A setting, by its place in a task file, with paths made absolute: those of environment and policy, of skill
    libraries (`builtin` is none), of an agent of one's own, of a seat's program and of a reader's program or recorded
    run."""
    if place == ("trainer",) and isinstance(v, dict) and v.get("name") == "command":
        v = {**v, "options": {"cwd": str(folder), **v.get("options", {})}}
    if place in ((), ("run",), SEAT, ("harness",), READER, ("trainer",), TRAINER) and isinstance(v, dict):
        return {k: _anchored((*place, k), x, folder) for k, x in v.items()}
    if place[:2] == TRAINER and place[-1] in ("command", "evaluation") and isinstance(v, dict):
        return {k: _anchored((*place, k), x, folder) for k, x in v.items()}
    if place[:2] == TRAINER and place[-1] in ("command", "serve", "cwd", "config"):
        return _absolute(shlex.split(v) if place[-1] in ("command", "serve") and isinstance(v, str) else v, folder)
    if place == ("run", "skills") and isinstance(v, list):
        return [x if not isinstance(x, str) or x == "builtin" else os.path.normpath(folder / x) for x in v]
    if place == ("guard",) and isinstance(v, list):
        return [
            {k: _anchored((k,), x, folder) if k == "environment" else x for k, x in g.items()}
            if isinstance(g, dict)
            else g
            for g in v
        ]
    own_agent = place == ("run", "agent") and isinstance(v, str) and v.startswith("python:")
    reader = place in ((*READER, "command"), (*READER, "run"), (*SEAT, "command"), (*SEAT, "mount"))
    return _absolute(v, folder) if own_agent or reader or place[:1] in (("environment",), ("policy",)) else v


def _absolute(v: Any, folder: Path) -> Any:
    """Paths relative to `folder` made absolute, so that the resolved copy runs from anywhere.

    A path is what starts with `./` or `../`, also behind `python:`, `trl:` or `trl-rewards:`,
    or what names something that exists there.
    """
    if isinstance(v, dict):
        return {k: _absolute(x, folder) for k, x in v.items()}
    if isinstance(v, list):
        return [_absolute(x, folder) for x in v]
    if not isinstance(v, str) or not v:
        return v
    for prefix in ("python:", "trl:", "trl-rewards:"):
        if v.startswith(prefix):
            return prefix + str(_absolute(v.removeprefix(prefix), folder))
    file, colon, rest = v.partition(":") if ".py:" in v else (v, "", "")
    here = folder / file
    if file.startswith(("./", "../")) or (
        ("/" in file or "." in file) and not Path(file).is_absolute() and here.exists()
    ):
        return os.path.normpath(here) + colon + rest
    return v


def resolve(values: Mapping[str, Any], source: str = "task") -> TaskFile:
    """Validate and lint; raises ConfigError."""
    try:
        task = TaskFile.model_validate(dict(values))
    except ValidationError as e:
        raise ConfigError(f"{source}: {explain(e, TaskFile)}") from None
    if (errors := lint_errors(task.recipe)) and not task.run.evaluate_only:
        raise ConfigError(f"{source}: recipe {errors}")
    judged = not task.run.evaluate_only and not task.run.search_only
    if len(task.run.seeds) < task.judge.min_seeds and judged and task.run.rounds:
        raise ConfigError(
            f"{source}: run.seeds has {counted(len(task.run.seeds), 'seed')} but judge.min_seeds is "
            f"{task.judge.min_seeds}; "
            "no branch could ever be promoted; add seeds"
        )
    if limit := task.budget.trials:
        need = len(task.run.seeds) + len(task.run.certify_seeds)
        if limit < need and judged:
            raise ConfigError(
                f"{source}: budget.trials={limit} is below the {counted(need, 'trial')} that the noise floor and the "
                "certification take; raise it"
            )
    if (cpu := task.budget.cpu_s) is not None and cpu < task.budget.trial_cpu_s and not task.run.evaluate_only:
        raise ConfigError(
            f"{source}: budget.cpu_s={cpu:g} is too small for one trial "
            f"(budget.trial_cpu_s={task.budget.trial_cpu_s:g}); raise the budget or lower recipe.steps and trial_cpu_s"
        )
    return task
