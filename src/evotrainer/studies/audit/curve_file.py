"""A learning curve alone, without rollouts: the log of a training, step by step, whatever its trainer calls things."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evotrainer.errors import ConfigError
from evotrainer.importers.base import Skipped
from evotrainer.records.text import counted, quoted
from evotrainer.studies.audit.curve_names import Column, columns_of
from evotrainer.studies.audit.curve_rows import MAX_BYTES, as_number, log_rows

LEAST = 2
"""Steps of a curve."""
NAMED = 12
"""Columns that are not read and named."""
BACKGROUND = frozenset({"step", "loss", "grad_norm", "learning_rate"})
"""What every training logs: alone they are no curve of RL."""
CORE = frozenset({"reward", "loss", "grad_norm", "kl", "ppo_kl", "entropy"})
"""What a trainer logs at every step: null in its place is a number that could not be written."""
SHARES = frozenset({"completions/clipped_ratio", "frac_reward_zero_std", "dead_fail", "dead_pass"})
"""What lies between 0 and 1; some log percent."""
ACCURACY = ("/accuracy", "_accuracy", "/acc", "_acc", "/pass@1")

Log = Sequence[tuple[int, Any]]
Row = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Curve:
    """A training's log, read."""

    rows: tuple[dict[str, float], ...]
    """One a step in the order of steps, keys as in `HarnessContext.curve`, held-out columns as `eval/<column>`. NaN and
    infinities are left as they are; null that follows numbers to the end is NaN."""
    names: Mapping[str, str]
    """Key -> the column that it was read from."""
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    """What else a reader should know: columns that are not read, steps that are there twice."""
    run: str = ""
    """Of several runs in one file, which."""

    @property
    def finite(self) -> tuple[dict[str, float], ...]:
        """The rows without what is no number."""
        return tuple({k: v for k, v in row.items() if math.isfinite(v)} for row in self.rows)

    def table(self) -> list[dict[str, Any]]:
        """For each column that was read: `column`, `key`, `steps` (numbers), `not_finite`, `first`, `last`, `min`,
        `min_at`, `max`, `max_at` (steps); None where there is no number."""
        out = []
        for key, name in self.names.items():
            good = [(row["step"], row[key]) for row in self.finite if key in row]
            low, high = (f(good or [(math.nan, math.nan)], key=lambda x: x[1]) for f in (min, max))
            line = {"column": name, "key": key, "steps": len(good)}
            line |= {"not_finite": sum(key in row for row in self.rows) - len(good)}
            line |= {"first": good[0][1] if good else math.nan, "last": good[-1][1] if good else math.nan}
            line |= {"min": low[1], "min_at": low[0], "max": high[1], "max_at": high[0]}
            out.append({k: None if v != v else v for k, v in line.items()})
        return out


def read_curves(path: Path) -> list[Curve]:
    """The curves of a file, one for each run whose charts it holds; empty where the file is no log of a training.
    Raises ConfigError where it is one without a reward, and nothing else."""
    try:
        found = _all_runs(path)
    except Exception:  # whatever a foreign file holds: what cannot be followed is no log
        return []
    if found and all(isinstance(c, str) for c in found):
        raise ConfigError(f"{path} {found[0]}")
    return [c for c in found if isinstance(c, Curve)]


def _all_runs(path: Path) -> list[Curve | str | None]:
    """What `_curve` finds for each run of a file."""
    log = list(log_rows(path)) if path.is_file() and path.stat().st_size <= MAX_BYTES else []
    rows = [raw for _, raw in log if isinstance(raw, Mapping)]
    columns = columns_of(dict.fromkeys(k for raw in rows for k, v in raw.items() if as_number(v) is not None))
    runs = list(dict.fromkeys(c.run for c in columns.values() if c and c.run)) or [""]
    own = ({n: c for n, c in columns.items() if c is None or c.run in ("", run)} for run in runs)
    return [_curve(path, log, some, run if len(runs) > 1 else "") for run, some in zip(runs, own, strict=True)]


def _curve(path: Path, log: Log, columns: Mapping[str, Column | None], run: str) -> Curve | str | None:
    """The curve of one run; None where these columns make none, and why, where a training's log has no reward."""
    ranked = sorted((c.rank, i, n, c.key) for i, (n, c) in enumerate(columns.items()) if c and c.key)
    steps = [n for _, _, n, key in ranked if key == "step"]
    best = {key: n for _, _, n, key in reversed(ranked) if key != "step"}
    # in the order of the file
    read = {n: c.key for n, c in columns.items() if c and best.get(c.key) == n}
    if not steps and not BACKGROUND & {*read.values()} and not any("epoch" in n.lower() for n in columns):
        return None  # numbers without a step may be anything
    clocks = steps or [n for n in columns if "epoch" in n.lower()]
    rows, skipped, words, again = _parsed(path, log, read, steps, clocks)
    merged, notes = _by_step(rows) if steps else (_in_order(rows), [])
    if again:
        notes.append(f"the {clocks[0]} starts again in row {again}: several runs in one log, of which the last is read")
    for key in sorted(SHARES & {*best}):
        if (most := max((r.get(key) or 0.0 for r in merged), default=0.0)) > 1 + 1e-6:
            notes.append(f"{best[key]} is {'read as percent' if most <= 100 else 'no share, and not read'}")
            merged = [
                {k: v / 100 if k == key and v else v for k, v in r.items() if k != key or most <= 100} for r in merged
            ]
    found = _without_blanks(merged)
    keys = {k for r in found for k, v in r.items() if math.isfinite(v)}
    if len(found) < LEAST or keys <= {"step"} or len(found) < len(skipped):
        return None
    if keys <= BACKGROUND:
        has = ", ".join(n for n, c in columns.items() if c and (c.key in BACKGROUND - {"step"} or "loss" in n.lower()))
        return f"is a training's log without a reward: it has {has}; a learning curve needs a reward or an outcome"
    present = {k for r in found for k in r}
    names = {key: n for n, key in read.items() if key in present}
    plain = next((k for k in names if k.startswith("eval/") and k.endswith(ACCURACY)), None)
    if plain and "score" not in keys and sum(plain in r for r in found) >= 0.9 * len(found):
        # a held-out accuracy at every step is the outcome where nothing else is
        names = {("score" if k == plain else k): n for k, n in names.items()}
        found = [{("score" if k == plain else k): v for k, v in r.items()} for r in found]
    for key, refused in words.items():
        reason = f"{counted(len(refused), 'value')} of {key} no number: {', '.join(refused[:3])}"
        skipped += [Skipped(str(path), reason)] if key in keys else []
    left = [n for n, c in columns.items() if c is None]
    left += [f"{n} ({best[c.key]} is read)" for n, c in columns.items() if c and best.get(c.key, n) != n]
    if not {"reward", "score"} & keys and not any(k.startswith(("rewards/", "eval/")) for k in keys):
        notes.append("no reward, score or held-out outcome is in it: whether the policy gets better is unseen")
    if left:
        more = f", and {len(left) - NAMED} more" if len(left) > NAMED else ""
        notes.append(f"{counted(len(left), 'column')} not read: {', '.join(left[:NAMED])}{more}")
    return Curve(tuple(found), names, tuple(skipped), tuple(notes), run)


