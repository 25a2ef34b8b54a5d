"""Conversations of others as turns: chat messages, Responses items, and what a tool's reply tells of success."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, get_args

from evotrainer.importers.lenient_json import from_text, number, text
from evotrainer.importers.messages import (
    RETURNED,
    Message,
    MessageCall,
    MessageReply,
    as_text,
    call_of,
    fenced_command,
    parse_message,
    refused,
    written_calls,
)
from evotrainer.records.rollout import Finish, Role, ToolCall, Turn

FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_calls": "stop",
    "tool_use": "stop",
    "completed": "stop",
    "env_done": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "truncated": "length",
    "max_response_length_exceeded": "length",
    "turn_limit": "turn_limit",
    "max_turns": "turn_limit",
    "max_turns_reached": "turn_limit",
    "max_turns_exceeded": "turn_limit",
    "max_steps": "turn_limit",
    "max_iterations": "turn_limit",
    "error": "error",
}
_SEGMENT = re.compile(r"(?:<\|im_end\|>)?(?:^|\n<\|im_start\|>|\n|<\|im_start\|>)(user|assistant|tool)\n")
_ERROR_HEAD = re.compile(r"\s{0,9}(?:error\b|traceback \(most recent|exception\b|unknown tool|tool not found)", re.I)
_HEADER = re.compile(r"\s{0,64}(?:\w{1,40}(?: \w{1,40})?:[ \t]{0,9}\r?\n\s{0,64})?")
_TAG = re.compile(r"<(\w{1,40})>")
_ANSWERED = re.compile(r"</tool_call>\s{0,64}<tool_response>")
_CODES = ("exit_code", "returncode", "return_code", "exitcode")

Verdict = Callable[[dict[str, Any]], bool | None]
"""Success of a tool call by the message that replies to it; None where the reply does not tell."""


def finish(value: Any) -> Finish | None:
    """Why sampling ended, from the usual names; None where unknown."""
    if isinstance(value, str):
        return value if value in get_args(Finish) else FINISHES.get(value.lower())  # type: ignore[return-value]
    return None


def arguments(value: Any) -> str:
    """Arguments of a call as text, as the policy wrote them where they are text."""
    # Columnar files give every struct of a column the same keys, None where it had none.
    return as_text({k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value)


def error_flag(message: dict[str, Any]) -> bool | None:
    """The verdict of formats whose replies carry an `error`: false where there is one, true otherwise."""
    return not message.get("error")


def error_prefix(message: dict[str, Any]) -> bool | None:
    """The verdict of formats whose failed tools reply with a text that starts with "Error"."""
    return not text(message.get("content")).lstrip().lower().startswith("error")


def succeeded(reply: Any) -> bool | None:
    """Whether a tool's reply reports success: by exit code, `success`, `error`, a status, an error text at its head."""
    if isinstance(reply, str):
        # bounded: a reply may be megabytes, and agents print the code at its head
        if found := RETURNED.search(reply, 0, 4096):
            return int(found[1]) == 0
        if reply[:1] == "{" and len(reply) < 2**20:
            reply = from_text(reply)
        else:
            return False if _ERROR_HEAD.match(reply) else None
    if not isinstance(reply, dict):
        return None
    # from the most to the least explicit: an exit code beats a flag, a flag a status, a status an `error` field
    for key in _CODES:
        if key in reply and (code := number(reply[key])) is not None:
            return code == 0
    for key, good in (("success", True), ("ok", True), ("is_error", False), ("isError", False)):
        if isinstance(reply.get(key), bool):
            return bool(reply[key]) is good
    if reply.get("status") in ("error", "failed", "failure", "timeout", "success", "ok"):
        return reply["status"] in ("success", "ok")
    if "error" in reply:
        # present and empty is success: many formats always write the field
        return not reply["error"]
    return None


