"""A server of the page in a process of its own, and what a test asks of it."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving(*words: str | Path, port: int = 0) -> Iterator[str]:
    """`evotrainer ui` with these words; its address."""
    command = [sys.executable, "-m", "evotrainer", "ui", *map(str, words), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as p:
        try:
            assert p.stdout is not None
            line = p.stdout.readline()
            assert line.startswith("page: http://"), line + p.stdout.read()
            yield line.split()[1]
        finally:
            p.terminate()
            p.wait(60)


def port_of(address: str) -> int:
    return int(address.rstrip("/").rpartition(":")[2])


def asked(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    """(status, text, headers) of a request as it is written here: no client tidies its path."""
    c = http.client.HTTPConnection("127.0.0.1", port_of(address), timeout=60)
    try:
        c.putrequest(method, path, skip_host="Host" in headers)
        for k, v in headers.items():
            c.putheader(k.replace("_", "-"), v)
        c.endheaders()
        answer = c.getresponse()
        return answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.getheaders()}
    finally:
        c.close()


def events(address: str, path: str, most: int, **headers: str) -> list[str]:
    """The first messages of a stream, whole."""
    c = http.client.HTTPConnection("127.0.0.1", port_of(address), timeout=60)
    try:
        c.request("GET", path, headers=headers)
        answer, found = c.getresponse(), [""]
        while len(found) <= most:
            line = answer.readline().decode()
            if not line.strip():
                if found[-1] and not found[-1].startswith((":", "retry")):
                    found.append("")
                else:
                    found[-1] = ""
                continue
            found[-1] += line
        return found[:most]
    finally:
        c.close()
