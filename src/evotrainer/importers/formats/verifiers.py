"""verifiers, both generations of its evaluation output.

v0: `results.jsonl` (next to a `metadata.json` with env_id and model): example_id (at first `id`), prompt, completion,
answer, info, reward, metrics (also flattened next to them; at first only so), error, stop_condition, is_truncated,
token_usage. v1: `traces.jsonl` with one trace a line: task, nodes (messages with their predecessor, `sampled` where the
model wrote them, token ids, mask, logprobs), rewards ({name: {score, weight}}, at first {name: value}), metrics, calls,
errors, ok, stop_condition. A reward of null means in v1 that scoring did not run. From 0.4 on a line is an episode: the
traces of all its agents, with the episode's own task, group, run, ok and errors; each trace is a rollout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from evotrainer.importers import chat
from evotrainer.importers.base import Fault, LogFormat, Skipped, Source, given_id, task_of
from evotrainer.importers.common import Ending, kind_of, listing, mapping, plain
from evotrainer.importers.faults import as_fault
from evotrainer.importers.jsonl import RecordReader
from evotrainer.importers.lenient_json import number, read_json_or_none, text
from evotrainer.importers.lines import records
from evotrainer.records.rollout import Finish, Rollout

_FAULTS: tuple[tuple[Fault, str], ...] = (
    ("timeout", "timeout"),
    ("container", "sandbox|tunnel|infra|runtime|docker|setup"),
    ("judge", "judge|rubric|scor"),
    ("model_api", "model|provider|ratelimit|apierror|apiconnection|interception"),
    ("cancelled", "cancel"),
)
"""Class -> parts of error class names, as they begin an error's text."""
_TOO_LONG = ("overlong", "prompt_too_long", "contextlength")
"""Errors that are the policy's own: its context ran over."""
_LENGTHS = ("max_input_tokens", "max_output_tokens", "max_total_tokens", "prompt_too_long", "max_tokens_reached",
            "context_length")  # fmt: skip
_TURNS = ("max_turns", "max_turns_reached")
_V0 = frozenset({"example_id", "id", "prompt", "completion", "reward", "metrics", "token_usage", "answer", "timing"})
_OFTEN_EMPTY = frozenset({"answer", "info", "task", "stop_condition", "errors", "timing", "verifiers"})
_TIMES = frozenset({"generation_ms", "scoring_ms", "total_ms", "step"})


class Verifiers(LogFormat):
    """The importer of verifiers' results (v0), traces and episodes (v1)."""

    name = "verifiers"
    about = "verifiers v0 results.jsonl, v1 traces.jsonl (traces, episodes): messages, reward, metrics, errors, stop"
    asked = 40
    names = "id"
    by_lines = True

    def one_reading(self, path: Path) -> Path | None:
        return steps[0] if (steps := step_folder(path)) is not None else None

    def recognises(self, source: Source) -> bool:
        """A trace with task and nodes, an episode of such, or a row with prompt, completion, reward and the example's
        id or timings."""
        r = source.first
        if not isinstance(r, dict):
            return False
        if _is_trace(r) or _is_episode(r):
            return True
        marks = ("example_id", "generation_ms", "stop_condition", "is_truncated")
        return {"prompt", "completion", "reward"} <= r.keys() and any(k in r for k in marks)

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        """One rollout a line; of an episode one for each trace."""
        reader = _Reader(path)
        for record in records(path, reader.rollout):
            yield record
            # the further traces of that episode
            yield from (Skipped(str(path), x) if isinstance(x, str) else x for x in reader.waiting)
            reader.waiting = []


def _is_trace(r: dict[str, Any]) -> bool:
    return isinstance(r.get("nodes"), list) and "task" in r and ("rewards" in r or "stop_condition" in r or "id" in r)


def _is_episode(r: dict[str, Any]) -> bool:
    return isinstance(r.get("traces"), list) and "task" in r and ("ok" in r or "env" in r)


def step_folder(path: Path) -> tuple[Path, int, str] | None:
    """(folder of all steps, step, split) of a file that prime-rl wrote:
    `<run>/rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl`; None of any other."""
    folder = path.parent
    step = re.fullmatch(r"step_(\d{1,9})", folder.parent.parent.name)
    if step is None or folder.name not in ("all", "effective") or folder.parent.name not in ("train", "eval"):
        return None
    return folder.parent.parent.parent, int(step[1]), folder.parent.name


