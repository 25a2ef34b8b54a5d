"""Verification: every claim of a ledger computed again, every file it vouches for compared."""

from __future__ import annotations

from pathlib import Path

from evotrainer.verify.report import EventCheck, Problem, Record, VerifyReport, when_readable


def verify(folder: Path, head: str = "") -> VerifyReport:
    """Check a run folder whole, every claim that can be computed again included;
    `head`: hash of an event noted earlier."""
    from evotrainer.verify.chain_and_files import verify_run

    return verify_run(folder, checks(), head)


def checks() -> dict[str, EventCheck]:
    """Kind of event -> its check: the one table. `chain_and_files.CHAIN_ONLY` names the kinds that can have none."""
    from evotrainer.verify import (
        approvals,
        effects,
        harness,
        reader,
        search,
        seat,
        skills,
        task_sets,
        trials,
        verdicts,
        written,
    )
    from evotrainer.verify.chain_and_files import CHECKS
    from evotrainer.verify.report import combined, guarded

    own: dict[str, EventCheck] = {
        "finished": combined(
            CHECKS["finished"],
            trials.scores,
            trials.flips,
            trials.protocol_held,
            trials.priced,
            trials.check_start,
            written.components,
            written.hooks,
            search.read_search_only,
            task_sets.evaluated,
        ),
        "run": combined(CHECKS["run"], task_sets.opened),
        "closed": combined(CHECKS["closed"], task_sets.closed),
        "branch": combined(CHECKS["branch"], verdicts.opened),
        "noise": verdicts.noise,
        "backtested": combined(CHECKS["backtested"], effects.backtested),
        "judged": verdicts.judged,
        "audited": effects.audited,
        "topup": verdicts.topup,
        "reestimated": effects.fresh_seeds,
        "certified": effects.certified,
        "probes": search.probes,
        "searched": search.searched,
        "gate_asked": approvals.asked,
        "gate": approvals.answered,
        "asked": seat.asked,
        "answered": seat.answered,
        "reader": reader.opened,
        "reader_asked": reader.asked,
        "reader_answered": reader.answered,
        "reader_concluded": reader.concluded,
        "gap": harness.gap,
        "harness": harness.harness,
        "library": skills.prove_library,
        "skill": skills.prove_skill,
    }
    return {kind: guarded(kind, check) for kind, check in {**CHECKS, **own}.items()}
