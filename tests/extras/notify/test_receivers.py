"""What receivers refuse: servers on loopback that check requests as Slack, Discord and ntfy document them, proxies,
redirects, certificates; and secrets, which stand in no error and in no file of a run but its task file."""

from __future__ import annotations

import base64
import contextlib
import datetime
import ipaddress
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.letters_on_paper import QUICK

from evotrainer.config.task import NotifyConfig
from evotrainer.errors import ConfigError
from evotrainer.extras.notify.channels import NotifyError, check, send
from evotrainer.extras.notify.messages import Notice
from evotrainer.run.observer import SilentObserver

Answer = tuple[int, str]
SECRET = "T0-B0-XXSECRETXX"
HERE = Notice("waiting", "waits for you <!channel> & @everyone")
LONG = [Notice("end", "ä & <b> 🎉 " * 400) for _ in range(4)]


def slack(path: str, headers: Any, body: bytes) -> Answer:
    """Incoming webhooks: an object with a text, `&`, `<` and `>` escaped; text beyond 4,000 characters is cut."""
    if headers["Content-Type"] != "application/json":
        return 400, "invalid_payload"
    try:
        got = json.loads(body)
    except ValueError:
        return 400, "invalid_payload"
    if not isinstance(got, dict) or not got.get("text"):
        return 400, "no_text"
    text = got["text"]
    plain = re.sub("&(amp|lt|gt);", "#", text)
    if got.keys() - {"text", "blocks", "mrkdwn"} or re.search("[<>&]", plain) or len(plain) > 4000:
        return 400, "invalid_payload"
    return 200, "ok"


def discord(path: str, headers: Any, body: bytes) -> Answer:
    """Execute Webhook: 1 to 2,000 characters of content; nobody may be mentioned."""
    got = json.loads(body)
    if not got.get("content", "").strip():
        return 400, json.dumps({"message": "Cannot send an empty message", "code": 50006})
    if len(got["content"].encode("utf-16-le")) > 4000 or set(got) - {"content", "username", "allowed_mentions"}:
        return 400, json.dumps({"message": "Invalid Form Body", "code": 50035})
    return (204, "") if got["allowed_mentions"] == {"parse": []} else (400, "it would mention everyone")


def ntfy(path: str, headers: Any, body: bytes) -> Answer:
    """Publish as JSON: to the root, topic and whole priority in the message of at most 4,096 bytes."""

    def no(code: int, why: str) -> Answer:
        return code // 100, json.dumps(
            {"code": code, "http": code // 100, "error": why, "link": "https://ntfy.sh/docs"}
        )

    if path.partition("?")[0] != "/":
        return no(40401, "page not found")
    if len(body) > 2 * 4096:
        return no(41303, "JSON body too large")
    got = json.loads(body.decode())
    kinds: dict[str, type] = {"topic": str, "title": str, "message": str, "priority": int, "tags": list}
    if any(k not in kinds or not isinstance(v, kinds[k]) for k, v in got.items()):
        return no(40024, "invalid request: request body must be valid JSON")
    if not re.fullmatch("[-_A-Za-z0-9]{1,64}", got.get("topic", "")):
        return no(40009, "invalid request: topic invalid")
    if not 1 <= got["priority"] <= 5:
        return no(40007, "invalid priority parameter")
    if len(got["message"].encode()) > 4096:
        return no(40014, "invalid request: attachments not allowed")
    if headers["Authorization"] not in (None, f"Basic {base64.b64encode(b'me:p w').decode()}"):
        return no(40101, "unauthorized")
    return 200, "{}"


