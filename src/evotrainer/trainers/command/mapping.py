"""What a command does of a recipe: where each factor's value goes, and what is refused by name."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.factors.table import DEFAULTS, UNSET, TrainerSupport
from evotrainer.factors.trainer_mapping import FIELDS
from evotrainer.records.durable import os_errors
from evotrainer.records.recipe import Recipe
from evotrainer.records.regular_file import read_text
from evotrainer.trainers.command.options import CommandOptions, FactorPlace, filled
from evotrainer.trainers.command.presets import PRESETS

OURS = ("deploy_temperature", "start")
"""Factors that a command need not know of: sampling of evaluations, and which policy a training begins with."""
SHOWN = ("knobs", "scaffold")
"""Factors that are in the prompts of the tasks that a command is given."""


def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A factor's parts by dotted names: `clip` is `clip.low` and `clip.high`; of what has no parts, itself."""
    if isinstance(value, Mapping) and value:
        for k, v in value.items():
            yield from leaves(v, f"{name}.{k}")
    elif value != {}:
        yield name, value


def parts_of(recipe: Recipe) -> dict[str, Any]:
    dump = recipe.model_dump(mode="json")
    return dict(x for name in FIELDS for x in leaves(dump[name], name))


STANDARD = parts_of(DEFAULTS)


@dataclass(frozen=True, slots=True)
class Mapped:
    """The mapping of a task: rows of its preset, changed by its own."""

    options: CommandOptions
    rows: Mapping[str, TrainerSupport]
    """Factor or part of one -> how it is carried out."""

    @classmethod
    def of(cls, options: CommandOptions) -> Mapped:
        """ConfigError for an unknown preset or factor, or where nothing says how the loss is aggregated."""
        if options.preset and options.preset not in PRESETS:
            raise ConfigError(
                f"trainer.options.map: no preset {options.preset!r}; there are {', '.join(PRESETS)}, or give rows"
            )
        preset = PRESETS[options.preset].rows if options.preset else {}
        own = {name: _support(name, t) for name, t in options.map.items()}
        for name in (*own, *options.fixed):
            if (factor := name.partition(".")[0]) not in FIELDS:
                near = get_close_matches(factor, FIELDS, 1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FIELDS)}"
                raise ConfigError(f"trainer.options.map and fixed: no factor {factor!r} in a recipe; {hint}")
        known = {k.partition(".")[0] for k in own}
        kept = {k: v for k, v in preset.items() if k.partition(".")[0] not in {*known, *options.fixed}}
        if not any(k.partition(".")[0] == "loss" for k in (*own, *kept, *options.fixed)):
            raise ConfigError(
                "trainer.options: nothing says how the script aggregates its loss; map it (map.loss), or say what it "
                'always does: fixed.loss = "dapo" (mean over the batch\'s tokens), "grpo" (mean over rollouts of their '
                'token means), "dr_grpo" (sum over a constant)'
            )
        return cls(options, {**kept, **own})

    def row(self, part: str) -> TrainerSupport | None:
        return self.rows.get(part) or self.rows.get(part.partition(".")[0])

    def refusals(self, recipe: Recipe) -> list[str]:
        """`factor: cause; remedy`, for every factor of a recipe that the command cannot be given."""
        out: list[str] = []
        fixed = dict(x for k, v in self.options.fixed.items() for x in leaves(v, k))
        now = parts_of(recipe)
        shown = any(
            f"{{{w}}}" in x for x in (*self.options.command, *self.options.env.values()) for w in ("request", "tasks")
        )
        for part in dict.fromkeys((*now, *fixed)):
            factor, value = part.partition(".")[0], now.get(part)
            how = self.row(part)
            if factor in OURS:
                continue
            if how is not None:
                if how.why and how.refuses(recipe):
                    out.append(f"{part if part in self.rows else factor}: {how.why}; {how.instead}")
            elif part in fixed:
                if value != fixed.get(part):
                    out.append(
                        f"{part} = {_said(value)}: the script always has {_said(fixed.get(part))}; map it, or leave it"
                    )
            elif factor in SHOWN and shown:
                continue
            elif value != STANDARD.get(part):
                out.append(
                    f"{part} = {_said(value)}: nothing tells the script; map it (trainer.options.map.{part} = "
                    f'"--flag"), say that the script does so by itself (trainer.options.fixed.{part}), or leave it out'
                )
        return list(dict.fromkeys(out))

    def settings(self, recipe: Recipe) -> dict[str, Any]:
        """Place -> value, for a recipe."""
        found: dict[str, Any] = {}
        for how in self.rows.values():
            found |= how.keys(recipe)
        found.pop("request", None)
        return found

    def paths(self, recipe: Recipe) -> dict[str, Any]:
        """Those of them that go into the configuration file."""
        if not self.options.config and self.style != "config":
            return {}
        return {place: value for place, value in self.settings(recipe).items() if not place.startswith("-")}

    @property
    def style(self) -> str:
        return PRESETS[self.options.preset].style if self.options.preset else ""


