"""`records.draw`: a run's seed, kept from before its first event on."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer.errors import IntegrityError
from evotrainer.records.draw import FILE, PLACE, Seed, keep_seed, name_of, read_seed


def test_a_seed_is_drawn_once_and_kept(tmp_path: Path) -> None:
    one = keep_seed(tmp_path)
    assert keep_seed(tmp_path) == one == read_seed(tmp_path, one.name, one.commitment)
    other = keep_seed(tmp_path / "other")
    assert other.seed != one.seed and int(other.seed) < 2**63, "a TOML file can hold it"
    assert one.commitment != Seed(seed=one.seed, salt=other.salt).commitment, "the commitment alone tells no seed"
    assert one.name == name_of(one.seed) and one.seed not in (one.name, one.commitment)
    assert (tmp_path / PLACE / FILE).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / PLACE).stat().st_mode & 0o777 == 0o700


def test_a_given_number_is_not_taken_for_a_drawn_one(tmp_path: Path) -> None:
    given = keep_seed(tmp_path, 7)
    assert given.seed == "7" and keep_seed(tmp_path, 7) == given
    assert keep_seed(tmp_path, 8).seed == "8"
    fresh = keep_seed(tmp_path)
    assert fresh.seed != "8" and keep_seed(tmp_path) == fresh
    assert keep_seed(tmp_path, 8).seed == "8"


def test_another_seed_than_the_named_one_is_an_error(tmp_path: Path) -> None:
    kept = keep_seed(tmp_path, 7)
    with pytest.raises(IntegrityError, match="does not hold the seed"):
        read_seed(tmp_path, name_of("8"))
    with pytest.raises(IntegrityError, match="does not hold the seed"):
        read_seed(tmp_path, kept.name, "0" * 64)