class _Reader:
    """Records of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plain = RecordReader(path)
        _, self.step, self.split = step_folder(path) or (None, 0, "")
        self.seen: set[str] = set()
        """Ids of traces that were read: one that comes again in the same file is named by its place."""
        self.waiting: list[Rollout | str] = []
        named = ("env_id", "model", "env_args", "sampling_args", "date")
        self.meta = {k: v for k, v in mapping(read_json_or_none(path.with_name("metadata.json"))).items() if k in named}

    def rollout(self, r: dict[str, Any], n: int) -> Rollout | str:
        if _is_episode(r):
            first, *self.waiting = self.episode(r, n)
            return first
        return self.trace(r, n) if _is_trace(r) else self.result(r, n)

    def episode(self, r: dict[str, Any], n: int) -> list[Rollout | str]:
        """The traces of an episode's agents; where it ended before there was one, the task as it was dispatched."""
        traces = [t for t in r["traces"] if isinstance(t, dict)] or [{k: v for k, v in r.items() if k != "traces"}]
        names = [text(mapping(t.get("agent")).get("name")) for t in traces]
        kind, error = (None, None) if r.get("ok") is not False else _v1_fault(r)
        # the trace of another agent failed and says so itself: what this one earned stands
        if not r.get("errors") and any(_v1_fault(t)[0] for t in traces):
            kind = None
        env, group = mapping(r.get("env")), text(mapping(r.get("group")).get("id"))
        found = {"episode": r.get("id"), "env": env.get("name") or env.get("id"), "run": r.get("run"), "group": group}
        out: list[Rollout | str] = []
        for i, (trace, name) in enumerate(zip(traces, names, strict=True), 1):
            place, agent = f"{n} trace {i}" if i > 1 else n, name if len(set(names)) > 1 else ""
            # what a trace does not say of itself its episode says
            own = {"ok": False, "errors": r.get("errors")} if kind else {}
            one = self.trace({"task": r["task"], "nodes": [], **own, **trace}, place, group, agent)
            if isinstance(one, Rollout):
                one = replace(one, detail=plain({**one.detail, **{k: v for k, v in found.items() if v}}))
                if kind and not one.error_kind:
                    one = as_fault(one, kind, f"the episode is not ok: {error}")
            out.append(one)
        return out

    def result(self, r: dict[str, Any], n: int) -> Rollout | str:
        """A row of v0."""
        if "completion" not in r or "prompt" not in r:
            return "it has no prompt and completion"
        talk = chat.Conversation()
        chat.add(talk, r["prompt"])
        prompt = "\n".join(t.text for t in talk.turns())
        chat.add(talk, r["completion"], "assistant")
        example = r.get("example_id", r.get("id"))
        task = str(example) if isinstance(example, str | int) else ""
        env = self.meta.get("env_id")
        if task and isinstance(env, str):
            task = f"{env}/{task}"
        task = task or task_of(prompt)
        kind, error = _v0_fault(r.get("error"))
        reward = number(r.get("reward")) if isinstance(r.get("reward"), int | float) else None
        if isinstance(r.get("metrics"), dict):
            metrics, other = r["metrics"], {k: v for k, v in r.items() if k not in _V0 and k not in r["metrics"]}
        else:  # the first versions wrote metrics among the rest
            metrics = {k: v for k, v in r.items() if type(v) in (int, float) and k not in _V0 | _TIMES}
            other = {k: v for k, v in r.items() if k not in _V0 and k not in metrics}
        detail = {"answer": r.get("answer"), **{k: v for k, v in other.items() if k not in ("error", "tool_defs")}}
        stop = r.get("stop_condition")
        tokens = mapping(r.get("token_usage")).get("output_tokens")
        finish = _finish(stop, r.get("is_truncated") is True, r.get("is_completed") is True)
        # an error that is no fault is the policy's own: its context ran over
        if isinstance(r.get("error"), str | dict) and not kind and r["error"]:
            finish = "length"
        count = int(tokens) if isinstance(tokens, int | float) and 0 < tokens < 2**62 else None
        known = {"reward": reward, "components": _numbers(metrics), "tokens": count, "detail": detail}
        return self._made(n, task, talk, (finish, kind, error), "", "", known)

    def trace(self, r: dict[str, Any], n: int | str, group: str = "", agent: str = "") -> Rollout | str:
        """A trace of v1. `group`: its episode's; `agent`: its name, where the episode has several."""
        talk = chat.Conversation()
        nodes = [x for x in r["nodes"] if isinstance(x, dict) and isinstance(x.get("message"), dict)]
        for node in nodes:
            chat.add(talk, node["message"])
        name, data = _v1_task(r["task"])
        if not talk.turns() and (prompt := data.get("prompt")):
            chat.add(talk, prompt)
        asked = [t.text for t in talk.turns() if t.role in ("system", "user")]
        task = name or task_of("\n".join(asked))
        kind, error = _v1_fault(r)
        reward, components = _v1_rewards(r.get("rewards"), r.get("reward"))
        # rewards last: a metric of the same name would hide the part that was paid
        metrics = {**mapping(r.get("metrics")), **components}
        calls = [c for c in listing(r.get("calls")) if isinstance(c, dict)]
        # the last reason counts: a turn cut short in the middle was gone on from
        reasons = [x["finish_reason"] for x in (*nodes, *calls) if x.get("finish_reason")]
        truncated = bool(reasons) and reasons[-1] == "length"
        finish = _finish(r.get("stop_condition"), truncated, bool(r.get("is_completed")))
        detail = {k: data[k] for k in data if k not in ("prompt", "system_prompt")}
        detail |= {k: r[k] for k in ("id", "info", "stop_condition", "errors", "timing", "verifiers") if r.get(k)}
        if agent:
            detail |= {"agent": agent, "trainable": mapping(r.get("agent")).get("trainable") is not False}
        # nodes name their predecessor, so every node that is nobody's is the end of a branch
        parents = {x.get("parent") for x in nodes}
        branches = sum(i not in parents for i in range(len(r["nodes"])))
        if branches > 1:
            detail["branches"] = branches
        tokens, config = _v1_tokens(nodes, calls), mapping(mapping(r.get("agent")).get("config"))
        model = next((m for x in (config, *calls) if isinstance(m := x.get("model"), str)), "")
        policy = f"{model} as {agent}" if agent else model
        known = {"reward": reward, "components": _numbers(metrics), "tokens": tokens, "detail": detail}
        out = self._made(n, task, talk, (finish, kind, error), policy, group, known | _v1_numbers(nodes))
        given = text(r.get("id"))
        if isinstance(out, Rollout) and given and given not in self.seen:
            self.seen.add(given)
            out = replace(out, id=given_id("verifiers", given))
        return out

    def _made(
        self,
        n: int | str,
        task: str,
        talk: chat.Conversation,
        ending: Ending,
        model: str,
        group: str,
        known: dict[str, Any],
    ) -> Rollout | str:
        finish, kind, error = ending
        if not talk.turns() and not kind:
            return "it has no messages"
        policy = model or (self.meta["model"] if isinstance(self.meta.get("model"), str) else "")
        # the same task at another step of a training is another group
        group = f"{self.path.name}#{policy}#{group or task}" + (f"#{self.split}{self.step}" * bool(self.split))
        # of the row's other fields an empty one says something: a judge's reply that never came
        detail = {k: v for k, v in known["detail"].items() if k not in _OFTEN_EMPTY or v not in (None, "", {}, [])}
        detail |= {"metadata": self.meta} if self.meta else {}
        place = {"task": task, "policy": policy, "split": self.split, "step": self.step, "group": group}
        ended = {"finish": finish, "error": error, "error_kind": kind, "detail": detail}
        return self.plain.rollout(known | place | ended, n, talk.turns())


