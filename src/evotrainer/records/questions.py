"""Questions to a model or a program: a question, and the settings by which it is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from evotrainer.records.frozen import Frozen


@dataclass(frozen=True)
class Question:
    """What a model or a program is asked, whatever it is about."""

    text: str
    """Markdown."""
    form: str
    """The same for programs, as JSON."""
    schema: Mapping[str, Any]
    """JSON Schema of an answer."""
    system: str
    """Whom a model is told to be."""
    about: str
    """What an answer does, in one sentence: of the tool that is its form in output mode `tool`."""

    @property
    def sha256(self) -> str:
        """Of the text, 64 hex digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()


class Answered(Frozen):
    """What came of a question, as far as it is the same whatever it was about."""

    raw: str = ""
    """The answer as it came, secrets struck out."""
    model: str = ""
    """Who answered, as far as the carrier knows."""
    by: str = ""
    """Of carrier queue: who handed it over (`user@host`, `in the browser` where it was there) ..."""
    at: str = ""
    """... and when: UTC, ISO 8601."""
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    wall_s: float = 0.0
    """Seconds until the answer was there, waiting for a person included."""


class CarrierOptions(Frozen):
    """How a model or a program is asked."""

    retries: int = Field(3, ge=0, le=20)
    """How often a refused answer is asked for again, with the reason."""
    tokens: int | None = Field(None, ge=0)
    """Tokens, of requests and answers together, after which nobody is asked any more; None: no limit."""
    dollars: float | None = Field(None, ge=0)
    """The same in dollars; of carrier llm only with `price_in` and `price_out`."""
    timeout_s: float = Field(600.0, gt=0)
    """Seconds that one answer is waited for."""
    model: str = ""
    """Of carrier llm: the model's name at its endpoint."""
    protocol: Literal["openai", "anthropic"] = "openai"
    """Of carrier llm: whose requests its endpoint understands."""
    endpoint: str = Field("", pattern=r"^(https?://[^\s@]+)?$")
    """Base URL, up to and with `/v1`; empty: that of the protocol's own vendor."""
    key_env: str = ""
    """Environment variable that holds the key. Empty: OPENAI_API_KEY or ANTHROPIC_API_KEY, and none with `endpoint`."""
    output: Literal["", "text", "json", "schema", "tool"] = ""
    """How an answer is asked for; `evotrainer doctor --seat` tells which modes work, and the cheapest. Empty: text."""
    json_mode: bool = False
    """The same as output = "json", for protocol openai."""
    most_tokens: int = Field(4096, ge=64)
    """Tokens of one answer."""
    price_in: float = Field(0.0, ge=0)
    """Dollars per million tokens of input, for `dollars` ..."""
    price_out: float = Field(0.0, ge=0)
    """... and of output."""
    command: tuple[str, ...] = ()
    """Of carrier command: program and arguments ({briefing_file}, {request_file}, {schema_file}, {answer_file})."""
    env: tuple[str, ...] = ()
    """Of carrier command: environment variables that the program gets, and nobody else."""
    mount: tuple[str, ...] = ()
    """Of carrier command: files and folders that the program sees beside the system, read-only, or `PATH:rw`."""
    sandbox: bool = True
    """Of carrier command: run it inside bubblewrap. False: it can read what you can read."""

    @model_validator(mode="after")
    def _spoken(self) -> Self:
        if self.output == "json" and self.protocol == "anthropic":
            raise ValueError("the Anthropic protocol has no JSON mode; set output to schema, tool or text")
        unpriced = not (self.price_in and self.price_out)
        if self.dollars and unpriced and self.model and getattr(self, "carrier", "llm") == "llm":
            raise ValueError("a cap in dollars needs price_in and price_out, dollars per million tokens; set both")
        return self

    @property
    def output_mode(self) -> str:
        """`output`, or what stands for it."""
        return self.output or ("json" if self.json_mode and self.protocol == "openai" else "text")


class ChosenCarrier(CarrierOptions):
    """Who is asked, and how."""

    section: ClassVar[str]
    """Of the task file."""
    carrier: Literal["llm", "command", "queue", "replay"]
    """Who is asked: a model behind an endpoint, a program, whoever answers by `evotrainer propose` or
    `evotrainer mcp`, the recorded answers of a run."""
    run: str = ""
    """Of carrier replay: the run whose answers are played."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        need = {"llm": "model", "command": "command", "replay": "run"}.get(self.carrier)
        if need and not getattr(self, need):
            raise ValueError(f"carrier {self.carrier} needs {self.section}.{need}")
        return self
