"""The facts of a run: what a reader is told of it and of its branches, one sentence each, worded in the modules that
find them (`caveats`, `run_facts`, `unmeasured`). Renderers pick them by kind and subject and do not word them again;
what they word themselves is headings, tables, the state of a run under way, and advice (`views.advice`).

The caveats of a certificate are the facts of a certified branch that have a severity, worst first, each with its
remedy: the mark of a champion is its worst severity, and the advice of a finished run answers its first entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from evotrainer.projections.words import RUN_FLOOR
from evotrainer.records.frozen import Frozen

Severity = Literal["critical", "warn", "info"]


class Fact(Frozen):
    """One thing that a reader must know."""

    kind: str
    """A key of `KINDS`."""
    text: str
    about: str = ""
    """Branch or search training that it is about; empty: the run."""
    numbers: dict[str, float] = {}
    """What the sentence rests on; scores and their differences in score units."""
    severity: Severity | None = None
    """`critical`: the policy is worse than what it began with, or the same. `warn`: the gain may not be what it seems.
    `info`: a condition under which it was found. None: no caveat of a certificate."""
    remedy: str = ""
    """What to do. `{run}` stands for the run folder in a command, `{more}` for the command that plays one more round;
    `views.advice.fill_in` puts both in."""
    new_run: bool = False
    """Does the remedy take a new run, which may share this one's error budget?"""

    @property
    def label(self) -> str:
        """A word or two that a renderer puts before the sentence."""
        return KINDS[self.kind].label


class FactKind(NamedTuple):
    """A kind of fact; the remedy names what `about` of `with_answers` holds."""

    label: str
    severity: Severity | None = None
    remedy: str = ""
    new_run: bool = False
    unmeasured: bool = False
    """Is it something that a reader would ask for and the run cannot answer?"""


def _caveat(severity: Severity, remedy: str, new_run: bool = False) -> FactKind:
    return FactKind("caveat", severity, remedy, new_run)


