"""What targets cost: the shape that a module declares, the check of the budget before anything is created, the books.

A module of a target that is created may have `cost_shape(settings, region) -> CostShape`: what of it will be paid for,
without ids. The ids come from the inventory, once there are some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dsql.errors import MissingExtra
from pytest_dsql.load.cost import Books

if TYPE_CHECKING:
    from pytest_dsql.cost.books import Budget
    from pytest_dsql.cost.price_list import Caller
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target


def open_books(settings: Settings, target: Target, budget: Budget, *, processes: int = 1) -> Books:
    """Open the books of a target. `processes`: how many of the run there are."""
    from pytest_dsql.cost.opening import attached_books, engine_books

    if target.local is not None:
        return engine_books(target.local)
    return attached_books(target.endpoint, _clients(settings), budget, processes=processes)


def _clients(settings: Settings) -> Caller | None:
    """Who asks AWS about an endpoint that was there before: nobody, unless the user sets a budget.

    Attaching needs no permission but to connect; CloudWatch needs one of its own.
    """
    from pytest_dsql.aws.sessions import Clients

    if settings.budget is None:
        return None
    try:
        return Clients(profile=settings.profile, role=settings.role)
    except MissingExtra:
        return None
