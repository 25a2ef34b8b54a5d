"""One-shot terminal renderings of parts of a run folder: branch, trial, rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.errors import ConfigError
from evotrainer.projections.text import (
    clean,
    differing,
    duration,
    number,
    of_run,
    one_line,
    percent,
    value,
)
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.views import rollout_samples
from evotrainer.views.fold import load_view
from evotrainer.views.model import BranchView, RunView, TrialView
from evotrainer.views.rollouts import facts_of
from evotrainer.views.style import PURPOSE
from evotrainer.views.tables import facts_grid, ruled_table
from evotrainer.views.tree import branch_line

if TYPE_CHECKING:
    from rich.console import RenderableType

FINDINGS_SHOWN = 5
SAMPLES_SHOWN = 6


def render_branch(run_folder: Path | str, branch: str) -> RenderableType:
    """Intervention, verdict, gates, trials, findings and recipe diff of a branch; ConfigError for an unknown one."""
    from rich.console import Group
    from rich.text import Text

    view = load_view(run_folder)
    b = view.branches.get(view.branch_of(branch)) or view.probes.get(branch)
    if b is None:
        raise ConfigError(f"no branch {branch!r} in {run_folder}; there are: {', '.join(view.branches) or 'none yet'}")
    parts: list[RenderableType] = [Text.assemble(*branch_line(b)), Text(""), facts_grid(_branch_facts(b, view))]
    if b.verdict and b.verdict.gates:
        marks = {True: "✓ passed", False: "✗ not passed", None: "~ undecided"}
        parts += [
            Text(""),
            ruled_table(
                ["gate", "result", "why"],
                ([g.gate, marks[g.passed], of_run(g.message, run_folder)] for g in b.verdict.gates),
            ),
        ]
    parts += [Text(""), ruled_table(_TRIAL_HEAD, (_trial_row(t) for t in b.trials))]
    for f in b.findings[:FINDINGS_SHOWN]:
        parts += [
            Text(""),
            Text.assemble(
                (f"{f.severity} ", "bold red" if f.severity == "critical" else "yellow"),
                (f.detector if f.detector == f.kind else f"{f.detector} (a case of {f.kind})", "bold"),
                f"  {one_line(f.finding.claim, 400)}" + (f" ({f.of})" if f.of else ""),
            ),
        ]
        parts += [
            Text(f"    {q.rollout[:12]}  {one_line(q.text, 100)}  {one_line(q.note, 100)}", style="dim")
            for q in f.quotes[:3]
        ]
    if b.samples:
        rows = ([r.id[:12], why, one_line(r.task, 40), number(r.reward)] for r, why in _sampled(b, view))
        parts += [Text(""), ruled_table(["rollout", "kind", "task", "reward"], rows)]
    if b.recipe_diff:
        parts += [
            Text(""),
            ruled_table(
                ["factor", b.parent or "", b.name],
                # of rewards all that is paid: what is left out would look unpaid
                (
                    [k, *map(value, (o, n) if k == "rewards" else differing(o, n))]
                    for k, (o, n) in b.recipe_diff.items()
                ),
            ),
        ]
    for what, name, lines in b.wrote:
        parts += [Text(""), Text(one_line(f"{what} of {name}"), style="bold"), Text("\n".join(map(clean, lines)))]
    return Group(*parts)


def _sampled(b: BranchView, view: RunView) -> list[tuple[Rollout, str]]:
    return [(view.rollouts[i], why) for i, why in b.samples if i in view.rollouts][:SAMPLES_SHOWN]


def _read_by(b: BranchView) -> str:
    """Versions of the harness that its findings are of: of all seeds together, as `health` has it, and of others."""
    whole, single = ([r.report.harness for r in b.readings if (r.seed is None) == w] for w in (True, False))
    if not whole:
        return ""
    others = ", ".join(sorted({*single} - {whole[-1]}))
    return f"harness {whole[-1]}" + (f"; single seeds by {others}, as they were trained" if others else "")


def _branch_facts(b: BranchView, view: RunView) -> list[tuple[str, str]]:
    out = [("parent", f"{b.parent}, round {b.round}")] if b.intervention else []
    facts = (f for f in b.facts if f.kind not in ("status", "changes"))  # these are the line above
    out += [(f.label, of_run(f.text, view.folder)) for f in facts]
    out += [("read by", text)] if (text := _read_by(b)) else []
    return [*out, ("recipe", b.recipe_hash)] if b.recipe else out


_TRIAL_HEAD = ["trial", "purpose", "status", "search", "gate", "steps", "CPU", "resumed"]


def _trial_row(t: TrialView) -> list[str]:
    f, s, g = t.finished, t.score("search"), t.score("gate")
    status = t.status if not f or f.status == "complete" else f"failed: {f.label or 'no label'}"
    scores = [percent(x.score if x else None) for x in (s, g)]
    resumed, cached = (
        f"{f.resumed}×" if f and f.resumed else "no",
        " (cache)" if f and f.cached and not f.cached.begun else "",
    )
    return [
        t.id,
        PURPOSE.get(t.purpose, t.purpose),
        status,
        *scores,
        str(f.steps) if f else "",
        duration(t.cpu_s) + cached,
        resumed,
    ]


def render_trial(run_folder: Path | str, trial: str) -> RenderableType:
    """Status, scores and cost of a trial; ConfigError for an unknown one."""
    from rich.console import Group
    from rich.text import Text

    view = load_view(run_folder, rollouts=False)
    t = next((t for t in view.trials if t.id == trial), None)
    if t is None:
        raise ConfigError(
            f"no trial {trial!r} in {run_folder}; there are: {', '.join(t.id for t in view.trials) or 'none yet'}"
        )
    f = t.finished
    facts = [
        ("trial", t.id),
        ("branch", t.branch),
        ("seed", str(t.seed)),
        ("purpose", PURPOSE.get(t.purpose, t.purpose)),
        ("status", "failed; a resume tries it again" if t.error and not f else t.status),
    ]
    if f is None:
        facts += [("error", t.error)] if t.error else []
        facts += [("last heartbeat", value(dict(t.heartbeat)) if t.heartbeat else "none")]
        facts += [("log", str(Path(run_folder) / "trials" / t.id / "log.txt"))] if t.heartbeat or t.error else []
        return facts_grid(facts)
    facts += [("error", f"{f.label}: {f.error}")] if f.status == "failed" else []
    facts += [
        ("CPU time", duration(f.cpu_s) + (f"; {duration(f.cached.cpu_s)} saved by the cache" if f.cached else "")),
        ("wall time", duration(f.wall_s)),
        ("steps", str(f.steps)),
        ("resumed", f"{f.resumed}×"),
        ("peak memory", f"{number(f.peak_rss_mb, 4)} MB"),
        ("policy", f"{f.policy_path} {f.policy_sha256}"),
    ]
    scores = (
        [
            s.split,
            str(s.step),
            *map(percent, (s.score, s.greedy)),
            ", ".join(f"{k} {percent(v)}" for k, v in s.components.items()),
            str(s.errors),
        ]
        for s in f.scores
    )
    parts: list[RenderableType] = [
        facts_grid(facts),
        Text(""),
        ruled_table(["split", "step", "score", "greedy", "components", "faults"], scores),
    ]
    if f.curve:
        keys = [
            k
            for k in ("reward", "score", "frac_reward_zero_std", "entropy", "completions/mean_length")
            if any(k in p for p in f.curve)
        ]
        picked = f.curve[:: max(len(f.curve) // 8, 1)]
        parts += [
            Text(""),
            ruled_table(["step", *keys], ([number(p.get("step")), *(number(p.get(k)) for k in keys)] for p in picked)),
        ]
    return Group(*parts)


def find_rollout(run_folder: Path | str, rollout: str) -> Rollout:
    """A train or search rollout by id or a unique start of at least 4 digits; ConfigError where there is none."""
    found = rollout_samples.find(Path(run_folder), rollout)
    if found is None:
        view = load_view(run_folder, rollouts=False)
        probes = list(view.probes)
        searched = f"; search trainings: {probes[0]} to {probes[-1]}" if probes else ""
        raise ConfigError(
            f"no branch, trial or readable rollout {one_line(rollout, 60)!r} in {run_folder}; branches: "
            f"{', '.join(view.branches) or 'none yet'}{searched}; trials and rollout ids (4 digits or more) are in "
            f"`evotrainer show {run_folder} BRANCH`, and gate and cert rollouts are never shown"
        )
    return found


def render_rollout(run_folder: Path | str, rollout: str) -> RenderableType:
    """A train or search rollout in full, by id or a unique start of 4 digits; ConfigError where there is none."""
    return rollout_in_full(find_rollout(run_folder, rollout))


def turn_panels(turns: Sequence[Turn]) -> list[RenderableType]:
    """Turns with their calls, one panel each."""
    from rich.panel import Panel
    from rich.text import Text

    calls = ["".join(f"\n→ {c.name} {c.arguments}{' (failed)' * (c.ok is False)}" for c in t.tool_calls) for t in turns]
    return [
        Panel(Text(clean(t.text + c)), title=Text(t.role), title_align="left", border_style="dim", expand=False)
        for t, c in zip(turns, calls, strict=True)
    ]


def rollout_in_full(r: Rollout) -> RenderableType:
    """Turns, tests, components and facts of a rollout."""
    from rich.console import Group

    parts = turn_panels(r.turns)
    tests = r.detail.get("tests")
    if isinstance(tests, list | tuple) and tests:
        keys = ("kind", "input", "expected", "got", "status", "error")
        parts.append(
            ruled_table(
                keys,
                (
                    [one_line(t.get(k) if t.get(k) is not None else "", 120) for k in keys]
                    for t in tests
                    if isinstance(t, Mapping)
                ),
            )
        )
    parts.append(ruled_table(["component", "value"], ([k, number(v)] for k, v in r.components.items())))
    facts = [("task", r.task), ("outcome", r.outcome), ("reward", number(r.reward)), *facts_of(r)]
    parts.append(facts_grid((k, str(v)) for k, v in facts))
    return Group(*parts)
