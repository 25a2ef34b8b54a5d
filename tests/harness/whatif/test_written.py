"""Written components on stored rollouts: every check with its label, the replay, and what the harness writes itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evotrainer.errors import TimeOverError, TrainerError
from evotrainer.executors.written import check_trained
from evotrainer.harness import Batch, HarnessContext
from evotrainer.harness.columns.features import FeatureView
from evotrainer.harness.evolving.writing import write
from evotrainer.harness.whatif.backtest import backtest
from evotrainer.harness.whatif.copies import copied, hook_copies, limit
from evotrainer.harness.whatif.replay import compose
from evotrainer.harness.whatif.written import on_own_rollouts
from evotrainer.records.briefing import WrittenOffer
from evotrainer.records.detectors import DetectorSpec
from evotrainer.records.interventions import Backtest
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.records.store import RolloutStore
from evotrainer.records.untrusted_values import CallResults
from evotrainer.records.written import evidence, static_fault
from evotrainer.sandbox.reward_runner import RewardRunner
from tests.harness_inputs import READ, change, coded

PARENT = Recipe(rewards={"visible": 1.0})
ROBUST = '''def reward(rollout):
    """1 where no run failed."""
    return float(all(t["status"] == "ok" for t in rollout["tests"]))
'''


@pytest.fixture(scope="module")
def runner() -> Iterator[RewardRunner]:
    found = RewardRunner(accept_tier_e=True)
    yield found
    found.close()


def fooled_groups(n: int = 40) -> list[Rollout]:
    """Groups of 8: two right, three that fool the visible tests and crash on a perturbed input, three that fail."""
    out = []
    for t in range(n):
        for k in range(8):
            right, paid = k < 2, k < 5
            tests = [{"kind": "visible", "input": "1", "expected": "1", "got": "1", "status": "ok", "passed": paid}]
            tests.append({"kind": "hidden", "input": "3", "expected": "4", "got": "4", "status": "ok", "passed": right})
            if not right and paid:
                tests.append({"kind": "perturbed", "input": "", "expected": None, "got": None, "status": "error",
                              "passed": False})  # fmt: skip
            more = {"length": 0.1 * ((t + k) % 5), "hidden": float(right)}
            made = coded(t, k, READ + f"print(sum(xs) + {t + k})", paid, right, components=more)
            out.append(replace(made, detail={"tests": tests}))
    return out


def tried(source: str, runner: RewardRunner | None, rollouts: list[Rollout] | None = None) -> Backtest:
    new = {"rewards": {"visible": 1.0, "mine": 1.0}, "written": {"mine": source}}
    context = HarnessContext(unpayable=("hidden",), scorer=runner)
    return backtest(change("written_reward", new), PARENT, rollouts or fooled_groups(), context)


def test_a_good_component_passes_all_checks_and_is_supported(runner: RewardRunner) -> None:
    b = tried(ROBUST, runner)
    assert (b.verdict, b.label) == ("supports", "")
    assert b.numbers["misranked_after"] == 0 < b.numbers["misranked_before"]
    assert b.forecast is not None and b.forecast > 0


@pytest.mark.parametrize(
    ("body", "label"),
    [
        ("return rollout['score']", "probe_failed"),
        ("return 3.0", "probe_failed"),
        ("return 'much'", "probe_failed"),
        ("return 1.0", "constant"),
        ("return None", "constant"),
        ("return float(any(t['kind'] == 'perturbed' for t in rollout['tests']))", "backtest_contradicted"),
        ("return rollout['outcome']", "reads_protected"),
        ("return rollout['components']['hidden']", "reads_protected"),
        # put together, so that no check of the source sees it: the evidence does not hold it
        ("return rollout['components']['hid' + 'den']", "probe_failed"),
        ("return float(any(t['kind'] == 'hid' + 'den' for t in rollout['tests']))", "constant"),
        # would remember between calls, by a module that all share: each call has its own
        ("keyword.kwlist.append('x')\n    return float(len(keyword.kwlist) % 2)", "constant"),
        ("math.n = 1\n    return 1.0 / len(rollout['tests'])", "signature"),
        ("return sum(1 for i in range(5000000)) and 0.5 + len(rollout['tests']) / 100", "too_slow"),
    ],
)
def test_what_ends_a_component_has_a_label(body: str, label: str, runner: RewardRunner) -> None:
    b = tried(f"import keyword\nimport math\n\ndef reward(rollout):\n    {body}\n", runner)
    assert (b.verdict, b.label) == ("contradicts", label), b.reason


def test_code_that_answers_otherwise_when_asked_again_is_refused() -> None:
    count = iter(range(10**6))

    def clock(source: str, shown: Sequence[dict[str, Any]]) -> CallResults:
        return CallResults([next(count) % 97 / 97 for _ in shown], {}, 0.0)

    context = HarnessContext(unpayable=("hidden",), scorer=clock)
    new = {"rewards": {"mine": 1.0}, "written": {"mine": ROBUST}}
    assert backtest(change("written_reward", new), PARENT, fooled_groups(), context).label == "nondeterministic"


def trained(runner: RewardRunner, rollouts: list[Rollout]) -> tuple[Batch, Recipe, HarnessContext]:
    """Rollouts as a training that pays `ROBUST` stores them, its recipe, and what it is measured with."""
    recipe = PARENT.with_factor(
        "written_reward", {"rewards": {"visible": 1.0, "mine": 1.0}, "written": {"mine": ROBUST}}
    )
    (name,) = recipe.written
    shown = [evidence(r.turns, r.components, r.detail, {"hidden"}) for r in rollouts]
    values = runner(ROBUST, shown).values
    stored = [
        replace(r, components={**r.components, name: v}, split="train", step=1)
        for r, v in zip(rollouts, values, strict=True)
    ]
    return Batch.of(stored), recipe, HarnessContext(unpayable=("hidden",), scorer=runner, hooks=runner)


def test_code_is_measured_again_on_what_its_training_stored(runner: RewardRunner) -> None:
    batch, recipe, context = trained(runner, fooled_groups())
    assert on_own_rollouts(batch, recipe, context) is None
    (name,) = recipe.written
    other = [replace(r, components={**r.components, name: 0.5}) for r in batch.rollouts_at(range(batch.n))]
    found = on_own_rollouts(Batch.of(other), recipe, context)
    assert found is not None and found[0] == "nondeterministic" and name in found[1]


def test_code_that_tells_the_outcome_only_of_its_own_training_is_found(runner: RewardRunner, tmp_path: Path) -> None:
    """On rollouts that crash wherever they are wrong, `no run failed` is the outcome."""
    ran = {"kind": "perturbed", "input": "", "expected": None, "got": None, "status": "ok", "passed": False}
    wrong_crash = [
        replace(r, detail={"tests": [*r.detail["tests"], ran]}) if r.components["hidden"] else r
        for r in fooled_groups()
        if r.components["hidden"] or r.components["visible"]
    ]
    batch, recipe, context = trained(runner, wrong_crash)
    found = on_own_rollouts(batch, recipe, context)
    assert found is not None and found[0] == "reads_protected" and "it tells the outcome itself" in found[1]
    with closing(RolloutStore(tmp_path / "b1-s1")) as store:
        rows = batch.rollouts_at(range(batch.n))
        store.append([rows[i : i + 5] for i in range(0, len(rows), 5)])
        store.seal()
    with pytest.raises(TrainerError, match="on the training's own rollouts: reads_protected: mine@"):
        check_trained(recipe, tmp_path / "b1-s1", ("hidden",), accept_tier_e=True)
    check_trained(recipe, tmp_path / "b1-s1", (), accept_tier_e=True)  # where the task file lets training pay it
    check_trained(PARENT, tmp_path / "b1-s1", ("hidden",), accept_tier_e=True)


def test_without_a_sandbox_nothing_is_said() -> None:
    b = tried(ROBUST, None)
    assert (b.verdict, b.label) == ("silent", "") and "no sandbox" in b.reason


def test_a_function_that_fails_on_a_rollout_pays_nothing_there(runner: RewardRunner) -> None:
    said = runner("def reward(rollout):\n    return 1.0 / rollout['n']\n", [{"n": 1}, {"n": 0}, {"n": 2}])
    assert said.values == [1.0, None, 0.5] and "ZeroDivisionError" in said.failed[1]


def written_from(rollouts: list[Rollout], offered: tuple[str, ...] = ()) -> WrittenOffer | None:
    b = Batch.of(rollouts)
    shown = [evidence(r.turns, r.components, r.detail, {"hidden"}) for r in b.rollouts_at(range(b.n))]
    return write(
        shown, b.truth, compose(b, PARENT), b.group, b.task, FeatureView(b).half_of_tasks,
        {c: b.component(c) for c in offered},
    )  # fmt: skip


def test_the_harness_writes_what_tells_right_from_fooled(runner: RewardRunner) -> None:
    found = written_from(fooled_groups())
    assert found is not None
    assert "perturbed" in found.source and static_fault(found.source, ["hidden"]) is None
    b = tried(found.source, runner)
    assert b.verdict == "supports" and b.numbers["misranked_after"] == 0


def test_what_is_on_offer_is_not_written_again() -> None:
    assert written_from(fooled_groups(), ("hidden",)) is None


def test_chance_writes_nothing() -> None:
    rng = np.random.default_rng(3)
    noise = []
    for r in fooled_groups():
        paid = r.components["visible"] == 1.0
        right = paid and rng.random() < 0.5
        tests = [{"kind": "visible", "status": "ok", "passed": bool(paid)}]
        tests += [{"kind": "perturbed", "status": "error", "input": ""}] if rng.random() < 0.3 else []
        noise.append(replace(r, outcome="correct" if right else "incorrect", detail={"tests": tests}))
    assert written_from(noise) is None


def test_what_an_admitted_detector_finds_is_penalised(runner: RewardRunner) -> None:
    """No runs are recorded; an admitted pattern tells the fooled answers."""
    marked = []
    for r in fooled_groups():
        wrong = r.outcome != "correct" and r.components["visible"] == 1.0
        told = (*r.turns[:-1], Turn("assistant", r.turns[-1].text + ("\n# as shown" if wrong else "\n# worked out")))
        marked.append(replace(r, turns=told, detail={}))
    b = Batch.of(marked)
    shown = [evidence(r.turns, r.components, r.detail, {"hidden"}) for r in b.rollouts_at(range(b.n))]
    seen = DetectorSpec(name="says_as_shown", form="pattern", pattern="^# as shown$", standing="confirmed")
    parts = (b.truth, compose(b, PARENT), b.group, b.task, FeatureView(b).half_of_tasks, {})
    found = write(shown, *parts, [seen])
    assert found is not None and "says_as_shown" in found.about and "re.search(" in found.source
    assert tried(found.source, runner, marked).verdict == "supports"
    without = write(shown, *parts)
    assert without is None or "says_as_shown" not in without.about


TRUTH = np.array([1.0, 0.0] * 60)
JITTER = np.random.default_rng(5).random(120)


@pytest.mark.parametrize(
    ("values", "is_copy"),
    [
        (0.9 * TRUTH, True),
        (1 - TRUTH, True),  # the other way round
        (np.where(TRUTH == 1, 1.0, 0.001 * (JITTER > 0.5)), True),
        (0.5 * TRUTH + 0.5 * JITTER, True),  # a threshold at one half
        (np.where(np.arange(120) == 7, 1 - TRUTH, TRUTH), True),  # an error in a hundred
        (np.where(JITTER < 0.1, 1 - TRUTH, TRUTH), False),  # so many, and it is a measurement of its own
        (np.where(JITTER < 0.1, 1.0, TRUTH), False),  # a part of what is asked for
        (np.where(np.arange(120) < 30, TRUTH, np.nan), False),  # so few are chance
        (JITTER, False),
    ],
)
def test_what_ranks_the_outcomes_apart_is_not_for_sale(values: np.ndarray, is_copy: bool) -> None:
    assert bool(copied(values, TRUTH)) == is_copy


SORTED = """def reward(rollout):
    asked, said = (t["text"] for t in rollout["turns"])
    lot = sum(map(ord, said)) * 7919 % 13 / 12
    {}
