"""`verify.effects`: an audit is computed again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from evotrainer.verify import Record
from evotrainer.verify.effects import audit_differences
from tests.leaky_task import TASK as TASK
from tests.leaky_task import finish as finish
from tests.paper import Paper


def test_an_audit_that_does_not_follow_from_the_ledger_is_told(task: Path, tmp_path: Path, quick: Paper) -> None:
    run = quick.start(task, tmp_path / "run")
    record = Record(run.folder, run.events())
    (event,) = (e for e in record.of("audited") if e.body.audit.confirmed)
    audit = event.body.audit

    def differing(**change: Any) -> set[str]:
        forged = replace(event, body=event.body.model_copy(update={"audit": audit.model_copy(update=change)}))
        return {d.partition(":")[0] for d in audit_differences(record, forged)}

    assert differing() == set()
    assert differing(verdict="not_confirmed", excess=0.0) == {"verdict", "excess"}
    assert differing(per_seed_low=dict.fromkeys(audit.per_seed_low, 0.5)) == {"per_seed_low.1", "per_seed_low.2"}
