"""A language model behind an endpoint that speaks the OpenAI or the Anthropic protocol, over HTTP."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from evotrainer.agents.carriers import CarrierError, Question, Reply, SeatTurn, count, key_name
from evotrainer.agents.seat.carriers.llm_output import (
    TOLD,
    anthropic_words,
    asked_for,
    end_of,
    openai_words,
    streamed_end,
    streamed_words,
)
from evotrainer.agents.seat.text import question_of
from evotrainer.agents.secrets import redacted
from evotrainer.errors import ConfigError, MissingDependencyError, install
from evotrainer.records.questions import CarrierOptions
from evotrainer.records.seat import SeatBriefing
from evotrainer.records.text import counted, cut, quoted

T = TypeVar("T")
ENDPOINTS = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com/v1"}
"""Protocol -> where it is spoken unless `endpoint` says otherwise."""
TRIES = 4
"""Times that a request is sent where the endpoint is busy or breaks off."""
AGAIN = (408, 409, 425, 429, 500, 502, 503, 504, 529)
LARGEST = 4_000_000
"""Bytes of an endpoint's answer that are read."""


class BusyError(Exception):
    """Worth another try; its argument is the cause."""

    def __init__(self, cause: str, wait_s: float = 0.0) -> None:
        super().__init__(cause)
        self.wait_s = wait_s
        """Seconds that the endpoint asks to be left alone."""


@dataclass
class LlmCarrier:
    """Sends the request as one message; a server that streams is read to its end."""

    model: str
    protocol: str = "openai"
    endpoint: str = ""
    key: str = ""
    most_tokens: int = 4096
    output: str = "text"
    """How an answer is asked for: one of `llm_output.OUTPUTS`."""
    prices: tuple[float, float] = (0.0, 0.0)
    """Dollars per million tokens of input and of output."""
    pause_s: float = 2.0
    """Before the second try; doubled before each further one."""
    name: str = field(default="llm", init=False)

    def __post_init__(self) -> None:
        _httpx()
        if not (self.key.isascii() and self.key.isprintable()):
            raise ConfigError("the endpoint's key has a line break or a sign that no header holds; export it again")

    def ask(self, request: SeatBriefing, turn: SeatTurn) -> Reply:
        return self.put(question_of(request), turn)

    def put(self, question: Question, turn: SeatTurn) -> Reply:
        """The answer to any question; CarrierError where none comes within `turn.timeout_s`."""
        began, timeout_s = time.monotonic(), turn.timeout_s
        end, prompt = began + timeout_s, question.text
        if self.output in TOLD:
            schema = json.dumps(question.schema, separators=(",", ":"))
            prompt += f"\n\n# Schema of an answer\n\n```json\n{schema}\n```\n"
        message = self._message(question, prompt)
        for i in range(1, TRIES + 1):
            try:
                return self._read(self._send(message, end), message[2])
            except BusyError as e:
                took, problem = time.monotonic() - began, f"{counted(i, 'try')}: {e}"
                pause = max(self.pause_s * 2 ** (i - 1), e.wait_s)
                if late := i < TRIES and took + pause >= timeout_s:
                    problem += (
                        f"; another one {pause:.3g} s later is beyond run.agent_options.timeout_s = {timeout_s:g}"
                    )
                if late or i == TRIES:
                    raise CarrierError(f"{self._where} gave no answer in {took:.3g} s and {problem}") from None
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    @property
    def _where(self) -> str:
        return (self.endpoint or ENDPOINTS[self.protocol]).rstrip("/")

    def _send(self, message: tuple[str, dict[str, str], dict[str, Any]], end: float) -> str:
        """The body of the endpoint's answer; BusyError where another try may help, CarrierError where none does."""
        httpx = _httpx()
        left = max(0.05, end - time.monotonic())
        try:
            status, text, after = _finished(_posted(*message, left), left + 1)
        except (TimeoutError, httpx.RequestError) as e:
            raise BusyError(f"{type(e).__name__} {e}".strip()) from None
        except httpx.InvalidURL as e:
            raise CarrierError(f"run.agent_options.endpoint {self._where}: {e}") from None
        reply_text = self._quotable(text, 200)
        if status in AGAIN:
            raise BusyError(f"status {status}: {reply_text}", _seconds(*after))
        if status != 200:
            raise CarrierError(f"{self._where} answered status {status}: {reply_text}; check model, endpoint and key")
        return text

    def _quotable(self, text: str, most: int) -> str:
        """The beginning of what a server sent, the key struck before a part of it could be cut off."""
        return cut(" ".join(redacted(text, {"key": self.key}).split()), most)

    def _message(self, question: Question, prompt: str) -> tuple[str, dict[str, str], dict[str, Any]]:
        """(URL, headers, body) of a request."""
        user, form = {"role": "user", "content": prompt}, asked_for(self.protocol, self.output, question)
        if self.protocol == "anthropic":
            body = {
                "model": self.model,
                "max_tokens": self.most_tokens,
                "system": question.system,
                "messages": [user],
                **form,
            }
            key = {"x-api-key": self.key} if self.key else {}
            return f"{self._where}/messages", {"anthropic-version": "2023-06-01", **key}, body
        messages = [{"role": "system", "content": question.system}, user]
        body = {"model": self.model, "messages": messages, "stream": False, **form}
        body["max_completion_tokens" if self._where == ENDPOINTS["openai"] else "max_tokens"] = self.most_tokens
        key = {"authorization": f"Bearer {self.key}"} if self.key else {}
        return f"{self._where}/chat/completions", key, body

    def _read(self, text: str, body: Mapping[str, Any]) -> Reply:
        """The model's words and what they cost, tokens that the endpoint does not tell as bytes / 4; BusyError where
        what it sent is an error, or no answer of the protocol."""
        try:
            found = _streamed(text) if text.lstrip().startswith(("data:", "event:", ":")) else json.loads(text)
            if error := found.get("error"):
                raise BusyError(f"it sent an error: {self._quotable(json.dumps(error), 200)}")
            words, used = (_anthropic if self.protocol == "anthropic" else _openai)(found)
            problem, refusal, cut_off = end_of(found, self.protocol, self.most_tokens)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            raise BusyError(
                f"its answer is not of the {self.protocol} protocol: {quoted(self._quotable(text, 120))}"
            ) from None
        sent = len(json.dumps(body, ensure_ascii=False).encode()) // 4
        input_tokens, given = used[0] or sent, used[1] or len(words.encode(errors="replace")) // 4
        dollars = (input_tokens * self.prices[0] + given * self.prices[1]) / 1e6
        model = m if isinstance(m := found.get("model"), str) and m else self.model
        if problem:
            problem += f"{f': {self._quotable(refusal, 200)}' if refusal else ''}; ask another model"
        return Reply(
            words, model, input_tokens, given, round(dollars, 6), problem=problem, cut=cut_off, estimated=not all(used)
        )


