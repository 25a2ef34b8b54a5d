"""Text and numbers for readers: control characters made visible, lengths bounded, units spelled out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.records.output import visible
from evotrainer.records.recipe import Recipe, short
from evotrainer.records.scaffold import Slot, changed_texts
from evotrainer.records.structured_factors import COMPOSITES
from evotrainer.records.text import as_text, cut, decimal_places, shown
from evotrainer.records.written import changed_sources

_LONG_LINE = 2_000


def clean(text: object, limit: int = 12_000) -> str:
    """`text` as something a page or terminal can show as it stands.

    Control characters are made `visible`, lines longer than 2,000 characters and texts longer than `limit` are cut, and
    the cut is named. Newlines and tabs stay.
    """
    raw = as_text(text)
    total = len(raw)
    cut = raw[:limit]
    if any(len(line) > _LONG_LINE for line in cut.split("\n")):
        cut = "\n".join(_short_line(line) for line in cut.split("\n"))
    out = visible(cut)
    if total > limit:
        out += f"\n… {total - limit:,} more characters not shown"
    return out


def one_line(text: object, limit: int = 200) -> str:
    """`clean` on a single line: newlines become ⏎, runs of blanks one blank, cut at `limit` characters."""
    raw = cut(text, limit)
    return re.sub(r"[ \t]+", " ", clean(raw, limit).replace("\n", " ⏎ ")).strip()


def of_run(text: str, run: object) -> str:
    """`text` with the run's folder in the commands that say RUN in its place, as recorded verdicts do."""
    return re.sub(r"(evotrainer [a-z-]+) RUN\b", lambda m: f"{m[1]} {run}", text)


def _short_line(line: str) -> str:
    if len(line) <= _LONG_LINE:
        return line
    return f"{line[:_LONG_LINE]}… {len(line) - _LONG_LINE:,} more characters on this line"


def base_label(base: Mapping[str, str]) -> str:
    """Id and commit of a base policy from the Hub, source and file of a GGUF, else the name of its folder."""
    if "gguf_source" in base:
        return f"{last_part(base['gguf_source'])} ({base.get('gguf_file', '')})"
    return f"{base['id']}@{base['commit']}" if "id" in base else last_part(base.get("path"))


def last_part(path: Any) -> str:
    """A Hub id or built-in as it is, of a path its last part; where it lay on a machine tells nobody elsewhere."""
    text = str(path or "")
    return Path(text).name if Path(text).is_absolute() else text


