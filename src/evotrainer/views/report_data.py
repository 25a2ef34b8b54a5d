"""What the report's scripts draw: the tree, learning curves, branches to compare, rollouts, and words for keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evotrainer.projections import text, words
from evotrainer.records.findings import HealthReport
from evotrainer.views.evidence import HealthReading
from evotrainer.views.model import TRAININGS, BranchView, RunView
from evotrainer.views.rollouts import rollout_entry, rounded

ROLLOUT_BYTES = 1_500_000
"""Most JSON bytes of rollouts in one report; quoted rollouts come first."""


def page_data(view: RunView, live: bool = False) -> dict[str, Any]:
    """All of it; of a page that is `live` without rollouts, which it asks for one by one."""
    curves, compared = curve_data(view), compare_data(view)
    return {
        "tree": tree_data(view),
        "curves": curves,
        "compare": compared,
        "rollouts": {} if live else rollout_data(view),
        "start": view.start.name if view.start else None,
        "colours": colours(view),
        "weights": {b.name: dict(b.recipe.rewards) for b in _drawn(view) if b.recipe},
        "words": metric_labels(curves, compared),
    }


def colours(view: RunView) -> dict[str, int]:
    """Branch -> its place among the colours, the same in every chart."""
    return {name: i for i, name in enumerate(b.name for b in view.branches.values() if b.recipe)}


def tree_data(view: RunView) -> list[dict[str, Any]]:
    """Nodes for the lineage tree; the root is the base policy."""
    base = next((b for b in view.branches.values() if b.recipe is None), None)
    score = base.mean("search") if base else None
    sha = view.opened.base_policy.get("sha256", "") if view.opened else ""
    sub = f"search {text.percent(score)}" if score is not None else f"weights {sha[:8]}" if sha else ""
    nodes: list[dict[str, Any]] = [
        {
            "id": base.name if base else "",
            "parent": None,
            "kind": "base",
            "title": base.name if base else "base",
            "change": "policy before RL",
            "sub": sub,
        }
    ]
    path = {b.name for b in view.path(view.champion)}
    for b in view.branches.values():
        if b.recipe is None:
            continue
        effect = b.effect
        score = b.mean("search")
        nodes.append(
            {
                "id": b.name,
                "parent": b.parent if b.parent in view.branches else nodes[0]["id"],
                "kind": b.status,
                "title": b.name + (f" · {b.version}" if b.version else ""),
                "change": text.one_line(b.facts.text("changes"), 80),
                "sub": f"{text.points(effect.mean)} pt {text.point_range(effect.low, effect.high)}"
                if effect
                else f"search {text.percent(score)}"
                if score is not None
                else "",
                "about": text.one_line(f"{b.name}: {b.facts.text('changes')}. Status: {b.status}", 300),
                "on_path": b.name in path,
                "champion": b.name == view.champion,
            }
        )
    return nodes


def curve_data(view: RunView) -> dict[str, Any]:
    """Branch -> its trials' curves as columns, and the branch it is compared with."""
    out: dict[str, Any] = {}
    for b in _drawn(view):
        trials = []
        for t in b.trials:
            if t.purpose not in TRAININGS and not t.live:
                continue
            points = t.finished.curve if t.finished else t.live
            if not points:
                continue
            rows = with_readings([with_gap(p, view.proxy) for p in points], t.finished.health if t.finished else ())
            names = sorted({k for p in rows for k in p if k != "step"})
            trials.append(
                {
                    "seed": t.seed,
                    "id": t.id,
                    **({} if t.finished else {"label": f"seed {t.seed}, training"}),
                    "x": [p.get("step", i + 1) for i, p in enumerate(rows)],
                    "y": {n: [rounded(p.get(n)) for p in rows] for n in names},
                }
            )
        if trials:
            out[b.name] = {"parent": b.parent, "trials": trials} | _first(b)
    return out


def _drawn(view: RunView) -> list[BranchView]:
    """Branches, and the search trainings that run now."""
    return [*view.branches.values(), *(p for p in view.probes.values() if any(t.live for t in p.trials))]


def _first(b: BranchView) -> dict[str, Any]:
    """What is drawn first of a branch that trains now: what it is paid, component by component, and what ends it."""
    live = [p for t in b.trials for p in t.live]
    names = {k for p in live for k in p}
    parts = sorted(k for k in names if k.startswith("rewards/"))[:5]
    telling = ["reward", *parts, "frac_reward_zero_std", "entropy", "completions/mean_length"]
    return {"first": [k for k in telling if k in names]} if live else {}


