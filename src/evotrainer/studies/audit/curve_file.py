"""Reads a learning curve alone, without rollouts: the log of a training, step by step, whatever its trainer calls
things and in whatever form it leaves them (tables, JSON, a trainer's state, what it printed)."""

from __future__ import annotations

import ast
import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from evotrainer.errors import ConfigError
from evotrainer.importers.base import Skipped
from evotrainer.importers.lenient_json import content, parse
from evotrainer.importers.lines import values
from evotrainer.records.text import counted, quoted

STEP = (
    "global_step", "training/global_step", "train/global_step", "trainer/global_step", "global_step/max_steps", "step",
    "_step", "training_step", "train_step", "train/step", "rollout/step", "progress/batch", "iteration", "iter",
    "current_steps",
)  # fmt: skip
"""Columns that number the steps, the best first."""
HELD_OUT = {"eval", "evaluation", "val", "val-core", "val-aux", "validation", "valid", "test", "heldout", "dev"}
"""First words of a column that is measured on tasks that are not trained on."""
NAMES = """
reward_min: critic/score/min critic/rewards/min reward/min rewards/min reward_min reward/all/min reward/total/min
reward_max: critic/score/max critic/rewards/max reward/max rewards/max reward_max reward/all/max reward/total/max
advantage_min: critic/advantages/min advantages/min advantage/min advantages_min advantage_min
advantage_max: critic/advantages/max advantages/max advantage/max advantages_max advantage_max
: *time* *per_second* *throughput* *memory* *mem_* perf/* timing* *epoch* *num_tokens* *total_flos* *mfu* *seqlen*
: prompt_length* *runtime* *tokens_seen* progress* percentage *train_speed* critic/grad_norm critic/lr*
: *samples_per* *_coef* *frac_mixed *total_episodes *ob_tokens* global_step*
: training/*step* batch_size *_steps
reward: reward rewards critic/score/mean critic/rewards/mean mean_reward reward_mean reward/mean rewards/mean avg_reward
reward: reward/all/mean reward/total env/all/reward/total env/all/reward/mean env/reward_mean rollout/raw_reward
reward: rollout/reward rollout/rewards rollout/reward/mean reward/avg_raw_reward objective/scores objective/rlhf_reward
reward: *ep_rew_mean */task_reward/avg mean_score total_reward reward/reward_mean
reward_std: reward_std reward/group_std group_reward_std
frac_reward_zero_std: *frac_reward_zero_std *frac_zero_reward_std *frac_zero_std *zero_std_ratio
dead_fail: dead_fail solve_none */solve_none */frac_all_bad
dead_pass: dead_pass solve_all */solve_all */frac_all_good
score: score outcome accuracy acc correct pass_rate success_rate solve_rate pass@1 env/all/correct accuracy/mean
score: rollout/accuracy success rollout/success_rate
ppo_kl: *ppo_kl *approx_kl *approxkl *approxkl_avg optim/kl_sample_train* mismatch_kl/mean
kl: kl kl/mean mean_kl kl_mean kl_loss */kl_loss objective/kl actor/reward_kl_penalty critic/kl kl_policy_base
kl: policy/policy_kl kl_divergence loss/kl policy/kl
entropy: entropy entropy/mean actor/entropy actor/entropy_loss policy/policy_entropy optim/entropy objective/entropy
entropy: policy_entropy mean_entropy policy/entropy actor/entropy/mean
grad_norm: *grad_norm* *gradient_norm* grad._norm
loss: loss loss/mean actor/pg_loss policy_loss pg_loss actor/policy_loss policy/final_loss loss/policy_avg act_loss
loss: loss/total actor/loss
learning_rate: learning_rate lr */lr */lr(* *learning_rate actor_lr
completions/mean_terminated_length: *mean_terminated_length
completions/clipped_ratio: *clipped_ratio response_length/clip_ratio response_clip_ratio is_truncated/mean *truncated
completions/clipped_ratio: *truncated_ratio *truncation_rate *truncated_frac* *truncated/mean *truncation_ratio
completions/mean_length: completions/mean_length completion_length completion_length/mean response_length mean_length
completions/mean_length: response_length/mean decode_len/mean generate/avg_num_tokens *response_lengths
completions/mean_length: *response_len/mean *ac_tokens_per_turn policy/response_length *mean_gen_tokens_per_sample
completions/mean_length: *mean_completion_length mean_response_length completions/length
turns: turns num_turns/mean *turns_per_episode
ratio_max: ratio_max *importance_sampling_ratio/max
: */min */max *_min *_max *__min *__max */median completions/* response_length*/* *_length/* *_len/* clip_ratio/*
: *clipfrac* rollout_corr/* sampling/*
rewards/*/std: rewards/*/std reward/*/std
rewards/*/mean: rewards/*/mean reward/*/mean rewards/* reward/* metrics/*/mean metrics/* env/all/* objective/*_reward
ess: ess
ngram_repetition: ngram_repetition
kept_groups: kept_groups
negative_share: negative_share
"""
"""Key of a curve (see `HarnessContext.curve`): names that are read as it, the best first; without a key what no reading
needs. The first that fits decides. `*` in a key is what the name has in its place."""
_LINES = (line.partition(":") for line in NAMES.strip().splitlines())
TABLE = [(key, glob) for key, _, globs in _LINES for glob in globs.split()]


