"""`harness`: the versions of a run's harness. `admit-detector`: a detector of one's own, tried on recorded runs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import ConfigError
from evotrainer.records.output import print

if TYPE_CHECKING:
    from evotrainer.api import Run
    from evotrainer.records.chain import Event
    from evotrainer.records.events import GapSeen, HarnessEvolved
    from evotrainer.records.evidence import Admission, DetectorSpec


def harness(folder: Path, version: str | None, *, as_json: bool) -> None:
    """The lineage of versions, or one of them in detail; ConfigError for a version that is not there."""
    from evotrainer import api

    events = api.open_run(folder).events()
    versions: list[HarnessEvolved] = [e.body for e in events if e.kind == "harness"]
    if not versions:
        print("h0: this run's ledger records no harness versions (it was begun by an older version)")
        return
    if version is None:
        print(json.dumps(lineage_json(events), indent=1) if as_json else "\n".join(lineage_lines(events)))
        return
    body = next((v for v in versions if v.version == version), None)
    if body is None:
        raise ConfigError(f"no harness {version!r} in {folder}; there are: {', '.join(v.version for v in versions)}")
    print(body.model_dump_json(indent=1) if as_json else "\n".join(version_lines(body, events)))


def lineage_json(events: Sequence[Event]) -> dict[str, Any]:
    """Versions and gaps as plain data; of each version its diff and what led to it, not the whole."""
    versions = [e.body for e in events if e.kind == "harness"]
    return {
        "versions": [v.model_dump(mode="json", exclude={"harness"}) for v in versions],
        "gaps": [e.body.model_dump(mode="json") for e in events if e.kind == "gap"],
        "in_force": versions[-1].version if versions else "h0",
    }


def lineage_lines(events: Sequence[Event]) -> list[str]:
    """Every gap and version in the order in which they came."""
    out: list[str] = []
    for e in events:
        if e.kind == "gap":
            out += gap_lines(e.body)
        elif e.kind == "harness":
            out += _head(e.body)
            out += [f"       {line}" for line in _diff(e.body)]
        elif e.kind == "audited":
            a = e.body.audit
            word = "CONFIRMED" if a.confirmed else "not confirmed"
            out.append(f"  audit of {a.branch} with {a.capability} closed, asked by {a.trigger}: {word}")
        elif e.kind == "invalidated":
            out.append(f"  {', '.join((e.body.branch, *e.body.descendants))} invalid; champion {e.body.champion}")
    return out


def _head(v: HarnessEvolved) -> list[str]:
    n = len(v.harness.get("detectors", ())), len(v.harness.get("authored", ()))
    came = f" from {v.parent}" if v.parent else ""
    size = f"{n[0]} built-in detectors" + (f", {n[1]} of its own" if n[1] else "")
    return [
        f"{v.version}{came} ({v.trigger}, {'before the rounds' if not v.round else f'round {v.round}'}): {size}",
        f"     {v.reason}",
    ]


def _diff(v: HarnessEvolved) -> list[str]:
    return [
        *(f"+ {s.name} ({s.standing}): rollouts that {_says(s)}; from {s.warn:.0%} of a reading on" for s in v.added),
        *(f"- {name}" for name in v.dropped),
        *(f"~ {name}: {standing}" for name, standing in v.changed.items()),
        *(f"~ {name} = {x:g}" for name, x in v.thresholds.items()),
    ]


def _says(s: DetectorSpec) -> str:
    from evotrainer.harness.evolving.authored import describe

    return describe(s)


def gap_lines(g: GapSeen) -> list[str]:
    """A gap and what was considered for it."""
    if g.trigger == "agent":
        out = [f"  proposed in round {g.round}: {g.claim}"]
    else:
        out = [f"  gap ({g.trigger.replace('_', ' ')}) in {g.branch} against {g.against}, under {g.harness}: {g.claim}"]
    if g.candidates:
        out.append(f"     {g.candidates} predicates compared on {', '.join(g.mined)}")
    out += [f"     {'admitted' if a.admitted else 'refused '} {a.detector.name}: {a.reason}" for a in g.considered]
    return [*out, f"     {g.reason}"] if g.reason else out


def version_lines(v: HarnessEvolved, events: Sequence[Event]) -> list[str]:
    """One version in detail: diff, reason, backtest of each detector, rollouts, verdicts that would flip, what came of it."""
    out = [*_head(v), f"     hash {v.hash}", *(f"  {line}" for line in _diff(v))]
    for a in v.admissions:
        out += ["", *admission_lines(a)]
    if v.quotes:
        out += ["", "  rollouts it speaks of"]
        out += [f"    {q.rollout[:12]}  {q.text!r}" for q in v.quotes]
    if v.added:
        out += ["", "  past verdicts that would flip: " + ("none" if not v.flips else "")]
        out += [f"    {f.branch}: {f.was} -> {f.would} ({f.detector}: {f.share:.0%} of its rollouts)" for f in v.flips]
    added = {s.name for s in v.added}
    asked = [e.body.audit for e in events if e.kind == "audited" and e.body.audit.trigger in added]
    out += [f"  audit of {a.branch}, asked by {a.trigger}: {a.reason}" for a in asked]
    readings = [e for e in events if e.kind == "diagnosed" and any(f.detector in added for f in e.body.health.findings)]
    out += [f"  speaks in {e.id} (`evotrainer health RUN {e.body.health.subject.split('@')[0]}`)" for e in readings]
    return out


def admission_lines(a: Admission) -> list[str]:
    """A detector's backtest as lines of text."""
    n = a.numbers
    out = [f"  {a.detector.name}: {'admitted' if a.admitted else 'refused'}", f"    {a.reason}"]
    if "share_bad" in n:
        out.append(f"    held out: bad {', '.join(sorted(a.bad))}; clean {', '.join(sorted(a.clean))}")
        out.append(
            f"    flagged share  bad {n['share_bad']:.1%}  clean {n['share_clean']:.1%} (at most {n['clean_high']:.1%})"
            + (f"; when mined {n['mined_bad']:.1%} against {n['mined_clean']:.1%}" if "mined_bad" in n else "")
        )
        rates = [f"{k} {n[k]:.0%}" for k in ("precision", "recall", "false_positive_rate") if k in n]
        lead = f"; lead {n['lead_steps']:g} steps" if "lead_steps" in n else ""
        out.append(f"    over {n.get('versions', 0):.0f} held-out versions: {', '.join(rates).replace('_', ' ')}{lead}")
        if "overlap" in n:
            out.append(f"    overlap {n['overlap']:.2f}" + (f" with {a.overlaps}" if a.overlaps else ""))
        out.append(f"    {n['cpu_s_per_1000']:.3g} CPU-s per 1,000 rollouts")
    return out


