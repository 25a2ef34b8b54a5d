"""An executor that looks before it computes: trials whose key is known come from the cache, the others go on to another
executor and into the cache.

A trial is a policy that is made (trained, warm-started) or given, and one evaluation for each split. Each is an entry
of its own, so that a known training is evaluated anew without being trained again.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from evotrainer.errors import EvoTrainerError, IntegrityError
from evotrainer.executors.cache.continued import earlier, in_order, lay_start, made_on_the_way
from evotrainer.executors.cache.keys import Keys, code_id
from evotrainer.executors.cache.load import CacheHit, lay_down
from evotrainer.executors.cache.save import entries_of
from evotrainer.executors.cache.store import TrialCache
from evotrainer.executors.spec import Heartbeat, TrialSpec, store_dirs, trial_dir
from evotrainer.records import keys as names
from evotrainer.records.durable import os_errors
from evotrainer.records.events import TrialFinished
from evotrainer.records.sealed import Key

if TYPE_CHECKING:
    from evotrainer.config.task import TaskFile
    from evotrainer.executors import Executor

STAGED = ".arriving-cached-"
"""Beginning of the names of folders in which a trial's files are put together."""
Progress = Callable[[list[tuple[TrialSpec, Heartbeat | None]]], None]


@dataclass(slots=True)
class StartedTrial:
    """A trial that is computed now. `code`, `making`, `policy`: as they were before it began."""

    spec: TrialSpec
    code: str
    making: str
    policy: str


