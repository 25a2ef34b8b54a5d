"""Answers that are handed over by a file in the run folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotrainer.errors import AgentError
from evotrainer.records.queued import answer_file, put_answer, read_queued


def test_the_first_answer_counts(tmp_path: Path) -> None:
    assert put_answer(tmp_path, "r1", '{"stop": "a"}', by="me") is False
    assert put_answer(tmp_path, "r1", '{"stop": "a"}', by="you") is True, "the same again is no other"
    with pytest.raises(AgentError, match="answered already by me at .*; the first answer counts"):
        put_answer(tmp_path, "r1", '{"stop": "b"}')
    given = read_queued(tmp_path, "r1")
    assert given is not None and (given.raw, given.by) == ('{"stop": "a"}', "me")


def test_half_a_file_is_no_answer_yet_and_a_bare_one_is(tmp_path: Path) -> None:
    assert read_queued(tmp_path, "r1") is None
    put_answer(tmp_path, "r1", '{"stop": "a"}', by="me")
    file = answer_file(tmp_path, "r1")
    whole = file.read_bytes()
    for n in range(len(whole)):  # as a disk without links shows it while it is written
        file.write_bytes(whole[:n])
        assert read_queued(tmp_path, "r1") is None, whole[:n]
    file.write_text('{"stop": "bare"}')
    bare = read_queued(tmp_path, "r1")
    assert bare is not None and (bare.raw, bare.by) == ('{"stop": "bare"}', "")
