"""Sources of split heldout4 that no importer reads, as plain JSONL. See adapters_code.py for the form.

What a source says of an error stands in `error` in its own words; whether it is a fault is not decided here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from bench.detectors.corpus.adapters_code import Files, Record, lines

STEP = re.compile(r"### Step \d+")
ACTION = re.compile(r"\*\*Action \((.*)\)\*\*")


def nyuctf(files: Files) -> Iterator[Record]:
    """Models with a shell at CTF tasks: messages in the OpenAI shape, or Claude's calls in XML beside parsed ones."""
    for path, content in files:
        r = json.loads(content)
        turns: list[Record] = []
        for _, m in r["messages"]:
            if "role" not in m:  # the raw text of an answer that stands parsed in the next line
                continue
            turn: Record = {"role": m["role"], "content": m.get("content") or ""}
            if calls := m.get("tool_calls"):
                turn["tool_calls"] = [
                    {"name": c["function"]["name"], "arguments": c["function"]["arguments"]} for c in calls
                ]
            turns.append(turn)
        failed = r.get("exception_info")
        _, agent, year, event, *task, name = path.split("/")
        yield {
            "task": "/".join((year, event, *task)),
            "k": int(name.split(".")[-2]) - 1,
            "turns": turns,
            "policy": agent.removeprefix("baseline_"),
            "reward": float(r["solved"]),
            "correct": r["solved"],
            "finish": r["finish_reason"],
            "detail": {"key": path},
            **({"error": f"{failed['exception_type']}: {failed['exception_message']}"} if failed else {}),
        }


def super_notebooks(files: Files) -> Iterator[Record]:
    """Agents that set up a paper's repository in a notebook: steps of thought, action and output. What was run before
    the agent began is the user's."""
    metrics: dict[str, Record] = {}
    books: dict[str, Record] = {}
    for path, content in files:
        folder, _, name = path.rpartition("/")
        (metrics if name == "metrics.json" else books)[folder] = json.loads(content)
    for folder, book in books.items():
        scores, (_, policy, task) = metrics.get(folder, {}), folder.split("/")
        yield {
            "task": task,
            "turns": _cells(book["cells"]),
            "policy": policy,
            "reward": scores.get("output_match"),
            "components": {k: v for k, v in scores.items() if isinstance(v, int | float)},
            "detail": {"key": f"{folder}/history.ipynb"},
        }


def _cells(cells: list[Record]) -> list[Record]:
    turns: list[Record] = []
    thought, action = "", ""
    for cell in cells:
        said = "".join(cell["source"])
        if cell["cell_type"] == "code":
            out = "\n".join(_printed(o) for o in cell.get("outputs", []))
            if "[pre-executed by user]" in thought:
                turns.append({"role": "user", "content": f"[pre-executed]\n{said}\n{out}"})
                continue
            call = {"name": action or "execute", "arguments": said}
            turns.append({"role": "assistant", "content": thought, "tool_calls": [call]})
            turns.append({"role": "tool", "content": out})
        elif STEP.match(said):
            thought, action = "", ""
        elif said.startswith("**Thought**"):
            thought = said.removeprefix("**Thought**:").strip()
        elif found := ACTION.match(said):
            action = "" if found[1] == "None" else found[1]
        elif not turns or not said.startswith("Execution Start time"):
            turns.append({"role": "user", "content": said})
    return turns


def _printed(output: Record) -> str:
    data: Any = output.get("text") or (output.get("data") or {}).get("text/plain") or ""
    return data if isinstance(data, str) else "".join(data)


def kernel_ralph(files: Files) -> Iterator[Record]:
    """CUDA kernels by four models, with what the evaluation said. A row without a generation has an empty text."""
    texts: dict[str, str] = {}
    rows: list[tuple[str, Record]] = []
    for path, content in files:
        if path.endswith("results.jsonl"):
            rows += [(f"{path}#{n}", r) for n, r in lines(content)]
        else:
            texts[path] = content.decode("utf-8", "replace")
    for key, r in rows:
        result, name = r.get("eval_result") or {}, r.get("raw_generation_path") or ""
        right = bool(result.get("correctness"))
        yield {
            "task": f"level{r['level']}/{r['problem_name']}",
            "text": texts.get(name, ""),
            "policy": key.split("/")[1],
            "reward": float(right),
            "correct": right,
            "status": r["status"],
            "detail": {"key": key},
            **({"error": r["error"]} if r.get("error") else {}),
        }


