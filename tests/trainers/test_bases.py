"""`trainers.bases`: where an adapter's base model is found:
in the run, moved, outside, on a node, in the Hub's cache, upon another adapter.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from evotrainer.errors import TrainerError
from evotrainer.records.hub import hub_name
from evotrainer.records.weights import weights_sha256
from evotrainer.trainers.bases import ADAPTER, base_of, note_base, noted, use_places

COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture(autouse=True)
def here() -> Iterator[None]:
    yield
    use_places({})


def model(folder: Path, weights: str = "w") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text(weights)
    return folder


def adapter(folder: Path, base: Path, run: Path | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / ADAPTER).write_text(json.dumps({"base_model_name_or_path": str(base), "r": 4}))
    (folder / "adapter_model.safetensors").write_text(f"a {folder.name}")
    (folder / "README.md").write_text(f"base_model: {base}")
    note_base(folder, folder, base, run)
    return folder


def test_a_run_folder_moves_with_its_adapters(tmp_path: Path) -> None:
    run = tmp_path / "run"
    base = model(run / "trials/base/policy")
    made = adapter(run / "trials/b0-s1/policy", base, run)
    assert noted(made) == ("../../base/policy", weights_sha256(base)) and base_of(made) == base
    assert not [p for p in made.iterdir() if str(tmp_path) in p.read_text()]
    run.rename(tmp_path / "moved")
    moved = tmp_path / "moved/trials/b0-s1/policy"
    assert base_of(moved) == tmp_path / "moved/trials/base/policy"
    shutil.rmtree(tmp_path / "moved/trials/base")
    with pytest.raises(
        TrainerError, match=r"belong to the base model \.\./\.\./base/policy, which is not at .*put that"
    ):
        base_of(moved)


def test_a_base_outside_keeps_its_path_and_must_stay_the_same(tmp_path: Path) -> None:
    run, base = tmp_path / "run", model(tmp_path / "models/small")
    made = adapter(run / "trials/b0-s1/policy", base, run)
    assert noted(made)[0] == str(base)
    run.rename(tmp_path / "moved")
    moved = tmp_path / "moved/trials/b0-s1/policy"
    assert base_of(moved) == base
    (base / "model.safetensors").write_text("other weights")
    with pytest.raises(TrainerError, match="are not those its adapters were trained on .*put the former ones back"):
        base_of(moved)
    base.rename(tmp_path / "away")
    with pytest.raises(TrainerError, match="put that folder back or link it there"):
        base_of(moved)


def test_on_a_node_a_base_is_named_as_the_driver_names_it(tmp_path: Path) -> None:
    there, here = "/home/me/models/small", model(tmp_path / "node/inputs/ab")
    use_places({there: str(here)})
    made = adapter(tmp_path / "node/run/trials/b0-s1/policy", here, tmp_path / "node/run")
    assert noted(made)[0] == there and base_of(made) == here
    use_places({})
    with pytest.raises(TrainerError, match="/home/me/models/small, which is not at"):
        base_of(made)


def test_a_base_of_the_hub_is_an_id_and_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = f"hub/models--org--small/snapshots/{COMMIT}"
    assert hub_name(f"/x/{cached}") == f"hf:org/small@{COMMIT}" and hub_name("/x/snapshots/1") is None
    base = model(tmp_path / cached)
    made = adapter(tmp_path / "policy", base)
    assert noted(made)[0] == f"hf:org/small@{COMMIT}"
    config = json.loads((made / ADAPTER).read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("org/small", COMMIT)
    monkeypatch.setattr("evotrainer.trainers.bases.snapshot", lambda repo, revision: tmp_path / cached)
    assert base_of(made) == base
    use_places({f"/elsewhere/{cached}": str(model(tmp_path / "node/cd"))})
    assert base_of(made) == tmp_path / "node/cd"


def test_an_adapter_that_peft_alone_wrote_names_its_base(tmp_path: Path) -> None:
    made = tmp_path / "adapter"
    made.mkdir()
    (made / ADAPTER).write_text(json.dumps({"base_model_name_or_path": str(model(tmp_path / "base"))}))
    assert base_of(made) == tmp_path / "base"
    (made / ADAPTER).write_text("{}")
    with pytest.raises(TrainerError, match="restore the policy folder"):
        base_of(made)
