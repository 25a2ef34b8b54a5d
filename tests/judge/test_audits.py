"""`judge.audits`: honest policies are let go, shortcuts found, also where one seed of three has one."""

from __future__ import annotations

import numpy as np
import pytest

from evotrainer.errors import ConfigError
from evotrainer.judge import JudgeInput, answers, judge, settle_audit, with_shortcut_closed
from evotrainer.judge.alpha_spending import InterimAnalysis
from evotrainer.records.events import SplitScore, TrialFinished
from evotrainer.records.findings import Finding
from evotrainer.records.verdicts import Capability, ShortcutAudit

HISTORY = Capability(name="history", knob="history", open="full", closed="scrubbed", kinds=("answer_leak",))
TASKS = 150


def trials(rng: np.random.Generator, p_T: np.ndarray, seeds: list[int], name: str) -> list[TrialFinished]:
    """One trial per seed; each task is attempted four times with success probability p_T."""
    out = []
    for s in seeds:
        per = {f"t{i}": float(rng.binomial(4, p) / 4) for i, p in enumerate(p_T)}
        score = SplitScore(split="gate", step=1, score=sum(per.values()) / len(per), attempts=4, per_task=per)
        out.append(
            TrialFinished(trial=f"{name}-s{s}", branch=name, seed=s, status="complete", cpu_s=1, wall_s=1, steps=1,
                          scores=(score,))
        )  # fmt: skip
    return out


