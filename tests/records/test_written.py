"""`records.written`: components named by their content, refused by what their source says, shown what is public."""

from __future__ import annotations

import json

import pytest

from evotrainer.errors import ConfigError, SingleFactorError
from evotrainer.records.one_factor import single_factor
from evotrainer.records.recipe import diff, format_diff, parse_recipe
from evotrainer.records.rollout import Turn
from evotrainer.records.written import about, changed_sources, content_name, evidence, is_value, static_fault

SOURCE = '''def reward(rollout):
    """1 where nothing failed."""
    return float(all(t["status"] == "ok" for t in rollout["tests"]))
'''
OTHER = SOURCE.replace('"ok"', '"fine"')


def with_source(source: str = SOURCE, weight: float = 1.0) -> dict[str, object]:
    return {"rewards": {"visible": 1.0, "safe": weight}, "written": {"safe": source}}


def test_a_component_is_named_by_its_source_and_makes_another_recipe() -> None:
    plain = parse_recipe({"rewards": {"visible": 1.0}})
    paid = plain.with_factor("written_reward", with_source())
    name = content_name("safe", SOURCE)
    assert dict(paid.rewards) == {"visible": 1.0, name: 1.0} and dict(paid.written) == {name: SOURCE}
    assert single_factor(plain, paid) == "written_reward"
    assert paid.hash != plain.hash != plain.with_factor("written_reward", with_source(OTHER)).hash
    assert paid.hash != plain.with_factor("written_reward", with_source(OTHER)).hash
    assert parse_recipe(paid.model_dump(mode="json")) == paid == parse_recipe(json.loads(paid.canonical()))
    assert "3 lines" in format_diff(diff(plain, paid)) and "return" not in format_diff(diff(plain, paid))


def test_the_earlier_recipe_that_one_goes_on_from_keeps_its_code() -> None:
    first = parse_recipe({"rewards": {"visible": 1.0}}).with_factor("written_reward", with_source())
    later = first.with_factor("start", "champion")
    assert later.start is not None and dict(later.start.written) == dict(first.written)
    assert parse_recipe(json.loads(later.canonical())).hash == later.hash


def test_a_name_with_the_hash_of_another_source_is_refused() -> None:
    wrong = {"rewards": {content_name("safe", SOURCE): 1.0}, "written": {content_name("safe", SOURCE): OTHER}}
    with pytest.raises(ConfigError, match="its source has the hash"):
        parse_recipe(wrong)
    with pytest.raises(ConfigError, match="a name is up to 48"):
        parse_recipe({"written": {"../safe": SOURCE}})


def test_a_component_that_fails_must_never_be_a_gain() -> None:
    with pytest.raises(ConfigError, match="with a positive weight"):
        parse_recipe(with_source(weight=-1.0))


def test_a_written_component_is_one_move_and_not_two() -> None:
    plain = parse_recipe({"rewards": {"visible": 1.0, "format": 0.5}})
    two = {"rewards": {"visible": 2.0, "format": 0.5, "safe": 1.0}, "written": {"safe": SOURCE}}
    with pytest.raises(SingleFactorError, match="2 moves in the reward composition"):
        single_factor(plain, plain.with_factor("written_reward", two))


@pytest.mark.parametrize(
    ("source", "label", "why"),
    [
        ("def reward(", "unparsable", "no Python"),
        ("x = 1\n" * 5000, "unparsable", "at most 20000"),
        ("import os\ndef reward(rollout):\n    return 1.0", "forbidden_import", "imports os"),
        ("from .x import y\ndef reward(rollout):\n    return 1.0", "forbidden_import", r"imports \."),
        ("def reward(rollout):\n    return len(open('/x').read())", "forbidden_import", "uses open"),
        ("def reward(rollout):\n    return ().__class__", "forbidden_import", "__class__"),
        ("def reward(rollout):\n    return getattr(rollout, '__class__')", "forbidden_import", "getattr"),
        ("def reward(rollout, more):\n    return 1.0", "signature", "takes one argument"),
        ("def score(rollout):\n    return 1.0", "signature", "defines 0 functions named reward"),
        ("for x in ():\n    pass\ndef reward(rollout):\n    return 1.0", "signature", "not For"),
        ("n = 0\ndef reward(rollout):\n    global n\n    return 1.0", "signature", "pure function"),
        ("import math\ndef reward(rollout):\n    math.n = 1\n    return 1.0", "signature", "line 3 sets n"),
        ("def reward(rollout):\n    return rollout['outcome'] == 'correct'", "reads_protected", "'outcome'"),
        ("def reward(rollout):\n    return rollout['components']['hidden']", "reads_protected", "'hidden'"),
        ("def reward(rollout):\n    return rollout['components'].get('robust')", "reads_protected", "'robust'"),
    ],
)
def test_what_a_source_says_against_itself_has_a_label(source: str, label: str, why: str) -> None:
    import re

    found = static_fault(source, ["robust"])
    assert found is not None and found[0] == label and re.search(why, found[1])


def test_a_plain_function_with_helpers_has_nothing_against_it() -> None:
    source = "import re\nLIMIT = 3\n\ndef helper(text):\n    return len(re.findall('x', text)) < LIMIT\n\n" + SOURCE
    assert static_fault(source) is None and static_fault(SOURCE) is None
    assert about(source) == "1 where nothing failed." and about("def") == ""


def test_evidence_holds_neither_outcome_nor_hidden_tests_nor_who_it_was() -> None:
    detail = {
        "tests": [
            {"kind": "visible", "input": "1", "expected": "1", "got": "1", "status": "ok", "passed": True},
            {"kind": "hidden", "input": "2", "expected": "4", "got": "4", "status": "ok", "passed": True},
            {"kind": "heldout", "input": "3", "expected": "9", "got": "", "status": "error", "passed": False},
            {"kind": "perturbed", "input": "", "expected": None, "got": None, "status": "error", "passed": False},
        ],
        "gold": "secret",
        "tags": {"ops": "2"},
    }
    turns = (Turn("user", "square it"), Turn("assistant", "print(1)"))
    shown = evidence(turns, {"visible": 1.0, "hidden": 1.0, "safe@0123": 1.0}, detail, {"hidden"})
    assert shown.keys() == {"turns", "components", "tests"}
    assert shown["components"] == {"visible": 1.0}
    assert [t["kind"] for t in shown["tests"]] == ["visible", "perturbed"]
    assert shown["tests"][1].keys() == {"kind", "input", "got", "status"}, "nothing says what would have passed"
    assert "secret" not in str(shown)


def test_values_are_numbers_from_0_to_1_or_none() -> None:
    assert all(map(is_value, (None, 0, 1, 0.5, True)))
    assert not any(map(is_value, (2, -0.1, float("nan"), "1", [1.0])))


def test_a_changed_source_shows_as_a_difference() -> None:
    old, new = {content_name("safe", SOURCE): SOURCE}, {content_name("safe", OTHER): OTHER}
    (lines,) = changed_sources(old, new).values()
    assert any(x.startswith("-") and '"ok"' in x for x in lines) and any(x.startswith("+") for x in lines)
    assert changed_sources({}, new) == {content_name("safe", OTHER): OTHER.rstrip("\n").split("\n")}
    assert changed_sources(new, new) == {}
