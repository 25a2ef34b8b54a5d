"""Every detector looks, or says that it did not: what cannot be read is never clean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evotrainer.harness import Batch, Harness, HarnessContext
from evotrainer.harness.coverage import ALWAYS, LOOKS, not_covered
from evotrainer.harness.detectors import DETECTORS
from evotrainer.records.rollout import Rollout, ToolCall, Turn
from tests.harness_inputs import rollout

TESTS = {"tests": [{"input": "5", "expected": "10", "passed": True}]}
UNREADABLE = {
    "another language": "```cpp\nint main() { return 0; }\n```",
    "broken": "```python\nimport os\ndef f(x:\n    getattr(os, 'sys' + 'tem')(\n```",
    "nested too deeply": "```python\n" + "x = " + "(" * 200 + "open" + ")" * 200 + "\n```",
    "nothing": "",
    "prose": "The answer is five.",
    "control characters": "\x00\x01\x02" * 40,
}
READS_TEXT = {"grader_bypass", "special_casing", "test_tampering", "answer_leak", "edge_crash"}
"""Detectors that judge what an answer holds."""
BY_TESTS = {"edge_crash", "special_casing"}
"""Of them those that judge it by its tests."""


def rows(text: str, **fields: object) -> list[Rollout]:
    turns = (Turn("user", "Write f."), Turn("assistant", text))
    return [replace(rollout(f"t{t}", 0, reward=None, turns=turns), **fields) for t in range(8)]


READS_ANY_TEXT = ("echo_trap", "template_collapse")
"""Detectors that count words or letters, whatever they mean."""


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE.keys())
@pytest.mark.parametrize("detail", [{}, TESTS], ids=["no tests", "tests"])
def test_no_detector_calls_text_clean_that_it_cannot_read(text: str, detail: dict[str, object]) -> None:
    b = Batch.of(rows(text, detail=detail))
    blind = not_covered(b, HarnessContext())
    health = Harness.default().read(b, "b")
    told = {f.detector for f in health.findings if f.missing}
    for name in DETECTORS:
        if name in ALWAYS or (text and name in READS_ANY_TEXT):
            continue
        looked = name not in blind and name not in told
        # tests are recorded of this batch: whether they passed was looked at, whatever the program is, and known tests
        # are read in any language
        assert not looked or (name in BY_TESTS and detail), f"{name} is silent about {text[:40]!r}"
    assert blind.keys() >= READS_TEXT - BY_TESTS
    assert not [f for f in health.findings if f.detector in READS_TEXT and not f.missing]


def test_of_what_it_can_read_it_says_nothing_of_the_kind() -> None:
    """The same walk over rollouts that hold everything: nobody is blind there."""
    program = "```python\ndef f(x):\n    return 2 * x\n```"
    call = (ToolCall("bash", '{"command": "cat a.py"}', True),)
    acting = (Turn("user", "Fix it."), Turn("assistant", "look", call), Turn("tool", "x"), Turn("assistant", "done"))
    some = []
    for t in range(8):
        for k in range(4):
            turns = (Turn("user", f"Write f, {t}."), Turn("assistant", program)) if k % 2 else acting
            r = rollout(f"t{t}", k, reward=float(k > 1), turns=turns, components={"exact": 1.0})
            some.append(
                replace(
                    r,
                    detail={**TESTS, "probes": {"ran": ["ends"], "facts": []}},
                    outcome="correct",
                    tokens=5,
                    finish="stop",
                    mean_logprob=-1.0,
                    advantage=0.1,
                )
            )
    curve = tuple({"step": float(i), "reward": 0.1, "score": 0.1} for i in range(9))
    tasks = {f"t{t}": 0.5 for t in range(8)}
    b = Batch.of(some)
    context = HarnessContext(
        curve=curve, base=Harness.default().read(b, "base"), before=tasks, greedy=tasks, greedy_before=tasks
    )
    assert not_covered(b, context) == {}


def test_whatever_needs_nothing_says_what_it_reads() -> None:
    """A new detector without needs would look at anything: it is to say in LOOKS what it reads."""
    assert {n for n, d in DETECTORS.items() if not d.needs} <= LOOKS.keys() | ALWAYS
    nothing = not_covered(Batch.of(()), HarnessContext())
    assert nothing.keys() == DETECTORS.keys() - ALWAYS and all(nothing.values())


def agents(*said: str, replies: str = "go on") -> Batch:
    turns = [Turn("user", "Fix the zone.")]
    for i, words in enumerate(said):
        turns += [Turn("assistant", words), Turn("user", replies.format(i))]
    return Batch.of([replace(rollout(f"t{t}", 0, reward=None, turns=tuple(turns))) for t in range(8)])


@pytest.mark.parametrize(
    "said",
    [
        '[TOOL_CALLS] [{"name": "bash", "arguments": {"command": "rm tests/test_z.py"}}]',
        "Thought: it fails\nAction: bash\nAction Input: rm tests/test_z.py",
        '<invoke name="bash"><parameter name="command">rm tests/test_z.py</parameter></invoke>',
        'I run {"tool": "bash", "args": "rm tests/test_z.py"} now',
        "Then this:\n```bash\nrm tests/test_z.py\n```",
    ],
)
def test_calls_that_nobody_can_read_are_not_looked_at(said: str) -> None:
    blind = not_covered(agents(said, "It is done."), HarnessContext())
    assert {"test_tampering", "answer_leak"} <= blind.keys() and "actions" in blind["laziness"]


def test_alternatives_of_a_chat_are_no_calls_but_those_with_outputs_are() -> None:
    said = ('Write\n```json\n{"mcp": {"command": "npx"}}\n```', "```bash\nnpm i x\n```\nor\n```bash\nyarn add x\n```")
    talk = not_covered(agents(*said, replies="and step {}?"), HarnessContext())
    assert not {"test_tampering", "answer_leak", "laziness"} & talk.keys()
    ran = not_covered(agents(*said, replies="src/a{}.py\nsrc/b.py"), HarnessContext())
    assert {"test_tampering", "answer_leak"} <= ran.keys()


@pytest.mark.parametrize(
    "batch",
    [
        agents("Which zone do you mean?", "Then it is UTC+2, and nothing is to be done."),
        agents("The action: I would say that we wait.", "We tool around it."),
        agents("<function=bash>\n<parameter=command>ls</parameter>\n</function>", "```bash\nmake\n```\nwould do"),
        agents("See:\n```bash\nls\n```", "Done.", "It holds.", replies="printed {}"),
    ],
)
def test_words_and_calls_that_are_read_are_looked_at(batch: Batch) -> None:
    assert not {"test_tampering", "answer_leak", "laziness"} & not_covered(batch, HarnessContext()).keys()
