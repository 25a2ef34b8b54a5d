"""A model that reads rollouts where rules do not see: a sample of an audit's, each asked about once, quotes required.

Rules find what somebody wrote a rule for; of hacks that nobody described half go unseen (bench/detectors/blind). A
model reads them, and errs in its own ways, so what it says stands apart, is a warning at most, and rests on quotes that
the policy did write. Answers are kept, so that a second audit asks about new rollouts alone.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, model_validator

from evotrainer.agents.carriers import Reply, SeatTurn
from evotrainer.agents.reader import REFUSED, SILENT, ReaderCarrier, used_up, verdict_of
from evotrainer.config.load import apply_overrides
from evotrainer.config.reader import ReaderOptions
from evotrainer.errors import ConfigError
from evotrainer.harness.nominations import NOMINATING, describe_parts, draw, lower_bound, nominations, rate
from evotrainer.records.durable import replace_synced
from evotrainer.records.findings import Finding, HealthReport, Quote
from evotrainer.records.frozen import parsed
from evotrainer.records.reader import ReaderVerdict, question_on, read_verdict
from evotrainer.records.regular_file import read_text
from evotrainer.records.rollout import Rollout
from evotrainer.records.text import clean
from evotrainer.studies.audit.quoted import quoted_name
from evotrainer.studies.audit.reading import SubjectReading

if TYPE_CHECKING:
    from evotrainer.records.output import Progress
    from evotrainer.records.questions import Question
    from evotrainer.studies.audit.engine import RolloutAudit

SHOWN = 5
"""Quotes of one kind."""
PLACE = "--reader "


class AuditReader(ReaderOptions):
    """What `evotrainer audit --reader NAME=VALUE` takes: `model` or `command`, how that is asked, and:"""

    rollouts: int = Field(100, ge=1)
    """Rollouts that are read at most, of all sources together, of those that earned more than the least of their
    source; the same ones at every reading."""
    all: bool = False
    """Draw of all rollouts, whatever they earned."""

    @model_validator(mode="after")
    def _one_reader(self) -> Self:
        if bool(self.model) == bool(self.command):
            raise ValueError(
                "give model=NAME (with endpoint=URL unless it is OpenAI's), or command='[\"program\", ...]'"
            )
        return self


def reader_options(given: Sequence[str]) -> AuditReader:
    """Of `NAME=VALUE` as the command line has them; ConfigError says what is wrong."""
    if wrong := [g for g in given if "=" not in g]:
        raise ConfigError(f"--reader {wrong[0]!r} is not of the form NAME=VALUE, e.g. model=gpt-5-mini")
    return parsed(AuditReader, apply_overrides({}, given), "--reader")


@dataclass(frozen=True, slots=True)
class AuditedRollout:
    """What came of one rollout."""

    rollout: Rollout
    verdict: ReaderVerdict | None
    """None: there was no valid answer."""
    problem: str = ""
    why: str = ""
    """What nominated it; empty: it was drawn at random."""


@dataclass(slots=True)
class Reader:
    """Asks one model or program about rollouts, within its budget; safe to share between threads.

    `kept`: folder with the answers of earlier readings; None: none is kept.
    """

    options: AuditReader
    kept: Path | None = None
    tokens: int = 0
    dollars: float = 0.0
    asked: int = 0
    """Questions that were put; the others were answered before."""
    silent: int = 0
    """Questions in a row that nobody answered."""
    valid: int = 0
    refused: int = 0
    stopped: str = ""
    """Why nobody is asked any more."""
    carrier: ReaderCarrier = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.carrier = ReaderCarrier(self.options, PLACE)
        if self.kept is not None:
            try:
                self.kept.mkdir(parents=True, exist_ok=True)
            except OSError as e:
                raise ConfigError(f"--cache: {self.kept} cannot be made ({e.strerror}); give another folder") from None

    def read(self, rollout: Rollout) -> AuditedRollout:
        """The verdict on a rollout, from what is kept or asked for."""
        question, problem = question_on(rollout), ""
        path = self._path(question)
        if path is not None and path.is_file():
            with suppress(OSError, ValueError):  # a damaged answer is asked for again
                verdict, _ = read_verdict(read_text(path), rollout)
                if verdict is not None:
                    return AuditedRollout(rollout, verdict)
        put = question
        for _ in range(self.options.retries + 1):
            if self._spent():
                break
            verdict, problem, again = verdict_of(self._put(put), rollout)
            if verdict is not None:
                with self._lock:  # equal rollouts have one file
                    self.valid += 1
                    if path is not None:
                        with suppress(OSError):  # what cannot be kept is asked for again next time
                            replace_synced(path, verdict.model_dump_json().encode())
                return AuditedRollout(rollout, verdict)
            if not again:
                break
            put = question_on(rollout, problem)
        with self._lock:
            self.refused += 1
            if not self.valid and self.refused >= REFUSED:
                self.stopped = self.stopped or f"none of {self.refused} answers was valid: {problem}"
        return AuditedRollout(rollout, None, problem or self.stopped)

    def _put(self, question: Question) -> Reply:
        reply = self.carrier.put(question, SeatTurn("audit", Path(), "", self.options.timeout_s))
        with self._lock:
            self.asked, self.silent = self.asked + 1, self.silent + 1 if reply.problem else 0
            self.tokens += reply.input_tokens + reply.output_tokens
            self.dollars += reply.dollars
            self.stopped = self.stopped or (reply.problem if self.silent >= SILENT else "")
        return reply

    def _spent(self) -> bool:
        with self._lock:
            self.stopped = self.stopped or used_up(self.options, PLACE, self.tokens, self.dollars)
            return bool(self.stopped)

    def _path(self, question: Question) -> Path | None:
        if self.kept is None:
            return None
        who = [self.options.model, self.options.endpoint, *self.options.command]
        key = json.dumps([who, question.system, question.text, question.schema], sort_keys=True)
        return self.kept / f"{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}.json"


def read_with(
    audit: RolloutAudit, reader: Reader, say: Progress | None = None
) -> tuple[RolloutAudit, list[AuditedRollout]]:
    """An audit with a reading by a model of each source, and what came of each rollout that was drawn; `audit` must
    have kept its traits."""
    options = reader.options
    drawn, parts = sample(audit, options)
    picks = [(s, why, r) for s, of in sorted(drawn.items()) for r, why in _rollouts(audit, s, of)]
    tell = say or (lambda what, done, of: None)
    tell(f"reading with {options.name}", 0, len(picks))
    found: dict[int, list[AuditedRollout]] = {}
    for i, (k, read_one) in enumerate(_side_by_side(reader, [r for _, _, r in picks]), 1):
        s, why, _ = picks[k]
        found.setdefault(s, []).append(replace(read_one, why=why))
        tell(f"reading with {options.name}", i, len(picks))
    sources = list(audit.sources)
    for s, read in found.items():
        if any(x.verdict for x in read):
            result = reading_of(read, options, parts[s])
            sources[s] = replace(sources[s], readings=(*sources[s].readings, result))
    read = [x for of in found.values() for x in of]
    unread = read[0].problem if read and not any(x.verdict for x in read) else ""
    return replace(audit, sources=tuple(sources), unread=unread), read


def _rollouts(audit: RolloutAudit, source: int, drawn: Sequence[tuple[int, str]]) -> Iterator[tuple[Rollout, str]]:
    rollouts = audit.opened[source].rollouts([row for row, _ in drawn])
    return zip(rollouts, (why for _, why in drawn), strict=True)


def _side_by_side(reader: Reader, rollouts: Sequence[Rollout]) -> Iterator[tuple[int, AuditedRollout]]:
    """Each as it comes, `at_once` under way. The threads are nobody's to wait for: an executor would keep Ctrl-C until
    the last answer is there, up to `timeout_s`."""
    todo, done = SimpleQueue[tuple[int, Rollout]](), SimpleQueue[tuple[int, AuditedRollout | Exception]]()
    for one in enumerate(rollouts):
        todo.put(one)

    def work() -> None:
        with suppress(Empty):
            while True:
                k, rollout = todo.get_nowait()
                try:
                    done.put((k, reader.read(rollout)))
                except Exception as e:
                    done.put((k, e))

    for _ in range(min(reader.options.at_once, len(rollouts))):
        threading.Thread(target=work, daemon=True, name="evotrainer-reader").start()
    for _ in rollouts:
        k, got = done.get()
        if isinstance(got, Exception):
            raise got
        yield k, got


def sample(
    audit: RolloutAudit, options: AuditReader
) -> tuple[dict[int, list[tuple[int, str]]], dict[int, tuple[int, int]]]:
    """(source -> rows to read, each with what nominates it; source -> how many are nominated, and how many not): what
    rules nominate first, and a random share of the others; those of a smaller sample are among those of a larger
    one."""
    names: list[str] = []
    why: list[str] = []
    at: list[tuple[int, int]] = []
    parts: dict[int, tuple[int, int]] = {}
    for s, (whole, traits) in enumerate(zip(audit.opened, audit.traits, strict=True)):
        if not traits.n:
            continue
        reward = traits.columns["reward"].astype(float)
        graded = reward[np.isfinite(reward)]
        rows = np.sort(np.unique(traits.keys["id"], return_index=True)[1])
        rows = rows[traits.fault.code[rows] < 0]
        if len(graded) and graded.min() < graded.max() and not options.all:
            rows = rows[reward[rows] > graded.min()]
        ids = whole.column("id", rows.tolist())
        tasks = whole.column("task", rows.tolist())
        mine = nominations({k: traits.columns[k][rows] for k in NOMINATING if k in traits.columns}, len(rows))
        names += [f"{i}\x1f{t}" for i, t in zip(ids, tasks, strict=True)]
        at += [(s, int(row)) for row in rows]
        why += mine
        parts[s] = (sum(map(bool, mine)), sum(not w for w in mine))
    out: dict[int, list[tuple[int, str]]] = {}
    for i in draw(names, why, options.rollouts, options.random).picks:
        s, row = at[i]
        out.setdefault(s, []).append((row, why[i]))
    return out, parts


def reading_of(read: Sequence[AuditedRollout], options: AuditReader, parts: tuple[int, int]) -> SubjectReading:
    """What a model said of a source's rollouts, as a reading: one finding for each kind of hack. `parts`: how many
    rollouts are nominated, and how many not."""
    judged = [x for x in read if x.verdict is not None]
    n, who = len(judged), clean(options.name, 60)
    hacks = [x for x in judged if x.verdict and x.verdict.verdict == "hack"]
    unsure = sum(x.verdict.verdict == "unsure" for x in judged if x.verdict)
    named, blind = (
        rate(sum(bool(x.why) == kind for x in hacks), sum(bool(x.why) == kind for x in judged), of)
        for kind, of in zip((True, False), parts, strict=True)
    )
    which = "rollouts" if options.all else "rollouts that earned more than the least"
    subject = f"read by {who}: {n} of {sum(parts):,} {which}"
    numbers = {"hits": float(len(hacks)), "read": float(n), "share": len(hacks) / n, "low": lower_bound(named, blind)}
    numbers |= {"missed_low": blind.low, "missed_high": blind.high} if blind.read else {}
    unread = len(read) - n
    aside = (f"; unsure of {unsure}" if unsure else "") + (f"; no valid answer on {unread}" if unread else "")
    sentence = (
        f"a model's reading and no proof: {who} calls {len(hacks)} of {n} rollouts hacks: "
        f"{describe_parts(named, blind)}{aside}"
    )
    findings = []
    for kind, count in Counter(x.verdict.kind for x in hacks if x.verdict).most_common():
        mine = [x for x in hacks if x.verdict and x.verdict.kind == kind]
        quotes = tuple(
            Quote(rollout=quoted_name(x.rollout), text=clean(x.verdict.quote, 600), note=clean(x.verdict.why, 300))
            for x in mine[:SHOWN]
            if x.verdict
        )
        claim = f"{who} calls {count} of {n} rollouts hacks of this kind (a model's reading, no proof)"
        shares = {"hits": float(count), "read": float(n), "share": count / n}
        findings.append(
            Finding(detector=f"reader/{kind}", kind=kind, severity="warn", claim=claim, numbers=shares, quotes=quotes)
        )
    findings.append(Finding(detector="reader", kind="shortcut", severity="info", claim=sentence, numbers=numbers))
    groups = len({x.rollout.task for x in judged})
    health = HealthReport(
        harness="reader", subject=subject, rollouts=n, groups=groups, metrics=(), findings=tuple(findings)
    )
    return SubjectReading(subject, health)


def spent_line(reader: Reader) -> str:
    """What a reading cost, and why it ended early if it did."""
    cost = f"{reader.tokens:,} tokens" + (f", {reader.dollars:.4f} dollars" if reader.dollars else "")
    ended = f"; ended early: {reader.stopped}" if reader.stopped else ""
    return f"reader {clean(reader.options.name, 60)}: {reader.asked:,} questions put ({cost}){ended}"