def _parsed(
    path: Path, log: Log, read: Mapping[str, str], steps: Sequence[str], clocks: Sequence[str]
) -> tuple[list[Row], list[Skipped], dict[str, list[str]], int]:
    """(rows by key, None where a cell is empty; rows that cannot be read; by key what words are in a number's place;
    where the last of several runs begins, or 0): where the first step or epoch comes back with columns that it had."""
    rows: list[Row] = []
    skipped: list[Skipped] = []
    words: dict[str, list[str]] = {}
    first, last, again, before = math.nan, math.nan, 0, 0
    for n, raw in log:
        if not isinstance(raw, Mapping):
            reason = f"not a JSON object but {type(raw).__name__}"
            skipped.append(raw if isinstance(raw, Skipped) else Skipped(f"{path} row {n}", reason))
            continue
        given = {read[name]: v for name, v in raw.items() if name in read}
        row = {k: as_number(v) for k, v in given.items()}
        for key in [k for k, x in row.items() if x is None and str(given[k] or "").strip()]:
            words.setdefault(key, []).append(f"{quoted(given[key], 40)} in row {n}")
        times = (as_number(raw.get(k)) for k in clocks)
        now = next((x for x in times if x is not None and math.isfinite(x)), None)
        if now is not None:
            if now == first < last and len(rows) - before >= 5 and row.keys() & rows[before].keys():
                again, before = n, len(rows)
            first, last = now if first != first else first, now
        step = now if steps else None
        if row and ((steps and step is None) or all(x is None for x in row.values())):
            skipped.append(Skipped(f"{path} row {n}", "it has no number for a step and its reward or outcome"))
        elif row:
            row = {k: x for k, x in row.items() if x is not None or not str(given[k] or "").strip()}
            rows.append(row if step is None else {"step": step, **row})
    if len(rows) - before < LEAST:
        again, before = 0, 0
    return rows[before:], skipped, words, again


def _by_step(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Rows of one step as one (trainers log a step in several rows; of a number that is there twice, the later), and
    what that hides."""
    merged: dict[float, Row] = {}
    again: list[float] = []
    behind, last, highest = False, -math.inf, -math.inf
    for row in rows:
        step = row["step"] or 0.0
        here = merged.setdefault(step, {})
        behind = step < last or (behind and step <= highest)
        last, highest = step, max(highest, step)
        again += [step] if behind and len(here.keys() & row.keys()) > 1 else []
        here |= {k: v for k, v in row.items() if v is not None or k not in here}
    span = f"steps {min(again):g} to {max(again):g}" if again else ""
    notes = [f"{span} are there twice (a resume?): the later ones are read"] if span else []
    return [merged[k] for k in sorted(merged)], notes


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows without a step (parts of an epoch are rounded, and steps share them), numbered from 1: what has other
    columns than the row before it is of the same step."""
    out: list[Row] = []
    for row in rows:
        if out and not out[-1].keys() & row.keys():
            out[-1].update(row)
        else:
            out.append(dict(row))
    return [{"step": float(i), **row} for i, row in enumerate(out, 1)]


def _without_blanks(rows: Sequence[Row]) -> list[dict[str, float]]:
    """The rows without empty cells, but NaN for those that follow numbers and last to the end (at least 3) in a column
    that is logged at every step; without NaN in outcomes, which some write where nothing was evaluated."""
    broken = set()
    for key in CORE:
        known = [i for i, r in enumerate(rows) if r.get(key) is not None]
        after = rows[known[-1] + 1 :] if known else ()
        if len(after) >= 3 and all(key in r for r in after) and len(known) >= 0.9 * (known[-1] + 1):
            broken.add(key)
    full = [{k: math.nan if v is None and k in broken else v for k, v in r.items()} for r in rows]
    sparse = {k for r in rows for k in r if k.startswith("eval/") or k == "score"}
    kept = [{k: v for k, v in r.items() if v is not None and not (k in sparse and math.isnan(v))} for r in full]
    return [r for r in kept if len(r) > 1]
