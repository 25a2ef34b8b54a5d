"""Messages about a run: few, to the point, and never a reason that a run fails or waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.letters_on_paper import QUICK
from tests.paper import Paper
from tests.run.kill_driver import finish

from evotrainer import api
from evotrainer.config.task import NotifyConfig
from evotrainer.errors import ConfigError
from evotrainer.extras.notify.channels import NotifyError, check, send
from evotrainer.extras.notify.live import notifying
from evotrainer.extras.notify.messages import Notice, Watch, stopped
from evotrainer.extras.notify.sender import Outbox
from evotrainer.run.observer import SilentObserver


class Hook(ThreadingHTTPServer):
    """A webhook that keeps what it got; it answers by the path: /500, /slow, /moved, else 200."""

    def __init__(self) -> None:
        got: list[tuple[dict[str, str], bytes]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                got.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
                code = {"/500": 500, "/moved": 302}.get(self.path.partition("?")[0], 200)
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "/ok")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)
        self.got = got
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path: str = "/ok") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def texts(self) -> list[str]:
        return [json.loads(body)["text"] for _, body in self.got]


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook()
    yield server
    server.shutdown()
    server.server_close()


WAITS = Notice("waiting", "waits for you <here> & now", "2026-01-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("json", '"kind": "waiting"'),
        ("slack", "&lt;here&gt; &amp; now"),
        ("discord", '"content"'),
        ("ntfy", '"priority": 4'),
    ],
)
def test_each_service_gets_the_form_that_it_understands(hook: Hook, form: Any, says: str) -> None:
    send(NotifyConfig(webhook=hook.url(), form=form), "r", "runs/r", [WAITS])
    ((_, body),) = hook.got
    assert says in body.decode()


@pytest.mark.parametrize(("path", "says"), [("/500", "it answered 500"), ("/moved", "it answered 302")])
def test_what_fails_is_named_without_the_address(hook: Hook, path: str, says: str) -> None:
    with pytest.raises(NotifyError, match=says) as e:
        send(NotifyConfig(webhook=hook.url(path) + "?token=secret"), "r", "r", [WAITS])
    assert "secret" not in str(e.value) and "127.0.0.1" not in str(e.value)


def test_a_command_gets_the_message_and_one_that_hangs_leaves_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    command = ("sh", "-c", f'echo "$EVOTRAINER_TEXT" > {out}; cat >> {out}')
    send(NotifyConfig(command=command), "r", "runs/r", [WAITS])
    text, _, body = out.read_text().partition("\n")
    assert text == "r: waits for you <here> & now" and json.loads(body)["messages"][0]["kind"] == "waiting"
    monkeypatch.setattr("evotrainer.extras.notify.channels.COMMAND_S", 0.5)
    with pytest.raises(NotifyError, match=r"not done within 0.5 s"):
        send(NotifyConfig(command=("sh", "-c", f"sleep 60 & echo $! > {out}; wait")), "r", "r", [WAITS])
    time.sleep(0.1)
    stat = Path(f"/proc/{out.read_text().strip()}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"
    with pytest.raises(NotifyError, match="exit code 3"):
        send(NotifyConfig(command=("sh", "-c", "exit 3")), "r", "r", [WAITS])


def test_an_address_is_checked_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "https://example.org/x")
    assert check(NotifyConfig(webhook_env="HOOK")) == []
    assert "task.toml" in check(NotifyConfig(webhook="https://example.org/x"))[0]
    for wrong, says in (
        ({"webhook_env": "NO_SUCH"}, "the variable NO_SUCH is not set"),
        ({"webhook": "file:///etc/passwd"}, "none of http:// or https://"),
        ({"webhook": "https://a.b", "webhook_env": "HOOK"}, "both set"),
        ({"command": ("no-such-program",)}, "no program 'no-such-program'"),
    ):
        with pytest.raises(ConfigError, match=says):
            check(NotifyConfig(**wrong))


def test_messages_are_batched_one_a_minute_and_a_failure_is_told_once() -> None:
    now, sent, failed, broken = [0.0], list[list[str]](), list[str](), [False]

    def deliver(messages: list[Notice]) -> None:
        if broken[0]:
            raise NotifyError("it answered 500")
        sent.append([m.text for m in messages])

    box = Outbox(deliver, 60, failed.append, lambda: now[0])
    box.add([Notice("waiting", "1")])
    box.flush()
    for t, text in ((1, "2"), (30, "3")):
        now[0] = t
        box.add([Notice("promotion", text)])
        box.flush()
    now[0] = 60
    box.flush()
    assert sent == [["1"], ["2", "3"]]
    broken[0] = True
    for t in (120, 180):
        now[0] = t
        box.add([Notice("end", str(t))])
        box.flush()
    broken[0], now[0] = False, 240
    box.flush()
    assert sent[-1] == ["120", "180"] and failed == ["it answered 500"]


def test_what_is_told_of_a_run(task_file: Path, tmp_path: Path) -> None:
    larger = 'run.agent_options.interventions=[{factor="group_size",new=12}]'
    asked = ["run.autonomy=human_gated", "run.agent=fixed", larger, "judge.audit=never"]
    run = Paper(finish).start(task_file, tmp_path / "r", [*QUICK, *asked], ask=lambda where, text: ("APPROVE", ""))
    events = run.events()
    watch = Watch("runs/r", ("waiting", "promotion", "end"), False)
    first = next(i for i, e in enumerate(events) if e.kind == "gate_asked")
    (waits,) = watch.news(events[: first + 1])
    assert watch.waits and waits.kind == "waiting" and not waits.quote
    assert "waits for you at the diagnosis gate of round 1: evotrainer answer runs/r" in waits.text
    rest = watch.news(events)
    assert watch.ended and not watch.waits
    assert rest[-1].kind == "end" and "every round of the task file was played" in rest[-1].text
    promoted = [e.body for e in events if e.kind == "promoted" and e.body.previous]
    told = [m.text for m in rest if m.kind == "promotion"]
    assert [p.branch for p in promoted] == ["b1"]
    assert len(told) == 1 and told[0].startswith("b1 promoted over b0 (group_size: 8 → 12), +") and "on gate" in told[0]
    again = Watch("runs/r", ("waiting",), True, first + 1).news(events[: first + 1])
    assert [m.kind for m in again] == ["waiting"], "who resumes a run that waits is told again"
    assert again[0].quote, "the question itself, where the task file asks for it"
    assert Watch("runs/r", ("end",), False, len(events)).news(events) == []


def test_a_run_tells_its_end_and_a_dead_hook_costs_it_a_line(
    task_file: Path, tmp_path: Path, letters_paper: Any, hook: Hook
) -> None:
    said: list[str] = []

    class View(SilentObserver):
        def note(self, text: str) -> None:
            said.append(text)

    tell = ['notify.on=["end"]', "run.rounds=0"]
    for name, url in (("ok", hook.url()), ("dead", "http://127.0.0.1:1/x")):
        more = [*tell, f"notify.webhook={url}"]
        run = letters_paper.start(task_file, tmp_path / name, [*QUICK, *more], view=View())
        assert run.closed is not None
    assert len(hook.got) == 1 and hook.texts()[0].startswith("ok: ended: every round of the task file was played.")
    assert [n for n in said if "notify failed" in n] == [
        "warning: notify failed (webhook: [Errno 111] Connection refused); the run goes on, messages are tried again"
    ]


DRIVE = """
import sys, time
from pathlib import Path
from evotrainer.config.task import NotifyConfig
from evotrainer.extras.notify.live import notifying
from evotrainer.run.observer import SilentObserver
with notifying(Path(sys.argv[1]), NotifyConfig(webhook=sys.argv[2]), SilentObserver(), int(sys.argv[3])):
    print("on", flush=True)
    time.sleep(60)