class Receiver(ThreadingHTTPServer):
    """Answers as `answer` says, and keeps what it got and how it answered."""

    def __init__(self, answer: Callable[[str, Any, bytes], Answer], context: ssl.SSLContext | None = None) -> None:
        self.got: list[tuple[str, dict[str, Any], Answer]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code, said = answer(self.path, self.headers, body)
                receiver.got.append((self.path, json.loads(body), (code, said)))
                self.send_response(code)
                if code in (301, 302, 307, 308):
                    self.send_header("Location", said)
                self.send_header("Content-Length", str(len(said.encode())))
                self.end_headers()
                self.wfile.write(said.encode())

            def do_CONNECT(self) -> None:
                self.send_error(407)

            def log_message(self, *_: Any) -> None: ...

        receiver = self
        super().__init__(("127.0.0.1", 0), Handler)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: Any) -> None: ...

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"


@contextlib.contextmanager
def receiver(answer: Callable[[str, Any, bytes], Answer], context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    server = Receiver(answer, context)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def sent(url: str, form: Any = "json", messages: list[Notice] | None = None) -> None:
    section = NotifyConfig(webhook=url, form=form)
    check(section)
    send(section, "läufe/r 1", "runs/r", messages or [HERE])


def refused(url: str, form: Any = "json") -> str:
    with pytest.raises(NotifyError) as e:
        sent(url, form)
    return str(e.value)


@pytest.mark.parametrize(("form", "answer"), [("slack", slack), ("discord", discord), ("ntfy", ntfy)])
def test_a_receiver_that_checks_its_documented_form_takes_every_message(form: str, answer: Any) -> None:
    with receiver(answer) as r:
        for messages in ([HERE], LONG, [Notice("crash", "torn \ud83d text", quote="*_`\0" * 900)]):
            sent(f"http://{r.place}/{SECRET}", form, messages)
        assert [a[0] in (200, 204) for _, _, a in r.got] == [True] * 3
        first, long = r.got[0][1], r.got[1][1]
    text = {"slack": "text", "discord": "content", "ntfy": "message"}[form]
    assert "waits for you" in first[text] and long[text].endswith("…"), "what is cut off is seen"
    if form == "ntfy":
        assert (first["topic"], first["title"], first["priority"], long["priority"]) == (SECRET, "läufe/r 1", 4, 3)
    if form == "slack":
        assert "&lt;!channel&gt; &amp;" in first[text]


def test_the_receivers_of_these_tests_refuse_what_the_real_ones_refuse() -> None:
    json_type = {"Content-Type": "application/json", "Authorization": None}
    for answer, path, body, code in (
        (slack, "/", b"text=hello", 400),
        (slack, "/", b'{"text": ""}', 400),
        (slack, "/", b'{"text": "a < b"}', 400),
        (discord, "/", b'{"content": " "}', 400),
        (discord, "/", json.dumps({"content": "x" * 2001, "allowed_mentions": {"parse": []}}).encode(), 400),
        (discord, "/", b'{"content": "x", "allowed_mentions": {"parse": ["everyone"]}}', 400),
        (ntfy, "/topic", b"{}", 404),
        (ntfy, "/", b'{"topic": "t", "priority": "high", "message": "x"}', 400),
        (ntfy, "/", b'{"topic": "a/b", "priority": 3, "message": "x"}', 400),
        (ntfy, "/", json.dumps({"topic": "t", "priority": 3, "message": "x" * 4097}).encode(), 400),
    ):
        assert answer(path, json_type, body)[0] == code, (path, body[:60])


def test_a_users_name_and_password_in_the_address_are_basic_authentication() -> None:
    with receiver(ntfy) as r:
        sent(f"http://me:p%20w@{r.place}/alerts?auth=x", "ntfy")
        assert r.got[0][0] == "/?auth=x" and r.got[0][1]["topic"] == "alerts"
        told = refused(f"http://me:wrong@{r.place}/alerts", "ntfy")
    assert told == "webhook: it answered 401: unauthorized"


def test_the_reason_of_a_receiver_is_told_unless_it_holds_a_part_of_the_address() -> None:
    for said, told in (
        ((404, "no_service"), "it answered 404: no_service"),
        ((400, '{"message": "Invalid Form Body", "code": 50035}'), "it answered 400: Invalid Form Body"),
        ((403, f"no hook {SECRET} here"), "it answered 403"),
        ((502, "<html><h1>Bad Gateway</h1></html>"), "it answered 502"),
        ((500, "x" * 5000), "it answered 500"),
    ):
        with receiver(lambda *_, a=said: a) as r:
            assert refused(f"http://{r.place}/services/{SECRET}?k={SECRET}") == f"webhook: {told}"


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_a_redirect_is_not_followed_and_names_the_remedy(code: int) -> None:
    """Followed, a POST would arrive elsewhere, or as a GET without the message; a secret would go to another host."""
    with receiver(lambda *_: (200, "")) as other, receiver(lambda *_: (code, f"http://{other.place}/{SECRET}")) as r:
        told = refused(f"http://{r.place}/x")
        assert "a redirect: give the address that it leads to" in told and SECRET not in told and not other.got


def test_messages_go_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver(slack) as proxy, receiver(slack) as direct:
        for scheme in ("http", "https"):
            monkeypatch.setenv(f"{scheme}_proxy", f"http://who:{SECRET}@{proxy.place}")
        sent("http://hooks.example.invalid/services/x", "slack")
        assert proxy.got[0][0] == "http://hooks.example.invalid/services/x"
        told = refused("https://hooks.example.invalid/services/x", "slack")
        assert "407" in told and SECRET not in told and "example" not in told
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        sent(f"http://{direct.place}/x", "slack")
        assert len(direct.got) == 1 and len(proxy.got) == 1


def certificate(folder: Path) -> Path:
    """A certificate of 127.0.0.1, signed by itself, with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "cert.pem"
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*form))
    return path


def test_a_certificate_that_nobody_vouches_for_is_refused_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with receiver(slack, context) as r:
        told = refused(f"https://{r.place}/{SECRET}", "slack")
        assert "certificate verify failed" in told and "SSL_CERT_FILE" in told
        assert SECRET not in told and "127.0.0.1" not in told and not r.got
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        sent(f"https://{r.place}/{SECRET}", "slack")
        wrong = refused(f"https://localhost:{r.server_port}/{SECRET}", "slack")
        assert "ostname mismatch" in wrong and "localhost" not in wrong, "the name of a host may be the secret"
    assert len(r.got) == 1


@pytest.mark.parametrize(
    ("url", "form", "says"),
    [
        ("https://ntfy.example", "ntfy", "does not end in a topic"),
        ("https://ntfy.example/a%20b", "ntfy", "does not end in a topic"),
        ("https://a.b:x/y", "json", "none of http"),
        ("https://a.b/ SECRET", "json", "none of http"),
    ],
)
def test_an_address_that_cannot_be_right_is_refused_before_the_run_and_not_quoted(
    url: str, form: Any, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as e:
        check(NotifyConfig(webhook=url, form=form))
    assert url not in str(e.value)


def test_the_address_stands_in_the_task_file_of_a_run_or_nowhere(
    task_file: Path, tmp_path: Path, letters_paper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    class View(SilentObserver):
        def note(self, text: str) -> None:
            said.append(text)

    url = f"http://127.0.0.1:1/services/{SECRET}"
    monkeypatch.setenv("HOOK", url)
    for name, where in (("env", "notify.webhook_env=HOOK"), ("file", f"notify.webhook={url}")):
        more = [*QUICK, 'notify.on=["end"]', "run.rounds=0", where]
        run = letters_paper.start(task_file, tmp_path / name, more, view=View())
        run.report()
        files = [p for p in (tmp_path / name).rglob("*") if p.is_file()]
        holds = [p.name for p in files if SECRET.encode() in p.read_bytes()]
        assert len(files) > 3 and holds == ([] if name == "env" else ["task.toml"])
    assert any("notify failed" in x for x in said) and not any(SECRET in x for x in said)
