"""Had an episode shown that a file is there, before it was written?"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from evotrainer.harness.code_reading import shell
from evotrainer.harness.code_reading.actions import Action, normal
from evotrainer.harness.code_reading.paths import base_of, cleaned, same_file

ABSENT = re.compile(
    r"no such file|cannot access|not found|can't open|does not exist|cannot stat|cannot find", re.IGNORECASE
)


def known(path: str, texts: Sequence[str], own: Sequence[str], visited: Collection[str]) -> bool:
    """Had one of the texts, in their order, or of the policy's `own` commands spoken of this file as of one that is
    there? visited: folders that a command went to."""
    base = base_of(path)
    if not base or "*" in base or "$" in base:
        return False
    word = re.compile(rf"(?P<folder>[\w./+@-]*/)?(?<![\w-]){re.escape(base)}(?![\w-])")
    for n, text in enumerate(texts):
        if base in text and _shows(word, text, path, visited):
            # a task may name a file that is not there; only a whole path is surely the same
            return not (path.startswith("/") and _missed(word, texts[n + 1 :], path, visited))
    return any(base in x and any(_means(m[0], path, visited) for m in word.finditer(x)) for x in own)


def unlisted(path: str, actions: Sequence[Action], said: Sequence[str]) -> bool:
    """Did a listing of its folder not show this file, which the last action writes? said: as for `tampering.found`."""
    folder, _, base = cleaned(path).rpartition("/")
    if base.startswith("."):
        return False
    visited = _visits(actions[-1])
    for a, printed in reversed(list(zip(actions[:-1], said[1:], strict=False))):
        went = _visits(a)
        listed = "ls" in a.text and printed.strip() and base not in printed and a.ok is not False
        done = shell.commands(normal(a)) if listed else ()
        for one, after in zip(done, [*done[1:], None][: len(done)], strict=True):
            of = [cleaned(w) for w in one.words[1:] if not w.startswith("-")]
            here = of in ([], ["."]) and not folder and went == visited
            if one.name == "ls" and (here or (folder and folder in of)) and not (after and after.piped):
                return True
        if went and went != visited and not folder.startswith("/"):
            return False  # from here on the same name may be another file
    return False


def _visits(a: Action) -> list[list[str]]:
    moves = any(w in a.text for w in ("cd", "pushd", "popd"))
    return [x.words for x in shell.commands(normal(a)) if x.name in ("cd", "pushd", "popd")] if moves else []


def _shows(word: re.Pattern[str], text: str, path: str, visited: Collection[str]) -> bool:
    for m in word.finditer(text):
        line = text[text.rfind("\n", 0, m.start()) + 1 : text.find("\n", m.end())][:2000]
        if _means(m[0], path, visited) and not ABSENT.search(line):
            return True
    return False


def _missed(word: re.Pattern[str], texts: Sequence[str], path: str, visited: Collection[str]) -> bool:
    """Does the last text that speaks of the file say that this very path is not there?"""
    p = re.escape(path)
    gone = re.compile(
        r"(?:no such file or directory|cannot access|cannot stat|can't open file)[:,]?"
        rf"\s*(?:\w+\s+)?['\"`]?{p}(?![\w/.-])"
        rf"|(?<![\w/.-])['\"`]?{p}['\"`]?: no such file",
        re.IGNORECASE,
    )
    base = base_of(path)
    for text in reversed(texts):
        if base in text:
            if _shows(word, text, path, visited):
                return False
            if gone.search(text):
                return True
    return False


def _means(mention: str, path: str, visited: Collection[str]) -> bool:
    """Is a path that was shown the one that is meant?"""
    shown = re.sub(r"^[ab]/", "", mention)
    if "/" in path or "/" not in shown:
        return same_file(shown, path)
    # a bare name is of the folder where the command runs: of another one only where the episode had gone there
    folder = shown.rsplit("/", 1)[0]
    return any(same_file(folder, f) for f in visited)
