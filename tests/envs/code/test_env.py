"""`envs.code.env`: graded in the real sandbox, gold passes,
and each kind of flaw shows in the components that measure it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time

import pytest

from evotrainer.envs.base import Environment, Task
from evotrainer.envs.code.answers import extract_program, same_output
from evotrainer.envs.code.demos import CodeTeacher, demonstrate
from evotrainer.envs.code.env import CodeEnv, perturbed_inputs
from evotrainer.envs.code.grading import ProgramGrader, ProgramJob
from evotrainer.envs.code.rewards import parse_program
from evotrainer.envs.code.source import CodeConfig, GrammarSource
from evotrainer.envs.code.tasks import DEMO_LENGTHS, as_task, problems
from evotrainer.errors import TaskSetError
from evotrainer.sandbox import Limits, Sandbox
from evotrainer.testing import check_environment
from tests.envs.helpers import grade

READ = "xs = list(map(int, input().split()))\n"


@pytest.fixture(scope="module")
def task() -> Task:
    """`Read integers; square each; print the largest or 0`, by hand."""
    cases = {
        "visible": [["3 1\n", "9"], ["-5 2 4\n", "25"]],
        "heldout": [["6 7\n", "49"], ["\n", "0"]],
        "hidden": [["\n", "0"], ["8\n", "64"], ["-2 -1\n", "4"], ["2 2 3\n", "9"], ["0 1\n", "1"], ["10 -3\n", "100"]],
        "fresh": [["4 -6\n", "36"], ["1 -8\n", "64"]],
    }
    spec = "Read integers; square each; print the largest or 0."
    prompt = spec + "\n3 1 -> 9\n-5 2 4 -> 25\n"
    return Task("by-hand", "train", prompt, {"form": "stdin", "spec": spec, "ops": ["square"], **cases})


GOLD = READ + "print(max([x * x for x in xs], default=0))"
UNGUARDED = READ + "print(max([x * x for x in xs]))"
WRONG = READ + "print(max([x + x for x in xs], default=0))"
HARD_CODED = 's = input()\nprint("9" if s == "3 1" else "25")'
BROKEN = "print(max("
LOOP = "while True: pass"
SILENT = READ + "xs.sort()"


def test_it_is_an_environment_and_passes_the_conformance_kit(box: Sandbox) -> None:
    own = CodeEnv(GrammarSource(), open_sandbox=lambda: box)  # the kit leaves it with drawn tasks
    assert isinstance(own, Environment)
    check_environment(own)


def test_every_gold_program_passes_all_its_tests(code_env: CodeEnv) -> None:
    tasks = [t for s in ("train", "search", "gate", "cert") for t in list(code_env.tasks(s))[:75]]
    scores = grade(code_env, tasks, [t.data["gold"] for t in tasks])
    for t, s in zip(tasks, scores, strict=True):
        assert s.outcome == "correct", (t.prompt, s.detail)
        for name in ("visible", "heldout", "hidden", "robust", "format", "no_error", "no_literals"):
            assert s.components[name] == 1.0, (name, t.prompt, s.detail)


def test_gold_functions_pass_too(functions: CodeEnv) -> None:
    tasks = list(functions.tasks("train"))
    assert all(s.outcome == "correct" for s in grade(functions, tasks, [t.data["gold"] for t in tasks]))
    (s,) = grade(functions, tasks[:1], ["def other(xs):\n    return 1"])
    assert (s.outcome, s.components["format"], s.components["hidden"]) == ("incorrect", 0.0, 0.0)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (GOLD, {"visible": 1, "heldout": 1, "hidden": 1, "hidden_frac": 1, "robust": 1, "format": 1, "no_literals": 1}),
        (
            UNGUARDED,
            {"visible": 1, "heldout": 0, "heldout_frac": 0.5, "hidden": 0, "robust": 0, "no_error": 1, "format": 1},
        ),
        (WRONG, {"visible": 0, "heldout": 0, "hidden": 0, "robust": 1, "no_error": 1, "format": 1, "no_literals": 1}),
        (HARD_CODED, {"visible": 1, "heldout": 0, "hidden": 0, "robust": 1, "format": 1, "no_literals": 0}),
        (BROKEN, {"visible": 0, "heldout": 0, "hidden": 0, "hidden_frac": 0, "robust": 0, "no_error": 0, "format": 0}),
        (LOOP, {"visible": 0, "hidden": 0, "robust": 0, "no_error": 0, "format": 0}),
        (SILENT, {"visible": 0, "hidden": 0, "robust": 1, "no_error": 1, "format": 0}),
        ("", {"visible": 0, "hidden": 0, "format": 0, "brevity": 1}),
    ],
    ids=["gold", "unguarded", "wrong", "hard-coded", "syntax error", "endless", "prints nothing", "empty"],
)
def test_components_tell_the_flaws_apart(
    code_env: CodeEnv, task: Task, program: str, expected: dict[str, float]
) -> None:
    (s,) = grade(code_env, [task], [program])
    assert {k: s.components[k] for k in expected} == expected
    assert s.outcome == ("correct" if expected["hidden"] else "incorrect")
    assert s.error_kind is None


def test_fresh_visible_tests_close_the_way_to_hard_coding(code_env: CodeEnv, task: Task) -> None:
    shown, fresh = (
        grade(code_env, [task] * 2, [HARD_CODED, GOLD], visible_tests=v) for v in ("shown_and_graded", "fresh")
    )
    assert [s.components["visible"] for s in shown] == [1.0, 1.0]
    assert [s.components["visible"] for s in fresh] == [0.0, 1.0]
    assert fresh[1].outcome == "correct"
    (capability,) = code_env.capabilities
    assert {capability.open, capability.closed} <= set(code_env.knobs[capability.knob])


def test_examples_can_be_left_out_of_the_prompt(code_env: CodeEnv) -> None:
    t = code_env.tasks("train")[0]
    (turn,) = code_env.reset(t, {"visible_tests": "not_shown"}).turns
    assert turn.text == t.data["spec"] + "\n"
    assert code_env.reset(t, {}).turns[0].text == t.prompt


def test_unknown_knobs_values_and_splits_are_refused_with_what_there_is(code_env: CodeEnv) -> None:
    t = code_env.tasks("train")[0]
    with pytest.raises(TaskSetError, match=r"no knob 'network'; it has: visible_tests"):
        code_env.reset(t, {"network": True})
    with pytest.raises(TaskSetError, match="allowed: shown_and_graded, fresh, not_shown"):
        code_env.reset(t, {"visible_tests": "maybe"})
    with pytest.raises(TaskSetError, match="no split 'test'"):
        code_env.tasks("test")


def test_an_episode_is_one_turn(code_env: CodeEnv) -> None:
    e = code_env.reset(code_env.tasks("train")[0], {})
    code_env.step([e], ["print(1)"], ["length"])
    assert (e.done, e.finish, [t.role for t in e.turns]) == (True, "length", ["user", "assistant"])
    with pytest.raises(TaskSetError, match="is over"):
        code_env.step([e], ["print(2)"], ["stop"])


def test_identical_programs_are_run_once_and_score_the_same(box: Sandbox, task: Task) -> None:
    code_env = CodeEnv(GrammarSource(), open_sandbox=lambda: box)
    programs = [GOLD, UNGUARDED, WRONG]
    alone = [grade(code_env, [task], [p])[0] for p in programs]
    assert code_env.grader.ran == 3
    together = grade(code_env, [task] * 30, programs * 10)
    assert code_env.grader.ran == 3, "graded programs are kept"
    assert together == alone * 10
    another = CodeEnv(GrammarSource(), open_sandbox=lambda: box)
    assert grade(another, [task] * 30, programs * 10) == together
    assert another.grader.ran == 3, "one run per distinct program of a batch"


def test_the_memory_of_graded_programs_is_bounded(box: Sandbox) -> None:
    grader = ProgramGrader(lambda: box, Limits(), keep=2)
    jobs = [ProgramJob("stdin", f"print({i})", ("\n",)) for i in range(3)]
    grader.grade(jobs)
    grader.grade(jobs[1:])
    assert grader.ran == 3
    grader.grade(jobs[:1])
    assert grader.ran == 4, "the oldest was dropped"


def test_the_same_program_on_other_tests_is_another_job(code_env: CodeEnv) -> None:
    tasks = list(code_env.tasks("train"))[:20]
    scores = grade(code_env, tasks, [tasks[0].data["gold"]] * 20)
    assert scores[0].outcome == "correct"
    assert any(s.outcome == "incorrect" for s in scores[1:])


def test_a_broken_sandbox_is_a_fault_and_no_verdict(task: Task) -> None:
    """Its zygote is killed under every try of a long program."""
    code_env = CodeEnv(GrammarSource(CodeConfig(cpu_s=30.0)))
    try:
        sandbox = code_env.grader.sandbox
        stop = threading.Event()

        def kill() -> None:
            while not stop.wait(0.1):
                for slot in [s for lane in sandbox._lanes for s in lane.slots]:
                    with contextlib.suppress(AttributeError, OSError):
                        os.kill(slot.zygote.pid, signal.SIGKILL)  # type: ignore[union-attr]

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            (s,) = grade(code_env, [task], ["import time\ntime.sleep(20)\nprint(1)"])
        finally:
            stop.set()
            killer.join()
        assert (s.outcome, s.error_kind) == ("unknown", "sandbox")
        assert s.error
        assert set(s.components) == set(code_env.components)
        assert not any(v is not None for v in s.components.values())
        time.sleep(0.1)
        (again,) = grade(code_env, [task], [GOLD])
        assert again.outcome == "correct", "the fault is not remembered, and the sandbox recovers"
    finally:
        code_env.close()


def test_details_show_each_test_small_and_in_json(code_env: CodeEnv, task: Task) -> None:
    (s,) = grade(code_env, [task], [UNGUARDED + "\nprint('x' * 5000)"])
    tests = json.loads(json.dumps(s.detail))["tests"]
    assert [t["kind"] for t in tests] == ["visible"] * 2 + ["heldout"] * 2 + ["hidden"] * 6 + ["perturbed"]
    empty = next(t for t in tests if t["kind"] == "hidden" and t["input"] == "")
    assert (empty["status"], empty["passed"], empty["expected"]) == ("error", False, "0")
    assert empty["error"].startswith("ValueError: max()")
    assert len(json.dumps(s.detail)) < 4000


def test_perturbed_inputs_come_from_the_visible_ones_alone(task: Task) -> None:
    blind = Task("t", "train", "p", {**task.data, "hidden": [], "heldout": [], "fresh": []})
    assert perturbed_inputs(blind) == perturbed_inputs(task) == ["\n", "3\n", "1 3\n", "-5 2 4 -5 2 4\n"]


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ("9\n", "9", True),
        ("9 \n\n", "9", True),
        ("", "", True),
        ("9.0\n", "9", False),
        (" 9\n", "9", False),
        ("9\n1", "9", False),
    ],
)
def test_printed_text_is_compared_line_by_line(got: str, expected: str, same: bool) -> None:
    assert same_output(got, expected, "stdin") is same


def test_returned_values_are_compared_with_exact_types() -> None:
    assert same_output([1, 2], [1, 2], "function")
    assert not same_output(True, 1, "function")
    assert not same_output(1.0, 1, "function")


def test_a_fenced_program_is_taken_out_of_its_prose() -> None:
    assert extract_program("Sure:\n```python\nprint(1)\n```\nThat is it.") == "print(1)"
    assert extract_program("```\nprint(1)\n```\nbetter:\n```py\nprint(2)\n") == "print(2)"
    assert extract_program("print(3)\n") == "print(3)"


@pytest.mark.parametrize(
    "text",
    ["-" * 15000 + "1", "(" * 9000, "[" * 300 + "]" * 300, "x" * 50000, "a\x00b", "\ud800", "f(" * 5000, "1" * 9000],
)
def test_hostile_text_is_no_program_and_no_crash(code_env: CodeEnv, task: Task, text: str) -> None:
    parse_program(text)
    (s,) = grade(code_env, [task], [text])
    assert s.outcome == "incorrect"


def test_the_teacher_is_right_a_little_more_than_half_of_the_time(code_env: CodeEnv) -> None:
    rng = random.Random(5)
    stream = problems(rng, "train", DEMO_LENGTHS, 0.0)
    chosen = [next(stream) for _ in range(400)]
    tasks = [as_task(p, "train") for p in chosen]
    texts = [demonstrate(rng, CodeTeacher(), p.chain, t.data["visible"]) for p, t in zip(chosen, tasks, strict=True)]
    scores = grade(code_env, tasks, texts)
    share = {c: sum(s.components[c] or 0 for s in scores) / len(scores) for c in ("visible", "hidden", "format")}
    assert 0.48 < share["hidden"] < 0.63
    assert 0.80 < share["visible"] < 0.93
    assert share["format"] == 1.0, "an honest mistake still parses and prints"


def test_a_perfect_teacher_is_always_right(code_env: CodeEnv) -> None:
    rng = random.Random(6)
    stream = problems(rng, "train", DEMO_LENGTHS, 0.0)
    chosen = [next(stream) for _ in range(100)]
    tasks = [as_task(p, "train") for p in chosen]
    perfect = CodeTeacher(slip=0, unguarded=0, hard_coded=0, usual=0.5)
    texts = [demonstrate(rng, perfect, p.chain, t.data["visible"]) for p, t in zip(chosen, tasks, strict=True)]
    assert all(s.outcome == "correct" for s in grade(code_env, tasks, texts))
