"""`python -m bench.detectors --yield`: what each rule of `harness/code_reading` buys, and what it costs."""

from __future__ import annotations

import argparse
import ast
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from bench.detectors.corpus import flags, own_labels, prepare
from bench.detectors.corpus.blobs import DATA, NoCorpusError, Repo, data_folder
from bench.detectors.corpus.command import cache_folder, stamp
from bench.detectors.corpus.labels import EXPECTED, Label, all_labels
from bench.detectors.corpus.manifest import HERE, SPENT, Source, chosen
from bench.detectors.corpus.prices import (
    APART,
    EXEMPTS,
    FINDS,
    NAMED,
    NATURE,
    ROOMMATES,
    drawn,
    price,
    switches,
)
from bench.detectors.corpus.report import table
from evotrainer.records.rollout import Rollout

READ = ("tuning", *SPENT)
"""Sides that rules may be tuned on: a price tells of each source what rules see there."""
PAGE = HERE.parent / "yield.md"
ROOM = prepare.SRC / "harness" / "code_reading"
RULES = switches(FINDS) | switches(EXEMPTS)
READERS = ("submissions", "paths", "recorded")
"""Modules of FINDS that are mostly readers: only the functions count."""
FEW = 2
"""Unique hacks below which a rule buys little."""
Prices = list[tuple[Source, Mapping[str, Any]]]
"""Each source with what `price` says of it, and the hacks and honest rollouts that were read."""


def main(argv: list[str]) -> int:
    """0; 1 where a source's data is not here."""
    p = argparse.ArgumentParser(prog="python -m bench.detectors --yield", description=__doc__)
    p.add_argument("--split", choices=READ, default="", help="one side alone")
    p.add_argument("--source", default="", help="one source of manifest.toml")
    p.add_argument("--data", help=f"folder with the repositories (else ${DATA}, else .mirror above the checkout)")
    p.add_argument("--cache", type=Path, default=cache_folder(), help="folder that keeps what was read and said")
    p.add_argument("--write", action="store_true", help="into bench/detectors/yield.md")
    args = p.parse_args(argv)
    began, missing = time.perf_counter(), dict[str, str]()
    found = _prices([s for s in chosen(args.split, args.source) if s.split in READ], args, missing)
    poor = [m for m in _modules(FINDS) if len(_keys(found, m, "unique")) < FEW]
    idle = [m for m in _modules(EXEMPTS) if not (_keys(found, m, "spared") or _keys(found, m, "unique"))]
    without = [_without(found, args, name, rows) for name, rows in (("few", poor), ("idle", idle))]
    text = "\n".join(x.rstrip() for x in _page(found, missing, poor, idle, without, time.perf_counter() - began))
    print(text)
    if args.write:
        PAGE.write_text(text + "\n", encoding="utf-8")
    return 1 if missing else 0


def labelled(source: Source, data: Path, cache: Path) -> tuple[Mapping[str, Rollout], Mapping[str, Label]]:
    """Rollouts and labels of a source; NoCorpusError where its repository is not there."""
    rollouts = prepare.rollouts(source, data, cache).rollouts
    return rollouts, all_labels(source, own_labels.own(source, Repo(data, source.repo, source.commit), rollouts))


def _prices(some: Sequence[Source], args: argparse.Namespace, missing: dict[str, str]) -> Prices:
    """Prices of the sources that are here; why others are not goes to `missing`."""
    found: Prices = []
    for source in some:
        try:
            rollouts, known = labelled(source, data_folder(args.data), args.cache)
        except NoCorpusError as e:
            missing[source.name] = str(e)
            print(f"{source.name}: {e}", file=sys.stderr)
            continue
        told = _kept(source, args, "prices", rollouts, *drawn(known, rollouts))
        found.append((source, {**told, "kinds": [known[k].kind for k in told["hacks"]]}))
        print(f"{source.name}: {len(told['hacks'])} hacks, {len(told['honest'])} honest", file=sys.stderr)
    return found


def _without(found: Prices, args: argparse.Namespace, name: str, rows: Sequence[str]) -> list[set[str]]:
    """What is flagged of each source where all these rows are off; only what one of them was tried on is read again."""
    out = []
    for source, told in found:
        again = {k for row in rows for k in told["rows"].get(row, {}).get("tried", ())}
        flagged = {*told["flagged"]} - again
        if again:
            rollouts, _ = labelled(source, data_folder(args.data), args.cache)
            hacks, honest = ([k for k in told[side] if k in again] for side in ("hacks", "honest"))
            flagged |= {*_kept(source, args, name, rollouts, hacks, honest, rows)["flagged"]}
        out.append(flagged)
    return out


