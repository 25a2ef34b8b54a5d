"""Values that were seen to raise where they are shown, stored or compared, as expressions a program can return."""

from __future__ import annotations

VALUES = {
    "10**5000": "10**5000",
    "-10**5000": "-10**5000",
    "in a list": "[10**5000] * 3",
    "as a key": "{10**5000: 1}",
    "in a key": "{(1, 10**5000): {2}}",
    "in a frozen key": "{frozenset({10**5000}): 10**5000}",
    "in a deque": "__import__('collections').deque([10**5000], 5)",
    "in a counter": "__import__('collections').Counter({10**5000: 2})",
    "1.2 million bits": "1 << 1_200_000",
    "half of 10**5000": "__import__('fractions').Fraction(1, 10**4000)",
    "a range to 10**4500": "range(10**4500)",
    "65 bits": "1 << 64",
    "NaN": "float('nan')",
    "infinity": "[float('inf'), -float('inf')]",
    "complex NaN": "complex(float('nan'), float('inf'))",
    "NaN as a key": "{float('nan'): 0}",
    "a signalling NaN": "[__import__('decimal').Decimal('sNaN')]",
    "a huge exponent": "__import__('decimal').Decimal('1E+999999999')",
    "half a character": "'\\ud800'",
    "half a character as a key": "{'\\udfff': ['\\ud800']}",
    "control characters": "'\\x1b]0;title\\x07\\x00\\u202e\\x9b31m'",
    "bytes": "b'\\xff\\x00' * 100",
    "a byte array": "bytearray(b'\\xff')",
    "90 lists deep": "__import__('functools').reduce(lambda x, _: [x], range(90), 0)",
    "99 tuples deep": "__import__('functools').reduce(lambda x, _: (x,), range(98), 0)",
    "1,000 lists deep": "__import__('functools').reduce(lambda x, _: [x], range(1000), 0)",
    "a circle": "(lambda x: x.append(x) or x)([])",
    "a circle of dicts": "(lambda x: x.update(a=x) or x)({})",
    "a date": "__import__('datetime').date(2026, 1, 1)",
    "a class": "int",
    "a function": "lambda: 0",
    "an exception": "ValueError('\\ud800')",
    "a generator": "(x for x in ())",
    "an ellipsis": "[..., NotImplemented]",
    "a class of half a character": "type('A' * 5000, (), {})()",
    "200,000 words": "['x'] * 200_000",
    "a million words": "['x'] * 1_000_000",
    "a long text": "'\\U0001f600' * 100_000",
    "nothing": "None",
    "colliding keys": "{i * (2**61 - 1) for i in range(200)}",
}
"""Name -> Python expression."""

RAISES = {
    "an endless number": "raise ValueError(10**5000)",
    "half a character": "raise ValueError('\\ud800' * 400)",
    "control characters": "raise ValueError('\\x1b[31m\\x00')",
    "a class without a name": "raise type('', (Exception,), {})()",
    "a class with half a name": "raise type("
    "'\\ud800'.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace') + 'x' * 900, (Exception,), {})('')",
    "no text": "raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})()",
    "an exit with a number": "raise SystemExit(10**5000)",
    "an exit with half a character": "raise SystemExit('\\ud800')",
    "a group": "raise ExceptionGroup('\\ud800', [ValueError(1)])",
    "a Unicode error": "'\\ud800'.encode()",
}
"""Name -> statement."""

PRINTS = {
    "half a character": "import sys; sys.stdout.buffer.write(b'\\xed\\xa0\\x80'); sys.stdout.flush()",
    "no UTF-8": "import os; os.write(1, bytes(range(256)))",
    "a surrogate": "import os; os.write(1, '\\ud800'.encode('utf-8', 'surrogatepass'))",
    "digits": "print('9' * 100_000)",
    "NaN": "print('NaN')",
    "zero bytes": "print('\\0' * 1000)",
    "blank lines": "print('\\n' * 500_000)",
}
"""Name -> script."""
