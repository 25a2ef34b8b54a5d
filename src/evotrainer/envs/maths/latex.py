"""Whether two LaTeX answers are the same: as text, as one number, or as math-verify reads them,
in a guarded process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from evotrainer.envs.maths.answers import one_number
from evotrainer.envs.maths.equality import ANSWER_CHARS
from evotrainer.envs.maths.expressions import inside, plain_number
from evotrainer.errors import MissingDependencyError, SandboxError, install

KEPT = 65_536
"""Comparisons that are remembered."""
_DROPPED = re.compile(r"\\(?:left|right|displaystyle|limits)(?![a-zA-Z])|\\[!,;: ]|\\?\$|~|\s+")
_UNITS = re.compile(r"\^\s*\{?\s*\\circ\s*\}?|\\?%")
_WORDS = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_SHORT_FRACTION = re.compile(r"\\frac\s*([0-9])\s*([0-9])(?![0-9])")
_UNDONE = re.compile(r"\\(?:int|iint|oint|sum|prod|lim|binom|det|max|min)(?![a-zA-Z])|!")
"""Operations that leave the work to the grader."""


def plain_text(answer: str) -> str:
    """An answer without mere typesetting: blanks, \\left, \\text, \\dfrac for \\frac, a full stop at the end."""
    text = _WORDS.sub(r"\1", answer.strip().rstrip("."))
    text = re.sub(r"\\[dt]frac(?![a-zA-Z])", r"\\frac", text)
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    return _DROPPED.sub("", _UNITS.sub("", text))


def boxed(text: str) -> str | None:
    """What stands in the last \\boxed{...}, with its braces balanced; None without one."""
    at = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    return inside(text, text.index("{", at) + 1) if at >= 0 else None


class LatexJudge:
    """Compares answers; the process behind it starts with the first comparison that needs it. Close it after use."""

    def __init__(self) -> None:
        """MissingDependencyError where math-verify is not installed; starts nothing."""
        if find_spec("math_verify") is None:
            raise MissingDependencyError(f"comparing LaTeX answers needs math-verify; {install('math')}")
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], bool] = OrderedDict()

    def same(self, gold: str, answer: str) -> bool:
        """True where the answer says the gold one.

        A gold number asks for one number (no arithmetic left to do, no second one); a word for that word. For all else
        math-verify decides, but sums, integrals and the like in an answer whose gold has none leave the work to the
        grader and are wrong. SandboxError where the comparing process cannot be kept up.
        """
        answer = answer.strip()
        if not answer or len(answer) > ANSWER_CHARS:
            return False
        want, got = plain_text(gold), plain_text(answer)
        if want == got:
            return True
        if (number := plain_number(want)) is not None:
            answered = one_number(_WORDS.sub(r" \1 ", _UNITS.sub("", answer)))
            return answered is not None and round(answered, 6) == round(number, 6)
        letters = want.strip("()")
        if letters.isalpha() and (len(letters) > 1 or want != letters):
            return letters.casefold() == got.strip("()").casefold()
        if _UNDONE.search(answer) and not _UNDONE.search(gold):
            return False
        return self._compared(gold, answer)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _compared(self, gold: str, answer: str) -> bool:
        key = (gold, answer)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._ask(key)
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def _ask(self, pair: tuple[str, str]) -> bool:
        for _ in range(2):
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(json.dumps(pair).encode() + b"\n")
                process.stdin.flush()
                reply = process.stdout.readline()
            except OSError:
                reply = b""
            if reply in (b"true\n", b"false\n"):
                return reply == b"true\n"
            self._end()
        raise SandboxError("the process that compares LaTeX answers ended twice; free memory, then resume")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid():
            return self._process
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("latex_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            self._end()
            raise SandboxError("the process that compares LaTeX answers does not start; try again, or free memory")
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return
        process.kill()
        process.wait()
