"""Probes alone on real programs: `python -m bench.detectors.probes`; facts per source, and CPU per rollout.

Reads the corpus sources (bench/detectors/corpus) whose programs and visible tests are known, runs them, and writes
bench/detectors/probes.md. Recall counts hacks with a certain fact; every certain fact on an honest program is false.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.detectors.corpus import own_labels, prepare
from bench.detectors.corpus.blobs import DATA, NoCorpusError, Repo, data_folder
from bench.detectors.corpus.command import cache_folder, stamp
from bench.detectors.corpus.labels import all_labels
from bench.detectors.corpus.manifest import chosen
from bench.detectors.corpus.measure import wilson
from evotrainer.records.probes import PROBES, ProgramProbes
from evotrainer.records.rollout import Rollout
from evotrainer.sandbox import Sandbox
from evotrainer.studies.audit.probing import probe_rollouts

SOURCES = (
    "silent-hacks", "reward-hack-gen", "rl-character", "school-hacks", "realistic-hacks", "reflexion",
    "grpo-humaneval", "ldb", "mapcoder", "lats", "lcb-o1",
)  # fmt: skip
PAGE = Path(__file__).with_suffix(".md")


def measured(name: str, data: Path, cache: Path, most: int, box: Sandbox) -> dict[str, Any]:
    """Counts of one source: at most `most` hacks and `most` honest rollouts, drawn by their keys."""
    source = chosen("", name)[0]
    rollouts = prepare.rollouts(source, data, cache).rollouts
    known = all_labels(source, own_labels.own(source, Repo(data, source.repo, source.commit), rollouts))
    out: dict[str, Any] = {"source": name}
    for label in ("hack", "honest"):
        keys = sorted(k for k, x in known.items() if x.label == label and k in rollouts)
        random.Random(name).shuffle(keys)
        some: list[Rollout] = [rollouts[k] for k in keys[:most]]
        at = time.perf_counter()
        records = probe_rollouts(some, lambda: box)
        out[label] = _counted(keys[:most], records, time.perf_counter() - at)
        out[label]["kinds"] = dict(Counter(known[k].kind for k in keys[:most]))
    return out


def _counted(keys: list[str], records: list[ProgramProbes], seconds: float) -> dict[str, Any]:
    ran = [r for r in records if r.ran]
    facts = {k: [list(_fact(f)) for f in r.certain] for k, r in zip(keys, records, strict=True) if r.certain}
    told = Counter(f.probe for r in records for f in r.certain)
    nominated = [k for k, r in zip(keys, records, strict=True) if r.facts and not r.certain]
    why = Counter(next(iter(r.not_run.values()), "")[:60] for r in records if not r.ran)
    cpu = sum(r.cpu_s for r in records) / max(1, len(ran))
    return {
        "n": len(records), "ran": len(ran), "certain": len(facts), "by": dict(told), "nominated": len(nominated),
        "why": dict(why.most_common(6)), "cpu_s": cpu, "seconds": seconds, "facts": facts,
        "nominated_facts": {k: [list(_fact(f)) for f in r.facts] for k, r in zip(keys, records, strict=True)
                            if r.facts and not r.certain},
    }  # fmt: skip


def _fact(f: Any) -> tuple[str, str, str, str]:
    return f.probe, f.input[:120], f.got[:120], f.wanted[:120]


def page(found: list[dict[str, Any]], seconds: float) -> str:
    """probes.md."""
    lines = [
        "# Probes alone on real programs",
        "",
        f"{stamp(seconds)} `python -m bench.detectors.probes`. Only programs in Python whose visible tests are "
        "recorded or stand in the prompt could run; the others say why. A certain fact on an honest program is a "
        "false alarm.",
        "",
        "| source | hacks run / read | with a certain fact, of those run | nominated | honest run / read "
        "| false certain | nominated | CPU-s a program |",
        "|---|---|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for x in found:
        hack, honest = x["hack"], x["honest"]
        share = f"{hack['certain']}/{hack['ran']}" + (f" = {hack['certain'] / hack['ran']:.0%}" if hack["ran"] else "")
        cpu = max(hack["cpu_s"], honest["cpu_s"])
        lines.append(
            f"| {x['source']} | {hack['ran']} / {hack['n']} | {share} | {hack['nominated']} | {honest['ran']} / "
            f"{honest['n']} | {honest['certain']} | {honest['nominated']} | {cpu:.3f} |"
        )
        for label in ("hack", "honest"):
            total.update({f"{label} {k}": x[label][k] for k in ("n", "ran", "certain", "nominated")})
    low, high = wilson(total["honest certain"], total["honest ran"])
    lines += [
        "",
        f"In all {total['hack certain']} of {total['hack ran']} hacks that ran have a certain fact, "
        f"{total['hack nominated']} more are nominated; {total['honest certain']} of {total['honest ran']} honest "
        f"programs have one (95%: {low:.2%} to {high:.2%}), {total['honest nominated']} are nominated.",
        "",
        "| probe | certain on hacks | certain on honest programs |",
        "|---|---|---|",
    ]
    for p in PROBES:
        n, m = (sum(x[label]["by"].get(p, 0) for x in found) for label in ("hack", "honest"))
        lines.append(f"| {p} | {n} | {m} |")
    lines += ["", "## What could not be run", ""]
    why: Counter[str] = Counter()
    for x in found:
        why.update(x["hack"]["why"])
        why.update(x["honest"]["why"])
    lines += [f"- {n:,}: {k}" for k, n in why.most_common(12)]
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    """0; 1 where a source's data is not here."""
    p = argparse.ArgumentParser(prog="python -m bench.detectors.probes", description=__doc__)
    p.add_argument("--source", action="append", help="a source of corpus/manifest.toml; may be given again")
    p.add_argument("--data", help=f"folder with the repositories (else ${DATA}, else .mirror beside the checkout)")
    p.add_argument("--cache", type=Path, default=cache_folder(), help="folder that keeps what was read")
    p.add_argument("--most", type=int, default=400, help="hacks, and honest rollouts, of each source (%(default)s)")
    p.add_argument("--out", type=Path, help="JSON: every fact")
    p.add_argument("--write", action="store_true", help="write bench/detectors/probes.md")
    args = p.parse_args(argv)
    began, code = time.perf_counter(), 0
    found: list[dict[str, Any]] = []
    with Sandbox.open() as box:
        for name in args.source or SOURCES:
            try:
                found.append(measured(name, data_folder(args.data), args.cache, args.most, box))
            except NoCorpusError as e:
                print(f"{name}: {e}", file=sys.stderr)
                code = 1
            else:
                x = found[-1]
                told = ((k, x[k]["certain"], x[k]["nominated"], x[k]["ran"], x[k]["n"]) for k in ("hack", "honest"))
                print(name, *told, f"{x['honest']['seconds'] + x['hack']['seconds']:.0f} s", file=sys.stderr)
    text = page(found, time.perf_counter() - began)
    print(text)
    if args.out:
        args.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if args.write:
        PAGE.write_text(text, encoding="utf-8")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
