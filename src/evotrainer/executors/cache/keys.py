"""What a training and an evaluation depend on, as keys: equal keys, equal results, bit for bit.

A key is SHA-256 over canonical JSON of: the specification without names and without what changes no result
(`UNTOUCHED`), the content of every file it names (start policy, data, a user's module with its folder), the environment
as it described itself when the run opened, and what computes: our sources, libraries, processor.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evotrainer import __version__
from evotrainer.executors import takes_gpu
from evotrainer.executors.cache.store import FORMAT
from evotrainer.executors.inputs import Inputs, Tree
from evotrainer.executors.path_map import relocated
from evotrainer.executors.spec import TrialSpec
from evotrainer.records.keys import guard_of
from evotrainer.records.regular_file import read_text
from evotrainer.trainers.bases import is_adapter, noted
from evotrainer.trainers.gguf import NOTE as GGUF_NOTE

if TYPE_CHECKING:
    from evotrainer.config.task import TaskFile

CODE = (
    *("errors.py", "registry.py", "algorithm", "config", "envs", "executors", "factors", "program_probes", "records"),
    "sandbox",
    "trainers",
)
"""Our sources that take part in a training or an evaluation (`tests/executors/cache/test_keys.py` follows the imports).
The harness is not among them: what it reads of a cached training it reads anew."""
LIBRARIES = (
    *("torch", "numpy", "safetensors", "tokenizers", "transformers", "trl", "accelerate", "peft", "vllm"),
    *("pyarrow", "datasets", "math-verify", "latex2sympy2-extended", "sympy"),
)
"""Distributions that compute: weights, samples, grades."""
UNTOUCHED = ("run", "trial", "branch", "purpose", "checkpoint_every", "health_every", "harness", "cpu_limit_s", "key")
"""Of a specification: names, and what changes nothing of a policy and its rollouts."""
PAYABLE = "payable"
"""Option and description of an environment: asked before a run begins, without effect on what it computes."""
OF_EVALUATIONS = ("protocol", "evals", "env_knobs", "policy_step", "train", "warm_start")
OF_TRAININGS = ("recipe", "train", "warm_start", "evals", "policy_dir", "policy_step")


def code_id() -> str:
    """16 hex digits of our sources that train: another one where a single byte of them differs."""
    root = Path(__file__).resolve().parents[2]
    found = hashlib.sha256(f"{FORMAT} {__version__}\n".encode())
    for name in CODE:
        at = root / name
        files = [at] if at.is_file() else sorted(p for p in at.rglob("*") if p.is_file() and p.suffix != ".pyc")
        for p in files:
            found.update(f"{p.relative_to(root)}\n".encode() + hashlib.sha256(p.read_bytes()).digest())
    return found.hexdigest()[:16]


def computes(task: TaskFile) -> dict[str, Any]:
    """What the arithmetic rests on: results are the same to the bit only where all of it is."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    where: dict[str, Any] = {"processor": _processor(), "gpu": _gpus() if takes_gpu(task) else []}
    if task.executor.name != "local":  # nodes, and not this machine, compute there: the cluster is the machine
        where = {"executor": task.executor.model_dump(mode="json")}
    system = [platform.system(), platform.machine(), platform.python_version()]
    return {"libraries": versions, "system": system, **where}


