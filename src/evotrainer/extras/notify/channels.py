"""Where messages go: a webhook in the form of its service, a command."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
from collections.abc import Callable, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from evotrainer.config.task import NotifyConfig
from evotrainer.errors import ConfigError, EvoTrainerError
from evotrainer.extras.notify.messages import Notice, as_text

ANSWER_S = 20.0
"""Seconds in which a webhook has to answer."""
COMMAND_S = 30.0
"""Seconds that a command may take."""
SLACK, DISCORD, NTFY = 4_000, 2_000, 4_096
"""Longest message: characters (Slack cuts there), UTF-16 units (more is refused), bytes (more becomes a file, or is
refused)."""
SAID, READ = 120, 4096
"""Letters of a receiver's reason that are quoted, and bytes of its answer that are read for it."""
TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")
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
    where = f"in {section.webhook_env}" if section.webhook_env else "of notify.webhook"
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or any(c.isspace() for c in url):
        raise ConfigError(f"the address {where} is none of http:// or https://; correct it")
    if section.form == "ntfy" and not TOPIC.fullmatch(parts.path.rstrip("/").rpartition("/")[2]):
        raise ConfigError(f"the address {where} does not end in a topic of ntfy; give https://ntfy.sh/TOPIC")
    return url


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """A redirected POST would arrive as a GET, without the message."""


def _post(section: NotifyConfig, body: dict[str, Any]) -> None:
    address = urlsplit(_address(section))
    host = address.netloc.rpartition("@")[2]
    headers = {"User-Agent": "evotrainer", "Content-Type": "application/json"}
    if address.username is not None:  # ntfy and others: https://user:password@host/
        user = f"{unquote(address.username)}:{unquote(address.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    path, fields = FORMS[section.form](body, address.path)
    data = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
    try:
        request = Request(urlunsplit(address._replace(netloc=host, path=path)), data, headers, method="POST")
        with build_opener(_Stay).open(request, timeout=ANSWER_S):
            pass
    except HTTPError as e:
        raise NotifyError(_refused(e, address)) from None
    except URLError as e:
        hint = "; name the file of its authority in SSL_CERT_FILE" if isinstance(e.reason, ssl.SSLError) else ""
        raise NotifyError(str(e.reason).replace(address.hostname or host, "the host") + hint) from None
    except TimeoutError:
        raise NotifyError(f"no answer within {ANSWER_S:g} s") from None
    except Exception as e:  # http.client's, or one whose text may quote the address
        raise NotifyError(type(e).__name__) from None


def _refused(e: HTTPError, address: SplitResult) -> str:
    """The receiver's code and its reason, unless that is a page, or holds a part of the address."""
    with contextlib.closing(e), contextlib.suppress(Exception):
        if e.code in range(300, 400):
            return f"it answered {e.code}, a redirect: give the address that it leads to"
        said = e.read(READ).decode("utf-8", "replace")
        with contextlib.suppress(ValueError):
            found = json.loads(said)
            said = str(found.get("error") or found.get("message") or "") if isinstance(found, dict) else said
        said = " ".join(said.split())
        secrets = [x for x in re.split(r"[/?&=@:]", "/".join(address[1:])) if len(x) > 3]
        if 0 < len(said) <= SAID and "<" not in said and not any(x in said for x in secrets):
            return f"it answered {e.code}: {said}"
    return f"it answered {e.code}"


def _short(text: str, most: int, encoding: str = "utf-32-le", width: int = 4) -> str:
    """At most so many units of an encoding, the last an ellipsis where something was cut off; no control characters, of
    which JSON makes six bytes each."""
    whole = "".join(c for c in text if c.isprintable() or c in "\n\t").encode(encoding)
    dot = "…".encode(encoding)
    short = whole if len(whole) <= most * width else whole[: most * width - len(dot)] + dot
    return short.decode(encoding, "ignore")


def _slack(body: dict[str, Any], path: str) -> tuple[str, dict[str, Any]]:
    text = _short(body["text"], SLACK)
    return path, {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def _discord(body: dict[str, Any], path: str) -> tuple[str, dict[str, Any]]:
    return path, {"content": _short(body["text"], DISCORD, "utf-16-le", 2), "allowed_mentions": {"parse": []}}


def _ntfy(body: dict[str, Any], path: str) -> tuple[str, dict[str, Any]]:
    """Published as JSON: to the folder of the topic, which stands in the message."""
    root, _, topic = path.rstrip("/").rpartition("/")
    urgent = any(m["kind"] in URGENT for m in body["messages"])
    message = _short(body["text"], NTFY, "utf-8", 1)
    return f"{root}/", {"topic": topic, "title": body["run"], "message": message, "priority": 4 if urgent else 3}


FORMS: dict[str, Callable[[dict[str, Any], str], tuple[str, dict[str, Any]]]] = {
    "json": lambda body, path: (path, body),
    "slack": _slack,
    "discord": _discord,
    "ntfy": _ntfy,
}
"""`notify.form` -> (path of the request, its JSON), from the message and the address's path."""


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
