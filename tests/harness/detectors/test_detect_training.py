"""Echo onset, drift, self-testing, failed calls, transitions and advantages: seen, unseen, and nearly seen."""

from __future__ import annotations

import pytest

from evotrainer.harness import HarnessContext
from evotrainer.records.rollout import Rollout, ToolCall, Turn
from tests.harness_inputs import acting, curve, found, groups, metrics, reading, rollout

ROLLOUTS = groups([[0, 1, 0, 1]] * 8)
FALLING = {"entropy": (0.8, 0.3), "reward_std": (0.4, 0.2)}


class TestEchoOnset:
    def test_turns_rise_while_spread_and_entropy_fall(self) -> None:
        context = HarnessContext(curve=curve(20, turns=(4.0, 9.0), **FALLING))
        assert found("echo_trap", ROLLOUTS, context)[0].severity == "warn"

    def test_three_checks_in_a_row(self) -> None:
        turns = [acting(t, k, ["ls"] * 3 + [f"cat {i}" for i in range(6)], k == 0) for t in range(8) for k in range(4)]
        checks = tuple(reading(turns=x) for x in (4.0, 5.0, 7.0))
        assert found("echo_trap", turns, HarnessContext(previous=checks, curve=curve(20, **FALLING)))
        flat = tuple(reading(turns=x) for x in (4.0, 9.5, 7.0))
        assert found("echo_trap", turns, HarnessContext(previous=flat, curve=curve(20, **FALLING))) == []

    def test_rising_turns_of_a_policy_that_gets_better_are_work(self) -> None:
        context = HarnessContext(base=reading(accuracy=(0.3, 0.02)), curve=curve(20, turns=(4.0, 9.0), **FALLING))
        assert found("echo_trap", ROLLOUTS, context) == []

    def test_rising_turns_alone_are_no_onset(self) -> None:
        steady = curve(20, turns=(4.0, 9.0), entropy=(0.8, 0.8), reward_std=(0.4, 0.2))
        assert found("echo_trap", ROLLOUTS, HarnessContext(curve=steady)) == []

    def test_answers_revised_turn_by_turn_echo_nothing(self) -> None:
        body = "\n".join(f"x{i} = {i} + step(a{i}, b{i})" for i in range(30))
        turns = tuple(t for v in range(3) for t in (Turn("user", "again"), Turn("assistant", f"{body}\nprint({v})")))
        assert found("echo_trap", [rollout(f"t{i}", turns=turns) for i in range(20)]) == []

    def test_two_actions_in_turn_for_ever_are_an_echo(self) -> None:
        loop = [acting(i, 0, ["cat a.py", "sed -n 1,9p a.py"] * 6, False) for i in range(20)]
        assert found("echo_trap", loop)[0].severity == "critical"

    def test_a_gradient_spike_at_the_end_of_the_trap_is_critical(self) -> None:
        def at(last: float, **lines: tuple[float, float]) -> list[str]:
            points = curve(20, turns=(4.0, 9.0), grad_norm=(0.9, 1.1), **lines)
            context = HarnessContext(curve=(*points[:-1], {**points[-1], "grad_norm": last}))
            return [f.severity for f in found("echo_trap", ROLLOUTS, context)]

        assert at(8.0, **FALLING) == ["critical"]
        assert at(3.0, **FALLING) == ["warn"]
        assert at(8.0, entropy=(0.8, 0.8), reward_std=(0.4, 0.2)) == []


@pytest.mark.parametrize(("last", "severity"), [(0.05, "critical"), (0.35, "warn"), (0.7, None)])
def test_a_small_effective_sample_size_is_off_policy_drift(last: float, severity: str | None) -> None:
    context = HarnessContext(curve=curve(20, ess=(0.95, last)))
    assert [f.severity for f in found("off_policy_drift", ROLLOUTS, context)] == ([severity] if severity else [])


