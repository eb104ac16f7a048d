"""Opens the books of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dsql.load.cost import NO_BOOKS, Books

if TYPE_CHECKING:
    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.local.controls import LocalControls


def open_books(endpoint: Endpoint, local: LocalControls | None) -> Books:
    """Open the books of a target: of the embedded engine when `local` are its controls."""
    if local is not None:
        from pytest_dsql.cost.engine import EngineBooks
        from pytest_dsql.cost.prices import Prices

        return EngineBooks(local.dpu, endpoint.region or "", Prices())
    return NO_BOOKS
