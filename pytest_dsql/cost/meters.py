"""What a target has used so far: measured as far as CloudWatch has come, reckoned from there on.

CloudWatch learns of a minute some minutes later. Until then a cell's use is its attempts and connections times measured
unit costs, and time is time: instances cost what they cost whether or not they are used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
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

_LOG: Final = logging.getLogger(__name__)

#: After so long a minute without data had no use.
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
    dpu: float  #: by unit costs; 0 on a target that has none
    parts: Dpu | None = None


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
        self._minutes: dict[int, tuple[float, Dpu]] = {}
        self._acu: dict[int, float] = {}
        self._io: dict[int, float] = {}
        self._asked_s = float("-inf")
        #: Up to here CloudWatch has told everything.
        self.settled_s = began_s
        self.refusal: str | None = None if clients is not None else "CloudWatch can't be asked without boto3"

    def add(self, use: CellUse) -> None:
        """Note a cell that has ended."""
        self._cells.append(use)

    @property
    def cells(self) -> tuple[CellUse, ...]:
        """The cells so far."""
        return tuple(self._cells)

    def read(self, *, at_once: bool = False) -> None:
        """Ask CloudWatch, unless that was a moment ago. A refusal is kept and never asked about again."""
        now = self._now()
        if self._clients is None or self.refusal is not None or (now - self._asked_s < _EVERY_S and not at_once):
            return
        self._asked_s = now
        start = self.settled_s - _IO_PERIOD_S
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
        newest = max((*self._minutes, *self._acu), default=0)
        self.settled_s = max(self.settled_s, float(newest), min(now - SETTLED_AFTER_S, now))

    def dpu(self) -> float:
        """DPU so far: measured as far as CloudWatch has come, and reckoned for cells after that."""
        measured = sum(total for minute, (total, _) in self._minutes.items() if minute < self.settled_s)
        return measured + self._processes * sum(use.dpu * self._unsettled(use) for use in self._cells)

    def _unsettled(self, use: CellUse) -> float:
        """The part of a cell that CloudWatch hasn't told of."""
        lasted = use.ended_s - use.began_s
        if self.refusal is not None or (lasted <= 0 and use.ended_s > self.settled_s):
            return 1.0
        if lasted <= 0:
            return 0.0
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
            usd += self._price_of_dpu(self.dpu()) or 0.0
        if shape.acu is not None and (price := self._prices.find(shape.acu.item, shape.acu.region)) is not None:
            told = sum(acu for minute, acu in self._acu.items() if minute < self.settled_s)
            minutes = sum(1 for minute in self._acu if minute < self.settled_s)
            untold_s = max(elapsed - minutes * MINUTE_S, 0.0)
            usd += price.of(told, MINUTE_S) + price.of(shape.acu.count * shape.acu.most, untold_s)
        if shape.io is not None and (price := self._prices.find("aurora-io", shape.io.region)) is not None:
            usd += price.of(sum(self._io.values()))
        return usd

    def _price_of_dpu(self, dpu: float) -> float | None:
        assert self.shape.dsql is not None
        price = self._prices.find("dsql-dpu", self.shape.dsql.region)
        return None if price is None else price.of(dpu)

    def cost(self, use: CellUse) -> Cost:
        """What a cell has cost: measured where CloudWatch has told of all of it, else reckoned."""
        settled = self.refusal is None and self._clients is not None and use.ended_s + MINUTE_S <= self.settled_s
        lasted = use.ended_s - use.began_s
        usd: float | None = 0.0
        for one in self.shape.fixed:
            usd = _sum(usd, self._prices.find(one.item, one.region), one.quantity, lasted)
        if self.shape.acu is not None:
            acu = self.shape.acu
            in_use = _average(self._acu, use) if settled else None
            price = self._prices.find(acu.item, acu.region)
            usd = _sum(usd, price, acu.count * acu.most if in_use is None else in_use, lasted)
        if self.shape.io is not None and settled:
            requests = sum(count * _overlap(use, start, _IO_PERIOD_S) for start, count in self._io.items())
            usd = _sum(usd, self._prices.find("aurora-io", self.shape.io.region), requests, 0.0)
        if self.shape.dsql is None:
            estimated = not settled if (self.shape.acu or self.shape.io) else False
            metered = settled and (self.shape.acu is not None or self.shape.io is not None)
            return Cost(use.began_s, use.ended_s, None, None, usd, estimated, "cloudwatch" if metered else "time")
        dpu, parts, estimated = use.dpu, use.parts, True
        if settled:
            dpu, parts, estimated = self._measured(use)
        of_dpu = self._price_of_dpu(dpu)
        usd = None if usd is None or of_dpu is None else usd + of_dpu
        return Cost(use.began_s, use.ended_s, dpu, parts, usd, estimated, "cloudwatch" if settled else "unit costs")

    def _measured(self, use: CellUse) -> tuple[float, Dpu, bool]:
        dpu = shared = 0.0
        parts = Dpu()
        for minute, (total, those) in self._minutes.items():
            part = _overlap(use, minute, MINUTE_S)
            if part > 0:
                dpu += total * part
                parts = parts.plus(those.times(part))
                shared += total * part if part < 1 else 0.0
        return dpu, parts, not dpu or shared > _SHARED_AT_MOST * dpu


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
