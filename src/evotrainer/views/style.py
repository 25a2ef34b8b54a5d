"""How standings look in a terminal: a mark, a colour and a word, never colour alone."""

MARK = {
    "promote": "✓",
    "reject": "✗",
    "invalid": "⊘",
    "inconclusive": "~",
    "failed": "!",
    "open": "…",
    "start": "▷",
    "base": "○",
}
STYLE = {
    "promote": "green",
    "reject": "yellow",
    "invalid": "red",
    "inconclusive": "dim",
    "failed": "magenta",
    "open": "dim",
    "start": "cyan",
    "base": "cyan",
}
BRIEF = {
    "promote": "promoted",
    "reject": "rejected",
    "invalid": "invalid",
    "inconclusive": "inconclusive",
    "failed": "failed",
    "open": "no verdict yet",
    "start": "starting recipe",
    "base": "base policy",
}
