"""A Hugging Face Hub on the loopback, with one data set in two commits: what the clients ask of the real one."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Commits = Mapping[str, Mapping[str, bytes]]
"""Commit -> path -> content, the newest last."""


@contextmanager
def hub(name: str, commits: Commits) -> Iterator[tuple[str, list[str]]]:
    """Its address, and the requests it had. `main` is the newest commit."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            seen.append(f"{self.command} {self.path}")
            for prefix, answer in ((f"/api/datasets/{name}", self.info), (f"/datasets/{name}/resolve/", self.resolve)):
                if path.startswith(prefix):
                    answer(path.removeprefix(prefix))
                    return
            self.reply(404, {"error": "not found"})

        def commit(self, revision: str) -> str | None:
            return [*commits][-1] if revision == "main" else revision if revision in commits else None

        def info(self, rest: str) -> None:
            parts = rest.strip("/").split("/")
            sha = self.commit(parts[1] if parts[0] in ("revision", "tree", "paths-info") else "main")
            if sha is None:
                self.reply(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
                return
            files = [
                {"type": "file", "path": p, "size": len(b), "oid": hashlib.sha1(b).hexdigest()}
                for p, b in commits[sha].items()
            ]
            if parts[0] in ("tree", "paths-info"):
                self.reply(200, files)
                return
            siblings = [{"rfilename": f["path"]} for f in files]
            self.reply(
                200, {"id": name, "sha": sha, "private": False, "tags": [], "downloads": 0, "siblings": siblings}
            )

        def resolve(self, rest: str) -> None:
            revision, _, path = rest.partition("/")
            sha = self.commit(revision)
            if sha is None or path not in commits[sha]:
                self.reply(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
                return
            body = commits[sha][path]
            self.reply(200, body, {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": sha})

        def reply(self, status: int, body: Any, headers: Mapping[str, str] = {}) -> None:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for k, v in {"Content-Length": str(len(raw)), "Accept-Ranges": "none", **headers}.items():
                self.send_header(k, v)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(raw)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
