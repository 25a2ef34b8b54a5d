"""NeMo-Gym rollouts: JSON lines in the Responses shape.

Each line: responses_create_params (input items, or a string), response.output items (message, function_call,
function_call_output, reasoning), reward, and what a resources server or agent adds: `resolved`, instance ids, validity
fields (mask_sample, error_kind, *_timed_out, evaluation_completed), `_ng_task_index`, `_ng_rollout_index`, agent_ref.
`agent_error_kind` tells how the agent's own loop ended and is no fault by itself: NeMo-Gym says so with mask_sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evotrainer.importers import chat
from evotrainer.importers.base import Fault, LogFormat, Skipped, Source, task_of
from evotrainer.importers.common import SWE_TASK, kind_of, listing, mapping, verdict, word
from evotrainer.importers.faults import silence
from evotrainer.importers.jsonl import RecordReader
from evotrainer.importers.lenient_json import from_text, number, text
from evotrainer.importers.lines import records
from evotrainer.records.rollout import Finish, Rollout, Turn

_ENDS: dict[str, tuple[Finish | None, Fault | None]] = {
    "user_stop": ("stop", None),
    "agent_stop": ("stop", None),
    "max_steps": ("turn_limit", None),
    "too_many_errors": ("error", None),
    "agent_error": ("error", None),
    "timeout": (None, "timeout"),
    "infrastructure_error": (None, "container"),
    "unexpected_error": (None, "other"),
    "user_error": (None, "model_api"),
}
"""Why an episode of the tau2 agent ended; the simulated user's failure is its server's."""
_TASKS = ("instance_id", "task_id", "id", "uuid", "task_idx", "provenance_id", "source_id")
_ANSWERED = frozenset(
    {"response", "reward", "model_patch", "resolved", "mask_sample", "error_kind", "result", "policy_response"}
)
"""Fields of which a rollout has one at least."""
_DROP = frozenset({"responses_create_params", "response", "reward", "instance_config", "config"})


class NemoGym(LogFormat):
    """The importer of NeMo-Gym's rollouts."""

    name = "nemo_gym"
    about = "NeMo-Gym rollouts (JSON lines): responses_create_params, response.output, reward, validity fields"
    asked = 30
    by_lines = True

    def recognises(self, source: Source) -> bool:
        """An object with a request and a response in the Responses shape."""
        r = source.first
        return isinstance(r, dict) and isinstance(r.get("responses_create_params"), dict) and "response" in r

    def read(self, path: Path) -> Iterator[Rollout | Skipped]:
        """One rollout a line."""
        reader = RecordReader(path, has_text=False)
        return records(path, lambda r, n: _rollout(reader, r, n), constants=True)


def _rollout(reader: RecordReader, r: dict[str, Any], n: int) -> Rollout | str:
    params, response = mapping(r.get("responses_create_params")), mapping(r.get("response"))
    if not params and not response and not isinstance(r.get("policy_response"), str):
        return "it has neither request nor response"
    # files of materialised inputs stand beside the rollouts that were made from them
    if not _ANSWERED & r.keys():
        return "a prompt without a response or a reward: an input, no rollout"
    turns, prompt = _turns(r, params, response)
    tokens, logprobs = _sampled(response.get("output"))
    task = _task(r, params) or (task_of(prompt) if prompt else "")
    if not task:
        return "it names no task and has no prompt"
    kind, error = _fault(r, response)
    resolved = next((x for x in (r.get("resolved"), _report(r).get("resolved")) if isinstance(x, bool)), None)
    if resolved is None and (solved := number(_graded(r).get("reward"))) is not None:
        resolved = abs(solved - 1) < 1e-6  # tau2's own threshold
    agent, model = mapping(r.get("agent_ref")).get("name"), response.get("model") or params.get("model")
    policy = model if isinstance(model, str) else ""
    # the index of the task in the data decides: a name may be that of a row, and several data sets use the same ones
    at = r.get("_ng_task_index")
    record = {
        "task": task,
        "reward": r.get("reward"),
        "components": _components(r),
        "outcome": verdict(resolved),
        "finish": _finish(r, response),
        "policy": policy,
        "group": f"{reader.path.name}#{agent if isinstance(agent, str) else ''}#{policy}"
        f"#{at if chat.is_int(at) else task}",
        "k": r.get("_ng_rollout_index"),
        "tokens": tokens or mapping(response.get("usage")).get("output_tokens") or None,
        "mean_logprob": sum(logprobs) / len(logprobs) if logprobs else None,
        "error": error,
        "error_kind": kind,
        "detail": _detail(r, params),
    }
    return reader.rollout({k: v for k, v in record.items() if v is not None}, n, turns)


