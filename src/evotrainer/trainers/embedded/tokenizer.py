"""Tokenizers of embedded policies, as the trainer asks them.

`Tokenizer`: a fixed vocabulary, longest match over given words, single characters as fallback. Lossless on printable
ASCII and newline. The vocabulary is handed in, never counted from data, so that a policy can be loaded whatever data
there is. Saved in the format `transformers.AutoTokenizer` loads.
`ChatTokenizer`: that of a language model with its chat template, as TRL's trainer reads it (`trainers/chat.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as HFTokenizer

from evotrainer.errors import MissingDependencyError, TrainerError, install
from evotrainer.records.regular_file import read_text
from evotrainer.trainers.chat import Chat, ChatCodec, check_demonstration, stop_ids

PAD, EOS, BOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<eos>", "<bos>", "<unk>")
CHARS = (*(chr(i) for i in range(32, 127)), "\n")
CACHE_LIMIT = 200_000


class PolicyTokenizer(Protocol):
    """What the trainer asks of a tokenizer."""

    @property
    def stops(self) -> Sequence[int]:
        """Ids that end an action; the first one ends what is learned by example."""
        ...

    def __len__(self) -> int: ...
    def prompt(self, turns: Sequence[Any]) -> list[int]:
        """Ids of everything before the first action."""
        ...

    def observation(self, turns: Sequence[Any], ended: bool) -> list[int]:
        """Ids between an action and the next; `ended`: the action ended by itself, so its end is there already."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of an action, without what ended it."""
        ...

    def demonstration(self, index: int, texts: Sequence[str]) -> tuple[list[int], list[bool]]:
        """(ids, loss mask) of (prompt, action, observation, action, ...); the loss counts actions with their ends.

        TrainerError for a demonstration of odd length or without an action.
        """
        ...

    def special_ids(self) -> tuple[int | None, int | None, int | list[int]]:
        """(padding, beginning, ends) for a config.json."""
        ...

    def save(self, folder: Path, context: int) -> None: ...


class Tokenizer:
    """Text <-> ids. Encodings are cached: prompts come back every epoch."""

    def __init__(self, backend: HFTokenizer, name: str) -> None:
        self.backend = backend
        self.name = name
        self.stops: Sequence[int] = (EOS,)
        # Text is never parsed for special tokens: a task may quote "<eos>".
        self.backend.encode_special_tokens = True
        vocab = backend.get_vocab()
        self.strings = [w for w, _ in sorted(vocab.items(), key=lambda x: x[1])]
        self._cache: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self.strings)

    def encode(self, text: str) -> list[int]:
        """Ids of the text, without <bos> or <eos>. Callers must not change the list: it is the cache's."""
        ids = self._cache.get(text)
        if ids is None:
            # emptied whole: an LRU would cost more than encoding the odd prompt again
            if len(self._cache) >= CACHE_LIMIT:
                self._cache.clear()
            ids = self._cache[text] = self.backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids; special tokens are left out."""
        s = self.strings
        return "".join([s[i] for i in ids if i > UNK])

    def prompt(self, turns: Sequence[Any]) -> list[int]:
        """<bos> and the text of all turns that are not the policy's."""
        return [BOS, *self.encode("\n".join(t.text for t in turns if t.role != "assistant"))]

    def observation(self, turns: Sequence[Any], ended: bool) -> list[int]:
        """As a prompt: every text begins with <bos>."""
        return self.prompt(turns)

    def demonstration(self, index: int, texts: Sequence[str]) -> tuple[list[int], list[bool]]:
        check_demonstration(index, texts)
        ids, loss = [BOS, *self.encode(texts[0])], [False] * (1 + len(self.encode(texts[0])))
        for i, text in enumerate(texts[1:]):
            part = [BOS, *self.encode(text)] if i % 2 else [*self.encode(text), EOS]
            ids += part
            loss += [i % 2 == 0] * len(part)
        return ids, loss

    def special_ids(self) -> tuple[int | None, int | None, int | list[int]]:
        return PAD, BOS, EOS

    def save(self, folder: Path, context: int) -> None:
        """Write tokenizer.json and tokenizer_config.json."""
        self.backend.save(str(folder / "tokenizer.json"))
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": SPECIALS[PAD],
            "eos_token": SPECIALS[EOS],
            "bos_token": SPECIALS[BOS],
            "unk_token": SPECIALS[UNK],
            "padding_side": "left",
            "clean_up_tokenization_spaces": False,
            "model_max_length": context,
            "model_input_names": ["input_ids", "attention_mask"],
            "vocabulary": self.name,
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


