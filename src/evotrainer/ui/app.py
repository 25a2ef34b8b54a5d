"""The web application: which address shows what, and what nobody may ask.

Every answer forbids scripts but ours, other hosts, and being shown in another page's frame. A request whose `Host` is
no name of this machine is refused: a page of somebody else whose name was made to point here would send it. Names in
addresses are looked up among what is there; none is made into a path.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio.to_thread
from markupsafe import escape
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from evotrainer.errors import ConfigError, EvoTrainerError, StoreError
from evotrainer.records.regular_file import read_bytes
from evotrainer.records.seat import MOST
from evotrainer.records.text import clean
from evotrainer.ui.groups import attempts_of, claims_of, group_cards, hit_card, readable, whole_text
from evotrainer.ui.index import SORTS, RolloutFilter
from evotrainer.ui.live import EventStream, LivePage, Rendered
from evotrainer.ui.places import SCRIPTS, STYLES, AuditPlace, RunPlace, RunsPlace, problem_page, served, values_of
from evotrainer.views.report import fill

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MOST_QUERY = 4_096
"""Bytes of a query."""
MOST_TEXT = 300
"""Letters of a search."""
STREAMS = 250
"""Pages that may follow at once."""
PAGE = 20
"""Groups on a page."""
HITS = 200
"""Hits of a search that are sent."""
MOST_ANSWER = 8 * MOST
"""Bytes of an answer as JSON."""
LOOPBACK = ("127.0.0.1", "::1")
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}

DEFAULT_SORTS = {False: "new", True: "flagged"}
"""Of a run, of an audit."""

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class _NotThereError(StoreError):
    """Nothing has this name."""


class RequestGuard:
    """Refuses what no reader of ours asks, before anything is looked up."""

    def __init__(self, app: Asgi, hosts: frozenset[str], actions: bool) -> None:
        self._app, self._hosts, self._actions = app, hosts, actions

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send) if scope["type"] == "lifespan" else None
        refused = self._refused(scope)
        if refused is not None:
            await PlainTextResponse(refused[1] + "\n", refused[0], HEADERS)(scope, receive, send)
            return None

        async def dressed(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = {k.lower() for k, _ in message["headers"]}
                more = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message["headers"] = [*message["headers"], *((k, v) for k, v in more if k not in own)]
            await send(message)

        await self._app(scope, receive, dressed)
        return None

    def _refused(self, scope: Any) -> tuple[int, str] | None:
        hosts = [v.decode("latin-1") for k, v in scope["headers"] if k == b"host"]
        if len(hosts) != 1 or not self._known(_host_name(hosts[0])):
            return 403, "this address is no name of the machine that serves the page: open it as 127.0.0.1"
        answers = scope["method"] == "POST" and self._actions and scope["path"].endswith("/answer")
        if scope["method"] not in ("GET", "HEAD") and not answers:
            return 405, "this page is read only: GET alone"
        if len(scope["query_string"]) > MOST_QUERY or len(scope["raw_path"]) > MOST_QUERY:
            return 414, f"the address is longer than {MOST_QUERY:,} bytes: search for less"
        return None

    def _known(self, name: str) -> bool:
        return name in self._hosts or ("*" in self._hosts and _is_number(name))


def _host_name(host: str) -> str:
    """A `Host` without its port."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/@\s]+)(?::\d{1,5})?", host)
    return found[1].strip("[]").lower().rstrip(".") if found else ""


def _is_number(name: str) -> bool:
    """An address in figures, which no name server gives."""
    for kind in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(kind, name)
        except (OSError, ValueError):
            continue
        return True
    return False


