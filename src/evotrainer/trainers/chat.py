"""From turns to tokens and back: what a policy of the Hugging Face form reads and says.

With a chat template, a prompt is the template's rendering of its turns as messages, and an observation is what the
template puts between two assistant turns. Without one, each text is encoded with the tokenizer's special tokens and
follows the tokens before it. Tokens once sampled are never decoded and encoded again.

Templates that render a turn differently once another follows it (Qwen3's drops earlier thoughts) are replaced by TRL's
prefix-preserving variant, where TRL has one; the policy folder keeps its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from evotrainer.errors import ConfigError, TrainerError
from evotrainer.records.regular_file import read_text
from evotrainer.records.rollout import Turn
from evotrainer.records.text import quoted

Chat = bool | Literal["auto"]
CACHED = 50_000
PLAIN = (
    "the policy's tokenizer has no chat template: what system and user say reaches it as plain text; give it one "
    "(chat_template.jinja in its folder), or set trainer.options.chat=false where that is meant"
)
SWAPPED = (
    "the policy's chat template renders a turn differently once another follows it; TRL's prefix-preserving training "
    "template takes its place in sampling, training and evaluation (the policy folder keeps its own)"
)


def messages(turns: Sequence[Any]) -> list[dict[str, str]]:
    """The environment's turns as messages: system stays, all else is the user's; neighbours of one role are joined.

    A tool's answer is a user message too: actions are plain text, and templates refuse a tool's message without a call.
    """
    out: list[dict[str, str]] = []
    for t in turns:
        role = t.role if t.role in ("system", "assistant") else "user"
        # templates (Mistral's, Gemma's) refuse two messages of one role in a row
        if out and out[-1]["role"] == role:
            out[-1]["content"] += "\n" + t.text
        else:
            out.append({"role": role, "content": t.text})
    return out


def check_demonstration(index: int, texts: Sequence[str]) -> None:
    """TrainerError for a demonstration of odd length or without an action."""
    if isinstance(texts, str) or len(texts) < 2 or len(texts) % 2:
        raise TrainerError(
            f"demonstration {index} has {'no' if isinstance(texts, str) else len(texts)} texts: "
            f"{quoted(texts, 120)}; give (prompt, action, observation, action, ...), of even length, "
            "the last one an action"
        )


class ChatCodec:
    """Encodes and decodes for one policy. `stops`: ids that end an action.

    `note`: what a reader should know of the template that is used; empty where it is the policy's own.
    """

    def __init__(
        self,
        tokenizer: Any,
        stops: Sequence[int],
        chat: Chat = "auto",
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        has = bool(getattr(tokenizer, "chat_template", None))
        if chat is True and not has:
            raise ConfigError(
                "trainer.options.chat=true, but the policy's tokenizer has no chat template; set it to auto or false"
            )
        self.tokenizer, self.stops, self.kwargs = tokenizer, list(stops), dict(kwargs or {})
        self.chat = has if chat == "auto" else bool(chat)
        self._template: str | None = None
        self._prefix: list[int] | None = None
        self._cache: dict[tuple[Any, ...], list[int]] = {}
        self.note = "" if has or chat is False else PLAIN
        if self.chat and not self._preserves() and (other := training_template(tokenizer)):
            self._template, self._prefix = other, None
            if self._preserves():
                self.note = SWAPPED
            else:
                # TRL's variant does not help: back to the policy's own, and `observation` tries the other way
                self._template = self._prefix = None

    def prompt(self, turns: Sequence[Any]) -> list[int]:
        """Ids of everything before the first action."""
        if not self.chat:
            return self._cached(("plain", _joined(turns)), self._plain)
        history = messages(turns)
        return self._cached(
            ("chat", *((m["role"], m["content"]) for m in history)), lambda *_: self._render(history, True)
        )

    def observation(self, turns: Sequence[Any], ended: bool) -> list[int]:
        """Ids between an action and the next; `ended`: the action ended by itself, so its end is there already."""
        if not self.chat:
            return self._cached(("plain", _joined(turns)), self._plain)
        history = messages(turns)
        key = tuple((m["role"], m["content"]) for m in history)
        full = self._cached(("seen", *key), lambda *_: self._render([*DUMMY, *history], True))
        prefix = self._before()
        if full[: len(prefix)] == prefix:
            # cut by the budget: the end token that the template expects was never sampled; it is added, outside of the
            # loss
            end = [prefix[-1]] if not ended and prefix[-1] in self.stops else []
            return end + full[len(prefix) :]
        # What follows the action in two renderings that differ in the action alone.
        other = self._cached(("other", *key), lambda *_: self._render([*OTHER, *history], True))
        tail = full[len(full) - _common_end(full, other) :]
        if full == other or not tail or tail[0] not in self.stops:
            raise TrainerError(
                "the policy's chat template renders a turn differently once another follows it, "
                "and no token that ends an action stands behind it, so turns cannot be appended; "
                "give the policy a prefix-preserving template (`pip install trl` brings some), set "
                "trainer.options.chat=false, or recipe.max_turns=1"
            )
        return tail[1:] if ended else tail

    def check_turns(self) -> None:
        """TrainerError where turns cannot be appended."""
        self.observation([Turn("user", "?")], True)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of an action, without what ended it."""
        n = len(ids) - (1 if ids and ids[-1] in self.stops else 0)
        return str(self.tokenizer.decode(list(ids[:n]), skip_special_tokens=True))

    def demonstration(self, index: int, texts: Sequence[str]) -> tuple[list[int], list[bool]]:
        """(ids, loss mask) of (prompt, action, observation, action, ...); the loss counts actions with their ends.

        TrainerError for a demonstration of odd length or without an action.
        """
        check_demonstration(index, texts)
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

    def _preserves(self) -> bool:
        """Whether the template renders a finished action the same once the environment answers;
        False where it cannot."""
        try:
            prefix = self._before()
            return self._render([*DUMMY, {"role": "user", "content": "?"}], True)[: len(prefix)] == prefix
        except TrainerError:
            return False

    def _before(self) -> list[int]:
        """The rendering of a finished assistant turn, up to the token that ends it."""
        if self._prefix is None:
            ids = self._render(DUMMY, False)
            # the last token that ends an action: templates put a newline behind it
            last = max((i for i, t in enumerate(ids) if t in self.stops), default=len(ids) - 1)
            self._prefix = ids[: last + 1]
        return self._prefix

    def _render(self, history: Sequence[Mapping[str, str]], more: bool) -> list[int]:
        kwargs = self.kwargs if self._template is None else {**self.kwargs, "chat_template": self._template}
        try:
            ids = self.tokenizer.apply_chat_template(
                list(history), add_generation_prompt=more, tokenize=True, return_dict=False, **kwargs
            )
        except Exception as e:  # templates raise jinja2's errors and their own
            raise TrainerError(
                f"the policy's chat template cannot render {[m['role'] for m in history]}: {e}; "
                "set trainer.options.chat=false or give the policy another template"
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


def notes_of_turns(codec: ChatCodec, folder: Path, several: bool) -> list[str]:
    """Notes for the reader; ConfigError where the template of the policy in `folder` cannot carry `several` turns."""
    if codec.chat and not several:
        return []
    try:
        codec.check_turns()
    except TrainerError as e:
        raise ConfigError(f"policy {folder}: {e}") from e
    return [codec.note] if codec.note else []


def stop_ids(folder: Path, tokenizer: Any) -> list[int]:
    """Ids that end an action: the tokenizer's and all that the files of the model in `folder` declare."""
    ids: list[int | None] = [tokenizer.eos_token_id]
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            declared = json.loads(read_text(folder / name)).get("eos_token_id")
            # transformers allows one id or a list (Llama 3 ends turns and texts by different tokens)
            ids += [declared] if isinstance(declared, int) else declared or ()
            break
    return list(dict.fromkeys(i for i in ids if i is not None))


DUMMY = ({"role": "user", "content": "?"}, {"role": "assistant", "content": "!"})
OTHER = ({"role": "user", "content": "?"}, {"role": "assistant", "content": "0"})


def training_template(tokenizer: Any) -> str | None:
    """TRL's training variant of a tokenizer's template; None where TRL has none, or is not installed."""
    try:
        from trl.chat_template_utils import get_training_chat_template

        template: str | None = get_training_chat_template(tokenizer)
        return template
    except Exception:  # ValueError for an unknown template; templates raise jinja2's errors and their own
        return None


def _common_end(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of last ids that two sequences share."""
    n = 0
    for x, y in zip(reversed(a), reversed(b), strict=False):
        if x != y:
            break
        n += 1
    return n


def _joined(turns: Sequence[Any]) -> str:
    return "\n".join(t.text for t in turns if t.role != "assistant")
