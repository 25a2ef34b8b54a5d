"""`records.sealed`: what gate and cert are drawn from and encrypted with, and who opens what."""

from __future__ import annotations

import ast
import base64
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from evotrainer.errors import EncryptedError, IntegrityError, StoreError
from evotrainer.records.events import SplitScore
from evotrainer.records.frames import read_tail
from evotrainer.records.reading import check_folder, load, readable, scan
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.records.sealed import Key, SealedSplits, Seed
from evotrainer.records.store import RolloutStore

SECRET = "tell nobody of this prompt"


@pytest.fixture
def key() -> Iterator[Key]:
    made = Key(bytes(range(32))).hold()
    yield made
    made.release()


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


def test_a_message_opens_with_its_key_for_its_purpose_and_as_it_was_written(key: Key) -> None:
    message = key.encrypt(b"scores", "scores")
    assert b"scores" not in message and SealedSplits.plain(message, purpose="scores") == b"scores"
    assert key.encrypt(b"scores", "scores") != message, "no two messages are alike"
    for wrong in (message[:-1] + bytes([message[-1] ^ 1]), message[:12] + bytes(12) + message[24:]):
        with pytest.raises(IntegrityError, match="were changed"):
            SealedSplits.plain(wrong, purpose="scores")
    with pytest.raises(IntegrityError, match="were changed"):
        SealedSplits.plain(message)
    with pytest.raises(IntegrityError, match="a cut one"):
        SealedSplits.plain(message[:30], purpose="scores")
    assert key.key.hex() not in repr(key)
    key.release()
    with pytest.raises(EncryptedError, match="until the run closes"):
        SealedSplits.plain(message, purpose="scores")


def test_a_store_is_readable_with_the_key_only_in_its_tail_and_in_its_parts(tmp_path: Path, key: Key) -> None:
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
    key.release()
    assert not readable(folder)
    for read in (lambda: load([folder]), lambda: scan([folder]), lambda: RolloutStore(folder)):
        with pytest.raises(EncryptedError, match="encrypted until the run closes"):
            read()
    assert check_folder(folder) == ([], 0), "checksums hold, what is inside nobody saw"
    part = folder / "part-00000.enc"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    assert any("does not match its checksum" in p for p in check_folder(folder)[0])


def test_a_torn_encrypted_tail_is_recovered_like_any_other(tmp_path: Path, key: Key) -> None:
    folder = tmp_path / "run" / "sealed" / "b0-s1"
    with RolloutStore(folder, key=key) as store:
        store.append(rollouts(3))
    tail = folder / "tail.log"
    tail.write_bytes(tail.read_bytes()[:-5])
    with RolloutStore(folder, key=key) as store:
        assert len(store) == 2 and store.append(rollouts(3)) == 1
        assert store.seal()[0].rows == 3


def test_scores_of_gate_and_cert_lose_their_tasks_and_keep_their_means(key: Key) -> None:
    tasks = {"gate-1": 0.25, "gate-2": 1.0}
    score = SplitScore(
        split="gate", step=3, score=0.625, attempts=4, per_task=tasks, greedy=0.5, greedy_per_task={"gate-1": 1.0}
    )
    kept = key.score(score)
    assert kept.score == 0.625 and not kept.per_task and not kept.greedy_per_task and kept.encrypted
    text = kept.model_dump_json()
    assert "gate-1" not in text and b"gate-1" not in base64.b64decode(kept.encrypted)
    assert SealedSplits.score(kept) == score
    assert key.score(kept) == kept
    search = score.model_copy(update={"split": "search"})
    assert key.score(search) == search
    key.release()
    assert SealedSplits.score(kept) == kept


