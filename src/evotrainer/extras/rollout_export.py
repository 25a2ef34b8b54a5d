"""Rollouts in the forms that other viewers open: JSON lines, Inspect logs, Harbor's ATIF trials, traces of Trackio.

What each form cannot hold is in docs/commands/export-rollouts.md. Importing what was written gives the same tasks,
turns, rewards and faults (tests/extras/test_rollout_export.py); Trackio's database has no importer.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import IO, Any, NamedTuple

from evotrainer.errors import ConfigError, MissingDependencyError, install
from evotrainer.records.clock import unix_time
from evotrainer.records.durable import os_errors
from evotrainer.records.findings import Finding
from evotrainer.records.rollout import Rollout, Turn

MOST_FILES = 64
"""Inspect logs that are open at once."""


@dataclass(frozen=True, slots=True)
class Flagged:
    """A rollout with the detectors that flag it."""

    rollout: Rollout
    findings: tuple[str, ...] = ()


class ExportForm(NamedTuple):
    """A form that rollouts are written in."""

    write: Callable[[Iterable[Flagged], Path], None]
    """(rollouts, an empty folder)."""
    opens: str
    """How what was written is looked at; `{out}` is the folder."""


def write_jsonl(rollouts: Iterable[Flagged], out: Path) -> None:
    """`rollouts.jsonl`, in the plain form of docs/importers.md: every field of a rollout."""
    with open(out / "rollouts.jsonl", "x", encoding="utf-8") as f:
        for x in rollouts:
            row = {k: v for k, v in _fields(x.rollout).items() if v not in (None, "", (), {}) or k == "reward"}
            row["turns"] = [
                {"role": t.role, "text": t.text} | ({"tokens": t.tokens} if t.tokens is not None else {})
                | ({"tool_calls": [_named(c.name, c.arguments, ok=c.ok) for c in t.tool_calls]} if t.tool_calls else {})
                for t in x.rollout.turns
            ]  # fmt: skip
            f.write(_json(row | ({"findings": x.findings} if x.findings else {})) + "\n")


def _fields(r: Rollout) -> dict[str, Any]:
    return {name: getattr(r, name) for name in Rollout.__slots__ if name != "turns"}


def _named(name: str, arguments: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, **more}


def write_atif(rollouts: Iterable[Flagged], out: Path) -> None:
    """A Harbor trial a rollout: `<run>/<id>/result.json` and `<run>/<id>/agent/trajectory.json` (ATIF v1.7)."""
    for x in rollouts:
        r = x.rollout
        trial = out / _safe(r.run or "rollouts") / _safe(r.id)
        agent = {"name": "evotrainer", "version": "1", "model_name": r.policy or "policy"}
        rewards = (
            {} if r.error_kind else {k: v for k, v in {**r.components, "reward": r.reward}.items() if v is not None}
        )
        fault = {"exception_type": r.error_kind, "exception_message": r.error or ""} if r.error_kind else None
        result = {
            "id": r.id,
            "trial_name": r.id,
            "task_name": r.task,
            "config": {"job_id": r.run or "rollouts", "verifier": {"disable": r.reward is None}},
            "agent_info": {"name": "evotrainer", "version": "1", "model_info": {"name": r.policy}},
            "verifier_result": {"rewards": rewards} if rewards else None,
            "exception_info": fault,
        }
        (trial / "agent").mkdir(parents=True)
        (trial / "result.json").write_text(_json(result, indent=1), encoding="utf-8")
        trajectory = {
            "schema_version": "ATIF-v1.7",
            "session_id": r.id,
            "agent": agent,
            "steps": [*_atif_steps(r)],
            "final_metrics": {"total_completion_tokens": r.tokens} if r.tokens is not None else {},
            "extra": _about(x),
        }
        (trial / "agent" / "trajectory.json").write_text(_json(trajectory, indent=1), encoding="utf-8")


def _atif_steps(r: Rollout) -> Iterator[dict[str, Any]]:
    """Turns as steps; a tool's reply is the observation of the step that called it."""
    steps: list[dict[str, Any]] = []
    for m in messages(r.turns):
        if m["role"] == "tool" and steps:
            failed = {"extra": {"is_error": not m["ok"]}} if m["ok"] is not None else {}
            seen = {"content": m["content"], **({"source_call_id": i} if (i := m["tool_call_id"]) else {}), **failed}
            steps[-1].setdefault("observation", {"results": []})["results"].append(seen)
            continue
        source = "agent" if m["role"] == "assistant" else "system" if m["role"] == "system" else "user"
        step: dict[str, Any] = {"step_id": len(steps) + 1, "source": source, "message": m["content"]}
        if calls := m.get("tool_calls"):
            step["tool_calls"] = [
                {
                    "tool_call_id": c["id"],
                    "function_name": c["function"]["name"],
                    "arguments": _arguments(c["function"]["arguments"]),
                }
                for c in calls
            ]
        if source == "agent" and m["tokens"] is not None:
            step["metrics"] = {"completion_tokens": m["tokens"]}
        steps.append(step)
    sampled = [s for s in steps if s["source"] == "agent"]
    if len(sampled) == 1 and r.logprobs:  # of several steps nobody knows which tokens are whose
        ids = {"completion_token_ids": r.token_ids} if r.token_ids else {}
        sampled[0].setdefault("metrics", {}).update({"logprobs": r.logprobs, **ids})
    yield from steps


