"""What is encrypted until a run closes: messages, stores, scores, keys."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from evotrainer.errors import EncryptedError, IntegrityError, StoreError
from evotrainer.records import encryption, run_keys
from evotrainer.records.encryption import DataKey, decrypt, is_encrypted, register_key
from evotrainer.records.events import SplitScore
from evotrainer.records.frames import read_tail
from evotrainer.records.reading import check_folder, load, readable, scan
from evotrainer.records.revealed import unlearn
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.records.split_scores import decrypted, encrypted
from evotrainer.records.store import RolloutStore

SECRET = "tell nobody of this prompt"


@pytest.fixture
def key() -> Iterator[DataKey]:
    made = register_key(DataKey(bytes(range(32))))
    yield made
    unlearn(made)


def rollouts(n: int) -> list[list[Rollout]]:
    return [
        [
            Rollout(
                id=f"r{i}",
                task=f"gate-{i}",
                turns=(Turn("user", SECRET), Turn("assistant", "yes")),
                reward=1.0,
                run="r",
                branch="b0",
                seed=1,
                step=0,
                split="gate",
                group=f"g{i}",
                k=0,
            )
        ]
        for i in range(n)
    ]


def test_a_message_opens_with_its_key_for_its_purpose_and_as_it_was_written(key: DataKey) -> None:
    message = key.encrypt(b"scores", "scores")
    assert is_encrypted(message) and b"scores" not in message and decrypt(message, "scores") == b"scores"
    assert key.encrypt(b"scores", "scores") != message, "no two messages are alike"
    for wrong in (message[:-1] + bytes([message[-1] ^ 1]), message[:12] + bytes(12) + message[24:]):
        with pytest.raises(IntegrityError, match="were changed"):
            decrypt(wrong, "scores")
    with pytest.raises(IntegrityError, match="were changed"):
        decrypt(message, "rollouts")
    with pytest.raises(IntegrityError, match="a cut one"):
        decrypt(message[:30], "scores")
    assert key.key.hex() not in repr(key)
    encryption.forget_key(key)
    with pytest.raises(EncryptedError, match="until the run closes"):
        decrypt(message, "scores")


def test_a_store_is_readable_with_the_key_only_in_its_tail_and_in_its_parts(tmp_path: Path, key: DataKey) -> None:
    folder = tmp_path / "run" / "sealed" / "b0-s1"
    with RolloutStore(folder, key=key) as store:
        store.append(rollouts(3))
        store.seal()
        store.append(rollouts(5)[3:])
    assert sorted(p.name for p in folder.glob("part-*")) == ["part-00000.enc", "part-00000.enc.sha256"]
    assert [r.task for r in load([folder])] == [f"gate-{i}" for i in range(5)] and readable(folder)
    assert sorted(scan([folder]).collect()["task"].to_list()) == [f"gate-{i}" for i in range(5)]
    assert check_folder(folder) == ([], 5)
    with RolloutStore(folder, key=key) as store:
        assert store.append(rollouts(5)) == 0, "ids are known again"
    for path in folder.iterdir():
        data = path.read_bytes()
        assert SECRET.encode() not in data and b"PAR1" not in data and b"gate-1" not in data
    frames = read_tail(folder / "tail.log").frames
    assert len(frames) == 3
    unlearn(key)
    assert not readable(folder)
    for read in (lambda: load([folder]), lambda: scan([folder]), lambda: RolloutStore(folder)):
        with pytest.raises(EncryptedError, match="encrypted until the run closes"):
            read()
    assert check_folder(folder) == ([], 0), "checksums hold, what is inside nobody saw"
    part = folder / "part-00000.enc"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    assert any("does not match its checksum" in p for p in check_folder(folder)[0])


def test_a_torn_encrypted_tail_is_recovered_like_any_other(tmp_path: Path, key: DataKey) -> None:
    folder = tmp_path / "run" / "sealed" / "b0-s1"
    with RolloutStore(folder, key=key) as store:
        store.append(rollouts(3))
    tail = folder / "tail.log"
    tail.write_bytes(tail.read_bytes()[:-5])
    with RolloutStore(folder, key=key) as store:
        assert len(store) == 2 and store.append(rollouts(3)) == 1
        assert store.seal()[0].rows == 3


def test_scores_of_gate_and_cert_lose_their_tasks_and_keep_their_means(key: DataKey) -> None:
    tasks = {"gate-1": 0.25, "gate-2": 1.0}
    score = SplitScore(
        split="gate", step=3, score=0.625, attempts=4, per_task=tasks, greedy=0.5, greedy_per_task={"gate-1": 1.0}
    )
    kept = encrypted(score, key)
    assert kept.score == 0.625 and not kept.per_task and not kept.greedy_per_task and kept.encrypted
    text = kept.model_dump_json()
    assert "gate-1" not in text and b"gate-1" not in base64.b64decode(kept.encrypted)
    assert decrypted(kept) == score
    assert encrypted(kept, key) == kept and encrypted(score, None) == score
    search = score.model_copy(update={"split": "search"})
    assert encrypted(search, key) == search
    unlearn(key)
    assert decrypted(kept) == kept


def test_keys_lie_in_a_folder_of_their_own_and_each_end_has_another(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    keys = run_keys.make_keys(folder, tmp_path / "run")
    (path,) = folder.iterdir()
    assert path.name == f"{keys.nth(1).id}.key" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert run_keys.find_keys(folder, keys.nth(1).id) == keys and keys.nth(1).key != keys.nth(2).key
    assert keys.master.hex() not in repr(keys)
    for damage in ("", "{", json.dumps({"key": "00" * 32})):
        path.write_text(damage)
        with pytest.raises(IntegrityError, match=rf"{keys.nth(1).id}\.key.*copy"):
            run_keys.find_keys(folder, keys.nth(1).id)
    with pytest.raises(IntegrityError, match="not in"):
        run_keys.find_keys(tmp_path / "elsewhere", keys.nth(1).id)
    assert run_keys.cache_key(folder).id == run_keys.cache_key(folder).id
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot keep the run's key in .*run\.keys"):
        run_keys.make_keys(tmp_path / "file" / "keys", tmp_path)


def test_where_keys_lie_is_said_by_the_task_file_then_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVOTRAINER_KEYS", "/e")
    assert run_keys.keys_folder("/t") == Path("/t") and run_keys.keys_folder() == Path("/e")
    monkeypatch.setenv("EVOTRAINER_KEYS", "off")
    assert run_keys.keys_folder() is None and run_keys.keys_folder("/t") == Path("/t")
    monkeypatch.delenv("EVOTRAINER_KEYS")
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert run_keys.keys_folder() == Path("/s/evotrainer/keys") and run_keys.keys_folder("off") is None
