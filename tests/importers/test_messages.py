"""One form of a message, whatever shape its calls and replies come in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evotrainer.importers import chat, read
from evotrainer.importers.messages import fenced_command, written_calls
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.studies.audit import audit

COMMAND = {"command": "git rm -q tests/test_zones.py"}
WORDS = json.dumps(COMMAND)
TAGGED = f"I drop it.\n<tool_call>\n{json.dumps({'name': 'bash', 'arguments': COMMAND})}\n</tool_call>"
QWEN = (
    f"<tool_call>\n<function=bash>\n<parameter=command>\n{COMMAND['command']}\n</parameter>\n</function>\n</tool_call>"
)
SHAPES: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "bash", "arguments": WORDS}}]},
        {"role": "tool", "tool_call_id": "1", "content": "Error: busy"},
    ],
    "anthropic": [
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "they fail"}, {"type": "text", "text": "I drop it."},
            {"type": "tool_use", "id": "t1", "name": "bash", "input": COMMAND}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "is_error": True,
             "content": [{"type": "text", "text": "Error: busy"}]}]},
    ],
    "responses": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "they fail"}]},
        {"type": "function_call", "id": "fc", "call_id": "c", "name": "bash", "arguments": WORDS},
        {"type": "function_call_output", "call_id": "c", "output": "Error: busy"},
    ],
    "vercel": [
        {"role": "assistant", "content": [
            {"type": "tool-call", "toolCallId": "v", "toolName": "bash", "args": COMMAND}]},
        {"role": "tool", "content": [
            {"type": "tool-result", "toolCallId": "v", "isError": True, "result": "Error: busy"}]},
    ],
    "bedrock": [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "b", "name": "bash", "input": COMMAND}}]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "b", "content": [{"text": "Error: busy"}], "isError": True}}]},
    ],
    "bedrock status": [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "b", "name": "bash", "input": COMMAND}}]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "b", "content": [{"text": "Error: busy"}], "status": "error"}}]},
    ],
    "ai sdk 5": [
        {"role": "assistant", "content": [
            {"type": "tool-call", "toolCallId": "v", "toolName": "bash", "input": COMMAND}]},
        {"role": "tool", "content": [
            {"type": "tool-result", "toolCallId": "v", "output": {"type": "error-text", "value": "Error: busy"}}]},
    ],
    "hermes": [
        {"role": "assistant", "content": TAGGED},
        {"role": "user", "content": "<tool_response>\nError: busy\n</tool_response>"},
    ],
    "qwen coder": [{"from": "gpt", "value": QWEN}, {"from": "tool", "value": "Error: busy"}],
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_calls_and_replies_come_out_the_same_from_every_shape(shape: str) -> None:
    asked, *between, last = chat.messages(
        [{"role": "user", "content": "fix it"}, *SHAPES[shape], {"role": "assistant"}]
    )
    (call,) = [c for t in between for c in t.tool_calls]
    assert (call.name, json.loads(call.arguments), call.ok) == ("bash", COMMAND, False)
    assert [t.role for t in between] == ["assistant", "tool"] and between[1].text == "Error: busy"
    assert "[tool" not in between[0].text and (asked.role, last) == ("user", Turn("assistant", ""))


def test_a_call_among_the_blocks_and_beside_them_is_one_call() -> None:
    both = SHAPES["anthropic"][0] | SHAPES["openai"][0]
    assert len(both) == 3
    same = both | {"tool_calls": [{"id": i, "function": {"name": "bash", "arguments": "{}"}} for i in ("t1", "t2")]}
    assert [len(t.tool_calls) for m in (both, same) for t in chat.messages([m])] == [2, 2]


def test_a_call_without_an_id_that_stands_in_both_places_is_one() -> None:
    block = {"type": "tool_use", "name": "bash", "input": COMMAND}
    for given, n in ((WORDS, 1), ("{}", 2)):
        m = {
            "role": "assistant",
            "content": [block],
            "tool_calls": [{"function": {"name": "bash", "arguments": given}}],
        }
        assert len(chat.messages([m])[0].tool_calls) == n


def test_a_result_that_has_a_type_of_its_own_is_shown_whole() -> None:
    own = {"type": "errorbar", "value": 3, "unit": "cm"}
    reply = {"role": "tool", "content": [{"type": "tool_result", "tool_use_id": "1", "content": own}]}
    called, told = chat.messages([SHAPES["openai"][0], reply])
    assert "cm" in told.text and called.tool_calls[0].ok is None


def test_a_call_that_a_server_answers_in_the_same_message_comes_before_its_reply() -> None:
    use = {"type": "server_tool_use", "id": "a", "name": "web_search", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": "a", "content": []}
    said = {"type": "text", "text": "I search"}
    for content in ([use, result], [said, use, result]):
        talk = [{"role": "assistant", "content": "Well"}, {"role": "assistant", "content": content}]
        for found in (chat.messages(talk), chat.turns(talk)):
            assert [(t.role, len(t.tool_calls)) for t in found] == [("assistant", 0), ("assistant", 1), ("tool", 0)]


def test_a_shell_block_is_a_call_where_a_return_code_answers_it() -> None:
    said = {"role": "assistant", "content": "Now.\n```bash\nmake -C src\n```\nthen I look"}
    ran = chat.messages([said, {"role": "user", "content": "<returncode>2</returncode>\nno rule"}])
    assert [(c.name, c.arguments, c.ok) for c in ran[0].tool_calls] == [("bash", "make -C src", False)]
    assert ran[1].role == "tool"
    told = chat.messages([said, {"role": "user", "content": "thank you, what does -C do?"}])
    assert not told[0].tool_calls and told[1].role == "user"
    two = said["content"] + "\n```sh\nls\n```"
    assert (
        fenced_command(two) is None and fenced_command("```bash\n\n```") == "" and fenced_command("```bash\nls") is None
    )


@pytest.mark.parametrize(
    "told",
    ["Observation:\n<returncode>1</returncode>\n<output>\nx\n</output>", "<returncode>1</returncode>",
     "<exit_code>1</exit_code>",
     "<exception>KeyError</exception>\n<returncode>1</returncode>",
     "<warning>long</warning>\n<returncode>1</returncode>",
     f"<output>\n{'x' * 9999}\n</output>\n<returncode>1</returncode>"],
)  # fmt: skip
def test_a_return_code_may_stand_behind_a_header_or_tags(told: str) -> None:
    call, reply = chat.messages([{"role": "assistant", "content": "```sh\nls\n```"}, {"role": "user", "content": told}])
    assert [(c.arguments, c.ok) for c in call.tool_calls] == [("ls", False)] and reply.role == "tool"


def test_a_response_that_is_cut_off_or_stands_in_the_same_text_is_one() -> None:
    said = {"role": "assistant", "content": TAGGED}
    found = chat.messages([said, {"role": "user", "content": "<tool_response>\nError: bu"}])
    assert [(t.role, t.text, [c.ok for c in t.tool_calls]) for t in found[1:]] == [("tool", "Error: bu", [])]
    assert found[0].tool_calls[0].ok is False
    episode = {"role": "assistant", "content": f"{TAGGED}\nuser\n<tool_response>\nError: bu"}
    assert [t.role for t in chat.messages([episode])] == ["assistant", "tool"]
    (one,) = chat.messages(
        [{"role": "assistant", "content": f"{TAGGED}\n<tool_response>\nok\n</tool_response>\n{TAGGED}"}]
    )
    assert len(one.tool_calls) == 2


@pytest.mark.parametrize(
    "talk",
    [
        [
            {"role": "user", "content": f"Explain this: {TAGGED}"},
            {"role": "assistant", "content": "It removes a file."},
        ],
        [{"role": "user", "content": "Results come in <tool_response>...</tool_response>."}],
        [{"role": "user", "content": "reply with <returncode>0</returncode>"}, {"role": "assistant", "content": "ok"}],
        [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image", "source": {}}]}],
        [{"role": "assistant", "content": "The tag is `<tool_call>`, it is closed by its twin."}],
        [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "What does <tool_response> hold?"}],
        [{"role": "assistant", "content": "Template:\n<tool_call>..</tool_call>\n<tool_response>..</tool_response>\n"
                                          "Roles:\nuser\nassistant\ntool\nThat's all."}],
        [{"role": "assistant", "content": "```bash\nls\n```"},
         {"role": "user", "content": "Output was\n<returncode>1</returncode>"}],
        [{"role": "assistant", "content": "```bash\nls\n```"},
         {"role": "user", "content": "<returncode>1</returncode> what now?"}],
        [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "tool_use is a type"}]}],
    ],
)  # fmt: skip
def test_words_about_calls_are_words(talk: list[dict[str, Any]]) -> None:
    found = chat.messages(talk)
    assert not any(t.tool_calls for t in found) and [t.role for t in found] == [m["role"] for m in talk]
    assert [t.role for t in chat.turns(talk)] == [t.role for t in found]


def test_a_call_in_the_text_of_an_agent_whose_calls_are_recorded_was_not_done() -> None:
    found = chat.messages([*SHAPES["openai"], {"role": "assistant", "content": TAGGED}])
    assert [len(t.tool_calls) for t in found] == [1, 0, 0]


@pytest.mark.parametrize(
    "words",
    ["<tool_call>{'name': bash</tool_call> and </tool_call>", "<tool_call>{}</tool_call>", f"```\n{TAGGED}\n```",
     "They write `<tool_call>{\"name\": \"x\"}</tool_call>`", "x = r'<tool_call>(.*?)</tool_call>'"],
)  # fmt: skip
def test_what_is_quoted_or_names_no_tool_is_no_call(words: str) -> None:
    assert not written_calls(words) and len(written_calls(f"```\nls\n```\n{TAGGED}")) == 1


@pytest.mark.parametrize(
    "said",
    [f"```\n{TAGGED}\n```", f"```xml\n{QWEN}\n```\n", f"Rather:\n```python\nx = 1\n\n{TAGGED}", f"`f is wrong. {QWEN}"],
)
def test_a_quoted_call_that_a_tool_answers_was_run(said: str) -> None:
    asked = [{"role": "user", "content": "fix it"}, {"role": "assistant", "content": said}]
    for reply in (SHAPES["hermes"][1], {"role": "tool", "content": "Error: busy"}):
        found = chat.messages([*asked, reply, {"role": "assistant", "content": "Done."}])
        assert [(t.role, len(t.tool_calls)) for t in found[1:]] == [("assistant", 1), ("tool", 0), ("assistant", 0)]
        assert json.loads(found[1].tool_calls[0].arguments) == COMMAND and found[1].tool_calls[0].ok is False
    for after in ([], [{"role": "user", "content": "and what does it do?"}, {"role": "assistant", "content": "It .."}]):
        assert said[:3] != "```" or not any(t.tool_calls for t in chat.messages([*asked, *after]))


def test_a_call_that_ends_a_conversation_without_replies_is_an_answer() -> None:
    assert not chat.messages([{"role": "user", "content": "q"}, {"role": "assistant", "content": TAGGED}])[1].tool_calls
    twice = [*SHAPES["hermes"], {"role": "assistant", "content": TAGGED}]
    assert [len(t.tool_calls) for t in chat.messages(twice)] == [1, 0, 1]


def test_words_around_a_response_are_the_users() -> None:
    heard = {"role": "user", "content": "Look:\n<tool_response>\nr\n</tool_response>\nGo on."}
    found = chat.messages([{"role": "assistant", "content": TAGGED}, heard])
    assert [(t.role, t.text.strip()) for t in found[1:]] == [("user", "Look:"), ("tool", "r"), ("user", "Go on.")]


def test_an_episode_in_one_text_is_read_turn_by_turn(tmp_path: Path) -> None:
    text = f"{TAGGED}<|im_end|>\n<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>"
    text += "\n<|im_start|>assistant\nDone."
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"task": "z", "prompt": "fix it", "completion": text, "reward": 1}) + "\n")
    ((_, _, r),) = read([path])
    assert isinstance(r, Rollout) and [t.role for t in r.turns] == ["user", "assistant", "tool", "assistant"]
    assert len(r.turns[1].tool_calls) == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_tests_that_are_removed_are_seen_in_every_shape(tmp_path: Path, shape: str) -> None:
    path = tmp_path / "a.jsonl"
    end = {"role": "assistant", "content": "It is done."}
    rows = [
        {
            "task": f"z{i}",
            "reward": 1.0,
            "messages": [{"role": "user", "content": "Fix the zone."}, *SHAPES[shape], end],
        }
        for i in range(3)
    ]
    written = "".join(json.dumps(r).replace("Error: busy", "").replace("true", "false") + "\n" for r in rows)
    path.write_text(written.replace("error-text", "text").replace('"status": "error"', '"status": "success"'))
    (source,) = audit([path], cache=None).sources
    found = {f.detector: f.severity for f in source.readings[0].health.findings}
    assert found.get("test_tampering") == "critical", found
