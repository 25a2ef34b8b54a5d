"""Inspect logs: `.eval` (a zip of JSON members) and the older form of one JSON file.

Read with zipfile, json and pyarrow (Zstandard), not with the `inspect_ai` package: that brings dozens of dependencies,
validates a log as a whole (one sample of an unforeseen shape and none is had), and half-written logs of killed runs are
just what an audit is given. The layout read here has been stable since 2024: `header.json` (`_journal/start.json` while
a run is under way), `samples/<id>_epoch_<n>.json`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from evotrainer.errors import StoreError
from evotrainer.importers import chat
from evotrainer.importers.base import Fault, LogFormat, Skipped, Source
from evotrainer.importers.common import (
    attempt,
    ident,
    kind_of,
    last_line,
    listing,
    mapping,
    plain,
    short,
    verdict,
    whole_number,
    word,
)
from evotrainer.importers.faults import Silence, silence
from evotrainer.importers.lenient_json import number, parse, read_json, text
from evotrainer.importers.zipped import Archive
from evotrainer.records import asserts
from evotrainer.records.rollout import Finish, Rollout

ZIP = b"PK\x03\x04"
GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Inspect's letters: correct, incorrect, partially correct, no answer."""
WORDS = {"yes": 1.0, "true": 1.0, "correct": 1.0, "no": 0.0, "false": 0.0, "incorrect": 0.0}
LENGTHS = {"token", "context"}
"""Kinds of sample limit that are about length;
message, turn, time, cost and the rest end the attempt like a turn limit."""
MAX_CALLS = 200
"""Sandbox calls of a sample kept in `detail`."""
UNPARSED = "grade not found in model output"
"""How Inspect's own model-graded scorers explain a reply in which they found no grade; they score it incorrect."""
_ATTACHED = re.compile(r"attachment://([0-9a-zA-Z]+)")


class Inspect(LogFormat):
    """Samples of an Inspect log."""

    name = "inspect"
    about = "Inspect .eval and .json logs: samples with messages, tool calls, scores, errors, limits, sandbox events"
    asked = 10
    own_ids = True

    def recognises(self, source: Source) -> bool:
        if source.head.startswith(ZIP):
            return source.suffix.endswith(".eval") or b"_journal/start.json" in source.head
        first = source.first
        return isinstance(first, dict) and isinstance(first.get("eval"), dict) and "task" in first["eval"]

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        try:
            zipped = path.suffix.lower() == ".eval" or Source(path).head.startswith(ZIP)
            yield from self._zip(path) if zipped else self._json(path)
        except ValueError as e:
            yield Skipped(path.name, str(e))
        except OSError as e:
            raise StoreError(f"cannot read {path}: {e.strerror}; check the path and its permissions") from e

    def _json(self, path: Path) -> Iterator[Rollout | Skipped]:
        log = read_json(path)
        if not isinstance(log, dict):
            raise ValueError("no Inspect log: the JSON value is not an object")
        samples = listing(log.get("samples"))
        for n, sample in enumerate(samples):
            place = f"samples[{n}]"
            yield attempt(f"{path.name}:{place}", partial(rollout, path, place, log, sample))
        yield from _missing(path, log, [_key(s) for s in samples])

    def _zip(self, path: Path) -> Iterator[Rollout | Skipped]:
        archive = Archive(path)
        try:
            members = archive.members
            log: dict[str, Any] = {}
            # the header last: it is written when the run ends, and overrules what was known at the start
            for name in ("_journal/start.json", "header.json"):
                for info in (i for i in members if i.filename == name):
                    try:
                        log = mapping(parse(archive.read(info))) or log
                    except ValueError as e:
                        yield Skipped(f"{path.name}:{name}", str(e))
            samples = [i for i in members if i.filename.startswith("samples/") and i.filename.endswith(".json")]
            if not log and not samples:
                raise ValueError("no Inspect log: neither a header nor samples inside")
            # zip files are appended to: a retried sample has two members of one name, and the last is valid
            left = Counter(i.filename for i in samples)
            seen: list[tuple[str, int]] = []
            for info in samples:
                left[info.filename] -= 1
                where = f"{path.name}:{info.filename}"
                if left[info.filename]:
                    yield Skipped(where, "an earlier write of a sample that the log holds again further on")
                    continue
                try:
                    sample = parse(archive.read(info))
                except ValueError as e:
                    yield Skipped(where, str(e))
                    seen.append(_named(info.filename))
                    continue
                seen.append(_key(sample) if _key(sample)[0] else _named(info.filename))
                yield attempt(where, lambda s=sample, p=info.filename: rollout(path, p, log, s))  # type: ignore[misc]
            yield from _missing(path, log, seen)
        finally:
            archive.close()


