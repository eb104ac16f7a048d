"""What a run will cost, before anything is created: work times measured unit costs times list prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from pytest_dsql.cost.unit_costs import unit_costs
from pytest_dsql.errors import UsageError

if TYPE_CHECKING:
    from pytest_dsql.cost.prices import Price, Prices
    from pytest_dsql.cost.shape import CostShape
    from pytest_dsql.cost.work import Work

_GB = 1e9


@final
@dataclass(frozen=True, slots=True)
class Line:
    """One line of an estimate: so many of an item."""

    what: str  #: `2 x aurora-instance/db.r6g.xlarge for 1.3 h`
    usd: float
    price: Price


@final
@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run on one target will cost, in USD at list prices."""

    target: str
    work: Work
    lines: tuple[Line, ...]
    prices: str  #: where they are from

    @property
    def usd(self) -> float:
        """All of it."""
        return sum(line.usd for line in self.lines)

    @property
    def dpu(self) -> float:
        """Distributed Processing Units; 0 on a target that has none."""
        return dpu_of(self.work) if any(line.price.item == "dsql-dpu" for line in self.lines) else 0.0

    def describe(self) -> str:
        """Say it in one line."""
        hours = self.work.seconds / 3600
        return (
            f"{self.target}: about ${self.usd:,.2f} for {self.work.cells} cells in {hours:.1f} h "
            f"({'; '.join(f'{line.what} ${line.usd:,.2f}' for line in self.lines)}; prices: {self.prices})"
        )


def dpu_of(work: Work) -> float:
    """What work costs on a single-Region cluster, in DPU."""
    known = unit_costs()
    return (
        work.attempts * known.dpu_per_attempt
        + work.connections * known.dpu_per_connection
        + work.rows * known.dpu_per_loaded_row
    )


def estimate(shape: CostShape, work: Work, prices: Prices, *, others_s: float = 0.0) -> Estimate:
    """Price the work on a target of that shape. Raises NoPrice for what has none.

    `others_s`: how long the run's other targets take, which is paid for on this one, too: it waits for them.
    """
    known = unit_costs()
    seconds = shape.coming_s + work.seconds + others_s
    gigabytes = work.rows * known.bytes_per_loaded_row / _GB
    lines: list[Line] = []

    def add(what: str, item: str, region: str, quantity: float, for_s: float = 0.0) -> None:
        price = prices.get(item, region)
        lines.append(Line(what, price.of(quantity, for_s), price))

    for one in shape.fixed:
        lasting = max(seconds, one.least_s)
        time = f" for {lasting / 3600:.1f} h" if prices.get(one.item, one.region).by_time else ""
        add(f"{one.quantity:,g} x {one.item}{time}", one.item, one.region, one.quantity, lasting)
    if shape.dsql is not None:
        dpu = dpu_of(work)
        peers = shape.dsql.peers
        # Each peer is charged as much again for the writes that it takes in; how much of all that is writing isn't
        # known before, so all of it is taken.
        add(f"{dpu:,.0f} DPU", "dsql-dpu", shape.dsql.region, dpu)
        for region, _ in peers:
            add(f"{dpu:,.0f} DPU of replicated writes at most in {region}", "dsql-dpu", region, dpu)
        for region, _ in shape.dsql.clusters:
            add(f"{gigabytes:.2f} GB stored in {region}", "dsql-storage", region, gigabytes, seconds)
    if shape.acu is not None:
        acu = shape.acu
        add(
            f"{acu.count} x {acu.most:g} ACU at most for {seconds / 3600:.1f} h",
            acu.item,
            acu.region,
            acu.count * acu.most,
            seconds,
        )
    if shape.io is not None:
        requests = work.attempts * known.aurora_io_per_attempt
        add(f"{requests:,.0f} storage requests", "aurora-io", shape.io.region, requests)
        add(f"{gigabytes:.2f} GB stored", "aurora-storage", shape.io.region, gigabytes, seconds)
    return Estimate(shape.target, work, tuple(lines), prices.describe())


def check_budget(estimates: Sequence[Estimate], budget_usd: float) -> str:
    """Compare estimates with what the run may cost; give the comparison in one line.

    Raises UsageError when they exceed it: nothing has been created yet, and nothing will be.
    """
    total = sum(one.usd for one in estimates)
    parts = "; ".join(one.describe() for one in estimates)
    if total > budget_usd:
        raise UsageError(
            f"the estimate of ${total:,.2f} exceeds the budget of ${budget_usd:,.2f} (--dsql-budget), so nothing is "
            f"started. {parts}. Select fewer tests, a smaller plan or scale, or allow more"
        )
    return f"estimate ${total:,.2f} of a budget of ${budget_usd:,.2f}. {parts}"
