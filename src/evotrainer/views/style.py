"""How statuses are shown in a terminal: by a mark, a colour and words, never by colour alone."""

MARK = {
    "promote": "✓",
    "worse": "▼",
    "withheld": "‖",
    "reject": "✗",
    "invalid": "⊘",
    "inconclusive": "~",
    "failed": "!",
    "control": "=",
    "open": "…",
    "start": "▷",
    "base": "○",
}
"""Status of a branch (`run_facts.STATUS`) -> its mark."""
STYLE = {
    **dict.fromkeys(MARK, "dim"),
    "promote": "green",
    **dict.fromkeys(("worse", "invalid"), "red"),
    **dict.fromkeys(("withheld", "reject"), "yellow"),
    **dict.fromkeys(("start", "base"), "cyan"),
    "failed": "magenta",
}
"""Status -> its colour."""
PURPOSE = {"base": "base policy", "noise": "A/A trial", "confirm": "fresh seed", "certify": "certificate"}
"""The words of what a trial is for, where they are others than its own."""