def rollout(path: Path, place: str, log: dict[str, Any], sample: Any) -> Rollout | Skipped:
    """One sample of a log with its header; a Skipped where it is no sample."""
    if not isinstance(sample, dict) or not ({"id", "messages", "input", "output"} & sample.keys()):
        return Skipped(f"{path.name}:{place}", "no sample: an object with id, input, messages or output was expected")
    sample = _resolve(sample, mapping(sample.get("attachments")))
    spec = mapping(log.get("eval"))
    key, epoch = _key(sample)
    key = key or _named(place)[0]
    transcript = chat.turns(_messages(sample))
    scores = _scores(sample)
    main = _main(spec, log, scores)
    reward, components = _graded(scores, main)
    error, kind = _fault(log, spec, sample, scores)
    silent = silent_scorers(sample, scores)
    if not kind and main in silent:
        error, kind = f"{main}: the reply of the model that scores is {silent[main]}", "judge"
    components = {c: v for c, v in components.items() if c.split("/")[0] not in silent}
    if kind:
        reward, components = None, {}
    log_id = word(spec.get("eval_id"), spec.get("task_id"), spec.get("run_id"), path.stem)
    prompt = "\n".join(t.text for t in transcript if t.role != "assistant")
    metadata = mapping(sample.get("metadata"))
    choice = mapping(next(iter(listing(mapping(sample.get("output")).get("choices"))), None))
    # the log keeps log-probabilities of the last output only: with several turns they would pass for all of them
    logprobs = _logprobs(choice) if sum(t.role == "assistant" for t in transcript) == 1 else None
    return Rollout(
        id=ident(path, log_id, key, epoch),
        task=f"{word(spec.get('task'))}/{key}",
        turns=transcript,
        reward=reward,
        components=components,
        outcome=verdict(reward),
        finish=_finish(sample, choice, kind),
        run=word(spec.get("run_id"), log_id),
        policy=word(spec.get("model"), mapping(sample.get("output")).get("model")),
        group=f"{log_id}/{key}",
        k=epoch - 1,
        attempt=len(listing(sample.get("error_retries"))),
        tokens=_tokens(spec, sample),
        logprobs=logprobs,
        mean_logprob=sum(logprobs) / len(logprobs) if logprobs else None,
        error=error,
        error_kind=kind,
        detail=_detail(path, place, spec, sample, scores, asserts.rows(metadata.get("test"), prompt)),
    )


def _messages(sample: dict[str, Any]) -> list[Any]:
    """The conversation; of samples that kept none, the input and what the model put out."""
    if found := listing(sample.get("messages")):
        return found
    given = sample.get("input")
    out: list[Any] = []
    if isinstance(given, list):
        out += given
    elif given:
        out.append({"role": "user", "content": given})
    output = mapping(sample.get("output"))
    choice = mapping(next(iter(listing(output.get("choices"))), None))
    if isinstance(choice.get("message"), dict):
        out.append({"role": "assistant"} | choice["message"])
    elif output.get("completion"):
        out.append({"role": "assistant", "content": output["completion"]})
    return out


