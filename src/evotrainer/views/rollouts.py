"""One rollout as bounded, cleaned, JSON-able data for the page's window."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from evotrainer.projections import text
from evotrainer.records.rollout import Rollout, ToolCall, Turn
from evotrainer.records.text import shown

TURN_CHARS = 8_000
CELL_CHARS = 1_000
TESTS = 40
DIGITS = 5
DETAIL_SHARE = 0.25
"""Of a fitted rollout's characters, what tests and detail may take; turns get the rest."""
TURN_LEAST = 400
"""Characters below which turns are left out rather than cut further."""
CALLS = 20
"""Tool calls shown of one turn."""
BEFORE_QUOTE = 600
"""Characters kept before a quoted span where a text is cut."""

_SEAM = re.compile(r"\\x[0-9a-f]{2}|\N{HORIZONTAL ELLIPSIS}|\N{REPLACEMENT CHARACTER}|\?")
_LINE = 1_500


def rounded(x: float | None) -> float | None:
    """A number for a chart or table; None for what JSON cannot hold."""
    return None if x is None or not math.isfinite(x) else float(f"{x:.{DIGITS}g}")


def rollout_entry(r: Rollout) -> dict[str, Any]:
    """What the window shows of a rollout, every text bounded by itself."""
    detail = dict(r.detail)
    tests = detail.pop("tests", None)
    return {
        "id": text.clean(r.id, 200),
        "branch": text.one_line(r.branch),
        "task": text.one_line(r.task),
        "outcome": r.outcome,
        "reward": None if r.reward is None else text.number(r.reward),
        "turns": [_turn(t) for t in r.turns],
        "components": {text.one_line(k): rounded(v) for k, v in r.components.items()},
        "tests": [_test_row(t) for t in tests[:TESTS]] if isinstance(tests, list | tuple) else [],
        "tests_cut": max(len(tests) - TESTS, 0) if isinstance(tests, list | tuple) else 0,
        "detail": text.clean("\n".join(f"{k}: {text.value(v)}" for k, v in detail.items()), TURN_CHARS),
        "facts": [[k, text.one_line(v)] for k, v in facts_of(r)],
    }


def fitted_entry(r: Rollout, limit: int, quotes: Collection[str] = ()) -> dict[str, Any]:
    """`rollout_entry` in about `limit` characters: long texts are cut around what is quoted, and every cut is named."""
    tests = r.detail.get("tests") if isinstance(r.detail, Mapping) else None
    rows, room = _fitting_tests(tests, int(limit * DETAIL_SHARE))
    rest = {k: v for k, v in r.detail.items() if k != "tests" or not rows} if isinstance(r.detail, Mapping) else {}
    about = text.clean(pretty(rest), max(room, TURN_LEAST)) if rest else ""
    turns, cap, left_out = _fitting_turns(r.turns, limit - int(limit * DETAIL_SHARE) + room - len(about), quotes)
    entry = rollout_entry(replace(r, turns=(), detail={}, components=dict(list(r.components.items())[:100])))
    shown = [_turn(_cut_turn(t, cap, quotes), 2 * cap) | {"n": i + 1} for i, t in turns]
    if left_out:
        at = next((k for k, (i, _) in enumerate(turns) if i != k), len(turns))
        shown.insert(at, {"role": "", "text": f"{left_out:,} of {len(r.turns):,} turns not shown", "calls": []})
    entry |= {
        "turns": shown,
        "tests": rows,
        "tests_cut": len(tests) - len(rows) if rows and isinstance(tests, list | tuple) else 0,
        "detail": about,
    }
    if not entry["task"]:
        entry["task"] = text.one_line(r.id, 80)
    return entry


def pretty(x: Any) -> str:
    """Indented JSON; what JSON cannot hold as text, what is nested too deeply in one line or not at all."""
    try:
        return json.dumps(x, indent=1, ensure_ascii=False, default=str)
    except (RecursionError, TypeError, ValueError):
        return shown(x, TURN_CHARS)


def _fitting_tests(tests: Any, room: int) -> tuple[list[dict[str, str | None]], int]:
    """Rows of the tests that fit, and the characters left; no rows where they are not tests."""
    rows: list[dict[str, str | None]] = []
    if not isinstance(tests, list | tuple) or not any(isinstance(t, Mapping) for t in tests[:TESTS]):
        return rows, room
    for t in tests[:TESTS]:
        row = _test_row(t, 400)
        size = sum(len(v or "") for v in row.values())
        if rows and size > room:
            break
        rows.append(row)
        room = max(0, room - size)
    return rows, room


