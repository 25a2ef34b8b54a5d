"""The carrier `command`: what its program sees and where it ends."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from evotrainer.agents.carriers import CARRIERS, CarrierError, Reply, SeatTurn
from evotrainer.agents.seat.carriers import command, confined
from evotrainer.agents.seat.carriers.command import CommandCarrier
from evotrainer.agents.seat.carriers.confined import USER
from evotrainer.agents.seat.options import SeatOptions
from evotrainer.agents.seat.trial_request import try_seat
from evotrainer.agents.secrets import recordable, take_secrets
from evotrainer.errors import AgentError, ConfigError
from evotrainer.records.seat import SeatBriefing

LOOK = """
import json, os, socket, sys
seen = {}
for path in json.loads(sys.argv[1]):
    try:
        seen[path] = sorted(os.listdir(path)) if os.path.isdir(path) else open(path).read()[:40]
    except OSError as e:
        seen[path] = type(e).__name__
for path in ("/usr/x", "/etc/x", os.environ["HOME"] + "/x"):
    try:
        open(path, "w")
        seen["wrote " + path] = True
    except OSError:
        pass
seen["processes"] = sum(p.isdigit() for p in os.listdir("/proc"))
seen["interfaces"] = len(socket.if_nameindex())
print(json.dumps(seen))
"""


def request() -> SeatBriefing:
    offers = {"lr": {"now": 1e-5, "legal": "number > 0"}}
    told: dict[str, Any] = {"run": "r", "round": 1, "step": "search", "number": 0, "places": 1, "champion": "b0"}
    return SeatBriefing.model_validate({**told, "factors": offers, "text": ""})


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, SeatTurn, list[str]]:
    """A run, keys and other files of the user's, a turn in it, and a program that tells what it sees."""
    for name in ("run/ledger.db", "run/sealed/b0-s1/part-00000.enc", "keys/a.key", "login/token", "other/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"content of {name}")
    (tmp_path / "look.py").write_text(LOOK)
    turn = SeatTurn(
        "x", tmp_path / "run" / "seat", "r1/answered/search0/0", 60.0, (tmp_path / "run", tmp_path / "keys")
    )
    return tmp_path, turn, [sys.executable, str(tmp_path / "look.py")]


def seen(command: list[str], turn: SeatTurn, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(CommandCarrier(command, {}, **more).ask(request(), turn).raw)
    return found


def test_a_program_sees_its_folder_the_system_and_what_is_mounted(place: tuple[Path, SeatTurn, list[str]]) -> None:
    at, turn, command = place
    asked = [*map(str, (at / "run", at / "run/ledger.db", at / "keys", at / "other", at / "login" / "token")), "."]
    got = seen([*command, json.dumps(asked)], turn)
    assert not [p for p in asked[:-1] if got[p] != "FileNotFoundError"], got
    assert got["."] == ["briefing.md", "request.json", "schema.json"]
    assert not [k for k in got if k.startswith(("wrote /usr", "wrote /etc"))]
    assert got["processes"] <= 3, "it sees no process but its own"
    assert got["interfaces"] == len(os.listdir("/sys/class/net")), "the network is as it is"
    got = seen([*command, json.dumps(asked)], turn, mounts=[str(at / "login")])
    assert got[asked[4]] == "content of login/token" and got[asked[0]] == "FileNotFoundError"
    outside = seen([*command, json.dumps(asked)], turn, sandbox=False)
    assert outside[asked[2]] == ["a.key"], "accepted by an option: it reads what its user can read"


def test_nothing_that_holds_the_run_or_its_keys_is_mounted(place: tuple[Path, SeatTurn, list[str]]) -> None:
    at, turn, command = place
    for path in (at, at / "run", at / "run" / "sealed", at / "keys"):
        with pytest.raises(AgentError, match=r"run\.agent_options\.mount: .* would show .*mount only what"):
            seen(command, turn, mounts=[str(path)])
    with pytest.raises(AgentError, match="would show"):
        seen([*command[:1], str(at / "keys" / "a.key")], turn)
    with pytest.raises(AgentError, match="no relative; give files or folders that are there"):
        seen(command, turn, mounts=["relative"])


def test_a_mount_is_written_only_where_it_says_so(place: tuple[Path, SeatTurn, list[str]]) -> None:
    at, turn, _ = place
    token = at / "login" / "token"
    write = ["sh", "-c", f"echo new > {token}; echo done"]
    CommandCarrier(write, {}, [str(token.parent)]).ask(request(), turn)
    assert token.read_text() == "content of login/token"
    if os.geteuid() == 0:
        with pytest.raises(AgentError, match=f"runs as user {USER}, to whom .* is closed; chown it to {USER}, or"):
            CommandCarrier(write, {}, [f"{token.parent}:rw"]).ask(request(), turn)
        for path in (token, token.parent):
            os.chown(path, USER, USER)
    CommandCarrier(write, {}, [f"{token.parent}:rw"]).ask(request(), turn)
    assert token.read_text() == "new\n"


def test_a_program_reads_nothing_that_root_alone_may_read(tmp_path: Path) -> None:
    """The system's files are shown as they are; who started the run as root lends nobody root's eyes."""
    tell = "id -u; cat /etc/shadow; grep Cap /proc/self/status; touch ~/kept /tmp/kept && echo writes"
    said = CommandCarrier(["sh", "-c", f"({tell}) 2>&1"], {}).ask(request(), SeatTurn("x", tmp_path, "k", 60.0, ())).raw
    uid, *rest = said.split("\n")
    assert uid == str(USER if os.geteuid() == 0 else os.geteuid())
    assert "Permission denied" in said and "root:" not in said
    assert "writes" in rest and all(x.split()[1].strip("0") == "" for x in rest if x.startswith("Cap"))


def test_without_bubblewrap_a_run_is_refused_unless_an_option_accepts_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    for bwrap, why in ((str(tmp_path / "none"), "bwrap is not installed"), (str(broken), "No permissions to create")):
        monkeypatch.setenv("EVOTRAINER_BWRAP", bwrap)
        with pytest.raises(ConfigError, match=rf"{why}.*run\.agent_options\.sandbox=false"):
            CARRIERS["command"](SeatOptions(carrier="command", command=("true",)), {}, False)
        CARRIERS["command"](SeatOptions(carrier="command", command=("true",), sandbox=False), {}, False)
    monkeypatch.delenv("EVOTRAINER_BWRAP")
    confined.check()


def test_a_program_or_a_mount_that_is_not_there_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(
        ConfigError, match=r"agent_options\.command: no program '/nope/x'; install it, or give its path"
    ):
        CommandCarrier(["/nope/x"], {})
    with pytest.raises(AgentError, match=r"agent_options\.mount: no /nope; give files or folders that are there"):
        CommandCarrier([sys.executable], {}, ["/nope"])


def test_what_is_hidden_is_covered_where_the_system_shows_it(
    place: tuple[Path, SeatTurn, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a run under /opt; the home is empty there, too."""
    at, turn, command = place
    monkeypatch.setattr(confined, "SYSTEM", (*confined.SYSTEM, str(at)))
    at.chmod(0o755)
    (at / "home" / "files").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(at / "home"))
    tasks = SeatTurn("x", turn.folder, turn.key, 60.0, (*turn.hidden, at / "other" / "file", at / "not there"))
    got = seen(
        [*command, json.dumps([str(at / p) for p in ("run", "keys", "other/file", "login/token", "home")])], tasks
    )
    assert [got[str(at / p)] for p in ("run", "keys", "other/file")] == [[], [], "PermissionError"]
    assert got[str(at / "login/token")] == "content of login/token", "it is the system's"
    assert got[str(at / "home")] == []


def test_of_a_project_a_program_sees_its_bin_and_of_an_installation_what_it_is_made_of(
    place: tuple[Path, SeatTurn, list[str]],
) -> None:
    at, turn, _ = place
    for name in ("proj/.env", "proj/runs/old/ledger.db", "proj/bin/helper", "node/lib/node_modules/x", "node/.env"):
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(name)
    (at / "node" / "bin").mkdir()
    for top in ("proj", "node"):
        (at / top / "bin" / "agent").write_text(f"#!{sys.executable}\n{LOOK}")
        (at / top / "bin" / "agent").chmod(0o755)
        asked = [str(at / top), str(at / top / "bin"), str(at / "node" / "lib" / "node_modules")]
        got = seen([str(at / top / "bin" / "agent"), json.dumps(asked)], turn, mounts=[*interpreter()])
        if top == "proj":
            assert got[asked[0]] == ["bin"] and got[asked[1]] == ["agent", "helper"]
        else:
            assert got[asked[0]] == ["bin", "lib"] and got[asked[2]] == ["x"]


def ask(script: str, timeout_s: float = 20.0, secrets: dict[str, str] | None = None, **more: Any) -> Reply:
    turn = SeatTurn("x", Path("/nowhere"), "r1/answered/search0/0", timeout_s)
    return CommandCarrier(["sh", "-c", script], secrets or {}, **more).ask(request(), turn)


@pytest.mark.parametrize("name", [".stdout", ".stderr", "answer.json"])
@pytest.mark.parametrize("trick", ["ln -s {secret} {n}", "ln -s /proc/self/environ {n}", "mkfifo {n}", "mkdir {n}"])
def test_nothing_in_its_folder_is_taken_for_what_a_program_wrote(trick: str, name: str, tmp_path: Path) -> None:
    """By whatever names this process, with its rights, once read it again."""
    (tmp_path / "secret").write_text("the user's own")
    does = f"rm -f {name}; {trick.format(secret=tmp_path / 'secret', n=name)}"
    assert ask(f"echo said; {does}").raw == "said\n"
    with pytest.raises(CarrierError, match="exit code 3: wrong$"):
        ask(f"echo wrong >&2; {does}; exit 3")


def test_a_program_that_removes_all_that_it_finds_is_read_all_the_same() -> None:
    assert ask("rm -rf * .[a-z]*; exec 0<&-; echo said").raw == "said\n"


def test_where_no_folder_can_be_made_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    with pytest.raises(CarrierError, match="sh cannot be asked: .*/no/such/folder.*TMPDIR"):
        ask("echo said")


def test_the_key_of_another_seat_is_struck_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANOTHER_SEATS_KEY", "sk-another-98765")
    monkeypatch.setenv("ITS_BEGINNING", "sk-another")
    take_secrets(["ITS_BEGINNING", "ANOTHER_SEATS_KEY"])
    assert recordable(ask("echo sk-another-98765"), {}).raw == "[ANOTHER_SEATS_KEY]\n"
    with pytest.raises(CarrierError, match=r"exit code 1: key \[ANOTHER_SEATS_KEY\]"):
        ask("echo key sk-another-98765 >&2; exit 1", secrets={"OWN": "sk-own"})


@pytest.mark.parametrize("to", ["", ">&2", "> answer.json", "> /proc/self/fd/0"])
def test_a_program_that_writes_without_end_is_ended(to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "WRITTEN", 1_000_000)
    began = time.monotonic()
    with pytest.raises(CarrierError, match="sh wrote more than 1,000,000 bytes and was ended|fd/0: Permission denied"):
        ask(f"exec yes {to}")
    with pytest.raises(CarrierError, match="wrote more than"):
        ask("mkdir a; i=0; while :; do i=$((i+1)); : > a/$i; done")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("end", ["exit 0", "sleep 60"])
def test_without_bubblewrap_a_process_of_its_own_session_ends_with_the_program(end: str, tmp_path: Path) -> None:
    """Its parent is gone by then, so that it is nobody's child."""
    pid = tmp_path / "pid"
    script = f"(setsid sh -c 'echo $$ > {pid}; exec sleep 60' &); until [ -s {pid} ]; do sleep 0.01; done; {end}"
    with contextlib.suppress(CarrierError):
        ask(script, timeout_s=2.0, sandbox=False)
    until = time.monotonic() + 10
    with contextlib.suppress(OSError):  # it is gone
        while Path(f"/proc/{pid.read_text().strip()}/stat").read_text().split()[2] != "Z":
            assert time.monotonic() < until, "it lives on"
            time.sleep(0.01)


def interpreter() -> list[str]:
    """What Python itself is made of, where that is not the system's."""
    found = {Path(sys.prefix), Path(sys.base_prefix)}
    return [str(p) for p in sorted(found) if not any(p.is_relative_to(s) for s in confined.SYSTEM)]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"lr": 0.001}, "command gives a valid answer"),
        ({"rewards": {"right": 1.0}}, "factors lr and steps: trials.0: unknown factor 'rewards'"),
        ({"rewards": {"right": 1.0}, "lr": 0.001}, "command speaks the format, but did not answer this"),
        ({"lr": 1e-4}, "lr is 0.0001 already"),
        ("rewards", "command answers a made-up request with the factors lr and steps, but "),
    ],
)
def test_a_trial_request_fails_no_seat_for_a_factor_that_it_has_not(answer: object, said: str) -> None:
    told = json.dumps({"trials": [{"changes": answer, "why": "too small"}]})
    try:
        line = try_seat({"carrier": "command", "command": ["echo", told]}).line
    except AgentError as e:
        line = str(e)
        assert answer in ({"lr": 1e-4}, "rewards")
    assert said in line