def _scores(sample: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Scores by scorer name; a bare value counts as a score, and the oldest logs hold a single `score`."""
    raw = mapping(sample.get("scores"))
    if not raw and sample.get("score") is not None:
        raw = {"score": sample["score"]}
    given = {name: score for name, score in raw.items() if score is not None}
    return {name: s if isinstance(s, dict) else {"value": s} for name, s in given.items()}


def _main(spec: dict[str, Any], log: dict[str, Any], scores: dict[str, Any]) -> str | None:
    """Name of the score that decides: that of the first scorer of the task which scored this sample."""
    results = mapping(log.get("results"))
    order = [mapping(s).get("name") for s in listing(spec.get("scorers"))]
    # older logs name scorers in their results only
    order += [x for s in listing(results.get("scores")) for x in (mapping(s).get("scorer"), mapping(s).get("name"))]
    return next((n for n in order if isinstance(n, str) and n in scores), next(iter(scores), None))


def _graded(scores: dict[str, dict[str, Any]], main: str | None) -> tuple[float | None, dict[str, float | None]]:
    """(reward, components); a letter, a boolean or a number at either end is a verdict, too; half marks are none."""
    components: dict[str, float | None] = {}
    for name, score in scores.items():
        value = score.get("value")
        if isinstance(value, dict):
            components |= {f"{name}/{k}": _value(v) for k, v in value.items()}
        elif isinstance(value, list):
            components |= {f"{name}/{i}": _value(v) for i, v in enumerate(value[:100])}
        else:
            components[name] = _value(value)
    return components.get(main) if main is not None else None, components


def _value(value: Any) -> float | None:
    if isinstance(value, str):
        grade = GRADES.get(value.strip())
        return grade if grade is not None else WORDS.get(value.strip().lower(), number(value))
    return number(value)


def _fault(
    log: dict[str, Any], spec: dict[str, Any], sample: dict[str, Any], scores: dict[str, Any]
) -> tuple[str | None, Fault | None]:
    """(text, class) of what stopped the sample other than the policy's own limits."""
    raised = sample.get("error")
    if raised:
        e = mapping(raised)
        message = text(e.get("message")) if e else text(raised)
        message = message or last_line(e.get("traceback")) or "error without a message"
        return message, kind_of(message, last_line(e.get("traceback")))
    if sample.get("invalidation"):
        return f"invalidated: {text(mapping(sample['invalidation']).get('reason')) or 'no reason given'}", "masked"
    if _limit(sample) == "operator":
        return "stopped by the operator", "cancelled"
    # unscored in a cancelled run: not the policy's failure. Without scorers no sample is ever scored, cancelled or not
    if log.get("status") == "cancelled" and not scores and listing(spec.get("scorers")):
        return "the run was cancelled before this sample was scored", "cancelled"
    return None, None


def _limit(sample: dict[str, Any]) -> str:
    limit = sample.get("limit")
    return word(limit if isinstance(limit, str) else mapping(limit).get("type"))


def _finish(sample: dict[str, Any], choice: dict[str, Any], kind: str | None) -> Finish | None:
    if kind:
        return "error"
    if limit := _limit(sample):
        return "length" if limit in LENGTHS else "turn_limit"
    return chat.finish(choice.get("stop_reason"))


def _tokens(spec: dict[str, Any], sample: dict[str, Any]) -> int | None:
    usage = mapping(sample.get("model_usage"))
    # several models: graders and users are in the usage, too, so only the policy's own entry counts
    own = usage.get(word(spec.get("model")), next(iter(usage.values())) if len(usage) == 1 else None)
    return whole_number(mapping(own).get("output_tokens"))


def _logprobs(choice: dict[str, Any]) -> tuple[float, ...] | None:
    rows = [number(mapping(x).get("logprob")) for x in listing(mapping(choice.get("logprobs")).get("content"))]
    found = tuple(x for x in rows if x is not None)
    return found if found and len(found) == len(rows) else None


def _detail(
    path: Path,
    place: str,
    spec: dict[str, Any],
    sample: dict[str, Any],
    scores: dict[str, Any],
    tests: list[dict[str, Any]],
) -> dict[str, Any]:
    events = [e for e in listing(sample.get("events")) if isinstance(e, dict) and e.get("event") == "sandbox"]
    fields = ("action", "file", "cmd", "input", "result", "output")
    calls = [{k: short(plain(e[k])) for k in fields if e.get(k) is not None} for e in events[:MAX_CALLS]]
    found = {
        "target": plain(sample.get("target")),
        "choices": plain(sample.get("choices")),
        "limit": plain(sample.get("limit")),
        "metadata": plain(sample.get("metadata")),
        "scores": plain(scores),
        "tests": tests,
        "sandbox_type": plain(mapping(spec.get("sandbox")).get("type", spec.get("sandbox"))),
        "sandbox_calls": calls,
        "files": plain(sample.get("files")),
        "setup": short(plain(sample.get("setup"))),
        "task_args": plain(spec.get("task_args")),
        "seconds": number(sample.get("total_time")),
    }
    return {"source": path.name, "record": place} | {k: v for k, v in found.items() if v not in (None, "", [], {})}


def _resolve(value: Any, attachments: dict[str, Any]) -> Any:
    """The value with `attachment://hash` replaced by the text it stands for, where the sample holds it."""
    if not attachments:
        return value
    if isinstance(value, str):
        if "attachment://" not in value:
            return value
        return _ATTACHED.sub(lambda m: text(attachments[m[1]]) if m[1] in attachments else m[0], value)
    if isinstance(value, list):
        return [_resolve(v, attachments) for v in value]
    if isinstance(value, dict):
        return {k: v if k in ("attachments", "store") else _resolve(v, attachments) for k, v in value.items()}
    return value


def _key(sample: Any) -> tuple[str, int]:
    """(id, epoch from 1) of a sample; an empty id where it has none."""
    s = mapping(sample)
    return word(s.get("id")), max(whole_number(s.get("epoch")) or 1, 1)


def _named(member: str) -> tuple[str, int]:
    """(id, epoch) by the name `samples/<id>_epoch_<n>.json`."""
    stem = member.removeprefix("samples/").removesuffix(".json")
    key, _, epoch = stem.rpartition("_epoch_")
    return (key, max(int(epoch), 1)) if key and epoch.isdecimal() and len(epoch) < 7 else (stem, 1)


def _missing(path: Path, log: dict[str, Any], seen: list[tuple[str, int]]) -> Iterator[Skipped]:
    """One skip for the samples that the run was to take and the log does not hold."""
    spec = mapping(log.get("eval"))
    ids = {word(i) for i in listing(mapping(spec.get("dataset")).get("sample_ids"))} - {""}
    epochs = whole_number(mapping(spec.get("config")).get("epochs")) or 1
    # epochs are a number in somebody's file: bounded before it is multiplied
    lost = len(ids) * min(epochs, 10_000) - len({s for s in seen if s[0] in ids})
    if lost > 0:
        status = word(log.get("status")) or "unknown"
        yield Skipped(path.name, f"{lost} of {len(ids) * epochs} samples are not in the log (status {status})")


IMPORTER = Inspect()


def silent_scorers(sample: dict[str, Any], scores: dict[str, dict[str, Any]]) -> dict[str, Silence]:
    """Score -> what is wrong with the reply that it rests on.

    Of each scorer the last reply of every model counts, because scorers ask again; one model that answered is enough.
    """
    out: dict[str, Silence] = {}
    for scorer, replies in _replies(sample).items():
        last: dict[str, Silence | None] = {}
        for e in replies:
            output = mapping(e.get("output"))
            silent = silence(output) if isinstance(output.get("choices"), list) else "empty"
            last[word(e.get("model"))] = "errored" if e.get("error") else silent
        found = next(iter(last.values()), None)
        if found is not None and None not in last.values():
            name = scorer if scorer in scores else next(iter(scores)) if len(scores) == 1 else ""
            if name:
                out[name] = found
    for name, score in scores.items():
        if text(score.get("explanation")).strip().lower().startswith(UNPARSED):
            out.setdefault(name, "unparsable")
    return out


def _replies(sample: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Scorer -> events of the models that it called: within its span, or its step in older logs."""
    spans: dict[str, tuple[str, str]] = {}
    """Span -> (scorer that it is part of, parent)"""
    out: dict[str, list[dict[str, Any]]] = {}
    step = ""
    for e in (e for e in listing(sample.get("events")) if isinstance(e, dict)):
        kind = e.get("event")
        if kind == "span_begin":
            parent = word(e.get("parent_id"))
            inherited = spans.get(parent, ("", ""))[0]
            spans[word(e.get("id"))] = (word(e.get("name")) if e.get("type") == "scorer" else inherited, parent)
        elif kind == "step" and e.get("type") == "scorer":
            step = word(e.get("name")) if e.get("action") == "begin" else ""
        elif kind == "model":
            scorer = spans.get(word(e.get("span_id")), ("", ""))[0] or step
            if scorer and not e.get("pending"):
                out.setdefault(scorer, []).append(e)
    return out
