"""What functions of Lambda and the state machine that calls them have cost so far: counted here, and by CloudWatch.

The functions' own answers say at once how many calls there were and how long each worked; CloudWatch says it some
minutes later, and knows of calls whose answers were lost. Both are counts of what has been, so the larger one counts.
Sources: Lambda developer guide, "Types of metrics for Lambda functions" (Invocations, Duration in milliseconds,
Throttles, dimension FunctionName); Lambda pricing (GB-seconds of duration, starting included, and requests); Step
Functions pricing (each transition of a standard workflow, tries again included).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.aws.failures import AwsError
from pytest_dsql.cost.cloudwatch import function_totals
from pytest_dsql.cost.shape import CostShape, Fixed
from pytest_dsql.errors import CredentialsError

if TYPE_CHECKING:
    from pytest_dsql.cost.price_list import Caller
    from pytest_dsql.cost.prices import Prices

_LOG: Final = logging.getLogger(__name__)

#: Function seconds of a start beside the work: what a new function needs to be there, and what CloudWatch's Duration
#: leaves out (Lambda developer guide, "Understanding the Lambda execution environment lifecycle": the Init phase).
STARTING_S: Final = 1.0
#: State transitions of one call: its child workflow's start, the call, the end.
TRANSITIONS: Final = 3
#: CloudWatch is asked at most so often.
_EVERY_S: Final = 30.0


@final
@dataclass(frozen=True, slots=True)
class Work:
    """What functions have done."""

    calls: float = 0.0
    busy_s: float = 0.0  #: of all calls together, starts left out
    starts: float = 0.0  #: of functions that had not been called before
    refused: float = 0.0  #: calls that were refused for the rate, and made again

    def plus(self, other: Work) -> Work:
        """Both together."""
        return Work(
            self.calls + other.calls,
            self.busy_s + other.busy_s,
            self.starts + other.starts,
            self.refused + other.refused,
        )

    def shape(self, target: str, region: str, memory_mb: int) -> CostShape:
        """Return what of it is paid for."""
        seconds = self.busy_s + self.starts * STARTING_S
        fixed = (
            Fixed("lambda-gb-second", region, round(seconds * memory_mb / 1024, 3)),
            Fixed("lambda-requests", region, round(self.calls)),
            Fixed("step-functions-transitions", region, round(self.calls * TRANSITIONS + self.refused)),
        )
        return CostShape(target, fixed=fixed)


@final
class FunctionMeter:
    """What the functions of one process of a run have cost so far, and with CloudWatch's help those of all."""

    def __init__(
        self,
        target: str,
        *,
        region: str,
        function: str,
        memory_mb: int,
        prices: Prices,
        clients: Caller | None,
        began_s: float,
        processes: int = 1,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`target` names what is paid for in an estimate; `function` is the function's name, `processes` are the run's.

        `clients` None: CloudWatch can't be asked.
        """
        self._target = target
        self._region = region
        self._function = function
        self._memory_mb = memory_mb
        self._prices = prices
        self._clients = clients
        self._began_s = began_s
        self._processes = processes
        self._now = now
        self._counted = Work()
        self._told: Work | None = None
        self._asked_s = float("-inf")
        self.refusal: str | None = None  #: why CloudWatch is not asked any more

    def add(self, work: Work) -> None:
        """Count what calls have done."""
        self._counted = self._counted.plus(work)

    def read(self, *, at_once: bool = False) -> None:
        """Ask CloudWatch, unless that was a moment ago. A refusal is kept and never asked about again."""
        now = self._now()
        if self._clients is None or self.refusal is not None or (now - self._asked_s < _EVERY_S and not at_once):
            return
        self._asked_s = now
        try:
            told = function_totals(self._clients, self._region, self._function, self._began_s, now)
        except AwsError as error:
            if error.passing:
                _LOG.info("CloudWatch is asked again later: %s", error)
            else:
                self.refusal = str(error)
            return
        except CredentialsError as error:
            self.refusal = str(error)
            return
        if told is not None:
            calls, busy_ms, refused = told
            self._told = Work(calls=calls, busy_s=busy_ms / 1000, refused=refused)

    @property
    def work(self) -> Work:
        """The larger of the two counts."""
        own, told = self._counted, self._told or Work()
        return Work(
            max(own.calls * self._processes, told.calls),
            max(own.busy_s * self._processes, told.busy_s),
            own.starts * self._processes,
            told.refused,
        )

    def usd(self) -> float:
        """USD so far; CloudWatch is asked now and then."""
        self.read()
        found = 0.0
        for one in self.work.shape(self._target, self._region, self._memory_mb).fixed:
            price = self._prices.find(one.item, one.region)
            found += price.of(one.quantity) if price is not None else 0.0
        return found

    def facts(self) -> dict[str, Any]:
        """What the results file says of it: beside the target's cost, not in it."""
        self.read(at_once=True)
        told = self._told is not None and self._told.calls >= self._counted.calls * self._processes
        return {
            "runner_usd": round(self.usd(), 6),
            "runner_calls": round(self.work.calls),
            "runner_gb_s": round((self.work.busy_s + self.work.starts * STARTING_S) * self._memory_mb / 1024, 3),
            "runner_source": "cloudwatch" if told else "unit costs",
        }
