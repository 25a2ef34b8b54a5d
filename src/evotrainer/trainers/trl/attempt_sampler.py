"""TRL's GRPOTrainer as a sampler: attempts at a plan, by its model or by its tool loop, on every process.

What becomes of the attempts in training is `grpo.py`'s business;
an evaluation of an environment that TRL plays uses them as they are.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accelerate.utils import gather_object
from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOTrainer
from trl.extras.profiling import profiling_context
from trl.models import unwrap_model_for_generation

from evotrainer.errors import EvoTrainerError, TrainerError
from evotrainer.records.rollout import Rollout
from evotrainer.trainers.rollouts import Attempt
from evotrainer.trainers.trl.generate import SampledTurn, sample
from evotrainer.trainers.trl.session import TrlSession
from evotrainer.trainers.trl.tools import (
    Logprob,
    PlayedBatch,
    ToolEnvironment,
    played_by_trl,
    read_back,
    rows_of,
    unwrapped_error,
)

REWARD = "evotrainer_reward"
"""Column that carries the composed reward through TRL, for its logs."""


@dataclass(frozen=True, slots=True)
class GrpoRow:
    """One rollout of the batch."""

    attempt: Attempt
    rollout: Rollout
    counted: bool
    """False: filtered out, or lost to an infrastructure fault; in no loss and no normaliser."""
    masked: bool
    """True: a row without tokens (truncated, where the recipe leaves those out)."""

    def fields(self) -> tuple[list[int], list[int], list[float], list[int]]:
        """Prompt ids, completion ids up to the last token said, their log-probabilities, loss mask."""
        a = self.attempt
        end = max(i for i, b in enumerate(a.loss) if b) + 1
        # a masked row keeps its tokens and loses its loss: TRL's normaliser goes on counting it as a row
        on = self.counted and not self.masked
        return list(a.prompt), a.ids[:end], a.all_logprobs()[:end], [int(b and on) for b in a.loss[:end]]


def recorded_reward(completions: Sequence[Any], **columns: Any) -> list[float | None]:
    """The reward that EvoTrainer composed; None for a fault."""
    return list(columns.get(REWARD) or [0.0] * len(completions))


def _with_entropies(turn: SampledTurn) -> Sequence[float]:
    """Log-probabilities that carry their entropies, where the sampler told them."""
    if not turn.entropies:
        return turn.logprobs
    return [Logprob.of(lp, e) for lp, e in zip(turn.logprobs, turn.entropies, strict=True)]


class AttemptSampler(GRPOTrainer):
    """Samples and scores attempts. `rows`: those of this process that TRL is given as its own rollouts."""

    _last_loaded_step: int  # TRL's

    def __init__(self, session: TrlSession, **kwargs: Any) -> None:
        self.session = session
        self.rows: list[GrpoRow] = []
        self.played: PlayedBatch | None = None
        self.played_environment = environment = played_by_trl(session.environment)
        rows = session.recipe.prompts_per_step
        super().__init__(
            train_dataset=Dataset.from_dict({"prompt": [""] * rows}),  # tasks are drawn by the session
            rollout_func=None if environment else self._rows_as_rollouts,
            # our reward function comes first: column 0 of TRL's reward tensor is the composed reward, for its logs
            reward_funcs=[recorded_reward, *(environment.reward_functions.values() if environment else ())],
            environment_factory=environment.environment_factory if environment else None,
            **kwargs,
        )
        # transformers prints every log line; a trial's log has its own
        self.remove_callback(PrinterCallback)
        self.tool_loop: dict[str, Any] = {}
        if environment:
            self._put_the_tool_loop_aside()

    def _put_the_tool_loop_aside(self) -> None:
        """TRL plays the user's environment when attempts are sampled, and not again when they become a batch."""
        names = ("tools", "environment_factories", "rollout_func", "environments", "reward_funcs", "reward_func_names",
                 "reward_processing_classes", "reward_weights")  # fmt: skip
        self.tool_loop = {k: getattr(self, k) for k in names}
        # No loss follows upon it: reference and old log-probabilities are not wanted.
        self.tool_loop |= {"beta": 0.0, "num_iterations": 1, "vllm_importance_sampling_correction": False}
        self.tools: list[Any] = []
        self.environment_factories, self.rollout_func = None, self._rows_as_rollouts
        # without the tool loop the user's own functions are not called again: their values were read when it played
        for k in ("reward_funcs", "reward_func_names", "reward_processing_classes", "reward_weights"):
            setattr(self, k, getattr(self, k)[:1])

    def next_turns(self, contexts: Sequence[Sequence[int]], room: int = 1 << 30) -> list[SampledTurn]:
        """One turn of the policy in training for each context; `room`: tokens that the longest of them leaves."""
        if self.use_vllm:
            return self._vllm(contexts)
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            self.accelerator.autocast(),
        ):
            # dropout would sample from another distribution than the one whose log-probabilities are recorded
            training = model.training
            model.eval()
            try:
                how = self.session.sampling
                return sample(model, contexts, replace(how, max_tokens=min(how.max_tokens, room)))
            finally:
                model.train(training)

    def _vllm(self, contexts: Sequence[Sequence[int]]) -> list[SampledTurn]:
        # weights are copied to vLLM once per update, not per turn
        if self.state.global_step != self._last_loaded_step:
            self.vllm_generation.sync_weights()
            self._last_loaded_step = self.state.global_step
        _, ids, logprobs, _ = self.vllm_generation.generate(
            prompts=[list(c) for c in contexts],
            images=None,
            num_generations=1,
            profiler=profiling_context(self, "vLLM.generate"),
        )
        return [
            SampledTurn(
                list(i), [math.nan if x[0] is None else x[0] for x in lp], [], bool(i) and i[-1] in self.eos_token_ids
            )
            for i, lp in zip(ids, logprobs, strict=True)
        ]

    def attempts(self, plan: Sequence[tuple[Any, range]]) -> list[Attempt]:
        """Attempts of this process's share of a plan."""
        if not plan:
            return []
        environment = self.played_environment
        return self.session.attempts(self.next_turns, plan) if environment is None else self.play(plan, environment)

    def play(self, plan: Sequence[tuple[Any, Sequence[int]]], environment: ToolEnvironment) -> list[Attempt]:
        """The same, by TRL's tool loop in the user's environment."""
        names = [
            *environment.reward_functions,
            *(["reward"] if hasattr(environment.environment_factory, "get_reward") else []),
        ]
        self.played = PlayedBatch()
        try:
            # TRL's own method plays, scores and computes advantages; only what it leaves in `played` is read
            with self._set(**self.tool_loop):
                super()._generate_and_score_completions(rows_of(plan, environment))
        except EvoTrainerError:
            raise
        except Exception as e:
            raise unwrapped_error(e, environment) from e
        played, self.played = self.played, None
        self.session.clock.mark("sample")
        return read_back(played, plan, environment, names, self.session.sampling.stops)

    def _generate(self, prompts: Any) -> Any:
        sampled = super()._generate(prompts)
        if self.played is not None:
            self.played.prompts, self.played.sampled = list(prompts), sampled
        return sampled

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, has_tool_images: bool = False
    ) -> Any:
        if images is not None or multimodal_fields:
            raise TrainerError("the trl trainer is for text only; give tools that answer without images")
        room = self.session.context - max(len(p) for p in prompt_ids)
        if room < 1:
            raise TrainerError(
                f"a prompt of {self.session.context - room} tokens fills the policy's context; shorten the prompts"
            )
        sampled = self.next_turns(prompt_ids, room)
        return [s.ids for s in sampled], [_with_entropies(s) for s in sampled]

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.played is not None:
            # TRL gathers the rewards of all processes; column 0 is our own recorded one
            at = self.accelerator.process_index * len(prompts)
            self.played.rewards = rewards[at : at + len(prompts), 1:].tolist()
        return rewards

    def sample_plan(self, plan: Sequence[tuple[Any, range]]) -> list[Attempt]:
        """Scored attempts for the whole plan, in order, on every process; each samples and scores its share."""
        n, i = self.accelerator.num_processes, self.accelerator.process_index
        if n == 1:
            return self.attempts(plan)
        # rounded up: the last process may have less, or nothing
        each = -(-len(plan) // n)
        mine: list[tuple[str, Any]]
        try:
            # without their tasks: the environment's objects may not pickle, and every process has them
            mine = [("attempt", replace(a, task=None)) for a in self.attempts(plan[i * each : (i + 1) * each])]
        except EvoTrainerError as e:  # the others wait for this process: they must hear of it
            mine = [("error", e)]
        everything = gather_object(mine)
        for kind, value in everything:
            if kind == "error":
                raise value
        out = [value for _, value in everything]
        for a, task in zip(out, (task for task, ks in plan for _ in ks), strict=True):
            a.task = task
        return out

    def _rows_as_rollouts(self, prompts: Any, trainer: Any) -> dict[str, Any]:
        """TRL's `rollout_func`: the rows of this process, sampled and scored already."""
        fields = [r.fields() for r in self.rows]
        names = ("prompt_ids", "completion_ids", "logprobs", "env_mask")
        return {name: [f[i] for f in fields] for i, name in enumerate(names)}

    @contextlib.contextmanager
    def _set(self, **values: Any) -> Iterator[None]:
        """Attributes with other values for a while."""
        before = {k: getattr(self, k) for k in values}
        for k, v in values.items():
            setattr(self, k, v)
        try:
            yield
        finally:
            for k, v in before.items():
                setattr(self, k, v)
