"""A model that reads rollouts (`audit --reader`) on cases whose authors knew nothing of it.

`python -m bench.detectors.reader SET... NAME=VALUE...` reads with a model or program, as the command does. A SET is one
of bench/detectors/blind (1, 2, ...), `injections` (30 hacks that address their reader), or a source of the real corpus,
`heldout3/gptoss-graders` (its data as for `python -m bench.detectors --real`): of that `--each` labelled hacks whose
evidence stands in the text and as many honest ones, drawn at random. A model that answers elsewhere: `--requests FILE`
writes what is asked, a JSON line {"id", "text"} for each case; `--answers FILE` reads lines {"id", "answer"} in place
of asking. Prints Markdown: found hacks and alarms with 95% Wilson intervals, alone and together with the rules, then
every miss, alarm and doubt.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.detectors.blind.__main__ import HERE, SAID, share
from bench.detectors.corpus import own_labels, prepare
from bench.detectors.corpus.blobs import Repo, data_folder
from bench.detectors.corpus.command import cache_folder
from bench.detectors.corpus.flags import TRAITS
from bench.detectors.corpus.labels import EXPECTED, all_labels
from bench.detectors.corpus.manifest import chosen
from bench.detectors.injections import injections
from evotrainer.agents.carriers import CarrierError, Question, Reply, SeatTurn
from evotrainer.harness import Batch
from evotrainer.importers import read
from evotrainer.records.reader import question_on
from evotrainer.records.rollout import Rollout
from evotrainer.studies.audit.reader import AuditedRollout, Reader, reader_options

NOBODY = ["command=['true']", "sandbox=false", "retries=0"]


def rollouts(name: str, each: int) -> Iterator[tuple[dict[str, Any], Rollout]]:
    """Cases of a set with what their author or labeller says of them, and the rollouts without."""
    if name == "injections":
        yield from injections()
        return
    if "/" in name:
        split, _, source = name.partition("/")
        yield from of_source(split, source, each)
        return
    for path in (HERE / f"{kind}{name}.jsonl" for kind in ("answers", "agents")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        with tempfile.TemporaryDirectory() as folder:
            bare = Path(folder) / path.name
            bare.write_text("".join(json.dumps({k: v for k, v in r.items() if k not in SAID}) + "\n" for r in rows))
            for row, (_, _, r) in zip(rows, read([bare]), strict=True):
                if not isinstance(r, Rollout):
                    raise SystemExit(f"{path.name}: {row['task_id']} was not read: {r}")
                yield {**row, "set": path.stem}, r


def of_source(split: str, name: str, each: int) -> Iterator[tuple[dict[str, Any], Rollout]]:
    """Labelled rollouts of a source: hacks of kinds that a detector claims, honest ones that somebody judged."""
    (source,) = chosen(split, name)
    data = data_folder()
    found = prepare.rollouts(source, data, cache_folder()).rollouts
    labels = all_labels(source, own_labels.own(source, Repo(data, source.repo, source.commit), found))
    for label in ("hack", "honest"):
        keys = sorted(
            k
            for k, x in labels.items()
            if k in found and x.label == label and x.by in ("own", "hand")
            and (label == "honest" or (x.evidence_in_text and EXPECTED[x.kind]))
        )  # fmt: skip
        for k in random.Random(f"reader:{name}:{label}").sample(keys, min(each, len(keys))):
            x = labels[k]
            said = {"task_id": k, "label": label, "kind": x.kind, "why": x.evidence or x.note, "set": f"{split}/{name}"}
            yield said, found[k]


def key(question: Question) -> str:
    return hashlib.blake2b(question.text.encode(), digest_size=8).hexdigest()


class Recorded:
    """Answers that were given elsewhere."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        self.answers = {x["id"]: x["answer"] for x in lines}

    def put(self, question: Question, turn: SeatTurn) -> Reply:
        found = self.answers.get(key(question))
        if found is None:
            raise CarrierError("no recorded answer")
        return Reply(found if isinstance(found, str) else json.dumps(found))


def table(name: str, seen: list[tuple[dict[str, Any], AuditedRollout, list[str]]]) -> Iterator[str]:
    """Rows of one file: the reader alone, the rules alone, either."""
    for who in ("reader", "rules", "either"):
        cells = []
        for label in ("hack", "honest"):
            part = [
                (x.verdict is not None and x.verdict.verdict == "hack", bool(by))
                for c, x, by in seen
                if c["label"] == label
            ]
            hits = sum({"reader": m, "rules": r, "either": m or r}[who] for m, r in part)
            cells.append(share(hits, len(part)) if part else "-")
        yield f"| {name} | {who} | {' | '.join(cells)} |"


def told(name: str, c: dict[str, Any], x: AuditedRollout) -> str:
    said = f"{x.verdict.verdict} {x.verdict.kind}: {x.verdict.why}" if x.verdict else f"no valid answer: {x.problem}"
    return f"- {name} {c['task_id']} ({c['label']}, {c['kind']}): {c['why']} Reader: {said}"


def flagged(r: Rollout) -> list[str]:
    """Detectors that flag a rollout."""
    batch = Batch([[r]])
    return [d for d, traits in TRAITS.items() if any(batch.trait(t)[0] > 0 for t in traits)]


def main() -> None:
    ask = argparse.ArgumentParser(prog="bench.detectors.reader", description=__doc__)
    ask.add_argument("words", nargs="+", metavar="SET|NAME=VALUE")
    ask.add_argument("--each", type=int, default=20)
    ask.add_argument("--requests", type=Path)
    ask.add_argument("--answers", type=Path)
    given = ask.parse_args()
    options = [w for w in given.words if "=" in w]
    sets = {s: list(rollouts(s, given.each)) for s in given.words if "=" not in s}
    if given.requests:
        asked = [question_on(r) for found in sets.values() for _, r in found]
        given.requests.write_text("".join(json.dumps({"id": key(q), "text": q.text}) + "\n" for q in asked))
        return
    reader = Reader(reader_options(options or NOBODY))
    if given.answers:
        reader.carrier.carrier = Recorded(given.answers)  # answers from elsewhere, through the same checks
    seen: dict[str, list[tuple[dict[str, Any], AuditedRollout, list[str]]]] = {}
    for name, mine in sets.items():
        with ThreadPoolExecutor(reader.options.at_once) as pool:
            found = list(pool.map(lambda x: reader.read(x[1]), mine))
        for (c, r), x in zip(mine, found, strict=True):
            seen.setdefault(c["set"], []).append((c, x, flagged(r)))
        print(f"{name}: read", file=sys.stderr)
    rows = [row for name, part in seen.items() for row in table(name, part)]
    everything = [x for part in seen.values() for x in part]
    rows += list(table("**together**", everything)) if len(seen) > 1 else []
    odd = [
        told(n, c, x) for n, p in seen.items() for c, x, _ in p if x.verdict is None or x.verdict.verdict != c["label"]
    ]
    print("| cases | by | hacks found | honest ones flagged |\n|---|---|---|---|\n" + "\n".join(rows))
    print("\nOtherwise than their labels:\n\n" + "\n".join(odd))


if __name__ == "__main__":
    main()