def seen(value: Any) -> Any:
    """What JSON holds, with every string and name in it `visible`."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible(str(k)): seen(v) for k, v in value.items()}
    return [seen(v) for v in value] if isinstance(value, list | tuple) else value


def script_json(value: Any) -> str:
    """JSON that is safe inside an HTML script element: no `<`, `>`, `&`, ASCII only, and `seen`."""
    text = json.dumps(seen(value), ensure_ascii=True, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def number(x: float | None, digits: int = 3) -> str:
    """Up to `digits` significant digits, thousands grouped, a dash where there is none."""
    if x is None:
        return "–"
    if isinstance(x, bool):
        return "yes" if x else "no"
    if x == 0:
        return "0"
    if abs(x) >= 10 ** (digits - 1):
        text = f"{x:,.0f}"
    elif abs(x) < 1e-4:
        text = f"{x:.{digits - 1}e}"
    else:
        text = f"{x:.{digits}g}"
    return text


def percent(x: float | None, places: int = 1) -> str:
    """A share in [0, 1] as `76.4%`."""
    return "–" if x is None else f"{100 * x:.{places}f}%"


def confidence(level: float) -> str:
    """A confidence as `95%`; none that is below 1 is shown as `100%`."""
    return percent(level, decimal_places((level, 1.0), least=0))


def points(x: float | None, places: int = 1, sign: bool = True) -> str:
    """A difference of shares in percentage points, `+12.5`."""
    if x is None:
        return "–"
    shown = round(100 * x, places) + 0.0
    return f"{shown:{'+' if sign and shown else ''}.{places}f}"


def point_range(low: float | None, high: float | None, sign: bool = True) -> str:
    """`[+8.1, +16.7]` in points."""
    return f"[{points(low, sign=sign)}, {points(high, sign=sign)}]"


def lost_points(mean: float, *bounds: float) -> str:
    """A loss: `+0.4 points [-0.2, +1.0]` or `+0.4 points, at least -0.2`; `nothing (...)` where it is none."""
    around = f"points {point_range(*bounds)}" if len(bounds) == 2 else f"points, at least {points(bounds[0])}"
    shown = f"{points(mean)} {around}"
    return shown if round(100 * mean, 1) > 0 else f"nothing ({shown})"


def duration(seconds: float | None) -> str:
    """`47 s`, `12 min 30 s`, `3 h 05 min`."""
    if seconds is None:
        return "–"
    s = round(seconds) if seconds >= 10 else round(seconds, 1)
    if s < 60:
        return f"{s:g} s"
    s = round(seconds)
    if s < 3600:
        return f"{s // 60} min {s % 60:02d} s" if s % 60 else f"{s // 60} min"
    return f"{s // 3600} h {s % 3600 // 60:02d} min"


def value(x: Any) -> str:
    """A recipe value in one line: JSON without quotes around plain names."""
    try:
        return _value(x)
    except (TypeError, ValueError, RecursionError):  # keys that are no texts, endless digits, circles
        return one_line(shown(x, 400), 400)


def _value(x: Any) -> str:
    x = short(x)
    if x is None:
        return "not set"
    if isinstance(x, str):
        return one_line(x)
    if isinstance(x, float):
        return f"{x:g}"
    if isinstance(x, dict):
        return one_line(", ".join(f"{k} {_value(v)}" for k, v in x.items()) or "none", 400)
    return one_line(json.dumps(x, ensure_ascii=False, default=str), 400)


def change(factor: str, old: Any, new: Any) -> str:
    """`factor: old → new`; of structured values only the parts that differ, and of one part its full name.

    A key that was added is `+ key value`, one that was removed `- key`.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        old, new = with_defaults(factor, old), with_defaults(factor, new)
        parts = list(dict.fromkeys(k for side in differing(old, new) for k in side))
        if len(parts) == 1 and parts[0] in old and parts[0] in new:
            return change(f"{factor}.{parts[0]}", old[parts[0]], new[parts[0]])
        if parts:
            return f"{one_line(factor)}: " + ", ".join(_part(k, old, new) for k in parts)
    return f"{one_line(factor)}: {value(old)} → {value(new)}"


def _part(key: str, old: dict[str, Any], new: dict[str, Any], within: str = "") -> str:
    """What became of one key of a mapping; of a mapping under it, of each key that differs."""
    name = within + one_line(key)
    if key not in new:
        return f"- {name}"
    if key not in old:
        return f"+ {name} {value(new[key])}"
    before, after = differing(with_defaults(key, old[key]), with_defaults(key, new[key]))
    if within or not isinstance(before, dict) or not isinstance(after, dict):
        return f"{name} {value(before)} → {value(after)}"
    return ", ".join(_part(k, before, after, f"{name}.") for k in dict.fromkeys([*before, *after]))


def with_defaults(factor: str, x: Any) -> Any:
    """A factor's value with its defaults, where only a part of it was given; as it is where it is no valid one, of
    several fields, or a start, which means another recipe in every run."""
    if not isinstance(x, dict) or factor in COMPOSITES or factor == "start":
        return x
    try:
        return Recipe().with_factor(factor, x).value(factor) or x
    except (ConfigError, TypeError, ValueError, RecursionError):
        return x


def differing(old: Any, new: Any) -> tuple[Any, Any]:
    """Two values; of two mappings only the keys that differ."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old, new
    same = {k for k in old.keys() & new.keys() if old[k] == new[k]}
    before, after = ({k: v for k, v in side.items() if k not in same} for side in (old, new))
    return before, after


def rewritten(old: Recipe | None, new: Recipe, slots: Iterable[Slot]) -> list[tuple[str, str, list[str]]]:
    """(code or text, name, lines) of what a recipe writes otherwise than the one before: its reward components and
    hooks, and its texts around the tasks."""
    before = old or Recipe()
    code = changed_sources(before.written, new.written) | changed_sources(before.hooks, new.hooks)
    texts = changed_texts(before.scaffold, new.scaffold, slots)
    return [("code", k, x) for k, x in code.items()] + [("text", k, x) for k, x in texts.items()]