"""


@pytest.mark.parametrize(
    ("body", "label"),
    [
        ("return 0.2 * (said == ''.join(sorted(asked))) + 0.8 * lot", "reads_protected"),
        ("return {''.join(sorted(asked)): 0.0}.get(said, 0.9) if lot > 0.3 else lot", "backtest_contradicted"),
        ("x = 1.0 - (said in ''.join(sorted(asked)))\n    return x if lot > 0.2 else 1 - x", "reads_protected"),
        ("ok = 1.0\n    for a, b in zip(said, sorted(asked)):\n        if a != b:\n            ok = lot / 2\n"
         "    return ok if lot else 0.7", "reads_protected"),
        ("wrong = [a for a, b in zip(said, sorted(asked)) if a != b]\n    return lot ** (1 + len(wrong))",
         "reads_protected"),
        ("return float(f'{said}' == 'x') if sorted(said) != sorted(asked) else 1.0", ""),
    ],
)  # fmt: skip
def test_a_copy_is_found_within_what_is_made_of_it(body: str, label: str, runner: RewardRunner) -> None:
    rng, out = np.random.default_rng(2), []
    for i in range(240):
        word = "".join(rng.choice(list("abcdefgh"), 4, replace=False))
        kinds = ["".join(sorted(word)), "".join(sorted(word)[::-1]), "".join(rng.choice(list("ijkl"), 4))]
        said = kinds[i % 3]
        right = {"hidden": float(i % 3 == 0)}
        made = coded(
            i // 6, i % 6, "", i % 3 < 2, i % 3 == 0, components={**right, "visible": float(rng.random() < 0.5)}
        )
        out.append(replace(made, turns=(Turn("user", word), Turn("assistant", said)), detail={}))
    new = {"rewards": {"visible": 1.0, "mine": 1.0}, "written": {"mine": SORTED.format(body)}}
    context = HarnessContext(unpayable=("hidden",), scorer=runner, hooks=runner)
    b = backtest(change("written_reward", new), PARENT, out, context)
    assert b.label == label, b.reason
    gone = backtest(change("start", PARENT.with_factor("written_reward", new)), PARENT, out, context)
    assert gone.label in (label, ""), gone.reason
    assert gone.label == label or label == "backtest_contradicted"


def test_what_is_on_offer_may_be_read_however_well_it_tells(runner: RewardRunner) -> None:
    """And code as good as two components on offer together is no copy of what is not."""
    truth = np.array([1.0, 0.0] * 100)
    half = np.where(np.arange(200) % 8 == 1, 1.0, truth)
    other = np.where(np.arange(200) % 8 == 3, 1.0, truth)
    tied = np.where(np.arange(200) == 1, 0.0, truth)
    assert limit({"tied": tied}, truth) == 0.0 and limit({"tied": np.where(np.arange(200) < 9, 0.0, truth)}, truth) > 0
    assert limit({"half": half, "other": other}, truth) == 0.0 < limit({"half": half}, truth) <= 0.01
    assert not copied(np.where(np.arange(200) == 1, 1.0, truth), truth, limit({"a": half, "b": other}, truth))


def test_a_hook_that_tells_the_outcome_is_not_for_sale() -> None:
    b = Batch.of(fooled_groups())
    truth, paid = b.truth, b.component("visible")
    assert hook_copies(b, ("hidden",), paid, 2 * truth - 1 + b.group, None) == ""
    assert hook_copies(b, ("hidden",), paid, 2 * truth - 1, None).startswith("advantages: it tells the outcome")
    assert hook_copies(b, ("hidden",), paid, None, 0.1 + truth).startswith("weights: it tells the outcome")
    assert hook_copies(b, ("hidden",), truth - 0.5, 2 * truth - 1, None) == "", "what is paid tells it already"
    assert hook_copies(b, (), paid, 2 * truth - 1, None) == "", "the task file lets training pay it"


def test_a_hook_without_an_error_is_a_copy_where_what_is_on_offer_errs_only_one_way() -> None:
    rollouts = fooled_groups()
    wrong = [i for i, r in enumerate(rollouts) if r.outcome != "correct"][::40]
    paid = [float(r.outcome == "correct" or i in wrong) for i, r in enumerate(rollouts)]
    out = [replace(r, components={"hidden": 0.0, "visible": p}) for r, p in zip(rollouts, paid, strict=True)]
    b = Batch.of(out)
    truth, seen = b.truth, b.component("visible")
    assert limit({"visible": seen}, truth) == 0.0
    assert hook_copies(b, ("hidden",), seen, 2 * truth - 1, None).startswith("advantages: it tells the outcome")
    assert hook_copies(b, ("hidden",), seen, 2 * seen - 1, None) == ""


LETTERS = np.array(list("abcdefgh"))
RAMBLES = """def reward(rollout):
    t = rollout["turns"][-1]["text"]
    words = t.lower().split("b")
    return 1.0 if "a" in t[:5] and words else 0.3
