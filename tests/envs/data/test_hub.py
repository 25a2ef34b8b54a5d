"""`envs.data.hub`: sets by Hugging Face id, pinned to a commit, read again at that commit,
and a clear error without a network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evotrainer.envs.data.hub import HubSet, parse_hub, pin
from evotrainer.errors import TaskSetError
from tests.envs.data.hub_server import hub

OLD, NEW = "1" * 40, "2" * 40
SCRIPT = """
import json, sys
from evotrainer.envs.data.hub import parse_hub, pin, read_hub
from evotrainer.errors import EvoTrainerError
out = []
for source in sys.argv[1:]:
    try:
        settled = pin({"name": "math", "source": source})["source"]
        rows = read_hub(parse_hub(settled))
        out.append([settled, {k: [r["question"] for r in v] for k, v in rows.items()}])
    except EvoTrainerError as e:
        out.append([None, str(e)])
print(json.dumps(out))
"""


def ask(endpoint: str, home: Path, *sources: str, **env: str) -> list[Any]:
    """What a process of its own makes of these sources: where the Hub is, its clients settle on import."""
    place = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        **dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"), "0"),
        "HF_HUB_ETAG_TIMEOUT": "20",
    }
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"), "")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *sources],
        capture_output=True,
        text=True,
        env={**os.environ, **proxies, **place, **env},
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return list(json.loads(done.stdout.strip().split("\n")[-1]))


def rows(*questions: str) -> bytes:
    return "".join(json.dumps({"question": q, "answer": "#### 1"}) + "\n" for q in questions).encode()


def test_a_revision_is_pinned_and_read_again_after_the_set_has_changed(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    old = {"train.jsonl": rows("a", "b"), "test.jsonl": rows("c")}
    new = {"train.jsonl": rows("a", "changed"), "test.jsonl": rows("c")}
    with hub("org/set", {OLD: old, NEW: new}) as (endpoint, _):
        now, then, wrong = ask(endpoint, tmp_path, "hf:org/set", f"hf:org/set@{OLD}", "hf:org/set@nowhere")
    assert now == [f"hf:org/set@{NEW}", {"train": ["a", "changed"], "test": ["c"]}]
    assert then == [f"hf:org/set@{OLD}", {"train": ["a", "b"], "test": ["c"]}]
    assert wrong[0] is None and "hf:org/set@nowhere cannot be pinned to a commit" in wrong[1]
    (cached, unpinned) = ask("http://127.0.0.1:9", tmp_path, f"hf:org/set@{OLD}", "hf:org/set", HF_HUB_OFFLINE="1")
    assert cached == then  # a pinned set is read from the cache
    assert unpinned[0] is None
    assert (
        "this machine does not reach the Hub: give a local file, or a copy in the Hub's cache by its commit"
        in unpinned[1]
    )


@pytest.mark.parametrize(
    ("source", "parsed"),
    [
        ("hf:org/name", HubSet("org/name")),
        ("hf:name", HubSet("name")),
        ("hf:org/name:main@v1.0", HubSet("org/name", "main", "v1.0")),
        ("hf:BAAI/TACO@refs/convert/parquet", HubSet("BAAI/TACO", None, "refs/convert/parquet")),
        ("file.jsonl", None),
    ],
)
def test_sources_are_parsed(source: str, parsed: HubSet | None) -> None:
    assert parse_hub(source) == parsed
    if parsed is not None:
        assert parsed.name == source


def test_what_is_pinned_or_no_hub_id_is_left_as_it_is() -> None:
    for environment in ({"source": f"hf:org/name@{OLD}"}, {"source": "a.jsonl"}, {"name": "code"}):
        assert pin(environment) == environment
    with pytest.raises(TaskSetError, match="is not of the form hf:org/name"):
        pin({"source": "hf:"})


TWO = """
import sys
import time
from evotrainer.envs.data.hub import HubSet, read_hub
from evotrainer.records.hub import snapshot
from evotrainer.errors import EvoTrainerError
for ask in (lambda: read_hub(HubSet("org/set", "main")), lambda: snapshot("org/model")):
    try:
        ask()
    except EvoTrainerError as e:
        print(e)
"""


def test_without_a_network_a_set_and_a_model_are_refused_at_once_in_one_line_each(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"), "")
    place = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", TWO], capture_output=True, text=True, env={**os.environ, **proxies, **place}, timeout=250
    )
    assert time.monotonic() - begun < 25, "the clients' own tries take half a minute"
    assert done.stderr == "", "none of their lines"
    of_set, of_model = done.stdout.splitlines()
    assert (
        "data set hf:org/set:main cannot be loaded" in of_set and "does not reach the Hub: give a local file" in of_set
    )
    assert "policy.base org/model: cannot be fetched (the Hub cannot be reached: " in of_model