@dataclass
class CachedExecutor:
    """`executor` computes what `cache` does not have; `own_key` encrypts gate and cert; `tell` takes its notes.

    A fault of the cache costs a computation or an entry, never a result: it is told, and the trial is computed.
    """

    executor: Executor
    cache: TrialCache
    run_dir: Path
    task: TaskFile
    tell: Callable[[str], None]
    own_key: Key | None = None
    _keys: Keys | None = field(default=None, repr=False)
    _proxy: tuple[str, str] | None = None
    _warned: set[str] = field(default_factory=set, repr=False)

    def run(self, specs: Sequence[TrialSpec], on_progress: Progress = lambda _: None) -> Iterator[TrialFinished]:
        """Yield results as they come: known ones first, then those that `executor` computes."""
        for left in self.run_dir.glob(f"{STAGED}*"):
            shutil.rmtree(left, ignore_errors=True)
        todo: list[TrialSpec] = []
        rest: dict[str, TrialSpec] = {}
        started: dict[str, StartedTrial] = {}
        for spec in specs:
            # A trial that began here is continued here: what it was begun with is not known any more.
            if (trial_dir(self.run_dir, spec.trial) / "spec.json").is_file():
                todo.append(spec)
                continue
            self._forget_remainder(spec)
            result, remainder = self._look(spec)
            if result is not None:
                yield result
            elif remainder is not None:
                rest[remainder.trial] = spec
                todo.append(remainder)
            else:
                todo.append(spec)
        later: list[TrialSpec] = []
        if len(todo) > 1 and (k := self.keys()) is not None:
            todo, later = in_order(todo, {s.trial: b.making for s in todo if (b := self._begin(s))}, k)
        yield from self._compute(todo, rest, started, on_progress)
        if later:  # what they wait for is known by now
            yield from self.run(later, on_progress)

    def _compute(
        self, todo: list[TrialSpec], rest: dict[str, TrialSpec], started: dict[str, StartedTrial], on_progress: Progress
    ) -> Iterator[TrialFinished]:
        again: list[TrialSpec] = []
        for spec in todo:
            if (begun := self._begin(spec)) is not None:
                started[spec.trial] = begun
                self._lay_start(spec)

        def shown(running: list[tuple[TrialSpec, Heartbeat | None]]) -> None:
            on_progress([(rest.get(s.trial, s), beat) for s, beat in running])

        for result in self.executor.run(todo, shown) if todo else ():
            whole, begun = rest.get(result.trial), started.get(result.trial)
            continued = begun is not None and bool(earlier(begun.spec))
            if begun and continued:  # before the result is taken: what it went on from is gone then
                self._keep(begun, result)
            if whole is None:
                yield result
            if begun and not continued:
                self._keep(begun, result)
            if whole is not None:
                done, _ = self._look(whole, spent=result)
                self._forget_remainder(whole)
                if done is not None:
                    yield done
                else:  # it failed, or the cache lost it meanwhile
                    again.append(whole)
        if again:
            yield from self._compute(again, {}, started, on_progress)

    def forget(self, trial: str) -> None:
        """Take back the result of a failed trial that nothing recorded, so that a resume tries it again."""
        self.executor.forget(trial)

    def close(self) -> None:
        """Release what the executor holds."""
        self.executor.close()

    # -- what is known -------------------------------------------------------------------------------------------------

    def keys(self) -> Keys | None:
        """Of this run; None before its first event."""
        if self._keys is None:
            from evotrainer.records.ledger import Ledger

            with Ledger.open(self.run_dir / "ledger.db", readonly=True) as ledger:
                opened = ledger.get(names.RUN)
            if opened is None:
                return None
            described = opened.body.environment
            pair = described.get("proxy")
            self._proxy = (str(pair[0]), str(pair[1])) if pair else None
            self._keys = Keys(self.run_dir, self.task, described, self.cache.code)
        return self._keys

    def _look(
        self, spec: TrialSpec, spent: TrialFinished | None = None
    ) -> tuple[TrialFinished | None, TrialSpec | None]:
        """The result of a trial all of whose parts are known, its files in the run folder; or the specification of what
        is missing, where only evaluations are. `spent`: on computing what was missing."""
        if repeats(spec):
            return None, None
        before = time.process_time(), time.monotonic()
        while True:
            found: CacheHit | None = None
            try:
                found = self._find(spec)
                if found is None or found.too_dear or (found.missing and spent):
                    return None, None
                with self._staged() as staged:
                    if found.missing:
                        return None, self._remainder(spec, found, staged)
                    return lay_down(self.run_dir, staged, spec, found, self._proxy, before, spent), None
            except IntegrityError as e:
                if found is None or not found.drop_damaged(self.cache):
                    return None, None
                self._note(f"{e}; it is deleted and computed again")
            finally:
                if found is not None:
                    found.close()

    def _find(self, spec: TrialSpec) -> CacheHit | None:
        """Entries of a trial's parts; None where nothing of it is known or can be."""
        try:
            k = self.keys()
            if k is None:
                return None
            found = CacheHit(spec)
            making, part = k.making(spec), "training" if spec.train else "warm start"
            if making and not self._add(found, part, making):
                return None
            policy = found.policy or k.policy(spec)
            for split in dict.fromkeys(p.split for p in spec.evals):
                self._add(found, f"evaluation/{split}", k.evaluation(spec, policy, split))
        except (OSError, EvoTrainerError) as e:
            self._note(f"{self._trouble(e)}: trials are computed without the cache")
            return None
        return found if found.entries else None

    def _add(self, found: CacheHit, part: str, key: str) -> bool:
        try:
            entry = self.cache.find(key)
        except IntegrityError as e:
            self.cache.drop(key)
            self._note(f"{e}; it is deleted and computed again")
            return False
        if entry is not None:
            found.entries[part] = (key, entry)
        return entry is not None

    def _remainder(self, spec: TrialSpec, found: CacheHit, staged: Path) -> TrialSpec:
        """Evaluations that the cache does not have, as a trial of their own, its policy laid down."""
        trial = names.remainder(spec.trial)
        folder = trial_dir(self.run_dir, trial)
        policy = spec.policy_dir
        if (made := found.made) is not None:
            policy = f"{folder.relative_to(self.run_dir)}/policy"
            made.copy("policy/", staged / "policy")
            folder.mkdir(parents=True)
            (staged / "policy").rename(folder / "policy")
        return spec.model_copy(
            update={
                "trial": trial,
                "train": False,
                "warm_start": None,
                "policy_dir": policy,
                "policy_step": spec.recipe.whole_steps if spec.train else spec.policy_step,
                "evals": tuple(p for p in spec.evals if p.split in found.missing),
                "health_every": 0,
            }
        )

    def _forget_remainder(self, spec: TrialSpec) -> None:
        trial = names.remainder(spec.trial)
        for folder in (trial_dir(self.run_dir, trial), *store_dirs(self.run_dir, trial)):
            shutil.rmtree(folder, ignore_errors=True)

    # -- recipes that go on from others --------------------------------------------------------------------------------

    def _lay_start(self, spec: TrialSpec) -> None:
        """Put the latest known training that a trial goes on from into its folder."""
        for depth, before in enumerate(earlier(spec), 1):
            with contextlib.closing(CacheHit(before)) as found:
                try:
                    k = self.keys()
                    if k is not None and self._add(found, "training", key := k.making(before)):
                        with self._staged() as staged:
                            lay_start(self.run_dir, staged, spec, depth, key, found.entries["training"][1])
                        return
                except (OSError, EvoTrainerError) as e:
                    found.drop_damaged(self.cache)
                    self._note(f"{self._trouble(e)}; what {spec.trial} goes on from is trained again")

    # -- what becomes known --------------------------------------------------------------------------------------------

    def _begin(self, spec: TrialSpec) -> StartedTrial | None:
        """A trial before it begins; None where its result is not to be kept."""
        if (trial_dir(self.run_dir, spec.trial) / "spec.json").is_file() or repeats(spec):
            return None
        try:
            k = self.keys()
            return None if k is None else StartedTrial(spec, code_id(), k.making(spec), k.policy(spec))
        except (OSError, EvoTrainerError) as e:
            self._note(f"{self._trouble(e)}: its trials are not kept")
            return None

    def _keep(self, begun: StartedTrial, result: TrialFinished) -> None:
        """Put what was computed into the cache, if it is a function of its specification alone."""
        try:
            now = self._begin_again(begun)
            if now is None or self.cache.code != begun.code:
                return
            own = entries_of(self.run_dir, begun.spec, result, now, begun.making, begun.policy, self.own_key)
            for key, manifest, members in chain(own, made_on_the_way(self.run_dir, begun.spec, result, now)):
                self.cache.put(key, manifest, members)
        except (OSError, EvoTrainerError) as e:
            self._note(f"{self._trouble(e)}: trials that cannot be stored are not kept")

    def _begin_again(self, begun: StartedTrial) -> Keys | None:
        """The keys, where nothing that a trial was begun with has changed since."""
        k = self.keys()
        same = k and (code_id(), k.making(begun.spec), k.policy(begun.spec)) == (begun.code, begun.making, begun.policy)
        return k if same else None

    @contextlib.contextmanager
    def _staged(self) -> Iterator[Path]:
        """A folder in the run folder, gone afterwards; StoreError where the run's disk takes no more."""
        with os_errors(f"cannot write below {self.run_dir}"):
            folder = Path(tempfile.mkdtemp(prefix=STAGED, dir=self.run_dir))
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _trouble(self, e: Exception) -> str:
        if not isinstance(e, OSError):
            return str(e)
        remedy = "free space or make it writable, or set run.cache to another folder or off"
        return f"cache {self.cache.folder}: {e.strerror or e}; {remedy}"

    def _note(self, line: str) -> None:
        if line not in self._warned:
            self._warned.add(line)
            self.tell(line)


def repeats(spec: TrialSpec) -> bool:
    """A repetition of an evaluation, made to see whether it says the same: from the cache it would prove nothing."""
    return spec.purpose == "audit" and not spec.train and not spec.env_knobs
