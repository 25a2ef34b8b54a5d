"""Claims of the ledger computed again from its own bodies and from the stored rollouts: behind `verify` and `why`.

`records.verify` holds what the records prove by themselves. Here are the checks that need the judge, the harness or the skills;
`CHECKS` is the one table of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import EvoTrainerError, IntegrityError
from evotrainer.projections.lineage import BASE, Lineage, last_audits
from evotrainer.records.events import TrialFinished
from evotrainer.records.evidence import Capability
from evotrainer.records.names import measured, read_label
from evotrainer.run import skills as librarian
from evotrainer.verify import chain_and_files as records_verify
from evotrainer.verify.chain_and_files import Check, Problem, Record, VerifyReport, verify_run

if TYPE_CHECKING:
    from evotrainer.config.task import TaskFile
    from evotrainer.judge import JudgeConfig, Look
    from evotrainer.records.chain import Event
    from evotrainer.records.events import Certified, RunOpened
    from evotrainer.records.rollout import Rollout

CLOSE = 1e-9
"""Largest difference between a recorded and a recomputed number."""


def verify(folder: Path, head: str = "") -> VerifyReport:
    """Check a run folder whole, every claim that can be computed again included."""
    return verify_run(folder, CHECKS, head)


# -- what a claim is computed from -------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _task(path: Path, mtime_ns: int) -> TaskFile:
    from evotrainer.config.task import load_task

    return load_task(path)


def task_of(record: Record) -> TaskFile:
    """The run's task file. ConfigError where it is missing or damaged."""
    path = record.folder / "task.toml"
    return _task(path, path.stat().st_mtime_ns if path.is_file() else 0)


def judge_config(task: TaskFile) -> JudgeConfig:
    """The judge's settings as the loop hands them over."""
    from evotrainer.judge import JudgeConfig

    return JudgeConfig(**task.judge.model_dump(include=set(JudgeConfig.model_fields)))


def opened(record: Record) -> RunOpened:
    """The event the run began with."""
    body: RunOpened = record.of("run")[0].body
    return body


def capabilities(run: RunOpened) -> list[Capability]:
    """What the environment declared as closable."""
    return [Capability.model_validate(c) for c in run.environment.get("capabilities", ())]


def proxy_of(run: RunOpened) -> tuple[str, str] | None:
    """The environment's (proxy, true) reward components."""
    p = run.environment.get("proxy")
    return (p[0], p[1]) if p else None


def trainings(record: Record, branch: str, seeds: Sequence[int], before: Event) -> list[TrialFinished]:
    """A branch's own trainings on some seeds, finished before an event."""
    done = [e.body for e in record.before(before, "finished") if e.body.branch == branch and e.body.seed in set(seeds)]
    return [t for t in done if t.trial == f"{branch}-s{t.seed}"]


def owed(record: Record, branch: str, before: Event) -> list[str]:
    """Trials that a branch is judged by at an event: those of `run.seeds`, then those that top-ups gave."""
    seeds = list(task_of(record).run.seeds)
    for e in record.before(before, "topup"):
        seeds += e.body.seeds if e.body.branch == branch else ()
        seeds += e.body.control_seeds if e.body.control == branch else ()
    return [f"{branch}-s{s}" for s in dict.fromkeys(seeds)]


def unexplained(record: Record, branch: str, before: Event) -> list[str]:
    """A branch's finished trainings that are neither owed nor certification's."""
    run = task_of(record).run
    names = {*owed(record, branch, before), *(f"{branch}-s{s}" for s in run.certify_seeds)}
    done = [e.body for e in record.before(before, "finished") if e.body.branch == branch]
    return [t.trial for t in done if t.trial == f"{branch}-s{t.seed}" and t.trial not in names]


def complete(record: Record, names: Sequence[str], before: Event) -> list[TrialFinished]:
    """The complete ones of some trials, as far as they had finished before an event."""
    done = {e.body.trial: e.body for e in record.before(before, "finished")}
    return [done[t] for t in names if t in done and done[t].status == "complete"]


