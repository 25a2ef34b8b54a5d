"""Human references, tuned generously before any search arm runs: `python -m bench.claim.references TASK [--out RUN]`.

At most twenty trainings on search by the usual method of a person: one factor after the other, from the learning rate
on, keep what scored higher, all at the training compute of the task file's recipe (so not the number of steps). Then
the three best recipes under two more seeds each, and the best mean is the reference. The recipe, its hash, and every
training go to `references/<task>.toml`.
Resumable: the same command goes on. Reads neither gate nor cert.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evotrainer import api
from evotrainer.agents import Tools
from evotrainer.config.load import load_task
from evotrainer.errors import ConfigError
from evotrainer.factors.lint import lint
from evotrainer.records.briefing import Briefing, Proposal
from evotrainer.records.recipe import Recipe
from evotrainer.records.search import ProbePlan, ProbeRecord, SearchPlan

HERE = Path(__file__).parent
BUDGET = 20
"""Trainings, next to those of the task file's own recipe."""
BEST, MORE = 3, 2
"""Recipes that are confirmed, and further seeds for each."""
MOST = 5
"""Factors that a training may change at once; the largest that a task file can ask for."""

Changes = Mapping[str, Any]


def stages(r: Recipe) -> list[list[dict[str, Any]]]:
    """What a person tries, factor by factor in this order; all of one stage stand against each other."""
    shapes = [(2, 0.5), (0.5, 2)]
    return [
        [{"lr": float(f"{r.lr * x:.3g}")} for x in (0.5, 2, 3)],
        [{"schedule": {"kind": "linear", "warmup": r.schedule.warmup}}],
        [
            {
                "batch_shape": {
                    "prompts_per_step": round(r.prompts_per_step * p),
                    "group_size": round(r.group_size * g),
                    "steps": r.steps,
                }
            }
            for p, g in shapes
        ],
        [{"temperature": round(r.temperature + x, 2)} for x in (-0.15, 0.15)],
        [{"group_filter": {"kind": "zero_variance", "keep": 0.9, "decay": 0.1}}, {"resample": 1}],
        [{"reward_scaling": "none"}, {"loss": "grpo" if r.loss != "grpo" else "dapo"}],
        [{"kl_beta": 0.01 if r.kl_beta == 0 else 0.0}, {"entropy_bonus": 0.003}],
    ]


class Person:
    """Coordinate search by hand, as an agent that searches and proposes nothing."""

    name = "person"

    def search(self, briefing: Briefing, tools: Tools) -> SearchPlan:
        start = briefing.champion.recipe
        score = firsts(briefing) | {start.hash: mean(briefing.champion.scores)}
        now: dict[str, Any] = {}
        for stage in stages(start):
            offers = [now | c for c in stage if usable(start, now | c)]
            if left := [c for c in offers if start.with_changes(c).hash not in score]:
                return SearchPlan(probes=tuple(ProbePlan(changes=c) for c in left[: briefing.probes_left]))
            now = max([now, *offers], key=lambda c: score[start.with_changes(c).hash])
        if again := list(unconfirmed(briefing)):
            return SearchPlan(probes=tuple(ProbePlan(changes=c) for c in again[: briefing.probes_left]))
        return SearchPlan(stop="every stage was tried, the best were confirmed")

    def propose(self, briefing: Briefing, tools: Tools) -> Proposal:
        return Proposal(agent=self.name, interventions=(), stop="a search only")


def usable(start: Recipe, changes: Changes) -> bool:
    """Few enough changes, and a recipe that lint accepts and that differs from the start."""
    try:
        recipe = start.with_changes(changes)
    except ConfigError:
        return False
    return len(changes) <= MOST and recipe.hash != start.hash and not [i for i in lint(recipe) if i.level == "error"]


