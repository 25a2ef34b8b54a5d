"""Carrier llm against a local server that speaks both protocols, well and badly."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evotrainer.agents import make_agent
from evotrainer.agents.seat.carriers.base import CarrierError, Reply, SeatTurn
from evotrainer.agents.seat.carriers.llm import LlmCarrier
from evotrainer.errors import ConfigError
from evotrainer.records.seat import SeatBriefing, read_answer
from tests.agents.serving import serving
from tests.cli.call import in_this_process as evotrainer

KEY = "sk-test-0123456789"
GOOD = json.dumps({"trials": [{"changes": {"lr": 2e-4}, "why": "more"}]})
ASKED = SeatBriefing.model_validate(
    {"run": "r", "round": 1, "step": "search", "number": 0, "places": 1, "champion": "b0", "text": "evidence",
     "factors": {"lr": {"now": 1e-4, "legal": "number > 0"}}}
)  # fmt: skip


class Server(ThreadingHTTPServer):
    """Answers with `script`, one entry a request, the last one again: a text of the model, or (status, body)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Any] = [GOOD]
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        seen = self.server.seen
        seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        said = self.server.script[min(len(seen), len(self.server.script)) - 1]
        if said == "silence":
            time.sleep(1.5)
            return
        status, text = said if isinstance(said, tuple) else (200, wrapped(said, self.path))
        self.send_response(status)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def wrapped(said: str, path: str) -> str:
    if path.endswith("/messages"):
        told = {"content": [{"type": "text", "text": said}], "usage": {"input_tokens": 900, "output_tokens": 40}}
    else:
        choice = {"message": {"role": "assistant", "content": said}}
        told = {"choices": [choice], "usage": {"prompt_tokens": 900, "completion_tokens": 40}}
    return json.dumps({**told, "model": "tiny-1"})


def stream(protocol: str, whole: bool = True) -> str:
    if protocol == "anthropic":
        events = [{"type": "message_start", "message": {"model": "tiny-1", "usage": {"input_tokens": 900}}}]
        events += [{"type": "content_block_delta", "delta": {"text": c}} for c in (GOOD[:20], GOOD[20:])]
        events += [{"type": "message_delta", "usage": {"output_tokens": 40}}, {"type": "message_stop"}]
        lines = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events]
    else:
        parts = [{"model": "tiny-1", "choices": [{"delta": {"content": c}}]} for c in (GOOD[:20], GOOD[20:])]
        parts += [{"choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": 40}}]
        lines = [*(f"data: {json.dumps(p)}\n\n" for p in parts), "data: [DONE]\n\n"]
    return "".join(lines if whole else lines[:-1])


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as made:
        yield made


def ask(server: Server, protocol: str = "openai", timeout_s: float = 5.0, **more: Any) -> Reply:
    carrier = LlmCarrier("tiny", protocol, server.url, KEY, prices=(1.0, 10.0), pause_s=0.01, **more)
    return carrier.ask(ASKED, SeatTurn("r1-search0-0", Path(), "r1/answered/search0/0", timeout_s))


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_both_protocols_whole_and_streamed(server: Server, protocol: str) -> None:
    for said in (GOOD, (200, stream(protocol))):
        server.script = [said]
        reply = ask(server, protocol)
        assert read_answer(reply.raw, ASKED)[1] == "" and reply.model == "tiny-1"
        assert (reply.input_tokens, reply.output_tokens, reply.dollars) == (900, 40, 0.0013)
    path, headers, body = server.seen[-1]
    assert path == ("/v1/messages" if protocol == "anthropic" else "/v1/chat/completions")
    assert KEY in (headers.get("x-api-key", ""), headers.get("authorization", "").removeprefix("Bearer "))
    assert "evidence" in body["messages"][-1]["content"] and KEY not in json.dumps(body)


@pytest.mark.parametrize(
    "bad", [(429, "slow down"), (500, "oops"), (529, "{}"), (200, '{"choices": [{"mess'), (200, "")]
)
def test_what_passes_is_tried_again(server: Server, bad: tuple[int, str]) -> None:
    server.script = [bad, bad, GOOD]
    assert read_answer(ask(server).raw, ASKED)[1] == "" and len(server.seen) == 3
    server.script, server.seen[:] = [bad], []
    with pytest.raises(CarrierError, match="gave no answer within 5 s and 4 tries"):
        ask(server)
    assert len(server.seen) == 4, "not 300 times"


def test_streams_that_break_off_silence_and_refusals(server: Server) -> None:
    server.script = [(200, stream("openai", whole=False))]
    with pytest.raises(CarrierError, match="not of the openai protocol"):
        ask(server)
    server.script = ["silence"]
    began = time.monotonic()
    with pytest.raises(CarrierError, match=r"gave no answer within 0.3 s.*Timeout"):
        ask(server, timeout_s=0.3)
    assert time.monotonic() - began < 1.4
    server.script, server.seen[:] = [(401, '{"error": "no such key"}')], []
    with pytest.raises(CarrierError, match="status 401.*check model, endpoint and key"):
        ask(server)
    assert len(server.seen) == 1
    server.script = [(302, "")]
    with pytest.raises(CarrierError, match="status 302"):
        ask(server)
    server.script = ["Ich weiss es nicht."]
    assert "no JSON object" in read_answer(ask(server).raw, ASKED)[1]


def test_doctor_asks_the_endpoint_once_and_no_key_is_shown(server: Server, tmp_path: Path) -> None:
    from tests.run.test_seat import TASK

    task = tmp_path / "task.toml"
    task.write_text(f'{TASK}carrier = "llm"\nmodel = "tiny"\nendpoint = "{server.url}"\nkey_env = "SEAT_LLM_KEY"\n')
    shown = evotrainer("doctor", "--seat", str(task), env={"SEAT_LLM_KEY": KEY})
    assert "[ ok ] seat: output text: valid answer" in shown.stdout and "900 + 40 tokens" in shown.stdout
    server.script = [(403, f"key {KEY} is blocked")]
    shown = evotrainer("doctor", "--seat", str(task), env={"SEAT_LLM_KEY": KEY})
    assert "[FAIL] seat: " in shown.stdout and "status 403" in shown.stdout and KEY not in shown.stdout + shown.stderr


def test_a_model_without_a_key_or_a_name_is_told_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        make_agent("seat", 0, {"carrier": "llm", "model": "x"})
    with pytest.raises(ConfigError, match=r"carrier llm needs run.agent_options.model"):
        make_agent("seat", 0, {"carrier": "llm"})