def _arguments(text: str) -> Any:
    """Arguments as the object that they are, where they are one."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, dict) and json.dumps(found, ensure_ascii=False) == text else text


def write_inspect(rollouts: Iterable[Flagged], out: Path) -> None:
    """A log of one JSON file a policy and split: a sample is a task, an epoch an attempt at it. What would be the same
    epoch of a sample again (evaluated under other knobs, retried) is in another log."""
    files: dict[tuple[str, ...], IO[str]] = {}
    times: Counter[tuple[str, ...]] = Counter()
    with ExitStack() as stack:
        for x in rollouts:
            r = x.rollout
            knobs = _json(r.knobs) if r.knobs else ""
            sample = (r.run, r.policy, r.split, knobs, r.task, str(r.k))
            times[sample] += 1
            key = (*sample[:4], str(times[sample]))
            first = key not in files
            if first:
                if len(files) >= MOST_FILES:
                    raise ConfigError(
                        f"more than {MOST_FILES} policies, splits and settings, each a log of its own; choose some by "
                        "--where"
                    )
                # Inspect lists logs of JSON whose names begin with a time
                at = _now().replace(":", "-")
                name = "_".join(
                    (at, _safe(r.split) or "rollouts", _safe(f"{r.run}-{r.policy}-{len(files)}").replace("_", "-"))
                )
                f: IO[str] = stack.enter_context(open(out / f"{name}.json", "x", encoding="utf-8"))
                f.write(_json(_inspect_header(r, len(files)))[:-1] + ', "samples": [\n')
                files[key] = f
            files[key].write(("" if first else ",\n") + _json(_inspect_sample(x)))
        for log in files.values():
            log.write("\n]}\n")


def _now() -> str:
    return datetime.fromtimestamp(unix_time(), UTC).isoformat(timespec="seconds")


def _inspect_header(r: Rollout, n: int) -> dict[str, Any]:
    name = " ".join(filter(None, (r.run, r.policy, r.split, str(n))))
    model = f"evotrainer/{r.policy or 'policy'}"
    spec = {
        "eval_id": name,
        "run_id": r.run or name,
        "task_args": r.knobs,
        "created": _now(),
        "task": r.split or "rollouts",
        "task_id": name,
        "dataset": {"name": r.split},
        "model": model,
        "config": {},
        "scorers": [{"name": "reward"}],
        "packages": {},
    }
    stats = {"started_at": "", "completed_at": "", "model_usage": {}}
    return {"version": 2, "status": "success", "eval": spec, "plan": {"name": "plan", "steps": []}, "stats": stats}


def _inspect_sample(x: Flagged) -> dict[str, Any]:
    r = x.rollout
    scores = {"reward": r.reward, **r.components}
    if r.outcome != "unknown":
        scores["outcome"] = "C" if r.outcome == "correct" else "I"  # type: ignore[assignment]
    said: list[dict[str, Any]] = []
    for n, m in enumerate(messages(r.turns)):
        body = {"id": f"m{n}", "role": m["role"], "content": m["content"]}
        if calls := m.get("tool_calls"):
            body["tool_calls"] = [
                {
                    "id": c["id"],
                    "type": "function",
                    "function": c["function"]["name"],
                    "arguments": args
                    if isinstance(args := _arguments(c["function"]["arguments"]), dict)
                    else {"": args},
                }
                for c in calls
            ]
        if m["role"] == "assistant":
            body["source"] = "generate"
        if m["role"] == "tool":
            body |= {"tool_call_id": m["tool_call_id"]} if m["tool_call_id"] else {}
            body |= {"error": {"type": "unknown", "message": "failed"}} if m["ok"] is False else {}
        said.append(body)
    last = next((m for m in reversed(said) if m["role"] == "assistant"), {"role": "assistant", "content": ""})
    ends = {"length": "max_tokens"}.get(r.finish or "", "stop")
    usage = {"input_tokens": 0, "output_tokens": r.tokens, "total_tokens": r.tokens} if r.tokens is not None else None
    model = f"evotrainer/{r.policy or 'policy'}"
    sample: dict[str, Any] = {
        "id": r.task,
        "epoch": r.k + 1,
        "input": [m for m in said if m["role"] in ("system", "user")][:1] or "",
        "target": "",
        "messages": said,
        "output": {"model": model, "choices": [{"message": last, "stop_reason": ends}]},
        "scores": {} if r.error_kind else {k: {"value": v} for k, v in scores.items() if v is not None},
        "metadata": _about(x),
        "model_usage": {model: usage} if usage else {},
    }
    if r.finish == "turn_limit":
        sample["limit"] = {"type": "message", "limit": len(said)}
    if r.error_kind:
        text = f"{r.error_kind}: {r.error or ''}"
        sample["error"] = {"message": text, "traceback": "", "traceback_ansi": ""}
    return sample


def messages(turns: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    """Turns as chat messages: role, content, tokens; of calls `tool_calls` with ids, of replies the `tool_call_id` of
    the oldest call that has none yet, and whether it worked (`ok`)."""
    waiting: list[tuple[str, bool | None]] = []
    for n, t in enumerate(turns):
        m: dict[str, Any] = {"role": t.role, "content": t.text or "", "tokens": t.tokens}
        if t.tool_calls:
            ids = [f"call-{n}-{i}" for i in range(len(t.tool_calls))]
            waiting = [(i, c.ok) for i, c in zip(ids, t.tool_calls, strict=True)]
            functions = [_named(c.name, c.arguments) for c in t.tool_calls]
            m["tool_calls"] = [
                {"id": i, "type": "function", "function": f} for i, f in zip(ids, functions, strict=True)
            ]
        if t.role == "tool":
            m["tool_call_id"], m["ok"] = waiting.pop(0) if waiting else ("", None)
        yield m


def _about(x: Flagged) -> dict[str, Any]:
    """What a viewer shows beside a conversation."""
    fields = _fields(replace(x.rollout, token_ids=None, logprobs=None))
    found = {k: v for k, v in fields.items() if v not in (None, "", (), {})}
    return found | ({"findings": list(x.findings)} if x.findings else {})


def write_trackio(
    rollouts: Iterable[Flagged], folder: Path | None, project: str, findings: Sequence[Finding] = ()
) -> None:
    """Traces of a Trackio project, a run a policy, each at its training step; findings as alerts of a run `audit`.

    `folder`: of Trackio's databases; None: its own. MissingDependencyError without trackio.
    """
    if folder is not None:
        os.environ["TRACKIO_DIR"] = str(folder)
    try:
        import trackio
    except ModuleNotFoundError as e:
        raise MissingDependencyError(f"--to trackio needs {e.name}; {install('tracking')}") from None
    quiet: dict[str, Any] = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False, "resume": "allow"}
    by_policy: dict[str, list[tuple[int, Any]]] = {}
    with redirect_stdout(StringIO()):  # it tells where its dashboard is, for every run
        for x in rollouts:
            said = [
                {k: v for k, v in m.items() if k not in ("tokens", "ok") and v != ""} for m in messages(x.rollout.turns)
            ]
            about = {"status": "error" if x.rollout.error_kind else "ok", **_about(x)}
            by_policy.setdefault(x.rollout.policy or "rollouts", []).append(
                (x.rollout.step, trackio.Trace(said, json.loads(_json(about))))
            )
        for policy, traces in by_policy.items():
            trackio.init(project=project, name=policy, group="rollouts", **quiet)
            for step, trace in sorted(traces, key=lambda t: t[0]):
                trackio.log({"rollout": trace}, step=step)
            trackio.finish()
        levels = trackio.AlertLevel
        if findings:
            trackio.init(project=project, name="audit", group="rollouts", **quiet)
            for f in findings:
                level = {"critical": levels.ERROR, "warn": levels.WARN}.get(f.severity, levels.INFO)
                trackio.alert(f.detector, f.claim, level)
            trackio.finish()


FORMS: Mapping[str, ExportForm] = {
    "inspect": ExportForm(write_inspect, "inspect view start --log-dir {out}"),
    "atif": ExportForm(write_atif, "harbor view {out}"),
    "jsonl": ExportForm(write_jsonl, "evotrainer rollouts {out}"),
}
"""Form -> what writes files in it. Trackio has no files of ours (`write_trackio`)."""


def export(form: str, rollouts: Iterable[Flagged], out: Path) -> str:
    """Write into a folder that is new or empty; what opens it. ConfigError where it holds something, StoreError where
    it cannot be written."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} holds something already; give a new folder as --out")
    with os_errors(f"cannot write {out}"):
        out.mkdir(parents=True, exist_ok=True)
        FORMS[form].write(rollouts, out)
    return FORMS[form].opens.format(out=out)


def _safe(name: str) -> str:
    """A name of a file or folder that leads nowhere else."""
    kept = "".join(c if c.isalnum() or c in "-_.@" else "-" for c in name)[:100].strip(".")
    return kept


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=True, default=_plain, indent=indent)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)
