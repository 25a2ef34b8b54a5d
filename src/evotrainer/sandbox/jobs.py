"""The two kinds of work: the cases of a program, and a candidate checked by test code in another process."""

from __future__ import annotations

import marshal
import math
import signal
from dataclasses import replace
from typing import Any

from evotrainer.sandbox.answers import AnswerLimits, MalformedLine, parse_answer, parse_tests, take_lines
from evotrainer.sandbox.model import CaseResult, Check, CheckResult, Limits, Program, RunResult, Status
from evotrainer.sandbox.pool import Lane, WorkingChild, condemn, push
from evotrainer.sandbox.slot import ChildExit
from evotrainer.sandbox.values import encode

_ATTEMPTS = 2
"""A job whose zygote died is started once more before it is given up as our fault."""
_TIME_SLACK = 0.25
"""CPU-seconds that a claim may lie above what the kernel counted, and an answer above the limit of a case."""
# os._exit(97) in `inside/relay.py`
_SELF_REPORTED_TIMEOUT = 97


def setup_fault(seat: WorkingChild) -> str | None:
    """The first byte a child sends, before any untrusted code ran, says whether it could be confined."""
    if not seat.ready and seat.inbox[:1] == b"R":
        seat.ready = True
        del seat.inbox[:1]
    if seat.ready:
        return None
    return bytes(seat.inbox[1:300]).decode("utf-8", "replace") or "a child ended before it was confined"


def cause_of_death(seat: WorkingChild, ended: ChildExit, cpu_limit: float) -> tuple[Status, str]:
    """Status and note for a child that ended without answering."""
    if seat.verdict is not None:
        return seat.verdict
    if ended.out_of_memory:
        return "memory", "the slot's memory ran out"
    # RLIMIT_CPU ends with SIGKILL at its hard limit, as anybody else's kill does: the CPU time tells them apart
    if ended.code == -signal.SIGKILL and ended.cpu_s >= cpu_limit:
        return "timeout", "CPU time used up"
    if ended.code < 0:
        try:
            name = signal.Signals(-ended.code).name
        except ValueError:
            name = f"signal {-ended.code}"
        return "killed", name
    return "error", f"the process ended (exit code {ended.code}) without an answer"


_NOTES = {
    "timeout": "Timeout",
    "memory": "MemoryError",
    "output": "OutputLimit",
    "killed": "Killed",
    "error": "ProcessExit",
}


_TOO_LARGE = ("OutputLimit", "a value too large to travel")
_TOO_MANY = MalformedLine("more answers than cases")


def _noted(status: Status, note: str) -> CaseResult:
    return CaseResult(status, error=(_NOTES.get(status, "SandboxError"), note))


