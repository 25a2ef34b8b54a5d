"""Runs jobs on slots: one thread, one poll loop, CPU time as the only judge of slowness.

A `Seat` is one child at work. The loop normally wakes once per child, when the zygote says it ended; it looks at longer
ones at growing intervals, to drain their answers and to ask the zygote for their CPU time.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from evotrainer.errors import SandboxError
from evotrainer.sandbox.model import Limits, Status
from evotrainer.sandbox.slot import Ended, Progress, Slot, SlotDiedError

_FIRST_LOOK = 0.01
_LAST_LOOK = 0.25
"""Seconds of wall time between two looks at a running child, doubling from the first to the last."""
_SLACK = 0.25
"""CPU-seconds over the limit before the parent steps in: start-up, and the in-process timer comes first."""
_CHUNK = 1 << 18
_RESTARTS = 3


@dataclass(slots=True)
class Seat:
    """A child at work for a job, as one of its `role`s."""

    slot: Slot
    channel: object
    job: Job
    role: int
    limits: Limits
    eager: bool
    started: float
    look_after: float = _FIRST_LOOK
    next_look: float = 0.0
    inbox: bytearray = field(default_factory=bytearray)
    outbox: bytearray = field(default_factory=bytearray)
    ready: bool = False
    eof: bool = False
    verdict: tuple[Status, str] | None = None
    """Why the parent killed it."""
    mark: int = -1
    mark_cpu: float = 0.0
    seen: Progress | None = None
    seen_at: float = 0.0
    idle: float = 0.0


class Job(Protocol):
    """What the loop needs of a unit of work that occupies one or more slots of a lane."""

    roles: int
    done: bool

    def start(self, lane: Lane) -> None:
        """Seat the children."""

    def received(self, seat: Seat, lane: Lane) -> None:
        """`seat.inbox` grew."""

    def ended(self, seat: Seat, ended: Ended, lane: Lane) -> None:
        """The child is gone and all it said is in `seat.inbox`."""

    def lost(self, seat: Seat, lane: Lane) -> None:
        """Its zygote died: no verdict about the program."""

    def answered(self, seat: Seat) -> int:
        """Grows when a case is over: CPU time is counted from there."""

    def its_turn(self, seat: Seat) -> bool:
        """False while the child rightly waits for another one."""


class Lane:
    """Slots that work for one job at a time: one for a program, two for a check."""

    def __init__(self, open_slot: Callable[[], Slot]) -> None:
        self.open_slot = open_slot
        self.slots: list[Slot] = []
        self.seats: list[Seat] = []
        self.job: Job | None = None

    def slot(self, role: int) -> Slot:
        """The slot of a role, started on first use."""
        while len(self.slots) <= role:
            self.slots.append(self.open_slot())
        return self.slots[role]

    def seat(self, job: Job, role: int, request: bytes, limits: Limits, cases: int, eager: bool = False) -> Seat:
        """Start a child; a dead zygote is replaced first."""
        slot = self.slot(role)
        for attempt in range(_RESTARTS):
            try:
                channel = slot.run(request, limits, cases)
                break
            except SlotDiedError:
                if attempt == _RESTARTS - 1:
                    raise SandboxError("the sandbox keeps dying; run `evotrainer doctor`") from None
                slot.restart()
        now = time.monotonic()
        seat = Seat(slot, channel, job, role, limits, eager, now, next_look=now + _FIRST_LOOK)
        self.seats.append(seat)
        return seat

    def leave(self, seat: Seat) -> None:
        """The child is gone."""
        seat.channel.close()  # type: ignore[attr-defined]
        self.seats.remove(seat)


def drain(seat: Seat, limit: int = 1 << 62) -> bool:
    """Move what the child wrote into `seat.inbox`; True when something came."""
    came = False
    while not seat.eof and len(seat.inbox) < limit:
        try:
            piece = seat.channel.recv(_CHUNK)  # type: ignore[attr-defined]
        except BlockingIOError:
            break
        except OSError:
            piece = b""
        if not piece:
            seat.eof = True
            break
        seat.inbox += piece
        came = True
    return came


def push(seat: Seat) -> None:
    """Send what is waiting in `seat.outbox`, as far as the child takes it."""
    while seat.outbox:
        try:
            sent = seat.channel.send(seat.outbox)  # type: ignore[attr-defined]
        except BlockingIOError:
            return
        except OSError:
            seat.outbox.clear()
            return
        del seat.outbox[:sent]


def condemn(seat: Seat, status: Status, note: str) -> None:
    """Kill the child and remember why; the first reason stays."""
    if seat.verdict is None:
        seat.verdict = (status, note)
        seat.slot.kill()


def _watch(seat: Seat, progress: Progress) -> None:
    """Judge a running child by its CPU time, by its sleep, and last by the wall clock."""
    now, limits = time.monotonic(), seat.limits
    answered = seat.job.answered(seat)
    if answered != seat.mark:
        seat.mark, seat.mark_cpu = answered, progress.cpu_s
    if progress.cpu_s - seat.mark_cpu > limits.cpu_s + _SLACK:
        condemn(seat, "timeout", "CPU time used up")
    if seat.seen is not None and progress.active_s >= 0 and seat.job.its_turn(seat):
        window = now - seat.seen_at
        if progress.active_s - seat.seen.active_s < 0.05 * window:
            seat.idle += window
    seat.seen, seat.seen_at = progress, now
    if seat.idle > limits.idle_s:
        condemn(seat, "timeout", f"asleep for {limits.idle_s:g} s (wall clock)")
    if now - seat.started > limits.wall_s:
        condemn(seat, "timeout", f"still running after {limits.wall_s:g} s (wall clock)")


def _look(seat: Seat, lane: Lane, now: float) -> None:
    """A look at a child that has run for a while."""
    seat.look_after = min(2 * seat.look_after, _LAST_LOOK)
    seat.next_look = now + seat.look_after
    if drain(seat, _cap(seat)):
        seat.job.received(seat, lane)
    if seat.look_after >= _LAST_LOOK:
        seat.slot.query()


def _cap(seat: Seat) -> int:
    """More than this in one unread line is a flood."""
    return seat.limits.output_kb * 4096 + (1 << 20)


def _on_control(seat: Seat, lane: Lane) -> None:
    message = seat.slot.listen()
    if isinstance(message, Progress):
        _watch(seat, message)
    elif isinstance(message, Ended):
        drain(seat, 2 * _cap(seat))
        lane.leave(seat)
        seat.job.ended(seat, message, lane)


def _on_channel(seat: Seat, lane: Lane) -> None:
    push(seat)
    if drain(seat, _cap(seat)):
        seat.job.received(seat, lane)


def _safely(act: Callable[[], None], seat: Seat, lane: Lane) -> None:
    """A zygote that died under us is restarted, its job told."""
    try:
        act()
    except SlotDiedError:
        if seat in lane.seats:
            lane.leave(seat)
        seat.slot.restart()
        seat.job.lost(seat, lane)


def _step(lanes: Sequence[Lane]) -> None:
    """Wait for the next event among all seats, and handle what is ready."""
    seats = [(seat, lane) for lane in lanes for seat in lane.seats]
    poller = select.poll()
    by_fd: dict[int, tuple[Seat, Lane, bool]] = {}
    for seat, lane in seats:
        control = seat.slot.control.fileno()
        poller.register(control, select.POLLIN)
        by_fd[control] = (seat, lane, True)
        if seat.eager and not seat.eof:
            fd = seat.channel.fileno()  # type: ignore[attr-defined]
            poller.register(fd, select.POLLIN | (select.POLLOUT if seat.outbox else 0))
            by_fd[fd] = (seat, lane, False)
    now = time.monotonic()
    wait = min(seat.next_look for seat, _ in seats) - now
    for fd, _ in poller.poll(max(0.0, wait * 1000)):
        seat, lane, control_side = by_fd[fd]
        if seat in lane.seats:
            act = _on_control if control_side else _on_channel
            _safely(lambda act=act, seat=seat, lane=lane: act(seat, lane), seat, lane)  # type: ignore[misc]
    now = time.monotonic()
    for seat, lane in seats:
        if seat in lane.seats and seat.next_look <= now:
            _safely(lambda seat=seat, lane=lane: _look(seat, lane, now), seat, lane)  # type: ignore[misc]


def run_jobs(lanes: Sequence[Lane], jobs: Sequence[Job]) -> None:
    """Work through `jobs` in order, one per lane at a time; SandboxError when the sandbox cannot be kept alive."""
    waiting = deque(jobs)
    while True:
        for lane in lanes:
            if lane.job is not None and lane.job.done and not lane.seats:
                lane.job = None
            while lane.job is None and waiting:
                lane.job = waiting.popleft()
                lane.job.start(lane)
                if lane.job.done and not lane.seats:
                    lane.job = None
        if not any(lane.seats for lane in lanes):
            return
        _step(lanes)