def _turns(r: dict[str, Any], params: dict[str, Any], response: dict[str, Any]) -> tuple[tuple[Turn, ...], str]:
    """(turns, the prompt's text); a call and the words before it are one turn."""
    talk = chat.Conversation()
    if isinstance(params.get("instructions"), str):
        talk.add_turn("system", params["instructions"])
    given = params.get("input")
    chat.add(talk, given if isinstance(given, str) else _items(given))
    if not talk.turns() and (problem := mapping(params.get("metadata")).get("problem_statement")):
        talk.add_turn("user", text(problem))
    prompt = "\n".join(t.text for t in talk.turns())
    output = response.get("output")
    chat.add(talk, output if isinstance(output, str) else _items(output))
    if not output and isinstance(patch := r.get("model_patch"), str) and patch:
        talk.add_turn("assistant", patch)  # a patch that was only verified
    if not response and isinstance(response_text := r.get("policy_response"), str):
        talk.add_turn("assistant", response_text)
    return talk.turns(), prompt


def _items(items: Any) -> list[dict[str, Any]]:
    """Responses items, each with the tokens that were sampled for it; those of one step may be a list."""
    flat = [x for item in listing(items) for x in (item if isinstance(item, list) else [item]) if isinstance(x, dict)]
    return [x | {"tokens": len(listing(x.get("generation_token_ids"))) or None} for x in flat]


def _sampled(output: Any) -> tuple[int, list[float]]:
    """Tokens and log-probabilities of a response; what the request holds was sampled in an earlier turn, if at all."""
    items = _items(output)
    logprobs = [x for item in items for x in listing(item.get("generation_log_probs")) if isinstance(x, int | float)]
    return sum(item["tokens"] or 0 for item in items), list(map(float, logprobs))


def _task(r: dict[str, Any], params: dict[str, Any]) -> str:
    """The task's own name where one is given, else its index in the data."""
    task = mapping(r.get("task"))
    domain = mapping(r.get("config")).get("domain")
    if isinstance(task.get("id"), str | int):
        return f"{domain}/{task['id']}" if isinstance(domain, str) else str(task["id"])
    for place in (r, mapping(params.get("metadata")), mapping(r.get("metadata")), mapping(r.get("verifier_metadata"))):
        for key in _TASKS:
            if isinstance(place.get(key), str | int) and place[key] != "":
                return str(place[key])
    return str(r["_ng_task_index"]) if chat.is_int(r.get("_ng_task_index")) else ""


