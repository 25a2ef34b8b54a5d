"""The base class of all records, and messages about values that do not fit."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer


class Frozen(BaseModel):
    """Base of all records: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Sparse(Frozen):
    """A record without its fields of `LATER` where they stand at their default: what does not use them is recorded as
    it was before they came."""

    LATER: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _sparse(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = dump(self)
        usual = {name: type(self).model_fields[name].default for name in self.LATER}
        return {k: v for k, v in values.items() if k not in usual or getattr(self, k) != usual[k]}


def explain(e: ValidationError, model: type[BaseModel] | None = None) -> str:
    """One line per pydantic complaint: `field: message (got value)`; of `model`, unknown names with the near ones."""
    parts = []
    for x in e.errors():
        loc = ".".join(str(p) for p in x["loc"]) or "value"
        msg = "unknown name" + _near(model, x["loc"]) if x["type"] == "extra_forbidden" else x["msg"]
        # a validator of ours says what is wrong; of a whole section, the values of all its fields would say nothing
        whole = x["type"] == "value_error" and isinstance(x["input"], dict)
        got = "" if whole else f" (got {str(x['input'])[:60]!r})"
        parts.append(f"{loc}: {msg.removeprefix('Value error, ')}{got}")
    return "; ".join(parts)


def _near(model: type[BaseModel] | None, loc: tuple[int | str, ...]) -> str:
    """`, did you mean a or b?` for an unknown field of a model, else what there is; empty where that is not known."""
    for part in loc[:-1]:
        field = model.model_fields.get(str(part)) if model else None
        model = field.annotation if field and isinstance(field.annotation, type) else None
        if model is None or not issubclass(model, BaseModel):
            return ""
    if model is None:
        return ""
    names = list(model.model_fields)
    if near := difflib.get_close_matches(str(loc[-1]), names, n=3, cutoff=0.6):
        return f", did you mean {' or '.join(near)}?"
    return f"; there are: {', '.join(names)}"