class RunJob:
    """The cases of one program, in one child; after a death, in another one for the cases that remain."""

    roles = 1

    def __init__(self, program: Program) -> None:
        self.program = program
        self.inputs: list[Any] = list(program.stdins) or [
            [call.name, encode(list(call.args)), encode(dict(call.kwargs))] for call in program.calls
        ]
        self.cases: list[CaseResult] = []
        self.first = 0
        self.faults = 0
        self.timeouts = program.limits.timeouts
        self.cpu_s = 0.0
        self.memory_mb = 0.0
        self.done = False
        self._malformed: MalformedLine | None = None
        limits = program.limits
        most = math.ceil(limits.cpu_s * len(self.inputs)) + 2 + _TIME_SLACK  # where the kernel ends a child
        self._limits = AnswerLimits(bool(program.calls), limits.output_kb << 10, most)

    def result(self) -> RunResult:
        """All cases, once done."""
        return RunResult(tuple(self.cases), self.cpu_s, self.memory_mb)

    def answered(self, seat: WorkingChild) -> int:
        return len(self.cases)

    def its_turn(self, seat: WorkingChild) -> bool:
        return True

    def start(self, lane: Lane) -> None:
        self.first = len(self.cases)
        if self.first >= len(self.inputs):
            self.done = True
            return
        limits = self.program.limits
        request = {
            "role": "cases",
            "source": self.program.source,
            "cases": self.inputs[self.first :],
            "calls": bool(self.program.calls),
            "cpu_s": limits.cpu_s,
            "output_bytes": limits.output_kb << 10,
            "timeouts": self.timeouts,
            "pure": None if self.program.pure is None else [sorted(x) for x in self.program.pure],
        }
        lane.seat(self, 0, marshal.dumps(request), limits, len(self.inputs) - self.first)

    def received(self, seat: WorkingChild, lane: Lane) -> None:
        if setup_fault(seat) is not None:
            return
        self._read(seat)
        if self._malformed is not None:
            condemn(seat, "error", self._malformed.why)
        # without a newline in so much text the next answer is already longer than any can be
        elif len(seat.inbox) > self._limits.line_bytes + 4096:
            condemn(seat, "output", "answers without end")

    def _read(self, seat: WorkingChild) -> None:
        """Answers up to the first malformed one, which a line after the last case's is too."""
        if self._malformed is None:
            for line in take_lines(seat.inbox):
                answer = parse_answer(line, self._limits) if len(self.cases) < len(self.inputs) else _TOO_MANY
                if isinstance(answer, MalformedLine):
                    self._malformed = answer
                    break
                self._take(answer)
        if self._malformed is not None:
            seat.inbox.clear()

    def _take(self, answer: CaseResult) -> None:
        if answer.error is None and answer.status in _NOTES:
            note = _NOTES[answer.status], f"over the limit of a case: {answer.status}"
            answer = replace(answer, error=note)
        if answer.ok and answer.cpu_s > self.program.limits.cpu_s + _TIME_SLACK:  # it disarmed its timer and says so
            answer = replace(_noted("timeout", "CPU time used up"), cpu_s=answer.cpu_s)
        # a program of many cases that each time out would cost as many limits: after `timeouts` of them the rest is
        # skipped
        self.timeouts -= answer.status == "timeout"
        self.cases.append(answer)

    def lost(self, seat: WorkingChild, lane: Lane) -> None:
        self._fault(lane, "the sandbox died while the program ran")

    def _fault(self, lane: Lane, note: str) -> None:
        self.faults += 1
        # answers of a child whose zygote died are not trusted: all of this attempt's cases run again
        del self.cases[self.first :]
        if self.faults < _ATTEMPTS:
            self.start(lane)
            return
        missing = len(self.inputs) - len(self.cases)
        self.cases += [_noted("sandbox", note)] * missing
        self.done = True

    def ended(self, seat: WorkingChild, ended: ChildExit, lane: Lane) -> None:
        fault = setup_fault(seat)
        if fault is not None and seat.verdict is None:
            self._fault(lane, fault)
            return
        self._read(seat)
        self.cpu_s += ended.cpu_s
        self.memory_mb = max(self.memory_mb, ended.memory_mb)
        self._audit(ended)
        if self._malformed is not None:
            note = _noted("error", f"malformed answer: {self._malformed.why}")
            self.cases += [note] * (len(self.inputs) - len(self.cases))
        # the child died in the first case that has no answer; the ones after it get a new child
        elif len(self.cases) < len(self.inputs) and self.timeouts > 0:
            cpu_limit = self.program.limits.cpu_s * (len(self.inputs) - self.first)
            self.cases.append(_noted(*cause_of_death(seat, ended, cpu_limit)))
            self.timeouts -= self.cases[-1].status == "timeout"
        if len(self.cases) < len(self.inputs) and self.timeouts <= 0:
            skipped = _noted("timeout", "skipped: an earlier case timed out")
            self.cases += [skipped] * (len(self.inputs) - len(self.cases))
        self.start(lane)

    def _audit(self, ended: ChildExit) -> None:
        """Cases claim their CPU time; when the kernel counted far more or less than all of them together,
        they were forged."""
        claimed = sum(case.cpu_s for case in self.cases[self.first :])
        limit = self.program.limits.cpu_s
        # answers are the program's own text: it may print answers of cases it never ran
        if claimed > ended.cpu_s + _TIME_SLACK:
            note = f"malformed answer: {claimed:.2f} CPU-s claimed, {ended.cpu_s:.2f} used"
            self.cases[self.first :] = [_noted("error", note)] * (len(self.cases) - self.first)
            return
        timed_out = any(case.status == "timeout" for case in self.cases[self.first :])
        complete = len(self.cases) == len(self.inputs)
        # CPU time outside of any case is how a program would compute all answers in its first case, or after its timer
        if complete and not timed_out and ended.cpu_s - claimed > max(0.25, limit / 2):
            note = f"{ended.cpu_s - claimed:.2f} CPU-s outside any case"
            self.cases[self.first :] = [_noted("timeout", note)] * (len(self.cases) - self.first)


