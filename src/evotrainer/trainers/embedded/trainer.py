"""The embedded trainer: reinforcement learning of a small transformer on one CPU thread."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from evotrainer.algorithm.filters import FilterState
from evotrainer.records.recipe import Recipe
from evotrainer.records.rollout import Rollout
from evotrainer.trainers.averaging import average_weight
from evotrainer.trainers.base import (
    EvalRequest,
    RolloutSink,
    TrainerEnvironment,
    TrainRequest,
    TrainResult,
    conversational,
)
from evotrainer.trainers.bases import note_base
from evotrainer.trainers.chat import Chat
from evotrainer.trainers.clock import PhaseTimer
from evotrainer.trainers.continued import check_alone
from evotrainer.trainers.curriculum import TaskStream
from evotrainer.trainers.curve import curve_entry, token_sums
from evotrainer.trainers.embedded.attempts import EmbeddedAttempt, run_attempts
from evotrainer.trainers.embedded.checkpoint import load_checkpoint, save_checkpoint
from evotrainer.trainers.embedded.folder import file_sha256, load_policy, save_policy
from evotrainer.trainers.embedded.lora import AdapterOptimizer, Adapters
from evotrainer.trainers.embedded.memory import keep_memory
from evotrainer.trainers.embedded.optim import Optimizer, Trained
from evotrainer.trainers.embedded.packing import TrainRow
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.sampler import SamplingParams
from evotrainer.trainers.embedded.tokenizer import PolicyTokenizer
from evotrainer.trainers.embedded.update import (
    ANCHOR_DEMOS,
    Example,
    SftDemonstrations,
    demo_rows,
    length_of,
    sft_update,
    update,
)
from evotrainer.trainers.groups import Group, collect
from evotrainer.trainers.hooks import StepHooks
from evotrainer.trainers.lora import Lora
from evotrainer.trainers.phases import (
    PhasePart,
    ReferenceTexts,
    part_at,
    parts_of,
    rare_successes,
    sampled_steps,
    successes,
    without_advantages,
)
from evotrainer.trainers.replay import ReplayBuffer
from evotrainer.trainers.rollouts import Provenance, check_components, environment_facts, evaluated, to_evaluate
from evotrainer.trainers.schedule import seed_of
from evotrainer.trainers.wordings import worded

POLICY = "policy"
CHECKPOINT = "checkpoint"


def sampling_params(recipe: Recipe, greedy: bool, dtype: torch.dtype, stops: Sequence[int]) -> SamplingParams:
    return SamplingParams(recipe.max_tokens, recipe.temperature, recipe.top_p, greedy, dtype=dtype, stops=tuple(stops))


def optimizer_of(trained: Trained, weight_decay: float) -> Optimizer:
    if isinstance(trained, Adapters):
        return AdapterOptimizer(trained, weight_decay)
    return Optimizer(trained, weight_decay)


@dataclass(slots=True)
class EmbeddedSession:
    """State of one training; all that changes is in `state()`."""

    request: TrainRequest
    key: str
    policy: Policy
    tokenizer: PolicyTokenizer
    trained: Trained
    """The policy's weights, or its adapters."""
    optimizer: Optimizer
    stream: TaskStream
    filter: FilterState
    generator: torch.Generator
    clock: PhaseTimer
    reference: Policy | None
    anchor: SftDemonstrations | None
    curve: list[dict[str, float]]
    hooks: StepHooks
    tasks: Sequence[Any] = ()
    facts: tuple[str, str | None] = ("", None)
    """Hash and sandbox tier of the environment."""
    references: ReferenceTexts | None = None
    replay: ReplayBuffer | None = None
    average: torch.Tensor | None = None
    """Running average of the flat weights, once the recipe's averaging has begun."""
    step: int = 0
    tokens: int = 0

    def state(self) -> dict[str, Any]:
        f = self.filter
        return {
            "request": self.key,
            "step": self.step,
            "weights": self.trained.flat,
            "optimizer": self.optimizer.state(),
            "generator": self.generator.get_state(),
            "stream": self.stream.state(),
            "filter": [f.mean, f.var, f.seen],
            "average": self.average,
            "anchor": None if self.anchor is None else self.anchor.rng.getstate(),
            "references": None if self.references is None else self.references.stream.state(),
            "replay": None if self.replay is None else self.replay.state(),
            "curve": self.curve,
            "tokens": self.tokens,
            "cpu_s": self.clock.total,
        }

    def take_average(self) -> None:
        """Take the weights of the step just made into the average."""
        a = average_weight(self.request.recipe.averaging, self.step, self.request.recipe.steps)
        if a is not None:
            flat = self.trained.flat
            self.average = flat.clone() if self.average is None else self.average.lerp_(flat, a)

    def set_weights(self, flat: torch.Tensor) -> None:
        """Of what is trained, as `state()` has them."""
        self.trained.flat.copy_(flat)
        if isinstance(self.trained, Adapters):
            self.trained.merge()

    def new_optimizer(self) -> Optimizer:
        return optimizer_of(self.trained, self.request.recipe.weight_decay)

    def restore(self, s: dict[str, Any]) -> None:
        self.step, self.tokens, self.curve = s["step"], s["tokens"], s["curve"]
        self.set_weights(s["weights"])
        self.average = s["average"]
        self.optimizer.load(s["optimizer"])
        self.generator.set_state(s["generator"])
        self.stream.load(s["stream"])
        self.filter = FilterState(*s["filter"])
        if self.anchor is not None:
            self.anchor.rng.setstate(s["anchor"])
        if self.references is not None:
            self.references.stream.load(s["references"])
        if self.replay is not None:
            self.replay.load(s["replay"])
        self.clock.resume(s["cpu_s"])


