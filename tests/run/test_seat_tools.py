"""What a coding agent may ask of a run by tools: the statistical agent's view, readings, code tried, a run taken
further."""

from __future__ import annotations

import re
import shlex
import threading
import time
from pathlib import Path

import pytest
from bench.seat.gaming import stored

from evotrainer import api
from evotrainer.agents.seat.carriers.queue import put_answer
from evotrainer.cli._seat_tools import SeatTools
from evotrainer.errors import AgentError, StoreError
from tests.cli.call import in_this_process as evotrainer
from tests.paper import Paper, bodies
from tests.run.test_seat import GOOD, finish, program, say, task, trial

__all__ = ["task"]


@pytest.fixture
def played(task: Path, tmp_path: Path) -> api.Run:
    """A run that has ended, with rollouts of its champion; half of its places were the seat's."""
    only = {f"search{n}": say(trial(lr=2e-5)) for n in range(4)}
    options = [*program(tmp_path, only), "run.agent_options.share=0.5"]
    return Paper(finish, stored).start(task, tmp_path / "run", options)


def test_the_statistical_agents_view_and_the_readings_are_told(
    played: api.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = SeatTools(played.folder)
    assert "left in this round: not told" in tools.candidates(), "a proposal takes none"
    asked = next(a.request for a in bodies(played, "asked") if a.request.step == "search" and a.request.departs)
    monkeypatch.setattr(tools, "_asked", lambda: asked)
    told = tools.candidates()
    assert asked.candidates and all(f"{100 * c.mean:+.1f} ± {100 * c.sd:.1f} points" in told for c in asked.candidates)
    assert f"differ by ± {asked.noise_sd:.3f}; search trainings left in this round: {asked.trainings_left}" in told
    assert f"departs may be: {', '.join(asked.departs) or '(none yet)'}" in told
    assert "expects nothing of clip" in tools.candidates("clip") and len(told) <= 2000
    assert set(tools.candidates(next(iter(asked.candidates[0].changes))).splitlines()[1:]) < set(told.splitlines()[1:])
    read = tools.health()
    assert read.startswith("Quoted from rollouts") and played.state.champion in read and len(read) <= 2000
    with pytest.raises(AgentError, match="no reading of 'b9'; there are: "):
        tools.health("b9")
    assert "correct]" in tools.evidence(outcome="correct") and "incorrect]" not in tools.evidence(outcome="correct")
    assert tools.evidence(finish="length") == f"no search rollout of {played.state.champion} is like that"


def test_code_is_tried_in_the_sandbox(played: api.Run) -> None:
    hooks = {
        "same": "def weights(rollouts):\n    return [1.0 for r in rollouts]\n",
        "copy": "def weights(rollouts):\n    return [float(r['outcome'] == 'correct') for r in rollouts]\n",
        "back": "def advantages(group):\n    return [None if a is None else -a for a in group['advantages']]\n",
    }
    told = SeatTools(played.folder).backtest([{"factor": "hooks", "new": {k: s}} for k, s in hooks.items()])
    assert "no sandbox" not in told
    same, copy, back = told.splitlines()
    assert ": contradicts, " in same and "contradicts, reads_protected" in copy and ": contradicts, " in back
    long = SeatTools(played.folder).backtest([{"factor": "nope", "new": 1}] * 3 + [{"factor": "lr", "new": -1}])
    assert "unknown recipe factor 'nope'" in long and "must be greater than 0" in long, "none hides the others"


@pytest.mark.parametrize("was", ["queue", "command"])
def test_the_command_that_a_finished_run_names_takes_a_proposal_further(was: str, task: Path, tmp_path: Path) -> None:
    folder, quick = tmp_path / "run", Paper(finish)
    for step, raw in GOOD.items():
        put_answer(folder / "seat", f"r1-{step}-0", raw)
    queue = ["run.agent_options.carrier=queue", "run.agent_options.timeout_s=60"]
    run = quick.start(task, folder, ["run.probes=0", *(queue if was == "queue" else program(tmp_path, GOOD))])
    told = evotrainer("propose", str(folder), "-", stdin=say(trial(grad_clip=0.5)))
    command = re.search(r"it has ended: `evotrainer resume (.*)` goes on and asks again", told.stderr)
    assert told.returncode == 8 and command
    at, *overrides = shlex.split(command[1])
    assert at == str(folder) and (len(overrides) == 1) == (was == "queue")
    worker = threading.Thread(target=lambda: quick.resume(folder, overrides))
    worker.start()
    tools, end = SeatTools(folder), time.monotonic() + 60
    while worker.is_alive() and time.monotonic() < end:
        try:
            tools.propose([trial(grad_clip=0.5)])
        except (AgentError, StoreError):
            time.sleep(0.05)
    worker.join(60)
    assert [b.changes for b in bodies(run, "answered")[-1].proposal.trials] == [{"grad_clip": 0.5}]
    assert run.state.last_round == 2 and run.closed and run.state.branches["b2"].verdict
