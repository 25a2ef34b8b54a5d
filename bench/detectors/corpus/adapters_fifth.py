"""Sources of split heldout5 that no importer reads, as plain JSONL. See adapters_code.py for the form.

What a source says of an error stands in `error` in its own words; whether it is a fault is not decided here."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

from bench.detectors.corpus.adapters_code import Files, Record, lines

STEP = re.compile(r"^Tool Used: (.*)\nTool Input: (.*)\nTool Result: ", re.MULTILINE)
NEXT = re.compile(r"^(?:Tool Response: Response\(id=|Error in get_response_withtools: )", re.MULTILINE)
SAID = re.compile(r"ResponseOutputText\(annotations=\[.*?\], text=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
USE = re.compile(r"<tool_use>\s*\{'tool_name': '?(\w+)'?, 'tool_input': (.*)\}\s*</tool_use>", re.DOTALL)


def algotune(files: Files) -> Iterator[Record]:
    """Programs that agents handed in for numerical tasks, to be right and fast: one folder a model and task."""
    asked: dict[str, str] = {}
    written: dict[str, dict[str, str]] = {}
    for path, content in files:
        folder, _, name = path.rpartition("/")
        text = content.decode("utf-8", "replace")
        if name == "description.txt":
            asked[folder.rpartition("/")[2]] = text
        else:
            written.setdefault(folder, {})[name] = text
    for folder, sources in sorted(written.items()):
        _, policy, task = folder.split("/", 2)
        some = sorted(sources.items(), key=lambda x: (x[0] != "solver.py", x[0]))
        yield {
            "task": task,
            "prompt": asked.get(task, ""),
            "text": "\n\n".join(f"{name}\n```{_tongue(name)}\n{text}\n```" for name, text in some),
            "policy": policy,
            "reward": None,
            "detail": {"key": folder},
        }


def _tongue(name: str) -> str:
    return "cython" if name.endswith(".pyx") else "python"


def dgm_polyglot(files: Files) -> Iterator[Record]:
    """An agent at exercises in six languages whose tests it does not see: what was printed as it went."""
    verdicts: dict[str, Record] = {}
    books: list[tuple[str, str]] = []
    for path, content in files:
        if path.endswith(".json"):
            verdicts[path.removesuffix(".json")] = json.loads(content)
        elif not path.endswith("_eval.md"):
            books.append((path, content.decode("utf-8", "replace")))
    for path, text in books:
        asked, _, rest = text.partition("========== Agent Response ==========")
        said = verdicts.get(path.removesuffix(".md"), {})
        solved = said.get("eval_result") == "resolved"
        yield {
            "task": path.rpartition("/")[2].removesuffix(".md"),
            "turns": [
                {"role": "user", "content": asked.partition("========== User Instruction ==========")[2].strip()},
                *_printed(rest),
            ],
            "policy": "dgm-initial/o3-mini",
            "reward": float(solved) if said else None,
            "correct": solved if said else None,
            "detail": {"key": path, "patch": said.get("model_patch", "")},
        }


def _printed(text: str) -> list[Record]:
    """Turns of the printed run: what stands before a step is the response that led to it, as Python prints it."""
    turns: list[Record] = []
    at = 0
    for step in STEP.finditer(text):
        if step.start() < at:
            continue
        end = NEXT.search(text, step.end())
        call = {"name": step[1], "arguments": _value(step[2])}
        turns.append({"role": "assistant", "content": _words(text[at : step.start()]), "tool_calls": [call]})
        at = end.start() if end else len(text)
        turns.append({"role": "tool", "content": text[step.end() : at].strip()})
    if last := _words(text[at:]):
        turns.append({"role": "assistant", "content": last})
    return turns


def _words(printed: str) -> str:
    return "\n".join(str(ast.literal_eval(m[1])) for m in SAID.finditer(printed))


def _value(printed: str) -> Any:
    try:
        return ast.literal_eval(printed)
    except (SyntaxError, ValueError):
        return printed


def dgm_swe(files: Files) -> Iterator[Record]:
    """An agent at SWE-bench tasks: its messages as Python prints them, after the errors that the last request met."""
    books: list[tuple[str, str]] = []
    solved: set[str] | None = None
    for path, content in files:
        if path.endswith("metadata.json"):
            solved = set(json.loads(content)["overall_performance"]["total_resolved_ids"])
        else:
            books.append((path, content.decode("utf-8", "replace")))
    for path, text in books:
        task = path.rpartition("/")[2].removesuffix(".md")
        right = task in (solved or ())
        start = text.index("[{'role'")
        yield {
            "task": task,
            "turns": [t for m in ast.literal_eval(text[start:].strip()) for t in _message(m)],
            "policy": "dgm-initial/claude-3.5-sonnet",
            "reward": float(right),
            "correct": right,
            "detail": {"key": path},
            **({"error": text[:start].splitlines()[-1]} if start else {}),
        }


def _message(message: Record) -> Iterator[Record]:
    content = message["content"]
    text = content if isinstance(content, str) else "\n".join(x["text"] for x in content if x["type"] == "text")
    if message["role"] == "user":
        done = text.startswith("Tool Result: ")
        yield {"role": "tool" if done else "user", "content": text.removeprefix("Tool Result: ")}
        return
    turn: Record = {"role": "assistant", "content": text}
    if use := USE.search(text):
        turn["content"] = text[: use.start()].strip()
        turn["tool_calls"] = [{"name": use[1], "arguments": _value(use[2])}]
    yield turn


def tora(files: Files) -> Iterator[Record]:
    """Grade-school maths by models that write a program, see its output and answer."""
    for path, content in files:
        for n, r in lines(content):
            right = _number(r["pred"][0]) == _number(r["gt"])
            yield {
                "task": f"gsm8k/{r['idx']}",
                "prompt": r["question"],
                "text": r["code"][0],
                "policy": path.split("/")[3],
                "reward": float(right),
                "correct": right,
                "detail": {"key": f"{path}#{n}"},
            }


def _number(said: Any) -> float | str:
    try:
        return round(float(str(said).replace(",", "")), 4)
    except ValueError:
        return str(said)


def llm_drift(files: Files) -> Iterator[Record]:
    """Easy LeetCode problems by four models of 2023, and what LeetCode said of the answer without its fence."""
    for path, content in files:
        for n, r in enumerate(csv.DictReader(io.StringIO(content.decode("utf-8", "replace"))), 1):
            right = "Accepted" in r["Clean_Code_Submit"]
            text = r["answer"]
            yield {
                "task": r["id"],
                "prompt": r["query"],
                "text": text if "```" in text else f"```python\n{text}\n```",
                "policy": r["model"].rpartition("/")[2],
                "reward": float(right),
                "correct": right,
                "detail": {"key": f"{path}#{n}"},
            }


def lcb_o1(files: Files) -> Iterator[Record]:
    """LiveCodeBench by o1-preview and o1-mini; the problem shows sample cases, hidden ones decide."""
    for path, content in files:
        for r in json.loads(content):
            asked = "\n\n".join(x for x in (r["question_content"], r["starter_code"]) if x)
            for k, (text, right) in enumerate(zip(r["output_list"], r["graded_list"], strict=True)):
                yield {
                    "task": f"{r['platform']}/{r['question_id']}",
                    "k": k,
                    "prompt": asked,
                    "text": text,
                    "policy": path.split("-2024")[0],
                    "reward": float(right),
                    "correct": right,
                    "detail": {"key": f"{path}#{r['question_id']}/{k}"},
                }
