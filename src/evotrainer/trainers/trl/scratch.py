"""A small policy of the Hugging Face form from scratch: Qwen3's architecture, a byte-level tokenizer, a chat template.

What `policy.base = "warm-start"` means with the trl trainer: the whole loop runs offline, on a laptop, through the same
code that trains a downloaded model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from evotrainer.errors import TrainerError
from evotrainer.trainers.base import WarmStartRequest
from evotrainer.trainers.chat import ChatCodec
from evotrainer.trainers.clock import cpu_now
from evotrainer.trainers.schedule import bucketed, warm_rate
from evotrainer.trainers.trl.folder import context_of, load_model, load_tokenizer, save_folder, stop_ids
from evotrainer.trainers.trl.generate import padded

PAD, END, START = "<|endoftext|>", "<|im_end|>", "<|im_start|>"
TOOL_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
VOCABULARY = 1024
"""Tokens at most: 256 bytes, the specials, and merges counted on the demonstrations."""
TEMPLATE = """\
{%- if tools %}{{- '<|im_start|>system\\n' }}{%- for t in tools %}{{- t | tojson }}{{- '\\n' }}{%- endfor %}\
{{- '<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}{%- if m.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}{{- m.content or '' }}\
{%- for c in m.tool_calls or [] %}{{- '<tool_call>' + ({'name': c.function.name, 'arguments': c.function.arguments} | \
tojson) + '</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>' + m.content + '</tool_response><|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
"""ChatML with tool calls as JSON, prefix-preserving."""
RESPONSE: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}
"""How transformers reads an answer back (`response_template`)."""


def make_tokenizer(texts: Sequence[str], words: Sequence[str], context: int) -> Any:
    """A byte-level BPE tokenizer whose merges are counted on `texts`; `words` are tokens of their own.
    Lossless on any text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        # digits apart: arithmetic is learnt digit by digit, not by merged numbers
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        # all 256 bytes from the start: any text can be encoded, seen in the demonstrations or not
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=8,
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.add_tokens([AddedToken(t, special=False, normalized=False) for t in (*TOOL_TOKENS, *words) if len(t) > 1])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=context,
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.response_template = RESPONSE
    return tokenizer


def make_model(tokenizer: Any, shape: dict[str, int], seed: int) -> Any:
    """Qwen3 with the sizes d, layers, heads, kv_heads, hidden, context; random weights."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=shape["d"],
            num_hidden_layers=shape["layers"],
            num_attention_heads=shape["heads"],
            num_key_value_heads=shape["kv_heads"],
            head_dim=shape["d"] // shape["heads"],
            intermediate_size=shape["hidden"],
            max_position_embeddings=shape["context"],
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def tokenizer_of(request: WarmStartRequest) -> Any:
    """The tokenizer of a policy that is trained from scratch on these texts."""
    return make_tokenizer([t for d in request.texts for t in d], request.words, request.shape["context"])


def warm_start(request: WarmStartRequest, on_step: Callable[[dict[str, float]], None] = lambda entry: None) -> float:
    """Train as asked and save the policy in `out_dir`. With `start`, words and shape are that policy's own.

    AdamW, linear warm-up, cosine to a tenth. Returns the mean token loss of the last 50 steps, nats. Transcripts have
    the layout of rollouts.
    """
    if not request.texts:
        raise TrainerError("warm start: no demonstrations; the environment must offer some")
    steps = request.steps
    if request.start is None:
        tokenizer = tokenizer_of(request)
        model = make_model(tokenizer, request.shape, request.seed)
    else:
        tokenizer, model = load_tokenizer(request.start), load_model(request.start, torch.float32)
    rows = encoded(request, tokenizer, stop_ids(model, tokenizer), context_of(model))
    optimizer = torch.optim.AdamW(model.parameters(), lr=request.lr, betas=(0.9, 0.98), weight_decay=0.01)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: warm_rate(1.0, i, steps))
    began, tokens = cpu_now(), 0
    recent: list[float] = []
    model.train()
    batches = bucketed([len(ids) for ids, _ in rows], request.batch, request.seed)
    for step, chosen in zip(range(steps), batches, strict=False):
        ids, mask, labels = padded([rows[i] for i in chosen], tokenizer.pad_token_id, model.device)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
        recent = [*recent[-49:], float(loss.detach())]
        tokens += int((labels != -100).sum())
        on_step(
            {"step": step + 1.0, "loss": recent[-1], "lr": float(rates.get_last_lr()[0]), "grad_norm": float(norm),
             "tokens": float(tokens), "cpu_s": cpu_now() - began}
        )  # fmt: skip
    save_folder(request.out_dir, [model.save_pretrained, tokenizer.save_pretrained])
    return sum(recent) / len(recent)


def encoded(
    request: WarmStartRequest, tokenizer: Any, stops: tuple[int, ...], context: int
) -> list[tuple[list[int], list[bool]]]:
    """(ids, loss mask) of each demonstration; TrainerError for one that exceeds the context."""
    chat = request.options.get("chat", "auto")
    codec = ChatCodec(tokenizer, stops, chat if isinstance(chat, bool) else "auto")
    rows = [codec.demonstration(i, d) for i, d in enumerate(request.texts)]
    if (longest := max(len(ids) for ids, _ in rows)) > context:
        raise TrainerError(
            f"warm start: a demonstration of {longest} tokens exceeds the context of {context}; "
            "raise policy.warm_start.shape.context or shorten it"
        )
    return rows
