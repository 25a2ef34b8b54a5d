"""The table of facts: sentences that views show, each once, with the run that makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from evotrainer.projections.facts import KINDS, FactList
from evotrainer.projections.run_facts import audit_text, facts_of
from evotrainer.records import events as ev
from evotrainer.records.chain import Event
from evotrainer.records.frozen import Frozen
from evotrainer.records.verdicts import Effect
from tests.small_records import RECIPE, opened
from tests.views.test_coevolution import audit
from tests.views.test_coevolution import story as leak
from tests.whole_run import story

FLOOR = "noise floor at this look 2.6 points (at that confidence two sets of trainings of one recipe differ by less)"


def recorded(body: Callable[[Frozen], Frozen] = lambda b: b, *more: tuple[str, str, Frozen]) -> list[Event]:
    """The whole run, its bodies changed, with further events."""
    lines = [(kind, id, body(b)) for kind, id, b in story()] + list(more)
    return [Event(i, id, kind, f"2026-11-21T10:00:{i % 60:02d}+00:00", b, "") for i, (kind, id, b) in enumerate(lines)]


def certified(**update: Any) -> list[Event]:
    """The whole run with another certificate."""
    return recorded(lambda b: b.model_copy(update=update) if isinstance(b, ev.Certified) else b)


def until(id: str) -> list[Event]:
    found = recorded()
    return found[: 1 + next(i for i, e in enumerate(found) if e.id == id)]


def few(b: Frozen) -> Frozen:
    """Certified on two seeds, in a weak sandbox."""
    if isinstance(b, ev.RunOpened):
        return b.model_copy(update={"sandbox_tier": "C"})
    rows = [r.model_copy(update={"seeds": r.seeds[:2]}) for r in ROWS]
    return b.model_copy(update={"rows": tuple(rows)}) if isinstance(b, ev.Certified) else b


def compared(mean: float, low: float, high: float, **more: float) -> dict[str, float]:
    return {"mean": mean, "low": low, "high": high, **more}


WORSE = {"champion-base": compared(-0.1, -0.2, -0.05)}
LIKE = {"champion-start": compared(0.01, -0.02, 0.04)}
GREEDY = compared(0.0, -0.02, 0.02, sampled_low=0.2, excess_high=-0.02)
E = Effect(mean=0.1, low=0.05, high=0.15, confidence=0.9, se=0.02, df=4, seeds=3, tasks=24, noise_floor=0.03)
FRESH = ev.Reestimated(branch="b5", control="b1", split="gate", effect=E, selected=E, seeds=(9,), control_fresh=False,
                       trials=(), control_trials=())  # fmt: skip
SENT_BACK = ev.HumanApproval(round=3, where="verdict", answer="REVISE", feedback="read them first", branch="b5")
GIVEN = ev.ToppedUp(round=1, branch="b3", control="b0", wanted=5, seeds=(3, 4), control_seeds=(3,))
DENIED = ev.ToppedUp(round=1, branch="b3", control="b0", wanted=5, refused="over budget")
FALLEN = ev.Invalidated(branch="b1", descendants=("b5", "b7"), reason="leak", champion="b0")
ROWS = next(b for k, _, b in story() if k == "certified").rows  # type: ignore[attr-defined]

unlike, worse = partial(certified, comparisons=LIKE), partial(certified, comparisons=WORSE)


def also(kind: str, id: str, body: Frozen) -> Callable[[], list[Event]]:
    return lambda: recorded(lambda b: b, (kind, id, body))


def void() -> list[Event]:
    """The starting recipe used a shortcut that was closed: it is void, and trained again as b9."""
    rows = tuple(r.model_copy(update={"branch": "b9"}) if r.name == "champion" else r for r in ROWS)
    cert = {"comparisons": LIKE, "champion": "b9", "rows": rows}
    closed = RECIPE.model_copy(update={"knobs": {"key": "other"}})
    key = {"name": "key", "knob": "key", "open": "answer", "closed": "other", "about": "the key can be read"}

    def body(b: Frozen) -> Frozen:
        if isinstance(b, ev.RunOpened):
            return b.model_copy(update={"environment": {**b.environment, "capabilities": [key]}})
        return b.model_copy(update=cert) if isinstance(b, ev.Certified) else b

    return recorded(
        body,
        ("audited", "b0/audited/key", ev.Audited(round=1, audit=audit("b0", "mined_look", True))),
        ("invalidated", "b0/invalidated", FALLEN.model_copy(update={"branch": "b0", "descendants": ()})),
        ("branch", "b9/opened", opened("b9", None, closed).model_copy(update={"round": 1})),
    )


VOID = "b0 is void: trained with the shortcut key open"

TABLE: tuple[tuple[Callable[[], Iterable[Event]], str, str, str], ...] = (
    # run, about, kind, sentence
    (recorded, "", "result", "The champion solves 79.7% of unseen tasks; the starting recipe 64.1%, the base policy "
     "51.8%"),
    (unlike, "", "result", "The champion solves 79.7% of unseen tasks, not shown to be better "
     "than the starting recipe (64.1%); the base policy 51.8%"),
    (worse, "", "result", "Worse than before training: the champion b5 solves 79.7% of "
     "unseen tasks, the base policy 51.8% (-10.0 points [-20.0, -5.0])"),
    (partial(certified, rows=ROWS[:2], champion="b0"), "", "result", "No branch was promoted: of unseen tasks the "
     "starting "
     "recipe solves 64.1% and the base policy solves 51.8%"),
    (also("invalidated", "b1/invalidated", FALLEN), "", "result", "The certified champion b5 was "
     "invalidated afterwards (descends from b1: leak); the last valid version is b0"),
    (partial(until, "r1/opened"), "", "result", "Champion so far: b0, 63.7% on the search split; not certified"),
    (partial(until, "base/read"), "", "result", "The policy solves 52.2% on search"),
    (partial(until, "b0/opened"), "", "result", "No training has a result yet"),
    (recorded, "", "comparison", "champion minus base: +27.9 points [+24.3, +31.5], better than before training, p "
     "= 0.0002"),
    (unlike, "", "comparison", "champion minus start: +1.0 points [-2.0, +4.0], no difference "
     "shown: the interval holds 0"),
    (lambda: certified(comparisons={"start-base": compared(0, 0, 0, same_weights=1, p=1)}), "", "comparison",
     "start minus base: 0.0 points [0.0, 0.0], the same weights, p = 1"),
    (lambda: certified(comparisons={"champion-base": compared(0.25, 0.2, 0.3)},
                       greedy={"champion-base": compared(0.27, 0.04, 0.49, sampled_low=0.2, excess_high=0.3)}),
     "", "comparison", "champion minus base: +25.0 points [+20.0, +30.0], better than before training; greedy +27.0 "
     "points "
     "[+4.0, +49.0] (wide: how far trainings differ when decoded greedily is known from these alone)"),
    (recorded, "", "noise", "2.6 points, from the A/A trials"),
    (partial(until, "b0/opened"), "", "no_noise", "not measured: no A/A trials finished, so no difference can be told "
     "from seed noise"),
    (partial(until, "r1/opened"), "", "uncertified", "nothing is certified: every score is from tasks that were used "
     "to choose"),
    (recorded, "", "sandbox", "tier A"),
    (partial(recorded, few), "", "open_sandbox", "warning: tier C; missing for tier A: see `evotrainer doctor`"),
    (partial(recorded, few), "b5", "few_seeds", "certified on 2 seeds, fewer than 3"),
    (lambda: recorded(lambda b: b.model_copy(update={"environment": {}}) if isinstance(b, ev.RunOpened) else b), "",
     "no_proxy", "the environment names no proxy and true reward component to compare"),
    (recorded, "b0", "proxy_gap", "the starting recipe pays `visible` (passes every visible test); after training, "
     "78.6% of its attempts at search tasks earn that, but only 63.7% earn `hidden` (passes every hidden test), which "
     "is what counts: a gap of 14.9 points"),
    (recorded, "b6", "lost", "2 of 3 trials have no result"),
    (recorded, "b5", "faults", "3 rollouts lost to infrastructure faults, in no mean"),
    (lambda: certified(comparisons={"champion-base": compared(0.04, 0.02, 0.06)}), "b5", "no_caveat",
     "the certificate carries no caveat"),
    # a branch
    (recorded, "b1", "status", "promoted over b0 in round 1, later replaced by b5"),
    (worse, "b5", "status", "promoted over b1 in round 2, but it is worse than the base "
     "policy"),
    (partial(until, "b1/judged"), "b1", "status", "passed every gate"),
    (partial(until, "b1/opened"), "b1", "status", "no verdict yet"),
    (recorded, "b1", "changes", "rewards: - visible, + hidden 1"),
    (recorded, "b0", "changes", "starting recipe"),
    (void, "b9", "changes", "starting recipe trained again, the shortcut key closed (answer → other)"),
    (void, "", "result", "The champion solves 79.7% of unseen tasks, not shown to be better than the starting recipe "
     f"(64.1%; {VOID}); the base policy 51.8%"),
    (void, "", "comparison", "champion minus start: +1.0 points [-2.0, +4.0], no difference shown: the interval holds "
     f"0 ({VOID})"),
    (void, "b9", "unconfirmed", f"a gain over the starting recipe is not shown: +1.0 [-2.0, +4.0] points on unseen "
     f"tasks ({VOID})"),
    (recorded, "base", "changes", "base policy, before any training"),
    (recorded, "b1", "prediction", "proxy gap (paid minus meant) down by at least 0.05"),
    (recorded, "b1", "outcome", "came true: 0.149 (3 seeds) → 0.018 (3 seeds); harness metric"),
    (recorded, "b6", "outcome", "did not come true: 0.768 (3 seeds) → 0.71 (1 seed); search split, mean over seeds"),
    (leak, "b1", "outcome", "not measured"),
    (recorded, "b2", "backtest", "silent: stored rollouts cannot show this factor"),
    (recorded, "b2", "verdict", "rejected: upper bound +2.1 points is below the noise floor of 2.6 points (interim "
     "analysis "
     "2 of the run, error probability 0.0125)"),
    (recorded, "b1", "measured", f"+12.1 points [+8.4, +15.8] at 95% against b0, 3 seeds, 24 tasks; {FLOOR}"),
    (also("topup", "b3/topup/2", GIVEN), "b3", "seeds", "5 asked for: b3 + 3, 4, b0 + 3"),
    (also("topup", "b3/topup/2", DENIED), "b3", "seeds", "5 asked for: over budget"),
    (also("reestimated", "b5/reestimated", FRESH), "b5", "effect", "+10.0 points [+5.0, +15.0] at "
     "90% against b1 on fresh seeds (b1's seeds are those of the selection); selected by +10.0 points, too large on "
     "average"),
    (also("gate", "r3/gate/verdict/b5", SENT_BACK), "b5", "withheld", "a human sent the promotion "
     "back: read them first"),
    (leak, "b1", "audit", "shortcut confirmed: with key closed (key: answer → other), asked by mined_look, b1 goes "
     "from 90.0% to 20.0% on the gate split, base from 40.0% to 40.0% (20 tasks); lost beyond base: +70.0 points "
     "[+60.0, +80.0]"),
    (leak, "b1", "invalid", "measured"),
    # a certificate
    (recorded, "b5", "unaudited", "nothing could be audited: no capability recorded"),
    (recorded, "b5", "reader", "not judged by a reader; [harness.reader] of a task file adds one (docs/reader.md)"),
    (worse, "b5", "worse_than_base", "it is worse than the base policy: -10.0 [-20.0, -5.0] "
     "points on unseen tasks"),
    (unlike, "b5", "unconfirmed", "a gain over the starting recipe is not shown: +1.0 [-2.0, "
     "+4.0] points on unseen tasks"),
    (partial(certified, greedy={"champion-base": GREEDY}), "b5", "sharpening", "sharpening: of +27.9 points over "
     "the base "
     "policy on unseen tasks greedy decoding shows 0.0 [-2.0, +2.0]"),
    (partial(certified, greedy={"champion-base": GREEDY | {"excess_high": 0.1, "high": -0.01}}), "b5", "worse_greedy",
     "by greedy decoding it is worse than the base policy: 0.0 [-2.0, -1.0] points, +27.9 as sampled"),
    (partial(certified, of_set=3, by_runs=2), "b5", "look", "certificate number 3 on these cert tasks, by 2 runs on "
     "this "
     "machine"),
)  # fmt: skip


@pytest.mark.parametrize(("run", "about", "kind", "sentence"), TABLE, ids=[f"{i}-{r[2]}" for i, r in enumerate(TABLE)])
def test_a_fact_has_its_sentence(run: Callable[[], Iterable[Event]], about: str, kind: str, sentence: str) -> None:
    assert sentence in [f.text for f in facts_of(list(run())).of(about).of_kinds(kind)]


def test_every_fact_is_of_a_known_kind_and_says_something() -> None:
    for events in (recorded(), leak(), certified(comparisons=WORSE)):
        for f in facts_of(events):
            assert f.kind in KINDS and f.text.strip() and "{" not in f.text and f.label, f
            assert (f.severity is None) == (KINDS[f.kind].severity is None)


def test_caveats_come_worst_first_and_facts_of_a_branch_are_its_own() -> None:
    facts = facts_of(certified(comparisons=WORSE, greedy={"champion-base": GREEDY}))
    order = ("critical", "warn", "info")
    found = [order.index(f.severity) for f in facts.of("b5").caveats if f.severity]
    assert found == sorted(found) and found[0] == 0
    assert {f.about for f in facts.of("b5")} == {"b5"}
    assert FactList().text("verdict") == ""


def test_an_audit_that_lost_nothing_says_so() -> None:
    text = audit_text(replace_audit(excess=-0.01, low=-0.02, gain_lost=0.0))
    assert text.startswith("no shortcut confirmed: ")
    assert "lost beyond base: nothing (-1.0 points [-2.0, +80.0]); none of its gain over base goes" in text


def replace_audit(**update: float) -> Any:
    return audit("b1", "promotion", False).model_copy(update=update)


def test_the_noise_floor_names_what_it_was_measured_on() -> None:
    first = next(e for e in recorded() if e.kind == "noise")
    later = [
        replace(first, id=f"noise/{b}", body=first.body.model_copy(update={"branch": b, "noise_floor": 0.031}))
        for b in ("b1", "b2")
    ]
    text = facts_of([*recorded(), *later]).text("noise")
    assert text == "3.1 points, from the A/A trials and 2 branches so far"


WITHOUT_A_ROW = {
    "analysis", "beyond", "compute", "continued", "control", "decides", "diagnosis", "gap", "goes_with",
    "goes_with_nothing", "grading", "harness", "hypothesis", "learnt_nothing", "read_hacks", "scaffold", "settings",
    "success", "tasks", "taught", "unanswered", "worse_than_start",
}  # fmt: skip
"""Kinds whose sentences other tests hold, or none; this set only shrinks."""


def test_every_other_kind_has_a_row() -> None:
    assert {kind for _, _, kind, _ in TABLE} == KINDS.keys() - WITHOUT_A_ROW
