"""How much data the order workload loads: the named scales, and what follows from their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Final, final

from pytest_dsql.errors import UsageError

#: Orders come in blocks of four with 1, 2, 3 and 4 lines in some order, so that totals are exact: 2.5 lines each.
ORDERS_PER_BLOCK: Final = 4
LINES_PER_BLOCK: Final = 10


@final
@dataclass(frozen=True, slots=True)
class OrdersScale:
    """Row counts of the order workload. Ids of loaded rows are 0 .. count - 1 in every table.

    The last `set_aside` of the orders are what `order_cancel` draws from; when they run short, further orders with
    higher ids are loaded. Raises UsageError for numbers that can't be loaded.
    """

    name: str
    tenants: int
    customers: int
    products: int
    orders: int
    set_aside: int

    def __post_init__(self) -> None:
        for label in ("tenants", "customers", "products", "orders"):
            if getattr(self, label) < 1:
                raise UsageError(f"scale {self.name!r}: {label} must be at least 1, not {getattr(self, label)}")
        if self.tenants > min(self.customers, self.products):
            raise UsageError(f"scale {self.name!r}: more tenants than customers or products")
        if self.products < 3:
            raise UsageError(f"scale {self.name!r}: an order takes up to 3 of the products, not {self.products}")
        if self.orders % ORDERS_PER_BLOCK:
            raise UsageError(f"scale {self.name!r}: orders must be a multiple of {ORDERS_PER_BLOCK}: {self.orders}")
        if not 0 <= self.set_aside <= self.orders:
            raise UsageError(f"scale {self.name!r}: set_aside must be 0 to {self.orders}, not {self.set_aside}")

    @property
    def order_items(self) -> int:
        """Order lines: exactly 2.5 per order."""
        return self.orders // ORDERS_PER_BLOCK * LINES_PER_BLOCK

    @property
    def ledger(self) -> int:
        """Ledger rows: one charge per order."""
        return self.orders

    @property
    def first_set_aside(self) -> int:
        """The lowest id that `order_cancel` may draw."""
        return self.orders - self.set_aside

    @property
    def rows(self) -> Mapping[str, int]:
        """Rows of each table after a load: what loaded counts are checked against."""
        return MappingProxyType(
            {
                "tenants": self.tenants,
                "customers": self.customers,
                "products": self.products,
                "inventory": self.products,
                "orders": self.orders,
                "order_items": self.order_items,
                "ledger": self.ledger,
            }
        )

    @property
    def total_rows(self) -> int:
        """Rows of all tables after a load."""
        return sum(self.rows.values())

    def describe(self) -> str:
        """Name and sizes in one line: two scales with the same description hold the same rows (given one seed)."""
        sizes = asdict(self)
        name = sizes.pop("name")
        return f"{name} ({', '.join(f'{label} {count}' for label, count in sizes.items())})"


#: `full` has the row counts of the published experiment (Aurora DSQL, Seoul, 2026-09), `quick` a hundredth of them.
SCALES: Final[Mapping[str, OrdersScale]] = MappingProxyType(
    {
        "tiny": OrdersScale("tiny", tenants=2, customers=100, products=50, orders=400, set_aside=200),
        "quick": OrdersScale("quick", tenants=10, customers=10_000, products=2_000, orders=110_000, set_aside=55_000),
        "full": OrdersScale(
            "full", tenants=100, customers=1_000_000, products=200_000, orders=11_000_000, set_aside=5_500_000
        ),
    }
)


def scale_named(name: str) -> OrdersScale:
    """Return the scale of that name. Raises UsageError naming the scales there are."""
    if name not in SCALES:
        raise UsageError(f"no scale {name!r} of the order workload: choose {', '.join(SCALES)}")
    return SCALES[name]
