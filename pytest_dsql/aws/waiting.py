"""Waiting for what AWS does in its own time: bounded, with growing pauses, and tolerant of passing failures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar, final

from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.errors import DsqlError

T = TypeVar("T")

#: How long something that was just created may be "not found": reads follow writes with a delay ("Eventual consistency
#: in the Amazon EC2 API", EC2 developer guide; other services say the same).
SETTLING_S: Final = 60.0


@final
@dataclass(frozen=True, slots=True)
class Clock:
    """Time and its passing; tests give their own."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


@final
class WaitedInVain(DsqlError):
    """Something was not ready within its time."""


def until(
    probe: Callable[[], T | None],
    *,
    what: str,
    limit_s: float,
    clock: Clock | None = None,
    first_s: float = 1.0,
    longest_s: float = 15.0,
    settling_s: float = SETTLING_S,
) -> T:
    """Ask `probe` until it returns something, and return that.

    Throttled and unanswered calls are asked again, and so is "not found" within the first `settling_s` seconds. `what`
    names what is waited for. Raises WaitedInVain after `limit_s` seconds, and what else the probe raises.
    """
    clock = clock or Clock()
    start = clock.monotonic()
    pause = first_s
    trouble: AwsError | None = None
    while True:
        wait = pause
        try:
            found = probe()
            trouble = None
            if found is not None:
                return found
        except AwsError as error:
            waited = clock.monotonic() - start
            if not error.passing and not (error.failure is Failure.NOT_FOUND and waited < settling_s):
                raise
            trouble = error
            wait = max(pause, error.retry_after_s or 0.0)
        left = limit_s - (clock.monotonic() - start)
        if left <= 0:
            because = f": {trouble}" if trouble else ""
            raise WaitedInVain(f"{what} took longer than {limit_s:g} s{because}")
        clock.sleep(min(wait, left))
        pause = min(pause * 1.6, longest_s)
