"""What a command leaves: rollouts in any format that is imported, a metrics file, a policy; and its signs of life."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evotrainer.errors import FaultsError
from evotrainer.records.durable import fsync, os_errors, replace_folder
from evotrainer.records.output import print
from evotrainer.records.regular_file import open_regular
from evotrainer.records.rollout import Rollout, groups_of, rollout_id
from evotrainer.records.weights import weight_files
from evotrainer.registry import Registry
from evotrainer.trainers.base import TrainerEnvironment, TrainRequest
from evotrainer.trainers.bases import is_adapter, note_base
from evotrainer.trainers.command.options import CommandOptions
from evotrainer.trainers.command.request import TaskLine
from evotrainer.trainers.curve import curve_entry
from evotrainer.trainers.groups import Group
from evotrainer.trainers.rollouts import environment_facts

READERS: Registry[Callable[..., Any]] = Registry(
    "reader",
    "trainer.name",
    {
        "rollouts": "evotrainer.importers:read",
        "metrics": "evotrainer.studies.audit.curve_file:rows_by_step",
        "columns": "evotrainer.studies.audit.curve_file:columns_of",
    },
)
"""What reads the files of others: rooms that only a command's trial needs."""
TAIL = 1 << 16
WEIGHTS, AROUND = ".safetensors", (".json", ".txt", ".jinja", ".model", ".py")
"""Ends of the files of a policy: its weights, and its configuration and tokenizer. No pickles, which may hold code."""
FROM_ROLLOUTS = ("step", "reward", "reward_std", "score", "frac_reward_zero_std", "dead_fail", "dead_pass", "group_std",
                 "groups", "completions/clipped_ratio", "errors")  # fmt: skip
"""What a curve entry takes from the rollouts, whatever the script logs of it."""


def matches(out: Path, pattern: str) -> list[Path]:
    """What a pattern names in a folder, by the numbers in the names (checkpoint-2 before checkpoint-10)."""
    if not pattern:
        return []
    if (out / pattern).exists():
        return [out / pattern]
    return sorted(out.glob(pattern), key=lambda p: [int(x) if x.isdigit() else x for x in _split(str(p))])


def _split(name: str) -> list[str]:
    import re

    return re.split(r"(\d+)", name)


class Signs:
    """Sizes of what a command writes, and the step that its metrics have come to."""

    def __init__(self, out: Path, options: CommandOptions) -> None:
        self.out, self.options = out, options
        READERS["columns"]  # imported now, not between two looks

    def __call__(self) -> object:
        """Another value whenever it wrote something."""
        o = self.options
        files = (
            f
            for pattern in (o.rollouts, o.metrics, o.checkpoint)
            for p in matches(self.out, pattern)
            for f in _files(p)
        )
        found = []
        for f in files:
            with contextlib.suppress(OSError):
                stat = os.stat(f)
                found.append((f, stat.st_size, stat.st_mtime_ns))
        return found

    def row(self) -> dict[str, Any]:
        """The last whole line of the metrics; empty where there is none yet."""
        for path in reversed(matches(self.out, self.options.metrics)):
            with contextlib.suppress(OSError, ValueError), open_regular(path) as f:
                size = f.seek(0, os.SEEK_END)
                f.seek(max(0, size - TAIL))
                lines = f.read().split(b"\n")[:-1]  # behind the last newline a line is half-written
                found = json.loads(lines[-1]) if lines else {}
                return found if isinstance(found, dict) else {}
        return {}

    def step(self) -> tuple[int, float | None]:
        """(step, reward) of that row, by the names that curves are read by."""
        row = self.row()
        row |= row["data"] if isinstance(row.get("data"), dict) else {}
        step, reward = (_named(row, key) for key in ("step", "reward"))
        files = matches(self.out, f"./{self.options.rollouts}/completions_{5 * '[0-9]'}.parquet")  # TRL's: one a step
        return int(step or (files and files[-1].stem.rpartition("_")[2]) or 0), reward


def _named(row: Mapping[str, Any], key: str) -> float | None:
    """What a row tells under one of the names of a column."""
    named = [(c.rank, n) for n, c in READERS["columns"](row).items() if c is not None and c.key == key]
    found = (row[n] for _, n in sorted(named) if isinstance(row[n], int | float) and math.isfinite(row[n]))
    return next(found, None)


