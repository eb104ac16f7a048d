"""Prices of what targets use: asked of the Price List API, else taken from a dated table that comes with the package.

An item is named by what is sold: `dsql-dpu`, `aurora-instance/db.r6g.xlarge`. `UNITS` says what one price is for.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias, final

from pytest_dsql.errors import DsqlError

_TABLE: Final = Path(__file__).parent / "prices.toml"
#: AWS's own pages reckon with so many hours in a month.
HOURS_PER_MONTH: Final = 730.0

#: What one price is for -> how many seconds, or how many pieces, that is. Of what is paid for by time, one of it.
UNITS: Final[Mapping[str, float]] = {
    "hour": 3600.0,
    "month": HOURS_PER_MONTH * 3600,
    "GB-month": HOURS_PER_MONTH * 3600,
    "IOPS-month": HOURS_PER_MONTH * 3600,
    "MBps-month": HOURS_PER_MONTH * 3600,
    "million": 1e6,
    "million DPU": 1e6,
    "one": 1.0,
}
_OF_TIME: Final = ("hour", "month", "GB-month", "IOPS-month", "MBps-month")


class NoPrice(DsqlError):
    """Nobody knows what an item costs in a Region, so no estimate can be made."""


@final
@dataclass(frozen=True, slots=True)
class Price:
    """What one unit of an item costs in a Region."""

    item: str
    region: str
    usd: float
    unit: str  #: a key of `UNITS`
    dated: date  #: the day for which the source states it
    source: str
    listed: bool = False  #: whether the Price List API said so, in this run
    assumed: bool = False  #: it is that of another Region, the dearest known

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"price of {self.item}: unknown unit {self.unit!r}")
        if not 0 < self.usd < 1e6:
            raise ValueError(f"price of {self.item}: {self.usd!r} USD is no price")

    @property
    def by_time(self) -> bool:
        """Whether it is paid for as long as it exists, rather than by the piece."""
        return self.unit in _OF_TIME

    def of(self, quantity: float, seconds: float = 0.0) -> float:
        """USD for so many, and where it is paid for by time, for so long."""
        return self.usd * quantity * (seconds if self.by_time else 1.0) / UNITS[self.unit]


#: Gives the price of an item in a Region as the Price List API has it; None when it has none or can't be asked.
Lookup: TypeAlias = Callable[[str, str], Price | None]


@final
class Prices:
    """Prices of one run: each is looked up once."""

    def __init__(self, lookup: Lookup | None = None, *, assume: bool = False) -> None:
        """`lookup` is asked first; None: the table only. `assume`: what a Region has no price of costs as elsewhere."""
        self._lookup = lookup
        self._assume = assume
        self._known: dict[tuple[str, str], Price | None] = {}

    def find(self, item: str, region: str) -> Price | None:
        """Give the price; None when nobody knows it."""
        key = item, region
        if key not in self._known:
            listed = self._lookup(item, region) if self._lookup is not None else None
            table = tabled()
            self._known[key] = listed or table.get(key) or table.get((item, "*")) or self._elsewhere(item, region)
        return self._known[key]

    def _elsewhere(self, item: str, region: str) -> Price | None:
        """The dearest price of an item in any Region: a budget is better kept by too much than by nothing."""
        known = [one for (name, _), one in tabled().items() if name == item] if self._assume else []
        return replace(max(known, key=lambda one: one.usd), region=region, assumed=True) if known else None

    def get(self, item: str, region: str) -> Price:
        """Give the price. Raises NoPrice saying what would help."""
        price = self.find(item, region)
        if price is None:
            raise NoPrice(
                f"no price is known of {item} in {region}: the table that comes with pytest-dsql has none, and the "
                "Price List API gave none (it needs the permission pricing:GetProducts)"
            )
        return price

    @property
    def used(self) -> list[Price]:
        """Every price that was asked for and found."""
        return [one for one in self._known.values() if one is not None]

    def describe(self) -> str:
        """Say in a few words where the prices are from: `Price List API`, or the table with the date of its oldest."""
        tabled_ones = [one for one in self.used if not one.listed]
        if not tabled_ones:
            return "Price List API"
        oldest = min(one.dated for one in tabled_ones)
        also = "Price List API, and " if len(tabled_ones) < len(self.used) else ""
        assumed = sorted({one.region for one in tabled_ones if one.assumed})
        note = f", for {' and '.join(assumed)} the dearest of other Regions" if assumed else ""
        return f"{also}table of {oldest.isoformat()}{note}"


@cache
def tabled() -> Mapping[tuple[str, str], Price]:
    """The table that comes with the package, by item and Region; `*` stands for any Region."""
    content = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    sources = content["sources"]
    found: dict[tuple[str, str], Price] = {}
    for one in content["price"]:
        key = one["item"], one["region"]
        if key in found:
            raise ValueError(f"prices.toml has {one['item']} in {one['region']} twice")
        found[key] = Price(
            item=one["item"],
            region=one["region"],
            usd=float(one["usd"]),
            unit=one["unit"],
            dated=one["dated"],
            source=sources[one["source"]],
        )
    return found
