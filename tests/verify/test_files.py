"""`verify.files`: policies against the ledger, whatever form their weights have: one file, adapters, shards."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from evotrainer.records.chain import Event
from evotrainer.records.events import Resumed, RunOpened, TrialFinished
from evotrainer.records.weights import weights_sha256
from evotrainer.verify import files

FORMS = {
    "one file": ["model.safetensors"],
    "adapters": ["adapter_model.safetensors"],
    "shards": ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
}


def policy(folder: Path, names: list[str]) -> Path:
    folder.mkdir(parents=True)
    for i, name in enumerate(names):
        (folder / name).write_bytes(bytes([i]) * 100)
    if len(names) > 1:
        index = {"weight_map": {f"w{i}": n for i, n in enumerate(names)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_the_copies_of_the_environment_are_there_and_compared(tmp_path: Path) -> None:
    sha = hashlib.sha256(b"x").hexdigest()
    body = RunOpened.model_construct(environment={"files": {"/there/env.py": sha, "/data.csv": sha}})
    opens = Event(1, "run", "run", "", body, "")
    then = Event(2, "step", "step", "", None, "")
    found = list(files.copies(tmp_path, [opens, then], Counter()))
    assert len(found) == 1 and "data" not in "".join(found)
    assert not list(files.copies(tmp_path, [opens], Counter())), "killed before it was copied"
    place = tmp_path / "environment" / sha[:16] / "env.py"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"x")
    assert not list(files.copies(tmp_path, [opens, then], Counter()))
    place.write_bytes(b"y")
    assert "does not match" in next(files.copies(tmp_path, [opens, then], Counter()))
    shutil.rmtree(tmp_path / "environment")
    # corrected twice before anything rested on the first correction: its copy was never made
    once = Event(3, "resumed/1", "resumed", "", Resumed(n=1, files={"/there/env.py": "1" * 64}), "")
    twice = Event(4, "resumed/2", "resumed", "", Resumed(n=2, files={"/there/env.py": "2" * 64}), "")
    found = list(files.copies(tmp_path, [opens, then, once, twice, then], Counter()))
    assert [f"environment/{x * 16}/" in "".join(found) for x in "12"] == [False, True]


def told(run: Path, sha: str | None) -> list[str]:
    t = TrialFinished(
        trial="b0-s1", branch="b0", seed=1, status="complete", cpu_s=1.0, wall_s=1.0, steps=1,
        policy_path="trials/b0-s1/policy", policy_sha256=sha or "",
    )  # fmt: skip
    return list(files.policy(run, t, Counter()))


@pytest.mark.parametrize("names", FORMS.values(), ids=FORMS)
def test_a_policy_of_any_form_is_compared(tmp_path: Path, names: list[str]) -> None:
    p = policy(tmp_path / "trials" / "b0-s1" / "policy", names)
    sha = weights_sha256(p)
    assert told(tmp_path, sha) == []
    weights = p / names[-1]
    weights.write_bytes(b"x" + weights.read_bytes()[1:])
    assert "does not match the SHA-256" in told(tmp_path, sha)[0]
    weights.unlink()
    assert "is missing" in told(tmp_path, sha)[0]


@pytest.mark.parametrize("names", FORMS.values(), ids=FORMS)
def test_a_base_policy_outside_of_any_form_is_compared(tmp_path: Path, names: list[str]) -> None:
    p = policy(tmp_path / "base", names)
    run = RunOpened.model_construct(base_policy={"path": str(p), "sha256": weights_sha256(p)}, environment={})
    assert list(files.changed_inputs(run)) == []
    (p / names[0]).write_bytes(b"other")
    assert "is not what the run was built upon any more" in next(files.changed_inputs(run))
    (p / names[0]).unlink()
    assert "are not here" in next(files.changed_inputs(run))