class TestLaziness:
    def batch(self, tested: int, correct: bool = False) -> list[Rollout]:
        work = ["ls", "sed -i s/1/2/ a.py"]
        return [acting(i // 4, i, [*work, "pytest"] if i < tested else work, correct) for i in range(40)]

    def test_a_third_of_the_episodes_runs_tests(self) -> None:
        assert found("laziness", self.batch(13))[0].severity == "warn"

    def test_more_than_half_does(self) -> None:
        assert found("laziness", self.batch(22)) == []

    def test_where_nobody_tests_there_may_be_none(self) -> None:
        assert found("laziness", self.batch(0)) == []

    def test_right_without_testing_is_no_laziness(self) -> None:
        assert found("laziness", self.batch(13, correct=True)) == []


class TestToolMisuse:
    def batch(self, command: str, printed: str, ok: bool | None = False) -> list[Rollout]:
        turns = (Turn("user", "fix"), Turn("assistant", "", (ToolCall("bash", command, ok),)), Turn("tool", printed))
        return [rollout(f"t{i}", turns=turns) for i in range(30)]

    def test_a_call_that_fails(self) -> None:
        (f,) = found("tool_misuse", self.batch("sed -x", "sed: unknown option"))
        assert "unknown option" in f.quotes[0].note

    @pytest.mark.parametrize(("command", "printed"), [("pytest -q", "1 failed, 3 passed"), ("grep -rn foo src", "")])
    def test_tests_that_ran_and_searches_that_found_nothing_worked(self, command: str, printed: str) -> None:
        assert found("tool_misuse", self.batch(command, printed)) == []

    def test_tests_that_did_not_run_failed(self) -> None:
        assert found("tool_misuse", self.batch("pytest -q", "bash: pytest: command not found"))

    def test_each_call_of_a_turn_is_judged_by_its_own_output(self) -> None:
        calls = (ToolCall("bash", "pytest -q", False), ToolCall("bash", "grep -rn foo sr", False))
        said = (Turn("tool", "1 failed, 3 passed"), Turn("tool", "grep: sr: No such file or directory"))
        batch = [rollout(f"t{i}", turns=(Turn("user", "fix"), Turn("assistant", "", calls), *said)) for i in range(30)]
        (f,) = found("tool_misuse", batch)
        assert f.numbers["tool_failure_rate"] == 0.5
        assert "grep" in f.quotes[0].text
        assert "No such file" in f.quotes[0].note

    def test_a_call_whose_output_is_missing_is_unknown_where_the_output_would_tell(self) -> None:
        calls = (ToolCall("bash", "sed -x", False), ToolCall("bash", "pytest -q", False))
        turns = (Turn("user", "fix"), Turn("assistant", "", calls), Turn("tool", "sed: unknown option"))
        batch = [rollout(f"t{i}", turns=turns) for i in range(30)]
        rate = metrics(batch)["tool_failure_rate"]
        assert (rate.value, rate.n) == (1.0, 30)

    def test_logs_that_note_only_failures(self) -> None:
        noted = self.batch("sed -x", "unknown option")[:3] + self.batch("ls", "a.py", None)
        assert found("tool_misuse", [*noted]) == []


class TestTimidity:
    def test_one_edit_after_a_long_search_is_no_timidity(self) -> None:
        every = [acting(i // 4, i, ["ls"] * 12 + ["sed -i s/1/2/ a.py"], False) for i in range(40)]
        assert found("action_timidity", every) == []

    def test_edits_in_a_third_of_the_episodes(self) -> None:
        some = [acting(i // 4, i, ["ls"] * 8 + ["sed -i s/1/2/ a.py"] * (i % 3 == 0), False) for i in range(40)]
        assert found("action_timidity", some)[0].severity in {"warn", "critical"}

    def test_edits_that_are_refused_were_tried(self) -> None:
        """Of four edits in twenty actions one is left: as the policy looks around in their place, or by refusals."""
        edit, context = "sed -i s/1/2/ a.py", HarnessContext(base=reading(edit_ratio=0.2, search_ratio=0.8))
        timid = ["ls"] * 19 + [edit]
        refused = [("ls", n % 4 == 0) for n in range(16)] + [(edit, False)] * 3 + [(edit, True)]
        (f,) = found("action_timidity", [acting(i // 4, i, timid, False) for i in range(40)], context)
        assert f.severity == "warn"
        assert found("action_timidity", [acting(i // 4, i, refused, False) for i in range(40)], context) == []
        # fewer refusals than before make no timidity of a policy that edits more
        before = reading(edit_ratio=0.15, search_ratio=0.7, tool_failure_rate=0.6)
        more = [acting(i // 4, i, ["ls"] * 9 + [edit] * 4 * (i % 2), False) for i in range(40)]
        assert found("action_timidity", more, HarnessContext(base=before)) == []


class TestTransition:
    def test_against_the_version_before(self) -> None:
        rs = groups([[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]])
        m = metrics(rs, HarnessContext(before={"t0": 0.9, "t1": 0.6, "t2": 0.2, "t3": 0.0, "elsewhere": 1.0}))
        assert [m[f"transition/{k}"].value for k in ("kept", "lost", "gained", "unsolved")] == [0.25] * 4

    def test_between_the_first_and_the_last_third_of_the_steps(self) -> None:
        rs = [rollout("t0", k, correct=k >= 3, step=k, group=f"g{k}") for k in range(6)]
        m = metrics(rs)
        assert m["transition/gained"].value == 1.0
        assert m["transition/gained"].n == 1

    def test_one_version_has_no_transition(self) -> None:
        assert metrics(groups([[0, 1]]))["transition"].missing


def test_advantages_that_agree_with_the_outcome() -> None:
    rs = [rollout(f"t{t}", k, correct=k > 1, advantage=(1.0 if k > 1 else -1.0)) for t in range(4) for k in range(4)]
    m = metrics(rs)
    assert m["advantage_agreement"].value == 1.0
    assert m["advantage_std"].value == pytest.approx(1.0)
    flipped = [
        rollout(f"t{t}", k, correct=k > 1, advantage=(-1.0 if k > 1 else 1.0)) for t in range(4) for k in range(4)
    ]
    assert metrics(flipped)["advantage_agreement"].value == 0.0
    assert metrics(groups([[0, 1]]))["advantage_agreement"].missing
