"""ATIF, Harbor's Agent Trajectory Interchange Format (v1.0 to v1.7), with the trial's `result.json` where there is one.

A trajectory is one JSON object: schema_version, agent, steps (source, message, reasoning_content, tool_calls,
observation, metrics with token ids and logprobs), final_metrics. It holds no reward. Harbor writes it to
`<trial>/agent/trajectory.json` and the verifier's rewards to `<trial>/result.json`; continuations of a conversation
that was compacted lie next to it and are read with it, not counted as further attempts. A trial that ended before its
agent wrote anything is read from its result alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evotrainer.importers.base import Fault, LogFormat, Skipped, Source
from evotrainer.importers.chat import Conversation, error_flag
from evotrainer.importers.common import (
    Ending,
    attempt,
    digest,
    ident,
    kind_of,
    listing,
    mapping,
    plain,
    short,
    verdict,
    whole_number,
    word,
)
from evotrainer.importers.lenient_json import number, read_json, read_json_or_none, text
from evotrainer.importers.messages import as_text
from evotrainer.records.rollout import Finish, Rollout, Turn

MAIN = "trajectory.json"
MAX_PARTS = 100
"""Continuation files followed from one trajectory."""
LIMITS: dict[str, Finish] = {
    "agenttimeouterror": "turn_limit",
    "contextlengthexceedederror": "length",
    "outputlengthexceedederror": "length",
}
"""Exceptions that are limits of the task: the verifier still ran, and its reward stands."""
FAULTS: dict[str, Fault] = {
    "verifiertimeouterror": "judge",
    "rewardfilenotfounderror": "judge",
    "rewardfileemptyerror": "judge",
    "verifieroutputparseerror": "judge",
    "environmentstarttimeouterror": "container",
    "agentsetuptimeouterror": "container",
    "cancellederror": "cancelled",
    "keyboardinterrupt": "cancelled",
}


class Atif(LogFormat):
    """The attempt of one trajectory file, or of one Harbor trial without a trajectory."""

    name = "atif"
    about = "Harbor's ATIF v1.x trajectories and trial folders: steps, tool calls, logprobs; rewards from result.json"
    asked = 90
    own_ids = True

    def one_reading(self, path: Path) -> Path | None:
        """`<job>/<trial>/agent/trajectory.json`, or `<job>/<trial>/result.json`."""
        trial = path.parent.parent if path.parent.name == "agent" else path.parent
        return None if path.is_dir() else trial.parent

    def recognises(self, source: Source) -> bool:
        if source.path.is_dir():
            return _trial_of(source.path) is not None
        return _is_trajectory(source.first) or (source.path.name == "result.json" and _is_trial(source.first))

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        if path.is_dir():
            # a trial folder stands for its trajectory; its result alone only where the agent wrote none
            agent = next((p for p in (path / "agent" / MAIN, path / MAIN) if p.is_file()), path / "result.json")
            yield from self.read(agent)
            return
        try:
            data = read_json(path)
        except ValueError as e:
            yield Skipped(path.name, str(e))
            return
        if _is_trial(data):
            trajectories = (path.parent / "agent" / MAIN, path.parent / MAIN)
            # else that file's reading takes the result along
            if not any(_is_trajectory(read_json_or_none(p)) for p in trajectories):
                yield attempt(path.name, lambda: rollout(path, {}, data, path.parent))
        elif not isinstance(mapping(data).get("steps"), list):
            yield Skipped(path.name, "no ATIF trajectory: an object with schema_version and steps was expected")
        elif path.name != MAIN and (path.parent / MAIN).is_file():
            yield Skipped(
                path.name, f"a continuation or a subagent's part of {MAIN} next to it, read with it or no attempt"
            )
        else:
            trial = next((p for p in (path.parent, path.parent.parent) if _trial_of(p) is not None), None)
            result = _trial_of(trial) if trial else None
            yield attempt(path.name, lambda: rollout(path, data, result or {}, trial))


def _is_trajectory(value: Any) -> bool:
    return text(mapping(value).get("schema_version")).startswith("ATIF-v1") and "steps" in value


def _is_trial(value: Any) -> bool:
    found = mapping(value)
    return "trial_name" in found and bool({"verifier_result", "exception_info", "agent_result"} & found.keys())


def _trial_of(folder: Path) -> dict[str, Any] | None:
    """The trial result that lies in a folder."""
    found = read_json_or_none(folder / "result.json")
    return found if _is_trial(found) else None


def rollout(path: Path, data: dict[str, Any], result: dict[str, Any], trial: Path | None) -> Rollout:
    """A trajectory with its trial's result, either of which may be empty; `trial` is the trial's folder."""
    agent = mapping(data.get("agent"))
    info = mapping(result.get("agent_info"))
    parts = [data, *_continued(path, data)]
    transcript, sampled = _turns(parts)
    rewards = {str(k): number(v) for k, v in mapping(mapping(result.get("verifier_result")).get("rewards")).items()}
    # several rewards without one of that name: which of them decides is not ours to guess
    reward = rewards.get("reward", next(iter(rewards.values())) if len(rewards) == 1 else None)
    finish, kind, error = _ending(mapping(result.get("exception_info")))
    disabled = mapping(mapping(result.get("config")).get("verifier")).get("disable")
    # a fault's reward is whatever the verifier found in an unfinished workspace
    if kind:
        reward, rewards = None, {}
    # the trial ended by itself, the verifier was on, and yet there is no reward: the verifier is what failed
    elif result and reward is None and finish is None and not rewards and not disabled:
        kind, error = "judge", "the verifier left no reward"
    job = word(mapping(result.get("config")).get("job_id")) or (trial.resolve().parent.name if trial else "")
    session = word(data.get("session_id"), data.get("trajectory_id"))
    task = word(result.get("task_name")) or session or path.stem
    run = job or session
    policy = word(
        agent.get("model_name"), mapping(info.get("model_info")).get("name"), agent.get("name"), info.get("name")
    )
    token_ids, logprobs = _sampled(sampled)
    final = mapping(data.get("final_metrics"))
    total = whole_number(final.get("total_completion_tokens"))
    counted = sum(whole_number(m.get("completion_tokens")) or 0 for m in sampled) or None
    found = {
        "trial": plain(result.get("trial_name")),
        "exception": {k: short(plain(v)) for k, v in mapping(result.get("exception_info")).items()},
        "rewards": plain(mapping(result.get("verifier_result")).get("rewards")),
        "agent": plain({k: agent[k] for k in ("name", "version") if k in agent}),
        "format": plain(data.get("schema_version")),
        "notes": short(plain(data.get("notes"))),
        "final_metrics": plain(final),
        "parts": len(parts) if len(parts) > 1 else None,
        "subagents": len(listing(data.get("subagent_trajectories"))) or None,
    }
    return Rollout(
        id=ident(path, result.get("id"), result.get("trial_name"), session, digest(data)),
        task=task,
        turns=transcript,
        reward=reward,
        components=rewards,
        outcome=verdict(reward),
        finish="error" if kind else finish or ("stop" if result else None),
        run=run,
        policy=policy,
        group=f"{run}/{policy}/{task}",
        tokens=counted if total is None else total,
        token_ids=token_ids,
        logprobs=logprobs,
        mean_logprob=sum(logprobs) / len(logprobs) if logprobs else None,
        error=error,
        error_kind=kind,
        detail={"source": path.name, "record": "steps" if data else "result"}
        | {k: v for k, v in found.items() if v not in (None, "", [], {})},
    )


def _ending(exception: dict[str, Any]) -> Ending:
    """(finish, class of fault, text) by the exception that Harbor recorded for the trial."""
    if not exception:
        return None, None, None
    name, message = text(exception.get("exception_type")), text(exception.get("exception_message"))
    key = name.rsplit(".", 1)[-1].lower()
    if key in LIMITS:
        return LIMITS[key], None, None
    return "error", FAULTS.get(key) or kind_of(name, message), f"{name}: {message}".strip(": ") or "exception"


def _continued(path: Path, data: dict[str, Any]) -> list[dict[str, Any]]:
    """The files that go on where the context was compacted, in order; only files of the same folder are followed."""
    out: list[dict[str, Any]] = []
    seen = {path.name}
    ref = data.get("continued_trajectory_ref")
    while isinstance(ref, str) and len(out) < MAX_PARTS:
        # only the name counts: a path in somebody's file must not lead us out of the folder
        name = ref.replace("\\", "/").rsplit("/", 1)[-1]
        if not name or "\0" in name or name in seen:
            break
        seen.add(name)
        part = read_json_or_none(path.parent / name)
        if not _is_trajectory(part):
            break
        out.append(part)
        ref = part.get("continued_trajectory_ref")
    return out


def _turns(parts: list[dict[str, Any]]) -> tuple[tuple[Turn, ...], list[dict[str, Any]]]:
    """Turns of all parts, and the metrics of each step that the policy sampled in this attempt. A step marked as copied
    context was sampled before: in a continuation it is left out, in a first part it is what the policy was shown."""
    t = Conversation(error_flag)
    sampled: list[dict[str, Any]] = []
    for n, part in enumerate(parts):
        for step in listing(part.get("steps")):
            if not isinstance(step, dict):
                t.add_turn("user", as_text(step))
                continue
            copied = bool(step.get("is_copied_context"))
            if copied and n:
                continue
            source, metrics = step.get("source"), mapping(step.get("metrics"))
            thought = step.get("reasoning_content")
            spoken = [thought if isinstance(thought, str) else "", text(step.get("message"))]
            words = "\n".join(filter(None, spoken))
            if source == "agent" and not copied:
                calls = [{"id": mapping(c).get("tool_call_id"), **mapping(c)} for c in listing(step.get("tool_calls"))]
                t.add_turn("assistant", words, calls, whole_number(metrics.get("completion_tokens")))
                # a step without a model call (a scripted action) has no sampled tokens to account for
                if step.get("llm_call_count") != 0:
                    sampled.append(metrics)
            else:
                t.add_turn("system" if source == "system" else "user", words)
            for r in listing(mapping(step.get("observation")).get("results")):
                seen = mapping(r)
                to = seen.get("source_call_id")
                t.reply(text(seen.get("content")), to if isinstance(to, str) else None, _worked(seen))
    return t.turns(), sampled


def _worked(result: dict[str, Any]) -> bool | None:
    """ATIF itself does not say whether a call succeeded; agents' converters often do, under `extra`."""
    extra = mapping(result.get("extra"))
    for notes in (extra, mapping(extra.get("tool_result_metadata"))):
        if isinstance(notes.get("is_error"), bool):
            return not notes["is_error"]
        for key in ("exit_code", "returncode"):
            if (code := number(notes.get(key))) is not None:
                return code == 0
    # the last resort is the text's beginning; a success has no such sign, so it stays unknown
    return False if text(result.get("content")).lstrip().lower().startswith(("error:", "[error]")) else None


def _sampled(steps: list[dict[str, Any]]) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
    """(token ids, logprobs) of everything sampled; None where any step lacks them or they do not match in number."""
    ids: list[int] = []
    logs: list[float] = []
    has_ids = has_logs = bool(steps)
    for m in steps:
        found = listing(m.get("completion_token_ids"))
        # one step without ids makes the list of all steps unusable: tokens and log-probabilities would shift against
        # each other
        has_ids = has_ids and bool(found) and all(isinstance(i, int) and not isinstance(i, bool) for i in found)
        values = [number(x) for x in listing(m.get("logprobs"))]
        has_logs = has_logs and bool(values) and None not in values
        ids += found if has_ids else []
        logs += [v for v in values if v is not None]
    if has_ids and has_logs and len(ids) != len(logs):
        return None, None
    return tuple(ids) if has_ids else None, tuple(logs) if has_logs else None


IMPORTER = Atif()
