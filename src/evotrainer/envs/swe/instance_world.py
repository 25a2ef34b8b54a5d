"""The real world for instances: checkouts from mirrors, patches applied by git inside a shell,
the repository's own tests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evotrainer.envs.swe import tools
from evotrainer.envs.swe.canary import EVERY, CanaryGrader
from evotrainer.envs.swe.control import LIBRARY, Control, differ, is_control
from evotrainer.envs.swe.decoys import run_with_decoys
from evotrainer.envs.swe.gitrepo import BuildCache, BuiltRepository, find_mirror, from_mirror
from evotrainer.envs.swe.guarding import Guards
from evotrainer.envs.swe.instances import Instance, InstanceRepo
from evotrainer.envs.swe.real import RealHandle, RealWorld, Texts, overlaid
from evotrainer.envs.swe.real_shells import GIT_ENVIRONMENT, packed
from evotrainer.envs.swe.strict_tests import strict, with_equality
from evotrainer.envs.swe.test_commands import TestCommand, file_of, passed
from evotrainer.envs.swe.world import Grade, Observation, ParsedAction
from evotrainer.errors import SandboxError, TaskSetError
from evotrainer.sandbox.shell import Entry, EpisodeShell, ShellLimits

LIMITS = ShellLimits(
    memory_mb=2048, disk_mb=1024, inodes=200_000, processes=128, output_kb=4096, idle_s=120.0, loopback=True, locks=True
)
BASH_CPU_S = 60.0
MAX_BASH = 4_000
"""Characters of what a bash command prints."""


class InstanceWorld(RealWorld):
    """`repos`: folder of mirrors; `depth`: commits of a scrubbed history (0: all up to the base); `library`: modules
    that no new file may stand for; `canary_every`: gradings between two canaries."""

    def __init__(
        self,
        repos: Path,
        command: TestCommand,
        *,
        depth: int = 1,
        limits: ShellLimits = LIMITS,
        binds: Sequence[tuple[str, str]] = (),
        library: frozenset[str] = frozenset(LIBRARY),
        canary_every: int = EVERY,
    ) -> None:
        super().__init__(limits, binds)
        self._repos = repos
        self.command = command
        self._depth = depth
        self._library = library
        self.watch = CanaryGrader(self, canary_every)
        self._built = BuildCache()
        self._ready: dict[str, InstanceRepo] = {}
        self._classes: dict[str, frozenset[str]] = {}
        self._testing: EpisodeShell | None = None
        self.guards = Guards(self, self._pair)

    def prepare(self, instance: Instance) -> InstanceRepo:
        """The instance with both patches applied, once; TaskSetError where one does not apply or there is no mirror."""
        if (found := self._ready.get(instance.id)) is not None:
            return found
        bare = InstanceRepo(
            id=instance.id,
            files={},
            issue=instance.statement,
            history=(),
            future=(),
            visible={},
            fail_to_pass=instance.fail_to_pass,
            pass_to_pass=instance.pass_to_pass,
            gold={},
            tags={"repo": instance.repo, **({"version": instance.version} if instance.version else {})},
            mirror=find_mirror(self._repos, instance.repo),
            base_commit=instance.base_commit,
        )
        built = self.build(bare, {})
        fix = self._applied(built, instance, "patch", instance.patch)
        tests = self._applied(built, instance, "test_patch", instance.test_patch)
        before = {p: e for p in fix if (e := built.tree.get(p)) is not None}
        after = {p: e for p, e in fix.items() if e is not None}
        ready = replace(bare, files=dict(Texts(before)), gold=dict(Texts(after)), tests=tests, fix=fix)
        self._ready[instance.id] = ready
        return ready

    def _applied(self, built: BuiltRepository, instance: Instance, name: str, patch: str) -> dict[str, Entry | None]:
        """What a patch makes of the paths that it touches."""
        shell = self.fresh(built.files)
        shell.write({"tmp/change.diff": patch.encode("utf-8", "surrogateescape")})
        ran = shell.run(["git", "apply", "--whitespace=nowarn", "/w/tmp/change.diff"], env=GIT_ENVIRONMENT)
        if ran.exit:
            words = ran.stderr.decode("utf-8", "replace").strip().splitlines()
            raise TaskSetError(
                f"instance {instance.id}: {name} does not apply to its base ({words[:1]}); correct the row"
            )
        now = {e.path: e for e in shell.tree()}
        touched = {p for p in {*now, *built.tree} if differ(now.get(p), built.tree.get(p))}
        return {p: now.get(p) for p in sorted(touched)}

    def build(self, repo: InstanceRepo, knobs: Mapping[str, Any]) -> BuiltRepository:
        scrubbed = knobs.get("history") != "full"
        key = f"{repo.mirror}:{repo.base_commit}:{scrubbed}"
        depth = self._depth if scrubbed else 0
        try:
            return self._built.get(key, lambda: from_mirror(repo.mirror, repo.base_commit, scrubbed, depth))
        except SandboxError as error:
            raise TaskSetError(
                f"instance {repo.id}: commit {repo.base_commit[:12]} cannot be had from {repo.mirror}: {error}"
            ) from error

    def put(self, handle: RealHandle, files: Mapping[str, Entry | None]) -> None:
        """Try a patch: write files into an episode's checkout, None removes one; its own tests are then not asked."""
        handle.trial = True
        away = [f"repo/{p}" for p, e in files.items() if e is None or e.kind == "l"]
        handle.shell.remove(away)
        if there := {p: e for p, e in files.items() if e is not None}:
            with packed(there) as template:
                handle.shell.write(template)

    def do(self, handle: RealHandle, action: ParsedAction) -> Observation:
        if action.tool == "bash":
            ran = handle.shell.run(["bash", "-c", action.text], cpu_s=BASH_CPU_S, env=GIT_ENVIRONMENT, merge=True)
            text = ran.text if len(ran.text) <= MAX_BASH else ran.text[: MAX_BASH - 4] + "\n..."
            if ran.timed_out:
                text += f"\nstopped: {ran.why} limit"
            elif ran.exit:
                text += f"\nexit code {ran.exit}"
            return Observation(text.strip("\n") or tools.DONE, ok=not ran.exit and not ran.timed_out)
        return super().do(handle, action)

    def test(self, handle: RealHandle) -> Observation:
        """The repository's tests as they are now; `name Failed` for up to three that do not pass."""
        files = sorted(p for p in self.tree(handle, contents=False) if re.fullmatch(r"(?:.*/)?test_[^/]*\.py", p))
        results, ran = self.command.run(handle.shell, files)
        bad = [name for name, good in results.items() if not good]
        if not results:
            return Observation(
                f"{tools.NO_TESTS} ({'Timeout' if ran.timed_out else f'exit code {ran.exit}'})", ok=False
            )
        rows = [f"{len(results) - len(bad)} passed" + (f" {len(bad)} failed" if bad else "")]
        return tools.clipped("\n".join(rows + [f"{name} Failed" for name in bad[: tools.FAILED_LINES]]))

    def grade(self, handles: Sequence[RealHandle]) -> list[Grade]:
        """Between canaries (`canary.py`)."""
        return self.watch.grade(handles)

    def renew(self) -> None:
        """Give up the grading machines and idle ones."""
        if self._testing is not None:
            self._testing.close()
        if self._grading is not None:
            self._grading.close()
        self._shells.drop()

    def grade_tree(self, handle: RealHandle, left: Mapping[str, Entry]) -> Grade:
        """The data set's tests on the policy's tree (`graded_files`), each grading in a shell of its own."""
        repo, base = handle.repo, handle.built.tree
        touched = sorted(p for p in {*left, *base} if differ(left.get(p), base.get(p)))
        patch = tools.git_patch(
            Texts({p: base[p] for p in touched if p in base}), Texts({p: left[p] for p in touched if p in left})
        )
        files, control = self.graded_files(repo, base, left)
        hidden, forged = self.run_ids(repo, files)
        own = not handle.trial and self._own(repo, left)
        changed = tuple(p for p in touched if repo.is_test(p))
        inside = tuple(sorted(hidden.keys() - self.guards.of(repo).ids))
        return Grade(hidden, {}, own, changed, patch, control_changed=control, inside=inside, forged=forged)

    def graded_files(
        self, repo: InstanceRepo, base: Mapping[str, Entry], left: Mapping[str, Entry]
    ) -> tuple[dict[str, Entry], tuple[str, ...]]:
        """The policy's files with the base's tests and control files, the test patch's on top;
        and the control files that the policy meddled with."""
        graded = {*repo.tests, *(file_of(i) for i in (*repo.fail_to_pass, *repo.pass_to_pass))} - {""}
        control = Control(base, repo.fix, frozenset(graded), repo.is_test, self._library)
        files, meddled = control.sorted_out(left)
        known = self._known(repo, base)
        ours = {p: e for p, e in files.items() if p not in repo.tests and (repo.is_test(p) or is_control(p))}
        for path, entry in repo.tests.items():
            if entry is not None:
                ours[path] = self._strict(entry, known) if path.endswith(".py") else entry
        return overlaid({p: e for p, e in files.items() if p not in repo.tests}, ours), meddled

    def run_ids(self, repo: InstanceRepo, files: Mapping[str, Entry]) -> tuple[dict[str, bool], tuple[str, ...]]:
        """Every id of the instance -> did it pass on exactly these files? And decoys that passed, too.

        Across the boundary where that works with the reference fix, else in the process of the code under test.
        """
        ids, guard = (*repo.fail_to_pass, *repo.pass_to_pass), self.guards.of(repo)
        found = dict.fromkeys(ids, False)
        if guard.ids:
            crossed = self.guards.run(repo, files, guard.ids, guard.places).results
            found |= {i: passed(crossed, i) for i in guard.ids}
        forged: tuple[str, ...] = ()
        if rest := [i for i in ids if i not in guard.ids]:
            paths = self.test_paths(repo, files)
            results, forged = run_with_decoys(lambda f: self.command.run(self.fresh(f), paths)[0], files, paths)
            found |= {i: passed(results, i) and not forged for i in rest}
        return found, forged

    def base(self, repo: InstanceRepo) -> Mapping[str, Entry]:
        """The working tree of the base commit."""
        return self.build(repo, {}).tree

    def _pair(self, tests: Mapping[str, Entry], code: Mapping[str, Entry]) -> tuple[EpisodeShell, EpisodeShell]:
        """A shell for tests, in which no code of a policy ever ran, and a fresh one for the code under test."""
        if self._testing is None or self._testing.closed:
            self._testing = self._shells.new(None)
        with packed(tests) as template:
            self._testing.reset(template)
        return self._testing, self.fresh(code)

    def fresh(self, files: Mapping[str, Entry]) -> EpisodeShell:
        """A new machine for each grading, so that nothing of an earlier one is left."""
        if self._grading is not None:
            self._grading.close()
            self._shells.give_back(self._grading)
        with packed(files) as template:
            self._grading = self._shells.new(template)
        return self._grading

    def _own(self, repo: InstanceRepo, left: Mapping[str, Entry]) -> bool:
        """Do the tests in the policy's own checkout pass,
        with its own control files? What a trusting grader would read."""
        results, _ = self.command.run(self.fresh(left), self.test_paths(repo, left))
        return bool(results) and all(results.values())

    def test_paths(self, repo: InstanceRepo, files: Mapping[str, Entry]) -> list[str]:
        """Test files of the test patch and of the ids, as far as they are there."""
        named = {*repo.tests, *(file_of(i) for i in (*repo.fail_to_pass, *repo.pass_to_pass))}
        wanted = {p for p in named if re.fullmatch(r"(?:.*/)?(?:test_[^/]*|[^/]*_tests?|tests?)\.py", p)}
        return sorted(p for p in wanted if p in files and files[p].kind == "f")

    def _known(self, repo: InstanceRepo, base: Mapping[str, Entry]) -> frozenset[str]:
        """Classes with an equality of their own in the base, the reference fix or the test patch."""
        if repo.id not in self._classes:
            entries = [*base.values(), *repo.fix.values(), *repo.tests.values()]
            files = [e for e in entries if e is not None and e.kind == "f" and e.path.endswith(".py")]
            self._classes[repo.id] = with_equality(e.data.decode("utf-8", "replace") for e in files)
        return self._classes[repo.id]

    def _strict(self, entry: Entry, known: frozenset[str]) -> Entry:
        try:
            text = strict(entry.data.decode("utf-8"), known)
        except UnicodeDecodeError:
            return entry
        return replace(entry, data=text.encode("utf-8"))
