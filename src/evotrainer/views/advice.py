"""Says what to do next: one line at every end of a run, from what the run recorded.

What the certificate holds against a policy is answered first, the worst of it (`projections.facts`, of which the
caveats are the sentences); then the first rule that applies speaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evotrainer.projections.base_policy import too_weak
from evotrainer.projections.branches import BASE
from evotrainer.projections.environment_files import way_on
from evotrainer.projections.text import duration, number, of_run, one_line, percent, point_range, points
from evotrainer.records.keys import USER_CODE
from evotrainer.records.text import counted
from evotrainer.views.model import BranchView, RunView
from evotrainer.views.progress import settings
from evotrainer.views.summary import stopped

UNDECIDED = {
    "validity": "`evotrainer why {run}` shows the rollouts",
    "compute": "run again with judge.max_cost above that ratio to allow it, or with a larger budget, of which the "
    "control's longer training takes its part",
    "steps": "run again with judge.max_cost above that ratio to allow it",
    "scaffold": "run again with a larger budget, of which that reading takes its part",
}
"""Gates that keep a shown gain from being promoted, and what to do."""
MOST = 0.95
"""Share of tasks that the base policy solves from which too little is left."""
RISE, STILL = 0.05, 0.01
"""What counts as risen, and what as not: score units."""
NO_WORK = {
    "evaluated the base policy": "run the same task file without run.evaluate_only to train this policy",
    "every round was searched only": "run the same task file without run.search_only: it proves, training nothing that "
    "the cache has",
}
"""Ends of runs that were not to prove anything, and what to do."""
ROUNDS_OVER = "every round of the task file was played"
"""End of a run that says nothing of its rounds."""


def advice(view: RunView, run: str = "RUN") -> str:
    """What to do next, in one line; `run`: how the run folder is called in commands. Empty before anything is known."""
    return one_line(of_run(fill_in(view, _line(view), run), run), 900)


def fill_in(view: RunView, text: str, run: str) -> str:
    """A line of advice with the run's folder, and the command that plays one more round, in their places."""
    more = f"{_going_on(view)} plays one more round"
    return text.replace("{more}", more).replace("{run}", run)


def promoted(view: RunView) -> bool:
    b = view.branches.get(view.champion)
    return b is not None and b.intervention is not None


def _judged(view: RunView) -> BranchView | None:
    """The branch that the run stands by: the champion, or the starting recipe where nothing is valid."""
    found = view.branches.get(view.champion)
    return found if found and found.recipe else view.start


def _offers(view: RunView, paid: Mapping[str, float]) -> list[str]:
    """Reward components that may be paid and are not."""
    env = view.opened.environment if view.opened else {}
    kept = set(env.get("outcome") or ()) - set(env.get("payable") or ())
    return sorted(c for c in env.get("components") or () if c not in kept and not paid.get(c))


def unfinished(view: RunView) -> str:
    """All that is advised before the end."""
    if view.closed:
        return ""
    hung = [t for t in view.trials if str(t.heartbeat.get("phase", "")).startswith(USER_CODE) and not t.finished]
    if view.driver and hung:
        return (
            f"{hung[0].id} is {hung[0].heartbeat['phase']}, which does not return: stop the run (Ctrl-C), correct "
            "that function, and `evotrainer resume {run}`"
        )
    if view.question is not None:
        return (
            f'`evotrainer answer {{run}}` shows what is to be decided; add approve, revise "words" or abort{idle(view)}'
        )
    if view.request is not None:
        return f"`evotrainer seat {{run}}` shows what is asked; `evotrainer propose {{run}} FILE` answers{idle(view)}"
    if view.driver:
        return "nothing: it runs; `evotrainer health {run}` shows what was read so far"
    if stopped(view):
        return way_on("{run}", any(t.finished and t.finished.steps and t.status == "complete" for t in view.trials))
    return "`evotrainer resume {run}` continues the run; nothing finished is trained again"


def idle(view: RunView) -> str:
    """What follows an answer where nobody drives the run."""
    return "" if view.driver is not None else "; then `evotrainer resume {run}`"