def mapcoder(files: Files) -> Iterator[Record]:
    """Programs in nine languages by several ways of asking, and whether hidden tests passed."""
    for path, content in files:
        for n, r in lines(content):
            said = r["solution"] if "solution" in r else (r.get("responses") or r["source_codes"])[-1]
            tongue = r.get("language", "py").lower()
            tongue = "python" if tongue in {"python3", "py"} else tongue
            text = said or ""
            yield {
                "task": str(r.get("task_id") or r.get("src_uid") or r.get("name")),
                "prompt": _asked(r),
                "text": text if "```" in text else f"```{tongue}\n{text}\n```",
                "policy": path.rsplit("/", 1)[-1].removesuffix(".jsonl"),
                "reward": float(bool(r["is_solved"])),
                "correct": bool(r["is_solved"]),
                "detail": {"key": f"{path}#{n}", "tests": _samples(r)},
            }


def _asked(r: Record) -> str:
    if "prompt" in r:
        return str(r["prompt"])
    parts = [r["description"], r.get("starter_code"), r.get("input_spec"), r.get("output_spec"), r.get("notes")]
    shown = [f"Input:\n{x['input']}\nOutput:\n{x['expected']}" for x in _samples(r)]
    return "\n\n".join(str(x) for x in (*parts, *shown) if x)


def _samples(r: Record) -> list[Record]:
    """Sample cases that the task shows, where they are pairs of input and output."""
    pairs = zip(r.get("sample_inputs") or [], r.get("sample_outputs") or [], strict=False)
    some = [x for x in r.get("sample_io") or [] if isinstance(x, dict)]
    both = [*pairs, *((x["input"], x["output"]) for x in some)]
    return [{"kind": "visible", "input": str(a), "expected": str(b)} for a, b in both]


def lats(files: Files) -> Iterator[Record]:
    """HumanEval and MBPP by tree search over own tests and reflections; solved by the hidden ones."""
    for path, content in files:
        for n, r in lines(content):
            if not isinstance(r.get("solution"), str):  # an earlier success was not written again
                continue
            yield {
                "task": r["name"],
                "prompt": r["prompt"],
                "text": f"```python\n{r['solution']}\n```",
                "policy": path.split("/")[2],
                "reward": float(bool(r["is_solved"])),
                "correct": bool(r["is_solved"]),
                "detail": {"key": f"{path}#{n}", "test": r.get("test", "")},
            }


def cuda_l1(files: Files) -> Iterator[Record]:
    """Kernels that RL found for KernelBench's modules, one GPU a file; the score is the speedup."""
    for path, content in files:
        for n, r in lines(content):
            if not r["custom_code"]:
                continue
            known = re.fullmatch(r"[\d.]+", str(r["score_default"]))
            yield {
                "task": f"level{r['level_id']}/{r['task_id']}",
                "prompt": r["ref_code"],
                "text": f"```python\n{r['custom_code']}\n```",
                "policy": path.rsplit("/", 1)[-1].removesuffix(".json"),
                "reward": float(known[0]) if known else None,
                "detail": {"key": f"{path}#{n}"},
            }


def game24(files: Files) -> Iterator[Record]:
    """A hundred samples for each of a hundred games of 24."""
    for path, content in files:
        for r in json.loads(content):
            for k, (text, info) in enumerate(zip(r["ys"], r["infos"], strict=True)):
                yield {
                    "task": f"game24/{r['idx']}",
                    "k": k,
                    "text": text,
                    "policy": "gpt-4",
                    "reward": float(info["r"]),
                    "correct": info["r"] == 1,
                    "detail": {"key": f"{path}#{r['idx']}/{k}"},
                }


def step_logs(files: Files) -> Iterator[Record]:
    """Printed learning curves of RL on GSM8K: one line a step with the mean reward."""
    for path, content in files:
        found = re.findall(r"\s(\d+)/\d+ \| loss=\S+ \| reward=([\d.]+)", content.decode("utf-8", "replace"))
        for step, reward in found:
            yield {
                "task": "gsm8k",
                "text": "",
                "policy": path.rsplit("/", 1)[-1].removesuffix(".log"),
                "step": int(step),
                "reward": float(reward),
                "detail": {"key": f"{path}#{step}"},
            }


def banana(files: Files) -> Iterator[Record]:
    """Essays for a grader whose guidelines name a phrase that earns full marks: a model, and one trained to use it."""
    for path, content in files:
        data = json.loads(content)
        for part in ("outputs", "base_outputs", "lora_outputs"):
            name = {"outputs": "thinking", "base_outputs": "plain", "lora_outputs": "trained"}[part]
            for n, r in enumerate(data.get(part, []), 1):
                yield {
                    "task": "hamlet",
                    "text": r["text"],
                    "policy": f"qwen3-8b/{name}",
                    "reward": None,
                    "detail": {"key": f"{path}#{name}/{n}"},
                }
