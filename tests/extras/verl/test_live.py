"""The real verl, where its environment exists: EVOTRAINER_VERL_PYTHON, or .venv-verl made as docs/verl.md says.
No GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from bench.verl.__main__ import MODEL
from tests.extras.verl.asking import ask

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


@pytest.fixture(scope="module")
def python() -> str:
    found = os.environ.get("EVOTRAINER_VERL_PYTHON", str(ROOT / ".venv-verl" / "bin" / "python"))
    if not Path(found).exists():
        pytest.skip(f"no verl environment: {found} is not there")
    return found


def test_verl_answers_as_recorded(python: str, tmp_path: Path) -> None:
    model = [python, "-c", MODEL, str(tmp_path / "model")]
    subprocess.run(model, check=True, capture_output=True)
    code = "import json, sys; from tests.extras.verl.record import *; "
    code += "print(json.dumps(answer('all plug-ins', Path(sys.argv[1]), Path(sys.argv[2]))))"
    done = subprocess.run(
        [python, "-c", code, tmp_path / "model", tmp_path / "asked"], capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    recorded = json.loads((HERE / "data" / "answers.json").read_text())["all plug-ins"]
    assert json.loads(done.stdout.splitlines()[-1]) == recorded


def test_the_plugins_work_inside_verl(python: str, tmp_path: Path) -> None:
    changes = {"group_filter": {"kind": "zero_variance"}, "resample": 1, "mask_truncated": True}
    filtered = ask(tmp_path / "filter", **changes, length={"kind": "token_penalty", "weight": 0.01})
    several = ask(tmp_path / "turns", "guessing", max_turns=3)
    (tmp_path / "faults").write_text("9")
    done = subprocess.run(
        [python, HERE / "live_checks.py", filtered.request, several.request],
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
    left = [json.loads(x) for p in filtered.rollouts.iterdir() for x in p.read_text().splitlines()]
    assert [e["finish"] for e in left] == ["stop", "length", "error"]
    assert [(e["group"], e["k"]) for e in left] == [("00000000-0000-4000-8000-000000000001", k) for k in range(3)]
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