def _processor() -> list[str]:
    """Model and features: libraries choose their kernels by them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return [platform.processor()]
    rows = dict(line.replace("\t", "").split(": ", 1) for line in text.splitlines() if ": " in line)
    flags = rows.get("flags") or rows.get("Features") or ""
    return [rows.get("model name", platform.processor()), hashlib.sha256(flags.encode()).hexdigest()[:16]]


def _gpus() -> list[str]:
    """Models of NVIDIA's GPUs, as the driver's files tell."""
    found = Path("/proc/driver/nvidia/gpus").glob("*/information")
    return sorted(line for p in found for line in p.read_text().splitlines() if line.startswith("Model:"))


class Keys:
    """Keys of one run's trials. `described`: the environment as the run's first event has it."""

    def __init__(self, run_dir: Path, task: TaskFile, described: Mapping[str, Any], code: str) -> None:
        self.run_dir = run_dir
        self.inputs = Inputs(run_dir)
        # `files` by path; their content is in the inputs. What may be paid is asked before a run, and changes no result
        described_by = {k: v for k, v in described.items() if k not in ("files", "guards", PAYABLE)}
        self.guards: Mapping[str, Any] = described.get("guards", {})
        self.shared = {"format": FORMAT, "code": code, "computes": computes(task), "environment": described_by}

    def policy(self, spec: TrialSpec) -> str:
        """Of the policy that a specification starts from, by content; empty where it makes one first."""
        if not spec.policy_dir:
            return ""
        at = self.run_dir / spec.policy_dir
        mine, *bases = self.inputs.of(spec.model_copy(update={"environment": {}, "trainer_options": {}, "evals": ()}))[
            0
        ]
        known = not is_adapter(at) or noted(at)[1]  # a noted base is in the note, by checksum
        return policy_key({i.path: i.sha256 for i in mine.items}) + "".join(t.key for t in bases if not known)

    def making(self, spec: TrialSpec) -> str:
        """Of the policy that a specification makes, by training or a warm start; empty where it makes none.
        ConfigError where a user's module lies in a folder too large to be compared."""
        if not spec.train and spec.policy_dir:
            return ""
        if not spec.train:
            values = {k: getattr(spec, k) for k in ("environment", "accept_tier_e", "trainer", "trainer_options")}
            return self._key("warm start", spec, values | {"warm_start": spec.warm_start})
        body = {k: v for k, v in spec if k not in (*UNTOUCHED, *OF_EVALUATIONS)}
        # of evaluations, where it is a part of the protocol
        body["recipe"] = spec.recipe.model_copy(update={"deploy_temperature": None})
        # adapters name their base by path, whoever trains them
        start = [self.policy(spec), spec.policy_dir if spec.trainer == "trl" or "lora" in spec.trainer_options else ""]
        return self._key("training", spec, body | {"policy_dir": start})

    def evaluation(self, spec: TrialSpec, policy: str, split: str) -> str:
        """Of all that is evaluated on one split; `policy`: the key of what is evaluated."""
        body = {k: v for k, v in spec if k not in (*UNTOUCHED, *OF_TRAININGS)}
        # evaluations are given no other part of the protocol (`Worker.evaluate`)
        body |= {
            "protocol": spec.protocol.of_attempts,
            "written": spec.recipe.all_written,
            "policy": policy,
            "step": spec.recipe.whole_steps if spec.train else spec.policy_step,
        }
        body["deploy_temperature"] = spec.recipe.deploy_temperature  # a score names it as it was set
        if guard := guard_of(spec.trial):  # its environment is another one
            body["guard"] = self.guards.get(guard)
        return self._key("evaluation", spec, body | {"evals": [p for p in spec.evals if p.split == split]})

    def _key(self, kind: str, spec: TrialSpec, body: Mapping[str, Any]) -> str:
        # what tasks were drawn from is named in the plan: runs with equal seeds have equal tasks
        trees, _ = self.inputs.of(spec.model_copy(update={"policy_dir": "", "evals": ()}))
        if "environment" in body:
            body = {**body, "environment": {k: v for k, v in body["environment"].items() if k != PAYABLE}}
        places = {t.root: _content(t) for t in trees}  # the same files elsewhere are the same files
        content = relocated(_plain(body), places) | {"kind": kind, "shared": self.shared}
        text = json.dumps(content | {"files": sorted(places.values())}, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:40]


def policy_key(files: Mapping[str, str]) -> str:
    """Of a policy folder: path in it -> SHA-256. The note of a GGUF names who converted it, and is not counted."""
    lines = (f"{p} {sha}" for p, sha in sorted(files.items()) if p != GGUF_NOTE)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:40]


def _plain(value: Any) -> Any:
    """Records as JSON-able values."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value


def _content(tree: Tree) -> str:
    """A tree by its content; task files and texts for people beside a user's module are not part of it."""
    root = Path(tree.root).parent if tree.single else Path(tree.root)
    kept = [i for i in tree.items if tree.single or not _is_about(root / i.path)]
    text = "\n".join(f"{i.path} {i.sha256}" for i in kept)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


_FOR_PEOPLE = re.compile(r"(?:readme|changelog|license|licence|contributing)(?:\.(?:md|rst|txt))?", re.I)
"""Names of texts for people. A rubric.md or system_prompt.md may be what a reward reads."""


def _is_about(path: Path) -> bool:
    if path.suffix != ".toml":
        return _FOR_PEOPLE.fullmatch(path.name) is not None
    try:
        return {"task", "environment", "recipe"} <= tomllib.loads(read_text(path)).keys()
    except (OSError, ValueError):
        return False
