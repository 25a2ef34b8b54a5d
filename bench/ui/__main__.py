"""What the page costs: `python -m bench.ui` writes bench/ui/results.json, whose table is bench/ui/README.md.

Filters over a million stored rollouts and a search of their text; a page of a thousand events, opened in a browser; the
CPU time of a run's driver with 0, 1 and 20 pages that follow it, in the order 0, 1, 20, 20, 1, 0 on one machine that
should do nothing else. `python -m bench.ui rollouts`, `page` or `driver` does one part.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from evotrainer.records import keys
from evotrainer.records.arrow_schema import arrow_schema, encode
from evotrainer.records.events import SeatAnswered
from evotrainer.records.ingest import write_batches
from evotrainer.records.ledger import Ledger
from evotrainer.records.output import print
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.ui.index import RolloutFilter, RolloutIndex, run_units
from evotrainer.ui.places import RunsPlace

HERE = Path(__file__).parent
ROWS, BATCH, GROUP = 1_000_000, 8_000, 8
REPEATS = 7
ORDER = (0, 1, 20, 20, 1, 0)
"""Pages open in one run after another: what drifts while it is measured weighs on all alike."""
FILTERS = {
    "none": RolloutFilter(),
    "branch": RolloutFilter(branch="b3"),
    "step, from 40 to 60": RolloutFilter(step="40:60"),
    "task": RolloutFilter(task="task-17"),
    "component >= 0.5": RolloutFilter(component="hidden>=0.5"),
    "branch, split, outcome, component": RolloutFilter("b3", "train", outcome="correct", component="hidden>=0.5"),
}
SMALL = (
    "recipe.steps=4", "recipe.prompts_per_step=4", "recipe.group_size=4", "evaluation.search_tasks=8",
    "evaluation.gate_tasks=12", "evaluation.cert_tasks=12", "run.rounds=1", "run.branches=1", "run.probes=0",
    "run.seeds=[1,2]", "judge.min_seeds=2", "run.certify_seeds=[101]", "run.cache=off", "run.keys=off", "run.looks=off",
    "evaluation.draw=fixed",
)  # fmt: skip


def batches() -> Iterator[pa.RecordBatch]:
    """A million rollouts of eight branches: one batch of texts, again and again under other names."""
    text = "Let me add the numbers one by one, then check the sum against the examples that were given. " * 6
    rows = [
        Rollout(
            id="", task="", turns=(Turn("user", f"What is {i} and {i + 1}?"), Turn("assistant", f"{text} {2 * i + 1}")),
            reward=float(i % 3 == 0), components={"hidden": float(i % 3 == 0), "visible": float(i % 2), "brevity": 0.1},
            outcome="correct" if i % 3 == 0 else "incorrect", finish="stop", run="bench", split="train", k=i % GROUP,
            tokens=90 + i % 7, entropy=0.3, advantage=0.5 - i % 2,
        )
        for i in range(BATCH)
    ]  # fmt: skip
    plain = encode(rows)
    for n in range(ROWS // BATCH):
        branch, step = f"b{n % 8}", n // 2
        first = n * BATCH // GROUP
        columns = {
            "id": [f"{n:06x}{i:026x}" for i in range(BATCH)],
            "task": [f"task-{(first + i // GROUP) % 2000}" for i in range(BATCH)],
            "branch": [branch] * BATCH,
            "step": [step] * BATCH,
            "group": [f"{branch}/1@{step}/{first + i // GROUP}" for i in range(BATCH)],
        }
        out = plain
        for name, values in columns.items():
            at = arrow_schema().get_field_index(name)
            out = out.set_column(at, arrow_schema().field(name), pa.array(values, arrow_schema().field(name).type))
        yield out


def rollouts() -> dict[str, object]:
    """Seconds to take up a million rollouts, and milliseconds of filters and of a search."""
    with tempfile.TemporaryDirectory(prefix="bench-ui-") as folder:
        write_batches(batches(), Path(folder) / "rollouts" / "b0-s1")
        index = RolloutIndex(lambda: run_units(Path(folder)))
        began = time.perf_counter()
        index.refresh()
        taken = time.perf_counter() - began
        out: dict[str, object] = {"rows": index.n, "take_up_s": round(taken, 1)}
        shown = {}
        for name, asked in FILTERS.items():
            times = []
            for _ in range(REPEATS):
                began = time.perf_counter()
                index.refresh()
                index.find(asked, "spread")
                times.append(1000 * (time.perf_counter() - began))
            shown[name] = {"median_ms": round(statistics.median(times)), "worst_ms": round(max(times))}
        out["filters"] = shown
        began = time.perf_counter()
        next(x for x in index.search("4001", RolloutFilter()) if not isinstance(x, int))
        out["first_hit_ms"] = round(1000 * (time.perf_counter() - began))
        return out


EVENTS, OPENED = 1_000, 7


def page() -> dict[str, object]:
    """Milliseconds until a run of a thousand events is there: of the server to make its page, first and again with one
    event more, and of a browser from the address to the page that follows."""
    from tests.ui_server import port_of, serving
    from tests.whole_run import build_run

    with tempfile.TemporaryDirectory(prefix="bench-ui-") as folder:
        run = build_run(Path(folder) / "run")
        events = grow(run)
        place, cpu = RunsPlace(run, alone=True).runs["run"], []
        for n in range(-OPENED, 0):
            began = time.thread_time()
            place.page("")._render()
            cpu.append(1000 * (time.thread_time() - began))
            append_note(run, n)
        with serving(run) as address:
            made, opened = [], []
            for n in range(OPENED):
                made.append(timed(lambda: ask(port_of(address), "/run/run/")))
                append_note(run, n)
            browser = chromium(folder)
            try:
                for _ in range(OPENED):
                    opened.append(timed(lambda: shown(browser, f"{address}run/run/")))
            finally:
                browser.quit()
        first, *rest = made
        out = {"events": events, "first_ms": round(first), "anew_ms": round(statistics.median(rest))}
        out |= {"first_cpu_ms": round(cpu[0]), "anew_cpu_ms": round(statistics.median(cpu[1:]))}
        return out | {"opened_ms": round(statistics.median(opened)), "worst_opened_ms": round(max(opened))}


def grow(run: Path) -> int:
    """Skills that were kept, until the ledger has a thousand events; how many it has."""
    with Ledger.open(run / "ledger.db") as ledger:
        for n in range(EVENTS - len(ledger.events())):
            note(ledger, n)
        return len(ledger.events())


def append_note(run: Path, n: int) -> None:
    with Ledger.open(run / "ledger.db") as ledger:
        note(ledger, 2 * EVENTS + n)


def note(ledger: Ledger, n: int) -> None:
    """An event as a long run has many: a seat's answer with a text."""
    answer = SeatAnswered(round=1, step=f"search{n}", attempt=0, carrier="llm", raw="why this should help " * 20,
                          input_tokens=2000, output_tokens=300, wall_s=3.0)  # fmt: skip
    ledger.append("answered", keys.answered(1, f"search{n}", 0), answer)


