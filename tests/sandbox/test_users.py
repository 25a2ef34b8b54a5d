"""`sandbox.launch.pick_uid`: every sandbox that lives has a user of its own."""

from __future__ import annotations

import os

import pytest

from evotrainer.errors import SandboxError
from evotrainer.sandbox import launch


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(launch, "_can_become", lambda uid: True)


def test_a_user_who_lives_is_not_given_again(as_root: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_threads_of", lambda uid: 0)
    first = {launch.pick_uid() for _ in range(256)}
    assert len(first) == 256
    free = max(x for x in first if x is not None)
    monkeypatch.setattr(launch, "_threads_of", lambda uid: int(uid != free))
    assert {launch.pick_uid() for _ in range(3)} == {free}


def test_no_user_left_and_no_user_at_all_are_told_apart(as_root: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_threads_of", lambda uid: 2)
    with pytest.raises(SandboxError, match="256 sandboxes of this process live at once"):
        launch.pick_uid()
    monkeypatch.setattr(launch, "_can_become", lambda uid: False)
    with pytest.raises(SandboxError, match="start as an ordinary user"):
        launch.pick_uid()
