"""Opens the books of a target."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytest_dsql.load.cost import NO_BOOKS, Books

if TYPE_CHECKING:
    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.cost.books import Budget
    from pytest_dsql.cost.price_list import Caller
    from pytest_dsql.cost.shape import CostShape
    from pytest_dsql.local.controls import LocalControls


def engine_books(local: LocalControls) -> Books:
    """Open the books of the embedded engine's cluster."""
    from pytest_dsql.cost.engine import EngineBooks
    from pytest_dsql.cost.prices import Prices

    return EngineBooks(local.dpu, local.cluster.region, Prices())


def aws_books(
    shape: CostShape,
    clients: Caller | None,
    budget: Budget,
    *,
    began_s: float | None = None,
    processes: int = 1,
    estimate_usd: float | None = None,
) -> Books:
    """Open the books of a target in an AWS account.

    `clients` None: nothing is asked of AWS, use is reckoned by unit costs and priced from the table. `began_s`: since
    when the target is paid for, in seconds since the epoch; now where it was there before. `processes`: of the run.
    """
    from pytest_dsql.cost.books import AwsBooks
    from pytest_dsql.cost.meters import AwsMeter
    from pytest_dsql.cost.price_list import PriceList
    from pytest_dsql.cost.prices import Prices

    prices = Prices(PriceList(clients) if clients is not None else None, assume=True)
    began_s = time.time() if began_s is None else began_s
    meter = AwsMeter(shape, prices, clients, began_s=began_s, processes=processes)
    return AwsBooks(meter, prices, budget, estimate_usd=estimate_usd)


def attached_books(endpoint: Endpoint, clients: Caller | None, budget: Budget, *, processes: int = 1) -> Books:
    """Open the books of an endpoint that was there before: what is known of it is its DPU, where it has them."""
    from pytest_dsql.cost.shape import CostShape, DsqlUse

    if endpoint.dialect != "dsql" or endpoint.region is None:
        return NO_BOOKS
    cluster = endpoint.host.partition(".")[0]
    is_id = len(cluster) == 26 and cluster.isalnum()
    shape = CostShape("attach", dsql=DsqlUse(endpoint.region, cluster if is_id else None))
    return aws_books(shape, clients if is_id else None, budget, processes=processes)
