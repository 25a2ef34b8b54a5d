"""The three layers of evidence: what was scored, whether the group gave a gradient, what the policy did. Importing this
package registers the metrics of all its modules."""

from importlib import import_module
from pkgutil import iter_modules

for _module in sorted(m.name for m in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
