"""What a reader of a certificate must know, worst first, each with what to do about it.

One list: caveats are its sentences, the mark of a champion is its worst severity, and the advice of a finished run
answers its first entry: with the remedy alone; of mere conditions (`info`) after what to do with the champion; where
nothing was promoted, with why nothing was gained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from evotrainer.records.frozen import Frozen

Severity = Literal["critical", "warn", "info"]
Kind = Literal[
    "learnt_nothing", "worse_than_base", "worse_than_start", "worse_greedy", "unconfirmed", "sharpening", "scaffold",
    "unaudited", "goes_with", "goes_with_nothing", "decides", "gap", "beyond", "compute", "look",
    "settings", "read_hacks",
]  # fmt: skip
"""What a fact is about; ANSWERS has each."""


class Fact(Frozen):
    """One thing that a reader of a certificate must know."""

    kind: Kind
    text: str
    numbers: dict[str, float] = {}
    """What the sentence rests on; scores and their differences in score units."""
    severity: Severity = "info"
    """`critical`: the policy is worse than what it began with, or the same. `warn`: the gain may not be what it seems.
    `info`: a condition under which it was found."""
    remedy: str = ""
    """What to do. `{run}` stands for the run folder in a command, `{more}` for the command that plays one more round;
    `views.advice.filled` puts both in."""
    new_run: bool = False
    """Does the remedy take a new run, which may share this one's error budget?"""


class Remedy(NamedTuple):
    """What to do about a kind of fact; the remedy names what `about` of `with_answers` holds."""

    severity: Severity
    remedy: str
    new_run: bool = False


ANSWERS: Mapping[Kind, Remedy] = {
    "learnt_nothing": Remedy("critical", "{branch} is the base policy: raise recipe.lr (now {lr:g}) or recipe.steps "
        "(now {steps}); `evotrainer health {run} {branch}` shows how many groups had a gradient", new_run=True),
    "worse_than_base": Remedy("critical", "keep the base policy; train with a lower recipe.lr (now {lr:g}) or fewer "
        "recipe.steps (now {steps}){pay}; {fell}", new_run=True),
    "worse_than_start": Remedy("critical", "use the starting recipe (`evotrainer export {run} my-model --branch "
        "{start}`); {more}"),
    "worse_greedy": Remedy("critical", "decoded greedily {branch} is worse than the {other}, so keep that where "
        "answers are decoded so; `evotrainer why {run} {branch}` shows what its gain is made of; start a run with "
        "recipe.deploy_temperature at the temperature that you will use, near 0 for greedy, to search for what helps "
        "there, or {more}", new_run=True),
    "unconfirmed": Remedy("warn", "do not take {branch} for better yet: a new run with more evaluation.gate_tasks, "
        "evaluation.cert_tasks and run.certify_seeds can tell a smaller gain from chance; {more}", new_run=True),
    "sharpening": Remedy("warn", "first try the {other} at a lower sampling temperature or greedily, which may give "
        "most of this gain without training{greedy}; start a run with recipe.deploy_temperature at the temperature "
        "that you will use, to search for what helps there", new_run=True),
    "scaffold": Remedy("info", "compare {branch} with the base policy served with the same texts, which needs no "
        "training"),
    "unaudited": Remedy("warn", "{audit}"),
    "goes_with": Remedy("warn", "read rollouts with and without what the gain comes with (`evotrainer show {run} "
        "{branch}`)"),
    "goes_with_nothing": Remedy("info", "read some of the rollouts that were gained (`evotrainer rollouts {run} "
        "--branch {branch}`)"),
    "decides": Remedy("warn", "read rollouts with that behaviour (`evotrainer show {run} {branch}`): if they are "
        "wrong, the grader takes it for right; correct the outcome and start a new run", new_run=True),
    "gap": Remedy("warn", "`evotrainer harness {run}` shows what was seen; read rollouts (`evotrainer show {run} "
        "{branch}`)"),
    "beyond": Remedy("warn", "the gain is larger than expected: read rollouts before you use it (`evotrainer show "
        "{run} {branch}`)"),
    "read_hacks": Remedy("warn", "read the quoted rollouts (`evotrainer why {run} {branch}`): where they are hacks, "
        "{branch} is paid for what nobody asks for; correct the reward or the tasks and start a new run", new_run=True),
    "compute": Remedy("info", "a new run with recipe.steps={longer} gives the starting recipe as much compute to "
        "compare with", new_run=True),
    "look": Remedy("info", "a new run with evaluation.draw=fresh is certified on tasks of its own", new_run=True),
    "settings": Remedy("info", "a new run is held to the defaults with {wanted}", new_run=True),
}  # fmt: skip
"""Kind of fact -> what answers it."""
ORDER: tuple[Severity, ...] = ("critical", "warn", "info")


def with_answers(found: Iterable[tuple[Fact, Mapping[str, Any]]]) -> tuple[Fact, ...]:
    """Facts, each with what its remedy names, as they are shown: with severity and remedy, the worst first."""
    done = []
    for fact, about in found:
        a = ANSWERS[fact.kind]
        remedy = a.remedy.format_map({"run": "{run}", "more": "{more}", **about})
        done.append(fact.model_copy(update={"severity": a.severity, "remedy": remedy, "new_run": a.new_run}))
    return tuple(sorted(done, key=lambda f: ORDER.index(f.severity)))