def with_readings(rows: list[dict[str, float]], health: Sequence[HealthReport]) -> list[dict[str, float]]:
    """A trial's points with what the harness read of the training at some of the steps, as `harness: <metric>`."""
    places = {int(p.get("step", i + 1)): p for i, p in enumerate(rows)}
    shift = 0 if 0 in places else 1
    for r in (HealthReading.of(None, h) for h in health):
        point = places.get(r.step - 1 + shift)
        if r.split == "train" and point is not None:
            point |= {f"harness: {m.name}": m.value for m in r.report.metrics if m.value is not None}
    return rows


def with_gap(point: Mapping[str, float], proxy: tuple[str, str] | None) -> dict[str, float]:
    """A curve's point with `proxy_gap`, where the trainer logged both components (`rewards/<name>/mean`)."""
    out = dict(point)
    if proxy:
        pair = [point.get(f"rewards/{c}/mean", point.get(c)) for c in proxy]
        if pair[0] is not None and pair[1] is not None:
            out.setdefault("proxy_gap", pair[0] - pair[1])
    return out


def compare_data(view: RunView) -> dict[str, Any]:
    """Branch -> what two branches are compared by: scores, recipe, and the means of what the harness read."""
    out: dict[str, Any] = {}
    for b in view.branches.values():
        rows = {
            "status": b.facts.text("status"),
            "search score": text.percent(b.mean("search")),
            "effect on gate": b.effect.told(b.on_fresh_seeds) if b.effect else "–",
            "CPU time": text.duration(b.cpu_s),
        }
        recipe = {k: text.value(x) for k, x in b.recipe.factors().items()} if b.recipe else {}
        read = {m.name: text.number(m.mean) for m in b.metrics if m.flag != "unseen"}
        out[b.name] = {
            "label": text.one_line(f"{b.name}: {b.facts.text('changes')}", 60),
            "facts": rows,
            "recipe": recipe,
            "metrics": read,
            "key": deciding(b, view),
        }
    return out


def metric_labels(curves: Mapping[str, Any], compared: Mapping[str, Any]) -> dict[str, str]:
    """Every metric's key that the scripts show -> its words."""
    keys = {k for c in curves.values() for t in c["trials"] for k in t["y"]}
    keys |= {k for c in compared.values() for k in c["metrics"]}
    return {k: text.one_line(words.metric(k), 120) for k in sorted(keys | {"proxy_gap"})}


def rollout_data(view: RunView) -> dict[str, Any]:
    """Rollout id -> what the dialog shows, quoted ones first, up to ROLLOUT_BYTES of JSON."""
    quoted = [q.rollout for b in view.branches.values() for f in b.findings for q in f.quotes]
    quoted += [q.rollout for v in view.coevolution.versions for q in v.body.quotes]
    sampled = [i for b in view.branches.values() for i, _ in b.samples]
    out: dict[str, Any] = {}
    room = ROLLOUT_BYTES
    for rollout in dict.fromkeys(quoted + sampled):
        if rollout not in view.rollouts:
            continue
        entry = rollout_entry(view.rollouts[rollout])
        room -= len(text.script_json(entry))
        if room < 0:
            break
        out[rollout] = entry
    return out


ALWAYS = ("accuracy", "proxy_gap")


def deciding(b: BranchView, view: RunView) -> list[str]:
    """Names of the metrics: the score, proxy and true component and their gap, what its recipe pays, what it or a
    branch made from it predicted, and what lies outside its healthy range."""
    pair = view.proxy or ()
    paid = [k for k, w in b.recipe.rewards.items() if w] if b.recipe else []
    components = [n for c in (*pair, *paid) for n in (f"rewards/{c}/mean", c)]
    near = [x for x in view.branches.values() if x.intervention and b.name in (x.name, x.parent)]
    predicted = [x.intervention.prediction.metric for x in near if x.intervention]
    outside = [m.name for m in b.metrics if m.flag in ("low", "high")]
    seen = {m.name for m in b.metrics if m.flag != "unseen"}
    return [n for n in dict.fromkeys((*ALWAYS, *components, *predicted, *outside)) if n in seen]
