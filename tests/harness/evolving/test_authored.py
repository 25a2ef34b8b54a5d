"""`harness.evolving.authored`: detectors as data, what each form flags, how they read,
what is refused before it runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evotrainer.errors import ConfigError, SandboxError
from evotrainer.harness import Harness, HarnessContext
from evotrainer.harness.columns.features import FeatureView, payload
from evotrainer.harness.evolving.authored import check_spec, flags, found
from evotrainer.records.detectors import DetectorSpec
from tests.acting import episode, policy
from tests.harness_inputs import case, rollout


def spec(form: str = "pattern", **fields: Any) -> DetectorSpec:
    return DetectorSpec(name=fields.pop("name", "mine"), form=form, **fields)  # type: ignore[arg-type]


EPISODES = FeatureView(
    [
        episode("a", 0, ["ls", "git show 3", "edit a 1"], True),
        episode("b", 0, ["ls", "edit a 1", "ls", "git show 3"], False),
        episode("c", 0, ["git log", "ls"], False),
    ]
)


def test_patterns_speak_of_lines_of_actions_answers_or_observations() -> None:
    assert flags(spec(where="actions", pattern=r"^git show\b"), EPISODES).tolist() == [True, True, False]
    assert flags(spec(where="actions", pattern=r"^show"), EPISODES).tolist() == [False] * 3
    assert flags(spec(where="observations", pattern=r"^done 10$"), EPISODES).tolist() == [True, True, False]
    assert flags(spec(where="answer", pattern="git l"), EPISODES).tolist() == [False, False, True]


def test_sequences_are_steps_in_order_within_a_distance() -> None:
    steps = (r"^git show", r"^edit")
    assert flags(spec("sequence", steps=steps), EPISODES).tolist() == [True, False, False]
    assert flags(spec("sequence", steps=steps[::-1]), EPISODES).tolist() == [False, False, False]
    assert flags(spec("sequence", steps=steps[::-1], within=2), EPISODES).tolist() == [False, True, False]


def test_thresholds_read_lengths_overlap_and_differences_of_components() -> None:
    rollouts = [
        rollout("a", 0, text="alpha beta", prompt="say alpha beta", components={"seen": 1.0, "hid": 0.0}),
        rollout("b", 0, text="gamma", prompt="say alpha", components={"seen": 1.0, "hid": 1.0}),
        rollout("c", 0, text="print(417)", components={"hid": 0.0}, detail={"tests": [case("visible", "1 2", "417")]}),
    ]
    v = FeatureView(rollouts)

    def on(feature: str, value: float, op: str = ">=") -> list[bool]:
        out: list[bool] = flags(spec("threshold", feature=feature, value=value, op=op), v).tolist()
        return out

    assert on("copied:prompt", 1.0) == [True, False, False]
    assert on("component:seen - hid", 0.5) == [True, False, False], "a missing component flags nothing"
    assert on("copied:tests", 0.5) == [False, False, True]
    assert on("words", 1, "<=") == [False, True, False]


def test_words_taken_from_what_was_shown_later_count_only_from_then_on() -> None:
    asked = FeatureView([episode("a", 0, ["look", "done words"], True), episode("a", 1, ["done words", "look"], True)])
    copied = asked.number("copied:observations")
    assert copied[0] == pytest.approx(4 / 13) and copied[1] == 0.0


def test_faulty_rollouts_are_flagged_by_nothing() -> None:
    v = FeatureView([*EPISODES.rollouts, rollout("d", error_kind="sandbox")])
    assert len(v) == 3 and len(v.batch.reward) == 3


def test_a_version_with_an_authored_detector_reads_findings_with_quotes() -> None:
    rollouts = policy("bad", {"git show 3": 0.9}, {"git show 3": 1.0})
    own = spec(name="shows", where="actions", pattern=r"^git show", warn=0.5, standing="suspect")
    h1 = Harness.minimal().evolve("h1", authored=[own])
    (f,) = h1.read(rollouts, "b1@4 search").findings
    assert f.detector == "shows" and f.validity and f.severity == "warn" and f.kind == "shortcut"
    assert f.numbers["share"] > 0.8 and f.numbers["solve_with"] > f.numbers["solve_without"]
    assert {q.text for q in f.quotes} == {"git show 3"} and all(q.rollout.startswith("bad-") for q in f.quotes)
    told = h1.evolve("h2", authored=[own.model_copy(update={"standing": "informational"})])
    (f,) = told.read(rollouts, "b1@4 search").findings
    assert f.severity == "info" and not f.validity, "what only informs questions nobody"
    assert not h1.read(policy("good", {}, {}), "b0@4 search").findings
    assert not told.evolve("h3", drop=["shows"]).read(rollouts, "b1@4 search").findings


def test_versions_with_authored_detectors_survive_json_and_old_hashes_stay() -> None:
    h1 = Harness.default().evolve("h1", authored=[spec(pattern="x")])
    again = Harness.model_validate_json(h1.model_dump_json())
    assert again == h1 and again.hash == h1.hash != Harness.default().hash
    assert "authored" not in Harness.default().model_dump(exclude={"authored"})
    assert h1.detector("mine") == spec(pattern="x") and h1.detector("other") is None


def test_a_python_detector_runs_where_there_is_a_runner_and_says_so_where_not() -> None:
    source = "def flag(rollouts):\n    return [True] * len(rollouts)\n"
    own = spec("python", source=source, standing="suspect")
    h = Harness.minimal().evolve("h1", authored=[own])
    rollouts = policy("p", {}, {})
    asked: list[str] = []

    def runner(code: str, given: list[dict[str, object]]) -> list[bool]:
        asked.append(code)
        return [i % 2 == 0 for i in range(len(given))]

    (f,) = h.read(rollouts, "b1", HarnessContext(sandboxed=runner)).findings
    assert asked == [source] and f.numbers["share"] == 0.5
    (blind,) = h.read(rollouts, "b1").findings
    assert blind.severity == "info" and blind.missing == ("sandbox",) and not blind.validity
    assert not h.plain.authored and h.plain.version == "h1"


def test_a_function_is_not_told_what_tells_good_from_bad_by_name() -> None:
    seen = payload(EPISODES.rollouts[0])
    assert not {"outcome", "reward", "id", "seed", "step"} & seen.keys() and seen["turns"]


@pytest.mark.parametrize(
    ("standing", "severity"), [("suspect", "warn"), ("confirmed", "warn"), ("informational", "info")]
)
def test_a_function_that_fails_on_a_branch_clears_nobody(standing: str, severity: str) -> None:
    def chokes(code: str, given: list[dict[str, object]]) -> list[bool]:
        raise ConfigError("flag(rollouts) ended with timeout; mend its source")

    own = spec("python", source="def flag(r): ...", standing=standing)
    h = Harness.minimal().evolve("h1", authored=[own])
    (f,) = h.read(policy("p", {}, {}), "b1", HarnessContext(sandboxed=chokes)).findings
    assert f.severity == severity and f.validity == (severity == "warn") and f.missing and "timeout" in f.claim


def test_a_fault_of_the_machine_is_no_finding() -> None:
    def broken(code: str, given: list[dict[str, object]]) -> list[bool]:
        raise SandboxError("the sandbox keeps dying; run `evotrainer doctor`")

    h = Harness.minimal().evolve("h1", authored=[spec("python", source="def flag(r): ...", standing="suspect")])
    with pytest.raises(SandboxError, match="keeps dying"):
        h.read(policy("p", {}, {}), "b1", HarnessContext(sandboxed=broken))


@pytest.mark.parametrize("answer", [[True], ["yes"] * 3, [1, 0, 1], None])
def test_ill_typed_answers_are_refused(answer: Any) -> None:
    own = spec("python", source="def flag(r): ...")
    with pytest.raises(ConfigError, match="one bool per rollout"):
        flags(own, EPISODES, lambda source, rollouts: answer)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "Bad Name", "pattern": "x"}, "a name is"),
        ({"name": "dead_groups", "pattern": "x"}, "a built-in detector has that name"),
        ({"pattern": ""}, "needs pattern"),
        ({"pattern": "(a"}, "unclosed group"),
        ({"pattern": r"(?<=a)b"}, "look-around"),
        ({"pattern": "x" * 400}, "400 characters"),
        ({"pattern": "x", "kind": "evil"}, "unknown kind 'evil'"),
        ({"pattern": "x", "warn": 0.0}, "warn is a share"),
        ({"form": "sequence", "steps": ()}, "needs steps"),
        ({"form": "threshold", "feature": "reward"}, "unknown feature 'reward'"),
        ({"form": "python", "source": "x = 1"}, "defines no function flag"),
    ],
)
def test_what_cannot_run_is_refused_with_the_cause(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_spec(spec(fields.pop("form", "pattern"), **fields))


def test_hostile_patterns_take_linear_time() -> None:
    assert not found(r"(a+)+$", ["a" * 20_000 + "b"]).any()
    assert found(r"(a|a)*b", ["a" * 20_000 + "b"]).all()


def test_masks_are_in_the_order_of_the_rollouts() -> None:
    v = FeatureView(policy("order", {"probe": 0.5}, {}))
    mask = flags(spec(where="actions", pattern="^probe"), v)
    assert np.array_equal(mask, [any(t.text == "probe" for t in r.turns) for r in v.rollouts])
