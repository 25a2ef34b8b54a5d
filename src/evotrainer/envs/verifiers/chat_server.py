"""Chat completions on loopback, answered by whoever asks for them: a policy behind the address that programs want.

An episode has an address of its own, and all need the server's token. A request waits until `Asked.answer` or
`Asked.refuse`; the answer goes back as server-sent events where the request says `stream`, else as one JSON document.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import queue
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from evotrainer.records.clock import unix_time
from evotrainer.records.rollout import Finish, Role, ToolCall, Turn

MODEL = "policy"
LARGEST = 16 << 20
"""Bytes of a request."""
CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
TOOLS = (
    "You may call these functions. To call one, write\n<tool_call>\n"
    '{{"name": "...", "arguments": {{...}}}}\n</tool_call>\n<tools>\n{}\n</tools>'
)
OVER = "this episode is over"
ROLES: Mapping[str, Role] = {"developer": "system", "function": "tool"}
Said = tuple[str, str, tuple[tuple[str, str], ...]]
"""What a message says: role, text, (name, arguments) of its calls."""


class BadRequestError(Exception):
    """A request that no policy of text can answer."""


@dataclass(slots=True)
class Asked:
    """A request that waits for its answer."""

    messages: list[Said]
    tools: list[Any]
    reply: queue.SimpleQueue[tuple[int, Any]] = field(default_factory=queue.SimpleQueue)

    def answer(self, text: str, finish: Finish) -> Said:
        """Answer it; what the next request holds in the answer's place."""
        text, calls = parse_calls(text) if self.tools else (text, ())
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        why = "length" if finish == "length" else "stop"
        if calls:
            message["tool_calls"] = [
                {"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": {"name": n, "arguments": a}}
                for n, a in calls
            ]
            why = "tool_calls"
        self.reply.put((200, {"message": message, "finish_reason": why}))
        return "assistant", text, calls

    def refuse(self, status: int, message: str, code: str = "invalid_request_error") -> None:
        self.reply.put((status, {"message": message, "type": code, "code": code}))


