"""Which parts of the engine have a say about a session's statements, in the order in which they are asked."""

from __future__ import annotations

from typing import Final

from pytest_dsql.local.gateway.hooks import HookFactory

FACTORIES: Final[tuple[HookFactory, ...]] = ()
