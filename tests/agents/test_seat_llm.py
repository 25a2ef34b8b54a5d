"""Carrier llm against a local server that speaks both protocols, well and badly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evotrainer.agents import make_agent
from evotrainer.agents.carriers import CarrierError, Reply, SeatTurn
from evotrainer.agents.seat.carriers.llm import LlmCarrier, _seconds
from evotrainer.agents.seat.options import SeatOptions
from evotrainer.agents.seat.requester import Requester
from evotrainer.errors import ConfigError
from evotrainer.records.seat import SeatBriefing, read_answer
from evotrainer.run.observer import SilentObserver
from evotrainer.testing.agents import SeatMemory
from tests.agents.briefings import START, briefing
from tests.agents.serving import serving
from tests.cli.call import in_this_process as evotrainer

KEY = "sk-test-0123456789"
GOOD = json.dumps({"trials": [{"changes": {"lr": 2e-4}, "why": "more"}]})
ASKED = SeatBriefing.model_validate(
    {"run": "r", "round": 1, "step": "search", "number": 0, "places": 1, "champion": "b0", "text": "evidence",
     "factors": {"lr": {"now": 1e-4, "legal": "number > 0"}}}
)  # fmt: skip


class Server(ThreadingHTTPServer):
    """Answers with `script`, one entry a request, the last one again: a text of the model, or (status, body), or
    (status, body, Retry-After)."""

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
        if isinstance(said, str) and "MARK" in said:  # of the rollout that a reader is asked about
            said = said.replace("MARK", re.findall(r"=== ([0-9a-f]{16}) ends", body["messages"][-1]["content"])[-1])
        if said == "silence":
            time.sleep(1.5)
            return
        if said == "drip":  # a line of its headers every tenth of a second
            with contextlib.suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                for i in range(40):
                    self.wfile.write(f"x-{i}: y\r\n".encode())
                    time.sleep(0.1)
            return
        status, text, *after = said if isinstance(said, tuple) else (200, wrapped(said, self.path))
        self.send_response(status)
        for seconds in after:
            self.send_header("retry-after", seconds)
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
    with pytest.raises(CarrierError, match=r"gave no answer in 0\.\d+ s and 4 tries"):
        ask(server)
    assert len(server.seen) == 4, "not 300 times"


def test_a_busy_endpoint_is_left_alone_for_as_long_as_it_asks(server: Server) -> None:
    server.script = [(429, "slow down", "0.4"), GOOD]
    began = time.monotonic()
    assert read_answer(ask(server).raw, ASKED)[1] == "" and time.monotonic() - began > 0.4
    server.script, server.seen[:] = [(429, "slow down", "20"), GOOD], []
    with pytest.raises(CarrierError, match="and 1 try: status 429: slow down; another one 20 s later is beyond .*= 5"):
        ask(server)
    assert len(server.seen) == 1
    now = formatdate(0, usegmt=True)
    assert _seconds(formatdate(60, usegmt=True), now) == 60, "by the endpoint's clock, whatever ours says"
    assert [_seconds(x, now) for x in ("", "soon", "-3", "1e999", now, "7")] == [0, 0, 0, 0, 0, 7]
    assert _seconds(formatdate(60)) == _seconds(formatdate(60), "soon") == 0, "an answer without a date of its own"


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_an_error_within_an_answer_is_a_busy_endpoint(server: Server, protocol: str) -> None:
    error = {"type": "error", "error": {"message": "overloaded"}}
    lines = [*stream(protocol).split("\n\n")[:2], f"data: {json.dumps(error)}", "data: [DONE]\n\n"]
    for bad in ("\n\n".join(lines), json.dumps(error)):
        server.script, server.seen[:] = [(200, bad), GOOD], []
        assert ask(server, protocol).raw == GOOD and len(server.seen) == 2
        server.script = [(200, bad)]
        with pytest.raises(CarrierError, match=r'it sent an error: \{"message": "overloaded"\}'):
            ask(server, protocol)


CUT, FILTER, REFUSAL = "cut off after 4,096 tokens", "content filter withheld", "refused to answer"


def ended(protocol: str, said: str, why: str, streamed: bool, **more: Any) -> str:
    """An answer that ends for this reason."""
    if protocol == "anthropic":
        whole: dict[str, Any] = {"content": [{"type": "text", "text": said}], "stop_reason": why}
        events: list[dict[str, Any]] = [{"type": "content_block_delta", "delta": {"text": said}}]
        events += [{"type": "message_delta", "delta": {"stop_reason": why}}, {"type": "message_stop"}]
    else:
        whole = {"choices": [{"message": {"content": said or None, **more}, "finish_reason": why}]}
        events = [
            {"choices": [{"delta": {"content": said, **more}}]},
            {"choices": [{"delta": {}, "finish_reason": why}]},
        ]
    if not streamed:
        return json.dumps({**whole, "usage": {"prompt_tokens": 900, "completion_tokens": 40}})
    return "".join([*(f"data: {json.dumps(e)}\n\n" for e in events), "data: [DONE]\n\n"])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("protocol", "said", "why", "more", "told"),
    [
        ("openai", "", "length", {}, CUT),
        ("openai", GOOD[:30], "length", {}, CUT),
        ("openai", GOOD, "length", {}, ""),
        ("openai", GOOD, "stop", {}, ""),
        ("openai", "", "content_filter", {}, FILTER),
        ("openai", "", "stop", {"refusal": f"not with {KEY}"}, r"refused to answer: not with \[key\]; ask another"),
        ("anthropic", GOOD[:30], "max_tokens", {}, CUT),
        ("anthropic", "", "model_context_window_exceeded", {}, "cut off where the model's context ends"),
        ("anthropic", "", "refusal", {}, REFUSAL),
        ("anthropic", GOOD, "end_turn", {}, ""),
    ],
)
def test_what_ended_an_answer_is_said_and_paid_once(
    server: Server, protocol: str, said: str, why: str, more: dict[str, Any], told: str, streamed: bool, tmp_path: Path
) -> None:
    server.script = [(200, ended(protocol, said, why, streamed, **more))]
    log = SeatMemory(tmp_path, briefing(START.with_factor("lr", 1e-4)))
    options = SeatOptions(carrier="llm", model="tiny", endpoint=server.url)
    Requester(LlmCarrier("tiny", protocol, server.url, KEY), options, {}, log).ask(ASKED)
    (got,) = log.past()
    assert re.search(told, got.problem) if told else not got.problem
    assert got.stage == ("carrier" if told else "") and got.input_tokens and got.output_tokens + (not said)
    assert len(server.seen) == 1


def test_doctor_says_that_an_answer_was_cut_off(server: Server, tmp_path: Path) -> None:
    from tests.run.test_seat import TASK

    server.script = [(200, ended("openai", "", "length", False))]
    task = tmp_path / "task.toml"
    task.write_text(f'{TASK}carrier = "llm"\nmodel = "tiny"\nendpoint = "{server.url}"\nmost_tokens = 99\n')
    told = evotrainer("doctor", "--seat", str(task)).stdout
    assert "[FAIL] seat: the answer was cut off after 99 tokens" in told and "raise run.agent_options.most_tok" in told
    assert "another model" not in told and len(server.seen) == 1


def test_streams_that_break_off_silence_and_refusals(server: Server) -> None:
    server.script = [(200, stream("openai", whole=False))]
    with pytest.raises(CarrierError, match="not of the openai protocol"):
        ask(server)
    server.script = ["silence"]
    began = time.monotonic()
    with pytest.raises(CarrierError, match=r"gave no answer in 0.3\d* s and 1 try: Timeout"):
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


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_an_answer_that_drips_ends_in_time(server: Server, protocol: str) -> None:
    server.script = ["drip"]
    began = time.monotonic()
    with pytest.raises(CarrierError, match=r"gave no answer in 0.5\d* s and 1 try: Timeout"):
        ask(server, protocol, timeout_s=0.5)
    assert time.monotonic() - began < 2


def test_a_model_is_asked_from_a_notebook_too(server: Server) -> None:
    async def cell() -> Reply:
        return ask(server)

    assert read_answer(asyncio.run(cell()).raw, ASKED)[1] == ""


def body(protocol: str, **more: Any) -> str:
    return json.dumps({**json.loads(wrapped(GOOD, "/messages" if protocol == "anthropic" else "")), **more})


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_tokens_that_a_server_does_not_tell_are_estimated(server: Server, protocol: str) -> None:
    for usage in (None, {}, {"input_tokens": -1, "prompt_tokens": True, "completion_tokens": 10**400}):
        server.script = [(200, body(protocol, usage=usage, model=404))]
        reply = ask(server, protocol)
        sent = len(json.dumps(server.seen[-1][2], ensure_ascii=False)) // 4
        assert reply.estimated and abs(reply.input_tokens - sent) < 5 and reply.output_tokens == len(GOOD) // 4
        assert reply.dollars == pytest.approx((reply.input_tokens + 10 * reply.output_tokens) / 1e6, abs=1e-6)
        assert reply.model == "tiny"
    assert not ask_again(server, protocol).estimated


def ask_again(server: Server, protocol: str) -> Reply:
    server.script = [GOOD]
    return ask(server, protocol)


def test_a_cap_in_dollars_needs_prices_and_a_key_fits_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"carrier": "llm", "model": "x", "endpoint": "http://127.0.0.1:1", "dollars": 1}
    for more in ({}, {"price_in": 1.0}, {"price_out": 1.0}):
        with pytest.raises(ConfigError, match="a cap in dollars needs price_in and price_out"):
            make_agent("seat", 0, {**told, **more})
    make_agent("seat", 0, {**told, "price_in": 1.0, "price_out": 2.0})
    make_agent("seat", 0, {"carrier": "command", "command": ["true"], "dollars": 1, "sandbox": False})
    monkeypatch.setenv("TWO_LINES", "sk-first\nsk-second")
    with pytest.raises(ConfigError, match="key has a line break"):
        make_agent("seat", 0, {**told, "dollars": None, "key_env": "TWO_LINES"})


class Said(SilentObserver):
    """Keeps what a run tells."""

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def note(self, text: str) -> None:
        self.said.append(text)


def test_a_key_that_a_server_sends_back_is_in_no_file_of_the_run(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the model's name, in its words, in errors, cut by any limit on the length of what is quoted."""
    from tests.paper import Paper, bodies
    from tests.run.test_seat import TASK, finish

    monkeypatch.setenv("SEAT_LLM_KEY", f"{KEY}\n")
    long = body("openai", model="m" * 90 + KEY, usage=None).replace("sk-", "\\u0073k-")
    server.script = [(200, long), (200, body("openai", model=f"Bearer {KEY}")), (401, "x" * 192 + KEY)]
    server.script += [(200, "y" * 110 + KEY), "z" * 65_530 + KEY]
    task = tmp_path / "task.toml"
    task.write_text(
        f'{TASK}carrier = "llm"\nmodel = "tiny"\nendpoint = "{server.url}"\nkey_env = "SEAT_LLM_KEY"\ntokens = 9999\n'
    )
    said: list[str] = []
    run = Paper(finish).start(task, tmp_path / "run", ["run.probes=6", "run.workers=1"], view=Said(said))
    got = bodies(run, "answered")
    assert {a.model for a in got} >= {f"{'m' * 90}[SEAT_LLM_", "Bearer [SEAT_LLM_KEY]"}
    files = [p for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".toml"]
    assert files and not [p for p in files if KEY[:8].encode() in p.read_bytes()]
    assert [x for x in said if x.endswith("tells no tokens: they are estimated as bytes / 4")]
    assert not [x for x in said if KEY[:8] in x]


def test_doctor_tells_options_that_a_seat_does_not_take_in_one_line(tmp_path: Path) -> None:
    from tests.run.test_seat import TASK

    task = tmp_path / "task.toml"
    task.write_text(f'{TASK}carrier = "llm"\nmodel = "tiny"\nendpoint = "http://127.0.0.1:1"\ndollars = 0.01\n')
    done = evotrainer("doctor", "--seat", str(task))
    assert "[FAIL] seat: run.agent_options of agent seat: " in done.stdout and "price_in and price_out" in done.stdout


@pytest.mark.parametrize("word", ["content", "usage", "assistant"])
def test_a_placeholder_key_that_is_a_word_of_the_protocol_damages_no_answer(server: Server, word: str) -> None:
    carrier = LlmCarrier("tiny", "openai", server.url, word, prices=(1.0, 10.0), pause_s=0.01)
    reply = carrier.ask(ASKED, SeatTurn("r1-search0-0", Path(), "r1/answered/search0/0", 5.0))
    assert read_answer(reply.raw, ASKED)[1] == "" and (reply.input_tokens, reply.output_tokens) == (900, 40)