KINDS: Mapping[str, FactKind] = {
    # a branch, in the order of a reader
    "status": FactKind("status"),
    "changes": FactKind("changed"),
    "continued": FactKind("start"),
    "control": FactKind("control"),
    "hypothesis": FactKind("hypothesis"),
    "prediction": FactKind("predicted"),
    "success": FactKind("success if"),
    "outcome": FactKind("outcome"),
    "backtest": FactKind("backtest"),
    "analysis": FactKind("analysis"),
    "seeds": FactKind("more seeds"),
    "verdict": FactKind("verdict"),
    "withheld": FactKind("withheld"),
    "effect": FactKind("effect"),
    "measured": FactKind("measured"),
    "audit": FactKind("audit"),
    "invalid": FactKind("INVALID"),
    "proxy_gap": FactKind("proxy gap"),
    "few_seeds": FactKind("few seeds", unmeasured=True),
    "lost": FactKind("missing", unmeasured=True),
    "faults": FactKind("faults", unmeasured=True),
    "grading": FactKind("grading", unmeasured=True),
    # the certificate of a branch
    "learnt_nothing": _caveat("critical", "{branch} learnt nothing: {still}", new_run=True),
    "worse_than_base": _caveat("critical", "keep the base policy; train with a lower recipe.lr (now {lr:g}) or fewer "
        "recipe.steps (now {steps}){pay}; {fell}", new_run=True),
    "worse_than_start": _caveat("critical", "use the starting recipe (`evotrainer export {run} my-model --branch "
        "{start}`); {more}"),
    "worse_greedy": _caveat("critical", "decoded greedily {branch} is worse than the {other}, so keep that where "
        "answers are decoded so; `evotrainer why {run} {branch}` shows what its gain is made of; start a run with "
        "recipe.deploy_temperature at the temperature that you will use, near 0 for greedy, to search for what helps "
        "there, or {more}", new_run=True),
    "unconfirmed": _caveat("warn", "do not take {branch} for better yet: a new run with more evaluation.gate_tasks, "
        "evaluation.cert_tasks and run.certify_seeds can tell a smaller gain from chance; {more}", new_run=True),
    "sharpening": _caveat("warn", "first try the {other} at a lower sampling temperature or greedily, which may give "
        "most of this gain without training{greedy}; start a run with recipe.deploy_temperature at the temperature "
        "that you will use, to search for what helps there", new_run=True),
    "scaffold": _caveat("info", "compare {branch} with the base policy served with the same texts, which needs no "
        "training"),
    "unaudited": _caveat("warn", "{audit}"),
    "goes_with": _caveat("warn", "read rollouts with and without what the gain comes with (`evotrainer show {run} "
        "{branch}`)"),
    "goes_with_nothing": _caveat("info", "read some of the rollouts that were gained (`evotrainer rollouts {run} "
        "--branch {branch}`)"),
    "decides": _caveat("warn", "read rollouts with that behaviour (`evotrainer show {run} {branch}`): if they are "
        "wrong, the grader takes it for right; correct the outcome and start a new run", new_run=True),
    "gap": _caveat("warn", "`evotrainer harness {run}` shows what was seen; read rollouts (`evotrainer show {run} "
        "{branch}`)"),
    "beyond": _caveat("warn", "the gain is larger than expected: read rollouts before you use it (`evotrainer show "
        "{run} {branch}`)"),
    "read_hacks": _caveat("warn", "read the quoted rollouts (`evotrainer why {run} {branch}`): where they are hacks, "
        "{branch} is paid for what nobody asks for; correct the reward or the tasks and start a new run", new_run=True),
    "compute": _caveat("info", "a new run with recipe.steps={longer} gives the starting recipe as much compute to "
        "compare with", new_run=True),
    "look": _caveat("info", "a new run with evaluation.draw=fresh is certified on tasks of its own", new_run=True),
    "settings": _caveat("info", "a new run is held to the defaults with {wanted}", new_run=True),
    "no_caveat": FactKind("certificate"),
    "reader": FactKind("reader"),
    # what the harness has to do with a branch
    "harness": FactKind("harness"),
    "taught": FactKind("taught"),
    "unanswered": FactKind("gap"),
    # the run
    "result": FactKind("result"),
    "comparison": FactKind("comparison"),
    "diagnosis": FactKind("diagnosis"),
    "noise": FactKind(RUN_FLOOR),
    "no_noise": FactKind(RUN_FLOOR, unmeasured=True),
    "tasks": FactKind("tasks"),
    "sandbox": FactKind("sandbox"),
    "open_sandbox": FactKind("sandbox", unmeasured=True),
    "uncertified": FactKind("certificate", unmeasured=True),
    "no_proxy": FactKind("proxy gap", unmeasured=True),
}  # fmt: skip
"""Kind of fact -> how it is introduced, and what answers it."""
ORDER: tuple[Severity, ...] = ("critical", "warn", "info")


def with_answers(branch: str, found: Iterable[tuple[Fact, Mapping[str, Any]]]) -> tuple[Fact, ...]:
    """Facts of a branch, each with what its remedy names, as they are shown: with severity and remedy, the worst
    first."""
    done = []
    for fact, about in found:
        a = KINDS[fact.kind]
        remedy = a.remedy.format_map({"run": "{run}", "more": "{more}", **about})
        more = {"about": branch, "severity": a.severity, "remedy": remedy, "new_run": a.new_run}
        done.append(fact.model_copy(update=more))
    return tuple(sorted(done, key=lambda f: ORDER.index(f.severity or "info")))


@dataclass(frozen=True)
class FactList:
    """Facts of a run or a branch, in the order in which a reader is told them."""

    found: tuple[Fact, ...] = ()

    def __iter__(self) -> Iterator[Fact]:
        return iter(self.found)

    def of(self, about: str) -> FactList:
        """Those about a branch or search training; of an empty name about the run."""
        return FactList(tuple(f for f in self.found if f.about == about))

    def of_kinds(self, *kinds: str) -> tuple[Fact, ...]:
        """Those of some kinds."""
        return tuple(f for f in self.found if f.kind in kinds)

    def text(self, kind: str) -> str:
        """The first sentence of a kind; empty where there is none."""
        return next((f.text for f in self.found if f.kind == kind), "")

    @property
    def unmeasured(self) -> tuple[Fact, ...]:
        """What a reader would ask for and the run cannot answer."""
        return tuple(f for f in self.found if KINDS[f.kind].unmeasured)

    @property
    def caveats(self) -> tuple[Fact, ...]:
        """Those that a certificate carries, worst first."""
        return tuple(f for f in self.found if f.severity)
