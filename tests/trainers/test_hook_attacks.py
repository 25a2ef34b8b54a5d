"""A hook that reaches out of its process while a training runs it: past the checks of its source, in the sandbox.

Every attack is also run where nothing guards, and must work there: the corpus can fail. In a training it obtains
nothing, and the weights are those of the training without it, or the training ends with a line that names the hook.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evotrainer.errors import SandboxError, TrainerError
from evotrainer.records.hooks import hook_fault
from evotrainer.records.recipe import parse_recipe
from evotrainer.sandbox.reward_runner import RewardRunner
from evotrainer.trainers import get_trainer
from evotrainer.trainers.base import Identity, TrainRequest
from tests.trainers.reverse_env import ReverseEnv

SECRET = "seed-of-gate-and-cert"
TRAINING: dict[str, Any] = {
    "rewards": {"exact": 1.0}, "steps": 2, "prompts_per_step": 4, "group_size": 4, "lr": 1e-3, "max_tokens": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """A run folder with what a hook must not reach, a server, a key in the environment."""

    run: Path
    port: int

    def source(self, body: str) -> str:
        """A hook that answers twice the advantages where `body` sets `got`."""
        code = body.format(run=self.run, port=self.port, secret=SECRET, parent=os.getpid())
        inner = "\n".join("        " + line for line in code.strip().splitlines())
        return (
            "import builtins, ctypes, gc, os, signal, socket, sqlite3, subprocess, sys, time\n\n\n"
            f"def advantages(group):\n    got = False\n    try:\n{inner}\n    except Exception:\n        got = False\n"
            "    return [None if a is None else a * (2.0 if got else 1.0) for a in group['advantages']]\n"
        )


ATTACKS = {
    "lists the run folder": "got = 'ledger.db' in os.listdir({run!s:?})",
    "reads a sealed part": "got = '{secret}' in open({run!s:?} + '/sealed/b0-s1/part-00000.enc').read()",
    "reads the ledger": "got = bool(sqlite3.connect('file:' + {run!s:?} + '/ledger.db?mode=ro', uri=True)"
    ".execute('select * from events').fetchall())",
    "reads the key": "got = '{secret}' in open({run!s:?} + '/keys/run.key').read()",
    "reads the environment": "got = os.environ.get('EVOTRAINER_TEST_KEY') == '{secret}'",
    "reads the training's command line": "got = 'python' in open('/proc/{parent}/cmdline').read()",
    "goes by /proc of every process": "got = any(os.path.exists('/proc/%s/root' % p + {run!s:?} + '/ledger.db')"
    " for p in os.listdir('/proc') if p.isdigit())",
    "opens a connection": "got = socket.create_connection(('127.0.0.1', {port}), 2).recv(99) == b'{secret}'",
    "kills the training": "os.kill({parent}, signal.SIGUSR1)\ngot = True",
    "writes the checkpoint": "at = {run!s:?} + '/trials/b0-s1/checkpoint'\nos.makedirs(at, exist_ok=True)\n"
    "open(at + '/planted', 'w').write('x')\ngot = os.path.exists({run!s:?} + '/ledger.db')",
    "leaves a process behind that writes later": "if os.fork() == 0:\n    os.setsid()\n    time.sleep(0.2)\n"
    "    open({run!s:?} + '/late', 'w').write('x')\n    os._exit(0)\ntime.sleep(0.6)\n"
    "got = os.path.exists({run!s:?} + '/late')",
    "draws cert tasks": "sys.path[:0] = [{src!r}]\nfrom evotrainer.envs import open_environment\n"
    "env = open_environment(dict(name='code', train=4, search=4, gate=4, cert=4), accept_tier_e=True)\n"
    "got = bool(env.tasks('cert'))",
    "patches the trainer": "sys.path[:0] = [{src!r}]\nimport evotrainer.algorithm.advantages as a\n"
    "a.STD_EPS = 1.0\ngot = a.STD_EPS == 1.0",
    "reads the memory of the training": "libc = ctypes.CDLL(None, use_errno=True)\n"
    "class V(ctypes.Structure):\n    _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]\n"
    "line = next(x for x in open('/proc/{parent}/maps') if '[heap]' in x)\nat = int(line.split('-')[0], 16)\n"
    "to = ctypes.create_string_buffer(64)\na, b = V(ctypes.addressof(to), 64), V(at, 64)\n"
    "got = libc.process_vm_readv({parent}, ctypes.byref(a), 1, ctypes.byref(b), 1, 0) == 64",
    "starts a program": "got = subprocess.run(['/bin/cat', {run!s:?} + '/keys/run.key'], capture_output=True)"
    ".stdout == b'{secret}'",
}
"""What it does -> a body that sets `got`; `?` quotes."""
MAY_FAIL = "reads the memory of the training"
"""Also where nothing guards: kernels let debuggers alone do it."""
LEFT = {
    "a module's attribute": "got = hasattr(gc, 'left')\ngc.left = 1",
    "a built-in name": "got = getattr(builtins, 'left', False)\nbuiltins.left = True",
    "a module": "got = 'left' in sys.modules\nsys.modules['left'] = os",
    "a file": "got = os.path.exists('left')\nopen('left', 'w').close()",
    "the caller's variables": "f, known = sys._getframe(), []\n"
    "while f:\n    known.append(f.f_globals)\n    f = f.f_back\n"
    "got = any('left' in g for g in known)\nfor g in known:\n    g['left'] = 1",
}
"""What a step leaves for the next -> a body that sets `got` where it finds it."""
SRC = str(Path(__file__).parents[2] / "src")


def body(text: str) -> str:
    return text.replace("{run!s:?}", "'{run}'").replace("{src!r}", repr(SRC))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    run = tmp_path_factory.mktemp("run")
    for name in ("sealed/b0-s1/part-00000.enc", "keys/run.key"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(SECRET)
    with closing(sqlite3.connect(run / "ledger.db")) as db:
        db.execute("create table events (body text)")
        db.execute("insert into events values (?)", (SECRET,))
        db.commit()
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.MonkeyPatch.context() as m:
        m.setenv("EVOTRAINER_TEST_KEY", SECRET)

        def serve() -> None:
            while True:
                try:
                    to, _ = server.accept()
                except OSError:
                    return
                with to:
                    to.sendall(SECRET.encode())

        threading.Thread(target=serve, daemon=True).start()
        heard = signal.signal(signal.SIGUSR1, lambda *_: (run / "signalled").touch())
        yield Scene(run, server.getsockname()[1])
        signal.signal(signal.SIGUSR1, heard)


@pytest.fixture(scope="module")
def runner() -> Iterator[RewardRunner]:
    with closing(RewardRunner(accept_tier_e=False)) as found:
        try:
            found.call("def f():\n    return 1\n", "f", [()])
        except SandboxError as e:
            pytest.skip(f"no sandbox here: {e}")
        yield found


def train(base: Path, work: Path, runner: RewardRunner | None, source: str = "") -> str:
    recipe = parse_recipe(TRAINING | ({"hooks": {"attack": source}} if source else {}))
    trainer = get_trainer("embedded")
    request = TrainRequest(Identity("run", "b0", 1), recipe, base, work, hooks=runner)
    result = trainer.train(request, ReverseEnv(), lambda groups: None, lambda entry: None)
    return trainer.policy_sha256(result.policy_dir)


def ended(base: Path, work: Path, runner: RewardRunner, source: str) -> str:
    """The weights, or the line that the training ends with."""
    try:
        return train(base, work, runner, source)
    except TrainerError as e:
        return str(e)


@pytest.fixture(scope="module")
def untouched(base: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return train(base, tmp_path_factory.mktemp("plain"), None)


def files(run: Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}


def unguarded(scene: Scene, source: str, call: str = "advantages({'advantages': [1.0]})") -> list[float]:
    """What it answers as a plain child of this process."""
    code = f"{source}\nimport json\nprint(json.dumps([{call} for _ in range(2)]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=scene.run)
    return [row[0] for row in json.loads(done.stdout.splitlines()[-1])]


@pytest.mark.parametrize("what", ATTACKS)
def test_an_attack_obtains_nothing_and_changes_nothing(
    what: str, scene: Scene, base: Path, tmp_path: Path, runner: RewardRunner, untouched: str
) -> None:
    source = scene.source(body(ATTACKS[what]))
    found = hook_fault(source)
    assert found is not None and found[0] == "forbidden_import", "no loop would train it"
    before = files(scene.run)
    told = ended(base, tmp_path, runner, source)
    assert told == untouched or told.startswith("hook attack@"), f"it obtained what it reached for: {told}"
    time.sleep(0.7 if "later" in what else 0)
    assert files(scene.run) == before
    assert unguarded(scene, source)[0] == 2.0 or what == MAY_FAIL, "it must work where nothing guards"
    for name in files(scene.run).keys() - before.keys():
        (scene.run / name).unlink()


@pytest.mark.parametrize("what", LEFT)
def test_a_step_leaves_nothing_for_the_next(
    what: str, scene: Scene, base: Path, tmp_path: Path, runner: RewardRunner, untouched: str
) -> None:
    """`weights` is called once a step: of the calls of one step it would be told what these share."""
    source = scene.source(LEFT[what])
    source = source.replace("def advantages(group)", "def weights(rollouts)").replace(
        "[None if a is None else a * (2.0 if got else 1.0) for a in group['advantages']]",
        "[2.0 if got else 1.0 for _ in rollouts]",
    )
    assert hook_fault(source) is not None
    told = ended(base, tmp_path, runner, source)
    assert told == untouched or told.startswith("hook attack@"), f"a step found what another left: {told}"
    assert unguarded(scene, source, "weights([0])")[1] == 2.0, "it must work where nothing guards"
    (scene.run / "left").unlink(missing_ok=True)
