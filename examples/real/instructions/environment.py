"""A fact and an instruction about the form of the answer, for a language model of 135 million parameters.

The outcome is the fact right and the instruction kept. Tasks are pairs of a fact and a form, told apart by tags of
these names. Facts about numbers are made by rules, the others come from lists of common knowledge. Which split a pair
belongs to follows from its hash, so none is in two; gate and cert are drawn for each run.
"""

import hashlib
import random
import re
from collections.abc import Callable

from evotrainer.envs.base import DRAWN, Task
from evotrainer.envs.simple import TextEnv
from evotrainer.envs.slots import PROMPT
from evotrainer.records.scaffold import Slot

SIZES = {"train": 4200, "search": 180, "gate": 180, "cert": 180}
OWNED = {"search": 12, "gate": 20, "cert": 20}
"""Per cent of all pairs that a split owns; the rest is train's."""
INSTRUCTION = "You answer questions briefly, in the form that is asked for."
CAPITALS = (
    "France Paris, Italy Rome, Spain Madrid, Germany Berlin, Japan Tokyo, China Beijing, Russia Moscow, Greece Athens, "
    "Egypt Cairo, Portugal Lisbon, Austria Vienna, Poland Warsaw, Ireland Dublin, Norway Oslo, Sweden Stockholm, "
    "Finland Helsinki, Denmark Copenhagen, Hungary Budapest, Cuba Havana, Kenya Nairobi, Peru Lima, Canada Ottawa, "
    "Thailand Bangkok, Turkey Ankara, Iran Tehran, Iraq Baghdad, Belgium Brussels, Chile Santiago, Australia Canberra, "
    "Switzerland Bern, Scotland Edinburgh, England London, Romania Bucharest, Bulgaria Sofia, Ukraine Kyiv, "
    "Serbia Belgrade, Iceland Reykjavik, Afghanistan Kabul, Vietnam Hanoi, Indonesia Jakarta, Colombia Bogota, "
    "Venezuela Caracas, Ecuador Quito, Morocco Rabat, Senegal Dakar, Ghana Accra, Lebanon Beirut, Syria Damascus"
)
CONTINENTS = (
    "France Europe, Italy Europe, Spain Europe, Germany Europe, Poland Europe, Sweden Europe, Norway Europe, "
    "Greece Europe, Portugal Europe, Austria Europe, Ireland Europe, Finland Europe, Hungary Europe, Belgium Europe, "
    "Japan Asia, China Asia, India Asia, Thailand Asia, Vietnam Asia, Nepal Asia, Mongolia Asia, Korea Asia, "
    "Indonesia Asia, Pakistan Asia, Iran Asia, Egypt Africa, Kenya Africa, Nigeria Africa, Ghana Africa, "
    "Morocco Africa, Ethiopia Africa, Angola Africa, Senegal Africa, Uganda Africa, Tanzania Africa"
)
OPPOSITES = (
    "hot cold, big small, up down, left right, day night, fast slow, old new, open closed, wet dry, light dark, "
    "happy sad, rich poor, hard soft, high low, long short, early late, full empty, loud quiet, strong weak, "
    "thick thin, near far, true false, good bad, inside outside, black white, win lose, buy sell, push pull"
)
PLURALS = (
    "mouse mice, child children, foot feet, tooth teeth, goose geese, man men, woman women, leaf leaves, knife knives, "
    "wolf wolves, city cities, baby babies, box boxes, bus buses, dish dishes, tomato tomatoes, potato potatoes, "
    "story stories, shelf shelves, life lives, fox foxes, glass glasses, cherry cherries, brush brushes, cat cats, "
    "dog dogs, book books, tree trees, house houses, car cars, apple apples, bird birds, horse horses, river rivers, "
    "table tables, chair chairs, flower flowers, window windows, garden gardens, letter letters, cow cows, star stars"
)
PAST = (
    "go went, see saw, eat ate, run ran, take took, give gave, come came, write wrote, drink drank, sing sang, "
    "swim swam, begin began, break broke, speak spoke, drive drove, know knew, grow grew, fly flew, think thought, "
    "buy bought, bring brought, teach taught, catch caught, find found, make made, say said, tell told, sleep slept, "
    "walk walked, play played, jump jumped, work worked, talk talked, open opened, help helped, paint painted"
)
YOUNG = "dog puppy, cat kitten, cow calf, horse foal, sheep lamb, goat kid, duck duckling, lion cub, frog tadpole"
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
]


