"""From turns to tokens and back: what a policy of the Hugging Face form reads and says.

With a chat template, a prompt is the template's rendering of its turns as messages, and an observation is what the template
puts between two assistant turns. Without one, each text is encoded with the tokenizer's special tokens and follows the
tokens before it. Tokens once sampled are never decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from evotrainer.errors import ConfigError, TrainerError
from evotrainer.records.rollout import Turn

CACHED = 50_000


def messages(turns: Sequence[Any]) -> list[dict[str, str]]:
    """The environment's turns as messages: system stays, all else is the user's; neighbours of one role are joined.

    A tool's answer is a user message too: actions are plain text, and templates refuse a tool's message without a call.
    """
    out: list[dict[str, str]] = []
    for t in turns:
        role = t.role if t.role in ("system", "assistant") else "user"
        if out and out[-1]["role"] == role:
            out[-1]["content"] += "\n" + t.text
        else:
            out.append({"role": role, "content": t.text})
    return out


class Transcript:
    """Encodes and decodes for one policy. `stops`: ids that end an action."""

    def __init__(
        self,
        tokenizer: Any,
        stops: Sequence[int],
        chat: bool | Literal["auto"] = "auto",
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        has = bool(getattr(tokenizer, "chat_template", None))
        if chat is True and not has:
            raise ConfigError(
                "trainer.options.chat=true, but the policy's tokenizer has no chat template; set it to auto or false"
            )
        self.tokenizer, self.stops, self.kwargs = tokenizer, list(stops), dict(kwargs or {})
        self.chat = has if chat == "auto" else bool(chat)
        self._prefix: list[int] | None = None
        self._cache: dict[tuple[Any, ...], list[int]] = {}

    def prompt(self, turns: Sequence[Any]) -> list[int]:
        """Ids of everything before the first action."""
        if not self.chat:
            return self._cached(("plain", _joined(turns)), self._plain)
        said = messages(turns)
        return self._cached(("chat", *((m["role"], m["content"]) for m in said)), lambda *_: self._render(said, True))

    def observation(self, turns: Sequence[Any], ended: bool) -> list[int]:
        """Ids between an action and the next; `ended`: the action ended by itself, so its end is there already."""
        if not self.chat:
            return self._cached(("plain", _joined(turns)), self._plain)
        prefix = self._before()
        full = self._cached(
            ("seen", *((m["role"], m["content"]) for m in messages(turns))),
            lambda *_: self._render([*DUMMY, *messages(turns)], True),
        )
        if full[: len(prefix)] != prefix:
            raise TrainerError(
                "the policy's chat template renders a turn differently once another follows it, so turns cannot be "
                "appended; give the policy a prefix-preserving template, or set trainer.options.chat=false"
            )
        end = [prefix[-1]] if not ended and prefix[-1] in self.stops else []
        return end + full[len(prefix) :]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of an action, without what ended it."""
        n = len(ids) - (1 if ids and ids[-1] in self.stops else 0)
        return str(self.tokenizer.decode(list(ids[:n]), skip_special_tokens=True))

    def demonstration(self, index: int, texts: Sequence[str]) -> tuple[list[int], list[bool]]:
        """(ids, loss mask) of (prompt, action, observation, action, ...); the loss counts actions with their ends.

        TrainerError for a demonstration of odd length or without an action.
        """
        if isinstance(texts, str) or len(texts) < 2 or len(texts) % 2:
            raise TrainerError(
                f"demonstration {index} has {'no' if isinstance(texts, str) else len(texts)} texts: {str(texts)[:120]!r}; "
                "give (prompt, action, observation, action, ...), of even length, the last one an action"
            )
        ids = self.prompt([Turn("user", texts[0])])
        loss = [False] * len(ids)
        for i, text in enumerate(texts[1:]):
            if i % 2:
                part = self.observation([Turn("user", text)], True)
            else:
                part = [*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.stops[0]]
            ids += part
            loss += [i % 2 == 0] * len(part)
        return ids, loss

    def _before(self) -> list[int]:
        """The rendering of a finished assistant turn, up to the token that ends it."""
        if self._prefix is None:
            ids = self._render(DUMMY, False)
            last = max((i for i, t in enumerate(ids) if t in self.stops), default=len(ids) - 1)
            self._prefix = ids[: last + 1]
        return self._prefix

    def _render(self, said: Sequence[Mapping[str, str]], more: bool) -> list[int]:
        try:
            ids = self.tokenizer.apply_chat_template(
                list(said), add_generation_prompt=more, tokenize=True, return_dict=False, **self.kwargs
            )
        except Exception as e:  # templates raise jinja2's errors and their own
            raise TrainerError(
                f"the policy's chat template cannot render {[m['role'] for m in said]}: {e}; set trainer.options.chat=false "
                "or give the policy another template"
            ) from e
        return list(ids)

    def _plain(self, _: str, text: str) -> list[int]:
        return list(self.tokenizer(text)["input_ids"])

    def _cached(self, key: tuple[Any, ...], make: Any) -> list[int]:
        if (ids := self._cache.get(key)) is None:
            if len(self._cache) >= CACHED:
                self._cache.clear()
            ids = self._cache[key] = make(*key)
        return list(ids)


DUMMY = ({"role": "user", "content": "?"}, {"role": "assistant", "content": "!"})


def _joined(turns: Sequence[Any]) -> str:
    return "\n".join(t.text for t in turns if t.role != "assistant")