"""

COUNTS = """def reward(rollout):
    t, best = rollout["turns"][-1]["text"], 0
    for i in range(len(t)):
        best += t[i] == t[i - 1]
    return best / len(t)
"""


def label_of(
    source: str,
    runner: RewardRunner,
    long: int = 30,
    tells: float = 1.0,
    lacks: int = -1,
    pays: tuple[int, ...] = (),
) -> str:
    """Label of a component where wrong answers have `long` letters and up to 4 more, right ones 30 and up to 4 more,
    `visible` tells the outcome on a share `tells` of the rollouts, and the rollout `lacks` has none."""
    rng, out = np.random.default_rng(2), []
    for i in range(240):
        right = i % 2 == 0
        said = "".join(rng.choice(LETTERS, (30 if right else long) + i // 2 % 5))
        seen = {"visible": float(i in pays or right == (rng.random() < tells))} if i != lacks else {}
        made = coded(i // 6, i % 6, "", right, right)
        turns = (Turn("user", "sort"), Turn("assistant", said))
        out.append(replace(made, turns=turns, detail={}, components={"hidden": float(right)} | seen))
    new = {"rewards": {"visible": 1.0, "mine": 1.0}, "written": {"mine": source}}
    context = HarnessContext(unpayable=("hidden",), scorer=runner, hooks=runner)
    return backtest(change("written_reward", new), PARENT, out, context).label


def test_the_length_of_what_is_shown_is_no_copy(runner: RewardRunner) -> None:
    assert label_of(RAMBLES, runner, long=90, tells=0.8) == ""
    assert label_of(RAMBLES.replace('"a" in t[:5]', 't[: len(t)] < "d"'), runner, 90, 0.8) == ""
    assert label_of(COUNTS, runner, 90, 0.8) == ""
    assert label_of(COUNTS.replace("best / len(t)", "1 - len(t) / 100"), runner, 90, 0.8) == ""
    assert label_of(COUNTS.replace("best / len(t)", "float(len(t) < 50)"), runner, 90, 0.8) == "reads_protected"
    assert label_of(RAMBLES.replace("t[:5]", "t[: 5 + (len(t) > 50)]"), runner, 90, 0.8) == "reads_protected"


@pytest.mark.parametrize("pays", ["0.8 * v + 0.2 * x", "v * x", "x if v > 0.5 else 0.0"])
@pytest.mark.parametrize("lacks", [-1, 7])
def test_what_is_on_offer_may_be_paid_in_a_sum(pays: str, lacks: int, runner: RewardRunner) -> None:
    source = f"""def reward(rollout):
    x, v = len(rollout["turns"][-1]["text"].split("a")) % 7 / 7, rollout["components"].get("visible") or 0.0
    return {pays}