class Column(NamedTuple):
    """A column's place in a curve."""

    key: str
    rank: int = 0
    """Of several columns of one key the lowest is read."""
    run: str = ""
    """The run before the name, where charts of several runs were exported ("RUN - NAME", W&B)."""


def columns_of(names: Iterable[str]) -> dict[str, Column | None]:
    """What each column is; None for one whose name says nothing, key "" for one that no reading needs."""
    return {n: _column(n) for n in names}


def _column(column: str) -> Column | None:
    run, _, name = column.strip().rpartition(" - ")
    name = "/".join(p.strip() for p in name.lower().split("/")).replace(" ", "_")
    if name in STEP:
        return Column("step", STEP.index(name), run)
    name = name.removeprefix("train/").removeprefix("training/").removeprefix("training_").removeprefix("train_")
    if rest := _held_out(name):
        found = next((key for key, glob in TABLE if fnmatchcase(rest, glob)), "score")
        # what is not reward or outcome (lengths, times, losses) is of no use from an evaluation
        return Column(f"eval/{name}" if found in ("reward", "score", "rewards/*/mean") else "", run=run)
    for rank, (key, glob) in enumerate(TABLE):
        if fnmatchcase(name, glob):
            before, _, after = glob.partition("*")
            return Column(key.replace("*", name[len(before) : len(name) - len(after)]), rank, run)
    return None


def _held_out(name: str) -> str:
    """What follows the first word of a held-out column; "" for any other."""
    for sep in "/_:":
        head, _, rest = name.partition(sep)
        if head in HELD_OUT:
            return rest
    return name.partition("/eval/")[2]


MAX_BYTES = 64 << 20
DICT = re.compile(r"\{\s*+(?=['\"])(?:[^{}]++|\{[^{}]*+\}){1,2000}+\}")
"""A dict, with dicts in it. Possessive: what has no end is given up at once."""
WRAPPERS = ("data", "metrics", "log", "logs", "values")
"""Keys whose object is the row itself."""


def log_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """(line or index, row) of a log; a row maps columns to what was written there, anything else is none. Raises
    ValueError for a file that is too large, OSError."""
    suffix = path.suffix.lower()
    text = content(path, MAX_BYTES, "give fewer steps").decode("utf-8-sig", errors="replace")
    head = text.strip().partition("\n")[0].lower()
    delimiter = max(",\t;|", key=head.count)
    # a table of a notebook or an issue, too: "Step | Training Loss | reward"
    if suffix in (".csv", ".tsv") or (head.count(delimiter) > 1 and "step" in head and not {*"{:="} & {*head}):
        # TensorBoard exports "Wall time,Step,Value", and names the value in the file's name alone
        tag = path.stem.rpartition("tag-")[2].replace("_", "/", 1) if "tag-" in path.stem else "Value"
        for n, row in enumerate(csv.DictReader(io.StringIO(text.lstrip()), delimiter=delimiter), 2):
            if {*"".join(map(str, row.values()))} - {*"-: "}:  # no line between head and body
                yield n, {tag if k == "Value" else k.strip(): v for k, v in row.items() if k}
    elif text.lstrip()[:1] in ("{", "[") and (listed := _document(text)):
        yield from enumerate(listed, 1)
    elif suffix in (".json", ".jsonl", ".ndjson", ".gz"):
        yield from ((n, flat(v)) for n, v in values(path, constants=True))
    else:
        yield from enumerate(printed(text), 1)


def _document(text: str) -> list[Any]:
    """The rows of a text that is one JSON value: of its longest list (a trainer's state has them in `log_history`), or
    of its columns; none where it is no single value (JSON lines), or lists nothing."""
    try:
        value = parse(text, constants=True)
    except ValueError:
        return []
    if isinstance(value, dict):
        lists = {k: v for k, v in value.items() if isinstance(v, list)}
        rows = max((v for v in lists.values() if v and isinstance(v[0], dict)), key=len, default=None)
        if rows is None and len({len(v) for v in lists.values()}) == 1:
            rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        value = rows
    return [flat(v) for v in value or ()] if isinstance(value, list) else []