def _numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    return {k: v if isinstance(v, int | float) else None for k, v in metrics.items()}


def _kind(name: str) -> Fault | None:
    """Class of an error by the class name it begins with; None where it is the policy's own."""
    low = name.lower().replace("_", "")
    # before the fault classes: "ContextLength" errors come from the model's API and would be taken for its fault
    if any(w.replace("_", "") in low for w in _TOO_LONG):
        return None
    return kind_of(low, kinds=_FAULTS)


def _v0_fault(error: Any) -> tuple[Fault | None, str | None]:
    if not error:
        return None, None
    named, words = "", text(error) or "error"
    if isinstance(error, dict):
        named = f"{text(error.get('error'))} "
        words = next(
            (w for k in ("error_chain_repr", "error_chain_str", "error") if (w := text(error.get(k)))), "error"
        )
    kind = _kind(named + words[:400])
    return kind, words if kind else None


def _v1_fault(r: dict[str, Any]) -> tuple[Fault | None, str | None]:
    """Fault of a trace: it is not `ok`, or (before there was `ok`) it stopped with an error."""
    listed = [e for e in listing(r.get("errors")) if isinstance(e, dict)]
    if isinstance(r.get("error"), dict):
        listed.append(r["error"])
    ok = r.get("ok")
    if ok is True or (ok is None and not listed and r.get("stop_condition") != "error"):
        return None, None
    if not listed:
        if ok is False and r.get("is_completed", True) is not True:
            return "cancelled", "the trace did not complete"
        return "other", f"it is not ok: stop_condition {r.get('stop_condition')}"
    # errors may be retried; the last one is what ended the trace
    last = listed[-1]
    kind = _kind(text(last.get("type")) or "error")
    return kind, f"{text(last.get('type'))}: {text(last.get('message'))}" if kind else None


