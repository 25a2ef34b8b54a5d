"""What the gain of a certified policy goes with: which rollouts are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from evotrainer.projections.branches import BASE
from evotrainer.projections.caveats import in_force
from evotrainer.records import keys
from evotrainer.records.events import Certified, CertRow, TrialFinished

if TYPE_CHECKING:
    from evotrainer.harness.columns.features import FeatureView
    from evotrainer.records.chain import Event
    from evotrainer.records.detectors import Gained

Load = Callable[[str], "FeatureView"]
"""trial -> its search rollouts"""


def with_gains(certified: Certified, events: Sequence[Event], load: Load) -> Certified:
    """The certificate with what each trained policy's gain goes with."""
    rows = [
        r if r.branch == BASE else r.model_copy(update={"gained": gain_of(r, events, load)}) for r in certified.rows
    ]
    return certified.model_copy(update={"rows": tuple(rows)})


def gain_of(row: CertRow, events: Sequence[Event], load: Load) -> Gained | None:
    """The certified trainings' search rollouts against the base policy's under the same environment knobs;
    None where one has none."""
    from evotrainer.harness.columns.features import FeatureView
    from evotrainer.harness.evolving.gained import gained

    run = next(e.body for e in events if e.kind == "run")
    done = [e.body for e in events if e.kind == "finished" and e.body.status == "complete" and _searched(e.body)]
    own = [keys.training(row.branch, s) for s in row.seeds]
    now = sorted((t for t in done if t.trial in own), key=lambda t: own.index(t.trial))  # not as they finished
    knobs = in_force(run, now[0].env_knobs) if now else {}
    bases = [t for t in done if t.branch == BASE and not keys.has_own_texts(t.trial)]
    before = [t for t in bases if in_force(run, t.env_knobs) == knobs][:1]
    now_, before_ = (FeatureView.joined(load(t.trial) for t in side) for side in (now, before))
    found = gained(now_, before_)
    names = {"trials": tuple(t.trial for t in now), "before": tuple(t.trial for t in before)}
    return found.model_copy(update=names) if found else None


def _searched(t: TrialFinished) -> bool:
    return any(s.split == "search" for s in t.scores)