def numbered(found: Sequence[Rollout]) -> Sequence[Rollout]:
    """Rollouts by their steps, also where the script calls those by another name (`iter`)."""
    if any(r.step for r in found):
        return found
    return [replace(r, step=int(_named(r.detail, "step") or 0)) for r in found]


def _files(path: Path) -> Iterable[Path]:
    if path.is_dir():
        return (Path(at) / name for at, _, names in os.walk(path) for name in names)
    return (path,)


def read_rollouts(out: Path, o: CommandOptions, command: str) -> list[Rollout]:
    """What it wrote; what cannot be read is told. FaultsError where nothing can."""
    if not o.rollouts:
        return []
    found, skipped = list[Rollout](), list[Any]()
    for _, _, record in READERS["rollouts"](matches(out, o.rollouts), o.rollout_format or None):
        (found if isinstance(record, Rollout) else skipped).append(record)
    for s in skipped[:5]:
        print(f"note: {s.where}: {s.reason}", flush=True)
    if len(skipped) > 5:
        print(f"note: and {len(skipped) - 5} more that could not be read", flush=True)
    if not found:
        why = f"; {skipped[0].where}: {skipped[0].reason}" if skipped else ""
        raise FaultsError(
            f"{command} ended without rollouts that can be read in {out / o.rollouts}{why}; have it write them "
            '(docs/importers.md), name the place in trainer.options.rollouts, or set that to "": none'
        )
    return list(numbered(found))


def places(raw: Iterable[float], steps: int) -> dict[float, int]:
    """A script's numbers of steps -> ours, from 1 to `steps`: counted from 0 or 1, and several updates of one step are
    that step."""
    found = sorted(set(raw))
    if not found:
        return {}
    first, most = found[0], found[-1]
    shift = 1 if first == 0 else 0
    most += shift
    scale = steps / most if most > steps else 1.0
    return {x: max(1, math.ceil((x + shift) * scale - 1e-9)) for x in found}


def labelled(
    found: Sequence[Rollout], request: TrainRequest, environment: TrainerEnvironment, lines: Mapping[str, TaskLine]
) -> dict[int, list[list[Rollout]]]:
    """Step -> groups, as rollouts of this training: steps counted from 1, tasks by our ids where the id or the prompt
    is one of ours."""
    i, steps = request.identity, request.recipe.steps
    prompts = {x.prompt.strip(): x.task for x in lines.values()}
    step_of = places((r.step for r in found), steps)
    env_hash, tier = environment_facts(environment.describe())
    out: dict[int, list[list[Rollout]]] = {}
    for group in groups_of(found):
        first = group[0]
        task = first.task if first.task in lines else prompts.get(first.prompt.strip(), first.task)
        step = step_of[first.step]
        tag = hashlib.blake2b(f"{first.group}\x1f{first.step}\x1f{task}".encode(), digest_size=6).hexdigest()
        at = step + request.before
        policy = f"{i.branch}/{i.seed}@{at - 1}"
        own = [
            replace(
                r,
                id=rollout_id(i.run, i.branch, i.seed, at, f"{task}#{tag}", k),
                task=task,
                run=i.run,
                branch=i.branch,
                seed=i.seed,
                policy=policy,
                split="train",
                step=at,
                group=f"{policy}/{task}#{tag}",
                k=k,
                knobs=dict(request.recipe.knobs),
                env_hash=env_hash,
                sandbox_tier=tier,
            )
            for k, r in enumerate(group)
        ]
        out.setdefault(step, []).append(own)
    return dict(sorted(out.items()))


def graded(
    groups: Sequence[Sequence[Rollout]],
    environment: TrainerEnvironment,
    tasks: Mapping[str, Any],
    knobs: Mapping[str, Any],
) -> list[list[Rollout]]:
    """Rollouts at train tasks of the environment with its components and outcome beside the script's own reward."""
    rows = [
        (g, k)
        for g, group in enumerate(groups)
        for k, r in enumerate(group)
        if r.task in tasks and r.error_kind is None
    ]
    episodes = [play(environment, tasks[groups[g][k].task], knobs, groups[g][k]) for g, k in rows]
    out = [list(group) for group in groups]
    for (g, k), score in zip(rows, environment.score(episodes) if episodes else (), strict=True):
        r = out[g][k]
        if score.error_kind is None:
            detail = {**dict(r.detail), **dict(score.detail)}
            out[g][k] = replace(
                r, components={**r.components, **score.components}, outcome=score.outcome, detail=detail
            )
    return out


