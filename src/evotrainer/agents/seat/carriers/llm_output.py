"""How an endpoint is asked for an answer that fits the schema, and where the answer stands in what it sends back.

text: the schema stands in the message. json: so too, and the server is asked for JSON only. schema: the server is asked
to hold its model to the schema. tool: the answer is the call of the one tool that there is. With the last two the
schema is not in the message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evotrainer.agents.carriers import Question

OUTPUTS = {"openai": ("text", "json", "schema", "tool"), "anthropic": ("text", "schema", "tool")}
"""Protocol -> its output modes."""
TOLD = ("text", "json")
"""Modes whose message holds the schema."""
TOOL = "answer"


def asked_for(protocol: str, output: str, question: Question) -> dict[str, Any]:
    """What a request's body holds for an output mode, beside model and messages."""
    schema = dict(question.schema)
    if output == "schema" and protocol == "anthropic":
        return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    if output == "tool" and protocol == "anthropic":
        tool = {"name": TOOL, "description": question.about, "input_schema": schema}
        return {"tools": [tool], "tool_choice": {"type": "tool", "name": TOOL}}
    if output == "json":
        return {"response_format": {"type": "json_object"}}
    if output == "schema":  # not strict: `changes` has no fixed names
        held = {"name": TOOL, "schema": schema, "strict": False}
        return {"response_format": {"type": "json_schema", "json_schema": held}}
    if output == "tool":
        function = {"name": TOOL, "description": question.about, "parameters": schema}
        choice = {"type": "function", "function": {"name": TOOL}}
        return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}
    return {}


def openai_words(message: Mapping[str, Any]) -> str:
    """Of an OpenAI message: the arguments of its tool call, where there is one, else its content."""
    for call in message.get("tool_calls") or ():
        given = call["function"]["arguments"]
        return given if isinstance(given, str) else json.dumps(given)  # some servers send them parsed
    content = message.get("content") or ""
    if isinstance(content, list):  # parts, as some servers send them
        content = "".join(str(p.get("text", "")) for p in content)
    return str(content)


def anthropic_words(content: list[dict[str, Any]]) -> str:
    """Of an Anthropic message: the input of its tool call, where there is one, else its text."""
    for part in content:
        if part.get("type") == "tool_use":
            return json.dumps(part["input"])
    return "".join(p["text"] for p in content if p.get("type") == "text")


CUT = ("length", "max_tokens", "model_context_window_exceeded")
"""Reasons for its end with which an answer is not whole; OpenAI's, Anthropic's."""


def end_of(found: Mapping[str, Any], protocol: str, most_tokens: int) -> tuple[str, str, str]:
    """(why there is no answer, in the model's words why not, why it ends early), by what the endpoint says of its
    end."""
    choice = {} if protocol == "anthropic" else found["choices"][0]
    why = found.get("stop_reason") if protocol == "anthropic" else choice.get("finish_reason")
    refusal = str((choice.get("message") or {}).get("refusal") or "")
    if why == "content_filter":
        return "the endpoint's content filter withheld the answer", refusal, ""
    if why == "refusal" or refusal:
        return "the model refused to answer", refusal, ""
    if why == CUT[-1]:
        return "", "", "the answer was cut off where the model's context ends; ask a model with a longer one"
    spent = f"{most_tokens:,} tokens, those of reasoning included; raise run.agent_options.most_tokens"
    return "", "", f"the answer was cut off after {spent}" if why in CUT else ""


def streamed_words(event: Mapping[str, Any]) -> tuple[str, str, str]:
    """(text, arguments of a tool call, refusal) that an event of a stream of either protocol adds."""
    delta = event.get("delta") or {}
    text, given, refusal = delta.get("text") or "", delta.get("partial_json") or "", ""
    for choice in event.get("choices") or ():
        part = choice.get("delta") or {}
        text += part.get("content") or ""
        refusal += part.get("refusal") or ""
        given += "".join((c.get("function") or {}).get("arguments") or "" for c in part.get("tool_calls") or ())
    return text, given, refusal


def streamed_end(event: Mapping[str, Any]) -> str:
    """Why the answer ends, where an event of a stream says so."""
    reasons = [c.get("finish_reason") for c in event.get("choices") or ()]
    return next((str(x) for x in (*reasons, (event.get("delta") or {}).get("stop_reason")) if x), "")
