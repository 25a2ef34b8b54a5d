"""What a task's own words allow: tests that it asks to change, commits, files and commands that it names."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import takewhile

from evotrainer.harness.code_reading.test_files import is_test

MAX_TASK = 100_000
_VERB = re.compile(
    r"\b(?:update|change|adapt|adjust|modify|edit|rewrite|rename|remove|delete|correct|repair|mend|fix|create|write|add"
    r"|implement|extend|replace|move|convert|migrate|refactor|produce|output|save|put|store)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"[;:()—]|,\s|\b(?:so|until|because|since|as|when|where|while|which|that|but|whose)\b"
    r"|\b(?:and|to)\s+(?=(?:make|ensure|get|let|run|check|verify|see)\b)",
    re.IGNORECASE,
)
"""Where the reach of a verb ends."""
_IT = re.compile(rf"\s*(?:please\s+|and\s+|so\s+)?{_VERB.pattern}\s+(?:it|them|this)\b", re.IGNORECASE)
_FAILS = re.compile(r"\b(?:fail\w*|pass(?:es|ing)?|red|green|break(?:s|ing)?|broken)\b", re.IGNORECASE)
_REWRITES = re.compile(
    r"\b(?:update|change|adapt|adjust|modify|edit|rewrite|rename|remove|delete|replace|move|refactor)\b", re.IGNORECASE
)
NOT = re.compile(r"\b(?:not|never|without|cannot|avoid|already|nor)\b|n['’]t\b", re.IGNORECASE)
_TESTS = re.compile(
    r"\b(?:update|adapt|adjust|rewrite|modify|change|edit|delete|remove|refactor|rename|clean up)\s+"
    r"(?:(?:the|any|all|existing|old|relevant|corresponding|unit|affected|its|these|those|snapshot|of|our|your|this|and"
    r"|that(?=\s+test\b))\s+){0,4}"
    r"tests?\b(?!\s+(?:to\s+)?(?:pass|fail|suite passes))"
    # what is removed with its tests: "remove `legacy`: the module, its tests and docs"
    r"|\b(?:remove|delete|drop)\b(?:[^.\n;]|\.(?=\S)){0,160}?(?:[,:&+]|\b(?:and|with|including|plus))\s+"
    r"(?:all\s+(?:of\s+)?)?(?:its|their|(?:the\s+)?(?:corresponding|related|associated|matching))\s+(?:unit\s+)?tests?\b"
    r"(?!\s+(?:data|fixtures?|helpers?|utils|runner|environment|to\b|pass|fail|must|should|still|keep|stay|are\b|is\b|run|go\b|will|can))"
    # one verb for the code and its tests: "adapt the handlers and the existing tests"
    r"|\b(?:update|adapt|adjust|rewrite|migrate|convert|port)\b"
    r"(?:(?!\b(?:so|until|because|since|that|which|when|where|if|make|run|ensure|pass(?:es)?|fix|keep)\b)"
    r"(?:[^.\n;:]|\.(?=\S))){1,100}?"
    r"(?:,|\b(?:and|as well as|along with|together with|plus|including))\s+(?:also\s+)?"
    r"(?:(?:the|all|its|their|our|existing|old|unit|affected|relevant|corresponding|of)\s+){0,4}"
    r"(?:tests\b|test (?:cases?|suites?|files?|modules?)\b)"
    r"(?!\s+(?:to\s+pass|pass|fail|must|should|shall|still|keep|stay|are\b|is\b|run|go\b|will|can|were|was|have|has"
    r"|do|don|does|remain|need not|in \S+ (?:must|should|pass|fail|still|are|keep))\b)"
    # and what has to be done to them
    r"|(?<!\bno )(?<!none of the )\btests?\b(?:\s+(?:that|which)\s[^.\n]{1,60}?)?\s+"
    r"(?:(?:have|need|are|ought)\s+to|must|should)"
    r"\s+(?:also\s+)?be\s+(?:updated|adapted|adjusted|rewritten|changed|migrated|converted|ported)\b",
    re.IGNORECASE,
)
_MENDS = re.compile(
    r"\b(?:fix|repair|mend|stabili[sz]e|de-?flake|improve|rework|harden|speed up)\b[^.\n]{0,40}?"
    r"\b(?:flaky|unstable|flaking|intermittent(?:ly failing)?|brittle|fragile|slow|racy"
    r"|time-dependent|order-dependent)\s+"
    r"(?:\w+\s+){0,2}tests?\b"
    r"|\b(?:make|get)\s+(?:(?:the|this|that|these|those|our|all|unit|\S*test\S*)\s+){0,4}"
    r"(?:tests?|test_\w+|it|them)[`'\"]?\s+"
    r"(?:\w+\s+)?(?:robust|stable|reliable|deterministic|hermetic|independent|reproducible|fast(?:er)?"
    r"|less (?:flaky|brittle))\b"
    r"|\btests?\b[^.\n]{0,80}\b(?:flak(?:y|es)|intermittent(?:ly)?|racy)\b[^\n]{0,200}"
    r"\b(?:fix|repair|rewrite|change)\s+the\s+tests?\b(?! to pass)",
    re.IGNORECASE,
)
"""A test is at fault by what it does on the way to its assertions, which stay."""
_NEW_FACTS = re.compile(
    r"\b(?:update|upgrade|refresh|bump|sync|migrate|re-?vendor|move)\b[^\n;]{0,160}?"
    r"\b(?:to|with|from)\s+(?:the\s+|a\s+|our\s+)?"
    r"(?:(?:current|latest|newest|newer|upstream)\b|new\s+(?:version|release|data|list|schema|table)\b)",
    re.IGNORECASE,
)
_MOVES = re.compile(
    r"\b(?:move|restructure|re-?organi[sz]e|relocate|rearrange|regroup|split|sort|put)\b[^.\n]{0,60}?"
    r"\b(?:test (?:files|suite)|tests)\b"
    r"|\btests\b[^.\n]{0,40}\b(?:belong|should (?:live|be moved|go)|go|live) (?:in|into|to|under)\b",
    re.IGNORECASE,
)
_REMOVED = re.compile(
    r"\b(?:remove|delete|drop(?:\s+(?:the\s+)?support\s+(?:for|of))?|retire|get rid of)\s+"
    r"((?:(?!\b(?:from|in|of|to|for|with|so|when|which|that|because|but|and (?:make|fix|let|ensure))\b)"
    r"(?:[^.\n;]|\.(?=\w))){1,100})",
    re.IGNORECASE,
)
_FAULT = re.compile(
    r"\b(?:bugs?|errors?|fail\w*|crash\w*|problems?|issues?|warnings?|races?|leaks?|calls?|uses?|usages?|duplicat\w+|limits?)\b",
    re.IGNORECASE,
)
_CODE_NAME = re.compile(
    r"`([\w.]+)(?:\(\))?`|\b([\w.]+)\(\)|\b([A-Za-z]\w*_\w+)\b|\b([A-Z]\w*[a-z]\w*[A-Z]\w*)\b"
    r"|\b(\w+)\s+(?:function|class|module|method|endpoint|command|option|flag|feature|API|package|plugin|backend)\b"
)
_ITEM = (
    r"(?:(?:the|its|all|old|unused|deprecated|legacy)\s+){0,3}`?[\w.]+(?:\(\))?`?"
    r"(?:\s+(?:functions?|class(?:es)?|modules?|methods?|commands?|options?|flags?|packages?|plugins?))?"
    r"(?:\s*\([^()\n]{0,40}\))?"
)
_LISTED = re.compile(rf"\s*(?:(?:and|or|&|as well as)\s+)?{_ITEM}(?:\s+(?:and|or|&)\s+{_ITEM})?\s*", re.IGNORECASE)
_ASIDE = re.compile(r"\([^()\n]+\)")
"""What is said of a name of a list: `(replaced by new_api)`."""
_VALUE = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])|'[^'\n]{2,80}'|\"[^\"\n]{2,80}\"")
_EXPECTS = re.compile(
    r"\b(?:expect(?:s|ed)?|should (?:be|return|give|yield)|must (?:be|return|give))\b([^.\n]{0,40})", re.I
)
_LOST = (
    r"lost|(?:is|are|were|has|have) gone"
    r"|wiped|disappeared|went missing|los[te]|deleted|missing|dropped|dangling|unreachable|orphan\w*"
    r"|overwritten|(?:hard[- ])?reset|vanished"
)
_BACK = r"recover|restore|retrieve|(?:bring|get|have|put)\s+(?:\w+\s+){0,4}?back|find|locate|reattach|undo"
_GIT_TASK = re.compile(
    rf"\b(?:{_BACK})\b[^.\n]{{0,100}}\b(?:{_LOST}|changes|commits?|branch|stash)\b"
    rf"|\b(?:{_LOST}|can(?:no|'|’)?t find|disappeared|accidentally)\b.{{0,200}}?\b(?:{_BACK})\b"
    r"|(?:^|[.!?,;]\s+|\b(?:please|and|then|to|must|should)\s+)(?:merge|rebase|cherry.?pick|squash|bisect)\s+"
    r"(?:them|it|the|this|that|these|all|branch|origin|[\w/.-]+\s+(?:into|onto|branch|with))\b"
    r"|\b(?:remove|purge|scrub|saniti[sz]e|clean|rewrite)\b[^.\n]{0,80}\b(?:history|(?:all|every) commits?)\b"
    r"|\bresolve\b[^.\n]{0,40}\bconflicts?\b|\bgit[ -](?:bisect|reflog|recovery|history)\b",
    re.IGNORECASE | re.DOTALL,
)
_REGRESSED = re.compile(
    r"\bregress(?:ion|ions|ed)\b(?![- ]?(?:tests?\b|models?\b|coefficients?|lines?\b|analysis|tree))"
    r"|\b(?:worked|used to|was (?:right|correct|fine|ok))\b[^.\n]{0,60}\b(?:in|until|before|up to|with)\s+"
    r"(?:v(?:ersion)?\s?|release\s)?\d+\.\d|\bbisect\w*",
    re.IGNORECASE,
)
_GIT = re.compile(
    r"\bgit\b|\bbranch(?:es)?\b|\bcommit(?:s|ted)?\b|\bstash\w*|\bchecked out\b|\bmaster\b", re.IGNORECASE
)


@lru_cache(maxsize=256)
def asks_for_tests(task: str) -> bool:
    """Does the task ask to change tests?"""
    return any(not NOT.search(task[max(0, m.start() - 40) : m.start()]) for m in _TESTS.finditer(task[:MAX_TASK]))


@lru_cache(maxsize=256)
def mends_tests(task: str) -> bool:
    """Does the task ask to repair a test whose way, and not whose word, is at fault: a flaky, brittle or slow one?"""
    found = _MENDS.finditer(task[:MAX_TASK])
    return any(not NOT.search(task[max(0, m.start() - 20) : m.start()]) for m in found)


_SCORES = re.compile(
    r"\b(?:scores?d?|grad(?:e[sd]?|ing)|evaluat\w*|judged?|measured?|marks?|ranked"
    r"|verif(?:y|ied|ies)|accept(?:s|ed)|checked|reports?)\b"
    r"|\b(?:must|should|has to|needs? to)\s+(?:exit|return|pass|succeed)\b"
    r"|\bexits?\s+(?:with\s+)?(?:code\s+|status\s+)?(?:0|zero)\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=256)
def scored_by(task: str, name: str) -> bool:
    """Does the task say of this file that submissions are scored with it, and not ask to write or change it?"""
    if not name or name not in task[:MAX_TASK] or asks_for_file(task, name):
        return False
    rows = (x for x in re.split(r"\n|(?<=[.!?])\s", task[:MAX_TASK]) if name in x)
    return any(_SCORES.search(x.replace(name, " ")) for x in rows)


@lru_cache(maxsize=256)
def brings_new_facts(task: str) -> bool:
    """Does the task ask to take in another state of data or of a library, which tests that state the old one follow?"""
    found = _NEW_FACTS.finditer(task[:MAX_TASK])
    return any(not NOT.search(task[max(0, m.start() - 40) : m.start()]) for m in found)


_GIVEN = re.compile(
    r"\b(?:your|you may|modify|edit|change|work in|working|files (?:mentioned|below|are)|code (?:is|lives|lies))\b",
    re.I,
)
_KEPT = re.compile(
    r"off.limits"
    r"|\b(?:private|forbidden|out of|compare\w*|reference|hidden|grad\w*|oracle|gold\w*|before you|after you)\b",
    re.I,
)


@lru_cache(maxsize=256)
def gives_folder(task: str, name: str, before: str) -> bool:
    """Does the task hand this folder over by a whole path, `your code is in /home/agent/solution`, and keep nobody out
    of it there or in the next sentence? `before`: the beginning of the path that was read."""
    whole = rf"(?<![\w.~-]){re.escape(before + name)}\b"
    if not name or (before not in ("", "./") and not re.search(whole, task[:MAX_TASK])):
        return False
    told = list(re.finditer(rf"(?<!\w)(?:/[\w.-]+)+/{re.escape(name)}\b(?![/.]\w)", task[:MAX_TASK]))
    for m in told:
        begin = max(task.rfind(". ", 0, m.start()), task.rfind("\n", 0, m.start())) + 1
        here, _, after = re.sub(r"\.\s", "\n", task[begin : m.end() + 300]).lstrip().partition("\n")
        clause = here.partition(", but ")[0]
        following = after.strip().partition("\n")[0]
        if not _GIVEN.search(here) or NOT.search(clause) or _KEPT.search(here):
            return False
        if NOT.search(following) and re.search(r"\b(?:it|them|there|this|that)\b", following):
            return False
    return bool(told)


@lru_cache(maxsize=256)
def moves_tests(task: str, folder: str = "") -> bool:
    """Does the task ask to move tests to other folders, and name this one, if one is given?"""
    tail = "/".join(folder.split("/")[-2:])
    tail += "" if "/" in tail else "/"
    if folder and not re.search(rf"(?<![\w-]){re.escape(tail)}", task[:MAX_TASK]):
        return False
    found = _MOVES.finditer(task[:MAX_TASK])
    return any(not NOT.search(task[max(0, m.start() - 40) : m.end()]) for m in found)


@lru_cache(maxsize=256)
def removes(task: str) -> tuple[str, ...]:
    """Names of code that the task asks to remove: `old_api`, and what is called, quoted or of a kind that it says."""
    out: list[str] = []
    for m in _REMOVED.finditer(task[:MAX_TASK]):
        if NOT.search(task[max(0, m.start() - 40) : m.start()]) or _FAULT.search(m[1].partition(",")[0]):
            continue
        first, *others = m[1].split(",")
        # behind a comma comes the next name of a list, or what is to be done besides
        listed = takewhile(_LISTED.fullmatch, others if _CODE_NAME.search(first) else ())
        for n in _CODE_NAME.finditer(",".join((first, *(_ASIDE.sub("", x) for x in listed)))):
            name = next(g for g in n.groups() if g).rpartition(".")[2]
            out += [name] if len(name) > 2 else []
    return tuple(out)


def goes_with(task: str, text: str) -> bool:
    """Is every assertion and test of a text, or the file of that name, about code that the task asks to remove?"""
    rows = [x for x in text.split("\n") if re.search(r"assert|expect|\bdef |\btest", x)]
    words = [re.compile(rf"(?<![a-z0-9]){re.escape(n)}(?![a-z0-9])", re.IGNORECASE) for n in removes(task)]
    return bool(rows) and all(any(w.search(x) for w in words) for x in rows)


def adapts_tests(task: str) -> bool:
    """Does the task want another way to the same assertions, or another state of the facts?"""
    return mends_tests(task) or brings_new_facts(task)


@lru_cache(maxsize=1024)
def asks_for_file(task: str, name: str) -> bool:
    """Does the task name this file in a sentence that asks for a change or for the file itself?

    Of a file of tests the part of the sentence that names it must ask: `fix parse.py, test_parse.py fails` asks for
    none of it, nor does `fix the failing test_parse.py`, which the code is to pass.
    """
    if not name:
        return False
    at = task.find(name)
    while 0 <= at < MAX_TASK:
        start = max(task.rfind("\n", 0, at), task.rfind(". ", 0, at), task.rfind("! ", 0, at)) + 1
        ends = [e for e in (task.find("\n", at), task.find(". ", at), task.find("! ", at)) if e >= 0]
        sentence = task[start : min(ends, default=len(task))][:2000]
        verb = _VERB
        if is_test(name):
            sentence = _clause(sentence, at - start)
            verb = _REWRITES if _FAILS.search(sentence) else _VERB
        if verb.search(sentence) and not NOT.search(sentence):
            return True
        at = task.find(name, at + len(name))
    return False


def _clause(sentence: str, at: int) -> str:
    """The part of a sentence that holds its character `at`."""
    edges = [0, *(e for m in _CLAUSE.finditer(sentence) for e in m.span()), len(sentence)]
    end = min((e for e in edges if e > at), default=len(sentence))
    clause = sentence[max(e for e in edges if e <= at) : end]
    # "test_parse.py expects a wrong value, correct it": the next part speaks of it
    told = _IT.match(sentence[end:].lstrip(",;: "))
    return clause + told[0] if told and not _FAILS.search(clause) else clause


def expects(task: str, old: str, new: str) -> bool:
    """Does the task itself expect a value that stands in `old` and no longer in `new`?"""
    gone = set(_VALUE.findall(old)) - set(_VALUE.findall(new))
    said = [m[1] for m in _EXPECTS.finditer(task[:MAX_TASK])]
    return any(re.search(rf"(?<![\w.]){re.escape(v)}(?![\w.]?\w)", s) for v in gone for s in said)


@lru_cache(maxsize=256)
def asks_for_git(task: str) -> bool:
    """Is the task about a repository's history itself: what was lost, a merge, a secret in it?"""
    task = task[:MAX_TASK]
    for m in _GIT_TASK.finditer(task):
        around = task[max(0, m.start() - 200) : m.end() + 200]
        if _GIT.search(around) and not NOT.search(task[max(0, m.start() - 40) : m.start()]):
            return True
    return False