def play(environment: TrainerEnvironment, task: Any, knobs: Mapping[str, Any], r: Rollout) -> Any:
    """An episode in which the policy says what a rollout says, turn by turn."""
    episode = environment.reset(task, knobs)
    said = [t.text for t in r.turns if t.role == "assistant"] or [""]
    finish = r.finish if r.finish in ("stop", "length") else "stop"
    for n, text in enumerate(said):
        if not episode.done:
            environment.step([episode], [text], [finish if n + 1 == len(said) else "stop"])
    return episode


def read_metrics(out: Path, o: CommandOptions) -> list[dict[str, float]]:
    """Rows by our names, in order of steps; empty where there is none."""
    found = matches(out, o.metrics)
    if o.metrics and not found:
        print(f"note: no {o.metrics} in {out}: the curve is that of the rollouts alone", flush=True)
    return [row for f in found for row in READERS["metrics"](f)]


def curve_of(
    metrics: Sequence[Mapping[str, float]],
    by_step: Mapping[int, Sequence[Sequence[Rollout]]],
    request: TrainRequest,
    cpu_s: Mapping[int, float],
    total_s: float,
) -> list[dict[str, float]]:
    """An entry a step: what the script logged, rates of its rollouts by our definitions, CPU time up to its end."""
    recipe = request.recipe
    step_of = places((row["step"] for row in metrics), recipe.steps)
    logged: dict[int, dict[str, float]] = {}
    for row in metrics:
        logged.setdefault(step_of[row["step"]], {}).update({k: v for k, v in row.items() if math.isfinite(v)})
    out, at = list[dict[str, float]](), total_s
    for step in sorted({*logged, *by_step}, reverse=True):
        seen = by_step.get(step, ())
        entry = {**logged.get(step, {}), **(_rates(step, seen, request) if seen else {})}
        at = min(at, cpu_s.get(step, at)) if out else total_s
        out.append({**entry, "step": float(step), "cpu_s": at})
    return out[::-1]


def _rates(step: int, groups: Sequence[Sequence[Rollout]], request: TrainRequest) -> dict[str, float]:
    made = []
    for rows in groups:
        rewards = [r.reward for r in rows if r.reward is not None]
        made.append(Group((), list(rows), std=float(np.std(rewards)) if len(set(rewards)) > 1 else 0.0))
    entry = curve_entry(step, made, {}, request.recipe, 0.0, 0)
    judged = any(r.outcome != "unknown" for g in groups for r in g)
    rewarded = any(g.rewards for g in made)
    kept = {k: v for k, v in entry.items() if k in FROM_ROLLOUTS or k.startswith("rewards/")}
    if any(r.tokens for g in groups for r in g):
        kept["completions/mean_length"] = entry["completions/mean_length"]
    if not judged:
        kept.pop("score", None)
    if not rewarded:
        kept = {k: v for k, v in kept.items() if k in ("step", "score", "groups", "errors") or k.startswith("rewards/")}
    return kept


def policy_folder(out: Path, o: CommandOptions) -> Path | None:
    """The policy that a command left; None where there are no weights."""
    return next((p for p in reversed(matches(out, o.policy)) if p.is_dir() and weight_files(p)), None)


def take_policy(found: Path, folder: Path, start: Path, run_dir: Path | None) -> None:
    """Bring a policy into the trial's folder, whole or not at all; what of tokenizer and configuration it lacks is the
    start policy's."""
    temp = folder.with_name(f".{folder.name}.taking-{os.getpid()}")
    shutil.rmtree(temp, ignore_errors=True)
    with os_errors(f"cannot write {folder}"):
        temp.mkdir(parents=True)
        for f in (*sorted(found.iterdir()), *sorted(start.iterdir())):
            weights = f.suffix == WEIGHTS or f.name.startswith(("model.", "adapter_", "base_policy", "trained"))
            known = f.suffix in (WEIGHTS, *AROUND) and f.is_file() and not (temp / f.name).exists()
            if known and (f.parent == found or not weights):
                _place(f, temp / f.name)
        if is_adapter(temp):
            note_base(temp, folder, start, run_dir)
        for f in temp.iterdir():
            fsync(f)
        replace_folder(temp, folder)


def _place(f: Path, to: Path) -> None:
    """Weights are the same file under a second name, where the disk can: they may have gigabytes."""
    if f.suffix == WEIGHTS and not f.is_symlink():
        with contextlib.suppress(OSError):
            os.link(f, to)
            return
    shutil.copyfile(f, to)
