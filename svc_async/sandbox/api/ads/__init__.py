"""The advertising API: modules of families, with their rows in `OPERATIONS`; this package finds them by itself."""

from importlib import import_module
from pkgutil import iter_modules

from svc_async.sandbox.server.operations import Operation

__all__ = ["OPERATIONS"]

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]

OPERATIONS: tuple[Operation, ...] = tuple(
    operation for module in _MODULES for operation in getattr(module, "OPERATIONS", ())
)
