"""Kit for importers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evotrainer.importers.base import Importer, Skipped
    from evotrainer.records.rollout import Rollout


def check_importer(importer: Importer, good: Path, count: int | None = None, foreign: Sequence[Path] = ()) -> None:
    """An importer recognises its files and no others, accounts for every record, and survives damage.

    `good` is a file (or store folder) of the format with `count` records, rollouts and skips together (None: not
    checked), at least one of which is a rollout; `foreign` are files of other formats. A damaged copy of a file is read
    too: cut in the middle, with lines of garbage and NULs, empty. It may lose records, but each loss is a `Skipped`. Of
    JSON lines, copies are read whose records lack one number or boolean each: no reward may become 0 for that. Give a
    sample with a reward other than 0.
    """
    import tempfile

    from evotrainer.importers.base import Skipped, Source
    from evotrainer.records.arrow_schema import encode
    from evotrainer.records.rollout import Rollout

    assert importer.name and importer.about, "an importer has a name and says what it reads"
    assert importer.recognises(Source(good)), f"{importer.name} does not recognise {good}"
    for other in foreign:
        assert not importer.recognises(Source(other)), f"{importer.name} takes {other} for its own"
    records = list(importer.read(good))
    rollouts = [r for r in records if isinstance(r, Rollout)]
    assert rollouts, f"{importer.name} reads no rollout from {good}"
    assert count is None or len(records) == count, f"{len(records)} records (skipped ones included) instead of {count}"
    assert records == list(importer.read(good)), "a second reading gives other records: ids must be stable"
    _check_records(records)
    encode(rollouts)  # what cannot be stored is no rollout
    if not good.is_file():
        return
    _check_absent_scores(importer, good)
    data = good.read_bytes()
    nul_at = data.find(b"\n", len(data) // 2) + 1
    middle = len(data) // 2
    while middle > 1 and data[middle - 1 : middle + 1].strip() != data[middle - 1 : middle + 1]:
        middle -= 1  # a file cut between two lines is whole: nothing could tell
    damage = {
        "cut in the middle": data[:middle],
        "cut at its end": data[:-1],
        "with garbage lines": data + b"\n\xff\xfe{not json\n[]\n17\n",
        "with NULs": data[:nul_at] + b"\0" * 64 + data[nul_at:],
        "all NULs": b"\0" * 4096,
        "empty": b"",
    }
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / good.name
        for what, content in damage.items():
            copy.write_bytes(content)
            read = _tolerant(importer, copy, what)
            _check_records(read)
            found = sum(isinstance(r, Rollout) for r in read)
            if found < len(rollouts):
                assert any(isinstance(r, Skipped) for r in read), (
                    f"a file {what} gives {found} of {len(rollouts)} rollouts and no word about the rest"
                )


LACKING_LINES, LACKING_FIELDS, LACKING_DEPTH = 50, 60, 3
"""Lines of a file, fields of its records, and levels of nesting, that are tried without."""


def _check_absent_scores(importer: Importer, good: Path) -> None:
    """No reward of JSON lines becomes 0 for want of a field; files of other forms are passed over."""
    import tempfile

    rows: list[Any] = []
    try:
        with good.open(encoding="utf-8") as f:
            for line in f:
                if len(rows) == LACKING_LINES:
                    break
                if line.strip():
                    rows.append(json.loads(line))
    except ValueError:  # a line that is none ends what is tried
        pass
    rows = [r for r in rows if isinstance(r, dict)]
    places = sorted({p for r in rows for p in _numeric(r)}, key=lambda p: (len(p), p))[:LACKING_FIELDS]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / good.name

        def rewards(values: Sequence[Any]) -> list[float | None]:
            copy.write_text("".join(json.dumps(v) + "\n" for v in values))
            return [getattr(r, "reward", None) for r in _tolerant(importer, copy, "whose records lack a field")]

        whole = rewards(rows) if places else []
        for place in places:
            for i, (row, before) in enumerate(zip(rows, whole, strict=False)):
                if len(whole) == len(rows) and before and place in _numeric(row):
                    assert 0 not in rewards([_without(row, place)]), (
                        f"record {i + 1} without {'.'.join(place)!r} gets reward 0: an absent score is None, never 0"
                    )
                    break


def _numeric(record: dict[str, Any], depth: int = LACKING_DEPTH) -> set[tuple[str, ...]]:
    """Places of the numbers and booleans of a record, those in objects in it included."""
    out: set[tuple[str, ...]] = set()
    for key, value in record.items():
        if isinstance(value, int | float):
            out.add((key,))
        elif isinstance(value, dict) and depth > 1:
            out |= {(key, *rest) for rest in _numeric(value, depth - 1)}
    return out


def _without(record: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    key, *rest = place
    if not rest:
        return {k: v for k, v in record.items() if k != key}
    return {**record, key: _without(record[key], tuple(rest))}


def _tolerant(importer: Importer, path: Path, what: str) -> list[Rollout | Skipped]:
    """Records of a damaged file; a StoreError for the file as a whole counts as its one `Skipped`."""
    from evotrainer.errors import StoreError
    from evotrainer.importers.base import Skipped, Source

    try:
        importer.recognises(Source(path))
        return list(importer.read(path))
    except StoreError as e:
        return [Skipped(str(path), str(e))]
    except Exception as e:
        raise AssertionError(f"a file {what} raises {type(e).__name__}: {e}; yield a Skipped instead") from e


def _check_records(records: Sequence[Rollout | Skipped]) -> None:
    from typing import get_args

    from evotrainer.importers.base import Fault, Skipped
    from evotrainer.records.rollout import Finish, Outcome, Role

    ids: set[str] = set()
    for r in records:
        if isinstance(r, Skipped):
            assert r.where and r.reason, f"a skipped record must name place and reason: {r}"
            continue
        assert r.id and r.id not in ids, f"id {r.id!r} twice"
        ids.add(r.id)
        assert r.task, f"{r.id} names no task"
        assert r.outcome in get_args(Outcome), f"{r.id}: unknown outcome {r.outcome!r}"
        assert r.finish is None or r.finish in get_args(Finish), f"{r.id}: unknown finish {r.finish!r}"
        assert all(t.role in get_args(Role) for t in r.turns), f"{r.id}: a turn of unknown role"
        if r.error_kind is None:
            assert r.error is None, f"{r.id} has an error of no class"
        elif r.detail.get("source"):  # own stores hold what other code wrote
            assert r.error_kind in get_args(Fault), f"{r.id}: unknown class of fault {r.error_kind!r}"
            assert r.error, f"{r.id}: a fault says in `error` what happened"
        if r.error_kind is not None:
            assert r.reward is None, f"{r.id}: an infrastructure fault has no reward, never 0"
            assert r.outcome == "unknown", f"{r.id}: an infrastructure fault has no outcome"
