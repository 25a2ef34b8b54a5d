"""A page that follows what it shows: rendered again when that changes, its changed parts sent to all who look at it.

The stream is one of server-sent events whose id is the number of the ledger's last event. Who comes back with an id is
sent what differs from the page of that id, or all of it where this process never made that page. Readers have no
backlog: whoever was slow gets the newest page at once, and is dropped where he takes nothing for a while.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread

from evotrainer.errors import EvoTrainerError
from evotrainer.projections.text import seen
from evotrainer.records.text import cause

LOOK_S = 1.0
"""Seconds between two looks at what is shown."""
REST = 12
"""A page that takes a CPU-second to make is made every so many seconds at most, for a training may run beside."""
SILENCE_S = 15.0
"""After so many seconds without news a comment is sent, which shows who is gone."""
SLOW_S = 20.0
"""A reader that takes nothing for so long is dropped."""
KEPT = 64
"""Pages by their position whose parts are remembered."""
_PART = re.compile(r'<section id="([^"]+)".*?</section>|<nav class="rail" id="(rail)".*?</nav>', re.S)

Send = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class Rendered:
    """A page as it is now: `parts` by the ids of its sections, `data` that its scripts draw; `problem`: why it cannot
    be shown, with the remedy, and `status` of HTTP."""

    position: int
    html: str
    data: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    status: int = 200
    driven: bool = True
    """Does a process go on with what is shown?"""

    @classmethod
    def trouble(cls, error: Exception, html: str, status: int) -> Rendered:
        return cls(0, html, problem=cause(error, 600), status=status)

    def pieces(self) -> dict[str, str]:
        """Everything that can be sent by itself: sections as they are, data as JSON."""
        parts = {m[1] or m[2]: m[0] for m in _PART.finditer(self.html)}
        return parts | {f"data:{k}": json.dumps(seen(v)) for k, v in self.data.items()}


def stamps(pieces: Mapping[str, str]) -> dict[str, str]:
    """A short hash of each piece."""
    return {k: hashlib.blake2b(v.encode("utf-8", "replace"), digest_size=8).hexdigest() for k, v in pieces.items()}


class LivePage:
    """One page. `look`: what it depends upon, cheaply; `render`: makes it. Both run in threads and may raise."""

    def __init__(self, look: Callable[[], Hashable], render: Callable[[], Rendered], generator: str) -> None:
        self._look, self._render, self._generator = look, render, generator
        self._lock = asyncio.Lock()
        self._news = asyncio.Condition()
        self._mark: Hashable = None
        self._now: Rendered | None = None
        self._pieces: dict[str, str] = {}
        self._stamps: dict[str, str] = {}
        self._kept: OrderedDict[int, dict[str, str]] = OrderedDict()
        self._cost = 0.0
        self._task: asyncio.Task[None] | None = None
        self.readers = 0

    async def current(self) -> Rendered:
        """The page as it is at this moment."""
        async with self._lock:
            mark = await anyio.to_thread.run_sync(self._look)
            if self._now is None or mark != self._mark:
                made, cost = await anyio.to_thread.run_sync(self._timed)
                self._cost = cost if self._now else 0.0  # the first one imports what makes pages
                pieces = {} if made.problem else made.pieces()
                self._mark, self._now, self._pieces, self._stamps = mark, made, pieces, stamps(pieces)
                if not made.problem:
                    self._kept[made.position] = self._stamps
                    while len(self._kept) > KEPT:
                        self._kept.popitem(last=False)
                async with self._news:
                    self._news.notify_all()
            return self._now

    def _timed(self) -> tuple[Rendered, float]:
        """The page, and the CPU-seconds of its making: on a busy machine it takes longer, and costs others no more."""
        began = time.thread_time()
        return self._render(), time.thread_time() - began

    async def _watch(self) -> None:
        while self.readers:
            await asyncio.sleep(max(LOOK_S, REST * self._cost))
            try:
                await self.current()
            except (EvoTrainerError, OSError):  # what cannot be looked at now is looked at again
                continue

    async def events(self, after: int | None) -> AsyncIterator[bytes]:
        """The stream of somebody who knows the page of position `after`."""
        self.readers += 1
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._watch())
            yield b"retry: 1500\n\n"
            known: dict[str, str] = {}
            seen: Rendered | None = None
            await self.current()
            if after is not None:
                known = dict(self._kept.get(after, {}))
            while True:
                if self._now is not None and self._now is not seen:
                    seen = self._now
                    yield self._message(seen, known)
                    known = self._stamps
                try:
                    async with self._news:
                        if self._now is seen:
                            await asyncio.wait_for(self._news.wait(), SILENCE_S)
                except TimeoutError:
                    yield b": here\n\n"
        finally:
            self.readers -= 1

    def _message(self, now: Rendered, known: Mapping[str, str]) -> bytes:
        if now.problem:
            return f"event: problem\ndata: {json.dumps({'text': now.problem})}\n\n".encode()
        fresh = {k: v for k, v in self._pieces.items() if known.get(k) != self._stamps[k]}
        body = {
            "generator": self._generator,
            "driven": now.driven,
            "order": [k for k in self._pieces if not k.startswith("data:") and k != "rail"],
            "parts": {k: v for k, v in fresh.items() if not k.startswith("data:")},
            "data": {k.removeprefix("data:"): json.loads(v) for k, v in fresh.items() if k.startswith("data:")},
        }
        return f"id: {now.position}\nevent: parts\ndata: {json.dumps(body)}\n\n".encode("utf-8", "replace")


class EventStream:
    """The response of a stream; ends where the reader is gone, or takes nothing for SLOW_S."""

    def __init__(self, events: AsyncIterator[bytes], headers: Mapping[str, str]) -> None:
        self._events, self._headers = events, headers

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        headers = [(k.lower().encode(), v.encode()) for k, v in self._headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for piece in self._events:
                body = {"type": "http.response.body", "body": piece, "more_body": True}
                await asyncio.wait_for(send(body), SLOW_S)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return
        finally:
            close = getattr(self._events, "aclose", None)
            if close is not None:
                await close()


async def _gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