def _named(area: str, event: Event, what: str, stored: Sequence[Any], due: Sequence[Any]) -> Iterator[Problem]:
    """Problem where a list in the ledger does not hold exactly what it should."""
    if sorted(stored) != sorted(due):
        left = [x for x in due if x not in stored]
        how = f"{left[0]} is left out" if left else f"{next((x for x in stored if x not in due), 'one')} is too much"
        yield Problem(area, f"{event.id}: its {what} are not all there were: {how}")


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, numbers beyond `CLOSE`; sentences are left out, the chain guards them."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = sorted((old.keys() | new.keys()) - {"reason", "message"})
        return [d for k in keys for d in differences(old.get(k), new.get(k), f"{path}.{k}".lstrip("."))]
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        return [d for i, (a, b) in enumerate(zip(old, new, strict=True)) for d in differences(a, b, f"{path}[{i}]")]
    if isinstance(old, int | float) and isinstance(new, int | float) and abs(old - new) <= CLOSE:
        return []
    return [] if old == new else [f"{path}: {old!r} in the ledger, {new!r} recomputed"]


# -- scores: what the stored rollouts say ------------------------------------------------------------------------------


def _scores(record: Record, event: Event) -> Iterator[Problem]:
    """Each score of a trial from its stored rollouts: the share of correct attempts of every task."""
    t: TrialFinished = event.body
    if t.status != "complete" or not t.parts:
        return
    try:
        found = graded(record.folder, t)
    except EvoTrainerError as e:
        yield Problem("rollouts", f"trial {t.trial}: its scores cannot be computed again: {e}")
        return
    for s in t.scores:
        per_task = found.get((s.split, s.step), {})
        record.checked["scores"] += 1
        wrong = [
            k for k in sorted(per_task.keys() | s.per_task.keys()) if not _near(per_task.get(k), s.per_task.get(k))
        ]
        if wrong:
            stored, k = per_task.get(wrong[0]), wrong[0]
            yield Problem(
                "trials",
                f"trial {t.trial}: {len(wrong)} {s.split} scores do not follow from its rollouts, e.g. task {k}: "
                f"{s.per_task.get(k)} in the ledger, {stored} in the rollouts",
            )


def _flips(record: Record, event: Event) -> Iterator[Problem]:
    """The grading canaries that flipped, from its stored rollouts; none that is void has a reward."""
    import polars as pl

    from evotrainer.records.canaries import canary_flips
    from evotrainer.records.store import scan

    t: TrialFinished = event.body
    stores = [p for p in (record.folder / kind / t.trial for kind in ("rollouts", "sealed")) if p.is_dir()]
    if t.status != "complete" or not t.parts or not stores:
        return
    try:
        found = canary_flips(stores)
        void = [i for f in t.canary_flips for i in (*f.void, *f.culprits)]
        paid = scan(stores).filter(pl.col("id").is_in(void) & pl.col("reward").is_not_null()) if void else None
        wrong = [] if paid is None else paid.select("id").collect()["id"].to_list()
    except (EvoTrainerError, pl.exceptions.PolarsError, ValueError) as e:
        yield Problem(
            "rollouts", f"trial {t.trial}: its grading canaries cannot be read again: {str(e).splitlines()[0][:120]}"
        )
        return
    if t.canary_flips:
        record.checked["canary flips"] += len(t.canary_flips)
    if found != t.canary_flips:
        yield Problem("trials", f"trial {t.trial}: its flipped canaries are not those that its rollouts tell of")
    for i in wrong[:1]:
        yield Problem(
            "rollouts", f"trial {t.trial}: rollout {i} is void, since a grading canary flipped, and has a reward"
        )


def graded(folder: Path, t: TrialFinished) -> dict[tuple[str, int], dict[str, float]]:
    """(split, step) -> task -> share of correct attempts, of the evaluations in a trial's stores."""
    import polars as pl

    from evotrainer.records.store import scan

    wanted = {(s.split, s.step) for s in t.scores}
    stores = [p for p in (folder / kind / t.trial for kind in ("rollouts", "sealed")) if p.is_dir()]
    try:
        rows = (
            scan(stores)
            .filter(pl.col("split").is_in(sorted({s for s, _ in wanted})))
            .filter(pl.col("error_kind").is_null() & (pl.col("outcome") != "unknown"))
            .group_by("split", "step", "task")
            .agg(share=(pl.col("outcome") == "correct").cast(pl.Float64).mean())
            .collect()
        )
    except pl.exceptions.PolarsError as e:
        raise IntegrityError(f"rollouts of {t.trial} are damaged ({str(e).splitlines()[0][:120]})") from e
    out: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows.iter_rows(named=True):
        key = (str(row["split"]), int(row["step"]))
        if key in wanted:
            out.setdefault(key, {})[str(row["task"])] = float(row["share"])
    return out


