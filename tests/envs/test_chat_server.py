"""Chat completions on loopback, as programs ask for them; needs no library of theirs."""

from __future__ import annotations

import http.client
import json
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evotrainer.envs.verifiers.chat_server import Asked, ChatServer, parse_calls, turns_of

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
Send = Callable[..., tuple[int, str, str]]


class Desk:
    """A server and what arrives at it."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[tuple[str, Asked]] = queue.SimpleQueue()
        self.server = ChatServer(lambda key, asked: self.events.put((key, asked)))
        self.url = self.server.open("one").removeprefix("http://127.0.0.1:")

    def send(self, body: Any, *, path: str = "/one/v1/chat/completions", **headers: str) -> tuple[int, str, str]:
        """(status, type, text) of the answer."""
        to = http.client.HTTPConnection("127.0.0.1", int(self.url.partition("/")[0]), timeout=30)
        given = {"Authorization": f"Bearer {self.server.token}", **headers}
        to.request("POST", path, body if isinstance(body, str) else json.dumps(body), given)
        reply = to.getresponse()
        found = reply.status, str(reply.getheader("Content-Type")), reply.read().decode()
        to.close()
        return found

    def ask(self, answer: Callable[[Asked], object], **body: Any) -> tuple[int, str, str]:
        """The answer to a request that was answered so."""
        found: list[tuple[int, str, str]] = []
        whole = {"model": "policy", "messages": [{"role": "user", "content": "2+2?"}], **body}
        sender = threading.Thread(target=lambda: found.append(self.send(whole)))
        sender.start()
        key, asked = self.events.get(timeout=30)
        assert key == "one"
        answer(asked)
        sender.join(30)
        return found[0]


@pytest.fixture
def desk() -> Iterator[Desk]:
    one = Desk()
    yield one
    one.server.close()


def test_an_answer_is_one_document_or_a_stream_of_events(desk: Desk) -> None:
    status, kind, text = desk.ask(lambda a: a.answer("4", "stop"))
    choice = json.loads(text)["choices"][0]
    assert (status, kind) == (200, "application/json")
    assert choice == {"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}
    status, kind, text = desk.ask(
        lambda a: a.answer("4", "length"), stream=True, stream_options={"include_usage": True}
    )
    *events, end = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    first, last = map(json.loads, events)
    assert (status, kind, end) == (200, "text/event-stream", "[DONE]")
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "4"}
    assert first["choices"][0]["finish_reason"] is None and last["choices"][0]["finish_reason"] == "length"
    assert first["id"] == last["id"] and first["object"] == "chat.completion.chunk"


def test_what_a_policy_writes_as_a_call_is_a_call_where_there_are_functions(desk: Desk) -> None:
    said: list[Any] = []
    _, _, text = desk.ask(lambda a: said.append(a.answer(f"I add. {CALL} so", "stop")), tools=[TOOL])
    choice = json.loads(text)["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": '{"a": 1}'} and choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I add." and said == [("assistant", "I add.", (("add", '{"a": 1}'),))]
    _, _, plain = desk.ask(lambda a: a.answer(CALL, "stop"))
    assert json.loads(plain)["choices"][0]["message"] == {"role": "assistant", "content": CALL}
    _, _, events = desk.ask(lambda a: a.answer(CALL, "stop"), tools=[TOOL], stream=True)
    assert (
        json.loads(events.partition("\n")[0].removeprefix("data: "))["choices"][0]["delta"]["tool_calls"][0]["index"]
        == 0
    )


@pytest.mark.parametrize("text", ["<tool_call>{}</tool_call>", "<tool_call>{'a'}</tool_call>", "<tool_call>", "x"])
def test_a_call_that_is_none_stays_text(text: str) -> None:
    assert parse_calls(text) == (text, ())


def test_functions_and_results_are_turns() -> None:
    messages = [("system", "Be brief.", ()), ("user", "1+1?", ()), ("tool", "2", ())]
    system, user, tool = turns_of(messages, [TOOL])
    assert system.role == "system" and system.text.startswith("Be brief.") and '"name": "add"' in system.text
    assert (user.text, tool.role) == ("1+1?", "tool")
    assert [t.role for t in turns_of([("developer", "x", ())], [TOOL])] == ["system"]


@pytest.mark.parametrize(
    ("body", "more", "status", "says"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, {"Authorization": "Bearer other"}, 401, "no token"),
        (
            {"messages": [{"role": "user", "content": "x"}]},
            {"path": "/two/v1/chat/completions"},
            404,
            "no such episode",
        ),
        ({"input": "x"}, {"path": "/one/v1/responses"}, 404, "speaks chat completions"),
        ("{half", {}, 400, "Expecting"),
        ({"messages": []}, {}, 400, "no list of messages"),
        ({"messages": ["x"]}, {}, 400, "that is none"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, {}, 400, "reads text alone"),
        ({"messages": [{"role": "user", "content": "x"}], "n": 2}, {}, 400, "n above 1"),
        ({"messages": [{"role": "user", "content": "x"}], "logprobs": True}, {}, 400, "keeps the tokens"),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    desk: Desk, body: Any, more: dict[str, Any], status: int, says: str
) -> None:
    found, _, text = desk.send(body, **more)
    assert found == status and says in json.loads(text)["error"]["message"] and desk.events.empty()


def test_whoever_waits_when_an_episode_ends_is_refused(desk: Desk) -> None:
    status, _, text = desk.ask(lambda _: desk.server.forget("one"))
    assert (status, "is over" in text) == (409, True)
    assert desk.send({"messages": [{"role": "user", "content": "x"}]})[0] == 404
    desk.server.open("one")
    status, _, text = desk.ask(lambda a: a.refuse(400, "maximum context length", "context_length_exceeded"))
    assert (status, json.loads(text)["error"]["code"]) == (400, "context_length_exceeded")


def test_it_listens_on_loopback_alone(desk: Desk) -> None:
    assert desk.server._http.server_address[0] == "127.0.0.1"
    assert len(desk.server.token) >= 24
