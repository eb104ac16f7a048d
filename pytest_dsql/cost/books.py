"""The books of a run: who may begin, what each cell has used, what all of it has cost (`load.cost.Books`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from pytest_dsql.cost.meters import AwsMeter, CellUse
from pytest_dsql.cost.unit_costs import unit_costs
from pytest_dsql.errors import BudgetReached
from pytest_dsql.load.cost import Cost, Dpu, Operations
from pytest_dsql.load.measurement import ConnectStats, Measurement
from pytest_dsql.load.sampled import attempts_of

if TYPE_CHECKING:
    from pytest_dsql.cost.prices import Prices
    from pytest_dsql.load.cost import Done

#: No cell begins once this part of the budget is used: what runs then must still end, and be removed.
GUARD: Final = 0.9


class Maker(Protocol):
    """What makes the load of a run, and is paid for beside the targets."""

    def usd(self) -> float:
        """USD so far."""

    def facts(self) -> dict[str, Any]:
        """Give what the results file says of it: keys that begin with `runner_`."""


@final
class Budget:
    """What a run may cost, on all of its targets together."""

    def __init__(self, usd: float | None) -> None:
        """`usd` None: no bound."""
        self.usd: Final = usd
        #: What the run was reckoned to cost before it began, in USD, by target.
        self.estimates: Mapping[str, float] = {}
        self._spending: list[Callable[[], float]] = []
        self._maker: Maker | None = None

    def count(self, spent: Callable[[], float]) -> None:
        """Count what a target costs, too. It is asked whenever a cell wants to begin, also after the target's end."""
        self._spending.append(spent)

    def count_maker(self, maker: Maker) -> None:
        """Count what makes the load, too: it costs no target anything."""
        self._maker = maker
        self.count(maker.usd)

    def facts(self) -> dict[str, Any]:
        """Give what the results file says of what makes the load; nothing where that is free."""
        return self._maker.facts() if self._maker is not None else {}

    def spent(self) -> float:
        """USD so far."""
        return sum(one() for one in self._spending)

    def admit(self, what: str, refused: str = "was not started") -> None:
        """Raise BudgetReached when the guard has been reached; `refused` says what becomes of `what` then."""
        if self.usd is None:
            return
        spent = self.spent()
        if spent >= GUARD * self.usd:
            raise BudgetReached(
                f"{what} {refused}: ${spent:,.2f} of the budget of ${self.usd:,.2f} are used, and no cell begins "
                f"after {GUARD:.0%} of it (--dsql-budget)"
            )