def hosts_of(host: str) -> frozenset[str]:
    """Names under which a server on this address may be asked."""
    own = {"127.0.0.1", "localhost", "::1", host.lower()}
    if host in ("0.0.0.0", "::", ""):
        own |= {"*", socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(own)


class Pages:
    """The addresses of what is served."""

    def __init__(self, top: RunsPlace | AuditPlace, token: str) -> None:
        self.top, self._token = top, token
        self.streams = 0
        self._assets = {n: _asset(n) for n in (*SCRIPTS, *STYLES)}

    def routes(self) -> list[Route]:
        run = "/run/{run}/"
        return [
            Route("/", self.home),
            Route("/events", self.home_events),
            Route("/latest", self.latest),
            Route("/static/{name:path}", self.asset),
            Route(run, self.page),
            Route(run + "events", self.events),
            Route(run + "branch/{branch}", self.page),
            Route(run + "branch/{branch}/events", self.events),
            Route(run + "rollouts", self.rollouts),
            Route(run + "rollouts/events", self.rollout_events),
            Route(run + "search", self.search),
            Route(run + "rollout/{name}", self.rollout),
            Route(run + "rollout/{name}/text", self.text),
            Route(run + "answer", self.answer, methods=["POST"]),
        ]

    async def home(self, request: Request) -> Response:
        if isinstance(self.top, AuditPlace):
            return RedirectResponse(self.top.base)
        if self.top.alone:
            return RedirectResponse(next(iter(self.top.find().values())).base)
        return _html(await self.top.home.current())

    async def home_events(self, request: Request) -> Any:
        if isinstance(self.top, AuditPlace) or self.top.alone:
            return await self.missing(request)
        return self._stream(request, self.top.home)

    async def latest(self, request: Request) -> Response:
        found = None if isinstance(self.top, AuditPlace) else await anyio.to_thread.run_sync(self.top.latest)
        return RedirectResponse(found.base if found else "/")

    async def asset(self, request: Request) -> Response:
        found = self._assets.get(request.path_params["name"])
        if found is None:
            return PlainTextResponse("no such file\n", 404)
        kind, body = found
        return Response(body, media_type=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})

    async def _place(self, request: Request) -> RunPlace | AuditPlace:
        found = await anyio.to_thread.run_sync(self.top.run, request.path_params["run"])
        if found is None:
            name = clean(request.path_params["run"], 60)
            raise _NotThereError(f"there is no run {name!r} here; the first page lists those that there are")
        return found

    async def page(self, request: Request) -> Response:
        place = await self._place(request)
        page = await anyio.to_thread.run_sync(place.page, request.path_params.get("branch", ""))
        return _html(await page.current())

    async def events(self, request: Request) -> Any:
        place = await self._place(request)
        page = await anyio.to_thread.run_sync(place.page, request.path_params.get("branch", ""))
        return self._stream(request, page)

    def _stream(self, request: Request, page: LivePage) -> Any:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self.streams >= STREAMS:
            return PlainTextResponse(f"{STREAMS} pages follow already: close some\n", 503)
        given = request.headers.get("last-event-id") or request.query_params.get("after") or ""
        after = int(given) if given.isdecimal() and len(given) < 12 else None

        async def counted() -> Any:
            self.streams += 1
            try:
                async for piece in page.events(after):
                    yield piece
            finally:
                self.streams -= 1

        return EventStream(counted(), {**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})

    async def rollouts(self, request: Request) -> Response:
        place = await self._place(request)
        return HTMLResponse(await anyio.to_thread.run_sync(self._listed, place, dict(request.query_params)))

    def _listed(self, place: RunPlace | AuditPlace, given: Mapping[str, str]) -> str:
        asked, sort, start = (
            _filter(given),
            given.get("sort") or DEFAULT_SORTS[place.audit],
            _number(given.get("start", "")),
        )
        if sort not in SORTS:
            raise ConfigError(f"sort {clean(sort, 30)}: one of {', '.join(SORTS)}")
        index = place.index
        index.refresh()
        found = index.find(asked, sort, start, PAGE)
        kept = {k: v for k, v in given.items() if v and k in (*_names(), "sort")}
        return fill(
            "rollouts.html.j2",
            {},
            served=served(place.base, place.title, found.total, live=not place.audit, home=place.home),
            what="rollouts",
            place=place,
            asked=asked,
            sort=sort,
            offers=values_of(index),
            found=found,
            of=index.n,
            unread=index.unread,
            start=start,
            page=PAGE,
            cards=group_cards(found.shown),
            readable=readable,
            given=given,
            more=lambda at: "?" + urlencode({**kept, "start": at}),
            query=urlencode(kept),
        )

    async def rollout_events(self, request: Request) -> Any:
        place = await self._place(request)
        if not isinstance(place, RunPlace):
            return await self.missing(request)
        return self._stream(request, place.follow(_filter(request.query_params)))

    async def search(self, request: Request) -> Response:
        place, given = await self._place(request), dict(request.query_params)
        lines = iterate_in_threadpool(self._hits(place, given))
        return StreamingResponse(lines, media_type="application/x-ndjson")

    def _hits(self, place: RunPlace | AuditPlace, given: Mapping[str, str]) -> Iterator[bytes]:
        """A JSON object a line: `{html}` of a hit, `{read}` so far, `{error}`, and at last `{done}`."""
        text = given.get("q", "")
        try:
            if not text or len(text) > MOST_TEXT:
                raise ConfigError(f"give 1 to {MOST_TEXT} letters to search for")
            place.index.refresh()
            hits, read, skip = 0, 0, _number(given.get("skip", ""))
            for got in place.index.search(text, _filter(given), given.get("regex") == "1"):
                if isinstance(got, int):
                    read = got
                    yield _line(read=read, hits=hits)
                    continue
                hits += 1
                if hits > skip + HITS:
                    break
                if hits > skip:
                    yield _line(html=hit_card(got[0], got[1], place.base))
            cut = hits > skip + HITS
            if cut:
                kept = {k: v for k, v in given.items() if v and k in (*_names(), "sort", "q", "regex")}
                more = escape("?" + urlencode({**kept, "skip": skip + HITS}))
                yield _line(html=f'<li><a href="{more}" rel="next">The next {HITS} →</a></li>')
            yield _line(done=True, read=read, hits=hits - cut, cut=cut)
        except EvoTrainerError as e:
            yield _line(error=clean(str(e), 400))

    async def rollout(self, request: Request) -> Response:
        place = await self._place(request)
        name, span = request.path_params["name"], request.query_params.get("quote", "")[:400]
        return HTMLResponse(await anyio.to_thread.run_sync(self._group, place, name, span))

    def _group(self, place: RunPlace | AuditPlace, name: str, span: str) -> str:
        rows = _group_rows(place, name)
        prompt, attempts = attempts_of(place.index, rows, name, span)
        view = place.view() if isinstance(place, RunPlace) else None
        how = served(place.base, place.title, live=False, home=place.home)
        return fill("group.html.j2", {}, served=how, what="rollout", place=place, rows=rows, prompt=prompt,
                    attempts=attempts, name=name, first=rows[0], readable=readable,
                    claims=claims_of(place.index, rows, view, place.base),
                    branch=view.branches.get(rows[0]["branch"]) if view else None)  # fmt: skip

    async def text(self, request: Request) -> Response:
        place, name = await self._place(request), request.path_params["name"]
        return PlainTextResponse(
            await anyio.to_thread.run_sync(lambda: whole_text(place.index, _group_rows(place, name), name))
        )

    async def answer(self, request: Request) -> Response:
        """A human's answer to what a run asks, from this machine, this page and whoever has the token."""
        place = await self._place(request)
        own = f"{request.url.scheme}://{request.headers.get('host', '')}"
        if not secrets.compare_digest(request.headers.get("x-evotrainer-token", "").encode(), self._token.encode()):
            return PlainTextResponse("open the address that `evotrainer ui --allow-actions` printed\n", 403)
        if request.headers.get("origin") != own or not request.client or request.client.host not in LOOPBACK:
            return PlainTextResponse("only the page itself, on this machine, answers\n", 403)
        if int(request.headers.get("content-length", MOST_ANSWER)) >= MOST_ANSWER or not isinstance(place, RunPlace):
            return PlainTextResponse(f"an answer has at most {MOST_ANSWER:,} bytes\n", 413)
        try:
            given = json.loads(await request.body())
            to, choice, words = (str(given[k]) for k in ("to", "answer", "words"))
            taken = await anyio.to_thread.run_sync(place.answer, to, choice, words)
        except (ValueError, KeyError, TypeError):
            return PlainTextResponse("give {to, answer, words} as JSON\n", 400)
        except EvoTrainerError as e:
            return PlainTextResponse(clean(str(e), 800) + "\n", 409)
        return PlainTextResponse(f"{taken}\n")

    async def missing(self, request: Request, error: Exception | None = None) -> Response:
        why = (
            error
            if isinstance(error, EvoTrainerError)
            else _NotThereError("there is no such page; the first page lists what there is")
        )
        if isinstance(why, _NotThereError):
            title, status = "Not found", 404
        else:
            title, status = ("Cannot be read", 500) if isinstance(why, StoreError) else ("Not understood", 400)
        return _html(problem_page(why, title, status, live=False))


