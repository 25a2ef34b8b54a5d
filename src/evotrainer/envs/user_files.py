"""A user's own Python files: imported by path, their functions called so that what goes wrong in them has a name."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer.errors import EvoTrainerError, TaskSetError
from evotrainer.records.output import print
from evotrainer.records.regular_file import absent

if TYPE_CHECKING:
    from types import ModuleType

SILENT_S = 30.0
"""Seconds in one call of a user's code after which a sign is given."""
POLL_S = 1.0
ANSWER_S, OTHER_S = 60.0, 600.0
"""Seconds that one call may take in the checks before a run: a reward of one answer; whatever else, as an import."""


class TooLong(BaseException):
    """A call did not come back in its time; no `except Exception` of a user's keeps it."""


def slow_notice(what: str, seconds: float) -> None:
    """The sign where nobody asked for another: a line on standard error."""
    print(f"evotrainer: waiting for {what} for {seconds:.0f} s; Ctrl-C stops it", file=sys.stderr, flush=True)


class CallWatch:
    """Gives a sign, once a call, where a call of a user's code does not come back. One per process."""

    def __init__(self) -> None:
        self.sign: Callable[[str, float], None] = slow_notice
        """Told what is being called, and for how many seconds."""
        self._calls: list[tuple[str, float]] = []
        self._told = 0.0
        self._pid = 0
        self._limited = False
        self._depth = 0
        """Calls under way in the main thread."""
        self._ended = False
        self._since = 0.0
        """When the innermost of them began, or one within it returned."""

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Calls end after ANSWER_S or OTHER_S, as a TaskSetError. Signals do that, which reach the main thread only:
        elsewhere, and where a user has an alarm of his own, all that is given is the sign."""
        main = threading.current_thread() is threading.main_thread()
        if not main or not hasattr(signal, "setitimer") or signal.getitimer(signal.ITIMER_REAL)[0]:
            yield
            return

        def stop(number: int, frame: Any) -> None:
            self._ended = True
            raise TooLong

        before = signal.signal(signal.SIGALRM, stop)
        self._limited = True
        try:
            yield
        finally:
            self._limited = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @contextlib.contextmanager
    def _within(self, what: str, seconds: float) -> Iterator[None]:
        if not self._limited or threading.current_thread() is not threading.main_thread():
            yield
            return
        self._depth, self._ended, self._since = self._depth + 1, False, time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            try:
                yield
            finally:  # a call around this one has come on: its time begins anew
                self._depth -= 1
                took, self._since = time.monotonic() - self._since, time.monotonic()
                signal.setitimer(signal.ITIMER_REAL, OTHER_S if self._depth else 0)
            # the code swallowed what ended it, or set an alarm of its own in place of this one
            if self._ended or took > 1.5 * seconds:
                raise TooLong
        except TooLong as e:
            raise TaskSetError(
                f"{what} did not return within {seconds:g} s{_place(e)}; correct what hangs there, or make it faster"
            ) from None

    @contextlib.contextmanager
    def calling(self, what: str, seconds: float = OTHER_S) -> Iterator[None]:
        if self._pid != os.getpid():  # a thread does not come along into a fork
            self._pid, self._calls = os.getpid(), []
            threading.Thread(target=self._look, daemon=True, name="evotrainer-user-code").start()
        self._calls.append((what, time.monotonic()))
        try:
            with self._within(what, seconds):
                yield
        finally:
            self._calls.pop()

    def _look(self) -> None:
        while True:
            time.sleep(min(POLL_S, SILENT_S / 2))
            calls = self._calls[-1:]
            if calls and time.monotonic() - calls[0][1] >= SILENT_S and self._told != calls[0][1]:
                what, self._told = calls[0]
                with contextlib.suppress(Exception):  # a sign that cannot be given must not end the call
                    self.sign(what, time.monotonic() - self._told)


WATCH = CallWatch()


class HardExit(SystemExit):
    """A user's code called `os._exit`, which would end this process without a word."""


@contextlib.contextmanager
def no_hard_exit() -> Iterator[None]:
    """`os._exit` in this process raises HardExit; in a process that the code forked it does what it always does."""
    real, pid = os._exit, os.getpid()

    def stopped(status: int) -> None:
        if os.getpid() != pid:
            real(status)
        raise HardExit(status)

    os._exit = stopped  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = real


def named_exit(e: SystemExit) -> str:
    return f"os._exit({e.code!r})" if isinstance(e, HardExit) else f"sys.exit({e.code!r})"


USERS = "evotrainer_user_"
"""What the names of modules begin with that users' files become."""


def call(what: str, f: Callable[..., Any], *args: Any, where: str = "", answers: int = 0) -> Any:
    """What a user's function returns. TaskSetError, which names `what` and `where` (` on task x`), where it raises or
    ends the program; errors of ours travel. A call that does not come back gives a sign after SILENT_S seconds;
    in the checks before a run (`CallWatch.limited`) it is ended, after ANSWER_S for each of the `answers` it grades."""
    seconds = max(OTHER_S, answers * ANSWER_S) if answers else ANSWER_S if where else OTHER_S
    with WATCH.calling(what + where, seconds), no_hard_exit():
        try:
            return f(*args)
        except EvoTrainerError:
            raise
        except SystemExit as e:
            raise TaskSetError(f"{what}{where} called {named_exit(e)}; it must return, or raise an error") from e
        except Exception as e:
            raise TaskSetError(f"{what} failed{where}: {raised(e)}; correct the function") from e


def raised(e: BaseException) -> str:
    """An error by name and text, and where in a user's file it arose."""
    return f"{type(e).__name__}: {e}{_place(e)}"


def _place(e: BaseException) -> str:
    """The innermost line of a user's file that led to an error."""
    place, step = "", e.__traceback__
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__", "")).startswith(USERS):
            place = f" ({Path(step.tb_frame.f_code.co_filename).name}, line {step.tb_lineno})"
        step = step.tb_next
    return place


def load_module(path: Path) -> ModuleType:
    """Import a user's own Python file; TaskSetError with the cause where that fails."""
    if not path.is_file():
        raise TaskSetError(f"{absent(path)}; give the path of a Python file, relative ones start with ./")
    spec = importlib.util.spec_from_file_location(f"{USERS}{path.stem}", path)
    if spec is None or spec.loader is None:
        raise TaskSetError(f"{path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    with WATCH.calling(f"the import of {path}"), no_hard_exit():
        try:
            spec.loader.exec_module(module)
        except SystemExit as e:
            raise TaskSetError(
                f"{path} calls {named_exit(e)} on import; leave that to `if __name__ == '__main__'`"
            ) from e
        except Exception as e:
            raise TaskSetError(f"{path} fails on import: {raised(e)}") from e
    return module
