"""What a target has used so far: measured as far as CloudWatch has come, reckoned from there on.

CloudWatch learns of a minute some minutes later. Until then a cell's use is its attempts and connections times measured
unit costs, and time is time: instances cost what they cost whether or not they are used. Silence is no zero: a cell of
which CloudWatch never tells a minute stays reckoned.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.aws.failures import AwsError
from pytest_dsql.cost.cloudwatch import MINUTE_S, DsqlMeter, acu_minutes, io_periods
from pytest_dsql.errors import CredentialsError
from pytest_dsql.load.cost import Cost, Dpu

if TYPE_CHECKING:
    from pytest_dsql.cost.price_list import Caller
    from pytest_dsql.cost.prices import Prices
    from pytest_dsql.cost.shape import CostShape
    from pytest_dsql.load.cost import Source

_LOG: Final = logging.getLogger(__name__)

#: After so long a minute without data had no use, where CloudWatch has told of other minutes of the cell.
SETTLED_AFTER_S: Final = 300.0
#: CloudWatch is asked at most so often.
_EVERY_S: Final = 30.0
#: A cell is measured when the minutes that it shares with what was before and after it hold at most this part of it.
_SHARED_AT_MOST: Final = 0.2
_IO_PERIOD_S: Final = 300


@final
@dataclass(frozen=True, slots=True)
class CellUse:
    """A cell, and what it is reckoned to have used."""

    cell: str
    began_s: float
    ended_s: float
    dpu: float  #: by unit costs, in the first Region; 0 on a target that has none
    parts: Dpu | None = None
    peer_dpu: float = 0.0  #: in the Region of each peer, for the writes that it takes in: at most
    requests: float = 0.0  #: to the storage of an Aurora cluster, by unit costs


@final
class AwsMeter:
    """The use of one target in an AWS account."""

    def __init__(
        self,
        shape: CostShape,
        prices: Prices,
        clients: Caller | None,
        *,
        began_s: float,
        processes: int = 1,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`began_s`: since when it is paid for. `clients` None: nobody can ask CloudWatch.

        `processes`: how many of the run use it; the cells of the others are taken for as many as one's own, until
        CloudWatch tells of all of them.
        """
        self._processes = processes
        self.shape: Final = shape
        self._prices = prices
        self._clients = clients
        self._began_s = began_s
        self._now = now
        self._dsql = DsqlMeter(clients, shape.dsql) if clients is not None and shape.dsql is not None else None
        self._cells: list[CellUse] = []
        self._minutes: dict[tuple[str, int], tuple[float, Dpu]] = {}
        self._acu: dict[int, float] = {}
        self._io: dict[int, float] = {}
        self._asked_s = float("-inf")
        #: Up to here CloudWatch has told everything.
        self.settled_s = began_s
        self.refusal: str | None = None if clients is not None else "CloudWatch can't be asked without boto3"

    def add(self, use: CellUse, *, instead_of: CellUse | None = None) -> None:
        """Note a cell that has ended, or one that goes on, in place of what was known of it before."""
        if instead_of is not None:
            self._cells.remove(instead_of)
        self._cells.append(use)

    @property
    def cells(self) -> tuple[CellUse, ...]:
        """The cells so far."""
        return tuple(self._cells)

    @property
    def silent(self) -> tuple[str, ...]:
        """Of what CloudWatch has told nothing at all: that needn't be nothing, another account is as silent."""
        shape = self.shape
        regions = [region for region, _ in shape.dsql.clusters] if shape.dsql is not None else []
        told = {region for region, _ in self._minutes}
        found = [f"DPU in {region}" for region in regions if region not in told]
        found += ["ACU"] if shape.acu is not None and not self._acu else []
        found += ["requests to the storage"] if shape.io is not None and not self._io else []
        return tuple(found)

    @property
    def note(self) -> str | None:
        """Why unit costs are used in place of what CloudWatch says; None where they are not."""
        if self.refusal is not None:
            return self.refusal
        silent = self.silent
        if not silent or all(self.measures(use) for use in self._cells):
            return None
        return f"CloudWatch has told nothing of {' and '.join(silent)}: unit costs are used"

    def read(self, *, at_once: bool = False) -> None:
        """Ask CloudWatch, unless that was a moment ago. A refusal is kept and never asked about again."""
        now = self._now()
        if self._clients is None or self.refusal is not None or (now - self._asked_s < _EVERY_S and not at_once):
            return
        self._asked_s = now
        # What is late is asked for again.
        untold = [use.began_s for use in self._cells if not self.measures(use)]
        start = min([self.settled_s, *untold]) - _IO_PERIOD_S
        try:
            if self._dsql is not None:
                self._minutes.update(self._dsql.minutes(start, now))
            if self.shape.acu is not None:
                self._acu.update(acu_minutes(self._clients, self.shape.acu, start, now))
            if self.shape.io is not None:
                self._io.update(io_periods(self._clients, self.shape.io, start, now))
        except AwsError as error:
            if error.passing:
                _LOG.info("CloudWatch is asked again later: %s", error)
                return
            self.refusal = str(error)
            return
        except CredentialsError as error:
            self.refusal = str(error)
            return
        # The newest minute may not be whole yet.
        newest = max((*(minute for _, minute in self._minutes), *self._acu), default=0)
        self.settled_s = max(self.settled_s, float(newest), min(now - SETTLED_AFTER_S, now))

    def dpu(self) -> float:
        """DPU so far: measured as far as CloudWatch has come, and reckoned for cells after that."""
        return sum(self._dpu_by_region().values())

    def _dpu_by_region(self) -> dict[str, float]:
        found = {region: 0.0 for region, _ in self.shape.dsql.clusters} if self.shape.dsql is not None else {}
        for (region, minute), (total, _) in self._minutes.items():
            found[region] += total if minute < self.settled_s else 0.0
        for region in found:
            found[region] += self._processes * sum(
                self._reckoned(use, region) * self._untold(use, told=self._told(use, region)) for use in self._cells
            )
        return found

    def _reckoned(self, use: CellUse, region: str) -> float:
        """DPU of a cell in a Region."""
        assert self.shape.dsql is not None
        return use.dpu if region == self.shape.dsql.region else use.peer_dpu

    def _told(self, use: CellUse, region: str) -> bool:
        """Whether CloudWatch has told of any minute of a cell in a Region."""
        return any((region, minute) in self._minutes for minute in _periods(use, MINUTE_S))

    def _untold(self, use: CellUse, *, told: bool) -> float:
        """The part of a cell that CloudWatch hasn't told of; `told`: whether it has told of any."""
        lasted = use.ended_s - use.began_s
        if self.refusal is not None or not told:
            return 1.0
        if lasted <= 0:
            return 1.0 if use.ended_s > self.settled_s else 0.0
        return min(max(use.ended_s - max(self.settled_s, use.began_s), 0.0) / lasted, 1.0)

    def usd(self, until_s: float | None = None) -> float:
        """USD so far, or until then, of what has a price."""
        shape = self.shape
        elapsed = max((self._now() if until_s is None else until_s) - self._began_s, 0.0)
        usd = sum(
            price.of(one.quantity, max(elapsed, one.least_s))
            for one in shape.fixed
            if (price := self._prices.find(one.item, one.region)) is not None
        )
        if shape.dsql is not None:
            usd += self._price_of_dpu(self._dpu_by_region(), 0.0) or 0.0
        if shape.acu is not None and (price := self._prices.find(shape.acu.item, shape.acu.region)) is not None:
            told = sum(acu for minute, acu in self._acu.items() if minute < self.settled_s)
            minutes = sum(1 for minute in self._acu if minute < self.settled_s)
            untold_s = max(elapsed - minutes * MINUTE_S, 0.0)
            usd += price.of(told, MINUTE_S) + price.of(shape.acu.count * shape.acu.most, untold_s)
        if shape.io is not None and (price := self._prices.find("aurora-io", shape.io.region)) is not None:
            reckoned = sum(
                use.requests * self._untold(use, told=_any_of(self._io, use, _IO_PERIOD_S)) for use in self._cells
            )
            usd += price.of(sum(self._io.values()) + self._processes * reckoned)
        return usd

    def _price_of_dpu(self, by_region: Mapping[str, float], unknown: float | None = None) -> float | None:
        """USD of DPU, each at its Region's price; `unknown` is what DPU without a price come to."""
        usd: float | None = 0.0
        for region, dpu in by_region.items():
            price = self._prices.find("dsql-dpu", region)
            one = unknown if price is None else price.of(dpu)
            usd = None if usd is None or one is None else usd + one
        return usd

    def measures(self, use: CellUse) -> bool:
        """Whether CloudWatch has told of a cell what it can tell, of everything that it meters."""
        if self.refusal is not None or self._clients is None or use.ended_s + MINUTE_S > self.settled_s:
            return False
        if self.shape.dsql is not None and not all(
            self._told(use, region)
            for region, _ in self.shape.dsql.clusters
            if region == self.shape.dsql.region or self._reckoned(use, region)
        ):
            return False
        if self.shape.acu is not None and not _any_of(self._acu, use, MINUTE_S):
            return False
        return self.shape.io is None or _any_of(self._io, use, _IO_PERIOD_S)

    def cost(self, use: CellUse) -> Cost:
        """What a cell has cost: measured where CloudWatch has told of all of it, else reckoned."""
        shape, measured = self.shape, self.measures(use)
        lasted = use.ended_s - use.began_s
        usd: float | None = 0.0
        for one in shape.fixed:
            usd = _sum(usd, self._prices.find(one.item, one.region), one.quantity, lasted)
        if shape.acu is not None:
            in_use = _average(self._acu, use) if measured else None
            price = self._prices.find(shape.acu.item, shape.acu.region)
            usd = _sum(usd, price, shape.acu.count * shape.acu.most if in_use is None else in_use, lasted)
        if shape.io is not None:
            told = sum(count * _overlap(use, start, _IO_PERIOD_S) for start, count in self._io.items())
            requests = told if measured else use.requests
            usd = _sum(usd, self._prices.find("aurora-io", shape.io.region), requests, 0.0)
        if shape.dsql is None:
            metered = shape.acu is not None or shape.io is not None
            source: Source = "cloudwatch" if metered and measured else "time"
            return Cost(use.began_s, use.ended_s, None, None, usd, metered and not measured, source)
        by_region, parts, estimated = self._measured(use) if measured else (*self._reckoned_in_all(use), True)
        of_dpu = self._price_of_dpu(by_region)
        usd = None if usd is None or of_dpu is None else usd + of_dpu
        source = "cloudwatch" if measured else "unit costs"
        return Cost(use.began_s, use.ended_s, sum(by_region.values()), parts, usd, estimated, source)

    def _reckoned_in_all(self, use: CellUse) -> tuple[dict[str, float], Dpu | None]:
        assert self.shape.dsql is not None
        by_region = {region: self._reckoned(use, region) for region, _ in self.shape.dsql.clusters}
        if use.parts is None:
            return by_region, None
        return by_region, use.parts.plus(Dpu(multi_region_write=use.peer_dpu * len(self.shape.dsql.peers)))

    def _measured(self, use: CellUse) -> tuple[dict[str, float], Dpu, bool]:
        by_region: dict[str, float] = {}
        shared = 0.0
        parts = Dpu()
        for (region, minute), (total, those) in self._minutes.items():
            part = _overlap(use, minute, MINUTE_S)
            if part > 0:
                by_region[region] = by_region.get(region, 0.0) + total * part
                parts = parts.plus(those.times(part))
                shared += total * part if part < 1 else 0.0
        dpu = sum(by_region.values())
        return by_region, parts, not dpu or shared > _SHARED_AT_MOST * dpu


def _periods(use: CellUse, length_s: int) -> range:
    """The starts of all periods in which a cell ran, in seconds since the epoch."""
    first = int(use.began_s) // length_s * length_s
    return range(first, max(math.ceil(use.ended_s), first + 1), length_s)


def _any_of(told: Container[int], use: CellUse, length_s: int) -> bool:
    """Whether anything is told of a cell."""
    return any(start in told for start in _periods(use, length_s))


def _sum(usd: float | None, price: object, quantity: float, seconds: float) -> float | None:
    from pytest_dsql.cost.prices import Price

    return None if usd is None or not isinstance(price, Price) else usd + price.of(quantity, seconds)


def _overlap(use: CellUse, start_s: float, length_s: float) -> float:
    """The part of a period in which a cell ran."""
    return max(min(use.ended_s, start_s + length_s) - max(use.began_s, start_s), 0.0) / length_s


def _average(values: Mapping[int, float], use: CellUse) -> float | None:
    """The average over a cell of what is told by the minute; None where nothing is told."""
    weights = {minute: _overlap(use, minute, MINUTE_S) for minute in values}
    total = sum(weights.values())
    return sum(values[minute] * weight for minute, weight in weights.items()) / total if total else None