class EmbeddedTrainer:
    """Trainer of policies that `warm_start` made, and of language models of a layout that `shape.py` knows.

    `bf16`: sample in bfloat16, slowly where the processor only emulates it (`trainers.bf16_pays`); the update
    recomputes log-probabilities in fp32 either way and `is_cap` bounds the ratio. A checkpoint is continued in the
    numbers it was begun in. `keep_tokens`: put token ids and log-probabilities into the rollouts.
    """

    name = "embedded"

    def __init__(
        self, bf16: bool = False, keep_tokens: bool = False, lora: Lora | None = None, chat: Chat = "auto"
    ) -> None:
        self.sampler_dtype = torch.bfloat16 if bf16 else torch.float32
        self.keep_tokens, self.lora, self.chat = keep_tokens, lora, chat

    def policy_sha256(self, policy_dir: Any) -> str:
        """SHA-256 of the weights file."""
        return file_sha256(policy_dir)

    def train(
        self,
        request: TrainRequest,
        environment: TrainerEnvironment,
        sink: RolloutSink,
        on_step: Callable[[dict[str, float]], None],
    ) -> TrainResult:
        """Train `recipe.steps` steps, or the rest of them where `work_dir` holds a checkpoint of this request."""
        # one thread: sums in another order give other last bits, and a resumed training must end in the same weights
        torch.set_num_threads(1)
        keep_memory()
        recipe = request.recipe
        check_alone(request)
        check_components(recipe, environment.components)
        s, resumed = self._open(request, environment)
        s.tasks, s.facts = environment.tasks("train"), environment_facts(environment.describe())
        while s.step < recipe.steps:
            part = part_at(recipe, s.step)
            if s.step and s.step == part.first:
                s.optimizer = s.new_optimizer()
            groups: list[Group] = []
            if part.kind != "references":
                groups = self._groups(s, environment, part)
                # rollouts are stored before the update: a step that was trained on can always be read
                sink([g.rollouts for g in groups])
                s.clock.mark("record")
            entry = self._update(s, groups, part)
            s.step += 1
            s.curve.append(entry)
            # after the curve's entry, which is in the checkpoint: a resume tells each step once
            s.take_average()
            if s.step % request.checkpoint_every == 0 or s.step == recipe.steps:
                save_checkpoint(request.work_dir / CHECKPOINT, s.state())
            on_step(entry)
        if s.average is not None:
            s.set_weights(s.average)
        self._save(s)
        return TrainResult(s.step, request.work_dir / POLICY, s.curve, resumed)

    def _save(self, s: EmbeddedSession) -> None:
        """The policy folder; with adapters, these and a note of what they lie upon."""
        request, adapters = s.request, s.trained
        folder = request.work_dir / POLICY
        write = None
        if isinstance(adapters, Adapters):

            def write(written: Path) -> None:
                adapters.save(written)
                note_base(written, folder, Path(request.policy_dir), request.run_dir)

        save_policy(s.policy, s.tokenizer, folder, save_weights=write)

    def _groups(self, s: EmbeddedSession, environment: TrainerEnvironment, part: PhasePart) -> list[Group]:
        recipe, before = s.request.recipe, s.request.before
        env_hash, tier = s.facts
        where = Provenance(
            identity=s.request.identity,
            split="train",
            step=before + s.step + 1,
            version=before + s.step,
            env_knobs=recipe.knobs,
            env_hash=env_hash,
            sandbox_tier=tier,
            keep_tokens=self.keep_tokens,
        )
        sample = partial(
            self._sample, s, environment, sampling_params(recipe, False, self.sampler_dtype, s.tokenizer.stops)
        )
        # groups are replaced for the sake of their gradient, which successes have without a spread, too
        asked = recipe if part.kind == "rl" else recipe.model_copy(update={"resample": 0})
        wording = worded(environment, recipe.prompt_noise, s.request.draws, s.step)
        groups = collect(sample, s.tasks, s.stream, s.filter, asked, where, s.clock.mark, wording, s.hooks)
        if part.kind == "own":
            without_advantages(groups)
        return groups

    def _sample(
        self,
        s: EmbeddedSession,
        environment: TrainerEnvironment,
        params: SamplingParams,
        plan: Sequence[tuple[Any, range]],
    ) -> list[EmbeddedAttempt]:
        recipe = s.request.recipe
        return run_attempts(
            environment, s.policy, s.tokenizer, plan, recipe.knobs, params, recipe.max_turns, s.generator, s.clock.mark
        )

    def _chat(self, environment: TrainerEnvironment) -> Chat:
        return self.chat if conversational(environment) else False

    def _open(self, request: TrainRequest, environment: TrainerEnvironment) -> tuple[EmbeddedSession, bool]:
        recipe, i, seed = request.recipe, request.identity, request.draws
        loaded = load_policy(request.policy_dir, True, self._chat(environment))
        policy = loaded.policy
        # a checkpoint is of one recipe, seed and start policy; bf16 samples other tokens, so it is another training
        key = "/".join([i.run, i.branch, str(i.seed), recipe.hash, file_sha256(request.policy_dir)])
        key += "/bf16" if self.sampler_dtype is torch.bfloat16 else ""
        key += "" if self._chat(environment) == "auto" else f"/chat={self._chat(environment)}"
        key += f"/{self.lora.model_dump_json()}" if self.lora else ""
        # a second copy of the weights, where the KL term needs it; adapters lie upon the same numbers
        reference = policy.clone() if recipe.kl_beta > 0 else None
        base = reference.flat if reference is not None else None
        trained = Adapters(policy, self.lora, seed_of(seed, "adapters"), base) if self.lora else policy
        anchor = None
        if recipe.sft_anchor > 0:
            demos = environment.demonstrations(ANCHOR_DEMOS, seed)
            if demos:
                anchor = SftDemonstrations.build(demos, loaded.tokenizer, seed_of(seed, "anchor"))
        hooks = StepHooks(recipe, request.hooks, request.unpayable)
        session = EmbeddedSession(
            request=request,
            key=key,
            policy=policy,
            tokenizer=loaded.tokenizer,
            trained=trained,
            optimizer=optimizer_of(trained, recipe.weight_decay),
            stream=hooks.stream(
                environment.tasks("train"),
                recipe.curriculum,
                seed_of(seed, "tasks"),
                sampled_steps(recipe) * recipe.prompts_per_step,
            ),
            filter=FilterState(),
            generator=torch.Generator().manual_seed(seed_of(seed, "sampling")),
            clock=PhaseTimer(),
            reference=reference,
            anchor=anchor,
            curve=[],
            hooks=hooks,
        )
        if recipe.replay.weight:
            session.replay = ReplayBuffer(recipe.replay, random.Random(seed_of(seed, "replay")))
        if any(p.kind == "references" for p in parts_of(recipe)):
            session.references = ReferenceTexts(environment, recipe.knobs, seed_of(seed, "references"))
        # last, over what was built from seeds: a checkpoint holds the state of generators, not the generators
        state = load_checkpoint(request.work_dir / CHECKPOINT, key)
        if state is not None:
            session.restore(state)
        session.clock.mark("open")
        return session, state is not None

    def _update(self, s: EmbeddedSession, groups: list[Group], part: PhasePart) -> dict[str, float]:
        recipe, lr = s.request.recipe, part.rate(s.step)
        if part.kind == "rl":
            figures, trained, reference = self._by_reward(s, groups, lr)
        else:
            rows, reference = self._texts(s, groups, part), 0
            figures, trained = sft_update(s.policy, s.optimizer, rows, lr, recipe.grad_clip), length_of(rows)
        figures |= self._remember(s, groups)
        s.clock.mark("update")
        s.tokens += sum(len(a.logprobs) for g in groups for a in g.attempts)
        entry = curve_entry(s.step + 1, groups, figures, recipe, lr, s.tokens)
        seconds = s.clock.take()
        for phase in ("sample", "grade", "record", "update"):
            entry[f"cpu_{phase}_s"] = seconds.get(phase, 0.0)
        entry |= s.hooks.figures()
        entry["cpu_s"] = s.clock.total
        return entry | token_sums(s.curve, groups, trained, reference)

    def _by_reward(self, s: EmbeddedSession, groups: list[Group], lr: float) -> tuple[dict[str, float], int, int]:
        """The update's figures, and the tokens that it trained on and that the reference policy read."""
        recipe = s.request.recipe
        examples = [
            Example(a, r.advantage, by_turn)
            for g in groups
            # groups that the filter left out teach nothing, but their tokens were sampled, and are counted
            if g.kept
            for a, r, by_turn in zip(
                cast("Sequence[EmbeddedAttempt]", g.attempts),
                g.rollouts,
                g.turns or [None] * len(g.rollouts),
                strict=True,
            )
            if r.advantage is not None
        ]
        sums = update(s.policy, s.optimizer, examples, recipe, lr, s.reference, s.anchor, s.replay)
        return sums.of_step(recipe), sums.tokens_trained, sums.tokens_reference

    def _remember(self, s: EmbeddedSession, groups: list[Group]) -> dict[str, float]:
        """Keep rare successes for later steps; after the update, so that a step replays earlier ones only."""
        if s.replay is None:
            return {}
        found = cast("Sequence[EmbeddedAttempt]", rare_successes(groups, s.request.recipe))
        rows = [a.row(0) for a in found]
        s.replay.add([(r.prompt, r.tokens, r.loss) for r in rows])
        return {"replay_kept": float(len(s.replay.rows))}

    def _texts(self, s: EmbeddedSession, groups: list[Group], part: PhasePart) -> list[TrainRow]:
        """What a step of a supervised part learns."""
        recipe = s.request.recipe
        if s.references is not None and part.kind == "references":
            assert part.batch is not None
            wording = worded(s.references.environment, recipe.prompt_noise, s.request.draws, s.step)
            rows = demo_rows(s.references.draw(part.batch, wording), s.tokenizer)
            s.clock.mark("grade")
            return rows
        own = cast("Sequence[EmbeddedAttempt]", successes(groups, recipe, part.batch))
        return [a.row(i) for i, a in enumerate(own)]

    def evaluate(self, request: EvalRequest, environment: TrainerEnvironment, sink: RolloutSink) -> list[list[Rollout]]:
        """Groups in task order; the seed, not the branch, decides the random numbers, so that branches pair up."""
        torch.set_num_threads(1)
        keep_memory()
        recipe, i = request.recipe, request.identity
        loaded = load_policy(request.policy_dir, chat=self._chat(environment))
        tasks, where = to_evaluate(request, environment, keep_tokens=self.keep_tokens)
        if not tasks:
            return []
        # a prompt too long for the context is cut here and refused in training: an evaluation has to score every task,
        # for a paired comparison needs the same ones on both sides
        attempts = run_attempts(
            environment,
            loaded.policy,
            loaded.tokenizer,
            [(t, range(request.attempts)) for t in tasks],
            where.env_knobs,
            sampling_params(recipe, request.greedy, self.sampler_dtype, loaded.tokenizer.stops),
            recipe.max_turns,
            torch.Generator().manual_seed(seed_of(i.seed, request.split, "evaluation")),
            lambda phase: None,
            cut_prompts=True,
        )
        groups = evaluated(attempts, where, request)
        sink(groups)
        return groups
