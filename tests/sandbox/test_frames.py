"""The parser of answers is total: whatever stands on the line, it is an answer of the documented form or `Malformed`,
at a bounded price.
"""

from __future__ import annotations

import builtins
import json
import random
import socket
from decimal import Decimal
from fractions import Fraction

import pytest

from evotrainer.records.text import json_safe, shown
from evotrainer.sandbox import decode, encode, same
from evotrainer.sandbox.answers import (
    MAX_TEXT,
    AnswerLimits,
    MalformedLine,
    parse_answer,
    parse_tests,
    take_lines,
)
from evotrainer.sandbox.inside import relay
from evotrainer.sandbox.inside.cases import describe
from evotrainer.sandbox.model import CaseResult
from evotrainer.sandbox.values import NodeLimit

from .frames import DEAR, FRAMES, OUTPUT_BYTES, VERDICTS, Frame, filled
from .fuzz import mutated

MOST_CPU_S = 10.0


def limits(calls: bool = True) -> AnswerLimits:
    return AnswerLimits(calls, OUTPUT_BYTES, MOST_CPU_S)


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len({f.line for f in FRAMES}) + len(VERDICTS) >= 60


@pytest.mark.parametrize("frame", FRAMES, ids=lambda f: f.name)
def test_no_forged_frame_is_an_answer(frame: Frame) -> None:
    assert isinstance(parse_answer(frame.line, limits(frame.calls)), MalformedLine)


@pytest.mark.parametrize("frame", VERDICTS, ids=lambda f: f.name)
def test_no_forged_message_of_the_tests_is_a_verdict(frame: Frame) -> None:
    assert isinstance(parse_tests(frame.line), MalformedLine)


def test_verdicts_and_calls_of_test_code_are_read() -> None:
    assert parse_tests(b'{"n": "f", "a": [], "k": {}}') == "call"
    assert parse_tests(b'{"done": true}') == ("ok", None)
    assert parse_tests(json.dumps({"fail": ["AssertionError", "\ud800"]}).encode()) == (
        "error",
        ("AssertionError", "\N{REPLACEMENT CHARACTER}"),
    )


HONEST = {
    "10,000 integers in a set": set(range(10_000)),
    "100,000 integers in a set": set(range(0, 700_000, 7)),
    "a dict of 30,000 words": {f"w{i}": i for i in range(30_000)},
    "powers of two as floats": {2.0**k for k in range(-1074, 1024)},
    "powers of two": {2**k for k in range(2000)},
    "small negative numbers": {-1, -2, -1.5},
    "100,000 integers": list(range(100_000)),
    "100,000 pairs": [[i, i] for i in range(100_000)],
    "20,000 tuples": [(i, i) for i in range(20_000)],
    "a grid": [[j % 10 for j in range(400)] for _ in range(400)],
    "2,000 digits": 10**1999 + 7,
    "100,000 digits": 3**200_000,
    "a fraction of 3,000 digits": Fraction(3**6000, 2**9000),
    "harmonic number": sum((Fraction(1, k) for k in range(1, 800)), Fraction(0)),
    "a decimal of 5,000 digits": Decimal("1." + "3" * 5000),
    "a range without end": range(0, 10**1000, 3),
    "a megabyte": "x" * (1 << 20),
    "half a megabyte of bytes": bytes(1 << 19),
}


@pytest.mark.parametrize("name", HONEST)
def test_large_honest_values_pass(name: str) -> None:
    line = json.dumps({"s": "ok", "v": encode(HONEST[name]), "t": 0.25}).encode()
    answer = parse_answer(line, limits())
    assert isinstance(answer, CaseResult), answer
    assert same(answer.value, HONEST[name])


@pytest.mark.parametrize("name", DEAR)
def test_the_dearest_frames_are_read(name: str) -> None:
    assert isinstance(parse_answer(DEAR[name], limits()), CaseResult)


