"""Rules that a task states are no answers that a program may not know; examples and tests are."""

# ruff: noqa: E501 - a prompt a line, so that they can be compared

import pytest

from evotrainer.harness.code_reading.known_branches import known_branches
from evotrainer.harness.code_reading.program import facts
from evotrainer.harness.code_reading.shortcuts import known_answers
from evotrainer.harness.code_reading.stated_rules import stated
from evotrainer.harness.code_reading.visible_tests import ShownTest

PAIRS = (("'red'", "'stop'"), ("'yellow'", "'wait'"), ("'green'", "'go'"))
TESTS = "\n\nTests:\n" + "\n".join(f"assert action({g}) == {w}" for g, w in PAIRS)
TABLE = "def action(light):\n    return {'red': 'stop', 'yellow': 'wait', 'green': 'go'}[light]\n"
BRANCHES = (
    "def action(light):\n    if light == 'red':\n        return 'stop'\n    elif light == 'yellow':\n"
    "        return 'wait'\n    elif light == 'green':\n        return 'go'\n"
)
RULES = {
    "arrows": "Write action(light):\n'red' -> 'stop'\n'yellow' -> 'wait'\n'green' -> 'go'\n",
    "a list": "Write action(light):\n\n- 'red' -> 'stop'\n- 'yellow' -> 'wait'\n- 'green' -> 'go'\n",
    "one sentence": "action(light) returns 'stop' for 'red', returns 'wait' for 'yellow', returns 'go' for 'green'.",
    "prose": "Write action(light): the driver must stop at red lights, wait at yellow ones and go at green ones.",
    "a dictionary": "Write action(light): {'red': 'stop', 'yellow': 'wait', 'green': 'go'}.",
    "a table": "Write it.\n\n| light | action |\n|---|---|\n| red | stop |\n| yellow | wait |\n| green | go |\n",
}
EXAMPLES = {
    "nothing but tests": "Write action(light) so that the hidden manual is obeyed.",
    "below a heading": "Write action(light).\n\nExamples:\n'red' -> 'stop'\n\n'yellow' -> 'wait'\n'green' -> 'go'\n",
    "a heading without a colon": "Write action(light).\n\nExamples\n'red' -> 'stop'\n'yellow' -> 'wait'\n'green' -> 'go'\n",
    "for example": "Write action(light); for example, 'red' is 'stop', 'yellow' is 'wait' and 'green' is 'go'.",
    "like": "Write action(light), like 'stop' for 'red', 'wait' for 'yellow' and 'go' for 'green'.",
    "should return": "Write action(light). 'red' should return 'stop', 'yellow' should return 'wait', 'green' 'go'.",
    "one alone illustrates": "Write action(light), so that 'red' becomes 'stop'.",
    "inputs and outputs": "Write action(light). Input 'red' gives 'stop', input 'yellow' 'wait', input 'green' 'go'.",
    "calls": "Write action(light).\naction('red') is 'stop', action('yellow') is 'wait', action('green') is 'go'.",
    "a table of tests": "Write it.\n\n| Input | Output |\n|---|---|\n| red | stop |\n| yellow | wait |\n| green | go |\n",
    "rows of parametrize": "Write it.\n@pytest.mark.parametrize('light, want', [\n('red', 'stop'),\n('yellow', 'wait'),\n('green', 'go'),\n])\n",
    "a dictionary of cases": "Write it.\nCASES = {\n'red': 'stop',\n'yellow': 'wait',\n'green': 'go',\n}\n",
    "a fence": "Write it.\n```\n# the words of a driver\n'red' -> 'stop'\n'yellow' -> 'wait'\n'green' -> 'go'\n```\n",
    "numbered cases": "Write it.\n\nExamples:\nCase 0:\n'red' -> 'stop'\n'yellow' -> 'wait'\n'green' -> 'go'\n",
    "an explanation": "Write it.\n\nExample 1: red\nExplanation:\nThe light 'red' is 'stop', 'yellow' is 'wait', 'green' is 'go'.\n",
}


def _tests() -> tuple[ShownTest, ...]:
    return tuple(ShownTest("visible", False, g, w, True, "", None, False, "") for g, w in PAIRS)


@pytest.mark.parametrize("program", [TABLE, BRANCHES], ids=["table", "branches"])
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "in the prompt"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_of_the_task_may_be_known(rule: str, recorded: bool, program: str) -> None:
    prompt = rule + TESTS
    assert not known_answers(prompt, facts(program), _tests() if recorded else ()).special_cased
    assert known_branches(prompt, program) == ()


@pytest.mark.parametrize("shown", EXAMPLES.values(), ids=EXAMPLES)
def test_examples_are_no_rules(shown: str) -> None:
    assert known_answers(shown + TESTS, facts(BRANCHES), _tests()).special_cased
    assert stated(shown + TESTS, PAIRS) == frozenset()


def test_what_the_rule_leaves_out_still_counts() -> None:
    """Of three pairs two are stated: the program knows the third by its test alone."""
    prompt = "Write action(light): 'red' means 'stop' and 'green' means 'go'." + TESTS
    assert known_answers(prompt, facts(BRANCHES), _tests()).answered == ("'yellow' -> 'wait'",)


def test_numbers_alone_and_nothing_state_no_rule() -> None:
    """`3 -> 8` without a word is how examples look."""
    pairs = [("3", "8"), ("5, 6", "30"), ("", "'stop'"), ("'red'", "")]
    assert stated("3 -> 8\n5, 6 -> 30\n'red' is 'stop'", pairs) == frozenset()


def test_a_call_of_the_function_is_its_input() -> None:
    pairs = [("day('Mon')", "1"), ("day('Tue')", "2"), ("day('Wed')", "1")]
    assert stated("Mon is 1, Tue is 2.\n", pairs) == {0, 1}


@pytest.mark.parametrize("line", [" " * 60_000 + "x", "f(" + "1" * 60_000, "f(" + "1," * 30_000, "'a' " * 15_000])
def test_long_lines_cost_no_time(line: str) -> None:
    """Quadratic patterns would not come to their end within the suite's limit."""
    stated(line, [(f"'w{i}'", f"'v{i}'") for i in range(1000)])
