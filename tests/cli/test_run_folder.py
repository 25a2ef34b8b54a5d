"""Commands that read a run folder: `status`, `lineage`, `health`, `show`, `why`, on a real run."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from evotrainer import api
from evotrainer.cli.health import health
from evotrainer.cli.show import show
from evotrainer.cli.status import status
from evotrainer.cli.why import why
from evotrainer.errors import ConfigError, StoreError
from evotrainer.records.reading import load

pytestmark = pytest.mark.xdist_group("loop")


def test_why_of_an_unknown_branch_names_the_known_ones(finished: api.Run) -> None:
    with pytest.raises(ConfigError, match="there are branches: b0, b1"):
        why(finished.folder, "b77")


def test_a_corrupt_ledger_is_one_clear_line(copy: Callable[[], api.Run], capsys: pytest.CaptureFixture[str]) -> None:
    run = copy()
    (run.folder / "ledger.db").write_bytes(b"this is not a database, it is a poem" * 100)
    for wal in run.folder.glob("ledger.db-*"):
        wal.unlink()
    for command in (lambda: status(run.folder, as_json=True), lambda: api.resume(run.folder)):
        with pytest.raises(StoreError, match="ledger"):
            command()
    assert (run.folder / "ledger.db").read_bytes().startswith(b"this is not a database"), "left as it was found"


def test_status_lineage_health_and_show_tell_the_story(
    finished: api.Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status(finished.folder, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["state"] == "closed"
    assert set(told["trials"].values()) == {"complete"}
    assert told["verdicts"].keys() == {"b1", "b2"}
    status(finished.folder)
    assert "b1" in capsys.readouterr().out
    reads: list[api.Run] = []
    with monkeypatch.context() as m:
        read = api.Run.events
        m.setattr(api.Run, "events", lambda run: reads.append(run) or read(run))
        health(finished.folder, "b1")
    assert len(reads) == 1, "to read a large ledger takes most of the command's time"
    assert "Diagnosis" in capsys.readouterr().out
    rollout = load([finished.folder / "rollouts" / "b1-s1"], split="search", limit=1)[0]
    changed = finished.state.branches["b1"].intervention
    assert changed is not None
    for what, expect in (("b1", changed.factor), ("b1-s1", "complete"), (rollout.id[:12], rollout.task)):
        show(finished.folder, what)
        assert expect in capsys.readouterr().out
    with pytest.raises(ConfigError):
        show(finished.folder, "nothing-of-that-name")


def test_every_trial_is_read_during_training_and_at_its_evaluation(
    finished: api.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = [e.body for e in finished.events() if e.kind == "finished" and e.body.steps]
    steps = finished.task.recipe.steps
    assert trials
    for t in trials:
        subjects = [h.subject for h in t.health]
        trained = [f"{t.branch}/{t.seed}@{s} train" for s in sorted({*range(2, steps + 1, 2), steps})]
        assert subjects == [*trained, f"{t.branch}/{t.seed}@{steps} search"]
        assert all(h.rollouts for h in t.health)
        search = next(s for s in t.scores if s.split == "search")
        assert t.health[-1].metric("accuracy") == pytest.approx(search.score)
    (b1,) = [e.body.health for e in finished.events() if e.id == "b1/read"]
    moved = [b1.metric(f"transition/{k}") for k in ("kept", "lost", "gained", "unsolved")]
    assert None not in moved
    assert sum(x or 0.0 for x in moved) == pytest.approx(1.0), "every search task, against the parent"
    health(finished.folder, "b1", trend=True, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [r["step"] for r in rows] == sorted({*range(2, steps + 1, 2), steps})
    assert all(r["seeds"] == len(finished.state.branches["b1"].complete) for r in rows)
    health(finished.folder, "b1-s1", step=2)
    assert "# Health of b1/1@2 train" in capsys.readouterr().out
    health(finished.folder, "b1", trend=True)
    assert "accuracy" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="b1-s1 was not read at step 99; it was read at: 2 train"):
        health(finished.folder, "b1-s1", step=99)