def _support(part: str, given: str | FactorPlace) -> TrainerSupport:
    target = FactorPlace(to=given) if isinstance(given, str) else given

    def value(recipe: Recipe) -> Any:
        # a part that the recipe does not have, as a reward that is not paid, is left out
        whole = UNSET if "." in part else recipe.model_dump(mode="json")[part]
        found = parts_of(recipe).get(part, whole)
        return target.values.get(_key(found), found) if target.values else found

    def refuses(recipe: Recipe) -> bool:
        return _key(parts_of(recipe).get(part)) not in target.values

    if not target.values:
        return TrainerSupport({target.to: value})
    return TrainerSupport(
        {target.to: value},
        why="the mapping has no value for it",
        instead=f"take one of {', '.join(target.values)}, or add it to trainer.options.map.{part}.values",
        refuses=refuses,
        part=True,
    )


def _key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _said(value: Any) -> str:
    return json.dumps(value)


def words_of(value: Any) -> list[str]:
    """A value on a command line."""
    if isinstance(value, list | tuple):
        return [x for v in value for x in words_of(v)]
    if isinstance(value, bool) or value is None:
        return [json.dumps(value)]
    return [json.dumps(value) if isinstance(value, dict) else str(value)]


def hydra(value: Any) -> str:
    """A value as Hydra reads it."""
    return json.dumps(value) if isinstance(value, bool | list | dict) or value is None else str(value)


def rendered(
    mapped: Mapped, recipe: Recipe, names: Mapping[str, object], folder: Path, command: Sequence[str] = ()
) -> list[str]:
    """The command line for a recipe (of `command`, by default the training's); a configuration file with the mapped
    values lies in `folder` then."""
    o = mapped.options
    flags: list[str] = []
    paths = mapped.paths(recipe)
    for place, value in mapped.settings(recipe).items():
        if place.startswith("-"):
            flags += [place, *words_of(value)]
        elif place in paths:
            continue
        elif mapped.style == "flags":
            flags += [f"--{place}", *words_of(value)]
        else:
            flags.append(f"{place}={hydra(value)}")
    if o.config or paths:
        suffix = Path(o.config).suffix if o.config else ".toml"
        at = folder / f"config{suffix}"
        names = {**names, "config": at}
        write_config(at, merged(_typed(base_config(o.config), names), paths))
    return filled(command or o.command, names) + flags


def base_config(path: str) -> dict[str, Any]:
    """The user's configuration; ConfigError where it cannot be read."""
    if not path:
        return {}
    import yaml

    try:
        text = read_text(path)
        suffix = Path(path).suffix
        found = (
            tomllib.loads(text)
            if suffix == ".toml"
            else json.loads(text)
            if suffix == ".json"
            else yaml.safe_load(text)
        )
    except OSError as e:
        raise ConfigError(f"trainer.options.config {path}: {e.strerror or e}; correct the path") from None
    except (ValueError, yaml.YAMLError) as e:
        raise ConfigError(f"trainer.options.config {path}: {' '.join(str(e).split())}; correct it") from None
    if not isinstance(found, dict) or suffix not in (".toml", ".json", ".yaml", ".yml"):
        raise ConfigError(f"trainer.options.config {path}: give a .toml, .yaml or .json file of sections and values")
    return found


def _typed(value: Any, names: Mapping[str, object]) -> Any:
    """Names filled in; `{seed}` alone stays a number."""
    if isinstance(value, dict):
        return {k: _typed(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [_typed(v, names) for v in value]
    if not isinstance(value, str):
        return value
    alone = names.get(value[1:-1]) if value.startswith("{") and value.endswith("}") else None
    return alone if isinstance(alone, int | float) else filled([value], names)[0]


def merged(tree: dict[str, Any], paths: Mapping[str, Any]) -> dict[str, Any]:
    """A tree with the values at dotted paths; `a.0.b` and `a.0` go into lists."""
    for path, value in paths.items():
        *above, last = path.split(".")
        node: Any = tree
        for part in above:
            at = _place(node, part, path)
            node = node[at] if isinstance(node, list) else node.setdefault(at, {})
        node[_place(node, last, path)] = value
    return tree


def _place(node: Any, part: str, path: str) -> Any:
    if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
        return int(part)
    if not isinstance(node, dict):
        raise ConfigError(f"trainer.options.map: {path} is no place in trainer.options.config; correct it, or add it")
    return part


def write_config(path: Path, tree: dict[str, Any]) -> None:
    import tomlkit
    import yaml

    with os_errors(f"cannot write {path}"):
        if path.suffix == ".toml":
            text = tomlkit.dumps(tree)
        else:
            text = json.dumps(tree, indent=1) if path.suffix == ".json" else yaml.safe_dump(tree, sort_keys=False)
        path.write_text(text, encoding="utf-8")