def audit(
    seed: int,
    opened: list[float],
    closed: list[float],
    base: tuple[float, float] = (0.4, 0.4),
    capability: Capability = HISTORY,
) -> ShortcutAudit:
    """An audit of seeds with these mean scores, tasks of differing difficulty."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(0, 0.15, TASKS)

    def evaluated(means: list[float], name: str) -> list[TrialFinished]:
        return [t for i, m in enumerate(means) for t in trials(rng, np.clip(m + hard, 0, 1), [i + 1], name)]

    return settle_audit(
        "b1",
        capability,
        "asked",
        evaluated(opened, "b1"),
        evaluated(closed, "b1"),
        evaluated([base[0]], "base"),
        evaluated([base[1]], "base"),
    )


def test_honest_policies_are_rarely_accused() -> None:
    confirmed = sum(audit(s, [0.6] * 3, [0.6] * 3).confirmed for s in range(300))
    assert confirmed <= 12, f"{confirmed} of 300 at a level of about 1 to 2%"


def test_what_costs_the_reference_as_much_is_no_shortcut() -> None:
    confirmed = sum(audit(s, [0.6] * 3, [0.5] * 3, (0.4, 0.3)).confirmed for s in range(100))
    assert confirmed <= 5
    assert not audit(0, [0.6] * 3, [0.5] * 3, (0.4, 0.3)).confirmed


def test_a_shortcut_is_found() -> None:
    found = [audit(s, [0.62] * 3, [0.42] * 3) for s in range(30)]
    assert all(a.confirmed for a in found)
    assert found[0].excess == pytest.approx(0.2, abs=0.06) and found[0].low > 0 and found[0].gain_lost > 0.7  # type: ignore[operator]


def test_one_seed_of_three_is_found() -> None:
    found = [audit(s, [0.75, 0.5, 0.5], [0.42, 0.5, 0.5]) for s in range(20)]
    assert sum(a.confirmed for a in found) >= 18
    hidden = [a for a in found if a.confirmed and a.low <= 0]
    assert len(hidden) > 3, "in the mean of three seeds the one is lost"
    assert all("seed 1 alone" in a.reason and a.per_seed_low["1"] > 0 for a in hidden)


def test_a_seed_among_three_is_asked_for_more_than_one_alone() -> None:
    rng = np.random.default_rng(3)
    p_T = rng.uniform(0.3, 0.9, TASKS)
    opened, closed = (trials(rng, p_T - cost, [1, 2, 3], "b1") for cost in (0.0, 0.1))
    base = trials(rng, p_T - 0.2, [1], "base")
    three, alone = (settle_audit("b1", HISTORY, "asked", opened[:n], closed[:n], base, base) for n in (3, 1))
    assert three.per_seed["1"] == alone.per_seed["1"] and three.per_seed_low["1"] < alone.per_seed_low["1"] - 0.005


def test_where_honest_work_uses_it_nothing_is_proven() -> None:
    both = HISTORY.model_copy(update={"honest": True})
    for opened, closed in ((0.6, 0.42), (0.42, 0.2), (0.85, 0.6)):
        kept = audit(0, [opened] * 3, [closed] * 3, (0.4, 0.38), capability=both)
        assert not kept.confirmed and kept.low > 0 and "proves nothing" in kept.reason
        assert audit(0, [opened] * 3, [closed] * 3, (0.4, 0.38)).confirmed


def test_evaluations_must_share_tasks_and_seeds() -> None:
    rng = np.random.default_rng(0)
    p_T = np.full(TASKS, 0.5)
    some = trials(rng, p_T, [1], "b1")
    with pytest.raises(ConfigError, match="share 0 seeds"):
        settle_audit("b1", HISTORY, "asked", some, trials(rng, p_T, [2], "b1"), some, some)


def finding(kind: str, severity: str = "warn", detector: str = "d") -> Finding:
    return Finding(detector=detector, kind=kind, severity=severity, claim="c", validity=True)  # type: ignore[arg-type]


def test_a_finding_is_answered_by_the_capability_it_asks_about() -> None:
    tests = Capability(name="tests", knob="tests", open="writable", closed="protected", kinds=("test_tampering",))
    seen = [
        finding("answer_leak", detector="leak"),
        finding("test_tampering", detector="tamper"),
        finding("grader_bypass"),
    ]
    proven = audit(0, [0.62] * 3, [0.42] * 3)
    assert answers(seen, [HISTORY, tests], [proven], ["history"]) == {"leak": True}
    cleared = audit(0, [0.6] * 3, [0.6] * 3)
    assert answers(seen, [HISTORY, tests], [cleared], ["history", "tests"]) == {"leak": False, "tamper": False}
    assert answers(seen, [HISTORY, tests], [], []) == {}
    network = HISTORY.model_copy(update={"name": "network", "knob": "network"})
    assert answers(seen[:1], [HISTORY, network], [cleared], ["history"]) == {}, "the network is still open"
    assert answers(seen[:1], [HISTORY, network], [cleared], ["history", "network"]) == {"leak": False}


def test_direct_evidence_is_cleared_where_the_capability_is_closed_and_stands_where_nothing_closes_it() -> None:
    rng = np.random.default_rng(1)
    b, c = trials(rng, np.full(TASKS, 0.7), [1, 2, 3], "b1"), trials(rng, np.full(TASKS, 0.4), [1, 2, 3], "b0")
    look = InterimAnalysis(number=1, alpha=0.02)
    leak = [finding("answer_leak", "critical", "answer_leak")]
    assert judge(JudgeInput("b1", "b0", b, c, None, findings=leak), look).kind == "invalid"
    cleared = answers(leak, [HISTORY], [], ["history"])
    assert judge(JudgeInput("b1", "b0", b, c, None, findings=leak, audits=cleared), look).kind == "promote"
    proven = audit(0, [0.62] * 3, [0.42] * 3)
    verdict = judge(JudgeInput("b1", "b0", b, c, None, shortcuts=[proven]), look)
    assert verdict.kind == "invalid" and "history" in verdict.reason and verdict.look == 0


def test_closed_scores_stand_in_seed_by_seed() -> None:
    rng = np.random.default_rng(2)
    own, again = trials(rng, np.full(3, 0.9), [1, 2], "b1"), trials(rng, np.full(3, 0.1), [2], "b1")
    first, second = with_shortcut_closed(own, again)
    assert first.scores == () and second.scores == again[0].scores and second.trial == "b1-s2"
