"""`judge.readings`: a gain that greedy decoding shares, one that it does not, and at which temperatures sides were
compared."""

from __future__ import annotations

import numpy as np
import pytest

from evotrainer.judge import CertEntry, JudgeInput, certify, judge, measure_noise, scores_of
from evotrainer.records.events import TrialFinished
from evotrainer.records.verdicts import Verdict
from tests.judge.scored_trials import FIRST, planted, recomputed


def read_twice(
    trials: list[TrialFinished], greedy: float, seed: int, temperature: float | None = None
) -> list[TrialFinished]:
    """The trials with a greedy reading that solves each task where a fixed difficulty lies below its share
    plus `greedy`."""
    u_T = np.random.default_rng(99).random(len(trials[0].scores[0].per_task))
    rng = np.random.default_rng(seed)
    out = []
    for t in trials:
        s = t.scores[0]
        flip_T = rng.random(len(u_T)) < 0.05  # trainings differ in some tasks
        second = {
            task: float((u < 0.5 + greedy) != flip) for task, u, flip in zip(s.per_task, u_T, flip_T, strict=True)
        }
        mean = sum(second.values()) / len(second)
        new = s.model_copy(update={"greedy": mean, "greedy_per_task": second, "temperature": temperature})
        out.append(t.model_copy(update={"scores": (new,)}))
    return out


def pair(gain: float, greedy: float, seed: int = 0) -> tuple[list[TrialFinished], list[TrialFinished]]:
    branch, control = planted(gain, seed)
    return read_twice(branch, greedy, seed + 1), read_twice(control, 0.0, seed + 2)


def verdict(branch: list[TrialFinished], control: list[TrialFinished]) -> Verdict:
    noise = measure_noise("b0", scores_of(control, "gate"))
    given = JudgeInput("b1", "b0", branch, control, noise)
    v = judge(given, FIRST)
    assert not recomputed(v, given)
    return v


def test_a_gain_that_greedy_decoding_does_not_share_is_named_and_still_promoted() -> None:
    v = verdict(*pair(0.15, 0.0))
    (gate,) = [g for g in v.gates if g.gate == "sharpening"]
    assert v.kind == "promote" and gate.passed is False
    assert "sharpening: greedy decoding" in v.reason
    assert gate.numbers["sampled_low"] > 0 > gate.numbers["excess_high"]


def test_a_gain_that_greedy_decoding_shares_is_not() -> None:
    v = verdict(*pair(0.15, 0.15))
    (gate,) = [g for g in v.gates if g.gate == "sharpening"]
    assert v.kind == "promote" and gate.passed is True
    assert "sharpening is not shown" in v.reason


def test_without_a_gain_there_is_nothing_to_question() -> None:
    v = verdict(*pair(0.0, -0.2))
    (gate,) = [g for g in v.gates if g.gate == "sharpening"]
    assert gate.passed is None and "no gain to question" in gate.message


def test_a_sentence_changes_no_verdict() -> None:
    for gain in (-0.1, 0.0, 0.03, 0.06, 0.15):
        for seed in range(6):
            branch, control = planted(gain, seed)
            plain = verdict(branch, control)
            twice = verdict(read_twice(branch, 0.0, seed), read_twice(control, 0.1, seed))
            assert (plain.kind, plain.effect, plain.look) == (twice.kind, twice.effect, twice.look)
            assert plain.gates == tuple(g for g in twice.gates if g.gate != "sharpening")
            assert twice.reason.startswith(plain.reason)


def test_honest_gains_are_seldom_called_sharpening() -> None:
    named = [
        next(g for g in verdict(*pair(0.12, 0.12, seed)).gates if g.gate == "sharpening").passed is False
        for seed in range(40)
    ]
    assert sum(named) <= 1


def test_one_reading_on_either_side_says_nothing() -> None:
    branch, control = pair(0.15, 0.0)
    plain, _ = planted(0.15)
    assert not [g for g in verdict(plain, control).gates if g.gate == "sharpening"]
    one = [branch[0], *plain[1:]]
    assert not [g for g in verdict(one, control).gates if g.gate == "sharpening"], "two of three seeds were not"


