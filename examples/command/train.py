"""GRPO on a CPU in plain PyTorch: a training script like your own. It knows nothing of EvoTrainer.

It reads prompts from a JSON-lines file, pays for sorted letters, and writes what it sampled (rollouts.jsonl), a row a
step (metrics.jsonl) and the policy (a Hugging Face folder).
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any, TextIO

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True, help="folder of the policy to start from")
    p.add_argument("--prompts", required=True, help="JSON lines with a prompt each")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--steps", type=int, default=15)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--prompts-per-step", type=int, default=16)
    p.add_argument("--group-size", type=int, default=8)
    p.add_argument("--max-tokens", type=int, default=10)
    p.add_argument("--temperature", type=float, default=1.0)
    p.add_argument("--grad-clip", type=float, default=1.0)
    p.add_argument("--loss", choices=("token_mean", "sequence_mean", "constant"), default="token_mean")
    p.add_argument("--scale", choices=("group", "batch", "none"), default="group", help="divisor of the advantages")
    p.add_argument("--w-letters", type=float, default=0.0, help="reward for the right letters in any order")
    p.add_argument("--w-sorted", type=float, default=0.0, help="reward for the right letters in order")
    p.add_argument("--resume", help="a checkpoint to go on from")
    return p.parse_args()


def reward(prompt: str, completion: str, a: argparse.Namespace) -> float:
    word, said = prompt.split()[-1], completion.strip()
    return a.w_letters * (sorted(said) == sorted(word)) + a.w_sorted * (said == "".join(sorted(word)))


def sample(
    model: Any, tokenizer: Any, prompts: list[str], a: argparse.Namespace
) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """(ids, mask of what was sampled, both [rollouts, longest]; texts), prompts padded on the left."""
    rows = [tokenizer(p)["input_ids"] for p in prompts for _ in range(a.group_size)]
    width = max(map(len, rows))
    ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(r)) + r for r in rows])
    seen = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows])
    with torch.no_grad():
        full = model.generate(
            input_ids=ids,
            attention_mask=seen,
            max_new_tokens=a.max_tokens,
            do_sample=True,
            temperature=a.temperature,
            top_k=0,
            pad_token_id=tokenizer.pad_token_id,
        )
    new = full[:, width:]
    ended = (new == tokenizer.eos_token_id).int().cumsum(1)
    mask = torch.zeros_like(full)
    mask[:, width:] = ((ended == 0) | ((ended == 1) & (new == tokenizer.eos_token_id))).int()
    return (
        full,
        mask,
        tokenizer.batch_decode(new.masked_fill(ended > 0, tokenizer.pad_token_id), skip_special_tokens=True),
    )


def logprobs(model: Any, ids: torch.Tensor, pad: int) -> torch.Tensor:
    seen = (ids != pad).long()
    seen[:, -1] = 1
    places = (seen.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=seen, position_ids=places).logits[:, :-1]
    return torch.log_softmax(logits, -1).gather(2, ids[:, 1:, None])[:, :, 0]


def advantages(rewards: torch.Tensor, scale: str) -> torch.Tensor:
    """[prompts, group] -> the same; against the group's mean."""
    a = rewards - rewards.mean(1, keepdim=True)
    return a / ((rewards.std(1, keepdim=True) if scale == "group" else rewards.std()) + 1e-4) if scale != "none" else a


def aggregated(losses: torch.Tensor, mask: torch.Tensor, how: str, most: int) -> torch.Tensor:
    if how == "token_mean":  # dapo: every token of the batch weighs alike
        return (losses * mask).sum() / mask.sum().clamp(min=1)
    if how == "constant":  # dr_grpo
        return (losses * mask).sum() / (len(losses) * most)
    return ((losses * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()  # grpo


def opened(path: Path, begun: int) -> TextIO:
    """A file to append to, without rows of steps that a checkpoint does not know."""
    lines = path.read_text().splitlines(keepends=True) if begun and path.exists() else []
    path.write_text("".join(x for x in lines if x.endswith("\n") and json.loads(x)["step"] <= begun))
    return path.open("a")


def main() -> None:
    a = arguments()
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.resume or a.model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr, betas=(0.9, 0.95), weight_decay=0.0)
    prompts = [json.loads(line)["prompt"] for line in Path(a.prompts).read_text(encoding="utf-8").splitlines()]
    order = random.Random(a.seed)
    begun = 0
    if a.resume:
        state = torch.load(Path(a.resume) / "state.pt")
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        order.setstate(state["order"])
        begun = state["step"]
    a.out.mkdir(parents=True, exist_ok=True)
    rollouts, metrics = opened(a.out / "rollouts.jsonl", begun), opened(a.out / "metrics.jsonl", begun)
    for step in range(begun + 1, a.steps + 1):
        asked = order.sample(prompts, a.prompts_per_step)
        ids, mask, texts = sample(model, tokenizer, asked, a)
        each = [p for p in asked for _ in range(a.group_size)]
        rewards = (
            torch.tensor([reward(p, t, a) for p, t in zip(each, texts, strict=True)]).float().view(-1, a.group_size)
        )
        gains = advantages(rewards, a.scale).view(-1, 1)
        # the samples are this policy's own: the ratio is 1, its gradient that of the log-probability
        lp = logprobs(model, ids, tokenizer.pad_token_id)
        loss = aggregated(-torch.exp(lp - lp.detach()) * gains, mask[:, 1:], a.loss, a.max_tokens)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), a.grad_clip)
        optimizer.step()
        for i, (p, t) in enumerate(zip(each, texts, strict=True)):
            row = {"step": step, "prompt": p, "completion": t, "reward": float(rewards.view(-1)[i])}
            row |= {"group": f"{step}-{i // a.group_size}", "tokens": int(mask[i].sum()), "advantage": float(gains[i])}
            rollouts.write(json.dumps(row) + "\n")
        rollouts.flush()
        row = {"step": step, "reward": float(rewards.mean()), "loss": float(loss), "grad_norm": float(norm), "lr": a.lr}
        metrics.write(json.dumps(row) + "\n")
        metrics.flush()
        if step % 5 == 0 and step < a.steps:
            at = a.out / "checkpoints" / f"step-{step}"
            model.save_pretrained(at.with_suffix(".tmp"))
            state = {"optimizer": optimizer.state_dict(), "rng": torch.get_rng_state(), "order": order.getstate()}
            torch.save({**state, "step": step}, at.with_suffix(".tmp") / "state.pt")
            at.with_suffix(".tmp").rename(at)
    model.save_pretrained(a.out / "policy")
    tokenizer.save_pretrained(a.out / "policy")


if __name__ == "__main__":
    main()