def test_all_answers_of_a_program_share_one_budget() -> None:
    mine, line = AnswerLimits(True, OUTPUT_BYTES, MOST_CPU_S, NodeLimit(1000)), filled("[]", 300)
    assert [type(parse_answer(line, mine)) for _ in range(4)] == [CaseResult] * 3 + [MalformedLine]
    assert isinstance(parse_answer(filled("[]", 300_000), limits()), CaseResult)
    assert isinstance(parse_answer(filled("[]", 330_000), limits()), MalformedLine), "one answer may not use it all"


def test_who_floods_the_line_is_read_no_further() -> None:
    flood = bytearray(b"\n" * 2_000_000)
    lines = take_lines(flood)
    assert isinstance(parse_answer(next(lines), limits()), MalformedLine)
    lines.close()  # type: ignore[attr-defined]
    assert len(flood) == 2_000_000 - 1, "the rest waits, unsplit"


# -- fuzz --------------------------------------------------------------------------------------------------------------


def well_formed(answer: CaseResult) -> bool:
    """The contract of an answer, and that everything shown of it is."""
    assert answer.status in ("ok", "error", "timeout", "memory", "output")
    assert type(answer.cpu_s) is float
    assert 0 <= answer.cpu_s <= MOST_CPU_S
    assert answer.error is None or all(type(x) is str and len(x) <= MAX_TEXT for x in answer.error)
    assert answer.stdout is None or type(answer.stdout) is str
    for text in (answer.stdout, *(answer.error or ()), shown(answer.value, 80), json_safe(answer.value, 80)):
        json.dumps(text, ensure_ascii=False, allow_nan=False).encode()
    sent = json.dumps(encode(answer.value))
    again = decode(json.loads(sent))
    # what does not travel equals nothing, not even itself: there only what was sent can be compared
    assert json.dumps(encode(again)) == sent if "Opaque" in repr(answer.value) else same(again, answer.value)
    return True


@pytest.mark.parametrize("frames", [30_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_mutated_frames_are_answers_or_malformed(frames: int) -> None:
    rng, accepted, verdicts = random.Random(11), 0, 0
    for i in range(frames):
        line = mutated(rng)
        answer = parse_answer(line, limits(i % 4 != 0))
        accepted += isinstance(answer, CaseResult) and well_formed(answer)
        verdicts += not isinstance(parse_tests(line), MalformedLine)
    assert accepted > frames // 100, "most of what is tried gets nowhere near the parser's depths"
    assert verdicts > frames // 200


ENDS_TESTS = (StopIteration, StopAsyncIteration)
"""Raised by a call, these end a loop of the tests as if nothing were left to be done."""


def test_whatever_a_candidate_answers_its_call_returns_or_fails() -> None:
    rng, returned = random.Random(3), 0
    ours, theirs = socket.socketpair()
    tester = relay.Tester({"entries": ["f"], "source": "", "cpu_s": 1.0}, ours.fileno())
    call = tester.proxy("f")
    forged = [json.dumps({"e": [name, text]}).encode() for name in dir(builtins) for text in ("", "\ud800")]
    forged += [
        b'{"v": 1, "m": %s}' % m
        for m in (b"5", b"[[0]]", b'[["a", 1]]', b"{}", b"[[9, 1]]", b"[[-1, [2]]]", b"[[0, 1e999]]")
    ]
    for line in (*forged, *(mutated(rng) for _ in range(10_000))):
        theirs.send(line.replace(b"\n", b" ") + b"\n")
        raised: Exception | None = None
        try:
            call([1, 2], {"a": 1})
            returned += 1
        except Exception as error:  # nothing but an Exception comes: no SystemExit, no KeyboardInterrupt
            raised = error
        assert not isinstance(raised, ENDS_TESTS)
        json.dumps(describe(raised or Exception()))
        theirs.recv(1 << 16)
    for end in (ours, theirs):
        end.close()
    assert returned > 100
