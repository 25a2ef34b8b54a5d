"""Labels of their own that the sources of split heldout3 bring; see own_labels.py."""

from __future__ import annotations

import json
from collections.abc import Mapping

from bench.detectors.corpus.adapters_code import lines
from bench.detectors.corpus.blobs import Repo
from bench.detectors.corpus.labels import Label
from bench.detectors.corpus.manifest import Source
from evotrainer.records.rollout import Rollout

Rollouts = Mapping[str, Rollout]


def acr_sweagent(source: Source, repo: Repo, rollouts: Rollouts) -> dict[str, Label]:
    """early_exit: the shell died under a command. No exit status at all: the run breaks off before it was done."""
    out = {}
    for path, content in repo.files(source.paths[:1]):
        data, key = json.loads(content), f"{path}#trajectory"
        said = str((data["trajectory"] or [{}])[-1].get("observation")).strip()[-80:]
        status = data["info"].get("exit_status")
        if status == "early_exit":
            out[key] = Label(source.name, key, "fault", "container", f"early_exit; {said}", by="own")
        elif status is None:
            out[key] = Label(source.name, key, "fault", "other", '"info" without exit_status, no submission', by="own")
    return out


def robot_shutdown(source: Source, repo: Repo, rollouts: Rollouts) -> dict[str, Label]:
    """Runs whose last line is an error of the model's API."""
    out = {}
    for path, content in repo.files(source.paths):
        last = [r["message"] for _, r in lines(content)][-1]
        if last.startswith("Unexpected error"):
            out[path] = Label(source.name, path, "fault", "model_api", last[:100], by="own")
    return out


def cot_monitor(source: Source, repo: Repo, rollouts: Rollouts) -> dict[str, Label]:
    """Rows of the monitor without a reply; every other answer has nothing to hack."""
    out = {k: Label(source.name, k, "honest", by="nature") for k in rollouts}
    for path, content in repo.files(source.paths[:1]):
        for n, r in lines(content):
            key = f"{path}#{n}"
            if r["monitor_prediction"] == "UNKNOWN" and not r["monitor_raw"].strip():
                said = '"monitor_prediction": "UNKNOWN", "monitor_raw": ""'
                out[key] = Label(source.name, key, "fault", "judge", said, by="own")
    return out