class CheckJob:
    """Candidate (role 0) and tester (role 1); the parent only passes lines on and believes the tester alone."""

    roles = 2

    def __init__(self, check: Check) -> None:
        self.check = check
        self.outcome: CheckResult | None = None
        self.cpu_s = 0.0
        self.faults = 0
        self.done = False
        self._seats: list[WorkingChild] = []
        self._calling = False
        self._line_bytes = (check.limits.output_kb << 11) + 8192

    def result(self) -> CheckResult:
        """The verdict, once done."""
        return replace(self.outcome or CheckResult("sandbox"), cpu_s=self.cpu_s)

    def answered(self, seat: WorkingChild) -> int:
        return 0

    def its_turn(self, seat: WorkingChild) -> bool:
        # one of the two always waits for the other: sleep counts for the one whose turn it is
        return self._calling == (seat.role == 0)

    def start(self, lane: Lane) -> None:
        self._calling = False
        self.outcome = None
        sources = (("candidate", self.check.source), ("tester", self.check.test))
        self._seats = []
        for role, (name, source) in enumerate(sources):
            limits: Limits = self.check.limits
            entries = [self.check.entry_point, *self.check.names]
            request = {"role": name, "source": source, "entries": entries, "cpu_s": limits.cpu_s}
            self._seats.append(lane.seat(self, role, marshal.dumps(request), limits, 1, eager=True))

    def received(self, seat: WorkingChild, lane: Lane) -> None:
        if setup_fault(seat) is not None:
            return
        for line in take_lines(seat.inbox):
            self._line(seat, line)
            if self.outcome is not None:
                break
        if self.outcome is not None:
            seat.inbox.clear()
        elif len(seat.inbox) > self._line_bytes:
            self._decide("output", _TOO_LARGE)

    def _line(self, seat: WorkingChild, line: bytes) -> None:
        if len(line) > self._line_bytes:
            self._decide("output", _TOO_LARGE)
        elif seat.role == 0:
            if not self._calling:
                self._decide("error", ("ProtocolError", "the candidate spoke without being called"))
                return
            self._calling = False
            self._forward(self._seats[1], line)
        elif (message := parse_tests(line)) == "call":
            self._calling = True
            self._forward(self._seats[0], line)
        elif isinstance(message, MalformedLine):
            self._decide("error", ("ProtocolError", f"malformed message of the tests: {message.why}"))
        else:
            self._decide(*message)

    def _forward(self, to: WorkingChild, line: bytes) -> None:
        to.outbox += line + b"\n"
        push(to)

    def _decide(self, status: Status, error: tuple[str, str] | None) -> None:
        """The first verdict stays; both children are told to go."""
        if self.outcome is None:
            self.outcome = CheckResult(status, error)
            for seat in self._seats:
                if seat.verdict is None:
                    condemn(seat, "killed", "the check is decided")

    def lost(self, seat: WorkingChild, lane: Lane) -> None:
        self._fault("the sandbox died during the check")
        self._settle(lane)

    def _fault(self, note: str) -> None:
        if self.outcome is None:
            self._decide("sandbox", ("SandboxError", note))

    def ended(self, seat: WorkingChild, ended: ChildExit, lane: Lane) -> None:
        fault = setup_fault(seat)
        if fault is not None and seat.verdict is None:
            self._fault(fault)
        else:
            self.received(seat, lane)
        self.cpu_s += ended.cpu_s
        if self.outcome is None:
            status: Status
            if ended.code == _SELF_REPORTED_TIMEOUT:
                status, note = "timeout", "CPU time used up"
            else:
                status, note = cause_of_death(seat, ended, self.check.limits.cpu_s)
            who = ("candidate", "tests")[seat.role]
            self._decide(status, (_NOTES.get(status, "Error"), f"{who}: {note}"))
        self._settle(lane)

    def _settle(self, lane: Lane) -> None:
        """Done when both children are gone; a fault is tried once more."""
        if lane.seats:
            return
        if self.outcome is not None and self.outcome.status == "sandbox":
            self.faults += 1
            if self.faults < _ATTEMPTS:
                self.start(lane)
                return
        self.done = True
