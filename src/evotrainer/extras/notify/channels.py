"""Where messages go: a webhook in the form of its service, a command."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from evotrainer.config.task import NotifyConfig
from evotrainer.errors import ConfigError, EvoTrainerError
from evotrainer.extras.notify.messages import Notice, as_text

ANSWER_S = 20.0
"""Seconds in which a webhook has to answer."""
COMMAND_S = 30.0
"""Seconds that a command may take."""
DISCORD = 2000
"""Letters of a message there."""
URGENT = ("waiting", "crash", "stalled")


class NotifyError(EvoTrainerError):
    """A message could not be sent. Its text never holds the address, which is a secret."""


def check(section: NotifyConfig) -> list[str]:
    """Notes; ConfigError where nothing could be sent by this section."""
    if section.webhook and section.webhook_env:
        raise ConfigError("notify.webhook and notify.webhook_env are both set; set one of them")
    if not (section.webhook or section.webhook_env or section.command):
        return []
    if section.webhook or section.webhook_env:
        _address(section)
    if section.command and shutil.which(section.command[0]) is None:
        raise ConfigError(f"notify.command: no program {section.command[0]!r}; give its path")
    if section.webhook:
        return [
            "notify.webhook is stored in the run's task.toml: set notify.webhook_env to the name of a variable that "
            "holds it to keep it out"
        ]
    return []


def send(section: NotifyConfig, run: str, folder: str, messages: Sequence[Notice]) -> None:
    """Send messages as one, everywhere that the section names; NotifyError with what failed."""
    body = {
        "run": run,
        "folder": folder,
        "text": as_text(run, messages),
        "messages": [m._asdict() for m in messages],
    }
    failed = []
    if section.webhook or section.webhook_env:
        failed += _tried("webhook", lambda: _post(section, body))
    if section.command:
        failed += _tried("command", lambda: _call(section.command, body))
    if failed:
        raise NotifyError("; ".join(failed))


def _tried(what: str, do: Callable[[], None]) -> list[str]:
    try:
        do()
    except EvoTrainerError as e:
        return [f"{what}: {e}"]
    return []


def _address(section: NotifyConfig) -> str:
    url = section.webhook or os.environ.get(section.webhook_env, "")
    if not url:
        raise ConfigError(f"notify.webhook_env: the variable {section.webhook_env} is not set; export it")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        where = f"in {section.webhook_env}" if section.webhook_env else "of notify.webhook"
        raise ConfigError(f"the address {where} is none of http:// or https://; correct it")
    return url


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """A redirected POST would arrive as a GET, without the message."""


def _post(section: NotifyConfig, body: dict[str, Any]) -> None:
    data, headers = FORMS[section.form](body)
    try:
        request = Request(_address(section), data, {"User-Agent": "evotrainer", **headers}, method="POST")
        with build_opener(_Stay).open(request, timeout=ANSWER_S):
            pass
    except HTTPError as e:
        e.close()
        raise NotifyError(f"it answered {e.code}") from None
    except URLError as e:
        raise NotifyError(str(e.reason)) from None
    except TimeoutError:
        raise NotifyError(f"no answer within {ANSWER_S:g} s") from None
    except Exception as e:  # http.client's, or one whose text may quote the address
        raise NotifyError(type(e).__name__) from None


def _json(body: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    return json.dumps(body, ensure_ascii=False).encode(), {"Content-Type": "application/json"}


def _slack(body: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    text = body["text"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _json({"text": text})


def _discord(body: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    return _json({"content": body["text"][:DISCORD], "allowed_mentions": {"parse": []}})


def _ntfy(body: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    urgent = any(m["kind"] in URGENT for m in body["messages"])
    title = body["run"].encode("ascii", "replace").decode()
    return body["text"].encode(), {"Title": title, "Priority": "high" if urgent else "default"}


FORMS: dict[str, Callable[[dict[str, Any]], tuple[bytes, dict[str, str]]]] = {
    "json": _json,
    "slack": _slack,
    "discord": _discord,
    "ntfy": _ntfy,
}
"""`notify.form` -> (body of the request, its headers)."""


def _call(command: Sequence[str], body: dict[str, Any]) -> None:
    """The command gets the message as JSON on its standard input, and its text as $EVOTRAINER_TEXT."""
    env = dict(os.environ, EVOTRAINER_TEXT=body["text"].replace("\0", ""))
    try:
        p = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
            start_new_session=True,
        )
    except OSError as e:
        raise NotifyError(e.strerror or str(e)) from None
    try:
        p.communicate(json.dumps(body, ensure_ascii=False).encode(), timeout=COMMAND_S)
    except subprocess.TimeoutExpired:
        raise NotifyError(f"not done within {COMMAND_S:g} s") from None
    finally:
        with contextlib.suppress(OSError):
            os.killpg(p.pid, signal.SIGKILL)  # with what it left behind
        p.wait()
    if p.returncode:
        raise NotifyError(f"exit code {p.returncode}")
