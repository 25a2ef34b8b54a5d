"""The reference tables of docs/task-file.md and docs/recipe.md, from the models that read a task file:
`python scripts/settings_reference.py docs`."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from evotrainer.agents import AGENTS
from evotrainer.config.task import TaskFile
from evotrainer.envs.registry import ENVIRONMENTS
from evotrainer.errors import ConfigError
from evotrainer.factors import FACTORS, FAMILIES
from evotrainer.factors.trainer_mapping import table
from evotrainer.records.recipe import KEYED, Recipe
from evotrainer.records.structured_factors import COMPOSITES, fields_of
from evotrainer.trainers import TRAINERS
from evotrainer.trainers.command.options import CommandOptions

BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
HEAD = ("| key | type | default | legal values | meaning |", "|---|---|---|---|---|")
TYPES: Mapping[Any, str] = {bool: "boolean", int: "integer", float: "float", str: "string", date: "date", Any: "any"}
NAMES: Mapping[str, tuple[str, ...]] = {
    "environment.name": (*ENVIRONMENTS, "python:FILE:FACTORY", "trl:FILE:CLASS", "trl-rewards:FILE:FUNCTION"),
    "trainer.name": tuple(TRAINERS),
    "run.agent": (*AGENTS, "python:FILE:CLASS"),
    "run.cache": ("off", "/FOLDER", "~/FOLDER"),
    "run.looks": ("off", "/FILE", "~/FILE"),
    "run.keys": ("off", "/FOLDER", "~/FOLDER"),
}
"""Keys whose legal values are names of a registry, or checked by a validator."""
ENVIRONMENT = (
    ("name", "string", "required", "What gives the tasks and scores the attempts (docs/add-your-own.md)."),
    (
        "payable",
        "array of strings",
        "`[]`",
        "Components of the outcome that training may pay as reward; a recipe that pays another one of them is refused.",
    ),
    ("reward_file", "string", "none", "Python file whose functions are further reward components (docs/domains)."),
    ("...", "any", "", "The environment's own options: docs/domains, docs/datasets.md, docs/trainers.md; those of a "
     "`python:` environment are keywords of its factory."),
)  # fmt: skip
"""`[environment]` is read by each environment itself: key, type, default, meaning."""
PROPOSED = {
    *(x for f in ("written_reward", *(f for f, r in FACTORS.items() if r.all_moves())) for x in (f, *fields_of(f))),
}
"""Factors that the statistical agent changes of itself: those with moves, and rewards, whose changes it generates."""


def task_file() -> str:
    """Markdown: every section of a task file with its keys."""
    lines: list[str] = []
    for name, field in TaskFile.model_fields.items():
        if name == "recipe":
            lines += [
                "### [recipe]",
                "",
                "The starting recipe: all its factors are on [a page of their own](recipe.md).",
            ]
        elif name == "environment":
            lines += ["### [environment]", "", "What attempts at tasks run in.", "", *HEAD, *_environment()]
        else:
            several = get_origin(field.annotation) is tuple
            model = get_args(field.annotation)[0] if several else field.annotation
            assert isinstance(model, type)
            below = rows(model, f"{name}[]." if several else f"{name}.")
            lines += [f"### [{name}]", "", _text(inspect.getdoc(model) or ""), "", *HEAD, *below]
        lines.append("")
    return "\n".join(lines)


def recipe() -> str:
    """Markdown: every factor of a recipe, by the part of the recipe that it belongs to, then the composite ones."""
    more = ("agent", "trainers")
    head = [f"| {' | '.join((*HEAD[0].strip('| ').split(' | '), *more))} |", HEAD[1] + "---|" * len(more)]
    head[0] = head[0].replace("| key |", "| factor |")
    lines: list[str] = []
    if bare := [name for name in Recipe.model_fields if name not in FACTORS]:
        raise ConfigError(f"{', '.join(bare)} has no row in evotrainer/factors; add one (docs/add-your-own.md)")
    for family in FAMILIES:
        lines += [f"### {family.capitalize()}", "", *head]
        for name, field in Recipe.model_fields.items():
            shown = {"knobs": "knobs.<name>", "scaffold": "scaffold.<slot>"}.get(name, name)
            if FACTORS[name].family == family:
                cells = ("yes" if name in PROPOSED else "asked", trainers_of(name))
                lines += factor_rows(name, shown, field, cells)
        lines.append("")
    lines += ["### Composite factors", "", "| factor | changes together | agent |", "|---|---|---|"]
    for name, fields in COMPOSITES.items():
        agent = "yes" if name in PROPOSED else "asked"
        lines.append(row(f"`{name}`", ", ".join(f"`{f}`" for f in fields), agent))
    return "\n".join(lines) + "\n"


PAGES = {
    "task-file.md": task_file,
    "recipe.md": recipe,
    "trainers.md": lambda: table("trl"),
    "verl.md": lambda: table("verl"),
    "command-trainer.md": lambda: "\n".join((*HEAD, *rows(CommandOptions, ""))) + "\n",
}


def embed(name: str, page: str) -> str:
    """The page with what stands between the two markers replaced."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n\n{PAGES[name]()}\n{END}{rest.split(END)[1]}"


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo, type[BaseModel], str]]:
    """(dotted key, field, model, name) of every key, those of sections and of rows of lists below their own."""
    for name, field in model.model_fields.items():
        yield prefix + name, field, model, name
        part = held(field.annotation)
        if part is not None and part is not model:
            below = "[]." if _is_list(field.annotation) else "."
            yield from keys(part, f"{prefix}{name}{below}")


