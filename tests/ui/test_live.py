"""Who follows a page: readers share one page, and who takes nothing is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from evotrainer.ui import live
from evotrainer.ui.live import EventStream, LivePage, Rendered


def page_of(number: int) -> Rendered:
    html = f'<nav class="rail" id="rail">r</nav><section id="a">{number}</section><section id="b">same</section>'
    return Rendered(number, html, {"n": number})


def test_twenty_readers_cost_one_page_and_get_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_S", 0.01)
    at, made = [1], []

    def render() -> Rendered:
        made.append(at[0])
        return page_of(at[0])

    async def reader(page: LivePage, got: list[bytes]) -> None:
        async for piece in page.events(None):
            got.append(piece)
            if b"id: 2" in piece:
                return

    async def many() -> list[list[bytes]]:
        page = LivePage(lambda: at[0], render, "g")
        found: list[list[bytes]] = [[] for _ in range(20)]
        tasks = [asyncio.create_task(reader(page, got)) for got in found]
        while not all(any(b"id: 1" in p for p in got) for got in found):
            await asyncio.sleep(0.01)
        at[0] = 2
        await asyncio.wait_for(asyncio.gather(*tasks), 30)
        return found

    for got in asyncio.run(many()):
        first, second = (p for p in got if p.startswith(b"id"))
        assert b"same" in first and b"same" not in second and b'"n": 2' in second
    assert made == [1, 2]


def test_a_reader_that_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SLOW_S", 0.05)
    ended = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x"
        finally:
            ended.append(True)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(3600)

    async def receive() -> Any:
        await asyncio.sleep(3600)

    async def asked() -> None:
        await asyncio.wait_for(EventStream(endless(), {})({}, receive, send), 30)

    asyncio.run(asked())
    assert ended == [True]


def test_trouble_is_told_and_what_comes_after_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_S", 0.01)
    at = [1]

    def render() -> Rendered:
        return page_of(at[0]) if at[0] != 2 else Rendered.trouble(ValueError("gone; look elsewhere"), "", 404)

    async def follow() -> list[bytes]:
        page, got = LivePage(lambda: at[0], render, "g"), []
        async for piece in page.events(None):
            got.append(piece)
            if b"id: 3" in piece:
                return got
            at[0] = 2 if b"id: 1" in piece else 3 if b"problem" in piece else at[0]
        return got

    got = asyncio.run(follow())
    assert any(b"event: problem" in p and b"look elsewhere" in p for p in got)
    assert b"same" in got[-1]
