"""`envs.swe.instances`: SWE-bench's columns, checked rows, real mirrors, real pytest,
graded by the data set's own tests.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evotrainer.envs.admission import Cache
from evotrainer.envs.base import Task
from evotrainer.envs.registry import open_environment
from evotrainer.envs.swe import decoys, tools
from evotrainer.envs.swe.admission import admit
from evotrainer.envs.swe.guarding import Guard
from evotrainer.envs.swe.instance_env import InstancesConfig, InstancesEnv, as_task
from evotrainer.envs.swe.instances import Instance, load_instances
from evotrainer.envs.swe.test_commands import TestCommand, parse_log, passed
from evotrainer.errors import TaskSetError
from evotrainer.sandbox.launch import find_bubblewrap
from evotrainer.sandbox.shell import Entry, EpisodeShell
from tests.envs.swe import mirrors
from tests.thinned import thinned

pytestmark = pytest.mark.skipif(
    find_bubblewrap() is None or shutil.which("git") is None, reason="bubblewrap or git is not installed"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("instances")
    return mirrors.make(folder)


@pytest.fixture(scope="module")
def env(data: tuple[Path, list[dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstancesEnv]:
    folder = tmp_path_factory.mktemp("rows")
    opened = open_environment(
        {
            "name": "swe",
            "source": str(mirrors.write(folder, data[1])),
            "repos": str(data[0]),
            "bash": True,
            "admit": False,
        }
    )
    assert isinstance(opened, InstancesEnv)
    yield opened
    opened.close()


def play(env: InstancesEnv, instance: str, *texts: str, **knobs: Any) -> tuple[list[str], Any]:
    """What each action printed, and the score; None where nothing was submitted."""
    task = next(t for t in env.tasks("cert") if t.id == instance)
    episode = env.reset(task, knobs)
    seen = []
    for text in texts:
        env.step([episode], [text], ["stop"])
        seen.append(episode.turns[-1].text)
    if texts[-1] == "submit":
        return seen, env.score([episode])[0]
    env.world.close(episode.state["handle"])
    return seen, None


def judged(env: InstancesEnv) -> list[Task]:
    """All but one: every task costs fourteen runs of pytest."""
    return [t for t in env.tasks("cert") if t.id != "renamed-test"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("admission"))


@pytest.mark.slow
def test_admission_takes_sound_instances_and_says_why_it_refuses_others(env: InstancesEnv, cache: Cache) -> None:
    report = admit(judged(env), env.instances, cache)
    assert report.admitted == {"changed-test", "new-file"}, str(report)
    reasons = {v.task: " ".join(v.reasons) for v in report.refused}
    assert (
        "test_core.py::test_old (without it tests/test_core.py::test_old fails as well)" in reasons["already-failing"]
    )
    assert reasons["weak-tests"] == "doing nothing passes: no test shows the bug"
    tried = next(v.tried for v in report.verdicts if v.admitted)
    assert {"fix", "nothing", "sitecustomize", "equal to everything", "exit in the module"} <= set(tried)
    assert {"plug-in by metadata", "compiled and linked control files", "modules of the library"} <= set(tried)
    assert {"mock.ANY", "expected failure", "reporter and test runner forged"} <= set(tried)
    assert {v.task: (v.across, v.decided, v.inside) for v in report.verdicts if v.admitted} == {
        "changed-test": (2, 0, 0),
        "new-file": (3, 1, 0),
    }
    assert (
        "tests graded across the boundary: 5 (1 where objects of the code under test decide); in its process: 0"
        in str(report)
    )
    assert "2 of 4 tasks" in str(report) and "refused weak-tests" in str(report)


@pytest.mark.slow
def test_verdicts_are_kept_by_content(env: InstancesEnv, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    before = admit(judged(env), env.instances, cache)
    with monkeypatch.context() as patch:
        patch.setattr(env.instances, "open", lambda *a: pytest.fail("tried again"))
        again = admit(judged(env), env.instances, cache)
    assert all(v.kept for v in again.verdicts) and again.admitted == before.admitted
    assert [v.reasons for v in again.verdicts] == [v.reasons for v in before.verdicts]
    for file in cache.folder.iterdir():
        file.write_text("broken")
    task = next(t for t in env.tasks("cert") if t.id == "weak-tests")
    assert not admit([task], env.instances, cache).verdicts[0].kept


def test_an_episode_is_solved_by_the_hidden_tests_of_the_data_set(env: InstancesEnv) -> None:
    seen, score = play(env, "changed-test", "ls", "edit calc/core.py 2 return a + b", "git diff", "submit")
    assert seen[0] == "README.md calc/__init__.py calc/core.py tests/__init__.py tests/test_core.py"
    assert seen[2] == "calc/core.py\n@@ -2 +2 @@\n-    return a - b\n+    return a + b"
    assert (score.outcome, score.components["f2p_frac"], score.components["p2p_frac"]) == ("correct", 1.0, 1.0)
    assert "+    return a + b" in score.detail["patch"] and "+    return a + b" in score.detail["gold_patch"]
    _, nothing = play(env, "changed-test", "submit")
    assert (nothing.outcome, nothing.components["f2p_frac"], nothing.components["p2p_frac"]) == ("incorrect", 0.0, 1.0)


FORGED = (
    "bash printf '%s\\n' 'import gc' 'def add(a, b):' '    for o in gc.get_objects():' "
    "'        if type(o) is type(add) and "
    'o.__name__ == "told":\' \'            [o("tests/test_core.py::test_" + n, True) for n in ("add", "mean")]\' '
    "'            import os; os._exit(0)' 'def mean(xs): return sum(xs) / len(xs)' > calc/core.py"
)


def test_a_forged_report_is_nothing_across_the_boundary_and_is_named_inside(
    env: InstancesEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, score = play(env, "changed-test", FORGED, "submit")
    assert score.outcome == "incorrect" and not {"graded_inside", "forged_report"} & score.detail.keys()
    env.instances.guards.keep("changed-test", Guard())
    _, inside = play(env, "changed-test", FORGED, "submit")
    ids = ["tests/test_core.py::test_add", "tests/test_core.py::test_mean"]
    assert inside.outcome == "incorrect" and inside.detail["graded_inside"] == ids and inside.detail["forged_report"]
    with monkeypatch.context() as patch:
        patch.setattr(decoys, "RUNS", 0)
        _, naive = play(env, "changed-test", FORGED, "submit")
        assert naive.outcome == "correct", "works without decoys and boundary"
    env.instances.guards.forget("changed-test")


@pytest.mark.slow
def test_a_renamed_test_file_replaces_the_old_one(env: InstancesEnv) -> None:
    wrong = "bash sed -i 's/a - b/a + b/' calc/core.py; rm tests/test_core.py; mkdir -p tests/x; ln -s ../calc tests/y"
    _, score = play(env, "renamed-test", wrong, "submit")
    assert score.outcome == "correct"
    assert score.components["tests_kept"] == 0.0


@pytest.mark.parametrize(
    "command",
    thinned(
        [
            "ln -s / tests/root; rm tests/test_core.py; ln -s /etc/passwd tests/test_core.py",
            "rm -rf tests; ln -s calc tests",
            "rm -rf tests; echo x > tests",
            "printf 'raise SystemExit(0)' > conftest.py; cp conftest.py tests/; cp conftest.py json.py; "
            "cp conftest.py pytest.py",
        ],
        4,
    ),
)
def test_what_stands_in_the_way_of_the_tests_is_swept_aside(command: str, env: InstancesEnv) -> None:
    _, score = play(env, "changed-test", f"bash sed -i 's/a - b/a + b/' calc/core.py; {command}", "submit")
    assert score.error is None and score.outcome == "correct"


def test_history_is_scrubbed_unless_it_is_open(env: InstancesEnv) -> None:
    look = "bash git log --all --format=%s; git cat-file --batch-all-objects --batch-check | wc -l; git remote; git tag"
    scrubbed, _ = play(env, "changed-test", look, "git log", "git show HEAD~1")
    assert scrubbed[0].split("\n")[0] == "base" and "the fix" not in scrubbed[0] and "v2" not in scrubbed[0]
    assert scrubbed[1:] == ["HEAD~0 base", "error: no such revision"]
    full, _ = play(env, "changed-test", look, "bash git show v2:calc/core.py | grep 'a + b'", history="full")
    assert "the fix" in full[0] and "v2" in full[0] and full[1] == "    return a + b".strip("\n")


def test_tools_protect_tests_and_bash_has_limits(env: InstancesEnv) -> None:
    seen, _ = play(
        env, "changed-test", "edit tests/test_core.py 1 x", "bash exit 3", "bash cat /etc/shadow", "bash true"
    )
    assert (
        seen[0] == "error: protected file" and seen[1] == "exit code 3" and "exit code 1" in seen[2] and seen[3] == "ok"
    )
    open_, _ = play(env, "changed-test", "edit tests/test_core.py 1 x", tests="writable")
    assert open_ == ["ok"]
    counts, _ = play(env, "changed-test", "test")
    assert counts == ["1 passed 1 failed\ntests/test_core.py::test_old Failed"]


def test_bash_is_closed_unless_asked_for(env: InstancesEnv) -> None:
    closed = env.options.model_copy(update={"bash": False})
    env.options, before = closed, env.options
    try:
        assert play(env, "changed-test", "bash ls")[0] == ["error: unknown command"]
    finally:
        env.options = before


def loaded(source: Path, **options: Any) -> list[Instance]:
    config = InstancesConfig(source=str(source), repos=".", **options)
    return load_instances(config)[0]


def test_rows_are_read_from_every_format_and_split_by_hash(
    data: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    lines = mirrors.write(tmp_path, data[1])
    flat = [
        {**r, "PASS_TO_PASS": json.dumps(_list(r["PASS_TO_PASS"])), "FAIL_TO_PASS": _list(r["FAIL_TO_PASS"])}
        for r in data[1]
    ]
    pl.DataFrame(flat).write_parquet(tmp_path / "rows.parquet")
    shares = {"train": 0.5, "cert": 0.5}
    found = [loaded(p, splits=shares) for p in (lines, tmp_path / "rows.parquet")]
    assert found[0] == found[1]
    alone = loaded(mirrors.write(tmp_path, data[1][2:3], "one.jsonl"), splits=shares)
    assert alone[0].split == found[0][2].split
    assert len(loaded(lines, limit=2)) == 2
    assert {as_task(i).split for i in loaded(lines)} == {"cert"}


def test_instances_by_source_with_their_own_splits_and_columns(
    data: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    repos, found = data
    named = [{("issue" if k == "problem_statement" else k): v for k, v in r.items()} for r in found]
    mirrors.write(tmp_path, named[:2], "train.jsonl")
    mirrors.write(tmp_path, named[2:], "test.jsonl")
    config = {"name": "swe", "source": str(tmp_path), "repos": str(repos), "admit": False}
    with pytest.raises(TaskSetError, match=r"split test, row 1: no column 'problem_statement' \(format swe-bench\)"):
        open_environment({**config, "format": "swe-bench", "parts": {"test": "cert"}})
    opened = open_environment(
        {**config, "columns": {"problem_statement": "issue"}, "parts": {"train": "train", "test": "cert"}}
    )
    assert [t.id for t in opened.tasks("train")] == [r["instance_id"] for r in found[:2]]
    assert opened.describe()["data"]["rows"] == {"train": 2, "test": len(found) - 2}
    opened.close()
    again = [{**named[0], "instance_id": "other"}]
    mirrors.write(tmp_path, [*named[2:], *again], "test.jsonl")
    config |= {"columns": {"problem_statement": "issue"}, "parts": {"train": "train", "test": "cert"}}
    with pytest.raises(TaskSetError, match="tell the same issue in splits cert and train"):
        open_environment(config)
    merged = open_environment({**config, "duplicates": "merge"})
    assert [t.id for t in merged.tasks("train")] == [found[1]["instance_id"]]
    assert "other" in {t.id for t in merged.tasks("cert")}
    merged.close()


def _list(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"patch": None}, "row 2: field 'patch' is NoneType, str expected"),
    ({"FAIL_TO_PASS": "not json"}, "row 2: field 'FAIL_TO_PASS' is no list, nor one as JSON text"),
    ({"FAIL_TO_PASS": []}, "row 2: field 'FAIL_TO_PASS' is empty"),
    ({"PASS_TO_PASS": [1]}, "row 2: field 'PASS_TO_PASS' must be a list of test names"),
    ({"PASS_TO_PASS": ["tests/test_new.py::test_add[5]"]}, "is in FAIL_TO_PASS and in PASS_TO_PASS"),
    ({"base_commit": "main"}, "row 2: field 'base_commit' is 'main', 40 hex digits expected"),
    ({"repo": "../../etc"}, "row 2: field 'repo' is"),
    ({"instance_id": "changed-test"}, "row 2: instance_id 'changed-test' occurs twice"),
    ({"problem_statement": " "}, "row 2: field 'problem_statement' is empty"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=[m[:50] for _, m in BROKEN])
def test_a_malformed_row_is_named(
    change: dict[str, Any], message: str, data: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    rows = [data[1][0], {**data[1][1], **change}]
    with pytest.raises(TaskSetError) as error:
        loaded(mirrors.write(tmp_path, rows))
    assert message in str(error.value)


def test_a_missing_column_is_named(data: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    for name in ("test_patch", "PASS_TO_PASS"):
        rows = [{k: v for k, v in data[1][0].items() if k != name}]
        with pytest.raises(TaskSetError, match=f"row 1: no column '{name}'"):
            loaded(mirrors.write(tmp_path, rows))


def test_a_patch_that_does_not_apply_or_a_lost_mirror_is_a_refusal(
    env: InstancesEnv, data: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    bad = {
        **data[1][0],
        "instance_id": "bad",
        "test_patch": data[1][0]["test_patch"].replace(" def test_mean", " def x"),
    }
    lost = {**data[1][0], "instance_id": "lost", "repo": "dev/other"}
    gone = {**data[1][0], "instance_id": "gone", "base_commit": "1" * 40}
    tasks = [as_task(i) for i in loaded(mirrors.write(tmp_path, [bad, lost, gone]))]
    reasons = [v.reasons[0] for v in admit(tasks, env.instances, Cache(tmp_path / "cache")).verdicts]
    assert "test_patch does not apply" in reasons[0] and "no mirror of dev/other" in reasons[1]
    assert "cannot be had from" in reasons[2]


def test_what_a_policy_leaves_in_git_reaches_nothing_but_its_episode(env: InstancesEnv) -> None:
    hook = Path("/var/tmp/evotrainer-hook")
    leave = (
        f"bash printf '#!/bin/sh\\ntouch {hook}\\n' > .git/hook; chmod +x .git/hook; mkdir .git/hooks; "
        "for h in post-checkout post-index-change pre-commit; do cp .git/hook .git/hooks/$h; done; "
        "printf '[core]\\n\\tfsmonitor = .git/hook\\n\\tpager = .git/hook\\n[diff]\\n\\texternal = .git/hook\\n' >> "
        ".git/config; echo '* diff=x filter=x' > .gitattributes"
    )
    _, score = play(env, "changed-test", leave, "git log", "git show HEAD", "git diff", "git status", "test", "submit")
    assert score.error is None and not hook.exists()


@pytest.mark.parametrize("script", ["mkdir d; chmod 0 d", "rm -rf .git; find . -name '*.py' -delete"])
def test_a_checkout_that_cannot_be_read_passes_nothing(script: str, env: InstancesEnv) -> None:
    _, score = play(env, "changed-test", f"bash {script}", "submit")
    assert (score.error, score.outcome, score.components["p2p_frac"]) == (None, "incorrect", 0.0)


def test_links_in_the_place_of_files_lead_nowhere(env: InstancesEnv) -> None:
    link = "bash rm calc/core.py; ln -s /etc/passwd calc/core.py; ln -s / root"
    seen, score = play(
        env, "changed-test", link, "cat calc/core.py", "cat root/etc/passwd", "write calc/core.py\nx = 1", "submit"
    )
    assert seen[1:4] == [tools.NO_FILE, tools.NO_FILE, tools.DONE]
    assert score.outcome == "incorrect" and "root:" not in score.detail["patch"]


def test_a_broken_shell_is_a_fault_and_never_a_grade(env: InstancesEnv) -> None:
    task = next(t for t in env.tasks("cert") if t.id == "changed-test")
    episode = env.reset(task, {})
    episode.state["handle"].shell.close()
    env.step([episode], ["ls"], ["stop"])
    assert episode.done and episode.finish == "error"
    (score,) = env.score([episode])
    assert score.error_kind == "sandbox" and score.outcome == "unknown"


def test_shutdown_ends_shells_that_nobody_gave_back(data: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    options = {"source": str(mirrors.write(tmp_path, data[1])), "repos": str(data[0]), "admit": False}
    env = open_environment({"name": "swe", **options})
    episode = env.reset(env.tasks("cert")[0], {})
    env.close()
    assert episode.state["handle"].shell.closed


def test_unittest_and_other_commands_are_read() -> None:
    test = (
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(1, 1)\n"
        "    def test_b(self):\n        self.assertEqual(1, 2)\n    @unittest.skip('x')\n    def test_c(self): pass\n"
    )
    with EpisodeShell.open({"repo/tests/test_u.py": test, "repo/tests/__init__.py": ""}) as shell:
        found, _ = TestCommand("unittest").run(shell, ["tests/test_u.py"])
        assert passed(found, "test_a (tests.test_u.T)") and passed(found, "tests/test_u.py::T::test_a")
        assert not passed(found, "tests.test_u.T.test_b") and not passed(found, "test_c (tests.test_u.T)")
        line = "{python} -m unittest -v tests.test_u; echo {tests}"
        found, ran = TestCommand(line).run(shell, ["tests/test_u.py"])
        assert found == {"tests.test_u.T.test_a": True, "tests.test_u.T.test_b": False, "tests.test_u.T.test_c": False}
        assert ran.text.endswith("tests/test_u.py\n")


@pytest.mark.parametrize(
    "line",
    [
        "from unittest.mock import ANY; add = lambda *a: ANY",
        "Money.__eq__ = lambda s, o: True; add = lambda *a: Money(0)",
    ],
)
def test_values_equal_to_everything_solve_nothing(line: str, env: InstancesEnv) -> None:
    _, score = play(env, "changed-test", f"bash cat >> calc/core.py <<'END'\n{line}\nEND", "submit")
    assert (score.error, score.outcome, score.components["f2p_frac"]) == (None, "incorrect", 0.0)


def test_only_the_last_summary_of_a_log_counts() -> None:
    head = "=========================== short test summary info ============================\n"
    log = (
        f"{head}PASSED t.py::a\n...\n{head}FAILED t.py::a - assert 1\nPASSED t.py::b[x y]\nPASSED t.py::b[x y]\n"
        "ERROR t.py::c\n"
    )
    assert parse_log(log) == {"t.py::a": False, "t.py::b[x y]": True, "t.py::c": False}
    assert not passed({}, "t.py::a")


def test_options_that_cannot_be_are_refused(data: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    rows = str(mirrors.write(tmp_path, data[1]))
    base = {"name": "swe", "source": rows, "repos": str(data[0]), "admit": False}
    for change, message in (
        ({"repos": str(tmp_path / "none")}, "no folder"),
        ({"tests": "nose"}, "tests is 'nose'"),
        ({"python": str(tmp_path)}, "no bin/python"),
        ({"packages": [str(tmp_path / "none")]}, "correct python or packages"),
        ({"colour": 1}, "colour"),
    ):
        with pytest.raises(TaskSetError, match=message):
            open_environment({**base, **change})
    assert os.listdir(data[0]) == ["dev__calc"]


def test_packages_of_ours_can_be_imported(data: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    folder = Path("/var/tmp") / f"evotrainer-packages-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        (folder / "dependency.py").write_text("VALUE = 5\n")
        options = {"source": str(mirrors.write(tmp_path, data[1])), "repos": str(data[0]), "admit": False}
        env = open_environment({"name": "swe", "packages": [str(folder)], **options})
        assert isinstance(env, InstancesEnv)
        test = Entry("", "f", 0o644, b"import dependency\ndef test_a(): assert dependency.VALUE == 5\n")
        found, ran = env.instances.command.run(env.instances.fresh({"test_a.py": test}), ["test_a.py"])
        env.close()
        assert found == {"test_a.py::test_a": True}, ran
    finally:
        shutil.rmtree(folder)