def _near(a: float | None, b: float | None) -> bool:
    return (a is None) == (b is None) and (a is None or b is None or abs(a - b) <= CLOSE)


# -- the judge's claims ------------------------------------------------------------------------------------------------


def _noise(record: Record, event: Event) -> Iterator[Problem]:
    from evotrainer.judge import measure_noise, scores_of

    branch = measured(event.id, event.body.branch)
    purposes = {e.body.trial: e.body.purpose for e in record.before(event, "intended")}
    done = [e.body for e in record.before(event, "finished") if e.body.branch == branch]
    own = [t for t in done if t.trial == f"{branch}-s{t.seed}" and purposes.get(t.trial) in ("noise", "branch")]
    earlier = [e.body for e in record.before(event, "noise")]
    fresh = measure_noise(
        branch,
        scores_of(own, "gate"),
        confidence=event.body.numbers.get("confidence", 0.95),
        seeds_per_branch=len(task_of(record).run.seeds),
        earlier=earlier[-1] if earlier else None,
    )
    for d in differences(event.body.model_dump(mode="json"), fresh.model_dump(mode="json")):
        yield Problem("noise", f"{event.id}: {d}")


def rejudge(record: Record, event: Event, then: Callable[..., Any] | None = None) -> Any:
    """A recorded verdict beside the one that the ledger's bodies of that time give now (`judge.Recomputed`).

    `then`: what to call with all that the verdict rests on, in place of `judge.recompute`.
    """
    from evotrainer.judge import JudgeConfig, answers, closed_world, recompute
    from evotrainer.judge.checks import findings_of

    task, run, body = task_of(record), opened(record), event.body
    stored, before = body.verdict, record.before(event)
    finished = {e.body.trial: e.body for e in before if e.kind == "finished"}

    def trials(name: str) -> list[TrialFinished]:
        if body.trials:
            return [finished[t] for t in body.trials if t in finished and finished[t].branch == name]
        return trainings(record, name, task.run.seeds, event)

    def reading(name: str) -> tuple[Any, ...]:
        own = [e.body.health.findings for e in before if e.kind == "diagnosed" and e.id.startswith(f"{name}/read")]
        return own[-1] if own else ()

    again = [finished[t] for t in body.evaluations if t in finished]

    def stand_in(name: str) -> list[TrialFinished]:
        """Trials of a branch, with the scores of the world they were judged in."""
        own = [t for t in again if t.branch == name]
        whole = [t for t in trials(name) if t.status == "complete"] if own else []
        return [*closed_world(whole, own), *(t for t in trials(name) if t not in whole)]

    config = judge_config(task)
    if not body.trials:  # a ledger that knew one look, and no effect worth more seeds
        config = config.model_copy(update={"worthwhile": None, "max_seeds": JudgeConfig().max_seeds})
    able = capabilities(run)
    audits = last_audits(before, stored.branch)
    seen = [*reading(stored.branch), *findings_of(t for t in trials(stored.branch) if t.status == "complete")]
    closed = closed_then(record.events, event.seq, able, task.recipe.knobs)
    noise = next((e.body for e in reversed(before) if e.kind == "noise"), None)
    return (then or partial(recompute, look=look_then(record, event)))(
        stored,
        stand_in(stored.branch),
        stand_in(stored.control),
        noise,
        config,
        findings=reading(stored.branch),
        control_findings=reading(stored.control),
        proxy=proxy_of(run),
        ahead=_ahead(before, stored),
        audits=answers(seen, able, audits, [*closed, *(a.capability for a in audits)]),
        shortcuts=audits,
    )


def closed_then(events: Sequence[Event], seq: int, able: Sequence[Capability], knobs: Mapping[str, Any]) -> list[str]:
    """Capabilities that were closed in the run's evaluations when event `seq` was written."""
    run = next(e.body for e in events if e.kind == "run")
    world = dict(knobs)
    for e in events:
        if e.seq >= seq:
            break
        if e.kind == "round":
            world = {**knobs, **e.body.closed}
        elif e.kind == "invalidated":
            world |= {c.knob: c.closed for c in able if c.name == e.body.capability}
    defaults = {k: str(v).split(", ")[0] for k, v in run.environment.get("knobs", {}).items()}
    return sorted(c.name for c in able if str(world.get(c.knob, defaults.get(c.knob))) == str(c.closed))


