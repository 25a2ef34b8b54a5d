"""Episodes of a verifiers environment, in a process of their own: `python -m evotrainer.envs.verifiers.worker`.

Orders come as lines of JSON on stdin, what happens goes as lines of JSON to stdout: the tasks at first, then the end of
each episode. The policy is asked over loopback (`chat_server.py`). It ends with its stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evotrainer.records.processes import end_marked

MARK, KEY = "EVOTRAINER_EPISODES", "EVOTRAINER_POLICY_API_KEY"
"""Variable by which all that a worker started is known; variable of the server's token, which verifiers keeps from
programs for its name."""
CHAT, CHAT_ID = "chat", "evotrainer_chat"
"""The chat loop as a task file names it, and the module by which verifiers finds it."""
GRACE_S = 10.0
Tell = Callable[[Mapping[str, Any]], None]


class RefusedError(Exception):
    """These episodes cannot be played; the message has cause and remedy."""


def opened(order: Mapping[str, Any]) -> tuple[Any, str]:
    """(verifiers' Env, the seat that the policy has in it); RefusedError."""
    from verifiers.v1.configs.agent import agent_config_fields
    from verifiers.v1.utils import loaders

    given = {k: dict(v) if isinstance(v, dict) else v for k, v in order["env"].items()}
    given["taskset"] = {**order["taskset"], "id": order["id"]}
    kind = loaders.env_config_type(order["id"], given.get("id") or "")
    roles = agent_config_fields(kind.model_construct())
    free = [n for n, c in roles.items() if "client" not in given.get(n, {}) and c.client is None]
    if len(free) != 1:
        raise RefusedError(
            f"its episodes have the seats {', '.join(roles)}, and one is the policy's: give the others a model with "
            f"environment.env.SEAT.client and .model" + ("" if free else ", and leave one without")
        )
    (seat,) = free
    own = given.setdefault(seat, {})
    asked_runtime = "runtime" in own
    own.setdefault("runtime", {"type": "subprocess"})
    if order["harness"] != "own":
        own["harness"] = {**own.get("harness", {}), "id": CHAT_ID if order["harness"] == CHAT else order["harness"]}
    for held in (given, own):  # a second attempt would begin another conversation
        held["retries"] = {"max_retries": 0}
    env = loaders.load_environment(loaders.resolve_env_config(given))
    harness = env._harnesses[seat]
    if harness.EXECUTES_CODE and own["runtime"]["type"] == "subprocess" and not asked_runtime:
        raise RefusedError(
            f"its harness {harness.config.id} lets the policy run programs on this machine, in no sandbox; set "
            f'environment.env.{seat}.runtime.type to "docker", or to "subprocess" where that is meant, or '
            'environment.harness="chat"'
        )
    return env, seat


async def serve(order: Mapping[str, Any], lines: asyncio.Queue[Any], tell: Tell) -> None:
    """Play what is asked for until there is nothing more to come."""
    env, seat = opened(order)
    tasks = list(itertools.islice(env.taskset, order["tasks"]))
    about = {r.__name__: r.__doc__ or "" for r in tasks[0].hooks("reward")} if tasks else {}
    found = [{"key": t.key, "prompt": t.data.prompt_text if t.data.prompt else t.data.name or ""} for t in tasks]
    runtime = env._agent_specs[seat].runtime.type
    own = env._harnesses[seat].config.id if order["harness"] == "own" else order["harness"]
    tell({"tasks": found, "about": about, "harness": own, "runtime": runtime})
    going: dict[str, asyncio.Task[None]] = {}
    async with env.serving():
        while (line := await lines.get()) is not None:
            if "ping" in line:
                tell({"pong": line["ping"]})
            elif "stop" in line:
                if line["stop"] in going:
                    going[line["stop"]].cancel()
            else:
                key = line["episode"]
                going[key] = asyncio.create_task(play(env, seat, tasks[line["task"]], key, line["url"], tell))
                going[key].add_done_callback(functools.partial(lambda key, _: going.pop(key, None), key))
        for task in going.values():
            task.cancel()
        await asyncio.gather(*going.values(), return_exceptions=True)


async def play(env: Any, seat: str, task: Any, key: str, url: str, tell: Tell) -> None:
    """One episode; its end is told whatever it was."""
    import verifiers.v1 as vf
    from verifiers.v1.clients import ModelContext

    ended: dict[str, Any] = {"ended": key}
    try:
        client = vf.EvalClientConfig(base_url=url, api_key_var=KEY)
        episode = await env.run_slot(env.slots(task)[0], ModelContext(model="policy", client=client))
        # one seat of a plain task set has no name
        traces = [t for t in episode.traces if t.agent is None or t.agent.name in ("", None, seat)]
        errors = [*(e for t in traces for e in t.errors), *episode.errors]
        ended |= {"ok": episode.ok, "timeout": episode.is_timeout or any(t.is_timeout for t in traces)}
        ended |= {"errors": [{"type": e.type, "message": e.message} for e in errors], "traces": len(traces)}
        for t in traces[-1:]:
            rewards = {n: None if r is None else [r.score, r.weight] for n, r in t.rewards.items()}
            ended |= {"rewards": rewards, "metrics": t.metrics, "stop": t.stop_condition, "turns": t.num_turns}
    except Exception as e:  # verifiers records faults; what it lets through is one, too
        ended |= {"ok": False, "errors": [{"type": type(e).__name__, "message": str(e)}]}
    finally:
        tell(ended)


def main() -> None:
    """Read the order, then play."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the environment prints is none of our lines
    lock = threading.Lock()

    def tell(what: Mapping[str, Any]) -> None:
        with lock, contextlib.suppress(BrokenPipeError):
            lines.write(json.dumps(what, default=str) + "\n")

    order = json.loads(sys.stdin.readline())
    os.environ[KEY] = order["token"]
    sys.path.append(str(Path(__file__).with_name("harnesses")))
    sys.path[:0] = order["path"]  # and of the tool servers that verifiers starts
    os.environ["PYTHONPATH"] = os.pathsep.join([*order["path"], os.environ.get("PYTHONPATH", "")])

    async def run() -> None:
        asked: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def listen() -> None:
            for line in sys.stdin:
                loop.call_soon_threadsafe(asked.put_nowait, json.loads(line))
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(asked.put_nowait, None)
            time.sleep(GRACE_S)
            end_marked(MARK, os.environ[MARK])  # an episode that does not let go, and this process with it

        threading.Thread(target=listen, daemon=True).start()
        await serve(order, asked, tell)

    try:
        asyncio.run(run())
    except RefusedError as e:
        tell({"refused": str(e)})
    except ModuleNotFoundError as e:
        tell({"refused": str(e), "missing": e.name or ""})
    except Exception as e:  # a loader of anybody's: no network, no file, options that do not fit
        traceback.print_exc()
        tell({"refused": f"{type(e).__name__}: {e}"})
    sys.stderr.flush()
    os._exit(0)  # an ordinary end waits ten seconds for threads of libraries


if __name__ == "__main__":
    main()
