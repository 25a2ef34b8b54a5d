"""The real verl, where its environment exists: EVOTRAINER_VERL_PYTHON, or .venv-verl made as docs/verl.md says.
No GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.extras.verl.rendering import machine, task

from evotrainer.errors import MissingDependencyError
from evotrainer.extras.verl.render import render
from evotrainer.extras.verl.validate import validate
from evotrainer.extras.verl.venv import Venv, find

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


@pytest.fixture(scope="module")
def venv() -> Venv:
    try:
        named = os.environ.get("EVOTRAINER_VERL_PYTHON")
        return find(None if named else ROOT / ".venv-verl")
    except MissingDependencyError as e:
        pytest.skip(str(e))


def test_verl_accepts_what_we_render_and_answers_as_recorded(venv: Venv, tmp_path: Path) -> None:
    out = tmp_path / "v"
    render(task(group_filter={"kind": "ema_std"}, resample=1, max_turns=2, kl_beta=0.1), out, machine())
    v = validate(out, venv)
    assert v.ok, v.findings
    fresh = json.loads((out / "validation.json").read_text())
    recorded = json.loads((HERE / "data" / "answers.json").read_text())["all plug-ins"]
    assert {k: fresh[k] for k in recorded} == recorded


def test_the_plugins_work_inside_verl(venv: Venv, tmp_path: Path) -> None:
    filtered, several = tmp_path / "filter", tmp_path / "turns"
    changes = {"group_filter": {"kind": "zero_variance"}, "resample": 1, "mask_truncated": True}
    render(task(**changes, length={"kind": "token_penalty", "weight": 0.01}), filtered, machine())
    render(task("guessing", max_turns=3), several, machine())
    (tmp_path / "faults").write_text("9")
    done = subprocess.run(
        [venv.python, HERE / "live_checks.py", filtered, several],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "SUMS_FAULTS": str(tmp_path / "faults"), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    # Group a: (1 - 0.5) / (std + 1e-4), times 8 rollouts of the batch / 4 of the kept groups;
    # b is flat, c's second row cut.
    a = 0.5 / (0.5**0.5 + 1e-4) * 8 / 4
    rows = [[a, 4], [-a, 2], [0, 0], [0, 0], [a, 2], [0, 0], [0, 0]]
    assert seen["advantage"]["rows"] == [pytest.approx(r, abs=1e-4) for r in rows]
    right, wrong, lost = seen["reward"]["results"]
    assert right["reward_score"] == pytest.approx(1 - 0.02) and right["reward_extra_info"]["correct"] == 1.0
    assert wrong["reward_score"] == pytest.approx(-0.08)
    assert lost.startswith("FaultsError: task train-2: grading failed") and "not paid 0" in lost
    evidence = [json.loads(x) for p in (filtered / "evidence").iterdir() for x in p.read_text().splitlines()]
    assert [e["finish"] for e in evidence] == ["stop", "length", "error"]
    assert {e["uid"] for e in evidence} == {f"00000000-0000-4000-8000-000000000001_{k}_0" for k in range(3)}
    s = seen["sampler"]
    assert s["asked"] == [2], "two groups kept of four, two asked for, once"
    assert s["decided"] == {"a": True, "c": True, "f0": True, "b": False} and s["left"] == []
    assert s["keys"] == [f"{u}_{k}_0" for u in ("a", "b", "c", "f0") for k in (0, 1)]
    assert s["rows"][0] == [True, True, False, False] and s["saved"] == ["ema-1.json"]
    t = seen["turns"]
    assert (
        [limit for _, limit in t["asked"]] == [8, 8, 8]
        and "l o w e r" in t["asked"][1][0]
        and "h i g h e r" in t["asked"][2][0]
    )
    assert (t["sampled"], t["reward"], t["turns"]) == ("5 <end> 2 <end> 4 <end>", 1.0, 6), "observations carry no loss"
    assert t["logprobs"] == [-0.5] * 6 and t["info"]["correct"] == 1.0
    assert seen["data"] == {
        "rows": 8,
        "task": "train-0",
        "prompt": ["<user>", "0", "+", "0", "=", "<end>", "<assistant>"],
    }
    assert len(seen["losses"]) == 12
    for name, (theirs, ours, apart) in seen["losses"].items():
        same = apart < (0.01 if name == "gspo 0.3" else 1e-9)  # ours passes gspo's KL through the sequence's ratio
        assert theirs == pytest.approx(ours, abs=1e-9) and same, name
