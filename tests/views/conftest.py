"""Runs to look at, and a real headless browser to look with."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evotrainer.records.rollout import Rollout
from tests.whole_run import build_run, with_text

ATTACK = (
    "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=2'>"
    "<svg onload=window.pwned=3> {{ 7*7 }} \x1b[31mred\x1b[0m \x00nul \u202ereversed ze\u200bro \ud800lone <!--"
)
LONG_LINE = 10_000_000


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_run(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="session")
def killed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed in round 1: b1-s0 is done, b1-s1 was at step 8, the rest had not started."""
    folder = build_run(tmp_path_factory.mktemp("killed"), until="b1-s0/finished")
    beat = {"pid": 2**22 + 1, "step": 8, "steps": 30, "phase": "train", "cpu_s": 21.5, "time": time.time()}
    (folder / "trials" / "b1-s1").mkdir(parents=True)
    (folder / "trials" / "b1-s1" / "heartbeat").write_text(json.dumps(beat))
    (folder / "trials" / "b1-s2").mkdir()
    (folder / "trials" / "b1-s2" / "heartbeat").write_text('{"pid": 12, "st')
    return folder


def hostile_rollout(r: Rollout) -> Rollout:
    """Attack text in everything a policy or task can influence; one rollout has a line of ten million characters."""
    long = "A" * LONG_LINE if r.branch == "b0" and r.seed == 0 and r.task.endswith("-000") and r.k == 0 else ""
    hit = with_text(r, prompt=ATTACK, program=ATTACK + long + "\n" + r.completion)
    tests = [t | {"input": ATTACK, "got": ATTACK, "error": ATTACK} for t in r.detail["tests"]]
    return type(hit)(
        **{f: getattr(hit, f) for f in hit.__dataclass_fields__}
        | {"task": r.task + ATTACK, "detail": {"tests": tests, ATTACK: ATTACK}}
    )


def hostile_body(body: Any) -> Any:
    """Attack text in what agents, detectors and people write."""
    d = body.model_dump()

    def poison(x: Any) -> Any:
        if isinstance(x, dict):
            words = (
                "hypothesis",
                "reason",
                "claim",
                "explanation",
                "reasoning",
                "feedback",
                "message",
                "error",
                "note",
                "success_criterion",
            )
            return {k: v + ATTACK if k in words and isinstance(v, str) else poison(v) for k, v in x.items()}
        return [poison(v) for v in x] if isinstance(x, list | tuple) else x

    return type(body).model_validate(poison(d))


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_run(tmp_path_factory.mktemp("hostile"), body=hostile_body, rollout=hostile_rollout)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Headless Chromium, offline, its console recorded."""
    binary, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip(
            "chromium and chromedriver are not installed (scripts/install-system.sh); the report is not looked at"
        )
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is missing: pip install -e '.[dev]'")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
                 "--disable-background-networking", "--disable-component-update", "--window-size=1400,1000",
                 f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    found.execute_cdp_cmd("Network.enable", {})
    found.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    yield found
    found.quit()
