"""A TRL environment as its users write them: a hidden number, a tool to guess it."""


class GuessEnv:
    def __init__(self):
        self.number, self.guesses = 0, 0

    def reset(self, number=0, **kwargs):
        self.number, self.guesses, self.won = int(number), 0, False
        return "Guess 1-4."

    def guess(self, n: int) -> str:
        """
        Guess the hidden number.

        Args:
            n: The guess.

        Returns:
            higher, lower or correct.
        """
        if self.won:
            raise ValueError("the game is over")
        self.guesses += 1
        self.won = int(n) == self.number
        return "correct" if self.won else "higher" if int(n) < self.number else "lower"

    def get_reward(self) -> float:
        """1 at the first guess, less with every further one, 0 if never."""
        return max(0.0, 1.0 - 0.25 * (self.guesses - 1)) if self.won else 0.0


def brief(completions, **kwargs):
    """1 where the policy said nothing beside its calls."""
    return [
        float(not any((m.get("content") or "").strip() for m in c if m["role"] == "assistant")) for c in completions
    ]


class BrokenEnv(GuessEnv):
    def get_reward(self) -> float:
        raise KeyError("score")
