"""The trl trainer: any causal language model of the Hugging Face form, one process or several."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from evotrainer.errors import ConfigError, TrainerError
from evotrainer.records.output import print
from evotrainer.records.rollout import Rollout
from evotrainer.records.weights import weights_sha256
from evotrainer.trainers.base import EvalRequest, RolloutSink, TrainerEnvironment, TrainRequest, TrainResult
from evotrainer.trainers.bases import is_adapter, note_base
from evotrainer.trainers.chat import ChatCodec
from evotrainer.trainers.clock import PhaseTimer
from evotrainer.trainers.continued import check_alone
from evotrainer.trainers.hooks import StepHooks
from evotrainer.trainers.replay import ReplayBuffer
from evotrainer.trainers.rollouts import Attempt, check_components, evaluated, to_evaluate
from evotrainer.trainers.schedule import seed_of
from evotrainer.trainers.trl.attempts import run_attempts
from evotrainer.trainers.trl.checks import check_trial
from evotrainer.trainers.trl.folder import (
    context_of,
    device_of,
    forward_dtype,
    load_model,
    load_tokenizer,
    save_folder,
    stop_ids,
)
from evotrainer.trainers.trl.generate import sample
from evotrainer.trainers.trl.mapping import check, config_fields
from evotrainer.trainers.trl.options import TrlOptions, parse
from evotrainer.trainers.trl.session import ANCHOR_DEMOS, WRITING, TrlSession, TrlSftDemonstrations
from evotrainer.trainers.trl.setup import bookkeeping, join_group, lora_config, process_zero_first, resume, sampling
from evotrainer.trainers.trl.tools import ToolEnvironment, played_by_trl

POLICY = "policy"


class TrlTrainer:
    """Trainer of causal language models through TRL's GRPOTrainer; `options`: see `TrlOptions`.

    In a process of a torch.distributed group (torchrun, Ray Train) `train` is data parallel: every process calls it
    with the same request and its own environment; process 0 alone calls `sink` and `on_step` and writes checkpoints and
    policy.
    """

    name = "trl"

    def __init__(self, options: Mapping[str, Any] | TrlOptions | None = None) -> None:
        self.options = options if isinstance(options, TrlOptions) else parse(options or {})
        # `rollout_func` is experimental in TRL, which warns at every start
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
        self._loaded: tuple[str, Any, Any] | None = None
        self._told = False

    def policy_sha256(self, policy_dir: Path) -> str:
        """SHA-256 of the weights (of adapters: theirs)."""
        if (sha := weights_sha256(Path(policy_dir))) is None:
            raise TrainerError(f"policy {policy_dir}: no safetensors weights there; restore the policy folder")
        return sha

    # -- training ---------------------------------------------------------------------------------------------------

    def train(
        self,
        request: TrainRequest,
        environment: TrainerEnvironment,
        sink: RolloutSink,
        on_step: Callable[[dict[str, float]], None],
    ) -> TrainResult:
        """Train `recipe.steps` steps, or the rest of them where `work_dir` holds a checkpoint of this request.

        TrainerError, ConfigError or the environment's own errors;
        nothing is written but checkpoints and, at the end, the policy.
        """
        from trl import GRPOConfig

        from evotrainer.trainers.trl.grpo import Grpo

        self._loaded = None
        recipe, options = request.recipe, self.options
        check_components(recipe, environment.components)
        check_trial(request.policy_dir, options, [recipe], environment)
        processes = join_group()
        if played_by_trl(environment) and recipe.resample and processes > 1:
            raise ConfigError("trainer trl: resample: TRL's tool loop needs equal shares in all processes; set it to 0")
        device = device_of(options)
        dtype = forward_dtype(options, device)
        fields = config_fields(recipe, options, processes, device.type == "cuda")
        args = GRPOConfig(**fields, **bookkeeping(options, request, device, dtype))
        if args.world_size != processes or str(args.distributed_state.distributed_type).endswith(("FSDP", "DEEPSPEED")):
            raise ConfigError("the trl trainer is data parallel only; launch it without FSDP and DeepSpeed")
        args._n_gpu = min(1, args.n_gpu)  # one GPU a process: TRL refuses nn.DataParallel
        tokenizer = load_tokenizer(request.policy_dir, options)
        adapters = options.lora is not None
        model = load_model(request.policy_dir, dtype if adapters else torch.float32, options, merge=True)
        session = self._session(request, environment, tokenizer, model, fields)
        checkpoint = resume(session, args.process_index, args)
        if session.step < recipe.steps:
            if recipe.kl_beta > 0 and not adapters and is_adapter(request.policy_dir):
                model.config._name_or_path = self._reference(model, request.work_dir, args.process_index, processes)
            trainer = Grpo(
                session,
                sink,
                on_step,
                model=model,
                args=args,
                processing_class=tokenizer,
                peft_config=lora_config(options),
            )
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            model = trainer.accelerator.unwrap_model(trainer.model)
        else:  # killed between the last checkpoint and the policy
            assert checkpoint is not None
            model = load_model(
                checkpoint, dtype if adapters else torch.float32, options, base=request.policy_dir if adapters else None
            )
        with process_zero_first(args.process_index, processes):
            if not args.process_index:
                session.give_average(model)
                self._save(model, tokenizer, request)
        shutil.rmtree(request.work_dir / WRITING, ignore_errors=True)
        return TrainResult(session.step, request.work_dir / POLICY, session.curve, checkpoint is not None)

    def _reference(self, model: Any, work_dir: Path, rank: int, processes: int) -> str:
        """A start policy of adapters as whole weights: TRL loads its reference model from a folder of these alone."""
        folder = work_dir / WRITING / "reference"
        with process_zero_first(rank, processes):
            if not rank:
                save_folder(folder, [model.save_pretrained])
        return str(folder)

    def _session(
        self,
        request: TrainRequest,
        environment: TrainerEnvironment,
        tokenizer: Any,
        model: Any,
        fields: dict[str, Any],
        tasks: Sequence[Any] | None = None,
        greedy: bool = False,
    ) -> TrlSession:
        check_alone(request)
        recipe, i, seed = request.recipe, request.identity, request.draws
        stops = stop_ids(model, tokenizer)
        played = played_by_trl(environment)
        transcript = self._transcript(tokenizer, stops, 1 if played else recipe.max_turns, played)
        tasks = list(environment.tasks("train")) if tasks is None else tasks
        anchor = None
        if recipe.sft_anchor > 0:
            demos = environment.demonstrations(ANCHOR_DEMOS, seed)
            check(recipe, self.options, demonstrations=bool(demos))
            rows = [transcript.demonstration(n, d) for n, d in enumerate(demos)]
            anchor = TrlSftDemonstrations(rows, random.Random(seed_of(seed, "anchor")))
        # options change the training as the recipe does (dtype, LoRA): a checkpoint of other options must not be
        # continued
        settings = hashlib.sha256(json.dumps(self.options.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()
        hooks = StepHooks(recipe, request.hooks, request.unpayable)
        return TrlSession(
            request=request,
            key="/".join(
                [i.run, i.branch, str(i.seed), recipe.hash, self.policy_sha256(request.policy_dir), settings[:16]]
            ),
            config=fields,
            environment=environment,
            tasks=tasks,
            transcript=transcript,
            sampling=sampling(self.options, recipe, stops, tokenizer, greedy),
            context=context_of(model),
            hooks=hooks,
            stream=hooks.stream(
                tasks, recipe.curriculum, seed_of(seed, "tasks"), recipe.steps * recipe.prompts_per_step
            ),
            clock=PhaseTimer(),
            anchor=anchor,
            replay=ReplayBuffer(recipe.replay, random.Random(seed_of(seed, "replay")))
            if recipe.replay.weight
            else None,
            keep_tokens=self.options.keep_tokens,
        )

    def _transcript(
        self, tokenizer: Any, stops: tuple[int, ...], max_turns: int, played: ToolEnvironment | None = None
    ) -> ChatCodec:
        """TrainerError where the template cannot carry so many turns; another template than the policy's is told once.
        Prompts that TRL plays as text go without one."""
        chat = self.options.chat if played is None or played.conversational else False
        transcript = ChatCodec(tokenizer, stops, chat, self.options.chat_template_kwargs)
        if max_turns > 1:
            transcript.check_turns()
            if transcript.note and not self._told:
                self._told = True
                print(f"note: {transcript.note}", flush=True)  # a trial's log
        return transcript

    def _save(self, model: Any, tokenizer: Any, request: TrainRequest) -> None:
        """The policy folder; with adapters, the base model's config.json, too, and a note of what that is."""
        folder, base = request.work_dir / POLICY, Path(request.policy_dir)
        parts = [model.save_pretrained, tokenizer.save_pretrained]
        if self.options.lora is not None:
            parts.append(model.get_base_model().config.save_pretrained)
            parts.append(lambda written: note_base(written, folder, base, request.run_dir))
        save_folder(folder, parts)

    # -- evaluation -------------------------------------------------------------------------------------------------

    def evaluate(self, request: EvalRequest, environment: TrainerEnvironment, sink: RolloutSink) -> list[list[Rollout]]:
        """Groups in task order; the seed, not the branch, decides the random numbers."""
        tasks, where = to_evaluate(request, environment, keep_tokens=self.options.keep_tokens)
        if not tasks:
            return []
        torch.manual_seed(seed_of(request.identity.seed, request.split, "evaluation"))
        plan = [(t, range(request.attempts)) for t in tasks]
        attempts = self._play if played_by_trl(environment) else self._attempts
        groups = evaluated(attempts(request, environment, plan, where.env_knobs), where, request)
        sink(groups)
        return groups

    def _attempts(
        self,
        request: EvalRequest,
        environment: TrainerEnvironment,
        plan: Sequence[tuple[Any, range]],
        knobs: Mapping[str, Any],
    ) -> list[Attempt]:
        recipe = request.recipe
        tokenizer, model = self._policy(Path(request.policy_dir))
        stops = stop_ids(model, tokenizer)
        how = sampling(self.options, recipe, stops, tokenizer, request.greedy)
        return run_attempts(
            environment,
            lambda contexts: sample(model, contexts, how),
            self._transcript(tokenizer, stops, recipe.max_turns),
            plan,
            knobs,
            recipe.max_tokens,
            recipe.max_turns,
            context_of(model),
            lambda phase: None,
            cut_prompts=True,
        )

    def _play(
        self,
        request: EvalRequest,
        environment: TrainerEnvironment,
        plan: Sequence[tuple[Any, range]],
        knobs: Mapping[str, Any],
    ) -> list[Attempt]:
        """By the loop that plays them in training: a GRPOTrainer that does not train."""
        from trl import GRPOConfig

        from evotrainer.trainers.trl.grpo import Grpo

        i = request.identity
        with tempfile.TemporaryDirectory() as folder:
            sampled = request.recipe.of_attempts
            asked = TrainRequest(i, sampled, Path(request.policy_dir), Path(folder))
            device = device_of(self.options)
            plain = self.options.model_copy(update={"micro_batch": None, "vllm": False})
            fields = config_fields(sampled, plain, 1, device.type == "cuda") | {
                "num_generations_eval": request.attempts
            }
            args = GRPOConfig(**fields, **bookkeeping(self.options, asked, device, forward_dtype(self.options, device)))
            args._n_gpu = min(1, args.n_gpu)
            tokenizer, model = self._policy(asked.policy_dir)
            tasks = [task for task, _ in plan]
            session = self._session(asked, environment, tokenizer, model, fields, tasks, request.greedy)
            player = Grpo(session, lambda _: None, lambda _: None, model=model, args=args, processing_class=tokenizer)
            model.eval()
            torch.manual_seed(seed_of(request.identity.seed, request.split, "evaluation"))
            each = max(1, self.options.sample_batch // request.attempts)
            found = [a for n in range(0, len(plan), each) for a in player.attempts(plan[n : n + each])]
        self._loaded = None  # TRL has patched its forward
        return found

    def _policy(self, folder: Path) -> tuple[Any, Any]:
        """(tokenizer, model) of a policy folder, on the device; the last one is kept for the next split."""
        key = f"{folder.resolve()} {self.policy_sha256(folder)}"
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = None
            device = device_of(self.options)
            model = load_model(folder, forward_dtype(self.options, device), self.options).to(device).eval()
            self._loaded = (key, load_tokenizer(folder, self.options), model)
        return self._loaded[1], self._loaded[2]
