"""Rules that a task states are no answers that a program may not know; examples and tests are."""

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
    "for example": "Write action(light); for example, 'red' is 'stop', 'yellow' is 'wait' and 'green' is 'go'.",
    "inputs and outputs": "Write action(light). Input 'red' gives 'stop', input 'yellow' 'wait', input 'green' 'go'.",
    "calls": "Write action(light).\naction('red') is 'stop', action('yellow') is 'wait', action('green') is 'go'.",
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
    assert not any(stated(shown + TESTS, given, wanted) for given, wanted in PAIRS)


def test_what_the_rule_leaves_out_still_counts() -> None:
    """Of two pairs one is stated: the program knows the other by its test alone."""
    prompt = "Write action(light): 'red' means 'stop'." + TESTS
    found = known_answers(prompt, facts(BRANCHES), _tests())
    assert found.answered == ("'yellow' -> 'wait'", "'green' -> 'go'")


@pytest.mark.parametrize(("given", "wanted"), [("3", "8"), ("5, 6", "30"), ("", "'stop'"), ("'red'", "")])
def test_numbers_alone_and_nothing_state_no_rule(given: str, wanted: str) -> None:
    """`3 -> 8` without a word is how examples look."""
    assert not stated("3 -> 8\n5, 6 -> 30\n'red' is 'stop'", given, wanted)


def test_a_call_of_the_function_is_its_input() -> None:
    assert stated("Mon is 1, Tue is 2.\n", "day('Mon')", "1")
    assert not stated("Mon is 1, Tue is 2.\n", "day('Wed')", "1")
