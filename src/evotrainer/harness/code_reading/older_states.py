"""What an episode takes over of an older state of its repository: lines it puts back, files it brings back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from evotrainer.harness.code_reading import file_changes, shell
from evotrainer.harness.code_reading.actions import Action, normal
from evotrainer.harness.code_reading.git_readings import git_words
from evotrainer.harness.code_reading.paths import base_of
from evotrainer.harness.code_reading.test_files import elsewhere, is_test

_SIDE = {
    sign: re.compile(rf"^{re.escape(sign)}(?!{re.escape(sign)}{{2}} )[ \t]*(\S[^\n]{{7,}})$", re.MULTILINE)
    for sign in "-+"
}
_COMMON = re.compile(r"[#/*\"']|import |from |return$|else|try:|def |class ")
_OLD = re.compile(r"(?:HEAD|@)[~^]|--source[= ](?!(?:HEAD|@)(?:\s|$))|(?:^|\s)-[bBc]\b|\b[0-9a-f]{7,40}\b.* -- ")
_WAY_BACK = re.compile(r"git reset (?:--(?:hard|soft|mixed|keep) )?(?:ORIG_HEAD|(?:HEAD)?@\{1\})")
_NO_CODE = re.compile(r"\.(?:md|rst|txt|lock|json|ya?ml|toml|cfg|ini|csv|html|css|svg|png)$|(?:^|/)\.git\w+$")
_STAYS = frozenset({"--", "-b", "-B", "-c", "-C", "--orphan", "--ours", "--theirs", "-p", "--patch"})
WHOLE_FILE = 40
"""Characters of a shown file from which one that is written alike is that file."""


def taken_over(what: str, a: Action, printed: str, later: Sequence[Action]) -> bool:
    """Does the episode take over what the git command `what` of action `a` looked at?"""
    return _brought_back(what, a, later) or _put_back(printed, later)


def of_own_commits(what: str, commits: int) -> bool:
    """Is it about commits that the policy made itself, the difference to them, or the files before them?"""
    back = max((int(n or 1) for n in re.findall(r"HEAD[~^](\d*)", what)), default=0)
    if what.startswith(("git diff", "git reset")):
        return True
    if what.startswith(("git checkout", "git restore")) or re.search(r"HEAD\S*:", what):
        return 0 < back <= commits
    return what.startswith("git show") and back < commits


def way_back(what: str, a: Action, did: Sequence[Action]) -> bool:
    """Does it return to where the repository stood before a reset of the policy's own, the last that moved it?"""
    if not _WAY_BACK.fullmatch(what):
        return False
    for x in (a, *reversed(did)):
        gated = "git" in x.text and x.ok is not False and any(w in x.text for w in ("reset", "checkout", "switch"))
        done = [git_words(one) for one in shell.commands(normal(x))] if gated else []
        at = next((n for n, words in enumerate(done) if " ".join(["git", *words]) == what), 0) if x is a else len(done)
        for words in reversed(done[:at]):
            if words[:1] == ["reset"] and not {"--hard", "--soft", "--mixed", "--keep"}.isdisjoint(words):
                return True
            if "@{" in what and _goes_elsewhere(words):
                return False  # what it goes back to may be another's; ORIG_HEAD stays
    return False


def _goes_elsewhere(words: Sequence[str]) -> bool:
    """Is it a git command that goes to another branch, and not one that makes a branch or puts files there?"""
    named = [w for w in words[1:] if not w.startswith("-") or w == "-"]
    return (
        words[:1] in (["checkout"], ["switch"]) and not _STAYS.intersection(words) and not any("." in w for w in named)
    )


def _brought_back(what: str, a: Action, later: Sequence[Action]) -> bool:
    """Does the command itself put files of an older state there, where they then stay?"""
    done = [one for x in (a, *later) for one in shell.commands(normal(x)) if x is a or x.ok is not False]
    at = next((n for n, one in enumerate(done) if " ".join(["git", *git_words(one)]) == what), None)
    if at is None or not _puts_files(done[at], done[at + 1] if at + 1 < len(done) else None):
        return False
    return not any(_puts_now(one) for one in done[at + 1 :])


def _puts_files(one: shell.Simple, after: shell.Simple | None) -> bool:
    verb, *rest = git_words(one)
    if verb in ("checkout", "restore"):
        paths = [w for w in rest[rest.index("--") + 1 if "--" in rest else 1 :] if not w.startswith("-")]
        code = [p for p in paths if not (is_test(p) or _NO_CODE.search(p))]
        return bool(code) or not paths
    if verb == "reset":
        return "--hard" in rest
    if after is not None and after.piped and (after.name == "patch" or after.words[:2] == ["git", "apply"]):
        return True
    shown = {base_of(w.partition(":")[2]) for w in rest if ":" in w}
    return any(base_of(path) in shown and not elsewhere(path) and not is_test(path) for path, _ in one.writes)


def _puts_now(one: shell.Simple) -> bool:
    """Does a command put the present state back?"""
    verb, *rest = git_words(one) or [""]
    there = verb in ("checkout", "switch", "restore") or (verb == "reset" and "--hard" in rest)
    return there and not _OLD.search(" ".join(rest))


def _put_back(printed: str, later: Sequence[Action]) -> bool:
    """Do later edits take over most of what a commit changed: what it took away, or what it brought? One line of many
    is a look at how it was done, as one that searches for a regression takes. Or is a file written as it was shown?"""
    written = list(_written(later))
    if len(printed.strip()) > WHOLE_FILE and any(c.new.strip() == printed.strip() for c in written if c.new):
        return True
    for sign, pattern in _SIDE.items():
        lines = {m[1].strip() for m in pattern.finditer(printed[:200_000])}
        lines = {x for x in lines if re.search(r"\w.*\W.*\w", x) and not _COMMON.match(x)}
        came: set[str] = set()
        for c in written if lines else ():
            # a file written as a whole holds what was there before
            if c.new and (sign == "-" or c.way != "write"):
                came |= {x for x in lines if x in c.new and x not in c.old}
        if lines and 2 * len(came) >= len(lines):
            return True
    return False


def _written(later: Sequence[Action]) -> Iterator[file_changes.Change]:
    for a in later:
        yield from (c for c in file_changes.changes(a.name, a.text) if c.way != "remove")
