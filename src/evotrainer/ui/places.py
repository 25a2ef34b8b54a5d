"""What is served: a folder of runs, a run, an audit of anybody's files. Each gives pages, and an index of rollouts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from evotrainer.errors import AgentError, ConfigError, EvoTrainerError, StoreError
from evotrainer.projections.text import point_range, points
from evotrainer.records.answers import give_answer, whoami
from evotrainer.records.durable import writer_of
from evotrainer.records.head import head_path
from evotrainer.records.ledger import Ledger
from evotrainer.records.queued import checked, open_request, propose
from evotrainer.records.regular_file import read_bytes
from evotrainer.records.text import cause, clean
from evotrainer.ui.index import RolloutFilter, RolloutIndex, run_units
from evotrainer.ui.live import LivePage, Rendered
from evotrainer.views import summary
from evotrainer.views.first_screen import TRAINS_NOTHING, gained_over, running
from evotrainer.views.fold import LOCK, load_view
from evotrainer.views.model import RunView
from evotrainer.views.report import Served, fill, generator, render
from evotrainer.views.report_data import page_data
from evotrainer.views.style import MARK

STYLES = ("vendor/uPlot.min.css", "report.css", "ui.css")
SCRIPTS = ("vendor/uPlot.iife.min.js", "vendor/d3-hierarchy.min.js", "vendor/idiomorph.min.js", "report.js", "ui.js")
DEPTH = 3
"""Folders below the one that is served in which runs are looked for."""
PAGES = 32
"""Pages of branches that are kept for who follows them."""


def static(name: str) -> str:
    """Address of an asset; another version has another."""
    return f"/static/{name}?v={generator().split()[-1]}"


def served(
    base: str, title: str, position: int = 0, live: bool = True, home: bool = True, actions: bool = False
) -> Served:
    """How a page of this server is made."""
    return Served(base, title, [static(s) for s in STYLES], [static(s) for s in SCRIPTS], position, live, home, actions)


def problem_page(error: Exception, title: str, status: int, live: bool = True) -> Rendered:
    """Why something cannot be shown, and what to do."""
    what = cause(error, 600)
    page = fill("problem.html.j2", {}, served=served("", title, live=live), what="page", name=title, problem=what)
    return Rendered.trouble(error, page, status)


class RunPlace:
    """A run folder."""

    audit = False

    def __init__(self, folder: Path, title: str, home: bool, actions: bool = False) -> None:
        self.folder, self.title, self.home, self.actions = folder, clean(title, 80), home, actions
        self.base = f"/run/{quote(title.replace('/', '~'), safe='~')}/"
        self._pages: dict[str, LivePage] = {}
        self._counts: dict[RolloutFilter, LivePage] = {}
        self._lock = threading.RLock()
        self._view: tuple[Hashable, RunView] | None = None

    def look(self) -> tuple[Hashable, ...]:
        """What the pages of a run depend upon: its ledger's head, heartbeats, who runs it."""
        try:
            head = read_bytes(head_path(self.folder / "ledger.db"))
        except OSError:
            head = b""
        beats = []
        for p in sorted((self.folder / "trials").glob("*/heartbeat")):
            try:
                beats.append((p.parent.name, p.stat().st_mtime_ns))
            except OSError:
                continue
        there = (self.folder / "ledger.db").is_file()
        given = [p.name for at in ("gates/*.json", "seat/*.answer.json") for p in sorted(self.folder.glob(at))]
        return there, head, tuple(beats), tuple(given), writer_of(self.folder / LOCK) if there else None

    def view(self) -> RunView:
        """The run as it is, with the curves of what trains; StoreError with the remedy where it cannot be read."""
        with self._lock:
            mark = self.look()
            if self._view is None or self._view[0] != mark:
                view = load_view(self.folder, rollouts=False)
                self._view = mark, view  # known before its curves: the index asks for its findings
                if view.driver is not None:
                    self._attach_curves(view)
            return self._view[1]

    def _attach_curves(self, view: RunView) -> None:
        at_work = {t.id for t, _ in running(view) if t.purpose not in TRAINS_NOTHING}
        if not at_work:
            return
        self.index.refresh()
        for b in (*view.branches.values(), *view.probes.values()):
            b.trials = [replace(t, live=self.index.curve(b.name, t.seed)) if t.id in at_work else t for t in b.trials]

    @cached_property
    def index(self) -> RolloutIndex:
        return RolloutIndex(lambda: run_units(self.folder), self.findings)

    def findings(self) -> list[tuple[str, str]]:
        """(rollout, detector) of everything that a finding of the run quotes."""
        view = self.view()
        found = [(q.rollout, f.detector) for b in view.branches.values() for f in b.findings for q in f.quotes]
        return found + [(q.rollout, "harness " + v.name) for v in view.coevolution.versions for q in v.body.quotes]

    def answer(self, to: str, choice: str, words: str) -> str:
        """Answer the question `to`; what was taken. AgentError where the run asks something else, or nothing.

        `choice`: approve, revise or abort at a gate, with `words`; of a seat propose, or check, with the answer.
        """
        with Ledger.open(self.folder / "ledger.db", readonly=True) as ledger:
            events = ledger.events()
        by = f"{whoami()} in the browser"
        if choice == "check":
            if (asked := open_request(events)) is None or asked.id != to:
                raise AgentError(f"{to} no longer waits: it was answered, or its time was over")
            checked(words, asked.body.request)
            return "a valid answer; nothing was sent yet"
        if choice == "propose":
            key, again = propose(self.folder, events, words, to=to, by=by)
            return f"{'answered before' if again else 'answered'}: {key}; the run says below what came of it"
        given = give_answer(self.folder, events, choice, words, by=by, to=to)
        return f"answered {given.to}: {given.answer.lower()}"

    def page(self, name: str) -> LivePage:
        if name not in self._pages:
            if name and name not in self.view().branches:
                raise ConfigError(
                    f"this run has no branch {clean(name, 60)!r}; there are: {', '.join(self.view().branches)}"
                )
            self._make_room(self._pages)
            self._pages[name] = LivePage(self.look, lambda: self._rendered(name), generator())
        return self._pages[name]

    def follow(self, asked: RolloutFilter) -> LivePage:
        """How many rollouts are asked for, as they are written."""
        if asked not in self._counts:
            self._make_room(self._counts)
            self._counts[asked] = LivePage(self.stored, lambda: self._counted(asked), generator())
        return self._counts[asked]

    def stored(self) -> Hashable:
        """What an index of this run's rollouts depends upon."""
        return self.look()[1], tuple(unit[0] for unit in run_units(self.folder))

    def _counted(self, asked: RolloutFilter) -> Rendered:
        try:
            if not (self.folder / "ledger.db").is_file():
                raise StoreError(_gone(self.folder))
            self.index.refresh()
            n = self.index.count(asked)
            return Rendered(n, "", {"total": n}, driven=writer_of(self.folder / LOCK) is not None)
        except (EvoTrainerError, OSError) as e:
            return Rendered(0, "", problem=cause(e, 600))

    @staticmethod
    def _make_room(pages: dict[Any, LivePage]) -> None:
        """Forget pages that nobody follows, where there are many."""
        for idle in [n for n, p in pages.items() if n and not p.readers][: max(0, len(pages) - PAGES)]:
            del pages[idle]

    def _rendered(self, name: str) -> Rendered:
        try:
            view = self.view()
            how = served(self.base, self.title, view.event_count, home=self.home, actions=self.actions)
            data = page_data(view, live=True) | ({"of": name} if name else {})
            driven = view.driver is not None
            if not name:
                return Rendered(view.event_count, render(view, how, data=data), data, driven=driven)
            page = render(view, how, "branch_page.html.j2", data, b=view.branches[name], only=True)
            return Rendered(view.event_count, page, data, driven=driven)
        except (EvoTrainerError, OSError) as e:
            gone = not (self.folder / "ledger.db").is_file()
            error = StoreError(_gone(self.folder)) if gone else e
            return problem_page(error, self.title, 404 if gone else 500)


