"""Texts around tasks through TRL: the system prompt reaches the policy as its own template has it, in training, in
evaluation, and where the exported model is served."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from evotrainer.envs.base import Task
from evotrainer.envs.simple import TextEnv
from evotrainer.extras.scaffold import write_scaffold
from evotrainer.records.recipe import Recipe, parse_recipe
from evotrainer.records.rollout import Rollout, Turn
from evotrainer.records.scaffold import slots_of
from evotrainer.trainers.base import EvalRequest, Identity, TrainRequest
from evotrainer.trainers.continued import train_chain, use_scaffold
from tests.trainers.trl.small_policy import SHAPE

pytest.importorskip("trl", reason="TRL is an extra: pip install 'evotrainer[trl]'")
pytestmark = pytest.mark.xdist_group("trl")

SYSTEM = 'Say "yes" {or} no,\nand 100% nothing else: ä 😀 {{ x }} {% if %}'
"""With what a template could take for its own."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from evotrainer.trainers.trl.folder import save_folder
    from evotrainer.trainers.trl.scratch import make_model, make_tokenizer

    tokenizer = make_tokenizer(["Is 1 odd? yes", "Is 2 odd? no"] * 20, (), 256)
    model = make_model(tokenizer, {**SHAPE, "context": 256}, 0)
    out = tmp_path_factory.mktemp("policy") / "base"
    save_folder(out, [model.save_pretrained, tokenizer.save_pretrained])
    return out


def environment() -> TextEnv:
    tasks = {
        s: [Task(f"{s}{i}", s, f"Is {10 * k + i} odd?", {}) for i in range(4)]
        for k, s in enumerate(("train", "search"))
    }
    return TextEnv("odd", tasks, {"short": lambda task, text: float(len(text) < 8)}, truth="short")


RECIPE = {"steps": 1, "prompts_per_step": 2, "group_size": 2, "max_tokens": 4, "rewards": {"short": 1.0}}


def rendered(policy: Path, said: list[dict[str, str]]) -> str:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(policy)
    return str(tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True))


def test_training_and_evaluation_read_the_recipes_texts(policy: Path, tmp_path: Path) -> None:
    from evotrainer.trainers.trl.trainer import TrlTrainer

    env, trained = environment(), list[Rollout]()
    recipe = parse_recipe(RECIPE | {"scaffold": {"system": SYSTEM, "prompt": "Think. {task} Answer:"}})
    seen: list[list[int]] = []

    class Watched(TrlTrainer):
        """Keeps what the policy is given in training."""

        def _session(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            session = super()._session(*args, **kwargs)
            prompt = session.transcript.prompt
            session.transcript.prompt = lambda turns: seen.append(prompt(turns)) or seen[-1]
            return session

    request = TrainRequest(Identity("r", "b1", 1), recipe, policy, tmp_path / "w")
    train_chain(Watched(), request, env, lambda groups: trained.extend(chain(*groups)), lambda row: None)
    use_scaffold(env, recipe)
    ask = EvalRequest(Identity("r", "b1", 1), recipe, policy, "search", 1, attempts=1)
    read = [*chain(*TrlTrainer().evaluate(ask, env, lambda _: None))]
    for r in (*trained, *read):
        system, task = r.turns[:2]
        assert (system.role, system.text) == ("system", SYSTEM)
        assert task.role == "user" and task.text.startswith("Think. Is ") and task.text.endswith(" odd? Answer:")
    from transformers import AutoTokenizer

    texts = AutoTokenizer.from_pretrained(policy).batch_decode(seen)
    assert texts and all(SYSTEM in t and t.index(SYSTEM) < t.index("Think. Is ") for t in texts)
    # what came before is read in its own texts, and other texts are other rollouts
    use_scaffold(env, Recipe())
    bare = [*chain(*TrlTrainer().evaluate(EvalRequest(ask.identity, parse_recipe(RECIPE), policy, "search", 1, 1), env, lambda _: None))]  # fmt: skip # noqa: E501
    assert {r.turns[0].role for r in bare} == {"user"} and not {r.id for r in bare} & {r.id for r in read}


def test_an_exported_model_is_served_with_its_system_prompt(policy: Path, tmp_path: Path) -> None:
    """The template of the exported folder gives a question what the policy was given in training, to the letter."""
    import shutil

    served = Path(shutil.copytree(policy, tmp_path / "served"))
    slots = slots_of({"slots": [s.model_dump() for s in environment().slots]})
    write_scaffold(served, parse_recipe({"scaffold": {"system": SYSTEM}}), slots)
    ask = [{"role": "user", "content": "Is 3 odd?"}]
    with_system = [{"role": "system", "content": SYSTEM}, *ask]
    assert rendered(served, ask) == rendered(policy, with_system) != rendered(policy, ask)
    own = [{"role": "system", "content": "Other."}, *ask]
    assert rendered(served, own) == rendered(policy, own), "a conversation's own system prompt stays"


def test_the_longest_prompt_is_measured_by_the_policys_own_template(policy: Path) -> None:
    from evotrainer.trainers import TRAINERS

    room = TRAINERS["trl"].room
    assert room is not None
    short, long = ([Turn("user", "Is 3 odd?")], [Turn("system", "Say yes. " * 20), Turn("user", "Is 3 odd?")])
    (a, b), context = room(policy, {}, [short, long])
    assert context == 256 and a < 40 < b
