"""The whole loop with the trl trainer, offline: a policy from scratch, trained on GSM8K-style questions, judged, certified, verified."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evotrainer.api import start
from evotrainer.executors import worker

pytest.importorskip("trl", reason="TRL is an extra: pip install 'evotrainer[trl]'")
pytestmark = pytest.mark.xdist_group("trl")

EXAMPLE = Path(__file__).parents[2] / "examples" / "trl-gsm8k.toml"


class Forked:
    """A trial's process as `subprocess.Popen` would start it, but forked: the libraries are loaded already."""

    def __init__(self, args: Sequence[str], *, stdout: Any, env: dict[str, str], **kwargs: Any) -> None:
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid:
            return
        try:
            os.setsid()
            for fd in (1, 2):
                os.dup2(stdout.fileno(), fd)
            os.environ.update(env)
            os._exit(worker.main(args[args.index("evotrainer.executors.worker") + 1 :]))
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)

    def poll(self, how: int = os.WNOHANG) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, how)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self) -> int | None:
        return self.poll(0)


def test_a_run_through_trl_is_complete_and_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import evotrainer.trainers.trl.grpo  # noqa: F401

    forking = SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr("evotrainer.executors.local.subprocess", forking)
    small = [
        *("policy.warm_start.steps=3", "policy.warm_start.shape.width=32", "policy.warm_start.demonstrations=64"),
        *("recipe.steps=1", "recipe.prompts_per_step=2", "recipe.group_size=2", "recipe.max_tokens=4"),
        *("run.rounds=0", "run.seeds=[1, 2]", "run.certify_seeds=[101]", "run.workers=1", "run.agent=random"),
        *("evaluation.search_tasks=2", "evaluation.gate_tasks=2", "evaluation.cert_tasks=2", "judge.audit=never"),
    ]
    run = start(EXAMPLE, tmp_path / "run", small)
    assert run.certification is not None and run.closed is not None
    opened = next(e.body for e in run.events() if e.kind == "run")
    assert opened.base_policy == {"path": "warm-start"}
    trained = [e.body for e in run.events() if e.kind == "finished" and e.body.steps]
    assert len(trained) >= 2 and all(t.status == "complete" and t.curve[0]["step"] == 1 for t in trained)
    assert (run.folder / "trials" / "b0-s1" / "policy" / "chat_template.jinja").is_file()
    from evotrainer.records.store import load

    stored = load([run.folder / "rollouts" / "b0-s1"], split="train")
    assert len(stored) == 4 and all(r.token_ids and r.logprobs for r in stored)
    assert not run.verify().problems