def _ahead(before: Sequence[Event], stored: Any) -> str:
    """The champion of that moment, where it is another than the verdict's control."""
    champion = Lineage.from_events(before).champion or ""
    return champion if champion != stored.control else ""


def look_then(record: Record, event: Event) -> Look:
    """The look that a verdict was owed, as the run's error budget gives it: from the verdicts before those it was looked at
    together with, and the number of these branches. IntegrityError where the ledger does not tell which look it is.
    """
    from evotrainer.judge import next_looks

    n, branch, before = event.body.round, event.body.verdict.branch, record.before(event)
    k, turns = 1, {}
    for e in before:
        if e.kind == "judged":
            turns[e.seq] = 1 + sum(1 for x in before[: e.seq - 1] if _verdict_on(x, e.body.verdict.branch))
            k += _verdict_on(e, branch)
    if k == 1:
        names = [b for e in before if e.kind == "planned" and e.body.round == n for b in e.body.branches]
    else:
        asked = [e for e in before if e.kind == "topup" and e.body.round == n and e.id.endswith(f"/topup/{k}")]
        names = [e.body.branch for e in asked if not e.body.refused]
    together = [s for s, k_ in turns.items() if (record.events[s - 1].body.round, k_) == (n, k)]
    if branch not in names or len(together) >= len(names):
        raise IntegrityError(f"{event.id}: round {n} did not look at {branch} a time number {k}, but at {names}")
    earlier = [e.body.verdict for e in before if e.kind == "judged" and e.seq not in together]
    return next_looks(earlier, task_of(record).judge.alpha, len(names))[len(together)]


def _verdict_on(event: Event, branch: str) -> bool:
    return event.kind == "judged" and event.body.verdict.branch == branch


def _judged(record: Record, event: Event) -> Iterator[Problem]:
    v = event.body.verdict
    finished = {e.body.trial for e in record.before(event, "finished")}
    if gone := sorted({*event.body.trials, *event.body.evaluations} - finished):
        yield Problem("judged", f"{event.id}: it names {gone[0]}, which had not finished")
        return
    if event.body.trials:
        both_sides = [t for x in (v.branch, v.control) for t in owed(record, x, event)]
        yield from _named("judged", event, "trials", event.body.trials, both_sides)
    for x in (v.branch, v.control):
        if more := unexplained(record, x, event):
            yield Problem("judged", f"{event.id}: {more[0]} was trained as well, and no top-up gave its seed")
    for d in rejudge(record, event).differences:
        yield Problem("judged", f"{event.id} ({v.kind}): {d}")


def _opened(record: Record, event: Event) -> Iterator[Problem]:
    """A starting recipe is the task file's, with every confirmed shortcut closed; other branches passed their backtest."""
    b = event.body
    before = record.before(event)
    if b.parent is None:
        audits = [e.body.audit for e in before if e.kind == "audited"]
        due = task_of(record).recipe
        due = due.model_copy(update={"knobs": {**due.knobs, **{a.knob: a.closed for a in audits if a.confirmed}}})
        if b.recipe.hash != due.hash:
            yield Problem("branch", f"branch {b.branch}: its recipe is not the task file's starting recipe")
        return
    tried = [e.body for e in before if e.kind == "backtested" and e.body.round == b.round]
    if not any(t.intervention == b.intervention and not t.vetoed for t in tried):
        yield Problem("branch", f"branch {b.branch}: its change was not replayed before, or was vetoed")


def _backtested(record: Record, event: Event) -> Iterator[Problem]:
    """Its numbers follow from the stored rollouts; what contradicts its own hypothesis is vetoed, where the task file asks for it."""
    b = event.body
    due = b.backtest.verdict == "contradicts" and task_of(record).run.veto
    if due and not b.vetoed:
        yield Problem("backtested", f"{event.id}: vetoed is {b.vetoed}, its backtest {b.backtest.verdict}")
    yield from (Problem("backtested", f"{event.id}: {d}") for d in backtest_again(record, event))


