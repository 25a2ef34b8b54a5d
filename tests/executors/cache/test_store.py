"""The cache on disk: killed writers, two at once, damage, its size, places that cannot be written."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from evotrainer.errors import IntegrityError
from evotrainer.executors.cache import cache_folder, store, with_cache
from evotrainer.executors.cache.store import FORMAT, CacheEntry, TrialCache, clear
from evotrainer.records.events import TrialFinished
from tests.executors.cache.drawn import DrawnExecutor, Place

ROOT = Path(__file__).resolve().parents[3]


def start(place: Place, task_file: Path, run: str, *seeds: int, kill_at: str = "") -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tests.executors.cache.go",
        str(place.folder),
        str(task_file),
        run,
        *map(str, seeds),
    ]
    env = {**os.environ, "EVOTRAINER_KILL_AT": kill_at}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def same(a: TrialFinished, b: TrialFinished) -> bool:
    out = {"cpu_s", "wall_s", "parts", "parts_sha256", "cached", "files"}
    return a.model_dump(exclude=out) == b.model_dump(exclude=out)


@pytest.mark.parametrize("point", ["cache:writing", "cache:writing#3", "cache:written", "cache:written#2"])
def test_a_killed_writer_leaves_whole_entries_only(place: Place, task_file: Path, point: str) -> None:
    p = start(place, task_file, "r1", 1, kill_at=point)
    p.communicate()
    assert p.returncode == -signal.SIGKILL
    assert list((place.cache / "tmp").iterdir()), "it was in the middle of one"
    for e in place.entries():
        CacheEntry(e).close()
    (t,), _ = place.go("r2", place.spec("r2"))
    assert same(t, *place.alone("r2", place.spec("r2"))) and not place.notes
    assert not list((place.cache / "tmp").iterdir()), "what the killed one left is cleared away"


@pytest.mark.parametrize("point", ["cache:placed", "cache:placed#2", "cache:placed#3"])
def test_a_run_killed_while_a_trial_is_laid_down_lays_it_down_again(place: Place, task_file: Path, point: str) -> None:
    place.go("r1", place.spec("r1"))
    p = start(place, task_file, "r2", 1, kill_at=point)
    p.communicate()
    assert p.returncode == -signal.SIGKILL
    assert list(place.run_dir("r2").glob(".arriving-*"))
    (t,), ran = place.go("r2", place.spec("r2"))
    assert same(t, *place.alone("r2", place.spec("r2"))) and not ran
    assert not list(place.run_dir("r2").glob(".arriving-*"))


def test_two_runs_at_once_share_what_they_compute(place: Place, task_file: Path) -> None:
    place.run_dir("r1"), place.run_dir("r2")
    both = [start(place, task_file, run, *range(1, 9)) for run in ("r1", "r2")]
    told = [p.communicate()[0] for p in both]
    assert [p.returncode for p in both] == [0, 0], told
    assert not any("damaged" in t or "cannot" in t for t in told), told
    assert len(place.entries()) == 3 * 8
    _, ran = place.go("r3", *(place.spec("r3", f"b0-s{s}") for s in range(1, 9)))
    assert not ran and not place.notes


def spoiled(entry: Path) -> Iterator[tuple[str, bytes]]:
    """An entry damaged in many ways."""
    good, rng = entry.read_bytes(), random.Random(entry.name)
    yield "empty", b""
    yield "foreign", b"a file of somebody else" * 100
    for share in (0.1, 0.5, 0.99):
        yield f"cut at {share}", good[: int(len(good) * share)]
    yield "zeros", bytes(len(good))
    for n in range(40):
        at = rng.randrange(len(good))
        yield f"bit {n} at {at}", good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1 :]


@pytest.mark.slow
def test_damage_is_a_miss_with_a_line_and_never_a_wrong_result(place: Place) -> None:
    place.go("r0", place.spec("r0"))
    (good,) = place.alone("r1", place.spec("r1"))
    silent = 0
    for e in place.entries():
        intact = e.read_bytes()
        for how, data in spoiled(e):
            e.write_bytes(data)
            place.notes.clear()
            (t,), ran = place.go("r1", place.spec("r1"))
            assert same(t, good), how
            if ran:
                assert any("damaged" in n and "deleted and computed again" in n for n in place.notes), (
                    how,
                    place.notes,
                )
                CacheEntry(e).close()
            else:
                silent += 1  # bytes that nothing reads: of the zip's own directory
            shutil.rmtree(place.run_dir("r1"))
            e.write_bytes(intact)
    assert silent < 15, silent


def test_an_entry_of_another_version_is_a_miss_with_a_line(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "FORMAT", FORMAT + 1)
    monkeypatch.setattr(store.Manifest.model_fields["format"], "default", FORMAT + 1)
    store.Manifest.model_rebuild(force=True)
    place.go("r1", place.spec("r1"))
    monkeypatch.undo()
    store.Manifest.model_rebuild(force=True)
    _, ran = place.go("r2", place.spec("r2"))
    assert ran and any(f"written by another version (format {FORMAT + 1})" in n for n in place.notes)


def test_entries_of_other_sources_are_told_and_not_used(place: Place) -> None:
    place.go("r1", place.spec("r1"))
    (own,) = {e.parent for e in place.entries()}
    own.rename(own.with_name("0123456789abcdef"))
    _, ran = place.go("r2", place.spec("r2"))
    assert ran and any("computed by other versions" in n for n in place.notes)


def test_rollouts_of_other_names_are_damage(place: Place) -> None:
    place.go("r1", place.spec("r1"))
    for e in place.entries():
        with CacheEntry(e) as old:
            members = {m: old.read(m) for m in old.manifest.files}
            manifest = old.manifest.model_copy(update={"branch": "b1"})
        e.unlink()
        TrialCache(place.cache, e.parent.name, 1 << 30).put(e.stem, manifest, members)
    (t,), ran = place.go("r2", place.spec("r2"))
    assert ran and t.branch == "b0" and any("names that are not theirs" in n for n in place.notes)


def test_a_member_cannot_lead_out_of_its_folder(place: Place) -> None:
    cache = TrialCache(place.cache, "0" * 16, 1 << 30)
    cache.open()
    manifest = store.Manifest(run="r", branch="b", cpu_s=0, wall_s=0, files={"policy/../../x": _sha(b"x")})
    cache.put("k", manifest, {"policy/../../x": b"x"})
    with cache.find("k") as entry, pytest.raises(IntegrityError, match="leads out of its folder"):  # type: ignore[union-attr]
        entry.copy("policy/", place.folder / "to")
    assert not (place.folder / "x").exists()


def test_the_least_recently_used_go_first_and_the_limit_holds(tmp_path: Path) -> None:
    cache = TrialCache(tmp_path / "c", "0" * 16, 100_000)
    cache.open()
    data = os.urandom(18_000)
    manifest = store.Manifest(run="r", branch="b", cpu_s=0, wall_s=0, files={"rollouts.parquet": _sha(data)})
    for n in range(5):
        cache.put(str(n), manifest, {"rollouts.parquet": data})
        os.utime(cache.path(str(n)), (n, n))
    used = cache.find("0")
    assert used is not None
    cache.put("5", manifest, {"rollouts.parquet": data})
    assert cache.size().bytes <= 100_000
    assert cache.path("0").exists() and cache.path("5").exists() and not cache.path("1").exists()
    with used:
        assert used.read("rollouts.parquet") == data
    large = os.urandom(200_000)
    cache.put(
        "large", manifest.model_copy(update={"files": {"rollouts.parquet": _sha(large)}}), {"rollouts.parquet": large}
    )
    assert not cache.path("large").exists() and cache.size().entries >= 4, "one that is too large evicts nobody"


def test_what_is_read_stays_readable_while_it_is_evicted(place: Place) -> None:
    place.go("r1", place.spec("r1"))
    open_ones = [CacheEntry(e) for e in place.entries()]
    clear(place.cache)
    for e in open_ones:
        with e:
            assert all(e.read(m) for m in e.manifest.files)


def test_only_the_owner_reads_it(place: Place) -> None:
    before = os.umask(0)
    try:
        place.go("r1", place.spec("r1"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(place.cache.stat().st_mode) == 0o700
    assert {stat.S_IMODE(e.stat().st_mode) for e in place.entries()} == {0o600}


def test_a_place_that_cannot_be_written_is_told_and_the_run_goes_on(place: Place) -> None:
    place.cache.write_text("a file")
    (t,), ran = place.go("r1", place.spec("r1"))
    assert t.status == "complete" and ran == ["b0-s1"]
    assert len(place.notes) == 1 and "cannot be used" in place.notes[0] and "run.cache" in place.notes[0]
    assert place.cache.read_text() == "a file"


def test_a_full_disk_costs_entries_and_nothing_else(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store.zipfile.ZipFile, "writestr", full)
    results, ran = place.go("r1", *(place.spec("r1", f"b0-s{s}") for s in (1, 2, 3)))
    assert len(results) == 3 == len(ran) and not place.entries() and not list((place.cache / "tmp").iterdir())
    assert len(place.notes) == 1 and "No space left" in place.notes[0], "said once"


def test_off_is_off(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = DrawnExecutor(place.run_dir("r1"))
    task = place.task.model_copy(update={"run": place.task.run.model_copy(update={"cache": "off"})})
    assert with_cache(inner, place.run_dir("r1"), task, place.notes.append) is inner
    monkeypatch.setenv("EVOTRAINER_CACHE", str(place.folder / "env"))
    assert cache_folder() == place.folder / "env" and cache_folder("/x") == Path("/x")
    monkeypatch.setenv("EVOTRAINER_CACHE", "off")
    assert cache_folder() is None
    monkeypatch.delenv("EVOTRAINER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/c")
    assert cache_folder() == Path("/home/c/evotrainer/trials")


def test_clearing_deletes_entries_and_nothing_else(place: Place) -> None:
    place.go("r1", place.spec("r1"))
    mine = place.cache / "mine.txt"
    mine.write_text("mine")
    (place.cache / "0123456789abcdef").mkdir()
    other = place.cache / "0123456789abcdef" / "notes.txt"
    other.write_text("mine")
    clear(place.cache)
    assert not place.entries() and mine.exists() and other.exists()
    place.go("r2", place.spec("r2"))
    assert place.entries()


def test_an_entry_says_what_it_is_to_plain_tools(place: Place) -> None:
    place.go("r1", place.spec("r1"))
    for e in place.entries():
        with zipfile.ZipFile(e) as z:
            told = json.loads(z.read("manifest.json"))
            assert (told["run"], told["format"]) == ("r1", FORMAT) and set(told["files"]) < set(z.namelist())


def _sha(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