def _gone(folder: Path) -> str:
    return (
        f"{folder} holds no run: it has not begun, or was moved or deleted; it is shown here as soon as it is there, "
        "and elsewhere by `evotrainer ui` with its new folder"
    )


@dataclass(frozen=True)
class RunRow:
    """A line of the page of runs."""

    name: str
    base: str
    state: str
    kind: str
    """Its colour and mark: a status of `MARK`."""
    told: str = ""
    task: str = ""
    champion: str = ""
    gain: str = ""
    against: str = ""
    spent: Sequence[tuple[str, str, str, float | None]] = ()
    warnings: int = 0
    critical: int = 0
    last: str = ""
    events: int = 0
    order: int = len(summary.Standing)
    """Its place among states: who waits for a human is first, what cannot be read last."""


class RunsPlace:
    """A folder of runs."""

    def __init__(self, folder: Path, alone: bool = False, actions: bool = False) -> None:
        """`alone`: the folder is a run itself, or will be one."""
        self.folder, self.alone, self.actions = folder, alone, actions
        self.runs: dict[str, RunPlace] = {}
        self._rows: dict[str, tuple[Hashable, RunRow]] = {}
        self.home = LivePage(self.look, self._rendered, generator())
        self.find()

    def find(self) -> dict[str, RunPlace]:
        """The runs that are there now, by the name that stands in their address."""
        found = {self.folder.resolve().name or "run": self.folder} if self.alone else _below(self.folder)
        for name, folder in found.items():
            if name not in self.runs:
                self.runs[name] = RunPlace(folder, name, not self.alone, self.actions)
        for name in [n for n in self.runs if n not in found]:
            if not any(p.readers for p in self.runs[name]._pages.values()):
                del self.runs[name]
        return self.runs

    def run(self, key: str) -> RunPlace | None:
        """The run with this name in its address: names are looked up, never made into paths."""
        name = key.replace("~", "/")
        return self.runs.get(key) or self.runs.get(name) or self.find().get(name)

    def latest(self) -> RunPlace | None:
        """The run whose ledger was written last."""
        return max(self.find().values(), key=lambda r: _written(r.folder), default=None)

    def look(self) -> Hashable:
        return tuple((n, r.look()) for n, r in sorted(self.find().items()))

    def _rendered(self) -> Rendered:
        rows = sorted((self._row(n, r) for n, r in self.find().items()), key=lambda r: r.last, reverse=True)
        position = sum(r.events for r in rows)
        how = served("", "Runs", position)
        page = fill("runs.html.j2", {}, served=how, what="runs", rows=rows, folder=str(self.folder), MARK=MARK)
        return Rendered(position, page)

    def _row(self, name: str, run: RunPlace) -> RunRow:
        mark = run.look()
        if name not in self._rows or self._rows[name][0] != mark:
            try:
                row = row_of(name, run.base, load_view(run.folder, rollouts=False))
            except Exception as e:  # one run must not take the page of the others down
                if not isinstance(e, EvoTrainerError | OSError):
                    logging.getLogger(__name__).exception("run %s cannot be shown", name)
                row = RunRow(name, run.base, "cannot be read", "failed", cause(e, 300))
            self._rows[name] = mark, row
        return self._rows[name][1]