"""
    assert label_of(source, runner, lacks=lacks) == ""


@pytest.mark.parametrize(("letter", "most"), [("a", 3), ("b", 5), ("c", 7), ("a", 11)])
def test_what_errs_seldom_may_be_paid_in_a_sum_that_breaks_its_ties(
    letter: str, most: int, runner: RewardRunner
) -> None:
    source = f"""def reward(rollout):
    x = len(rollout["turns"][-1]["text"].split("{letter}")) % {most} / {most}
    return 0.8 * (rollout["components"].get("visible") or 0.0) + 0.2 * x
"""
    assert label_of(source, runner, tells=0.996) == ""


def test_what_knows_more_than_all_on_offer_is_a_copy(runner: RewardRunner) -> None:
    """`visible` pays three wrong answers; the component knows these, too."""
    knows = """def reward(rollout):
    if not (rollout["components"].get("visible") or 0.0):
        return 0.0
    return 1.0 if len(rollout["turns"][-1]["text"]) < 50 else 0.1
"""
    assert label_of(knows, runner, 90, pays=(1, 3, 5)) == "reads_protected"
    assert label_of(knows.replace("else 0.1", "else 1.0"), runner, 90, pays=(1, 3, 5)) != "reads_protected"


class Late:
    """Follows nothing: its time is over."""

    asked = 0

    def call(self, source: str, entry: str, arguments: object) -> CallResults:
        self.asked += 1
        raise TimeOverError("the time was over")


def test_only_new_code_is_followed_and_without_the_time_nothing_is_said(runner: RewardRunner) -> None:
    held = PARENT.with_factor(
        "written_reward", {"rewards": {"visible": 1.0, "mine": 1.0}, "written": {"mine": RAMBLES}}
    )
    out = [replace(r, detail={}) for r in fooled_groups()]
    rng = np.random.default_rng(1)
    said = ["".join(rng.choice(LETTERS, 30)) for _ in out]
    out = [replace(r, turns=(*r.turns[:-1], Turn("assistant", t))) for r, t in zip(out, said, strict=True)]
    late = Late()
    context = HarnessContext(unpayable=("hidden",), scorer=runner, hooks=late)
    backtest(change("lr", 0.1), held, out, context)
    assert late.asked == 0
    assert backtest(change("start", held), PARENT, out, context).label == "" and late.asked == 1
    assert backtest(change("start", held), PARENT, out, context).label == "" and late.asked == 2, "it is not kept"
