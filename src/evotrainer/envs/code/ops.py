"""The list operations of the code domain's grammar.

Each entry knows its English phrasings, its code variants, a reference meaning in Python (written independently of the
code variants, so that running a variant in the sandbox is a real check), and the mistakes people honestly make with it:
`slips` are wrong, `unguarded` forms are right except on an input that leaves too few items.
"""

from __future__ import annotations

from evotrainer.envs.code.op import ListOp
from evotrainer.envs.code.ops_itemwise import FILTERS, MAPS
from evotrainer.envs.code.ops_whole import ORDER, SLICES, STRUCTURE

OPS: dict[str, ListOp] = {o.name: o for o in (*FILTERS, *MAPS, *ORDER, *SLICES, *STRUCTURE)}