class Conversation:
    """Turns as they come; a tool's reply settles the `ok` of the call it answers, in time linear in both.

    Where the format says by a `verdict` whether a call succeeded, neither the words of replies are asked for it nor
    the texts for calls.
    """

    def __init__(self, verdict: Verdict | None = None) -> None:
        self.verdict = verdict
        self._turns: list[tuple[Role, list[str], list[ToolCall], int | None]] = []
        self._open: dict[str, tuple[int, int]] = {}
        # ordered: its first item is found at once, however many before it are gone
        self._waiting: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._written: set[int] = set()
        """Turns whose calls are written in their text."""
        self._quoted: tuple[int, list[MessageCall]] = (0, [])
        """A turn and the calls that its text quotes: a reply to none else tells that they were run."""
        self._thought = ""
        self.recorded = False
        """Are calls recorded as such? Then one that is written in the text is one that the agent did not do."""

    def think(self, words: str) -> None:
        """A thought that comes by itself: it is put in front of the words or the call that it led to."""
        self._thought = f"{self._thought}\n{words}" if self._thought and words else self._thought or words

    def add_turn(self, role: Role, words: str, calls: Sequence[Any] = (), tokens: int | None = None) -> None:
        """Append a turn; `calls` are raw ones."""
        if role != "tool":
            self._quoted = (0, [])
        if role == "assistant":
            self._waiting.clear()  # what was not answered by now is not answered by a reply without an id
            self.think(words)
            words, self._thought = self._thought, ""
        self._turns.append((role, [words], [], tokens))
        for raw in calls:
            self.call(*call_of(raw))

    def call(self, name: Any, args: Any, id: Any = None, ok: bool | None = None) -> None:
        """A call of the assistant's last turn; where the last turn is not its own, a turn without words."""
        if self._thought or not self._turns or self._turns[-1][0] != "assistant":
            self.add_turn("assistant", "")
        self._add(len(self._turns) - 1, name, args, id, ok)

    def _add(self, turn: int, name: Any, args: Any, id: Any, ok: bool | None) -> None:
        calls = self._turns[turn][2]
        calls.append(ToolCall(name if isinstance(name, str) else text(name), arguments(args), ok))
        if ok is None:
            place = (turn, len(calls) - 1)
            # calls with an id wait here, too: many formats give calls an id and their replies none
            self._waiting[place] = None
            if isinstance(id, str):
                self._open[id] = place

    def reply(self, words: str, id: Any = None, ok: bool | None = None, raw: Any = None) -> None:
        """A tool's reply: to the call of that id, else to the oldest call without one."""
        if not self._waiting:
            (turn, quoted), self._quoted = self._quoted, (0, [])
            for call in quoted:
                self._add(turn, *call)
        place = self._open.pop(id, None) if isinstance(id, str) else None
        # a reply with an id that no call has, while other calls wait for theirs, answers none of them
        if place is None and self._waiting and not (isinstance(id, str) and self._open):
            place = next(iter(self._waiting))
        if place is not None:
            self._waiting.pop(place, None)
            calls = self._turns[place[0]][2]
            if ok is None and self.verdict is None:
                ok = succeeded(words if raw is None else raw)
            calls[place[1]] = ToolCall(calls[place[1]].name, calls[place[1]].arguments, ok)
        self.add_turn("tool", words)

    def hear(self, words: str) -> None:
        """What the user's side says: results of tools (`<tool_response>`, `<returncode>`), or words."""
        # a prompt may explain the form: before the policy spoke nothing was called
        *closed, tail = words.split("</tool_response>")
        if tail.lstrip().startswith("<tool_response>") and (self._waiting or self._quoted[1]):  # cut off
            closed, tail = [*closed, tail], ""
        if any("<tool_response>" in x for x in closed) and any(t[0] == "assistant" for t in self._turns):
            for piece in closed:
                head, tag, reply = piece.partition("<tool_response>")
                if head.strip():
                    self.add_turn("user", head)
                if tag:
                    self.reply(reply.strip("\n"))
            if tail.strip():
                self.add_turn("user", tail)
            return
        # a return code tells that the one command block before it was run
        if self._turns and self._turns[-1][0] == "assistant" and (code := _returned(words)) is not None:
            _, text, calls, _ = self._turns[-1]
            if not calls and (command := fenced_command("\n".join(text))) is not None:
                self.call("bash", command)
            if self._waiting:
                self.reply(words, ok=code == 0)
                return
        self.add_turn("user", words)

    def add_policy_turn(self, words: str, tokens: int | None = None) -> None:
        """What the policy says; where it holds the turns of an agent (template words `user`, `assistant` on their own
        lines around tool calls), as turns of their own."""
        at, who = 0, "assistant"
        pieces = _segments(words) if "<tool_call>" in words and "<tool_response>" in words else []
        for end, after, following in [*((m.start(), m.end(), m[1]) for m in pieces), (len(words), len(words), "")]:
            if pieces and not words[at:end].strip():
                pass
            elif who != "assistant":
                self.hear(words[at:end])
            else:
                self.add_turn("assistant", words[at:end], tokens=tokens if not pieces else None)
                for call in [] if self.recorded else written_calls(words[at:end]):
                    self.call(*call)
                    self._written.add(len(self._turns) - 1)
                if not self.recorded:
                    self._quoted = (len(self._turns) - 1, written_calls(words[at:end], quoted=True))
            at, who = after, following

    def turns(self) -> tuple[Turn, ...]:
        if self._thought:
            self.add_turn("assistant", "")
        last = len(self._turns) - 1
        # nothing was ever replied and nothing comes after: it is an answer, to be read as one
        replied = any(t[0] == "tool" for t in self._turns)
        if last in self._written and not replied and not any(map(_ANSWERED.search, self._turns[last][1])):
            self._turns[last][2].clear()
        return tuple(Turn(r, "\n".join(w), tuple(c), t) for r, w, c, t in self._turns)


