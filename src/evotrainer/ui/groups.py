"""Rollouts as a reader sees them: whole groups, the prompt once, attempts beside one another, what was found marked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup, escape

from evotrainer.errors import StoreError
from evotrainer.projections.text import clean as fit
from evotrainer.projections.text import number, one_line
from evotrainer.records.output import visible
from evotrainer.records.rollout import Rollout, Turn, turn_text
from evotrainer.records.text import clean
from evotrainer.ui.index import RolloutIndex
from evotrainer.views.rollouts import fitted_entry, rollout_entry

if TYPE_CHECKING:
    from evotrainer.views.model import RunView

CHARS = 24_000
"""Letters shown of one attempt; `text` has all."""
WHOLE = 50_000_000
PROMPT = 12_000
SHOWN = 32
"""Attempts of a group that are shown with their text."""
_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")


def readable(text: object, limit: int = 200) -> Markup:
    """A text that nobody vouches for, in one line: what cannot be seen is made visible, letters of several alphabets
    in one word, which can look like another name, are marked."""
    shown = one_line(text, limit)
    mixed = [w for w in re.findall(r"[^\W\d_]+", shown) if not w.isascii() and len(_alphabets(w)) > 1]
    warning = f"letters of several alphabets: {', '.join(ascii(w)[1:-1] for w in mixed[:3])}"
    mark = Markup(' <span class="mixed" title="{}">⚠ mixed alphabets</span>').format(warning) if mixed else Markup("")
    return escape(shown) + mark


def _alphabets(word: str) -> set[str]:
    names = (unicodedata.name(c, "").partition(" ")[0] for c in word)
    return {n for n in names if n in _SCRIPTS}


def group_cards(groups: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """What a list shows of each group."""
    out = []
    for rows in groups:
        rewards = [r["reward"] for r in rows if r["reward"] is not None]
        low, high = (min(rewards), max(rewards)) if rewards else (None, None)
        flat = len(rewards) > 1 and low == high
        detectors = sorted({d for r in rows for d in r["detectors"] or ()})
        out.append({"first": rows[0], "rows": rows, "low": low, "high": high, "flat": flat, "detectors": detectors,
                    "mean": sum(rewards) / len(rewards) if rewards else None})  # fmt: skip
    return out


def claims_of(
    index: RolloutIndex, rows: Sequence[Mapping[str, Any]], view: RunView | None, base: str
) -> dict[tuple[str, str], tuple[str, str]]:
    """(rollout, detector) -> what the finding says of the policy, and the address where all of it stands."""
    said: dict[tuple[str, str], tuple[str, str]] = {}
    versions = {f"harness {v.name}": v for v in view.coevolution.versions} if view else {}
    for row in rows:
        for by in row["detectors"] or ():
            branch = view.branches.get(row["branch"]) if view else None
            found = [
                f for _, f in (c for r in (branch.findings if branch else ()) for c in r.claims) if f.detector == by
            ]
            own = [f for f in found if any(q.rollout.rstrip("…") in row["name"] for q in f.quotes)]
            if own or found:
                said[row["name"], by] = (
                    (own or found)[0].claim,
                    f"{base}branch/{row['branch']}#findings-{row['branch']}",
                )
            elif by in versions:
                said[row["name"], by] = versions[by].body.reason, f"{base}#harness-{versions[by].name}"
            elif claim := index.claims.get((row["source"], by)):
                said[row["name"], by] = claim, f"{base}#readings"
    return said


def hit_card(row: Mapping[str, Any], found: tuple[str, str, str], base: str) -> str:
    """A hit of a search, as HTML."""
    span = found[1]
    to = f"{base}rollout/{quote(row['name'], safe='')}" + (
        f"?quote={quote(span.encode('utf-8', 'replace'), safe='')}#hit" if span else ""
    )
    where = " · ".join(str(x) for x in (row["branch"], row["split"], f"step {row['step']}", row["outcome"]) if x)
    reward = "not graded" if row["reward"] is None else f"reward {number(row['reward'])}"
    html = Markup(
        '<li><a href="{}">{}</a> <span class="small muted">{} · {}</span><br>'
        '<code>{}<mark class="hit">{}</mark>{}</code></li>'
    )
    return str(
        html.format(
            to,
            readable(row["task"], 80),
            readable(where, 120),
            reward,
            *(fit(x, 240) for x in (found[0], span or "(matches)", found[2])),
        )
    )


def attempts_of(
    index: RolloutIndex, rows: Sequence[Mapping[str, Any]], name: str, span: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(turns of the prompt that all attempts share, attempts): each with its row, and its text around `span`."""
    chosen = [r for r in rows if r["name"].startswith(name)][:1]
    chosen += [r for r in rows if r not in chosen][: SHOWN - 1]
    shown = [r for r in rows if r in chosen]
    found = index.rollouts(shown)
    prompts = [tuple(takewhile(lambda t: t.role != "assistant", r.turns)) for r in found]
    shared = len(prompts[0]) if prompts and len(set(prompts)) == 1 else 0
    prompt = [_turn(t, span) for t in (prompts[0] if shared else ())]
    best = {r["name"]: r["reward"] for r in shown if r["reward"] is not None}
    ends = (min(best.values()), max(best.values())) if len(set(best.values())) > 1 else (None, None)
    attempts = []
    for row, r in zip(shown, found, strict=False):
        mine = span if row["name"].startswith(name) else ""
        attempts.append(_attempt(row, r, shared, mine) | {"end": _end(row["reward"], ends)})
    _mark_first(prompt, attempts, span)
    return prompt, attempts