def _v1_task(task: Any) -> tuple[str, dict[str, Any]]:
    """Name and data of a trace's task: {type, data, key, hash}, at first the data itself with its index."""
    if isinstance(task, str | int):
        return str(task), {}
    outer = mapping(task)
    data = mapping(outer.get("data")) or outer
    for place, keys in ((data, ("name", "id", "task_id", "instance_id")), (outer, ("key",)), (data, ("idx", "index"))):
        if name := next((str(v) for k in keys if isinstance(v := place.get(k), str | int) and v != ""), ""):
            return name, data
    return text(outer.get("hash")), data


def _v1_rewards(rewards: Any, total: Any) -> tuple[float | None, dict[str, float | None]]:
    """Total reward and its parts; None where scoring did not run, in part or at all."""
    parts: dict[str, float | None] = {}
    values: list[float | None] = []
    for name, value in mapping(rewards).items():
        if isinstance(value, dict):
            score, weight = number(value.get("score")), number(value.get("weight", 1.0))
            parts[name] = score
            # a part that was not scored makes the total unknown: summed without it, it would be a reward nobody gave
            values.append(None if score is None or weight is None else score * weight)
        else:
            parts[name] = number(value) if isinstance(value, int | float) else None
            values.append(parts[name])
    if values and all(v is not None for v in values):
        return sum(v for v in values if v is not None), parts
    return (number(total) if not values and isinstance(total, int | float) else None), parts


def _finish(stop: Any, truncated: bool, completed: bool) -> Finish | None:
    if stop in _TURNS:
        return "turn_limit"
    if stop in _LENGTHS or truncated:
        return "length"
    if isinstance(stop, str) and stop.endswith("error"):
        return "error"
    return "stop" if completed else None


def _v1_tokens(nodes: list[dict[str, Any]], calls: list[dict[str, Any]]) -> int | None:
    # the mask says which tokens were sampled; without one, what the calls report
    masks = [n["mask"] for n in nodes if isinstance(n.get("mask"), list)]
    sampled = sum(x is True for mask in masks for x in mask)
    if sampled:
        return sampled
    used = [mapping(c.get("usage")).get("completion_tokens") for c in calls]
    return sum(x for x in used if isinstance(x, int) and 0 < x < 2**40) or None


def _v1_numbers(nodes: list[dict[str, Any]]) -> dict[str, float | None]:
    """Means over the sampled tokens of logprobs and entropies; the advantage where all tokens share one."""

    def floats(key: str) -> list[float]:
        lists = [n[key] for n in nodes if n.get("sampled") is True and isinstance(n.get(key), list)]
        return [float(x) for xs in lists for x in xs if isinstance(x, int | float)]

    logprobs, entropies, advantages = floats("logprobs"), floats("entropies"), set(floats("advantages"))
    return {
        "mean_logprob": sum(logprobs) / len(logprobs) if logprobs else None,
        "entropy": sum(entropies) / len(entropies) if entropies else None,
        "advantage": advantages.pop() if len(advantages) == 1 else None,
    }


IMPORTER = Verifiers()