async def _posted(
    url: str, headers: Mapping[str, str], body: Mapping[str, Any], left: float
) -> tuple[int, str, tuple[str, str]]:
    """(status, body, `Retry-After` and `Date`) of the answer; TimeoutError where it is not whole after `left` seconds,
    however it drips."""
    async with asyncio.timeout(left):
        # redirects are not followed: a key goes where the task file says, and nowhere else
        async with _httpx().AsyncClient(timeout=None, trust_env=True) as client:
            async with client.stream("POST", url, headers=headers, json=body) as answer:
                got = bytearray()
                async for part in answer.aiter_bytes():
                    got += part
                    if len(got) > LARGEST:
                        raise CarrierError(f"the endpoint sent more than {LARGEST:,} bytes")
                after = answer.headers.get("retry-after", ""), answer.headers.get("date", "")
                return answer.status_code, got.decode("utf-8", errors="replace"), after


def _seconds(after: str, date: str = "") -> float:
    """Of a `Retry-After` header, which holds seconds or a date, of an answer of this `Date`, since the two clocks may
    differ; 0 where it says nothing."""
    try:
        if after.strip()[:1].isdigit():
            left = float(after)
        else:
            left = (parsedate_to_datetime(after) - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, OverflowError, TypeError):
        return 0.0
    return left if 0 < left < math.inf else 0.0


def _finished(work: Coroutine[Any, Any, T], most_s: float) -> T:
    """What it returns or raises; in a thread of its own, since a notebook's has a running loop."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(asyncio.run(work))
        except BaseException as e:  # whatever it is, it is raised where it is waited for
            done.set_exception(e)

    threading.Thread(target=run, daemon=True).start()
    return done.result(most_s)


def _openai(found: Mapping[str, Any]) -> tuple[str, tuple[int, int]]:
    used = found.get("usage") or {}
    words = openai_words(found["choices"][0]["message"])
    return words, (count(used, "prompt_tokens"), count(used, "completion_tokens"))


def _anthropic(found: Mapping[str, Any]) -> tuple[str, tuple[int, int]]:
    used = found.get("usage") or {}
    input_tokens = count(used, "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return anthropic_words(found["content"]), (input_tokens, count(used, "output_tokens"))


def _streamed(text: str) -> dict[str, Any]:
    """Server-sent events of either protocol as the answer that they add up to; ValueError where the end is missing."""
    words, given, refusal, used, model, ended, why = "", "", "", dict[str, Any](), "", False, ""
    for line in text.splitlines():
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data == "[DONE]":
            ended = True
        if not data or data == "[DONE]":
            continue
        event = json.loads(data)
        if event.get("error"):
            return {"error": event["error"]}
        ended = ended or event.get("type") == "message_stop"
        message = event.get("message") or {}
        model = event.get("model") or message.get("model") or model
        used |= (event.get("usage") or {}) | (message.get("usage") or {})
        text, arguments, refused = streamed_words(event)
        words, given, refusal = words + text, given + arguments, refusal + refused
        why = streamed_end(event) or why
    if not ended:
        raise ValueError("the stream broke off")
    words = given or words
    message = {"role": "assistant", "content": words, "refusal": refusal}
    return {
        "model": model,
        "usage": used,
        "choices": [{"message": message, "finish_reason": why}],
        "stop_reason": why,
        "content": [{"type": "text", "text": words}],
    }


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise MissingDependencyError(f"carrier llm needs httpx; {install('llm')}") from None
    return httpx


def make(options: CarrierOptions, secrets: Mapping[str, str], reader: bool = False) -> LlmCarrier:
    """The model behind the endpoint."""
    return LlmCarrier(
        options.model,
        options.protocol,
        options.endpoint,
        secrets.get(key_name(options), "").strip(),
        options.most_tokens,
        options.output_mode,
        (options.price_in, options.price_out),
    )