def unconfirmed(briefing: Briefing) -> Iterator[Changes]:
    """The best recipes, once for each further seed that they lack."""
    first: dict[str, ProbeRecord] = {}
    for p in briefing.probes:
        first.setdefault(p.recipe.hash, p)
    seeds = [p.recipe.hash for p in briefing.probes]
    # by the first training of each, so that who is confirmed does not depend on how the confirmation goes
    best = sorted(first.values(), key=lambda p: (-(p.score if p.score is not None else -1.0), p.probe))[:BEST]
    for p in best:
        yield from [p.changes] * (1 + MORE - seeds.count(p.recipe.hash))


def mean(scores: tuple[float, ...] | list[float]) -> float:
    return sum(scores) / len(scores) if scores else -1.0


def firsts(briefing: Briefing) -> dict[str, float]:
    """Recipe hash -> score of its first training, which is what a stage decides by: a failed or invalid one is 0."""
    out: dict[str, float] = {}
    for p in briefing.probes:
        out.setdefault(p.recipe.hash, 0.0 if p.score is None or p.invalid else p.score)
    return out


def reference(run: api.Run) -> dict[str, Any]:
    """The recipe of the best mean among the start and what was confirmed, with every training."""
    start = run.state.branches["b0"].record()
    rows: dict[str, dict[str, Any]] = {
        start.recipe.hash: {"changes": {}, "scores": list(start.scores), "recipe": start.recipe}
    }
    for p in (p.record() for p in run.state.probes.values()):
        row = rows.setdefault(p.recipe.hash, {"changes": dict(p.changes), "scores": [], "recipe": p.recipe})
        row["scores"].append(0.0 if p.score is None or p.invalid else p.score)
    confirmed = {h: r for h, r in rows.items() if len(r["scores"]) > MORE}
    best = max(confirmed, key=lambda h: mean(confirmed[h]["scores"]))
    return {
        "hash": best,
        "changes": rows[best]["changes"],
        "recipe": rows[best]["recipe"],
        "mean": mean(rows[best]["scores"]),
        "start": mean(list(start.scores)),
        "rows": sorted(rows.values(), key=lambda r: -mean(r["scores"])),
        "trainings": len(run.state.probes),
    }


def written(task: str, found: Mapping[str, Any]) -> str:
    """The file that is checked in: comments with every training, the frozen recipe below."""
    lines = [
        f"# Human reference of {task}, made by `python -m bench.claim.references` on {time.strftime('%Y-%m-%d')}.",
        f"# Search split, {found['trainings']} trainings next to the starting recipe's own: "
        f"{100 * found['start']:.1f}% -> {100 * found['mean']:.1f}% (mean of three seeds, as selected).",
        "#",
    ]
    for r in found["rows"]:
        scores = ", ".join(f"{100 * s:.1f}" for s in r["scores"])
        lines.append(f"# {scores:24} {json.dumps(r['changes'], sort_keys=True) if r['changes'] else 'start'}")
    recipe = found["recipe"].canonical()
    return "\n".join([*lines, "", f'hash = "{found["hash"]}"', f"recipe = '{recipe}'", ""])


def main() -> None:
    ask = argparse.ArgumentParser(prog="bench.claim.references", description=__doc__)
    ask.add_argument("task", type=Path)
    ask.add_argument("--out", type=Path, help="run folder (default: a temporary one)")
    ask.add_argument("overrides", nargs="*", metavar="section.name=value")
    given = ask.parse_intermixed_args()
    name = load_task(given.task, given.overrides).task.name
    folder = given.out or Path(tempfile.mkdtemp(prefix="evotrainer-reference-")) / name
    if (folder / "ledger.db").exists():
        run = api.resume(folder, agent=Person())
    else:
        more = ["run.search_only=true", "run.rounds=1", f"run.probes={BUDGET}", f"run.changes={MOST}"]
        run = api.start(given.task, folder, [*more, *given.overrides], agent=Person())
    text = written(name, reference(run))
    (HERE / "references").mkdir(exist_ok=True)
    (HERE / "references" / f"{name}.toml").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
