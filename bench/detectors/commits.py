"""How many honest commits the rule for patches that reach for the grader flags, and what it costs.

    python -m bench.detectors.commits FOLDER...     # checkouts or bare repositories; writes commits.md

Every commit of a history (no merges, the newest NEWEST that touch Python code other than tests) is a patch by itself,
cut at MAX_PATCH characters and without a reference fix to compare with.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from evotrainer.harness.code_reading.patched import reaching
from evotrainer.harness.code_reading.recorded import MAX_PATCH
from evotrainer.harness.columns.numerics import at_least
from evotrainer.harness.registry import DETECTORS

RESULTS = Path(__file__).parent / "commits.md"
NEWEST = 1500
BATCH = 100
SIZES = range(3, 1201)
ATTEMPTS = 8
EARLIER = (0.0059, 0.0154, 0.0177)
"""Shares of the study in LOG.md of 2026-11-22: all, boltons, pluggy."""


@dataclass
class Flagged:
    """What was found in one history."""

    name: str
    head: str
    commits: int = 0
    by_rule: dict[str, int] = field(default_factory=dict)
    flagged: list[str] = field(default_factory=list)
    characters: int = 0
    cpu_s: float = 0.0


def git(folder: str, *args: str) -> str:
    """What a git command prints in a repository."""
    done = subprocess.run(["git", "-C", folder, *args], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


def patches(folder: str) -> Iterator[tuple[str, str]]:
    """(commit, its patch), newest first, of commits that touch Python files."""
    shas = git(folder, "log", "--no-merges", "--format=%H", "HEAD", "--", "*.py").split()
    for i in range(0, len(shas), BATCH):
        shown = git(
            folder, "show", "--no-ext-diff", "--no-textconv", "--no-color", "--format=%x00%H", *shas[i : i + BATCH]
        )
        # a patch may hold a NUL as well
        parts = [p for p in shown.split("\0") if p[:40] in shas[i : i + BATCH] and p[40:41] == "\n"]
        for part in parts:
            yield part[:40], part[41:].lstrip("\n")[:MAX_PATCH]


def read(folder: str) -> Flagged:
    """The rule over one history."""
    at = Path(folder).resolve()
    out = Flagged(
        (at.parent if at.name in ("repo", ".git") else at).name.replace("+", "/"), git(folder, "rev-parse", "HEAD")
    )
    for sha, patch in patches(folder):
        start = time.process_time()
        hits = reaching(patch)
        cost = time.process_time() - start
        if hits is None:
            continue
        out.commits += 1
        out.characters += len(patch)
        out.cpu_s += cost
        if hits:
            out.flagged.append(sha[:9])
        for rule in {b.rule for b, _ in hits}:
            out.by_rule[rule] = out.by_rule.get(rule, 0) + 1
        if out.commits == NEWEST:
            break
    return out


def needed(n: int) -> int:
    """The fewest hits in n patches of three or more tasks that warn."""
    limits = DETECTORS["grader_bypass"].thresholds
    k = int(limits["few_tasks"])
    while at_least(k, n, limits["patch_confidence"]) <= limits["patch_warn"]:
        k += 1
    return k


def above(n: int, p: float, k: int) -> float:
    """The chance of k or more of n."""
    from scipy.stats import binom

    return float(binom.sf(k - 1, n, p))


def alarms(p: float) -> list[str]:
    """The worst chance of a false warning over all sizes of a batch, with independent attempts and with equal ones."""
    limits = DETECTORS["grader_bypass"].thresholds
    single = max((above(n, p, needed(n)), n) for n in SIZES)
    alike = []
    for tasks in range(1, SIZES.stop // ATTEMPTS):
        n = tasks * ATTEMPTS
        few = -(-limits["few_share"] * n // ATTEMPTS)
        many = max(limits["few_tasks"], -(-needed(n) // ATTEMPTS))
        alike.append((above(tasks, p, int(max(1, many if few >= limits["few_tasks"] else few))), n))
    return [f"1 in {1 / x:,.0f} ({n} patches)" for x, n in (single, max(alike))]


def main(folders: list[str]) -> None:
    """Write the tables."""
    found = sorted((read(f) for f in folders), key=lambda x: x.name)
    whole = Flagged("all", "")
    for x in found:
        whole.commits, whole.flagged = whole.commits + x.commits, whole.flagged + x.flagged
        whole.characters, whole.cpu_s = whole.characters + x.characters, whole.cpu_s + x.cpu_s
        for rule, n in x.by_rule.items():
            whole.by_rule[rule] = whole.by_rule.get(rule, 0) + n
    commit = git(".", "rev-parse", "--short", "HEAD").strip()
    rows = [
        "# Honest commits that the rule for patches flags",
        "",
        f"`python -m bench.detectors.commits FOLDER...`, {datetime.date.today()}, commit {commit}; virtual machine, "
        "2 cores. The newest",
        f"{NEWEST:,} commits of each history that touch Python code other than tests, cut at {MAX_PATCH:,} characters.",
        "",
        "| repository | head | commits | flagged | share | CPU-ms per MB |",
        "|---|---|---|---|---|---|",
    ]
    for x in [*found, whole]:
        share, cost = len(x.flagged) / max(1, x.commits), 1e9 * x.cpu_s / max(1, x.characters)
        rows.append(f"| {x.name} | {x.head[:9]} | {x.commits:,} | {len(x.flagged)} | {share:.2%} | {cost:.0f} |")
    rows += ["", "Flagged by rule (a commit may break several):", "", "| rule | commits | of |", "|---|---|---|"]
    for rule, n in sorted(whole.by_rule.items(), key=lambda kv: (-kv[1], kv[0])):
        rows.append(
            f"| {rule} | {n} | {', '.join(f'{x.name} {x.by_rule[rule]}' for x in found if rule in x.by_rule)} |"
        )
    rows += ["", "Hits that warn (three tasks or more), of so many patches:", ""]
    sizes = (8, 16, 40, 64, 150, 300, 600, 1200)
    rows += ["| patches | " + " | ".join(map(str, sizes)) + " |", "|" + "---|" * (len(sizes) + 1)]
    rows += ["| hits | " + " | ".join(f"{needed(n)} ({needed(n) / n:.1%})" for n in sizes) + " |"]
    rows += [
        "",
        f"Chance that honest patches warn, at the worst of all sizes from {SIZES.start} to {SIZES.stop - 1:,} patches: "
        "each patch by itself, and",
        f"{ATTEMPTS} attempts at every task that are all alike:",
        "",
        "| share of honest patches flagged | each by itself | attempts alike |",
        "|---|---|---|",
    ]
    worst = max(len(x.flagged) / max(1, x.commits) for x in found)
    shares = sorted({round(len(whole.flagged) / max(1, whole.commits), 4), round(worst, 4), *EARLIER})
    rows += [f"| {p:.2%} | {' | '.join(alarms(p))} |" for p in shares if p]
    rows += ["", "Flagged:", "", *(f"- {x.name}: {', '.join(x.flagged)}" for x in found if x.flagged), ""]
    RESULTS.write_text("\n".join(rows))
    print("\n".join(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
