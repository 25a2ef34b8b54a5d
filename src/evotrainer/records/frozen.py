"""The base class of all records, and messages about values that do not fit."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from evotrainer.errors import ConfigError, EvoTrainerError
from evotrainer.records.factor_aliases import NAMES, name_hint, value_hint
from evotrainer.records.text import as_text, quoted

M = TypeVar("M", bound=BaseModel)


class Frozen(BaseModel):
    """Base of all records: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def parsed(model: type[M], given: Any, what: str, error: type[EvoTrainerError] = ConfigError) -> M:
    """`given` as a model; an error that begins with `what` names each bad field and what it allows."""
    try:
        return model.model_validate(dict(given) if isinstance(given, Mapping) else given)
    except ValidationError as e:
        raise error(f"{what}: {explain(e, model)}") from None


def explain(e: ValidationError, model: type[BaseModel] | None = None) -> str:
    """One line per pydantic complaint: `field: message (got value)`; of `model`, unknown names with the near ones."""
    parts: dict[str, None] = {}
    for x in e.errors():
        loc = ".".join(str(p) for p in x["loc"] if p not in UNION) or "value"
        msg = "unknown name" + _near(model, x["loc"]) if x["type"] == "extra_forbidden" else _plain(x, model)
        # a validator of ours says what is wrong; of a whole section, the values of all its fields would say nothing;
        # what is missing has no value
        silent = x["type"] == "missing" or (x["type"] == "value_error" and isinstance(x["input"], dict))
        got = "" if silent else f" (got {_brief(x['input'])})"
        parts[f"{loc}: {msg}{got}"] = None
    return "; ".join(parts)


UNION = ("int", "bool", "str", "float", "constrained-int")
"""Parts of a place that name a member of a union, and no field of ours."""
WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "string": "a text",
    "dict": "a section of names and values, e.g. {name = 1}",
    "mapping": "a section of names and values, e.g. {name = 1}",
    "model": "a section of names and values",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
}
"""What a value should have been, by the first word of pydantic's error type."""
BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def _plain(x: Any, model: type[BaseModel] | None = None) -> str:
    """What is wrong with a value, in the words of a task file: no library's."""
    kind, ctx, value = x["type"], x.get("ctx") or {}, x["input"]
    if kind in BOUNDS:
        key, word = BOUNDS[kind]
        return f"must be {word} {ctx[key]}"
    if kind == "literal_error":
        allowed = [v for v in re.findall(r"'([^']*)'", str(ctx.get("expected", ""))) if v]
        near = difflib.get_close_matches(str(value), allowed, n=3, cutoff=0.5)
        near.sort(key=lambda name: sorted(name) != sorted(str(value)))  # letters that changed places before others
        hint = value_hint(str(x["loc"][-1]), value) or (f", did you mean {near[0]}?" if near else "")
        return f"must be {_either(allowed) or ctx.get('expected')}{hint}"
    if kind == "finite_number":
        return "must be a finite number"
    if kind == "missing":
        return "is missing; give it a value"
    if kind == "int_from_float":
        return "must be a whole number"
    if kind == "string_pattern_mismatch":
        return f"must match {ctx.get('pattern')}"
    if kind in ("too_short", "too_long"):
        n = ctx.get("min_length") or ctx.get("max_length")
        return f"must hold at {'least' if kind == 'too_short' else 'most'} {n}"
    what = WORDS.get(kind.partition("_")[0])
    if what and kind.endswith(("_type", "_parsing")):
        if what == "a list" and isinstance(value, str | int | float):
            parts = [v.strip() for v in as_text(value).split(",")]
            shown = ", ".join(v if re.fullmatch(r"-?\d+(\.\d+)?", v) else f'"{v}"' for v in parts)
            return f"must be a list, e.g. [{shown}]"
        if what == WORDS["string"] and isinstance(value, bool | int | float):
            text = str(value).lower() if isinstance(value, bool) else as_text(value)
            at = f"{x['loc'][-1]}=" if isinstance(x["loc"][-1], str) else ""
            return f'must be a text: put it in quotes, {at}"{text}"'
        return f"must be {what}{_set_instead(model, x['loc'], value) if what == WORDS['model'] else ''}"
    return str(x["msg"]).removeprefix("Value error, ")


def _either(names: Sequence[str]) -> str:
    return " or ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def _brief(value: Any) -> str:
    return quoted(value)


def _near(model: type[BaseModel] | None, loc: tuple[int | str, ...]) -> str:
    """`, did you mean a or b?` for an unknown field of a model, else what there is; empty where that is not known."""
    for part in (p for p in loc[:-1] if isinstance(p, str)):
        model = _parts(model).get(part) if model else None
    if model is None:
        return ""
    names, name, place = list(model.model_fields), str(loc[-1]), "".join(f"{p}." for p in loc[:-1])
    if hint := name_hint(name, names, place):
        return hint
    if near := difflib.get_close_matches(name, names, n=3, cutoff=0.6):
        return f", did you mean {' or '.join(near)}?"
    within = [h for k, m in _parts(model).items() if (h := name_hint(name, m.model_fields, f"{place}{k}."))]
    if len(within) == 1 or name in NAMES:  # of another section: the recipe's
        return within[0] if within else name_hint(name, {NAMES[name].partition(" ")[0].partition(".")[0]}, "recipe.")
    return f"; there are: {', '.join(names)}" if names else "; there are none to set"


def _set_instead(model: type[BaseModel] | None, loc: tuple[int | str, ...], value: Any) -> str:
    """What to set where a section was given a plain value: its kind where it has kinds, else its fields."""
    for part in (p for p in loc if isinstance(p, str)):
        model = _parts(model).get(part) if model else None
    if model is None:
        return ""
    place, names = ".".join(map(str, loc)), list(model.model_fields)
    if "kind" in names and isinstance(value, str):
        kinds = [str(k) for k in get_args(model.model_fields["kind"].annotation)]
        near = difflib.get_close_matches(value, kinds, n=1)
        return f"; for its kind: {place}.kind={near[0]}" if near else f"; {place}.kind is one of: {', '.join(kinds)}"
    return f"; set {' or '.join(f'{place}.{n}' for n in names[:3])}{', ...' if len(names) > 3 else ''}"


def _parts(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Field -> the model that it is, or that its list or tuple holds."""
    out: dict[str, type[BaseModel]] = {}
    for name, field in model.model_fields.items():
        held = (field.annotation, *get_args(field.annotation))
        if found := next((x for x in held if isinstance(x, type) and issubclass(x, BaseModel)), None):
            out[name] = found
    return out
