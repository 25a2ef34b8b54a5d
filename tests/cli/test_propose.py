"""`evotrainer propose`: what is said of a text that was refused before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from evotrainer.cli.propose import answer
from evotrainer.errors import AgentError

REFUSED, TAKEN = "r1/answered/search0/0", "r1/answered/proposal0/0"


def told(key: str, **said: Any) -> SimpleNamespace:
    where = {"round": 1, "step": key.split("/")[2], "attempt": 0, "problem": "", "fallback": False, "raw": "{}"}
    return SimpleNamespace(id=key, kind="answered", body=SimpleNamespace(**where | said))


@pytest.mark.parametrize("asks", [True, False])
def test_a_text_that_was_refused_may_be_meant_for_the_request_that_waits(
    asks: bool,
) -> None:
    body = SimpleNamespace(round=1, step="proposal0", attempt=0, carrier="command")
    open_ = [SimpleNamespace(id="r1/asked/proposal0/0", kind="asked", body=body)] * asks
    run: Any = SimpleNamespace(
        folder="f", closed=None, events=lambda: [told(REFUSED, problem="no such factor"), *open_]
    )
    with pytest.raises(AgentError) as e:
        answer(run, " {}\n")
    past = "it was refused as the answer to r1/asked/search0/0: no such factor; correct it"
    assert str(e.value) == past + (", or add --to r1/asked/proposal0/0 to answer that with it" if asks else "")
    if asks:
        with pytest.raises(AgentError, match="by carrier command"):  # goes on to the request that is named
            answer(run, "{}", "r1/asked/proposal0/0")