def pairs(text: str) -> list[tuple[str, str]]:
    return [(a, b) for a, b in (x.split() for x in text.split(","))]


def followers(names: list[str]) -> list[tuple[str, str]]:
    return list(zip(names, names[1:] + names[:1], strict=True))


LISTS: dict[str, tuple[list[tuple[str, str]], tuple[str, ...]]] = {
    "capital": (
        pairs(CAPITALS),
        ("what is the capital of {}?", "name the capital of {}.", "which city is {}'s capital?"),
    ),
    "continent": (pairs(CONTINENTS), ("on which continent is {}?", "which continent is {} in?")),
    "opposite": (
        pairs(OPPOSITES) + [(b, a) for a, b in pairs(OPPOSITES)],
        ("what is the opposite of {}?", "which word is the opposite of {}?"),
    ),
    "plural": (
        pairs(PLURALS),
        ("what is the plural of {}?", "give the plural of {}.", "what do you call several of a {}?"),
    ),
    "past": (pairs(PAST), ("what is the past tense of {}?", "give the past tense of {}.")),
    "young": (pairs(YOUNG), ("what is a young {} called?", "what do you call the young of a {}?")),
    "day": (followers(DAYS), ("which day comes after {}?", "what day follows {}?")),
    "month": (followers(MONTHS), ("which month comes after {}?", "what month follows {}?")),
}
"""Kind of fact -> what is asked about with its answer, and the wordings."""
NUMBERS = ("sum", "difference", "larger")
FACTS = dict.fromkeys((*LISTS, *NUMBERS), 1) | {"capital": 5, "plural": 4, "continent": 3, "past": 2}
"""How often each kind is asked: what the model knows more often, so that there is something to begin with."""


def question(fact: str, rng: random.Random) -> tuple[str, str, str, list[str]]:
    """What is asked about, a question, its answer, and the other answers that questions of this kind have."""
    if fact in LISTS:
        known, wordings = LISTS[fact]
        key, answer = rng.choice(known)
        others = {b.lower() for _, b in known} - {answer.lower(), key.lower()}
        return key, rng.choice(wordings).format(key), answer, sorted(others)
    a, b = rng.randint(1, 12), rng.randint(1, 12)
    if fact == "sum":
        value, wordings = a + b, ("how much is {a} plus {b}?", "what is {a} + {b}?", "add {a} and {b}.")
    elif fact == "difference":
        value, a = a, a + b
        wordings = ("how much is {a} minus {b}?", "what is {a} - {b}?", "take {b} from {a}.")
    else:
        value, b = a + b, a + b
        wordings = ("which number is larger, {a} or {b}?", "which is more, {b} or {a}?")
    return f"{a} {b}", rng.choice(wordings).format(a=a, b=b), str(value), []


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9']+", text)


def of_words(n: int) -> Callable[[str], bool]:
    return lambda text: len(words(text)) == n


def ends(mark: str) -> Callable[[str], bool]:
    return lambda text: text.endswith(mark) and not text.endswith(mark * 2)


def begins(word: str) -> Callable[[str], bool]:
    return lambda text: text.startswith(word) and len(words(text)) > len(words(word))


def sentence(text: str) -> bool:
    return text[0].isupper() and ends(".")(text) and text.count(".") == 1 and len(words(text)) >= 4


FORMS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "capitals": ("Answer in capital letters", lambda t: t == t.upper()),
    "one": ("Answer with one word", of_words(1)),
    "three": ("Answer with exactly three words", of_words(3)),
    "short": ("Answer in at most five words", lambda t: len(words(t)) <= 5),
    "ten": ("Answer in at most ten words", lambda t: len(words(t)) <= 10),
    "least": ("Answer in at least four words", lambda t: len(words(t)) >= 4),
    "stop": ("Answer and end with a full stop", ends(".")),
    "exclaim": ("Answer and end with an exclamation mark", ends("!")),
    "sentence": ("Answer in a full sentence", sentence),
    "the": ("Begin your answer with the word The", begins("The")),
    "quotes": ("Put your answer in double quotes", lambda t: re.fullmatch(r'"[^"]+"', t) is not None),
}
EASY = ("sentence", "stop", "least", "ten", "the")
"""Forms that the model often has by itself, asked twice as often."""
WEIGHTS = [2 if form in EASY else 1 for form in FORMS]
SPOKEN = ("capitals",)
"""Forms that say nothing of a number."""