def _group_rows(place: RunPlace | AuditPlace, name: str) -> list[dict[str, Any]]:
    place.index.refresh()
    if not (rows := place.index.group_of(name)):
        raise _NotThereError(
            f"no train or search rollout {clean(name, 60)!r} is stored here, or several begin so; gate and cert "
            "rollouts are never served: `evotrainer rollouts RUN --split gate` shows those of a closed run"
        )
    return rows


def _names() -> tuple[str, ...]:
    return tuple(RolloutFilter.__dataclass_fields__)


def _filter(given: Mapping[str, str]) -> RolloutFilter:
    return RolloutFilter(**{k: given[k][:MOST_TEXT] for k in _names() if given.get(k)})


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 9 else 0


def _line(**body: Any) -> bytes:
    return json.dumps(body).encode() + b"\n"


def _html(page: Rendered) -> Response:
    return HTMLResponse(page.html.encode("utf-8", "replace"), page.status)


def _asset(name: str) -> tuple[str, bytes]:
    found = resources.files("evotrainer.views").joinpath("assets", *name.split("/"))
    return TYPES[Path(name).suffix], read_bytes(Path(str(found)))


def application(top: RunsPlace | AuditPlace, host: str, token: str = "") -> Asgi:
    """The application over a folder of runs, a run or an audit, asked under the names of `host`; with a token whoever
    has it may answer what runs ask."""
    pages = Pages(top, token)
    errors: Any = {404: pages.missing, EvoTrainerError: pages.missing}
    return RequestGuard(Starlette(routes=pages.routes(), exception_handlers=errors), hosts_of(host), bool(token))