"""


def test_a_run_that_was_killed_is_told_of(task_file: Path, tmp_path: Path, letters_paper: Any, hook: Hook) -> None:
    with letters_paper.stopped(lambda spec: spec.trial == "b0-s2"):
        letters_paper.start(task_file, tmp_path / "r", QUICK)
    n = len(api.open_run(tmp_path / "r").events())
    words = [sys.executable, "-c", DRIVE, str(tmp_path / "r"), hook.url(), str(n)]
    p = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert p.stdout is not None and p.stdout.readline() == "on\n"
    os.kill(p.pid, signal.SIGKILL)
    p.wait()
    end = time.monotonic() + 20
    while not hook.got and time.monotonic() < end:
        time.sleep(0.05)
    assert hook.texts() == [
        "r: crashed: its process was killed, or the machine went away; nothing is lost: evotrainer resume "
        f"{tmp_path / 'r'}"
    ]


def test_how_a_run_was_stopped_is_told(tmp_path: Path) -> None:
    assert stopped("r", "disk full; free some", False).kind == "crash"
    by_hand = stopped("r", "aborted; `evotrainer resume r` asks again", True)
    assert (by_hand.kind, by_hand.text) == ("end", "stopped: aborted; `evotrainer resume r` asks again")
    with pytest.raises(RuntimeError), notifying(tmp_path, NotifyConfig(on=()), SilentObserver(), 0):
        raise RuntimeError("a fault is not swallowed")
