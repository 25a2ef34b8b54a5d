"""Compares LaTeX answers by math-verify in a process of its own;
started by `latex.LatexJudge`, imports nothing of ours.

One JSON line in, [gold, answer]; one out, true or false. The library is imported once; comparisons run in a fork that
the kernel ends when one of them uses too much processor time or memory (true also inside big-number arithmetic, where
no signal handler of Python would run), and the next goes to a new fork.
"""

from __future__ import annotations

import json
import os
import resource
import time

CPU_S = 2
"""CPU-seconds of one comparison; what needs more is no answer."""
MEMORY_BYTES = 2 << 30


def _line() -> bytes:
    """One request: only one is ever under way, so no byte behind its end is there to be lost."""
    data = b""
    while not data.endswith(b"\n"):
        more = os.read(0, 1 << 16)
        if not more:
            return b""
        data += more
    return data


def _serve(out: int) -> None:
    """Answer requests until there are no more."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, grader, parse, parser, verify

    for module in (parser, grader):  # its timeouts are off: this process has its own
        module.TIMEOUT_WARNING_SHOWN = True
    config = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    while line := _line():
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + CPU_S, hard))
        try:
            want, got = (
                parse(f"\\boxed{{{text}}}", extraction_config=config, parsing_timeout=None) for text in json.loads(line)
            )
            same = bool(want) and bool(got) and bool(verify(want, got, timeout_seconds=None))
        except Exception:  # whatever a computer algebra system makes of a hostile text: it is no right answer
            same = False
        os.write(out, json.dumps(same).encode() + b"\n")


def main() -> None:
    """Import once, then fork a server as often as one is ended."""
    out = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    import math_verify  # noqa: F401

    os.write(out, b"ready\n")
    while True:
        pid = os.fork()
        if pid == 0:
            try:
                _serve(out)
                os._exit(0)
            except BaseException:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            return
        os.write(out, b"false\n")


if __name__ == "__main__":
    main()