def _fault(r: dict[str, Any], response: dict[str, Any]) -> tuple[Fault | None, str | None]:
    """Class and words of an infrastructure fault, by the record's own validity fields."""
    # any field of that ending: resources servers name it after their own phase
    timed_out = [k for k in r if k.endswith("timed_out") and r[k] is True]
    if isinstance(kind := r.get("error_kind"), str) and kind:
        return kind_of(kind), f"error_kind {kind}" + (f": {r['error']}" if isinstance(r.get("error"), str) else "")
    if timed_out:
        return "timeout", ", ".join(timed_out)
    if r.get("mask_sample") is True or mapping(r.get("instance_config")).get("mask_sample") is True:
        why = r.get("agent_error_kind")
        return "masked", "mask_sample" + (f": {why}" if isinstance(why, str) and why != "other" else "")
    end = mapping(r.get("result")).get("termination_reason")
    if isinstance(end, str) and end in _ENDS and (fault := _ENDS[end][1]):
        return fault, f"termination_reason {end}"
    # a patch that does not apply cannot be evaluated: that is the policy's doing, not the judge's
    if r.get("evaluation_completed") is False and r.get("patch_applied") is not False:
        return "judge", ": ".join(filter(None, ("the evaluation did not complete", word(r.get("error")))))
    if (error := response.get("error")) and response.get("status") not in ("completed", "incomplete"):
        return "model_api", text(error)
    if response.get("status") == "cancelled":
        return "cancelled", "the response was cancelled"
    judged = r["judge_evaluations"] if "reward" in r and isinstance(r.get("judge_evaluations"), list) else []
    if any(e is None for e in judged):
        return "judge", "a judge's reply is missing"
    if number(r["reward"] if judged else None) == 0.0:
        if silent := next((s for e in judged if isinstance(e, dict) and (s := silence(e))), None):
            return "judge", f"a judge's reply is {silent}"
        if any(map(_undecided, judged)):
            return "judge", "a judge's reply ends without a verdict"
    return None, None


_VERDICT = re.compile(r"\[\[|\\boxed|judge?ment:|^\W*(?:in)?correct\b", re.IGNORECASE)


def _undecided(evaluation: Any) -> bool:
    """Is it of a resources server that keeps no verdict beside the reply (math_with_judge: `[[A=B]]`,
    math_with_autograder: `\\boxed{Correct}`), and the reply without one?"""
    if not isinstance(evaluation, dict) or not evaluation.keys() <= {"responses_create_params", "response"}:
        return False
    texts = "".join(text(mapping(x).get("content")) for x in listing(mapping(evaluation.get("response")).get("output")))
    return bool(texts.strip()) and not _VERDICT.search(texts)


def _finish(r: dict[str, Any], response: dict[str, Any]) -> Finish | None:
    end = mapping(r.get("result")).get("termination_reason")
    if isinstance(end, str) and end in _ENDS:
        return _ENDS[end][0]
    if reason := mapping(response.get("incomplete_details")).get("reason"):
        return chat.finish(reason)
    own = r.get("agent_error_kind")
    if isinstance(own, str) and "iteration" in own:
        return "turn_limit"
    if isinstance(own, str) and "context" in own:
        return "length"
    return chat.finish(response.get("status"))


def _report(r: dict[str, Any]) -> dict[str, Any]:
    """The SWE-bench report of the record's instance."""
    reports = mapping(mapping(r.get("metadata")).get("eval_report"))
    return mapping(next(iter(reports.values()), None)) if len(reports) == 1 else reports


def _graded(r: dict[str, Any]) -> dict[str, Any]:
    return mapping(mapping(r.get("result")).get("reward_info"))


def _components(r: dict[str, Any]) -> dict[str, float | None]:
    parts = mapping(_graded(r).get("reward_breakdown"))
    own = {k: r[k] for k in r if k.endswith("_reward") or k.startswith("reward_")}
    return {str(k): number(v) for k, v in {**parts, **own}.items() if isinstance(v, int | float)}


def _detail(r: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """The rest of the record, the gold patch and the tests of a SWE task under their usual names."""
    instance = from_text(mapping(params.get("metadata")).get("instance_dict"))
    out = {SWE_TASK[key]: value for key, value in mapping(instance).items() if key in SWE_TASK}
    out = {key: value for key, value in r.items() if key not in _DROP} | out
    if isinstance(result := out.get("result"), dict):  # the turns and the prompt once more
        out["result"] = {k: v for k, v in result.items() if k not in ("messages", "ticks", "policy")}
    if (report := _report(r)).get("tests_status"):
        out["tests"] = report["tests_status"]
    if isinstance(tools := params.get("tools"), list):
        out["tools"] = [t["name"] for t in tools if isinstance(t, dict) and isinstance(t.get("name"), str)]
    if not out.get("task") and isinstance(name := mapping(r.get("agent_ref")).get("name"), str):
        out["agent"] = name
    return out


IMPORTER = NemoGym()
