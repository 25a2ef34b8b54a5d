"""Runs jobs on slots: one thread, one poll loop, CPU time as the only judge of slowness.

A `WorkingChild` is one child at work. The loop normally wakes once per child, when the zygote says it ended; it looks
at longer ones at growing intervals, to drain their answers and to ask the zygote for their CPU time.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from evotrainer.errors import SandboxError
from evotrainer.sandbox.model import Limits, Status
from evotrainer.sandbox.slot import ChildExit, Progress, SandboxSlot, SlotDiedError

_FIRST_LOOK = 0.01
_LAST_LOOK = 0.25
"""Seconds of wall time between two looks at a running child, doubling from the first to the last."""
_SLACK = 0.25
"""CPU-seconds over the limit before the parent steps in: start-up, and the in-process timer comes first."""
_UNCOUNTED = 4
"""Wall time, in CPU limits, of a program with further processes whose CPU time nobody counts."""
_serials = itertools.count()
_PATIENCE = 120.0
"""Seconds of wall time after which a silent zygote counts as dead."""
_CHUNK = 1 << 18
_RESTARTS = 3


@dataclass(slots=True)
class WorkingChild:
    """A child at work for a job, as one of its `role`s."""

    slot: SandboxSlot
    channel: socket.socket
    job: SandboxJob
    role: int
    limits: Limits
    eager: bool
    started: float
    serial: int = field(default_factory=lambda: next(_serials))
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
    asked_at: float = 0.0
    """When the zygote was asked for progress; 0 when no answer is due."""


class SandboxJob(Protocol):
    """What the loop needs of a unit of work that occupies one or more slots of a lane."""

    roles: int
    done: bool

    def start(self, lane: Lane) -> None:
        """Seat the children."""

    def received(self, seat: WorkingChild, lane: Lane) -> None:
        """`seat.inbox` grew."""

    def ended(self, seat: WorkingChild, ended: ChildExit, lane: Lane) -> None:
        """The child is gone and all it said is in `seat.inbox`."""

    def lost(self, seat: WorkingChild, lane: Lane) -> None:
        """Its zygote died: no verdict about the program."""

    def answered(self, seat: WorkingChild) -> int:
        """Grows when a case is over: CPU time is counted from there."""

    def its_turn(self, seat: WorkingChild) -> bool:
        """False while the child rightly waits for another one."""


class Lane:
    """Slots that work for one job at a time: one for a program, two for a check."""

    def __init__(self, open_slot: Callable[[], SandboxSlot]) -> None:
        self.open_slot = open_slot
        self.slots: list[SandboxSlot] = []
        self.seats: list[WorkingChild] = []
        self.job: SandboxJob | None = None
        self.started = 0.0
        """When its present job began: a program that dies and goes on with its next case has no more time for that."""

    def slot(self, role: int) -> SandboxSlot:
        """The slot of a role, started on first use."""
        while len(self.slots) <= role:
            self.slots.append(self.open_slot())
        return self.slots[role]

    def seat(
        self, job: SandboxJob, role: int, request: bytes, limits: Limits, cases: int, eager: bool = False
    ) -> WorkingChild:
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
        seat = WorkingChild(slot, channel, job, role, limits, eager, self.started or now, next_look=now + _FIRST_LOOK)
        self.seats.append(seat)
        return seat

    def abandon(self) -> None:
        """Drop everything, after an exception: the next use starts new slots."""
        for seat in list(self.seats):
            self.leave(seat)
        for slot in self.slots:
            slot.close()
        self.slots.clear()
        self.job = None

    def leave(self, seat: WorkingChild) -> None:
        """The child is gone."""
        seat.channel.close()
        self.seats.remove(seat)


def drain(seat: WorkingChild, limit: int = 1 << 62) -> bool:
    """Move what the child wrote into `seat.inbox`; True when something came."""
    came = False
    while not seat.eof and len(seat.inbox) < limit:
        try:
            piece = seat.channel.recv(_CHUNK)
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


def push(seat: WorkingChild) -> None:
    """Send what is waiting in `seat.outbox`, as far as the child takes it."""
    while seat.outbox:
        try:
            sent = seat.channel.send(seat.outbox)
        except BlockingIOError:
            return
        except OSError:
            seat.outbox.clear()
            return
        del seat.outbox[:sent]


def condemn(seat: WorkingChild, status: Status, note: str) -> None:
    """Kill the child and remember why; the first reason stays."""
    if seat.verdict is None:
        seat.verdict = (status, note)
        with contextlib.suppress(SlotDiedError):  # noticed, and told to the right seat, where its control is read
            seat.slot.kill()


def _watch(seat: WorkingChild, progress: Progress) -> None:
    """Judge a running child by its CPU time, by its sleep, and last by the wall clock."""
    now, limits = time.monotonic(), seat.limits
    seat.asked_at = 0.0
    answered = seat.job.answered(seat)
    if answered != seat.mark:
        seat.mark, seat.mark_cpu = answered, progress.cpu_s
    # from the last answered case on: the limit is per case, the child runs all of them
    if progress.cpu_s - seat.mark_cpu > limits.cpu_s + _SLACK:
        condemn(seat, "timeout", "CPU time used up")
    if seat.seen is not None and progress.active_s >= 0 and seat.job.its_turn(seat):
        window = now - seat.seen_at
        # running or waiting for a processor in under 5% of the window: asleep, however loaded the machine is
        if progress.active_s - seat.seen.active_s < 0.05 * window:
            seat.idle += window
    seat.seen, seat.seen_at = progress, now
    if seat.idle > limits.idle_s:
        condemn(seat, "timeout", f"asleep for {limits.idle_s:g} s (wall clock)")
    # children that nobody waits for are in no CPU account without a control group: only the clock can bound them
    wall_s = min(limits.wall_s, _UNCOUNTED * limits.cpu_s + _SLACK) if progress.uncounted else limits.wall_s
    if now - seat.started > wall_s:
        condemn(seat, "timeout", f"still running after {wall_s:g} s (wall clock)")


def _look(seat: WorkingChild, lane: Lane) -> None:
    """A look at a child that has run for a while."""
    now = time.monotonic()
    # doubling: short programs are over before the second look, long ones cost four looks a second
    seat.look_after = min(2 * seat.look_after, _LAST_LOOK)
    seat.next_look = now + seat.look_after * random.uniform(0.5, 1.5)  # not when a program can tell
    if drain(seat, _cap(seat)):
        seat.job.received(seat, lane)
    if seat.asked_at and now - seat.asked_at > _PATIENCE:
        raise SlotDiedError("the zygote does not answer")
    if seat.look_after >= _LAST_LOOK and not seat.asked_at:
        seat.asked_at = now
        seat.slot.query()


def _cap(seat: WorkingChild) -> int:
    """More than this in one unread line is a flood."""
    return seat.limits.output_kb * 4096 + (1 << 20)


def _on_control(seat: WorkingChild, lane: Lane) -> None:
    message = seat.slot.listen()
    if isinstance(message, Progress):
        _watch(seat, message)
    elif isinstance(message, ChildExit):
        drain(seat, 2 * _cap(seat))
        lane.leave(seat)
        seat.job.ended(seat, message, lane)


def _on_channel(seat: WorkingChild, lane: Lane) -> None:
    push(seat)
    if drain(seat, _cap(seat)):
        seat.job.received(seat, lane)


def _safely(act: Callable[[WorkingChild, Lane], None], seat: WorkingChild, lane: Lane) -> None:
    """A zygote that died under us is restarted, its job told."""
    try:
        act(seat, lane)
    except SlotDiedError:
        hungry = seat.slot.out_of_memory()
        drain(seat, 2 * _cap(seat))
        if seat in lane.seats:
            lane.leave(seat)
        seat.slot.restart()
        if hungry and (seat.ready or seat.inbox):
            # The program filled the slot's memory, and the kernel took the zygote in its place:
            # the program's own doing.
            seat.job.ended(seat, ChildExit(-signal.SIGKILL, 0.0, 0.0, True), lane)
        else:
            seat.job.lost(seat, lane)


class _Watch:
    """The poll set of all seats; made anew only when it changed (a check passes many messages with the same one)."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.lanes = lanes
        self.signature: list[tuple[int, bool, bool]] = []
        self.by_fd: dict[int, tuple[WorkingChild, Lane, Callable[[WorkingChild, Lane], None]]] = {}
        self.poller = select.poll()

    def _build(self, seats: list[tuple[WorkingChild, Lane]]) -> None:
        self.poller = select.poll()
        self.by_fd = {}
        for seat, lane in seats:
            control = seat.slot.control.fileno()
            self.poller.register(control, select.POLLIN)
            self.by_fd[control] = (seat, lane, _on_control)
            # only relayed calls need their channel watched; a script's answers are read when it ends, or at a look
            if seat.eager and not seat.eof:
                channel = seat.channel.fileno()
                self.poller.register(channel, select.POLLIN | (select.POLLOUT if seat.outbox else 0))
                self.by_fd[channel] = (seat, lane, _on_channel)

    def step(self) -> None:
        """Wait for the next event among all seats, and handle what is ready."""
        seats = [(seat, lane) for lane in self.lanes for seat in lane.seats]
        signature = [(seat.serial, bool(seat.outbox), seat.eof) for seat, _ in seats]
        if signature != self.signature:
            self.signature = signature
            self._build(seats)
        wait = min(seat.next_look for seat, _ in seats) - time.monotonic()
        for fd, _ in self.poller.poll(max(0.0, wait * 1000)):
            seat, lane, act = self.by_fd[fd]
            # an earlier event of the same round may have ended this child
            if seat in lane.seats:
                _safely(act, seat, lane)
        now = time.monotonic()
        for seat, lane in seats:
            if seat.next_look <= now and seat in lane.seats:
                _safely(_look, seat, lane)


def _hand_out(lanes: Sequence[Lane], waiting: deque[SandboxJob]) -> None:
    for lane in lanes:
        while not lane.seats and (lane.job is None or lane.job.done):
            if not waiting:
                lane.job = None
                break
            lane.job, lane.started = waiting.popleft(), time.monotonic()
            lane.job.start(lane)


def run_jobs(lanes: Sequence[Lane], jobs: Sequence[SandboxJob]) -> None:
    """Work through `jobs` in order, one per lane at a time; SandboxError when the sandbox cannot be kept alive."""
    waiting = deque(jobs)
    watch = _Watch(lanes)
    try:
        _hand_out(lanes, waiting)
        while any(lane.seats for lane in lanes):
            watch.step()
            _hand_out(lanes, waiting)
    except BaseException:
        for lane in lanes:
            # a half-run job would leave its children at work and their answers in the sockets
            lane.abandon()
        raise