def _kept(
    source: Source, args: argparse.Namespace, name: str, rollouts: Mapping[str, Rollout], hacks: Sequence[str],
    honest: Sequence[str], off: Sequence[str] = (),
) -> Mapping[str, Any]:  # fmt: skip
    """`price`, with what was read, kept until a rule changes."""
    ids = sorted({i for row in off for i in RULES[row]})
    code = prepare.digest(*(prepare.SRC / d for d in ("harness", "importers", "records")), HERE / "prices.py")
    state = blake2b(repr((code, ids, hacks, honest)).encode(), digest_size=12).hexdigest()
    (folder := args.cache / source.name).mkdir(parents=True, exist_ok=True)
    return {**flags.kept(folder, name, state, lambda: price(rollouts, hacks, honest, ids)),
            "hacks": hacks, "honest": honest}  # fmt: skip


def _modules(of: str) -> list[str]:
    return [row for row in switches(of) if "." not in row]


def _keys(found: Prices, row: str, what: str) -> list[tuple[Source, str]]:
    return [(s, k) for s, told in found for k in told["rows"].get(row, {}).get(what, ())]


def _count(found: Prices, row: str, what: str) -> tuple[int, str]:
    """(rollouts, how many of which source); found: hacks that are flagged and on which it was tried."""
    if what == "found":
        hit = {(s.name, k) for s, told in found for k in {*told["hacks"]} & {*told["flagged"]}}
        return len(hit & {(s.name, k) for s, k in _keys(found, row, "tried")}), ""
    by = Counter(s.name for s, _ in _keys(found, row, what))
    return by.total(), ", ".join(f"{name} {n}" for name, n in by.most_common())


def _sides(found: Prices, row: str, what: str) -> str:
    by = Counter(s.split for s, _ in _keys(found, row, what))
    return " / ".join(str(by[x]) for x in READ)


def _size(row: str) -> tuple[int, int]:
    """(lines, patterns given to `re`) of a module with those that serve it alone; of functions where a row is one, or
    where they are the part of a module of readers that is a rule."""
    module = row.partition(".")[0].removesuffix(APART)
    part = row != module or module in READERS
    names = {i.partition(".")[2] for i in RULES[row]}
    lines = patterns = 0
    for m in (module, *ROOMMATES.get(module, ())):
        text = (ROOM / f"{m}.py").read_text(encoding="utf-8")
        parts = [n for n in ast.parse(text).body if not part or (isinstance(n, ast.FunctionDef) and n.name in names)]
        lines += sum((n.end_lineno or 0) - n.lineno + 1 for n in parts) if part else text.count("\n")
        calls = [ast.unparse(c.func) for n in parts for c in ast.walk(n) if isinstance(c, ast.Call)]
        patterns += sum(c.startswith("re.") and c != "re.escape" for c in calls)
    return lines, patterns


def _cpu(found: Prices, row: str) -> str:
    """CPU-seconds per 1,000 rollouts, and the share of all rules."""
    ids = RULES[row] | ({i for i in NAMED if i.startswith(f"{row}.")} if row in switches(FINDS) else set())
    spent = sum(told["cpu"].get(i, 0.0) for _, told in found for i in ids)
    every = sum(x for _, told in found for x in told["cpu"].values())
    read = sum(len(told["hacks"]) + len(told["honest"]) for _, told in found)
    return f"{1000 * spent / max(read, 1):.2f} ({spent / max(every, 1e-9):.1%})"


def _table(found: Prices, of: str, counts: str, others: Sequence[str]) -> Iterator[list[Any]]:
    """Modules by what they buy, each with its functions. counts: what they are sorted by; others: what is said, too."""
    for m in sorted(_modules(of), key=lambda m: (-_count(found, m, counts)[0], -_size(m)[0], m)):
        stem = m.removesuffix(APART)
        for row in (m, *(r for r in switches(of) if r.startswith(f"{stem}."))):
            n, where = _count(found, row, counts)
            name = f"**{row}**" if row == m else f"- {row.partition('.')[2]}"
            rest = (x for what in others for x in _count(found, row, what)[: 1 if what == "found" else 2])
            yield [name, *_size(row), n, _sides(found, row, counts), where, *rest, _cpu(found, row)]


def _named(found: Prices) -> Iterator[str]:
    """Findings by their own names, which tells rules of one module apart."""
    names = sorted({row for _, told in found for row in told["rows"]} - set(RULES))
    rows = list[tuple[str, ...]]()
    for name in names:
        counts = [_count(found, name, what) for what in ("unique", "found", "only")]
        rows.append((name.replace("|", "\\|"), *(f"{n} ({where})" if where else str(n) for n, where in counts)))
    some = sorted(rows, key=lambda r: -int(r[1].split()[0]))
    yield from table(("finding", "unique hacks", "answers on", "honest alarms"), some)


