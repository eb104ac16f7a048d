"""Which parts of the engine have a say about a session's statements, in the order in which they are asked.

Before them all it is asked whether the session's role is still its principal's (`roles`): that depends on the login.
"""

from __future__ import annotations

from typing import Final

from pytest_dsql.local.faults.injector import fault_hook
from pytest_dsql.local.gateway.hooks import HookFactory
from pytest_dsql.local.transaction_rules import transaction_rules

FACTORIES: Final[tuple[HookFactory, ...]] = (transaction_rules, fault_hook)
