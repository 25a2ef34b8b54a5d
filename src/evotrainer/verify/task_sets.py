"""Gate and cert: are they those that the run committed itself to, and was its error budget what it was given?"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from evotrainer.errors import EncryptedError, IntegrityError
from evotrainer.records.chain import Event
from evotrainer.records.looks import share_of
from evotrainer.records.sealed import Key, SealedSplits, Seed
from evotrainer.verify.report import Problem, Record

if TYPE_CHECKING:
    from evotrainer.records.events import TaskDraw

OWN = ("code", "math", "swe")
"""Environments whose tasks are made again from a revealed seed: the package's own generators. A user's module is not
run here, for a run folder may come from somebody else; of it the ids are compared with those of the first event."""

NOT_OF_TASKS = ("reward_file", "payable", "world")
"""Options that change no task; a user's reward file is code, too."""


def opened(record: Record, event: Event) -> Iterator[Problem]:
    """What the first event says of the tasks goes with the task file, and the alpha with the number of the run."""
    draw, task = event.body.draw, record.task
    wanted = task.evaluation.draw
    due = "given" if isinstance(wanted, int) else wanted
    if draw.mode != due and (due, draw.mode) != ("fresh", "fixed"):
        yield Problem("draw", f"the task file asks for {due} gate and cert tasks, the run says they are {draw.mode}")
    if isinstance(wanted, int) and draw.seed != Seed(seed=str(wanted), salt="").name:
        yield Problem("draw", f"gate and cert were not drawn from the task file's number {wanted}")
    if due == "fresh" and draw.mode == "fixed" and task.environment.get("name") in OWN and generated(record):
        yield Problem("draw", "the task file asks for fresh gate and cert tasks, which its environment can draw")
    for s in draw.sets:
        own = task.judge.alpha * share_of(s.run) if s.run else None
        if own != s.alpha:
            yield Problem("draw", f"{s.split}: run {s.run} on these tasks has alpha {own}, the run says {s.alpha}")
        shared = s.split == "gate" and draw.mode != "fresh" and not task.run.evaluate_only
        if not task.run.search_only and s.counted != (not shared or s.run > 0):
            yield Problem(
                "draw", f"{s.split}: the run says {'that' if s.counted else 'not that'} earlier runs are counted"
            )


def generated(record: Record) -> bool:
    """Does a package's own environment make its tasks itself, not from a file?"""
    return not {"source", "path"} & record.task.environment.keys()


def closed(record: Record, event: Event) -> Iterator[Problem]:
    """The revealed seed is the one that was committed to."""
    yield from key_revealed(record, event)
    draw = record.opened.draw
    if draw.mode == "fixed":
        return
    seed = Seed(seed=event.body.seed, salt=event.body.salt)
    if seed.commitment != draw.commitment or seed.name != draw.seed:
        yield Problem("draw", f"{event.id}: the revealed seed is not the one that the first event committed to")
        return
    record.checked["seeds"] += 1
    if record.task.environment.get("name") not in OWN:
        return
    for s in draw.sets:
        ids = drawn_ids(record, seed.seed, s.split)
        if hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest() != s.ids:
            yield Problem("draw", f"{s.split}: the tasks of the first event are not those that the seed gives")


def key_revealed(record: Record, event: Event) -> Iterator[Problem]:
    """The revealed key is the one that the run, or its end before, committed to."""
    ends = record.before(event, "closed")
    due = ends[-1].body.next_key_sha256 if ends else record.opened.key_sha256
    if not due and not event.body.key:
        return
    key = Key.revealed(event.body.key)
    same = key is not None and key.sha256 == due
    record.checked["keys"] += same
    if not same:
        yield Problem("encryption", f"{event.id}: the revealed key is not the one that the run committed to")


def evaluated(record: Record, event: Event) -> Iterator[Problem]:
    """Gate and cert scores of a trial are of the run's tasks."""
    draw = record.opened.draw
    if event.body.status != "complete":
        return
    seed = seed_of(record, draw)
    for s in event.body.scores:
        expected = draw.of(s.split)
        if expected is None or s.encrypted:
            continue
        if seed is not None and record.task.environment.get("name") in OWN:
            strange = sorted(set(s.per_task) - drawn_ids(record, seed.seed, s.split))
        else:
            known = hashlib.sha256("\n".join(sorted(s.per_task)).encode()).hexdigest() == expected.ids
            most = getattr(record.task.evaluation, f"{s.split}_tasks") or record.opened.environment["splits"][s.split]
            strange = [] if known or len(s.per_task) < most else sorted(s.per_task)
        if strange:
            text = f"{len(strange)} {s.split} tasks are not those that the run was to be judged on, e.g. {strange[0]}"
            yield Problem("trials", f"trial {event.body.trial}: {text}")


def seed_of(record: Record, draw: TaskDraw) -> Seed | None:
    """The seed: revealed, or kept while the run goes on; None where nothing was drawn, or it does not hold, which is
    said where it is revealed."""
    if draw.mode == "fixed":
        return None
    revealed = next((Seed(seed=e.body.seed, salt=e.body.salt) for e in record.of("closed")), None)
    if revealed is None:
        with contextlib.suppress(IntegrityError, EncryptedError):
            revealed = SealedSplits(record.folder).seed(draw.seed, draw.commitment)
    return revealed if revealed and revealed.commitment == draw.commitment else None


def drawn_ids(record: Record, seed: str, split: str) -> set[str]:
    """Ids of the tasks that a seed gives in the run's environment, as many as are evaluated."""
    settings = {k: v for k, v in record.task.environment.items() if k not in NOT_OF_TASKS}
    options = json.dumps(settings, sort_keys=True, default=str)
    return set(_ids(options, seed, split)[: getattr(record.task.evaluation, f"{split}_tasks")])


@lru_cache(maxsize=8)
def _ids(options: str, seed: str, split: str) -> tuple[str, ...]:
    from evotrainer.envs import open_environment
    from evotrainer.envs.base import EnvironmentWithDraws

    with contextlib.closing(open_environment(json.loads(options), accept_tier_e=True)) as environment:
        assert isinstance(environment, EnvironmentWithDraws)
        environment.redraw(seed)
        return tuple(t.id for t in environment.tasks(split))