def nothing_was_ever_correct(view: RunView) -> str:
    """No attempt of any policy on any split: it may be the outcome that cannot be true."""
    scores = [s.score for t in view.trials if t.finished for s in t.finished.scores if s.score is not None]
    if len(scores) < 2 or any(scores):
        return ""
    env = view.opened.environment if view.opened else {}
    truth = ", ".join(env.get("outcome") or ()) or "the outcome"
    return f"no attempt of any policy was ever correct: check that {truth} can be 1.0 at all, then make tasks easier"


def the_base_solves_too_little(view: RunView) -> str:
    base = view.branches.get(BASE)
    if base is None or promoted(view):
        return ""
    learnt = view.certified.comparisons.get("start-base", {}) if view.certified else {}
    if learnt.get("low", 0.0) > 0:
        return ""  # however few they were, the starting recipe learnt from them
    steps = (settings(view).get("policy") or {}).get("warm_start", {}).get("steps")
    path = view.opened.base_policy.get("path", "") if view.opened else ""
    return too_weak(base.mean("search"), path, steps)


def the_base_solves_nearly_all(view: RunView) -> str:
    base = view.branches.get(BASE)
    score = base.mean("search") if base else None
    if score is None or score < MOST or promoted(view):
        return ""
    return f"the base policy solves {percent(score)} of the search tasks already: give it harder ones"


def the_proxy_rose_alone(view: RunView) -> str:
    b, base = _judged(view), view.branches.get(BASE)
    if not b or not b.recipe or not base or not view.proxy:
        return ""
    now, then = ([x.mean("search", c) for c in view.proxy] for x in (b, base))
    if None in now or None in then:
        return ""
    proxy, true = (x - y for x, y in zip(now, then, strict=True))  # type: ignore[operator]
    if proxy < RISE or true >= STILL:
        return ""
    found = _offers(view, b.recipe.rewards)
    more = f"pay {' or '.join(found)} in its place" if found else "add a reward that only right answers earn"
    closable = [c.name for c in view.state.shortcuts.closable]
    close = f", or close {', '.join(closable)} in training" if closable else ""
    return (
        f"{view.proxy[0]} rose by {points(proxy, sign=False)} points under {b.name} and {view.proxy[1]} by "
        f"{points(true)}: training raised the proxy alone; {more}{close}"
    )


def the_budget_ended_it(view: RunView) -> str:
    name = _ended_by(view)
    if not name or not view.opened:
        return ""
    asked, n, limit = _rounds(view), max(view.rounds, default=0), view.opened.budget[name]
    limit_text = duration(limit) if name.endswith("_s") else number(limit)
    of = f" of {asked}" if asked else ""
    return f"the budget ended the search in round {n}{of} (budget.{name}: {limit_text}): {_going_on(view)} goes on"


def _ended_by(view: RunView) -> str:
    """The budget that ended the search: that of which the largest share is spent; empty where none did."""
    limits = view.opened.budget if view.opened else {}
    shares = {k: view.spent.get(k, 0.0) / x for k, x in limits.items() if x}
    ended = view.closed and "budget" in view.closed.reason and shares
    return max(shares, key=lambda k: shares[k]) if ended else ""


def _rounds(view: RunView) -> int:
    """Rounds that the task file asks for; 0 where it cannot be read."""
    return int((settings(view).get("run") or {}).get("rounds") or 0)


def _going_on(view: RunView) -> str:
    """The command by which a run that has ended plays on, with twice the budget that ended it."""
    n, name = max(view.rounds, default=0), _ended_by(view)
    rounds = "" if name and n < _rounds(view) else f" run.rounds={n + 1}"
    budget = f" budget.{name}={2 * view.opened.budget[name]:g}" if name and view.opened else ""
    return f"`evotrainer resume {{run}}{rounds}{budget}`"


def how_to_use(view: RunView) -> str:
    """How to have the champion."""
    return f"`evotrainer export {{run}} my-model` writes {view.champion} as a Hugging Face folder; {{more}}"


