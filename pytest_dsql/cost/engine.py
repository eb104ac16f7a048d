"""The books of a run on the embedded engine: what the same work would have used, and cost, on Aurora DSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.errors import DsqlError
from pytest_dsql.load.cost import Cost, Dpu

if TYPE_CHECKING:
    from pytest_dsql.cost.prices import Prices
    from pytest_dsql.load.cost import Done


@final
class EngineBooks:
    """Of the embedded engine, whose own totals say what the same work would have used on Aurora DSQL."""

    shared: Final = False  #: each process has a cluster of its own

    def __init__(self, totals: Callable[[], Any], region: str, prices: Prices) -> None:
        """`totals` gives the cluster's `DpuTotals`."""
        self._totals = totals
        self._region = region
        self._prices = prices
        self._first = self._read()

    def _read(self) -> Dpu | None:
        try:
            found = self._totals()
        except DsqlError:  # it has ended, and others say so
            return None
        return Dpu(found.compute or 0.0, found.read, found.write, found.multi_region_write)

    def _since(self, before: object) -> Dpu | None:
        now = self._read()
        if now is None or not isinstance(before, Dpu):
            return None
        parts = now.plus(before.times(-1.0))
        # Somebody has reset the totals meanwhile.
        return None if min(parts.compute, parts.read, parts.write) < -1e-9 else parts

    def admit(self, cell: str) -> None:
        """Let it begin: it costs nothing."""

    def begin(self) -> object:
        """Note the totals and the time."""
        return self._read(), time.time()

    def loading(self, what: str) -> Callable[[int], None]:  # noqa: ARG002
        """Let everything be loaded: it costs nothing."""
        return lambda _rows: None

    def end(self, before: object, cell: str, done: Done) -> Cost | None:  # noqa: ARG002
        """Compare the totals with those before."""
        assert isinstance(before, tuple)
        parts = self._since(before[0])
        if parts is None:
            return None
        price = self._prices.find("dsql-dpu", self._region)
        usd = None if price is None else price.of(parts.total)
        return Cost(before[1], time.time(), parts.total, parts, usd, True, "engine")

    def learn(self, transactions: Mapping[str, Dpu]) -> None:
        """Need nothing: the engine counts."""

    def close(self) -> Mapping[str, Cost]:
        """Nothing is known better."""
        return {}

    def facts(self) -> dict[str, Any]:
        """What this process has used since it began, loading included."""
        parts = self._since(self._first)
        if parts is None:
            return {}
        price = self._prices.find("dsql-dpu", self._region)
        return {
            "cost_dpu": round(parts.total, 3),
            "cost_usd": None if price is None else round(price.of(parts.total), 9),
            "cost_estimated": True,
            "cost_prices": None if price is None else self._prices.describe(),
            "usd_per_million_dpu": None if price is None else price.usd,
        }