def backtest_again(record: Record, event: Event) -> list[str]:
    """What differs where a recorded backtest is replayed again, on the stored search rollouts that the champion of its round
    had then. StoreError where they are gone or damaged.
    """
    from evotrainer.harness import Batch, HarnessContext
    from evotrainer.harness.whatif import backtest
    from evotrainer.records.store import load
    from evotrainer.run.loop import mean_curve, mean_per_task

    b, before, task = event.body, record.before(event), task_of(record)
    champion = next(e.body.champion for e in before if e.kind == "round" and e.body.round == b.round)
    branch = Lineage.from_events(before).branches[champion]
    readings = {e.id.split("/read")[0]: e.body.health for e in before if e.kind == "diagnosed" and "/read" in e.id}
    base = readings.get(BASE)
    parent = branch.parent or ""
    came = complete(record, owed(record, parent, event) if parent else [BASE], event)
    solved = [s.per_task for t in came for s in t.scores if s.split == "search"]
    trials = complete(record, owed(record, champion, event), event)
    context = HarnessContext(
        recipe=branch.recipe,
        proxy=proxy_of(opened(record)),
        max_tokens=task.recipe.max_tokens,
        previous=tuple(h for h in (base, readings.get(parent)) if h is not None),
        base=base,
        before=mean_per_task(solved) if solved else None,
        curve=tuple(mean_curve([t.curve for t in trials])),
    )
    stores = [record.folder / "rollouts" / t.trial for t in trials if t.parts]
    rollouts = [r for store in stores for r in load([store], split="search")]
    fresh = backtest(b.intervention, branch.recipe, Batch.of(rollouts), context)
    old, new = b.backtest.model_dump(mode="json"), fresh.model_dump(mode="json")
    numbers = old.pop("numbers"), new.pop("numbers")
    wrong = differences(old, new)
    for k in sorted(numbers[0].keys() | numbers[1].keys()):
        x, y = (n.get(k) for n in numbers)
        wrong += _six(f"numbers.{k}", x, y) if None not in (x, y) else differences(x, y, f"numbers.{k}")
    return wrong


def audit_differences(record: Record, event: Event) -> list[str]:
    """Numbers of a recorded audit that the ledger's own bodies do not give again; empty where it holds."""
    from evotrainer.judge import settle_audit

    a = event.body.audit
    finished = {e.body.trial: e.body for e in record.before(event, "finished")}
    named = (a.trials_open, a.trials, a.reference_trials_open, a.reference_trials)
    if gone := [t for names in named for t in names if t not in finished]:
        return [f"it names {gone[0]}, which had not finished"]
    capability = next((c for c in capabilities(opened(record)) if c.name == a.capability), None)
    if capability is None:
        return [f"the environment declares no capability {a.capability}"]
    fresh = settle_audit(
        a.branch,
        capability,
        a.trigger,
        *([finished[t] for t in names] for names in named),
        split=a.split,
        min_effect=task_of(record).judge.min_effect,
        confidence=a.confidence,
        measure=a.measure,
    )
    return differences(
        a.model_dump(mode="json", exclude={"trigger", "reference"}),
        fresh.model_dump(mode="json", exclude={"trigger", "reference"}),
    )


def _looked_at(record: Record, event: Event) -> Iterator[Problem]:
    """An audit compares every complete trial of the branch, each in a world with the capability open and in one with it closed."""
    a, run = event.body.audit, opened(record)
    finished = {e.body.trial: e.body for e in record.before(event, "finished")}
    default = str(run.environment.get("knobs", {}).get(a.knob, "")).split(", ")[0]
    own = [t.trial for t in complete(record, owed(record, a.branch, event), event)]
    for what, due, value in (
        ("trials_open", own, a.open),
        ("trials", own, a.closed),
        ("reference_trials_open", [BASE], a.open),
        ("reference_trials", [BASE], a.closed),
    ):
        names = getattr(a, what)
        repeated = [next((t for t in due if _repeats(finished, n, t)), n) for n in names]
        yield from _named("audited", event, what, repeated, due)
        for n in names:
            if n in finished and str(finished[n].world.get(a.knob, default)) != str(value):
                yield Problem("audited", f"{event.id}: {n} was not evaluated with {a.knob} = {value}")


def _repeats(finished: Mapping[str, TrialFinished], evaluation: str, trial: str) -> bool:
    """Is it that trial itself, or an evaluation of the same branch's policy of the same seed?"""
    a, b = finished.get(evaluation), finished.get(trial)
    return evaluation == trial or (a is not None and b is not None and (a.branch, a.seed) == (b.branch, b.seed))


def _audited(record: Record, event: Event) -> Iterator[Problem]:
    yield from _looked_at(record, event)
    yield from (Problem("audited", f"{event.id}: {d}") for d in audit_differences(record, event))