def a_branch_is_undecided(view: RunView) -> str:
    open_ = [(b.effect, b) for b in view.branches.values() if b.status == "inconclusive" and b.effect]
    e, best = max(open_, key=lambda x: x[0].mean, default=(None, None))
    if e is None or best is None or e.high <= 0:
        return ""
    held = [g for g in best.verdict.gates if g.gate in UNDECIDED and g.passed is not True] if best.verdict else []
    if e.low > 0 and held:
        alone = held[0].gate == "compute" and best.intervention and best.intervention.factor == "steps"
        return (
            f"{best.name} gained {points(e.mean)} points {point_range(e.low, e.high)}; not seeds are "
            f"lacking: {held[0].message}; {UNDECIDED['steps' if alone else held[0].gate]}"
        )
    seeds = (settings(view).get("judge") or {}).get("max_seeds", 0)
    more = f"judge.max_seeds={2 * seeds}" if seeds else "a higher judge.max_seeds"
    return (
        f"{best.name} may be worth {points(e.mean)} points {point_range(e.low, e.high)}, which "
        f"{counted(e.seeds, 'seed')} on {counted(e.tasks, 'task')} cannot tell from chance: run again with {more} or "
        "more evaluation.gate_tasks"
    )


def nothing_was_proposed(view: RunView) -> str:
    """No change came to its proof: why, and what would let one."""
    if not view.closed or any(b.intervention for b in view.branches.values()):
        return ""
    b, n = _judged(view), max(view.rounds, default=0)
    score, why = b.mean("search") if b else None, view.closed.reason if n else "run.rounds=0"
    if why == ROUNDS_OVER:
        why = "what the rounds came to was refused before it was trained"
        reasons = [x.reason for r in view.rounds.values() for x in r.lines if x.fate in ("refused", "vetoed")]
        why += f": {one_line(reasons[-1], 300)}" if reasons else ""
        why += " (`evotrainer cases {run} --trials`)"
    what = f"nothing was proposed{' for proof' if view.probes else ''}: {why}"
    if b and score is not None and score >= MOST:
        return (
            f"{what}; {b.name} solves {percent(score)} of the search tasks, so that little is left to gain: look at "
            f"what counts as right there (`evotrainer show {{run}} {b.name}`), then give it harder tasks"
        )
    play = f"{what}; {_going_on(view)} plays"
    more = "where more may be changed: reward components, environment knobs, run.agent"
    return f"{play} one more round, and finds more {more}" if n else f"{play} one round"


def nothing_helped(view: RunView) -> str:
    if not view.closed:
        return ""
    named = [
        f"{f.text.partition(':')[0]} (`evotrainer health {{run}}`); " for f in view.facts.of_kinds("diagnosis")[-1:]
    ]
    return f"no change that was tried is better; {''.join(named)}{{more}}, with other changes"


Rule = Callable[[RunView], str]
WHY: tuple[tuple[Rule, bool], ...] = (
    (nothing_was_ever_correct, True),
    (the_base_solves_too_little, True),
    (the_base_solves_nearly_all, True),
    (the_proxy_rose_alone, False),
    (the_budget_ended_it, False),
)
"""Why there is no gain; each with whether its advice takes a new run of this one's gate tasks."""
NO_CHAMPION: tuple[tuple[Rule, bool], ...] = (
    (a_branch_is_undecided, False),
    (nothing_was_proposed, False),
    (nothing_helped, False),
)
"""What became of the changes, where none was promoted."""


def _line(view: RunView) -> str:
    if line := unfinished(view) or NO_WORK.get(view.closed.reason if view.closed else "", ""):
        return line
    won, fact = promoted(view), next(iter(view.caveats.get(view.champion, ())), None)
    answer = _with_alpha(view, fact.remedy, fact.new_run) if fact else ""
    if fact and fact.severity == "critical":
        return answer
    why, rest = _first(view, WHY), how_to_use(view) if won else _first(view, NO_CHAMPION)
    if fact is None:
        return why or rest
    if fact.kind == "unconfirmed" and not won:  # why nothing was gained answers it
        return why or rest
    if fact.severity == "warn":
        return answer if won else f"{answer}; {why or rest}"
    return f"{why or rest}; {answer}"


def _first(view: RunView, rules: tuple[tuple[Rule, bool], ...]) -> str:
    return next((_with_alpha(view, line, new_run) for found, new_run in rules if (line := found(view))), "")


def _with_alpha(view: RunView, line: str, new_run: bool) -> str:
    """Advice that takes a new run, which shares this one's error budget where both have the same gate tasks."""
    draw = view.opened.draw if view.opened else None
    gate = draw.of("gate") if draw else None
    if not new_run or gate is None or not gate.run or gate.alpha is None:
        return line
    return f"{line}; a new run on these gate tasks shares their alpha with this one: `--dry-run` says what is left"
