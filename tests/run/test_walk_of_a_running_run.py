"""A real MCP client asks every tool of a run in progress, at base, noise floor, search, gate and certification: none of
its answers holds a gate or cert task, rollout or score of single tasks."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evotrainer import api
from evotrainer.cli._seat_tools import TOOLS
from evotrainer.records.events import TrialFinished
from evotrainer.records.reading import load
from evotrainer.run.observer import Running, SilentObserver
from tests.run.test_closed_to_the_seat import FRESH, secrets_of

Call = Callable[[str, dict[str, Any]], tuple[str, bool]]
SEAT = [
    "run.agent=seat",
    "run.agent_options.carrier=queue",
    "run.agent_options.share=1.0",
    "run.probes=1",
    "run.changes=1",
]
ANSWERS = {"search": {"lr": 0.0011}, "proposal": {"lr": 0.0012}}


@contextmanager
def client_of(folder: Path) -> Iterator[Call]:
    """A client of `evotrainer mcp` over stdio, a process of its own: (tool, arguments) -> (answer, is it an error?)."""
    mcp = pytest.importorskip("mcp", minversion=None)
    from anyio.from_thread import start_blocking_portal
    from mcp.client.stdio import StdioServerParameters

    args = ["-m", "evotrainer.cli", "mcp", str(folder)]
    server = StdioServerParameters(command=sys.executable, args=args, env=dict(os.environ))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(mcp.Client(server)) as client:

        def call(tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
            found = portal.call(client.call_tool, tool, arguments)
            return "\n".join(c.text for c in found.content), bool(found.is_error)

        yield call


class Walker(SilentObserver):
    """Walks over all tools when a trial of a new kind is under way and whenever one has finished; answers what is
    asked from a thread of its own, as a client does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: list[tuple[str, str, str]] = []
        """(when, the call, its answer)"""
        self.tools: set[str] = set()
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.client = client_of(folder)
        self.seated = threading.Thread(target=self.sit)

    def step(self, name: str) -> None:
        if not self.seated.ident and (self.folder / "ledger.db").exists():
            self.call = self.client.__enter__()
            self.seated.start()

    def close(self) -> None:
        self.ended.set()
        if self.seated.ident:
            self.seated.join()
            self.client.__exit__(None, None, None)

    def trials(self, running: Running) -> None:
        for spec, _ in running:
            if (when := f"during {kind(spec.trial)}") not in {w for w, _, _ in self.answers}:
                self.walk(when)

    def finished(self, trial: TrialFinished) -> None:
        self.walk(f"after {kind(trial.trial)}")

    def ask(self, when: str, tool: str, **arguments: Any) -> str:
        answer, _ = self.call(tool, arguments)
        self.tools.add(tool)
        self.answers.append((when, f"{tool}({json.dumps(arguments)})", answer))
        return answer

    def walk(self, when: str) -> None:
        with self.lock:
            for tool in ("overview", "trainings", "request", "factor"):
                self.ask(when, tool)
            for section in ("", "Where", "Evidence", "What", "Rollouts", "History"):
                self.ask(when, "request", section=section)
            for factor in ("lr", "curriculum", "rewards"):
                self.ask(when, "factor", name=factor)
            for branch in ("", "base", "b0", "b1", "gate", "cert", "base-cert", "b0-s1", "../sealed/b0-s1"):
                for tool in ("scores", "evidence", "why"):
                    self.ask(when, tool, branch=branch)
            self.ask(when, "evidence", text="", limit=1000)
            self.ask(when, "backtest", changes=[{"factor": "group_size", "new": 8}, {"factor": "gate_tasks", "new": 2}])
            self.ask(when, "propose", trials=[{"changes": {"evaluation.gate_tasks": 2}, "why": "gate"}])
            self.ask(when, "wait", id="r1/answered/search0/0", seconds=0)

    def sit(self) -> None:
        while not self.ended.wait(0.1):
            with self.lock:
                told = self.ask("while it asks", "overview")
                step = next((s for s in ANSWERS if f"It asks now: {s} " in told), "")
                if step:
                    sections = self.ask("while it asks", "request").removeprefix("sections: ").split("; ")
                    for s in sections:
                        self.ask("while it asks", "request", section=s.rpartition(" (")[0])
                    trials = [{"changes": ANSWERS[step], "why": "to be seen", "evidence": ["gate", "cert"]}]
                    self.ask("while it asks", "propose", trials=trials)


def kind(trial: str) -> str:
    """What a trial is made for: base, noise, search, gate or cert."""
    if trial == "base":
        return "base"
    if trial.endswith(("-s101", "-cert")):
        return "cert"
    return "search" if trial.startswith("p") else "noise" if trial.startswith("b0") else "gate"


def forms(secret: str) -> set[str]:
    """A text as an answer may quote it."""
    return {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}


def leaks(answers: list[tuple[str, str, str]], secrets: list[str]) -> list[tuple[str, str, str]]:
    every = {f for s in secrets for f in forms(s)}
    return [(when, call, f) for when, call, answer in answers for f in every if f in answer]


@pytest.mark.slow
def test_every_answer_while_a_real_run_goes_on_holds_nothing_of_gate_or_cert(
    task_file: Path, trained_base: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    view = Walker(folder)
    more = [*FRESH, *SEAT, f"policy.base={trained_base}", "run.workers=1"]
    try:
        run = api.start(task_file, folder, more, view=view)
    finally:
        view.close()
    during = {when for when, _, _ in view.answers}
    assert during >= {f"{w} {k}" for w in ("during", "after") for k in ("base", "noise", "search", "gate", "cert")}
    assert view.tools == {*TOOLS} - {"stop"}, "stop answers with a fixed sentence"
    assert run.closed is not None and len(run.state.probes) == 1
    sealed = [r for p in (run.folder / "sealed").iterdir() if p.name != "draw" for r in load([p])]
    scores = [s for e in run.events() if e.kind == "finished" for s in e.body.scores if s.split in ("gate", "cert")]
    single = [json.dumps(list(s.per_task.values())) for s in scores]
    secrets = [*secrets_of(run), *{r.id for r in sealed}, *{r.task for r in sealed}, *single]
    assert {r.split for r in sealed} >= {"gate", "cert"} and scores
    assert not leaks(view.answers, secrets)
    quoted = list(load([run.folder / "rollouts" / "b0-s1"], split="search"))
    assert leaks(view.answers, [r.id for r in quoted]), "search rollouts are shown, so gate's would be found"
    assert max(len(a) for _, _, a in view.answers) <= 2100
