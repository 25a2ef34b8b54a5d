"""How statuses are shown in a terminal: by a mark, a colour and a word, never by colour alone."""

STATUS = {
    "promote": ("✓", "green", "promoted"),
    "worse": ("▼", "red", "promoted, but no better on unseen tasks"),
    "withheld": ("‖", "yellow", "withheld by a human"),
    "reject": ("✗", "yellow", "rejected"),
    "invalid": ("⊘", "red", "invalid"),
    "inconclusive": ("~", "dim", "inconclusive"),
    "failed": ("!", "magenta", "failed"),
    "control": ("=", "dim", "control at equal compute"),
    "open": ("…", "dim", "no verdict yet"),
    "start": ("▷", "cyan", "starting recipe"),
    "base": ("○", "cyan", "base policy"),
}
"""Status of a branch -> its mark, its colour, its words."""
MARK, STYLE, BRIEF = ({kind: shown[i] for kind, shown in STATUS.items()} for i in range(3))
PURPOSE = {"base": "base policy", "noise": "A/A trial", "confirm": "fresh seed", "certify": "certificate"}
"""The words of what a trial is for, where they are others than its own."""
VERDICT = {**BRIEF, "promote": "passed every gate"}
"""The words of a verdict: what passed may still not be promoted."""