def held(annotation: Any) -> type[BaseModel] | None:
    """The model that a field is, or that its list holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for x in get_args(annotation) if (m := held(x))), None)


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is tuple


def rows(model: type[BaseModel], prefix: str) -> list[str]:
    return [row(f"`{key}`", *_cells(key, f), meaning(f, m, n)) for key, f, m, n in keys(model, prefix)]


def factor_rows(name: str, shown: str, field: FieldInfo, cells: tuple[str, str]) -> list[str]:
    """A factor, then the keys of its table."""
    out = [row(f"`{shown}`", *_cells(name, field, keyed=name in KEYED), meaning(field, Recipe, name), *cells)]
    part = held(field.annotation)
    if part is not None and part is not Recipe:
        below = "[]." if _is_list(field.annotation) else "."
        out += [
            row(f"`{key}`", *_cells(key, f), meaning(f, m, n), "", "") for key, f, m, n in keys(part, f"{name}{below}")
        ]
    return out


def trainers_of(factor: str) -> str:
    """The trainers that take other values of a factor than its default."""
    ways = {name: FACTORS[factor].carried(name) for name in ("embedded", "trl", "verl")}
    taken = {n: " (in part)" * w.part for n, w in ways.items() if w is not None and (w.part or not w.why)}
    return "all" if list(taken.values()) == [""] * 3 else ", ".join(n + part for n, part in taken.items())


def meaning(field: FieldInfo, model: type[BaseModel], name: str) -> str:
    """The docstring below a field, else that of the section which it holds."""
    own = _text(docstrings(model).get(name, ""))
    part = held(field.annotation)
    if part is None or part is Recipe or (own and part.__module__ != Recipe.__module__ + "_parts"):
        return own
    return f"{own} {_text(inspect.getdoc(part) or '')}".strip()


@cache
def docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Field -> the string that stands below it, in its class or the nearest one above it that says any."""
    out: dict[str, str] = {}
    for c in reversed([c for c in model.__mro__ if issubclass(c, BaseModel) and c.__module__.startswith("evotrainer")]):
        out |= _own_docstrings(c)
    return out


def _own_docstrings(model: type[BaseModel]) -> dict[str, str]:
    (cls,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(cls, ast.ClassDef)
    out: dict[str, str] = {}
    for n, below in zip(cls.body, cls.body[1:], strict=False):
        said = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and below.value.value
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name) and isinstance(said, str):
            out[n.target.id] = said
    return out


def type_of(annotation: Any) -> str:
    """In the words of TOML."""
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation in TYPES:
        return TYPES[annotation]
    if origin is Annotated:
        return type_of(args[0])
    if origin is Literal:
        return type_of(type(args[0]))
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(type_of(a) for a in args if a is not NoneType))
    if origin is tuple:
        inner = type_of(args[0])
        return "array of " + (inner if inner.endswith("s") else f"{inner}s")
    return "table"


def legal(annotation: Any, field: FieldInfo | None = None) -> str:
    """Names, bounds; empty where the type says it all."""
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation is bool:
        return "`true`, `false`"
    if origin is Annotated:
        return _bounds(next(x for x in args[1:] if isinstance(x, FieldInfo)))
    if origin is Literal:
        return ", ".join(f"`{a}`" for a in args)
    parts = args if origin in (Union, UnionType) else args[:1] if origin is tuple else ()
    told = [x for a in parts if (x := legal(a))]
    return ", ".join([*told, *([b] if field is not None and (b := _bounds(field)) else [])])


def _bounds(field: FieldInfo) -> str:
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    told = [f"{s} {getattr(m, k):g}" for m in field.metadata for k, s in signs.items() if hasattr(m, k)]
    told += [f"`{p}`" for m in field.metadata if (p := getattr(m, "pattern", None))]
    return ", ".join(told)


def _cells(key: str, field: FieldInfo, keyed: bool = False) -> tuple[str, str, str]:
    """Type, default, legal values."""
    if keyed:
        return _of_keys(field.annotation), "the environment's", "those of the environment"
    names = ", ".join(f"`{n}`" for n in NAMES.get(key, ()))
    return type_of(field.annotation), default_of(field), names or legal(field.annotation, field)


def _of_keys(annotation: Any) -> str:
    return type_of(get_args(annotation)[1])


def default_of(field: FieldInfo) -> str:
    """As a task file would write it."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    assert value is not PydanticUndefined
    if isinstance(value, BaseModel):
        return "as below"
    return "none" if value is None else f"`{json.dumps(value)}`"


def _environment() -> list[str]:
    told = {key.partition(".")[2]: ", ".join(f"`{n}`" for n in names) for key, names in NAMES.items()
            if key.startswith("environment.")}  # fmt: skip
    return [
        row(f"`environment.{n}`" if n != "..." else "others", t, default, told.get(n, ""), _text(about))
        for n, t, default, about in ENVIRONMENT
    ]


def row(*cells: str) -> str:
    return "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", c) for c in cells) + " |"


def _text(doc: str) -> str:
    """A docstring as one line; pages and folders of docs/ that it names become links."""
    text = re.sub(r"\s+", " ", doc).strip()
    text = re.sub(r"(?<!\[)\bdocs/(\w+)(?=[,.)\s])(?!\.md)", r"[\1](\1)", text)
    return re.sub(r"\bdocs/([\w/-]+)\.md", r"[\1](\1.md)", text)


if __name__ == "__main__":
    for name in PAGES:
        path = Path(sys.argv[1]) / name
        path.write_text(embed(name, path.read_text(encoding="utf-8")), encoding="utf-8")