def flat(row: Any, prefix: str = "") -> Any:
    """An object's values under joined names (`a/b`); what wraps a row adds no name."""
    if not isinstance(row, Mapping):
        return row
    out: dict[str, Any] = {}
    for k, v in row.items():
        inner = prefix if not prefix and k in WRAPPERS else f"{prefix}{k}/"
        out |= flat(v, inner) if isinstance(v, Mapping) else {f"{prefix}{k}": v}
    return out


def printed(text: str) -> list[dict[str, Any]]:
    """Rows in what a trainer printed, in order: dicts as Python prints them (TRL), and where no dict is a row,
    `step:1 - name:0.5 - ...` (verl), `step=1 name=0.5`, `Step 1 | Name: 0.5`; everything else is passed over."""
    # a progress bar ends in a carriage return, and may be on the line of what follows it
    text = text.replace("\r", "\n")
    dicts = [_dict(m.group()) for m in DICT.finditer(text)]
    logged = [r for r in dicts if any("reward" in k or "loss" in k for k in r)]
    return logged or [r for r in map(_pairs, text.splitlines()) if r]


def _dict(text: str) -> dict[str, Any]:
    """The row that a dict is; empty where it is none."""
    try:
        row = _literal(ast.parse(text.replace("\n", " "), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    return flat(row) if isinstance(row, dict) else {}


def _literal(node: ast.AST) -> Any:
    """What a literal means; numbers inside a call, too (`tensor(0.5)`, `np.float64(0.5)`), and names (`nan`, `inf`)."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return node.id if as_number(node.id) is not None else None
        case ast.UnaryOp(op=ast.USub()) if (inner := as_number(_literal(node.operand))) is not None:
            return -inner
        case ast.Call(args=[first, *_]):
            return _literal(first)
        case ast.Dict():
            items = zip(node.keys, node.values, strict=True)
            return {str(k.value): _literal(v) for k, v in items if isinstance(k, ast.Constant)}
    return None


def _pairs(line: str) -> dict[str, Any]:
    """`name:value` or `name=value`, between " - ", " | ", commas or blanks; empty for a line that tells no step."""
    if "step" not in line.lower():
        return {}
    out: dict[str, Any] = {}
    for part in line.split(next((s for s in (" - ", " | ", ", ") if line.count(s) > 1), None)):
        sep = next((s for s in (":", "=") if s in part), " ")
        name, _, value = (x.strip() for x in part.strip().rpartition(sep))
        # before the first pair there may be a time, a level, a process
        name = name if out else name.rpartition(" ")[2]
        value = value.rpartition("(")[2].rstrip(")%s,")
        if 0 < len(name.split()) <= 3 and as_number(value) is not None:
            out[name] = value
    return out if len(out) > 1 and any(k.lower() in STEP for k in out) else {}


def as_number(value: Any) -> float | None:
    """A number as it was written, also in text ("NaN", "1/100" of a step among all); None for what is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return float(value.strip().removesuffix("%").split("/")[0] if isinstance(value, str) else value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf


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


def rows_by_step(path: Path) -> list[dict[str, float]]:
    """Rows of a training's log, one a step in their order, by the keys of a curve; also of one step, and without a
    reward. What is no number, or half a line, is left out; empty where no row tells a step."""
    log = list(log_rows(path))
    rows = [raw for _, raw in log if isinstance(raw, Mapping)]
    columns = columns_of(dict.fromkeys(k for raw in rows for k, v in raw.items() if as_number(v) is not None))
    steps, read = _read_as(columns)
    merged, _ = _by_step(_parsed(path, log, read, steps, steps)[0] if steps else ())
    return [{k: v for k, v in row.items() if v is not None and math.isfinite(v)} for row in merged]


def _read_as(columns: Mapping[str, Column | None]) -> tuple[list[str], dict[str, str]]:
    """(columns that number the steps, the best first; column -> key of those that are read, in the file's order)."""
    ranked = sorted((c.rank, i, n, c.key) for i, (n, c) in enumerate(columns.items()) if c and c.key)
    best = {key: n for _, _, n, key in reversed(ranked) if key != "step"}
    return [n for _, _, n, key in ranked if key == "step"], {
        n: c.key for n, c in columns.items() if c and best.get(c.key) == n
    }


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
    steps, read = _read_as(columns)
    best = {key: n for n, key in read.items()}
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