class ChatTokenizer(ChatCodec):
    """A language model's own tokenizer; `chat`: whether turns are put into its template (auto: where it has one)."""

    def __init__(self, folder: Path, chat: Chat = "auto") -> None:
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise MissingDependencyError(
                f"policy {folder} is a language model, whose tokenizer needs transformers; {install('gguf')}"
            ) from None
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder)
        except Exception as e:  # transformers raises many types
            raise TrainerError(f"policy {folder}: tokenizer cannot be read ({e}); restore the policy folder") from None
        if not (stops := stop_ids(folder, tokenizer)):
            raise TrainerError(
                f"policy {folder}: its tokenizer has no end-of-text token; set eos_token in tokenizer_config.json"
            )
        super().__init__(tokenizer, stops, chat)

    def __len__(self) -> int:
        return len(self.tokenizer)

    def special_ids(self) -> tuple[int | None, int | None, int | list[int]]:
        return self.tokenizer.pad_token_id, self.tokenizer.bos_token_id, self.stops

    def save(self, folder: Path, context: int) -> None:
        self.tokenizer.save_pretrained(folder)


def build_tokenizer(words: Sequence[str], name: str) -> Tokenizer:
    """Tokenizer over the specials, the printable ASCII characters, newline and the given words, in this order.

    `words`: multi-character tokens; duplicates and single characters are skipped. `name`: version of the vocabulary,
    kept in tokenizer_config.json. Raises TrainerError for a word with characters outside printable ASCII and newline.
    """
    extra = [w for w in dict.fromkeys(words) if len(w) > 1 and w not in SPECIALS]
    for w in extra:
        if any(c not in CHARS for c in w):
            raise TrainerError(f"vocabulary {name}: word {w!r} is not printable ASCII; remove it")
    tokens = [*SPECIALS, *CHARS, *extra]
    vocab = {t: i for i, t in enumerate(tokens)}
    tk = HFTokenizer(models.WordLevel(vocab, unk_token=SPECIALS[UNK]))
    # the regex engine takes the first alternative that matches, so order makes it longest match
    longest_first = "|".join(re.escape(w).replace("\\\n", r"\n") for w in sorted(extra, key=lambda w: (-len(w), w)))
    pattern = (longest_first + "|" if extra else "") + r"[\s\S]"
    tk.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    # tokens are joined as they are: no blank between words, the text comes back byte by byte
    tk.decoder = decoders.Fuse()
    tk.post_processor = processors.TemplateProcessing(
        single=f"{SPECIALS[BOS]} $A", pair=f"{SPECIALS[BOS]} $A $B", special_tokens=[(SPECIALS[BOS], BOS)]
    )
    tk.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    return Tokenizer(tk, name)


def load_tokenizer(folder: Path, chat: Chat = "auto") -> PolicyTokenizer:
    """The tokenizer of a policy folder, `chat` as `ChatTokenizer` takes it; TrainerError where there is none."""
    try:
        config = json.loads(read_text(folder / "tokenizer_config.json"))
        if "vocabulary" in config:
            backend = HFTokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as e:  # the tokenizers library raises bare Exception
        raise TrainerError(f"policy {folder}: tokenizer cannot be read ({e}); restore the policy folder") from None
    if "vocabulary" not in config:
        return ChatTokenizer(folder, chat)
    if tuple(backend.id_to_token(i) for i in range(len(SPECIALS))) != SPECIALS:
        raise TrainerError(f"policy {folder}: tokenizer.json does not start with {SPECIALS}; not an embedded policy")
    return Tokenizer(backend, str(config["vocabulary"]))
