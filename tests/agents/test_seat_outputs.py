"""`evotrainer doctor --seat` asks an endpoint in each output mode and names the cheapest that works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evotrainer.agents.seat.carriers.llm_output import OUTPUTS
from evotrainer.errors import ConfigError
from evotrainer.records.seat import read_answer
from tests.agents.serving import serving
from tests.agents.test_seat_llm import ASKED, GOOD, KEY, Server, ask
from tests.cli.call import in_this_process as evotrainer

PROSE = "I would raise the rate."
BOTH = pytest.mark.parametrize("protocol", ["openai", "anthropic"])


class Endpoint(ThreadingHTTPServer):
    """Answers by output mode: what its model says in it, or None where the server does not know the mode (status 400).

    Counts tokens of what its model reads, a quarter of the characters; a schema that it only compiles is not read.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ByMode)
        self.says: dict[str, str | None] = {}
        self.parsed = False
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


def mode_of(body: dict[str, Any]) -> str:
    form = (body.get("response_format") or {}).get("type") or (
        (body.get("output_config") or {}).get("format") or {}
    ).get("type")
    return "tool" if "tools" in body else {"json_object": "json", "json_schema": "schema", None: "text"}[form]


class ByMode(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        mode = mode_of(body)
        self.server.asked.append(mode)
        said = self.server.says.get(mode)
        sent = json.dumps([body["messages"], body.get("tools")])
        text = json.dumps(
            {"error": f"{mode} is not supported"} if said is None else self._told(mode, said, len(sent) // 4)
        )
        self.send_response(400 if said is None else 200)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def _told(self, mode: str, said: str, sent: int) -> dict[str, Any]:
        called = mode == "tool" and said.startswith("{")
        if self.path.endswith("/messages"):
            part = (
                {"type": "tool_use", "name": "propose", "input": json.loads(said)}
                if called
                else {"type": "text", "text": said}
            )
            return {"content": [part], "usage": {"input_tokens": sent, "output_tokens": len(said) // 4}}
        given = json.loads(said) if called and self.server.parsed else said
        call = [{"function": {"name": "propose", "arguments": given}}]
        message = {"content": None, "tool_calls": call} if called else {"content": said}
        return {
            "choices": [{"message": message}],
            "usage": {"prompt_tokens": sent, "completion_tokens": len(said) // 4},
        }

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving(Endpoint()) as made:
        yield made


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as made:
        yield made


def doctor(endpoint: Endpoint, protocol: str, to: Path, *more: str) -> tuple[str, int]:
    from tests.run.test_seat import TASK

    task = to / "task.toml"
    task.write_text(
        f'{TASK}carrier = "llm"\nmodel = "tiny"\nprotocol = "{protocol}"\nendpoint = "{endpoint.url}"\n'
        'key_env = "SEAT_LLM_KEY"\n' + "\n".join(more)
    )
    done = evotrainer("doctor", "--seat", str(task), "--json", env={"SEAT_LLM_KEY": KEY})
    found = json.loads(done.stdout)
    assert KEY not in done.stdout + done.stderr
    seat = [f"[{c['status']}] {c['text']}" for c in found["checks"] if c["text"].startswith("seat")]
    return "\n".join([*seat, *found["problems"]]), done.returncode


@BOTH
def test_every_mode_that_works_is_priced_and_the_cheapest_is_named(
    endpoint: Endpoint, protocol: str, tmp_path: Path
) -> None:
    endpoint.says = dict.fromkeys(OUTPUTS[protocol], GOOD)
    told, code = doctor(endpoint, protocol, tmp_path)
    assert code == 0 and endpoint.asked == list(OUTPUTS[protocol]), "each once"
    for mode in OUTPUTS[protocol]:
        assert f"[ok] seat: output {mode}: valid answer in" in told
    assert "cheapest output mode that works: schema" in told and 'set run.agent_options.output = "schema"' in told
    told, code = doctor(endpoint, protocol, tmp_path, 'output = "schema"')
    assert code == 0 and "(as it is set)" in told


@pytest.mark.slow
@BOTH
def test_modes_that_a_server_or_its_model_fails_are_told_and_passed_over(
    endpoint: Endpoint, protocol: str, tmp_path: Path
) -> None:
    endpoint.says = {"text": GOOD + " " * 400, "json": None, "schema": PROSE, "tool": GOOD}
    told, code = doctor(endpoint, protocol, tmp_path)
    assert code == 0 and "[warn] seat: output schema: no valid answer: the answer holds no JSON object" in told
    assert ("[warn] seat: output json: no valid answer" in told and "status 400" in told) == (protocol == "openai")
    assert "cheapest output mode that works: tool" in told
    endpoint.says |= {"text": PROSE, "tool": None}
    told, code = doctor(endpoint, protocol, tmp_path)
    assert code == 8 and "output mode text gives no valid answer" in told and "try another model" in told
    endpoint.says["tool"] = GOOD
    told, code = doctor(endpoint, protocol, tmp_path)
    assert code == 8 and 'set run.agent_options.output = "tool"' in told


def test_an_endpoint_that_answers_nothing_at_all_is_asked_in_one_mode_only(endpoint: Endpoint, tmp_path: Path) -> None:
    told, code = doctor(endpoint, "openai", tmp_path)
    assert code == 8 and "status 400" in told and endpoint.asked == ["text"]


@pytest.mark.parametrize("parsed", [False, True])
def test_arguments_of_a_tool_call_are_the_answer_as_text_or_parsed(endpoint: Endpoint, parsed: bool) -> None:
    endpoint.says, endpoint.parsed = {"tool": GOOD}, parsed
    assert read_answer(ask(endpoint, output="tool").raw, ASKED)[1] == ""  # type: ignore[arg-type]
    endpoint.says["tool"] = "No call, " + GOOD
    assert read_answer(ask(endpoint, output="tool").raw, ASKED)[1] == ""  # type: ignore[arg-type]


@BOTH
def test_a_tool_call_that_is_streamed_is_put_together(server: Server, protocol: str) -> None:
    if protocol == "anthropic":
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {"model": "t", "usage": {"input_tokens": 9}}}
        ]
        events += [{"type": "content_block_delta", "delta": {"partial_json": c}} for c in (GOOD[:20], GOOD[20:])]
        events += [{"type": "message_stop"}]
    else:
        events = [
            {"choices": [{"delta": {"content": None, "tool_calls": [{"index": 0, "function": {"arguments": c}}]}}]}
            for c in ("", GOOD[:20], GOOD[20:])
        ]
    lines = [f"data: {json.dumps(e)}\n\n" for e in events]
    server.script = [(200, "".join([*lines, "data: [DONE]\n\n"]))]
    reply = ask(server, protocol, output="tool")
    assert reply.raw == GOOD
    body = server.seen[-1][2]
    assert body["tool_choice"] and "Schema of an answer" not in json.dumps(body["messages"])


def test_the_anthropic_protocol_has_no_json_mode(endpoint: Endpoint, tmp_path: Path) -> None:
    from evotrainer.agents import make_agent

    with pytest.raises(ConfigError, match="no JSON mode; set output to schema, tool or text"):
        make_agent("seat", 0, {"carrier": "llm", "model": "x", "protocol": "anthropic", "output": "json"})