def _fitting_turns(
    turns: tuple[Turn, ...], room: int, quotes: Collection[str]
) -> tuple[list[tuple[int, Turn]], int, int]:
    """(turns with their place, most characters of each text, turns left out)."""
    most = max(4, room // TURN_LEAST)
    kept = list(enumerate(turns))
    if len(kept) > most:
        first = [*range(2), *(i for i, t in kept if _holds(t, quotes)), *range(len(turns) - 2, len(turns))]
        chosen = set(list(dict.fromkeys([*first, *range(len(turns))]))[:most])
        kept = [(i, t) for i, t in kept if i in chosen]
    sizes: list[int] = []
    for _, turn in kept:
        texts = (turn.text, *(c.arguments for c in turn.tool_calls[:CALLS]))
        sizes += [len(s) for s in texts if s]
    sizes.sort()
    cap = room
    for i, size in enumerate(sizes):  # the largest cap under which all together fit
        cap = max(room // (len(sizes) - i), TURN_LEAST // 2)
        if size > cap:
            break
        room -= size
    else:
        cap = max(sizes, default=TURN_LEAST)
    return kept, cap, len(turns) - len(kept)


def _holds(t: Turn, quotes: Collection[str]) -> bool:
    texts = [t.text, *(f"{c.name} {c.arguments}" for c in t.tool_calls)]
    return any(_find(text, q) >= 0 for q in quotes for text in texts)


def _find(whole: str, quote: str) -> int:
    """Where a quoted span stands in a text. Quotes are cleaned:
    the longest piece that cleaning cannot have changed counts."""
    at = whole.find(quote) if quote else -1
    if at < 0 and quote:
        piece = max(_SEAM.split(quote), key=len)
        at = whole.find(piece) if len(piece) >= 8 else -1
    return at


def _cut_turn(t: Turn, cap: int, quotes: Collection[str]) -> Turn:
    calls = tuple(replace(c, arguments=_cut(c.arguments, cap, quotes)) for c in t.tool_calls[:CALLS])
    if len(t.tool_calls) > CALLS:
        calls += (ToolCall(f"… {len(t.tool_calls) - CALLS:,} more calls not shown"),)
    return replace(t, text=_cut(t.text, cap, quotes), tool_calls=calls)


def _cut(s: str, cap: int, quotes: Collection[str]) -> str:
    """At most `cap` characters of a text, a quoted span among them."""
    at = next((p for q in quotes if (p := _find(s, q)) >= 0), 0)
    line = s.rfind("\n", 0, at) + 1
    if len(s) <= cap and at - line <= _LINE:
        return s
    start = min(max(0, at - min(BEFORE_QUOTE, cap // 2)), max(0, len(s) - cap)) if at > cap // 2 or len(s) <= cap else 0
    if at - line > _LINE:
        start = max(start, at - BEFORE_QUOTE)
    end = min(len(s), start + cap)
    head = f"… {start:,} characters before this not shown\n" if start else ""
    return head + s[start:end] + (f"\n… {len(s) - end:,} more characters not shown" if end < len(s) else "")


def _turn(t: Turn, limit: int = TURN_CHARS) -> dict[str, Any]:
    calls = [
        {"text": text.clean(f"{c.name} {c.arguments}".rstrip(), min(limit, TURN_CHARS)), "ok": c.ok}
        for c in t.tool_calls
    ]
    return {"role": t.role, "text": text.clean(t.text, limit), "calls": calls}


def _test_row(t: Any, limit: int = CELL_CHARS) -> dict[str, str | None]:
    row = t if isinstance(t, Mapping) else {"got": t}
    keys = ("kind", "input", "expected", "got", "status", "error")
    out = {k: text.clean(row[k], limit) if row.get(k) is not None else None for k in keys}
    if not out["status"] and isinstance(row.get("passed"), bool):
        out["status"] = "passed" if row["passed"] else "failed"
    return out


def facts_of(r: Rollout) -> list[tuple[str, Any]]:
    """What is known of a rollout besides its text, its outcome and its pay."""
    facts = [
        ("policy", r.policy),
        ("split", r.split),
        ("step", r.step),
        ("attempt of the group", r.k),
        ("finish", r.finish),
        ("tokens", r.tokens),
        ("mean log-probability", None if r.mean_logprob is None else f"{text.number(r.mean_logprob)} nats"),
        ("entropy", None if r.entropy is None else f"{text.number(r.entropy)} nats"),
        ("advantage", None if r.advantage is None else text.number(r.advantage)),
        ("sandbox tier", r.sandbox_tier),
        ("knobs", text.value(dict(r.knobs)) if r.knobs else None),
        ("environment", r.env_hash),
        ("infrastructure fault", f"{r.error_kind}: {r.error or ''}" if r.error_kind else None),
        ("error", r.error if not r.error_kind else None),
        ("rollout", r.id),
    ]
    return [(k, v) for k, v in facts if v not in (None, "")]