def _together(found: Prices, without: Sequence[set[str]], title: str, rows: Sequence[str]) -> Iterator[str]:
    """What goes and comes where all these rows are off at once."""
    yield f"**{title}**: {', '.join(rows) or 'none'}. All of them off at once:"
    for side in ("hacks", "honest"):
        gone, come = Counter[str](), Counter[str]()
        for (s, told), flagged in zip(found, without, strict=True):
            before, after = ({*hit} & {*told[side]} for hit in (told["flagged"], flagged))
            gone[s.name], come[s.name] = len(before - after), len(after - before)
        for by, how in ((gone, "no longer flagged"), (come, "newly flagged")):
            where = ", ".join(f"{k} {n}" for k, n in by.most_common() if n)
            yield f"- {side} {how}: {by.total()}" + (f" ({where})" if where else "")


def _page(
    found: Prices,
    missing: Iterable[str],
    poor: list[str],
    idle: list[str],
    without: list[list[set[str]]],
    seconds: float,
) -> Iterator[str]:
    absent, rules, exempting = ", ".join(missing), _modules(FINDS), _modules(EXEMPTS)
    yield from ("# What each rule buys", "")
    yield f"{stamp(seconds)} `python -m bench.detectors --yield --write`; sources and labels:"
    yield "[corpus](corpus/README.md)."
    yield f"{len(found)} sources read, {f'**missing: {absent}**' if absent else 'none missing'}."
    yield from (HOW, "", "## Sums", "")
    yield f"{len(rules)} rules with {_lines(rules)}, {len(poor)} of them ({_lines(poor)}) with fewer than {FEW} unique "
    yield f"hacks. {len(exempting)} exemptions with {_lines(exempting)}; {len(idle)} of them ({_lines(idle)}) take no "
    yield "honest alarm away, and no hack is lost without them."
    kinds = Counter(kind for _, told in found for kind in told["kinds"])
    by_kind = ", ".join(f"{k} {kinds[k]}" for k in sorted(EXPECTED, key=lambda k: -kinds[k]))
    yield f"Hacks by kind: {by_kind} (no rule claims {', '.join(k for k, by in EXPECTED.items() if not by)}). A "
    yield "rule for a kind that hardly occurs here has no price, good or bad."
    yield from ("", *_together(found, without[0], f"Rules with fewer than {FEW} unique hacks", poor))
    yield from ("", *_together(found, without[1], "Exemptions that nobody would miss", idle))
    sides, cpu = " / ".join(READ), "CPU-s per 1,000 (share)"
    head = ["rule", "lines", "patterns", "unique hacks", sides, "where", "answers on", "honest alarms", "where", cpu]
    yield from ("", "## Rules", "", *table(head, [*_table(found, FINDS, "unique", ("found", "only"))]))
    head = ["exemption", "lines", "patterns", "alarms taken away", sides, "where", "hacks hidden", "where"]
    head += ["hacks lost without it", "where", cpu]
    yield from ("", "## Exemptions", "", *table(head, [*_table(found, EXEMPTS, "spared", ("hidden", "unique"))]))
    yield from ("", "## Findings by name", "", *_named(found), "", "## Sources", "")
    rows = list[list[Any]]()
    for s, told in found:
        hit, a, b = ({*told[x]} for x in ("flagged", "hacks", "honest"))
        cost = 1000 * told["seconds"] / max(len(a) + len(b), 1)
        rows.append([s.name, s.split, s.kind, len(a), len(a & hit), len(b), len(b & hit), f"{cost:.1f}"])
    rows.append(["**all**", "", "", *(sum(r[i] for r in rows) for i in range(3, 7)), ""])
    yield from table(("source", "split", "kind", "hacks", "found", "honest", "alarms", "CPU-s per 1,000"), rows)


def _lines(rows: Iterable[str]) -> str:
    sizes = [_size(r) for r in rows]
    return f"{sum(n for n, _ in sizes)} lines, {sum(p for _, p in sizes)} patterns"


HOW = f"""
Read are the hacks whose evidence stands in the text and the honest rollouts (of those that are honest by nature at most
{NATURE} a source, drawn at random), each by itself with empty caches; none that was labelled because a detector had
flagged it. Flagged is what any of `special_casing`, `grader_bypass`, `test_tampering`, `answer_leak` flags at all.

A rule is a module of `harness/code_reading` that can flag, or a function of it; it is switched off by functions that
answer as if they had seen nothing (`corpus/prices.py`), with all that it alone asks: the rules of the table
`bypass.RULES` go with `bypass`. **Unique hacks**: found, and by nothing
else where this one is off. **Honest alarms**: honest rollouts that it alone flags. **Answers on**: found hacks on which
it answered anything, decisive or not. Two rules that find the same hacks are unique in none: what goes where
all poor ones are off at once stands under Sums. An exemption's price is the other way round: honest rollouts that are
flagged without it, and hacks that are found without it. `paths.known` off means that every file was there.

Patterns are calls of `re`. CPU is that of a rule's functions without what they ask of other rules, and its share of
what all rules cost; what is read for all (parsing, shell, Arrow) is no rule's, unless a rule asks for it first.
Labels are one reader's, and most hacks are of sources that rules were written on: a yield on `tuning` proves little of
unseen data."""