def _reestimated(record: Record, event: Event) -> Iterator[Problem]:
    from evotrainer.run.fresh_seeds import START, again

    r = event.body
    finished = {e.body.trial for e in record.before(event, "finished")}
    if gone := sorted({*r.trials, *r.control_trials, *r.start_trials, *r.evaluations} - finished):
        yield Problem("reestimated", f"{event.id}: it names {gone[0]}, which had not finished")
        return
    fresh = {x: _fresh(record, x, event) for x in (r.branch, r.control, START)}
    own = {x: [t.trial for t in complete(record, owed(record, x, event), event)] for x in (r.control, START)}
    sides = {
        "trials": fresh[r.branch],
        "control_trials": fresh[r.control] or own[r.control],
        "start_trials": (fresh[START] or own[START]) if r.control != START else [],
    }
    for what, due in sides.items():
        yield from _named("reestimated", event, what, getattr(r, what), due)
    verdicts = [e.body.verdict for e in record.before(event, "judged") if e.body.verdict.branch == r.branch]
    noise = record.before(event, "noise")
    expected = {
        "control_fresh": bool(fresh[r.control]),
        "selected": verdicts[-1].effect if verdicts else None,
        "noise": noise[-1].id if noise else "",
        "seeds": tuple(sorted(t.seed for t in complete(record, r.trials, event))),
    }
    for what, value in expected.items():
        if getattr(r, what) != value:
            yield Problem("reestimated", f"{event.id}: {what}: {getattr(r, what)} in the ledger, {value} recomputed")
    yield from (Problem("reestimated", f"{event.id}: {d}") for d in again(r, record.before(event)))


def _fresh(record: Record, branch: str, before: Event) -> list[str]:
    """A branch's complete trainings on certification's seeds."""
    names = [f"{branch}-s{s}" for s in task_of(record).run.certify_seeds]
    return [t.trial for t in complete(record, names, before)]


def _topup(record: Record, event: Event) -> Iterator[Problem]:
    """A top-up answers a verdict that asked for so many seeds."""
    from evotrainer.judge import seeds_wanted

    t = event.body
    said = [e.body.verdict for e in record.before(event, "judged") if e.body.verdict.branch == t.branch]
    if not said or seeds_wanted(said[-1]) != t.wanted:
        yield Problem("topup", f"{event.id}: no verdict on {t.branch} asks for {t.wanted} seeds")
    if t.refused and (t.seeds or t.control_seeds):
        yield Problem("topup", f"{event.id}: seeds are given and refused")


def _read_cert(trials: Sequence[TrialFinished], name: str) -> bool:
    """Did a trial read cert, or not finish complete?"""
    return any(t.trial == name and (t.status != "complete" or any(s.split == "cert" for s in t.scores)) for t in trials)


def _certified(record: Record, event: Event) -> Iterator[Problem]:
    from evotrainer.judge import CertEntry, certify
    from evotrainer.run.fresh_seeds import START

    body = event.body
    champion = Lineage.from_events(record.before(event)).champion or BASE
    if body.champion != champion:
        yield Problem("certified", f"{body.champion} is certified as champion; it was {champion}")
    due = [("base", BASE), ("start", START)] + ([("champion", champion)] if champion not in (BASE, START) else [])
    yield from _named("certified", event, "rows", [(row.name, row.branch) for row in body.rows], due)
    entries = []
    for row in body.rows:
        done = [e.body for e in record.before(event, "finished") if e.body.branch == row.branch]
        read = {t.seed: s for t in done if t.status == "complete" for s in t.scores if s.split == "cert" and s.per_task}
        scores = {seed: read[seed] for seed in row.seeds if seed in read}
        seeds = task_of(record).run.certify_seeds if row.name == "champion" else ()
        names = owed(record, START, event) if row.name == "start" else [f"{row.branch}-s{s}" for s in seeds]
        asked = {t.seed for t in complete(record, names, event)}
        finished = {t.trial for t in done}
        gone = [n for n in names if n in finished and f"{n}-cert" not in finished and not _read_cert(done, n)]
        if gone or (row.name == "champion" and asked != set(seeds)):
            yield Problem(
                "certified", f"{row.name}: cert was not read of all of its trainings: {gone or sorted(asked)}"
            )
        if set(scores) != set(read) or set(scores) != set(row.seeds):
            yield Problem(
                "certified", f"{row.name}: seeds {row.seeds} were certified, cert was read of {sorted(scores)}"
            )
            return
        entries.append(CertEntry(name=row.name, branch=row.branch, scores=scores))
    noise = record.before(event, "noise")
    fresh = certify(entries, body.champion, proxy=proxy_of(opened(record)), noise=noise[-1].body if noise else None)
    fresh = _gains_again(record, event, fresh)
    for d in differences(body.model_dump(mode="json"), fresh.model_dump(mode="json")):
        yield Problem("certified", d)


