"""How statuses are shown in a terminal: by a mark, a colour and a word, never by colour alone."""

MARK = {
    "promote": "✓",
    "withheld": "‖",
    "reject": "✗",
    "invalid": "⊘",
    "inconclusive": "~",
    "failed": "!",
    "control": "=",
    "knockout": "=",
    "open": "…",
    "start": "▷",
    "base": "○",
}
STYLE = {
    "promote": "green",
    "withheld": "yellow",
    "reject": "yellow",
    "invalid": "red",
    "inconclusive": "dim",
    "failed": "magenta",
    "control": "dim",
    "knockout": "dim",
    "open": "dim",
    "start": "cyan",
    "base": "cyan",
}
BRIEF = {
    "promote": "promoted",
    "withheld": "withheld by a human",
    "reject": "rejected",
    "invalid": "invalid",
    "inconclusive": "inconclusive",
    "failed": "failed",
    "control": "control at equal compute",
    "knockout": "knock-out of a bundle",
    "open": "no verdict yet",
    "start": "starting recipe",
    "base": "base policy",
}
