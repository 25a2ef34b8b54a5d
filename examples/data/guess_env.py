"""An environment as TRL's users write them: a hidden number, a tool to guess it. EvoTrainer runs it unchanged."""


class GuessEnv:
    def __init__(self):
        self.number, self.guesses, self.won = 0, 0, False

    def reset(self, number=0, **kwargs):
        self.number, self.guesses, self.won = int(number), 0, False
        return "I think of a number from 1 to 20. Find it with as few guesses as you can."

    def guess(self, n: int) -> str:
        """
        Guess the hidden number.

        Args:
            n: The guess, from 1 to 20.

        Returns:
            higher, lower or correct.
        """
        if self.won:
            raise ValueError("the game is over")
        self.guesses += 1
        self.won = int(n) == self.number
        return "correct" if self.won else "higher" if int(n) < self.number else "lower"

    def get_reward(self) -> float:
        """1 for at most five guesses (halving suffices), less for more, 0 for never."""
        return min(1.0, max(0.0, 1.0 - 0.2 * (self.guesses - 5))) if self.won else 0.0