def test_keys_lie_in_a_folder_of_their_own_and_each_end_has_another(tmp_path: Path) -> None:
    folder, run = tmp_path / "keys", tmp_path / "run"
    sealed = SealedSplits.begin(run, folder)
    key = sealed.key
    assert key is not None
    sealed.draw()
    (path,) = folder.iterdir()
    assert path.name == f"{key.id}.key" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (told, following), later = sealed.reveal(1), SealedSplits.resume(run, folder, key.id, 1)
    assert told == key.key.hex() and later.key is not None and later.key.sha256 == following != key.sha256
    again = SealedSplits.begin(run, folder)
    assert again.key is not None and again.key.id == key.id, "a start that was killed goes on with its key"
    master = json.loads(path.read_text())["key"]
    assert master not in f"{sealed!r}{key!r}"
    for damage in ("", "{", json.dumps({"key": "00" * 32})):
        path.write_text(damage)
        with pytest.raises(IntegrityError, match=rf"{key.id}\.key.*copy"):
            SealedSplits.resume(run, folder, key.id, 0)
    with pytest.raises(IntegrityError, match="not in"):
        SealedSplits.resume(run, tmp_path / "elsewhere", key.id, 0)
    assert Key.of_cache(folder).id == Key.of_cache(folder).id
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot keep the run's key in .*run\.keys"):
        SealedSplits.begin(tmp_path / "other", tmp_path / "file" / "keys")
    key.release()
    later.release()


def test_where_keys_lie_is_said_by_the_task_file_then_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVOTRAINER_KEYS", "/e")
    assert SealedSplits.keys_folder("/t") == Path("/t") and SealedSplits.keys_folder() == Path("/e")
    monkeypatch.setenv("EVOTRAINER_KEYS", "off")
    assert SealedSplits.keys_folder() is None and SealedSplits.keys_folder("/t") == Path("/t")
    monkeypatch.delenv("EVOTRAINER_KEYS")
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert SealedSplits.keys_folder() == Path("/s/evotrainer/keys") and SealedSplits.keys_folder("off") is None


# -- the seed that tasks are drawn from ------------------------------------------------------------------------------


def test_a_seed_is_drawn_once_and_kept(tmp_path: Path) -> None:
    one = SealedSplits(tmp_path).draw()
    assert SealedSplits(tmp_path).draw() == one == SealedSplits(tmp_path).seed(one.name, one.commitment)
    other = SealedSplits(tmp_path / "other").draw()
    assert other.seed != one.seed and int(other.seed) < 2**63, "a TOML file can hold it"
    assert one.commitment != Seed(seed=one.seed, salt=other.salt).commitment, "the commitment alone tells no seed"
    assert one.name == Seed(seed=one.seed, salt="").name and one.seed not in (one.name, one.commitment)
    assert (tmp_path / SealedSplits.DRAW / "seed.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / SealedSplits.DRAW).stat().st_mode & 0o777 == 0o700


def test_a_given_number_is_not_taken_for_a_drawn_one(tmp_path: Path) -> None:
    given = SealedSplits(tmp_path).draw(7)
    assert given.seed == "7" and SealedSplits(tmp_path).draw(7) == given
    assert SealedSplits(tmp_path).draw(8).seed == "8"
    fresh = SealedSplits(tmp_path).draw()
    assert fresh.seed != "8" and SealedSplits(tmp_path).draw() == fresh
    assert SealedSplits(tmp_path).draw(8).seed == "8"


def test_another_seed_than_the_named_one_is_an_error(tmp_path: Path) -> None:
    kept = SealedSplits(tmp_path).draw(7)
    with pytest.raises(IntegrityError, match="does not hold the seed"):
        SealedSplits(tmp_path).seed(Seed(seed="8", salt="").name)
    with pytest.raises(IntegrityError, match="does not hold the seed"):
        SealedSplits(tmp_path).seed(kept.name, "0" * 64)


def test_nothing_else_encrypts_or_decrypts() -> None:
    import evotrainer

    root = Path(evotrainer.__file__).parent
    for path in root.rglob("*.py"):
        if path.relative_to(root) == Path("records/sealed.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "evotrainer.records.sealed":
                assert {a.name for a in node.names} <= {"Key", "SealedSplits", "Seed"}, path
            imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [m for m in imported if m.partition(".")[0] == "cryptography"], path