def _returned(words: str) -> int | None:
    """The return code that a message begins with on a line of its own, as agents print it: after one line that names it
    (`Observation:`) and after what stands in tags of its own (`<exception>`, `<output>`); None where there is none."""
    head = _HEADER.match(words)
    at = head.end() if head else 0
    while (found := RETURNED.match(words, at)) is None:
        opened = _TAG.match(words, at)
        if opened is None or (end := words.find(close := f"</{opened[1]}>", opened.end())) < 0:
            return None
        at = end + len(close)
        at += len(words[at : at + 64]) - len(words[at : at + 64].lstrip())
    rest = words[found.end() : found.end() + 64].lstrip(" \t")
    return int(found[1]) if rest[:1] in ("", "\r", "\n", "<") else None


def _segments(words: str) -> list[re.Match[str]]:
    """Where an agent's turns change in a text: to the user where a tool's response follows at once, back after its end.
    An answer may quote such words on lines of their own."""
    out: list[re.Match[str]] = []
    closed = -1
    """End of the response of the user's turn that is open."""
    for m in _SEGMENT.finditer(words):
        if m[1] == "assistant":
            if not m.start() or 0 <= closed < m.start():
                out.append(m)
                closed = -1
        elif closed < 0 and words[m.end() : m.end() + 64].lstrip().startswith("<tool_response>"):
            closed = words.find("</tool_response>", m.end())
            out.append(m)
            if closed < 0:  # cut off
                break
    return out


def turns(messages: Any, verdict: Verdict = error_flag) -> tuple[Turn, ...]:
    """Messages as turns, success by `verdict`; what is no list gives none, what is no message is kept as text."""
    talk = Conversation(verdict)
    add(talk, [m if isinstance(m, dict) else as_text(m) for m in messages] if isinstance(messages, list) else None)
    return talk.turns()


def messages(value: Any, default: Role = "user") -> tuple[Turn, ...]:
    """Turns of a conversation: a string (one turn of role `default`), a message, or a list of messages.

    Raises ValueError for anything else.
    """
    talk = Conversation()
    add(talk, value, default)
    return talk.turns()


def add(talk: Conversation, value: Any, default: Role = "user") -> None:
    """Append a conversation to `talk`; see `messages`."""
    if value is None:
        return
    if isinstance(value, str):
        _add_words(talk, default, value)
    elif isinstance(value, dict):
        _message(talk, value)
    elif isinstance(value, list):
        for m in value:
            if isinstance(m, dict):
                _message(talk, m)
            elif isinstance(m, str):
                _add_words(talk, default, m)
            else:
                raise ValueError(f"a message is not an object but {type(m).__name__}")
    else:
        raise ValueError(f"the conversation is not a list of messages but {type(value).__name__}")


def _message(talk: Conversation, m: dict[str, Any]) -> None:
    message = parse_message(m)
    own = message.role == "assistant"  # a server's tool replies in the message that calls it
    for r in [] if own else message.replies:
        _reply(talk, m, message, r)
    if message.thought:
        talk.think(message.words)
        return
    tokens = m.get("tokens")
    # type() and not isinstance: True is an int
    counted = tokens if type(tokens) is int and 0 <= tokens < 2**63 else None
    # an item that is a call alone belongs to the words before it
    alone = bool(message.calls) and message.calls[0] is m
    if message.words or (not alone and (message.calls or not message.replies)):
        if message.calls or talk.verdict is not None:
            talk.add_turn(message.role, message.words, tokens=counted)
        else:
            _add_words(talk, message.role, message.words, counted)
    for raw in message.calls:
        talk.recorded = True
        talk.call(*call_of(raw))
    for r in message.replies if own else []:
        _reply(talk, m, message, r)


def _reply(talk: Conversation, m: dict[str, Any], message: Message, r: MessageReply) -> None:
    to, ok = r.to, r.ok
    if talk.verdict is not None:
        to = to or (m.get("id") if message.role == "tool" else None)
        # a reply among the blocks of a message failed where it says so
        ok = talk.verdict(m) if message.role == "tool" else ok is not False
        ok = None if refused(r.words) else ok
    talk.reply(r.words, to, ok, r.raw)


def _add_words(talk: Conversation, who: Role, words: str, tokens: int | None = None) -> None:
    if who == "assistant" and "<tool_call>" in words:
        talk.add_policy_turn(words, tokens)
    elif who == "user" and talk.verdict is None:
        talk.hear(words)
    else:
        talk.add_turn(who, words, tokens=tokens)


def is_int(value: Any) -> bool:
    """A whole number that fits 64 bits, and no boolean."""
    return type(value) is int and -(2**63) <= value < 2**63
