"""`trainers.embedded.policy`: policies, their tokenizer and their folders, against transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from evotrainer.errors import TrainerError
from evotrainer.records.weights import weights_sha256
from evotrainer.trainers.embedded.folder import file_sha256, load_policy, save_policy
from evotrainer.trainers.embedded.forward import score
from evotrainer.trainers.embedded.packing import TrainRow, batches, pack
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.embedded.tokenizer import BOS, CHARS, Tokenizer, build_tokenizer
from tests.trainers.reverse_env import logits

WORDS = ["print(", "print", "int(input())", "for x in ", "\n    ", "100", "<eos>"]
TEXT = 'for x in range(100):\n    print(int(input()), "<eos> <pad>")\n'


def make(tmp: Path, dtype: str = "float32", seed: int = 0) -> tuple[Policy, Tokenizer, Path]:
    tokenizer = build_tokenizer(WORDS, "test-1")
    policy = Policy(DecoderShape(len(tokenizer), d=48, layers=3, heads=6, kv_heads=2, hidden=72, context=128)).init(
        seed
    )
    for name, w in policy.weights.items():
        if "norm" in name:
            w.uniform_(0.5, 1.5)
    save_policy(policy, tokenizer, tmp / "policy", dtype)  # type: ignore[arg-type]
    return policy, tokenizer, tmp / "policy"


@pytest.mark.xdist_group("trl")  # its imports take seconds: once
def test_transformers_loads_a_saved_policy_and_gives_the_same_logits(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    policy, tokenizer, folder = make(tmp_path)
    ids = [BOS, *tokenizer.encode(TEXT * 2)]
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        theirs = model(input_ids=torch.tensor([ids])).logits[0]
    assert (logits(policy, ids) - theirs).abs().max() < 1e-4
    assert sum(p.numel() for p in model.parameters()) == policy.shape.parameters()

    plain = TEXT.replace("<eos> <pad>", "")
    hf = AutoTokenizer.from_pretrained(folder)
    assert hf(plain)["input_ids"] == [BOS, *tokenizer.encode(plain)]
    assert hf.decode(tokenizer.encode(plain)) == plain
    assert (hf.pad_token, hf.eos_token, hf.bos_token) == ("<pad>", "<eos>", "<bos>")
    out = model.generate(torch.tensor([ids[:9]]), max_new_tokens=4, do_sample=False)
    assert out.shape[1] <= 13


def test_bf16_folders_halve_the_weights_and_load_as_the_rounded_fp32(tmp_path: Path) -> None:
    policy, _, folder = make(tmp_path, "bfloat16")
    fp32 = make(tmp_path / "b")[2]
    assert (folder / "model.safetensors").stat().st_size < 0.6 * (fp32 / "model.safetensors").stat().st_size
    assert torch.equal(load_policy(folder).policy.flat, policy.flat.bfloat16().float())


def test_the_tokenizer_takes_the_longest_word_and_loses_no_ascii() -> None:
    tokenizer = build_tokenizer(WORDS, "v")
    assert [tokenizer.strings[i] for i in tokenizer.encode("print(print 1000")] == ["print(", "print", " ", "100", "0"]
    everything = "".join(CHARS) * 2 + TEXT
    assert tokenizer.decode(tokenizer.encode(everything)) == everything
    assert tokenizer.encode("\u00e9") == [tokenizer.strings.index("<unk>")]
    assert build_tokenizer([*WORDS, *WORDS], "v").strings == tokenizer.strings


def test_a_word_outside_ascii_is_refused() -> None:
    with pytest.raises(TrainerError, match="not printable ASCII"):
        build_tokenizer(["caf\u00e9"], "v")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("missing", "no such folder"),
        ("config", "config.json cannot be read"),
        ("layout", "model_type 'gemma3'"),
        ("scale", "embedding_multiplier"),
        ("weights", "model.safetensors is missing"),
        ("truncated", "model.safetensors cannot be read"),
        ("shape", "expected"),
        ("tokenizer", "tokenizer cannot be read"),
        ("vocabulary", "restore the policy folder"),
    ],
)
def test_a_damaged_policy_folder_names_the_damage(damage: str, message: str, tmp_path: Path) -> None:
    folder = make(tmp_path)[2]
    config = json.loads((folder / "config.json").read_text())
    if damage == "missing":
        folder = tmp_path / "nowhere"
    elif damage == "config":
        (folder / "config.json").write_text("{")
    elif damage in ("layout", "scale", "shape", "vocabulary"):
        change = {
            "layout": {"model_type": "gemma3"},
            "scale": {"embedding_multiplier": 1.0},
            "shape": {"intermediate_size": 64},
            "vocabulary": {"vocab_size": 50},
        }[damage]
        (folder / "config.json").write_text(json.dumps(config | change))
    elif damage == "weights":
        (folder / "model.safetensors").unlink()
    elif damage == "truncated":
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
    elif damage == "tokenizer":
        (folder / "tokenizer.json").write_text("[]")
    with pytest.raises(TrainerError, match=message) as e:
        load_policy(folder)
    assert "\n" not in str(e.value)


def test_weights_in_several_files_load_and_a_lost_one_is_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    policy, _, folder = make(tmp_path)
    state = load_file(folder / "model.safetensors")
    files = {n: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, n in enumerate(state)}
    for file in set(files.values()):
        save_file({n: w for n, w in state.items() if files[n] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    assert torch.equal(load_policy(folder).policy.flat, policy.flat)
    assert file_sha256(folder) == weights_sha256(folder)
    (folder / files[min(files)]).unlink()
    for read in (load_policy, file_sha256):
        with pytest.raises(TrainerError, match="a file that model.safetensors.index.json names"):
            read(folder)


def test_a_policy_with_nan_is_refused(tmp_path: Path) -> None:
    policy, tokenizer, folder = make(tmp_path)
    policy.layers[1].out[0, 0] = float("nan")
    save_policy(policy, tokenizer, folder)
    with pytest.raises(TrainerError, match="NaN"):
        load_policy(folder)


def test_a_bad_shape_is_one_line() -> None:
    with pytest.raises(TrainerError, match="multiple of kv_heads"):
        DecoderShape(100, d=64, heads=4, kv_heads=3)
    with pytest.raises(TrainerError, match="even multiple of heads"):
        DecoderShape(100, d=65, heads=4, kv_heads=2)


def _rows(n: int) -> list[TrainRow]:
    gen = torch.Generator().manual_seed(n)

    def ids(k: int) -> tuple[int, ...]:
        return tuple(torch.randint(4, 7, (k,), generator=gen).tolist())

    out = []
    for g in range(n):
        prompt = (BOS, *ids(3 * g))
        out += [TrainRow(len(out) + k, prompt, ids(1 + (5 * g + 7 * k) % 11)) for k in range(1 + 2 * g)]
        out.append(TrainRow(len(out), prompt, out[-1].tokens))
    return out


def test_sharing_prompts_and_splitting_batches_changes_no_logprob_and_no_gradient() -> None:
    """One pack, micro-batches, and every row alone give the same numbers."""
    tokenizer = build_tokenizer(WORDS, "v")
    shape = DecoderShape(len(tokenizer), d=32, layers=2, heads=4, kv_heads=2, hidden=48, context=64)
    rows = _rows(5)
    results = []
    for chunks in ([rows], list(batches(rows, 24)), [[r] for r in rows]):
        policy = Policy(shape, trainable=True).init(3)
        by_row: dict[int, torch.Tensor] = {}
        for chunk in chunks:
            b = pack(chunk, shape)
            lp, ent = score(policy, b)
            (lp.sum() + 0.3 * (ent * lp.detach()).sum()).backward()
            for j, i in enumerate(b.rows):
                by_row[i] = lp.detach()[b.row_of == j]
        assert policy.grad is not None
        results.append((torch.cat([by_row[r.index] for r in rows]), policy.grad.clone()))
    assert len(list(batches(rows, 24))) > 3
    for lp, grad in results[1:]:
        assert (lp - results[0][0]).abs().max() < 1e-5
        assert (grad - results[0][1]).abs().max() < 1e-5 * results[0][1].abs().max()


def test_only_masked_tokens_count_in_a_transcript() -> None:
    shape = DecoderShape(99, d=32, layers=2, heads=2, kv_heads=1, hidden=48, context=64)
    policy = Policy(shape).init(0)
    row = TrainRow(0, (2, 7, 8), (9, 10, 11, 12, 13))
    masked = TrainRow(0, row.prompt, row.tokens, (True, False, False, True, True))
    whole, _ = score(policy, pack([row], shape))
    part, _ = score(policy, pack([masked], shape))
    assert torch.allclose(part, whole[[0, 3, 4]], atol=1e-6)


def test_importing_the_trainers_loads_no_torch_and_its_absence_names_the_remedy() -> None:
    code = (
        "import sys, evotrainer.trainers, evotrainer.trainers.embedded as e\n"
        "assert 'torch' not in sys.modules and 'tokenizers' not in sys.modules\n"
        "sys.modules['torch'] = None\n"
        "from evotrainer.errors import MissingDependencyError\n"
        "from evotrainer.trainers import get_trainer\n"
        "try: get_trainer('embedded')\n"
        "except MissingDependencyError as x: print(x)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "needs torch" in out
    assert "pip install torch==2.13.0" in out


def test_words_may_hold_a_newline() -> None:
    t = build_tokenizer(["x\n", "ab\ncd"], "v")
    assert [t.strings[i] for i in t.encode("ab\ncdx\nx \n")] == ["ab\ncd", "x\n", "x", " ", "\n"]
    assert t.decode(t.encode("ab\ncdx\nx \n")) == "ab\ncdx\nx \n"