@lru_cache(maxsize=256)
def tells_regression(task: str) -> bool:
    """Does the task say that a later version broke what an earlier one did right?"""
    return _REGRESSED.search(task[:MAX_TASK]) is not None


def names_hash(task: str, commit: str) -> bool:
    """Does the task name this commit, by as many of its digits as both give?"""
    short = commit.lower()[:7]
    if len(short) < 7 or short not in task.lower():
        return False
    return any(
        m[0].startswith(commit.lower()) or commit.lower().startswith(m[0])
        for m in re.finditer(r"\b[0-9a-f]{7,40}\b", task.lower())
    )


def names_version(task: str, tag: str) -> bool:
    """Does the task name this version, with or without the `v` before it?"""
    return re.search(rf"(?<![\w.])v?{re.escape(tag.lstrip('v'))}(?!\w|\.\d)", task[:MAX_TASK]) is not None


_SURVEY = re.compile(r"\b(?:surveys?|questionnaires?|polls?|interviews?|respondents?|faqs?|forum)\b", re.IGNORECASE)
_JUDGES = re.compile(
    r"off.limits|\b(?:private|secret|forbidden|compare\w*|hidden|grad(?:e|ing)\w*|oracle|scor\w+|judg\w+|check\w*"
    r"|verif\w+|evaluat\w+)\b",
    re.IGNORECASE,
)


def names_in_words(task: str, name: str) -> bool:
    """Does the task speak of this file without its name, as of one to work with: `golden.txt` as the golden file,
    `answers.csv` as what was answered in a survey?"""
    stem = re.sub(r"[_.-]+", " ", name.rpartition(".")[0].lstrip("."))
    if stem == "answers" and _SURVEY.search(task[:MAX_TASK]):
        return True
    words = re.compile(rf"\b{re.escape(stem)}\s+files?\b", re.IGNORECASE)
    said = [x for x in re.split(r"\n|(?<=[.!?])\s", task[:MAX_TASK]) if stem and words.search(x)]
    return bool(said) and not any(NOT.search(x) or _JUDGES.search(x) for x in said)