# -- admission offline -------------------------------------------------------------------------------------------------


def admit_detector(spec: Path, runs: Sequence[Path], bad: Sequence[str], clean: Sequence[str], *, as_json: bool) -> int:
    """Try a detector on recorded runs by the loop's own rules; 0 where it would be admitted, 1 where it is refused."""
    from evotrainer import api
    from evotrainer.harness import Harness
    from evotrainer.harness.evolving.admission import admit
    from evotrainer.run.detector_runner import SandboxRunner

    detector = read_spec(spec)
    opened = [api.open_run(r) for r in runs]
    sides = _sides(opened, bad, clean)
    runner = SandboxRunner(any(r.task.sandbox.accept_tier_e for r in opened))
    in_force = [e.body for r in opened for e in r.events() if e.kind == "harness"]
    authored = {s.name: s for body in in_force[-1:] for s in Harness.model_validate(body.harness).authored}
    builtin = Harness.model_validate(in_force[-1].harness).detectors if in_force else Harness.default().detectors
    a = admit(
        detector,
        sides[0],
        sides[1],
        builtin=builtin,
        authored=[s for name, s in authored.items() if name != detector.name],
        runner=runner,
        spent=runner.spent,
    )
    lines = [line.removeprefix("  ") for line in admission_lines(a)]
    lines.append("  every seed counts as held out here; in a run, those that were mined or shown to an agent do not")
    print(a.model_dump_json(indent=1) if as_json else "\n".join(lines))
    return 0 if a.admitted else 1


def read_spec(path: Path) -> DetectorSpec:
    """A detector from a TOML file; `source_file` beside it may hold the function. ConfigError names what is wrong."""
    from pydantic import ValidationError

    from evotrainer.records.evidence import DetectorSpec
    from evotrainer.records.recipe import explain

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        if file := values.pop("source_file", None):
            values["source"] = (path.parent / str(file)).read_text(encoding="utf-8")
        return DetectorSpec.model_validate({"standing": "suspect", **values})
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read the detector: {e}") from None
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"{path} is not valid TOML: {e}") from None
    except ValidationError as e:
        raise ConfigError(f"{path}: {explain(e, DetectorSpec)}") from None


def _sides(runs: Iterable[Run], bad: Sequence[str], clean: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(bad, clean) versions of runs, by trial; without names the runs' own records tell which is which."""
    from evotrainer.projections.branches import BASE
    from evotrainer.run.contrasts import rising_branches
    from evotrainer.run.rollouts import RolloutReader

    sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    known: set[str] = set()
    for run in runs:
        events, tree = run.events(), run.state
        audited = {e.body.audit.branch for e in events if e.kind == "audited"}
        suspected = rising_branches(events) - audited
        for e in events:
            if e.kind != "finished" or e.body.status != "complete" or not _own(e.body.trial, e.body.branch):
                continue
            name = e.body.branch
            known.add(name)
            listed = bool(bad or clean)
            is_bad = name in bad if listed else name in tree.invalid or name in suspected
            if (listed and name not in (*bad, *clean) and name != BASE) or (clean and not is_bad and name not in clean):
                continue
            reader = RolloutReader(run.folder)
            if reader.search(e.body.trial).n:
                sides[0 if is_bad else 1][f"{run.folder.name}/{e.body.trial} search"] = reader.views(e.body.trial)
    if unknown := sorted({*bad, *clean} - known):
        raise ConfigError(
            f"no finished branch {', '.join(unknown)} in these runs; there are: {', '.join(sorted(known)) or 'none'}"
        )
    return sides


def _own(trial: str, branch: str) -> bool:
    """Is it a branch's own training (or the base policy), not an evaluation that repeats one?"""
    return trial == branch or (trial.startswith(f"{branch}-s") and trial.removeprefix(f"{branch}-s").isdigit())