def timed(do: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    do()
    return 1000 * (time.perf_counter() - began)


def ask(port: int, path: str) -> None:
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("GET", path)
    assert c.getresponse().read()
    c.close()


def chromium(folder: str) -> Any:
    """A headless browser."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def shown(browser: Any, url: str) -> None:
    """Open a page, until it has drawn its charts and follows the run."""
    browser.get("about:blank")
    browser.get(url)
    follows = (
        "return document.documentElement.dataset.ready && /event/.test(document.getElementById('live').textContent)"
    )
    while not browser.execute_script(follows):
        time.sleep(0.01)


def follow(port: int, over: threading.Event) -> None:
    """A page that is open: it asks for the page, then follows it, again where the stream ends."""
    while not over.is_set():
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            c.request("GET", "/run/run/")
            c.getresponse().read()
            c.request("GET", "/run/run/events")
            answer = c.getresponse()
            while not over.is_set() and answer.readline():
                continue
        except OSError:
            time.sleep(0.5)
        finally:
            c.close()


def driver(pages: int) -> dict[str, float]:
    """CPU-seconds of the driver of a small real run alone, without its trials, with so many pages open."""
    with tempfile.TemporaryDirectory(prefix="bench-ui-") as folder:
        run = Path(folder) / "run"
        words = [sys.executable, "-m", "evotrainer", "run", "tasks/code.toml", "--plain", "--out", str(run), *SMALL]
        began, cpu, over, readers = time.perf_counter(), 0.0, threading.Event(), []
        with subprocess.Popen([*words, *["--ui"] * bool(pages)], stdout=subprocess.PIPE, text=True) as p:
            assert p.stdout is not None
            if pages:
                port = int(next(x for x in p.stdout if x.startswith("page: ")).split(":")[-1].strip(" /\n"))
                readers = [threading.Thread(target=follow, args=(port, over), daemon=True) for _ in range(pages)]
                for reader in readers:
                    reader.start()
            drain = threading.Thread(target=p.stdout.read, daemon=True)
            drain.start()
            while p.poll() is None:
                try:
                    fields = Path(f"/proc/{p.pid}/stat").read_text().rpartition(")")[2].split()
                    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") or cpu
                except (OSError, IndexError):
                    break
                time.sleep(0.1)
            over.set()
            if p.wait() != 0:
                raise SystemExit(f"the run ended with {p.returncode}")
        return {"driver_cpu_s": round(cpu, 2), "wall_s": round(time.perf_counter() - began, 1)}


def drivers() -> dict[str, object]:
    """`driver` of each number of pages, in `ORDER`."""
    runs = [(n, driver(n)) for n in ORDER]
    return {str(n): [r for m, r in runs if m == n] for n in sorted(set(ORDER))}


PARTS: dict[str, Callable[[], dict[str, object]]] = {"rollouts": rollouts, "page": page, "driver": drivers}


def main(parts: list[str]) -> None:
    results = json.loads((HERE / "results.json").read_text()) if (HERE / "results.json").is_file() else {}
    for part in parts:
        before = os.getloadavg()[0]
        results[part] = PARTS[part]() | {"load_average": [round(before, 1), round(os.getloadavg()[0], 1)]}
    results["cores"] = os.cpu_count()
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:] or list(PARTS))
