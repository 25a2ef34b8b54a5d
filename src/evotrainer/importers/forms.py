"""Formats that are rows of named columns: what each is recognised by, and which column is which field.

A row of this table is a whole importer: `rows` reads it. The fields are those of plain JSONL (`jsonl`). A column is its
name, a path into it (`steps.-1.messages`), alternatives (`gen_step|step`, the first that is there) or several that
name something together (`env_name+problem_id`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evotrainer.importers.lenient_json import number

Row = dict[str, Any]

GIVEN = " --map "
"""Between the name of a format and the user's names of columns, in the name of an importer."""


def base_name(name: str) -> str:
    """An importer's format, without the columns that the user named."""
    return name.partition(GIVEN)[0]


NUMBERS = "*"
"""Components of a form: every column of numbers that is read as nothing else."""
LISTS = "results|samples|rollouts|records|data|rows|completions"
"""Where a JSON object that holds its rows in one list has them."""


@dataclass(frozen=True)
class Form:
    """One format of rows."""

    name: str
    about: str
    fits: Callable[[Row], bool]
    """Is a file with this first row one of the form?"""
    names: Mapping[str, str]
    """Field of the plain form -> column."""
    components: str = ""
    """Columns that are reward components, joined by `+`: numbers, a mapping of numbers, names with `*`; or NUMBERS."""
    tags: tuple[str, ...] = ()
    """Columns that say to which part of the tasks a rollout belongs."""
    lists: str = ""
    """Where an object of the file has its rows: lists within lists by `.*.`, those that are there; what they stand in
    is theirs, too."""
    keyed: str = ""
    """Column that gets the key, where an object of the file may have its rows by key."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Field -> regular expression with one group over the names of the folders that the file lies in."""
    series: str = ""
    """Regular expression over the name of a file's folder, where the tool writes a folder a step: the folders beside it
    are one source."""
    summed: bool = False
    """The reward is the sum of the components, where the advantages agree (as in TRL)."""
    has_text: bool = True
    given: tuple[str, ...] = ()
    """Columns that the user named: a row without them is none."""
    one_each: bool = False
    """A file holds one attempt: groups are of the files of its folder."""
    joined: bool = False
    """A record may have its verdict in another file."""
    agent: str = ""
    """Column of an agent's name: where the rows of one object have several, each row gets its own in `as`."""
    benchmark: str = ""
    """Where tasks are numbers of rows: regular expression with one group, the benchmark, over the names of the file and
    the folder it is in, `folder/file`; the task is `benchmark/number`."""
    question: str = ""
    """Column whose hash is the benchmark where the names do not tell it: the same in all models' files of it."""
    shape: Callable[[Row], Row] | None = None
    """What a row is made into first, where columns alone do not tell it."""


def _any(r: Row, *columns: str, lists: tuple[str, ...] = ()) -> bool:
    """Has a row one of these columns, or a list in one of those?"""
    return any(c in r for c in columns) or any(isinstance(r.get(c), list) for c in lists)


def _answered(r: Row) -> Row:
    """A sample of lm-eval with its prompt, the (first) response, and the metrics. Of a choice by likelihood the
    response is the likeliest choice; the metrics of repeated responses are those of them together."""
    given = r.get("arguments") or []
    asked = [
        list(a.values()) if isinstance(a, dict) else a for a in (given.values() if isinstance(given, dict) else given)
    ]
    asked = [a if isinstance(a, list) and a else [a] for a in asked]
    first = [
        x[0] if isinstance(x, list) and len(x) == 1 else x for x in r.get("resps") or r.get("filtered_resps") or []
    ]
    likely = [number(x[0]) if isinstance(x, list) and len(x) == 2 else None for x in first]
    best, text = 0, first[0] if first else None
    if first and None not in likely:  # one (log-likelihood, is it the greedy one) a choice
        best = max(range(len(first)), key=lambda i: likely[i] or 0.0)
        text = asked[best][1] if best < len(asked) and len(asked[best]) > 1 else None
    while isinstance(text, list):
        text = text[0] if text else ""
    listed = [m for m in r.get("metrics") or () if isinstance(m, str)]
    names = listed or [k for k, v in r.items() if k not in _LM_EVAL and isinstance(v, int | float)]
    metrics = {m: v for m in names if (v := number(r.get(m))) is not None}
    out = {k: v for k, v in r.items() if k not in ("arguments", "filtered_resps") and k not in metrics}
    if out.get("filter") == "none":
        del out["filter"]
    out |= {"response": text, "scores": metrics} | ({"prompt": asked[best][0]} if best < len(asked) else {})
    if metrics:
        name, out["score"] = next(iter(metrics.items()))
        if any(word in name for word in ("match", "acc", "pass", "correct")) and out["score"] in (0, 1):
            out["verdict"] = out["score"] == 1
    return out


def _attempt(r: Row) -> Row:
    """A trajectory of an episode of rLLM with its place among the attempts, and with its agent as the policy where
    there are several; an episode that broke, or that no agent began, as a fault."""
    agent, model, at = r.get("as"), r.get("model"), str(r.get("episode_id") or "").rpartition(":")[2]
    out = {**r, "policy": f"{model} as {agent}" if agent and model else agent or model}
    if at.isdecimal():
        out["attempt_of_task"] = int(at)
    if not r.get("steps") or r.get("termination_reason") == "error":
        why = r["metadata"].get("error") if isinstance(r.get("metadata"), dict) else None
        why = why.get("error_message") if isinstance(why, dict) else why
        out["error"] = why or f"the episode has no steps (it ended with {r.get('termination_reason')})"
    return out


