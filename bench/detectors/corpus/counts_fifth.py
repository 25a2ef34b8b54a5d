"""Independent counts of split heldout5; see counts.py."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from fractions import Fraction

from bench.detectors.corpus.counting import Count, Files, of, rows


def algotune(files: Files) -> Count:
    """Folders with a program; nothing says how fast it was."""
    some = {p.rsplit("/", 1)[0] for p, _ in files if p.startswith("results/")}
    return of([None] * len(some), None, None)


def dgm_polyglot(files: Files) -> Count:
    """Verdicts; a run without a printed trajectory would be one too many here."""
    won = [json.loads(c)["eval_result"] == "resolved" for p, c in files if p.endswith(".json")]
    return of([float(x) for x in won], len(won), sum(won), 0)


def dgm_swe(files: Files) -> Count:
    """Trajectories, and the solved of the run's own sum. Five of them broke off as the context had run over."""
    n = won = 0
    for p, c in files:
        if p.endswith(".md"):
            n += 1
        else:
            won = json.loads(c)["overall_performance"]["total_resolved_instances"]
    return of([float(i < won) for i in range(n)], n, won, 0)


def tora(files: Files) -> Count:
    """Rows whose first prediction has the value of the answer."""
    won = [_value(r["pred"][0]) == _value(r["gt"]) for _, c in files for r in rows(c)]
    return of([float(x) for x in won], None, sum(won))


def _value(said: object) -> Fraction | str:
    try:
        return Fraction(str(said).replace(",", "")).limit_denominator(10**6)
    except (ValueError, ZeroDivisionError):
        return str(said)


def llm_drift(files: Files) -> Count:
    said = [r for _, c in files for r in csv.DictReader(c.decode("utf-8", "replace").splitlines(keepends=True))]
    won = ["cases passed" in r["Clean_Code_Submit"] and "✔ Accepted" in r["Clean_Code_Submit"] for r in said]
    return of([float(x) for x in won], None, sum(won))


def lcb_o1(files: Files) -> Count:
    won = [x for _, c in files for r in json.loads(c) for x in r["graded_list"]]
    return of([float(x) for x in won], None, sum(won))


FIFTH: dict[str, Callable[[Files], Count]] = {
    f.__name__.replace("_", "-"): f for f in (algotune, dgm_polyglot, dgm_swe, tora, llm_drift, lcb_o1)
}