def _end(reward: float | None, ends: tuple[float | None, float | None]) -> str:
    if reward is None or ends[0] is None:
        return ""
    return "best" if reward == ends[1] else "worst" if reward == ends[0] else ""


def _attempt(row: Mapping[str, Any], r: Rollout, shared: int, span: str) -> dict[str, Any]:
    entry = fitted_entry(replace(r, turns=r.turns[shared:]), CHARS, [span] if span else ())
    turns = entry["turns"]
    cut = any("characters not shown" in t["text"] or "more characters" in t["text"] for t in turns)
    return {"row": row, "entry": entry, "turns": turns, "detail": entry["detail"], "cut": cut}


def _turn(t: Turn, span: str) -> dict[str, Any]:
    return {"role": t.role, "text": fit(turn_text(t), PROMPT), "calls": []}


def _mark_first(prompt: list[dict[str, Any]], attempts: list[dict[str, Any]], span: str) -> None:
    """Split the text in which a span stands first into before, it, after; answers are looked at before the prompt."""
    if not span:
        return
    wanted = visible(span[:400]).rstrip("…")
    pieces = [wanted, *sorted(re.split(r"\\x[0-9a-f]{2}|[…\ufffd?]", wanted), key=len, reverse=True)[:1]]
    for piece in (p for p in pieces if len(p) >= 3):
        for turn in [c for a in attempts for t in a["turns"] for c in (t, *t["calls"])] + prompt:
            at = turn["text"].find(piece)
            if at >= 0:
                turn["marked"] = (turn["text"][:at], piece, turn["text"][at + len(piece) :])
                return


def whole_text(index: RolloutIndex, rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """All of a rollout as plain text, control characters made visible."""
    row = next((r for r in rows if r["name"].startswith(name)), rows[0])
    found = index.rollouts([row])
    if not found:
        raise StoreError(f"rollout {clean(name, 60)} is no longer where it was stored; open the rollouts page again")
    r, entry = found[0], rollout_entry(found[0])
    facts = [f"{k}: {v}" for k, v in entry["facts"]] + [f"{k}: {v}" for k, v in entry["components"].items()]
    turns = [
        f"--- {t.role}\n{turn_text(t)}" + "".join(f"\n→ {c.name} {c.arguments}" for c in t.tool_calls) for t in r.turns
    ]
    return visible("\n".join([f"task: {r.task}", f"reward: {r.reward}", *facts, *turns])[:WHOLE]) + "\n"