def test_policies_are_compared_at_their_deployment_temperatures_and_it_is_said() -> None:
    branch, control = planted(0.15)
    v = verdict(read_twice(branch, 0.0, 1, temperature=0.5), read_twice(control, 0.0, 2))
    assert v.reason.endswith("compared at their deployment temperatures: b1 0.5, b0 the run's")


def test_the_same_weights_at_another_temperature_are_another_policy() -> None:
    branch, control = planted(0.15)
    same = [t.model_copy(update={"policy_sha256": f"sha-{t.seed}"}) for t in (*branch, *control)]
    b, c = same[: len(branch)], same[len(branch) :]
    assert [g.passed for g in verdict(b, c).gates if g.gate == "identical"] == [False]
    colder = read_twice(b, 0.0, 1, temperature=0.5)
    v = verdict(colder, read_twice(c, 0.0, 2))
    assert [g.passed for g in v.gates if g.gate == "identical"] == [True] and v.kind == "promote"


def certificate(greedy: float) -> tuple[dict[str, float], float | None]:
    branch, control = planted(0.15)
    entries = [
        CertEntry(name=n, branch=b, scores={t.seed: t.scores[0] for t in trials})
        for n, b, trials in (
            ("start", "b0", read_twice(control, 0.0, 1)),
            ("champion", "b1", read_twice(branch, greedy, 2, 0.7)),
        )
    ]
    found = certify(entries, "b1")
    assert found.rows[0].greedy == pytest.approx(0.5, abs=0.1) and found.rows[0].temperature is None
    return found.greedy["champion-start"], found.rows[1].temperature


def test_a_certificate_compares_both_readings() -> None:
    sharp, temperature = certificate(0.0)
    assert temperature == 0.7
    assert sharp["low"] < 0 < sharp["high"] and sharp["sampled_low"] > 0 > sharp["excess_high"]
    shared, _ = certificate(0.15)
    assert shared["low"] > 0 and shared["excess_high"] > 0


def test_a_certificate_of_one_reading_is_as_it_was() -> None:
    branch, control = planted(0.15)
    entries = [
        CertEntry(name="start", branch="b0", scores={t.seed: t.scores[0] for t in read_twice(control, 0.0, 1)}),
        CertEntry(name="champion", branch="b1", scores={t.seed: t.scores[0] for t in branch}),
    ]
    assert certify(entries, "b1").greedy == {}


def chosen(*decodings: str) -> dict[str, dict[str, float]]:
    """A champion that sampling favours by 15 points and greedy decoding by none, each side decoded as told."""
    branch, control = planted(0.15)
    sides = (("start", "b0", read_twice(control, 0.2, 1)), ("champion", "b1", read_twice(branch, 0.2, 2)))
    entries = [
        CertEntry(name=n, branch=b, scores={t.seed: t.scores[0] for t in trials}, decoding=how or None)
        for (n, b, trials), how in zip(sides, decodings, strict=True)
    ]
    found = certify(entries, "b1")
    assert [r.decoding or "" for r in found.rows] == list(decodings)
    means = {r.name: (r.greedy if r.decoding == "greedy" else r.score) for r in found.rows}
    for c in found.chosen.values():
        assert c["mean"] == pytest.approx(means["champion"] - means["start"]) and c["low"] < c["mean"] < c["high"]
    return found.chosen


def test_nobody_is_ahead_because_another_was_not_decoded_as_suits_it() -> None:
    as_sampled, both = chosen("sampled", "sampled"), chosen("greedy", "greedy")
    assert as_sampled["champion-start"]["low"] > 0.05
    assert both["champion-start"]["low"] < 0 < both["champion-start"]["high"]
    assert chosen("greedy", "sampled")["champion-start"]["mean"] < as_sampled["champion-start"]["mean"] - 0.1


def test_without_a_choice_for_everybody_there_is_none() -> None:
    assert chosen("greedy", "") == {} == chosen("", "")
