"""The process in which verifiers plays episodes, seen from outside."""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from evotrainer.envs.verifiers.worker import MARK
from evotrainer.errors import EvoTrainerError, MissingDependencyError, TaskSetError, install
from evotrainer.records.processes import end_marked
from evotrainer.records.text import cut

END_S = 5.0
KEPT = 30
"""Lines of what it printed last."""


class EpisodesProcess:
    """Puts (episode, "ended", how) and (its token, "gone", exit code) into `events`. `told`: what it said of its
    tasks."""

    def __init__(
        self, name: str, order: Mapping[str, Any], events: queue.SimpleQueue[tuple[str, str, Any]], start_s: float
    ) -> None:
        """TaskSetError, MissingDependencyError where it does not come up in `start_s` seconds."""
        if importlib.util.find_spec("verifiers") is None:
            raise MissingDependencyError(f"this environment needs verifiers 0.4 (v1); {install('verifiers')}")
        self.name, self.token, self._events = name, uuid.uuid4().hex, events
        self._printed: collections.deque[str] = collections.deque(maxlen=KEPT)
        self._own: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "evotrainer.envs.verifiers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, MARK: self.token, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            start_new_session=True,
        )
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._read, self._read_printed)]
        for t in self._threads:
            t.start()
        self.tell(order)
        try:
            self.told = self._first(start_s)
        except EvoTrainerError:
            self.close()
            raise

    def _first(self, seconds: float) -> Mapping[str, Any]:
        where = f"environment {self.name}"
        try:
            told = self._own.get(timeout=seconds)
        except queue.Empty:
            raise TaskSetError(
                f"{where}: verifiers was not ready after {seconds:g} s; raise environment.start_s"
            ) from None
        if "gone" in told:
            raise TaskSetError(
                f"{where}: verifiers' process ended ({told['gone']}) before it had tasks: {self.last_words()}"
            )
        if why := told.get("refused"):
            if told.get("missing", "").startswith("verifiers"):
                raise MissingDependencyError(f"this environment needs verifiers 0.4 (v1); {install('verifiers')}")
            remedy = "; install its package, or name its folder in environment.path" if "missing" in told else ""
            raise TaskSetError(f"{where}: {cut(' '.join(str(why).split()), 500)}{remedy}")
        return told

    def tell(self, what: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended: that is told in the events
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()

    def answers(self, seconds: float) -> bool:
        """Does it take orders?"""
        sign = uuid.uuid4().hex
        self.tell({"ping": sign})
        end = time.monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while (told := self._own.get(timeout=max(0.0, end - time.monotonic()))).get("pong") != sign:
                if "gone" in told:
                    return False
            return True
        return False

    def last_words(self) -> str:
        """The end of what it printed, in one line."""
        return cut(" | ".join(x.strip() for x in list(self._printed)[-3:]), 300)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "ended" in told:
                self._events.put((told["ended"], "ended", told))
            else:
                self._own.put(told)
        code = self._process.wait()
        self._own.put({"gone": f"exit code {code}"})
        self._events.put((self.token, "gone", f"exit code {code}"))

    def _read_printed(self) -> None:
        assert self._process.stderr is not None
        self._printed.extend(x for line in self._process.stderr if (x := line[:1000]).strip())

    def close(self) -> None:
        """End it with all that it started."""
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        end_marked(MARK, self.token)
        self._process.wait()