_LM_EVAL = frozenset({"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"})


_ATTEMPT = frozenset({"messages", "trajectory", "history", "turns", "steps", "text", "completion", "response"})
"""Fields of a record that holds the attempt itself, in whose format it is read."""


def _submitted(r: Row) -> Row:
    """A prediction of SWE-bench: the patch is all that is known of what the policy wrote."""
    if not isinstance(patch := r.get("model_patch", 0), str | None):
        return r
    kept = {k: v for k, v in r.items() if v not in (None, "")}
    columns = {"model_patch": [{"role": "assistant", "content": patch or ""}]}
    return kept | columns | ({"detail": {"patch": patch}} if patch else {})


def _form(name: str, about: str, fits: Callable[[Row], bool], names: str, **more: Any) -> tuple[str, Form]:
    """A row of the table; `names` are `field=column`, or a field whose column has its name, with spaces between."""
    columns = {x.partition("=")[0]: x.partition("=")[2] or x for x in names.split()}
    return name, Form(name, about, fits, columns, **more)


FORMS: dict[str, Form] = dict(
    (
        _form(
            "swe_bench",
            "SWE-bench predictions (all_preds.jsonl, preds.json): the submitted patch of each instance, the model",
            lambda r: "instance_id" in r and _any(r, lists=("model_patch",)) and not r.keys() & _ATTEMPT,
            "task=instance_id turns=model_patch policy=model_name_or_path correct=resolved detail",
            keyed="instance_id",
            joined=True,
            shape=_submitted,
        ),
        _form(
            "ms_swift",
            "ms-swift completions.jsonl (log_completions): a line a logging step with lists, or a line a completion",
            lambda r: {"prompt", "completion"} <= r.keys() and _any(r, "gen_step", "advantages", lists=("step",)),
            "step=gen_step|step prompt text=completion reward advantage=advantages|advantage",
            components=NUMBERS,
            summed=True,
        ),
        _form(
            "skyrl",
            "SkyRL dumped_evals/global_step_N_evals/<source>.jsonl",
            lambda r: {"input_prompt", "output_response", "score"} <= r.keys(),
            "prompt=input_prompt text=output_response reward=score finish=stop_reason",
            tags=("data_source",),
            folders={"step": r"global_step_(\d{1,12})"},
            series=r"global_step_\d+_evals",
        ),
        _form(
            "prime_hosted",
            "Prime Intellect hosted training and evaluations: JSON inside strings, problem_id, sample_id",
            lambda r: {"problem_id", "completion", "reward"} <= r.keys() and _any(r, "sample_id", "env_name"),
            "task=env_name+problem_id prompt text=completion reward step run=run_id advantage tokens=num_output_tokens "
            "error",
            components="metrics",
            tags=("env_name",),
        ),
        _form(
            "lm_eval",
            "lm-evaluation-harness samples_*.jsonl (log_samples)",
            lambda r: "doc_id" in r and _any(r, "resps", "filtered_resps"),
            "task=filter+doc_id prompt=prompt|doc.question|doc.problem|doc.prompt text=response reward=score "
            "correct=verdict split=filter",
            components="scores",
            benchmark=r"/samples_(.+?)(?:_\d{4}[\dT.:-]*)?\.jsonl?(?:\.gz)?$",
            question="doc_hash|doc",
            shape=_answered,
        ),
        _form(
            "math_eval",
            "Qwen2.5-Math evaluations and their kin: question, code, pred, score, a list each",
            lambda r: {"question", "code", "score"} <= r.keys(),
            "task=idx prompt=prompt|question text=code reward=score finish=finish_reason",
            benchmark=r"^(.+)/(?:test|train|val|dev)\w*_.*seed\d",
            question="question",
        ),
        _form(
            "reasoning_gym",
            "reasoning-gym evaluations: a JSON file a data set, its results and their completions",
            lambda r: "question" in r and _any(r, "full_model_response", "best_full_model_response"),
            "prompt=question text=full_model_response|best_full_model_response reward=score|best_score "
            "policy=model|metadata.model",
            tags=("name", "category"),
            lists="categories.*.datasets.*.results.*.completions.*",
        ),
        _form(
            "rllm",
            "rLLM episodes/{train,val}_step_N_epoch_E/episode_*.json",
            lambda r: (
                _any(r, "is_correct", "termination_reason")
                and ({"steps", "reward"} <= r.keys() or r.get("trajectories") == [])
            ),
            "task=task.uid|task.id|task.question|task.problem|task text=steps.-1.chat_completions reward "
            "correct=is_correct finish=termination_reason policy error k=attempt_of_task",
            lists="trajectories.*",
            one_each=True,
            agent="name",
            shape=_attempt,
            folders={"step": r"_step_(\d{1,12})", "split": r"^(train|val)_step"},
            series=r"(?:train|val)_step_\d+",
        ),
        _form(
            "tinker",
            "tinker-cookbook iteration_*/*_rollout_summaries.jsonl: rewards and groups; the files hold no text",
            lambda r: {"group_idx", "traj_idx", "total_reward"} <= r.keys(),
            "task=iteration+group_idx k=traj_idx step=iteration split reward=total_reward",
            components="trajectory_metrics",
            series=r"iteration_\d+",
            has_text=False,
        ),
    )
)
"""By name, in the order in which they are asked."""
