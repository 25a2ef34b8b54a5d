"""The one number that an answer in free form says: `$70,000.00`, `70,000 dollars`, `\\boxed{70000}`, `16+2=18`.

Arithmetic that was left to the reader is no answer, and two different numbers are none.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import gcd

from evotrainer.envs.maths.expressions import SPAN, evaluate

CHARS = 300
"""Characters that are read, from the end."""
_LATEX = (
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\[dt]?frac\s*\{\s*(-?\d{1,12})\s*\}\s*\{\s*(\d{1,12})\s*\}"), r" \1/\2 "),
    (re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\(?:times|cdot)\b|×"), "*"),
    (re.compile(r"\\div\b|÷"), "/"),
    (re.compile("\N{MINUS SIGN}"), "-"),
    (re.compile(r"\\!|\\?\$|€|£"), ""),
    (re.compile(r"\\[,;:()\[\] ]"), " "),
    (re.compile(r"<<[^<>]{0,120}>>"), ""),
)
_BOXED = re.compile(r"\\boxed\s*\{([^{}]*)\}")
_LITERAL = re.compile(
    r"(?<![\w.,])(?:[-+] ?)?(?:(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?|\.\d+)(?![\d/])"
    r"|(?<![\w.,/])-?\d{1,12}/\d{1,12}(?![\d/])"
)
_SIGNS = re.compile(r"[\d*+^%<>\u2264\u2265\u00b1]|(?<![A-Za-z])[-/]|[-/](?![A-Za-z])")
"""What may not stand next to the number: digits, and operators but for those between words (`miles/hour`)."""
_OTHERWISE = re.compile(
    r"\b(?:not|never|isn['\u2019]t|minus|negative|anything but|twice|thrice|double|half|root of)\s+#"
    r"|#\s?k\b|#\s*(?:squared|cubed|hundreds?|thousands?|millions?|billions?|bn|trillions?|dozens?)\b"
    r"|#\s+times\s+(?:two|three|four|five|six|seven|eight|nine|ten)\b|[√≠¬~]\s*\(?\s*#",
    re.IGNORECASE,
)
"""Words and signs that make another number of it (`#`), or deny it."""


def one_number(text: str) -> Fraction | None:
    """Value of the only number in the text, beside currency signs, units and words; None for none or several.

    What is boxed counts alone. After a true equation (`9*2=18`) or a name (`x = 18`) its right side counts.
    A fraction counts in lowest terms only.
    """
    text = text[-CHARS:]
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    text = " ; ".join(boxed) if (boxed := _BOXED.findall(text)) else text
    *left, right = text.split("=")
    value = _single(right)
    if value is None or not all(_leads_to(side, value) for side in left):
        return None
    return value


def _single(text: str) -> Fraction | None:
    """The number of a text without equations."""
    values = {_value(m) for m in _LITERAL.findall(text)}
    masked = _LITERAL.sub("#", text)
    if len(values) != 1 or _SIGNS.search(masked) or _OTHERWISE.search(masked) or any(map(str.isnumeric, masked)):
        return None
    return values.pop()


def _value(literal: str) -> Fraction | None:
    """None for a fraction that can be reduced."""
    above, slash, below = literal.replace(",", "").replace(" ", "").partition("/")
    if not slash:
        return Fraction(above)
    return Fraction(int(above), int(below)) if int(below) > 1 and gcd(int(above), int(below)) == 1 else None


def _leads_to(side: str, value: Fraction) -> bool:
    """True for a name without digits, and for arithmetic, among words, that comes to the value."""
    if not re.search(r"\d", side):
        return True
    arithmetic = re.sub(r"[A-Za-z:;]+|[.,](?!\d)", " ", side).strip()
    return len(arithmetic) <= SPAN and evaluate(arithmetic) == value
