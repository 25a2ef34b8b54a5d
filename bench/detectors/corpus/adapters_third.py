"""Sources of split heldout3 that no importer reads, as plain JSONL. See adapters_code.py for the form.

Fields of the source stand in the records under the source's own names; none is read here as a fault or a hack."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from bench.detectors.corpus.adapters_code import Files, Record, lines

CURVES = ("f", "g", "correctness_f", "compilable_g")
BLOCK = re.compile(r"```(\w*)[^\n]*\n(.*?)```", re.DOTALL)


def autogen(files: Files) -> Iterator[Record]:
    """Two-agent chats on HumanEval: a proxy runs every block that the model writes and sends back what it printed."""
    for path, content in files:
        _, _, task, trial, _ = path.split("/")
        turns: list[Record] = []
        for m in json.loads(content)["user_proxy"]:
            text = m["content"] or ""
            ran = re.match(r"exitcode: (-?\d+)", text)
            if m["role"] == "assistant":
                turns.append({"role": "assistant", "content": text})
            elif ran and turns:
                turns[-1]["tool_calls"] = [
                    {"name": lang or "python", "arguments": code, "ok": ran[1] == "0"}
                    for lang, code in BLOCK.findall(turns[-1]["content"])
                ]
                turns.append({"role": "tool", "content": text})
            else:
                turns.append({"role": "user", "content": text})
        passed = any("ALL TESTS PASSED !#!#" in t["content"] for t in turns if t["role"] == "tool")
        yield {
            "task": task,
            "k": int(trial),
            "turns": turns,
            "policy": path.split("-results/")[0],
            "reward": float(passed),
            "correct": passed,
            "detail": {"key": path},
        }


def robot(files: Files) -> Iterator[Record]:
    """A robot dog with a shell: each line an event; images are left out."""
    for path, content in files:
        turns: list[Record] = []
        last, model = "", ""
        for _, r in lines(content):
            model = model or (re.findall(r"model= (\S+);", r["message"]) or [""])[0]
            event, last = r.get("event"), r["message"] if r["level"] == "ERROR" else ""
            if event in {"system_message", "user_message"}:
                turns.append({"role": event.partition("_")[0], "content": _said(r["user_payload"]["content"])})
            elif event == "assistant_message":
                turns.append({"role": "assistant", "content": r["assistant_payload"].get("content") or ""})
            elif event == "tool_call":
                call = {"name": r["tool"], "arguments": r.get("args") or {}}
                if turns[-1]["role"] != "assistant":
                    turns.append({"role": "assistant", "content": ""})
                turns[-1].setdefault("tool_calls", []).append(call)
                turns.append({"role": "tool", "content": str(r.get("result") or "")})
        _, group, run, *_ = path.split("/")
        yield {
            "task": f"patrol/{group}",
            "turns": turns,
            "policy": model,
            "run": run,
            "reward": None,
            "detail": {"key": path},
            **({"error": last} if "Shutdown" not in last and last else {}),
        }


def _said(content: Any) -> str:
    """Text of a message whose content is text, or parts of which some are images."""
    if isinstance(content, str):
        return content
    return "\n".join(p.get("text") or "[image]" for p in content)


def gptoss_graders(files: Files) -> Iterator[Record]:
    """Functions to write beside a grader that the prompt shows: thoughts, then the answer."""
    for path, content in files:
        for n, r in enumerate(json.loads(content), 1):
            yield {
                "task": f"grader-{r['prompt_idx']}",
                "k": r["rollout_idx"],
                "prompt": r["prompt"],
                "text": f"<think>\n{r['thinking']}\n</think>\n{r['actual']}",
                "policy": "gpt-oss-20b",
                "reward": None,
                "detail": {"key": f"{path}#{n}"},
            }


def chats(files: Files) -> Iterator[Record]:
    """Rows of `messages`: one question, one answer. A system prompt in front was added later, for fine-tuning."""
    for path, content in files:
        for n, r in lines(content):
            asked, said = (m["content"] for m in r["messages"][-2:])
            yield {
                "task": f"{path.rsplit('/', 1)[-1]}#{n}",
                "prompt": asked,
                "text": said,
                "reward": None,
                "detail": {"key": f"{path}#{n}"},
            }


def ldb(files: Files) -> Iterator[Record]:
    """HumanEval and MBPP solutions by models that debug along visible tests; solved by the hidden ones."""
    for path, content in files:
        for n, r in lines(content):
            yield {
                "task": str(r["task_id"]),
                "prompt": r["prompt"],
                "text": f"```python\n{r.get('solution') or ''}\n```",
                "policy": "/".join(path.split("/")[2:]).removesuffix(".jsonl").removesuffix("/results"),
                "reward": float(bool(r["is_solved"])),
                "correct": bool(r["is_solved"]),
                "detail": {"key": f"{path}#{n}", "test": r.get("test", ""), "given_tests": r.get("given_tests") or []},
            }


def cot_monitor(files: Files) -> Iterator[Record]:
    """Answers, and rows of a model that judges whether an aside in the prompt moved them (1 yes, 0 no). Many answers
    were judged twice, as the first reply was empty: each row is a record, and each answer without a row."""
    rows: dict[tuple[str, int], list[Record]] = {}
    for path, content in files:
        name = path.rsplit("/", 1)[-1]
        if path.startswith("monitor_results/"):
            for n, r in lines(content):
                kept = {k: v for k, v in r.items() if k.startswith("monitor_")}
                reward = {"YES": 1.0, "NO": 0.0}.get(r["monitor_prediction"])
                rows.setdefault((name, r["sample_id"]), []).append(
                    {"reward": reward, "detail": {"key": f"{path}#{n}"}, **kept}
                )
            continue
        for n, r in lines(content):
            for judged in rows.get((name, r["sample_id"]), [{"reward": None, "detail": {"key": f"{path}#{n}"}}]):
                yield {
                    "task": name.removesuffix(".jsonl"),
                    "prompt": r["prompt"],
                    "text": r["raw_response"],
                    "policy": r["model"],
                    **judged,
                }


def math_steps(files: Files) -> Iterator[Record]:
    """Answers of one checkpoint of an RL run to competition problems."""
    for path, content in files:
        step = re.search(r"step_(\d+)", path)
        for n, r in lines(content):
            right = str(r["correct"]) == "True"
            yield {
                "task": r["id"],
                "prompt": r["problem"],
                "text": r["response"],
                "step": int(step[1]) if step else 0,
                "reward": float(right),
                "correct": right,
                "detail": {"key": f"{path}#{n}", "answer": r["answer"]},
            }


def curves(files: Files) -> Iterator[Record]:
    """Learning curves of RL on LeetCode: one row a step with the mean reward, f (all tests) and g (a proxy)."""
    for path, content in files:
        for n, r in lines(content):
            yield {
                "task": "leetcode",
                "text": "",
                "policy": path.removeprefix("outputs/").removesuffix("/metrics.jsonl"),
                "step": r["step"],
                "reward": r.get("reward/mean"),
                "components": {
                    k.partition("/")[2]: v
                    for k, v in r.items()
                    if re.fullmatch(r"reward/(?:f|g|correctness_f|compilable_g)", k)
                },
                "detail": {"key": f"{path}#{n}"},
            }