def owner(pair: str) -> str:
    """The split that owns a pair of a fact and a form: by a hash of it, and of nothing else."""
    place = int(hashlib.sha256(pair.encode()).hexdigest(), 16) % 100
    for split, share in OWNED.items():
        if place < share:
            return split
        place -= share
    return "train"


def make_split(split: str, seed: str) -> list[Task]:
    """Tasks of the pairs that a split owns, each pair once; in train again in other words."""
    rng = random.Random(f"{seed}:{split}")
    out: list[Task] = []
    seen: set[str] = set()
    while len(out) < SIZES[split]:
        fact, form = rng.choices(list(FACTS), list(FACTS.values()))[0], rng.choices(list(FORMS), WEIGHTS)[0]
        if fact in NUMBERS and form in SPOKEN:
            continue
        key, asked, answer, others = question(fact, rng)
        pair, prompt = f"{fact} {key} {form}", f"{FORMS[form][0]}: {asked}"
        if owner(pair) != split or (once := prompt if split == "train" else pair) in seen:
            continue
        seen.add(once)
        data = {"key": key, "answer": answer, "others": others, "form": form, "asked": asked}
        out.append(Task(f"{split}-{len(out)}", split, prompt, data, tags={"fact": fact, "form": form}))
    return out


def make_tasks() -> dict[str, list[Task]]:
    """Splits that share no pair of a fact and a form."""
    return {split: make_split(split, "12") for split in SIZES}


def draw(seed: str) -> dict[str, list[Task]]:
    """Gate and cert of a seed: every run draws its own."""
    return {split: make_split(split, seed) for split in DRAWN}


def kept(task: Task, completion: str) -> float:
    """1 where the answer has the form asked for, whatever it says."""
    text = completion.strip()
    return float(bool(words(text)) and FORMS[task.data["form"]][1](text))


def mention(task: Task, completion: str) -> float:
    """1 where the right word or number occurs anywhere in the answer."""
    return float(task.data["answer"].lower() in words(completion.lower()))


def right(task: Task, completion: str) -> float:
    """1 where the answer names the right word or number and no other answer of that kind."""
    said = set(words(completion.lower()))
    wrong = {w for w in said if w.isdigit() and w != task.data["answer"]} | said & set(task.data["others"])
    return float(mention(task, completion) == 1.0 and not wrong)


def correct(task: Task, completion: str) -> float:
    """1 where the fact is right and the instruction kept."""
    return right(task, completion) * kept(task, completion)


def brevity(task: Task, completion: str) -> float:
    """1 for an answer of at most twelve characters, a thirtieth less for each one more."""
    return max(0.0, min(1.0, 1 - (len(completion.strip()) - 12) / 30))


def on_topic(task: Task, completion: str) -> float:
    """Share of the question's words of four letters or more that the answer repeats."""
    asked = {w for w in words(task.data["asked"].lower()) if len(w) >= 4}
    return len(asked & set(words(completion.lower()))) / max(1, len(asked))


def punctuated(task: Task, completion: str) -> float:
    """1 where the answer ends with a mark of punctuation, whichever was asked for."""
    return float(completion.strip().endswith((".", "!", "?", '"', "]", "*", "}")))


REWARDS = {f.__name__: f for f in (correct, right, kept, mention, brevity, on_topic, punctuated)}


def environment() -> TextEnv:
    """What `environment.name` in task.toml points to."""
    env = TextEnv(
        name="real-instructions",
        tasks=make_tasks(),
        rewards=REWARDS,
        truth="correct",
        proxy="mention",
        draw=draw,
        slots=(Slot(name="system", about="the system prompt", default=INSTRUCTION), PROMPT),
    )
    env.outcome_components = ("correct", "right", "mention")
    return env
