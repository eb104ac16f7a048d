"""pytest-dsql: database benchmarks as tests, for Amazon Aurora DSQL.

Every other public name is loaded on first use, so that importing the plugin costs a pytest run nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# Loaded at once, because the submodule has the name of the decorator: the import system binds a submodule to its
# package only when it loads it, so a later `import pytest_dsql.transaction` leaves this binding alone.
from pytest_dsql.transaction import transaction

if TYPE_CHECKING:
    from pytest_dsql.access import HotSet, Zipf
    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.errors import DsqlError, Inconclusive, Invalid, SloMissed
    from pytest_dsql.load.blocking import run_transaction
    from pytest_dsql.local.faults.fault import Fault
    from pytest_dsql.slo.objectives import Latency, Slo, ms
    from pytest_dsql.transaction import Context, Last, Mix, Rejected

__all__ = [
    "Context",
    "DsqlError",
    "Endpoint",
    "Fault",
    "HotSet",
    "Inconclusive",
    "Invalid",
    "Last",
    "Latency",
    "Mix",
    "Rejected",
    "Slo",
    "SloMissed",
    "TokenSource",
    "Zipf",
    "ms",
    "run_transaction",
    "transaction",
]

_HOME = {
    "Context": "transaction",
    "DsqlError": "errors",
    "Endpoint": "connect.endpoint",
    "HotSet": "access",
    "Fault": "local.faults.fault",
    "Inconclusive": "errors",
    "Invalid": "errors",
    "Last": "transaction",
    "Latency": "slo.objectives",
    "Mix": "transaction",
    "Rejected": "transaction",
    "Slo": "slo.objectives",
    "SloMissed": "errors",
    "TokenSource": "connect.token",
    "Zipf": "access",
    "ms": "slo.objectives",
    "run_transaction": "load.blocking",
}


def __getattr__(name: str) -> Any:
    """Import a public name from the module it lives in (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
