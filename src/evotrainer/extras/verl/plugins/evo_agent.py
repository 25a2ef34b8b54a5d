"""verl plug-in: an agent loop that plays the environment's episodes over several turns."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from evotrainer.extras.verl.plugins.evo_reward import grader, report
from evotrainer.extras.verl.scoring import Origin


class EpisodeLoop(AgentLoopBase):
    """policy -> environment -> policy, until the episode is done, the turns are used up or the context is full."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        judge = grader()
        recipe = judge.recipe
        room = int(self.rollout_config.response_length)
        episode = await self._away(judge.begin, str(kwargs["reward_model"]["ground_truth"]))
        messages = list(kwargs["raw_prompt"])
        ids = await self.ct_build_initial_tokens(messages)
        mask: list[int] = []
        logprobs: list[float] | None = []
        sampled: list[int] = []
        metrics: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        finish = "stop"
        turns = 0
        request = uuid4().hex
        for turn in range(recipe.max_turns):
            limit = min(recipe.max_tokens, room - len(mask))
            said = await self.server_manager.generate(
                request_id=request, prompt_ids=ids, sampling_params={**sampling_params, "max_tokens": limit}
            )
            turns += 1
            metrics["num_preempted"] = metrics.get("num_preempted", 0) + (said.num_preempted or 0)
            fields = {**said.extra_fields, **{k: fields[k] for k in ("min_global_steps",) if k in fields}}
            logprobs = logprobs if said.log_probs else None
            merged, mask, logprobs = await self.ct_merge_assistant_token(
                ids, said.token_ids, mask, logprobs, assistant_logprobs=said.log_probs or None
            )
            ids = merged.token_ids
            sampled += said.token_ids
            text = self.tokenizer.decode(said.token_ids, skip_special_tokens=True)
            ended = bool(said.token_ids) and said.token_ids[-1] == self.tokenizer.eos_token_id
            finish = "length" if len(said.token_ids) >= limit and not ended else "stop"
            answers = await self._away(judge.step, episode, text, finish)
            if episode.done:
                break
            if turn + 1 == recipe.max_turns:
                finish = "turn_limit"
                break
            before = [*messages, {"role": "assistant", "content": text}]
            messages = [*before, {"role": "user", "content": "\n".join(answers)}]
            merged, longer, with_zeros = await self.ct_merge_context_msg(before, messages, ids, mask, logprobs)
            if len(longer) >= room:
                finish = "length"
                break
            ids, mask, logprobs = merged.token_ids, longer, with_zeros
        place = Origin(str(kwargs["uid"]), int(kwargs["session_id"]), int(kwargs["global_steps"]))
        graded = await self._away(judge.end, episode, sampled, finish, place)
        return AgentLoopOutput(
            prompt_ids=ids[: len(ids) - len(mask)],
            response_ids=ids[len(ids) - len(mask) :][:room],
            response_mask=mask[:room],
            response_logprobs=logprobs[:room] if logprobs else None,
            reward_score=graded.reward,
            num_turns=2 * turns,
            metrics=metrics,
            extra_fields={**fields, "reward_extra_info": report(graded), "turn_scores": [], "tool_rewards": []},
        )

    async def _away(self, function: Any, *args: Any) -> Any:
        """Grading runs programs: off the event loop."""
        return await self.loop.run_in_executor(None, lambda: function(*args))