def _gains_again(record: Record, event: Event, fresh: Certified) -> Certified:
    """The recomputed certificate with what each recorded gain goes with, from the stored rollouts; older ledgers hold none."""
    from evotrainer.records.store import load
    from evotrainer.run.gains import gain_of

    def search(trial: str) -> list[Rollout]:
        return load([record.folder / "rollouts" / trial], split="search")

    recorded = {r.name for r in event.body.rows if r.gained is not None}
    before = record.before(event)
    rows = [
        r.model_copy(update={"gained": gain_of(r, before, search)}) if r.name in recorded else r for r in fresh.rows
    ]
    return fresh.model_copy(update={"rows": tuple(rows)})


# -- the harness's versions --------------------------------------------------------------------------------------------


def _gap(record: Record, event: Event) -> Iterator[Problem]:
    """A gap names branches and trials there were, under the harness in force, and admits no name twice."""
    g, before = event.body, record.before(event)
    known = {BASE, "", *(e.body.branch for e in before if e.kind == "branch")}
    for name in {g.branch, g.against} - known:
        yield Problem("gap", f"{event.id}: branch {name} was never opened")
    in_force = [e.body.version for e in before if e.kind == "harness"]
    if in_force and g.harness != in_force[-1]:
        yield Problem("gap", f"{event.id}: names harness {g.harness}; in force was {in_force[-1]}")
    finished = {e.body.trial for e in before if e.kind == "finished"}
    named = [x for a in g.considered for x in (*a.bad, *a.clean)]
    for text in sorted({*g.mined, *named}):
        if read_label(text).trial not in finished:
            yield Problem("gap", f"{event.id}: looks at {text}, which had not finished")
    names = [a.detector.name for a in g.considered]
    used = {a.detector.name for e in before if e.kind == "gap" for a in e.body.considered if a.admitted}
    for name in sorted({n for n in names if names.count(n) > 1} | (used & set(names))):
        if any(a.detector.name == name and a.admitted for a in g.considered):
            yield Problem("gap", f"{event.id}: the name {name} was used before")
    if not {read_label(x).trial for x in named} - finished:
        from evotrainer.run.harness_versions import gap_problems

        yield from (Problem("gap", f"{event.id}: {p}") for p in gap_problems(record.folder, event))


def _harness(record: Record, event: Event) -> Iterator[Problem]:
    """A version is its parent with the recorded difference, its hash is that of its content, its detectors were admitted."""
    from evotrainer.run.harness_versions import version_of

    h, earlier = event.body, record.before(event, "harness")
    whole = version_of(h)
    if (whole.hash, whole.version) != (h.hash, h.version):
        yield Problem("harness", f"{h.version}: hash {h.hash} recorded, {whole.hash} computed from {whole.version}")
    if h.version != f"h{len(earlier)}":
        yield Problem("harness", f"{event.id} gives version {h.version}; it is version number {len(earlier)}")
    if not earlier:
        return
    parent = version_of(earlier[-1].body)
    if h.parent != parent.version:
        yield Problem("harness", f"{h.version} follows {h.parent}; in force was {parent.version}")
        return
    named = {s.name: s for s in parent.authored}
    if gone := sorted(h.changed.keys() - named.keys()):
        yield Problem("harness", f"{h.version} changes {gone[0]}, which {parent.version} has not")
        return
    moved = [named[k].model_copy(update={"standing": v}) for k, v in h.changed.items()]
    fresh = parent.evolve(h.version, drop=h.dropped, authored=[*h.added, *moved])
    if fresh.hash != h.hash:
        yield Problem("harness", f"{h.version} is not {h.parent} with what it says was changed: {fresh.hash} computed")
    gap = next((e.body for e in record.before(event, "gap") if e.id == h.gap), None)
    if h.gap and gap is None:
        yield Problem("harness", f"{h.version} answers {h.gap}, which was not recorded")
    if gap is not None and gap.considered != h.admissions:
        yield Problem("harness", f"{h.version}: its admissions are not those of {h.gap}")
    admitted = [a.detector for a in h.admissions if a.admitted]
    for spec in h.added:
        if spec not in admitted:
            yield Problem("harness", f"{h.version} holds detector {spec.name}, which was not admitted")


