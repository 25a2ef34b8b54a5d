"""Dispatch of one request inside the confined child, and the modules every program finds already imported."""

from __future__ import annotations

import array  # noqa: F401
import bisect  # noqa: F401
import cmath  # noqa: F401
import copy  # noqa: F401
import dataclasses  # noqa: F401
import datetime  # noqa: F401
import enum  # noqa: F401
import heapq  # noqa: F401
import itertools  # noqa: F401
import math  # noqa: F401
import operator  # noqa: F401
import random
import re  # noqa: F401
import statistics  # noqa: F401
import string  # noqa: F401
import typing  # noqa: F401
from typing import Any

from evotrainer.sandbox.inside.cases import CaseRunner, read_request
from evotrainer.sandbox.inside.relay import Candidate, Tester

random.seed(0)  # every program starts from the same state
_ROLES: dict[str, Any] = {"cases": CaseRunner, "candidate": Candidate, "tester": Tester}


def serve(request_fd: int, channel: int) -> None:
    """Read one request and answer it on `channel`."""
    request = read_request(request_fd)
    _ROLES[request["role"]](request, channel).run()