@final
class AwsBooks:
    """Of a target in an AWS account."""

    shared: Final = True

    def __init__(
        self,
        meter: AwsMeter,
        prices: Prices,
        budget: Budget,
        *,
        estimate_usd: float | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`estimate_usd`: what the run was reckoned to cost on this target before it began."""
        self._estimate_usd = estimate_usd
        self._meter = meter
        self._prices = prices
        self._budget = budget
        self._now = now
        self._final: float | None = None
        #: DPU of each transaction, by name, where EXPLAIN has told
        self._transactions: dict[str, Dpu] = {}
        budget.count(self._spent)

    def _spent(self) -> float:
        return self._meter.usd() if self._final is None else self._final

    def admit(self, cell: str) -> None:
        """Raise BudgetReached when the guard has been reached, by what CloudWatch says now."""
        if self._budget.usd is not None:
            self._meter.read(at_once=True)
        self._budget.admit(cell)

    def begin(self) -> object:
        """Note the time."""
        return self._now()

    def loading(self, what: str) -> Callable[[int], None]:
        """Begin to load data: see `Books.loading`. CloudWatch is asked now and then meanwhile."""
        began_s = self._now()
        known: CellUse | None = None
        earlier = 0  # rows of a load that was broken off
        self.admit(f"loading {what}")

        def landed(rows: int) -> None:
            nonlocal known, earlier
            earlier = rows if known is None else earlier
            shape = self._meter.shape
            dpu = (rows - earlier) * unit_costs().dpu_per_loaded_row if shape.dsql is not None else 0.0
            # All of it is writing, for which each peer is charged as much again.
            peer_dpu = dpu if shape.dsql is not None and shape.dsql.peers else 0.0
            use = CellUse(f"loading {what}", began_s, self._now(), dpu, peer_dpu=peer_dpu)
            self._meter.add(use, instead_of=known)
            known = use
            if self._budget.usd is not None:
                self._meter.read()
            self._budget.admit(f"loading {what}", "was broken off")

        return landed

    def end(self, before: object, cell: str, done: Done) -> Cost | None:
        """Reckon what the cell has used; CloudWatch will tell later."""
        assert isinstance(before, float)
        shape = self._meter.shape
        dpu, parts = self._reckoned(done) if shape.dsql is not None else (0.0, None)
        peer_dpu = _replicated(dpu, parts) if shape.dsql is not None and shape.dsql.peers else 0.0
        requests = sum(_attempts(done).values()) * unit_costs().aurora_io_per_attempt if shape.io is not None else 0.0
        use = CellUse(cell, before, self._now(), dpu, parts, peer_dpu, requests)
        self._meter.add(use)
        return self._meter.cost(use)

    def _reckoned(self, done: Done) -> tuple[float, Dpu | None]:
        known = unit_costs()
        match done:
            case Measurement():
                by_name = _attempts(done)
                connecting = done.connect.succeeded * known.dpu_per_connection
                if by_name and by_name.keys() <= self._transactions.keys():
                    parts = Dpu(compute=connecting)
                    for name, attempts in by_name.items():
                        parts = parts.plus(self._transactions[name].times(attempts))
                    return parts.total, parts
                return sum(by_name.values()) * known.dpu_per_attempt + connecting, None
            case Operations(attempts, connections):
                return attempts * known.dpu_per_attempt + connections * known.dpu_per_connection, None
            case ConnectStats():
                return done.succeeded * known.dpu_per_connection, Dpu(done.succeeded * known.dpu_per_connection)
            case None:
                return 0.0, None

    def learn(self, transactions: Mapping[str, Dpu]) -> None:
        """Reckon by what EXPLAIN told of each transaction, rather than by the order workload's average."""
        self._transactions.update(transactions)

    def close(self) -> Mapping[str, Cost]:
        """Ask CloudWatch a last time, and give every cell that it has told of."""
        self._meter.read(at_once=True)
        self._final = self._meter.usd()
        return costs_by_cell(self._meter)

    def facts(self) -> dict[str, Any]:
        """Totals, prices, and what they were compared with."""
        shape = self._meter.shape
        facts: dict[str, Any] = {
            "cost_usd": round(self._spent(), 6),
            "cost_estimated": True,
            "cost_prices": self._prices.describe(),
            "cost_note": self._meter.note,
        }
        if shape.dsql is not None:
            price = self._prices.find("dsql-dpu", shape.dsql.region)
            facts["cost_dpu"] = round(self._meter.dpu(), 3)
            facts["usd_per_million_dpu"] = None if price is None else price.usd
        if self._budget.usd is not None:
            facts["budget_usd"] = self._budget.usd
            facts["estimate_usd"] = self._estimate_usd
        facts |= self._budget.facts()
        # For `pytest-dsql cost RUN`: what to ask CloudWatch and Cost Explorer about, when the target is gone.
        facts["cost_shape"] = shape.to_json()
        return facts


def _attempts(done: Done) -> dict[str, float]:
    """Attempts of a cell by transaction, those of the warm-up included."""
    if isinstance(done, Operations):
        return {"operations": done.attempts}
    if not isinstance(done, Measurement):
        return {}
    measured_s = done.duration_s
    # Warm-up requests are none of the samples.
    factor = (measured_s + done.warmup_s) / measured_s if measured_s > 0 else 1.0
    return {name: attempts_of(one) * factor for name, one in done.requests.items()}


def _replicated(dpu: float, parts: Dpu | None) -> float:
    """DPU of a peer in another Region: as much again for each write, at most all of it where nobody tells the parts."""
    if parts is None:
        return dpu
    return 0.0 if parts.multi_region_write else parts.write  # EXPLAIN may have told of it


def costs_by_cell(meter: AwsMeter) -> dict[str, Cost]:
    """Add up what CloudWatch has told of the stretches of each cell; cells that it hasn't told of are left out."""
    found: dict[str, Cost] = {}
    untold: set[str] = set()
    for use in meter.cells:
        cost = meter.cost(use)
        if cost.source != "cloudwatch":
            untold.add(use.cell)
        found[use.cell] = found[use.cell].plus(cost) if use.cell in found else cost
    return {cell: cost for cell, cost in found.items() if cell not in untold}