def _below(folder: Path) -> dict[str, Path]:
    """Name -> run folder, of all below a folder; a run holds no other run."""
    found: dict[str, Path] = {}
    level = [folder]
    for _ in range(DEPTH):
        inside: list[Path] = []
        for parent in level:
            with suppress(OSError):
                inside += [p for p in parent.iterdir() if p.is_dir() and not p.name.startswith(".")]
        runs = [p for p in inside if (p / "ledger.db").is_file()]
        found |= {p.relative_to(folder).as_posix(): p for p in runs}
        level = [p for p in inside if p not in runs]
    return dict(sorted(found.items()))


def _written(folder: Path) -> float:
    try:
        return head_path(folder / "ledger.db").stat().st_mtime
    except OSError:
        return 0.0


def row_of(name: str, base: str, view: RunView) -> RunRow:
    """A run in a line: its state, what was gained and how sure that is, what it cost, what is to be looked at."""
    state, told = summary.state(view)
    gain, against = "", ""
    certified = view.certified.comparisons if view.certified else {}
    pairs = (f"champion-{gained_over(view)}", "champion-start", "champion-base", "start-base")
    pair = next((p for p in pairs if "low" in certified.get(p, {})), "")
    champion = view.branches.get(view.champion)
    if pair:
        c = certified[pair]
        gain, against = (
            f"{points(c['mean'])} {point_range(c['low'], c['high'])}",
            f"{pair.replace('-', ' − ')}, certified",
        )
    elif champion and champion.effect:
        e = champion.effect
        gain, against = f"{points(e.mean)} {point_range(e.low, e.high)}", f"{champion.name} on gate, not certified"
    found = [f for b in view.branches.values() for f in b.findings] if not champion else champion.findings
    caveats = view.caveats.get(view.champion, ())
    bad = sum(f.severity == "critical" for f in found) + sum(c.severity == "critical" for c in caveats)
    warn = sum(f.severity == "warn" for f in found) + sum(c.severity == "warn" for c in caveats)
    return RunRow(
        name, base, *state.value, told, str(view.opened.task) if view.opened else "", view.champion, gain,
        against, [x for x in summary.cost_lines(view) if x[3] is not None][:2], warn, bad, view.last_time,
        view.event_count, list(summary.Standing).index(state),
    )  # fmt: skip


class AuditPlace:
    """An audit of anybody's files: its report, and all rollouts that were read, by the findings that flag them."""

    home = False
    audit = True

    def __init__(self, page: Callable[[Served], str], index: RolloutIndex) -> None:
        self.title, self.base, self.index = "audit", "/run/audit/", index
        self._page = page
        self._live: LivePage | None = None

    def page(self, name: str) -> LivePage:
        if name:
            raise ConfigError("an audit has no branches; its rollouts are on the rollouts page")
        if self._live is None:
            self._live = LivePage(lambda: "", lambda: Rendered(0, self._page(self.served())), generator())
        return self._live

    def served(self) -> Served:
        return served(self.base, self.title, live=False, home=False)

    def run(self, key: str) -> AuditPlace | None:
        return self if key == "audit" else None


def values_of(index: RolloutIndex) -> dict[str, Any]:
    """What the filters offer."""
    return {k: index.values(k) for k in ("branch", "split", "outcome", "component", "finding", "source")}