def parse_calls(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The text before the first call of a function, and the calls; text that is none stays text."""
    calls = []
    begin = len(text)
    for m in CALL.finditer(text):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = json.loads(m[1])
            calls.append((str(found["name"]), json.dumps(found.get("arguments") or {})))
            begin = min(begin, m.start())
    return text[:begin].rstrip() if calls else text, tuple(calls)


def turns_of(messages: Sequence[Said], tools: Sequence[Any] = ()) -> list[Turn]:
    """Messages as turns; the functions stand in the system prompt."""
    turns = [Turn(ROLES.get(r, r), text, tuple(ToolCall(n, a) for n, a in calls)) for r, text, calls in messages]  # type: ignore[arg-type]
    if tools:
        told = TOOLS.format("\n".join(json.dumps(t.get("function", t)) for t in tools))
        first = turns.pop(0).text + "\n\n" if turns and turns[0].role == "system" else ""
        turns.insert(0, Turn("system", first + told))
    return turns


def read_request(body: Any) -> Asked:
    """BadRequestError where it asks for what a policy of text does not give."""
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
        raise BadRequestError("no list of messages")
    if (body.get("n") or 1) != 1 or body.get("logprobs") or body.get("top_logprobs"):
        raise BadRequestError("n above 1 and logprobs are not served: the trainer keeps the tokens that it samples")
    return Asked([_said(m) for m in body["messages"]], list(body.get("tools") or ()))


def _said(m: Any) -> Said:
    try:
        content = m.get("content") or ""
        if not isinstance(content, str):
            if other := {p["type"] for p in content} - {"text", "refusal"}:
                raise BadRequestError(f"a message holds {min(other)}: this policy reads text alone")
            content = "".join(p.get("text") or p.get("refusal") or "" for p in content)
        calls = tuple((c["function"]["name"], c["function"]["arguments"]) for c in m.get("tool_calls") or ())
        return str(m["role"]), content, calls
    except (AttributeError, LookupError, TypeError) as e:
        raise BadRequestError(f"a message that is none ({type(e).__name__}: {e})") from None


class ChatServer:
    """`arrived(episode, request)` is called in a thread of the server's, and must return at once."""

    def __init__(self, arrived: Callable[[str, Asked], None]) -> None:
        self.arrived = arrived
        self.token = secrets.token_urlsafe(24)
        """Bearer token of every request."""
        self.waiting: dict[str, list[Asked]] = {}
        """Requests by episode; an episode that is not here has no address."""
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.chat = self
        threading.Thread(target=self._http.serve_forever, daemon=True, name="chat server").start()

    def open(self, episode: str) -> str:
        """The base URL of an episode, which begins."""
        self.waiting[episode] = []
        return f"http://127.0.0.1:{self._http.server_address[1]}/{episode}/v1"

    def forget(self, episode: str) -> None:
        """An episode is over: whoever still asks is refused."""
        for asked in self.waiting.pop(episode, ()):
            asked.refuse(409, OVER)

    def close(self) -> None:
        for episode in list(self.waiting):
            self.forget(episode)
        self._http.shutdown()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024
    chat: ChatServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        if self._episode("models") is not None:
            self._send(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "evotrainer"}]})

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > LARGEST:
            self.close_connection = True
            return self._refuse(413, f"give a Content-Length of at most {LARGEST} bytes")
        data = self.rfile.read(int(length))
        if (episode := self._episode("chat/completions")) is None:
            return None
        try:
            body = json.loads(data)
            asked = read_request(body)
        except (ValueError, BadRequestError) as e:
            return self._refuse(400, str(e))
        chat = self.server.chat
        chat.waiting.get(episode, []).append(asked)
        chat.arrived(episode, asked)
        if episode not in chat.waiting:  # it was forgotten since
            asked.refuse(409, OVER)
        status, found = asked.reply.get()
        if status != 200:
            return self._send(status, {"error": found})
        if not body.get("stream"):
            return self._send(200, _document("chat.completion", {"index": 0, **found}))
        return self._send_events(found)

    def _episode(self, what: str) -> str | None:
        """The episode that is asked for; None: refused."""
        given, token = self.headers.get("Authorization", ""), self.server.chat.token
        episode, _, asked = self.path.partition("?")[0].lstrip("/").partition("/")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            self._refuse(401, "no token of this server")
        elif episode not in self.server.chat.waiting:
            self._refuse(404, "no such episode, or it is over")
        elif asked != f"v1/{what}":
            self._refuse(404, "this server speaks chat completions: /v1/chat/completions, /v1/models")
        else:
            return episode
        return None

    def _refuse(self, status: int, message: str) -> None:
        self._send(status, {"error": {"message": message, "type": "invalid_request_error", "code": status}})

    def _send_events(self, found: Mapping[str, Any]) -> None:
        """One chunk with all of it and one with its end: what is sampled in a batch is not known by the word."""
        delta = dict(found["message"])
        if "tool_calls" in delta:
            delta["tool_calls"] = [{"index": i, **c} for i, c in enumerate(delta["tool_calls"])]
        first = _document("chat.completion.chunk", {"index": 0, "delta": delta, "finish_reason": None})
        last = {**first, "choices": [{"index": 0, "delta": {}, "finish_reason": found["finish_reason"]}]}
        events = "".join(f"data: {e}\n\n" for e in (json.dumps(first), json.dumps(last), "[DONE]"))
        self._write(200, "text/event-stream", events.encode())

    def _send(self, status: int, body: Any) -> None:
        self._write(status, "application/json", json.dumps(body).encode())

    def _write(self, status: int, kind: str, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # who asked has gone
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)


def _document(kind: str, choice: Mapping[str, Any]) -> dict[str, Any]:
    own = f"chatcmpl-{secrets.token_hex(12)}"
    return {"id": own, "object": kind, "created": int(unix_time()), "model": MODEL, "choices": [dict(choice)]}