def admissions_again(record: Record, event: Event) -> list[tuple[str, list[str]]]:
    """(detector, what differs) of every detector a gap or a version considered and tried: its admission test, run again on
    the stored rollouts of the held-out versions. Measured times and lead times are left out.
    """
    from evotrainer.harness.evolving.admission import admit
    from evotrainer.run.harness_versions import SandboxRunner, named_views, version_of

    considered = event.body.considered if event.kind == "gap" else event.body.admissions
    if not any("share_bad" in a.numbers for a in considered):
        return []
    earlier = record.before(event, "harness")
    if not earlier:  # a run may open with detectors that another run admitted: their rollouts are not here
        return []
    in_force = version_of(earlier[-1].body)
    runner = SandboxRunner(task_of(record).sandbox.accept_tier_e)
    views: dict[str, Any] = {}
    out: list[tuple[str, list[str]]] = []
    taken: list[Any] = []
    for a in considered:
        if "share_bad" not in a.numbers:
            continue
        try:
            for name in (*a.bad, *a.clean):
                views.setdefault(name, named_views(record.folder, name))
        except EvoTrainerError as e:
            out.append((a.detector.name, [f"its test cannot be run again: {e}"]))
            continue
        fresh = admit(
            a.detector,
            {name: views[name] for name in a.bad},
            {name: views[name] for name in a.clean},
            together=round(a.numbers.get("together", 1)),
            builtin=in_force.detectors,
            authored=[*in_force.authored, *taken],
            runner=runner,
            spent=lambda: 0.0,  # its cost was measured when it was admitted; a clock would not say the same twice
        )
        taken += [a.detector] if a.admitted else []
        same = {k: v for k, v in a.numbers.items() if not k.startswith(("cpu_s", "lead", "mined", "damage"))}
        wrong = [d for k, v in same.items() if k in fresh.numbers for d in _six(k, v, fresh.numbers[k])]
        if fresh.admitted != a.admitted:
            wrong.append(f"admitted is {a.admitted} in the ledger, {fresh.admitted} recomputed")
        out.append((a.detector.name, wrong))
    return out


def _six(name: str, old: float, new: float) -> list[str]:
    """Numbers of an admission are recorded with six decimals."""
    return [] if abs(old - new) <= 2e-6 * max(1.0, abs(old)) else [f"{name}: {old:g} in the ledger, {new:g} recomputed"]


# -- the table ---------------------------------------------------------------------------------------------------------


def both(*checks: Check) -> Check:
    """One check of several."""

    def check(record: Record, event: Event) -> Iterator[Problem]:
        for c in checks:
            yield from c(record, event)

    return check


def guarded(kind: str, check: Check) -> Check:
    """A check whose own failure over damaged bodies is a problem of the event, not a traceback."""

    def safe(record: Record, event: Event) -> Iterator[Problem]:
        try:
            yield from check(record, event)
        except EvoTrainerError as e:
            yield Problem(kind, f"{event.id}: it cannot be computed again: {e}")
        except (KeyError, IndexError, ValueError, TypeError, ZeroDivisionError, StopIteration) as e:
            yield Problem(kind, f"{event.id}: it cannot be computed again: {type(e).__name__} {e}")

    return safe


_OWN: dict[str, Check] = {
    "finished": both(both(records_verify.CHECKS["finished"], _scores), _flips),
    "branch": both(records_verify.CHECKS["branch"], _opened),
    "noise": _noise,
    "backtested": both(records_verify.CHECKS["backtested"], _backtested),
    "judged": _judged,
    "audited": _audited,
    "topup": _topup,
    "reestimated": _reestimated,
    "certified": _certified,
    "gap": _gap,
    "harness": _harness,
    "library": librarian.prove_library,
    "skill": librarian.prove_skill,
}

CHECKS: dict[str, Check] = {k: guarded(k, c) for k, c in {**records_verify.CHECKS, **_OWN}.items()}
"""Kind of event -> its check. `records.verify.CHAIN_ONLY` names the kinds that can have none."""
