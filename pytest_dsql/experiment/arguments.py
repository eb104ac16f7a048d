"""What arguments of a cell may be."""

from __future__ import annotations

from pytest_dsql.errors import UsageError
from pytest_dsql.experiment.stretch import MOST_PER_CELL, How
from pytest_dsql.transaction import SLOT_BITS


def check_whole(name: str, value: object, low: int, high: int) -> None:
    """Refuse what is no whole number from `low` to `high`. Raises UsageError."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UsageError(f"{name} must be a whole number from {low} to {high}, not {value!r}")


def check_rate(value: object) -> None:
    """Refuse what is no rate per second that one cell may ask for. Raises UsageError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= MOST_PER_CELL:
        raise UsageError(f"rate must be a number per second, up to {MOST_PER_CELL:,}, not {value!r}")


def check_seconds(name: str, value: object, low: float) -> None:
    """Refuse what is no finite number of seconds of at least `low`. Raises UsageError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value < float("inf"):
        raise UsageError(f"{name} must be seconds, at least {low:g}, not {value!r}")


def check_cell(connections: object, workers: object, warmup: object, duration: object, how: How) -> None:
    """Refuse what no cell can be. Raises UsageError."""
    check_whole("connections", connections, 1, 1 << SLOT_BITS)
    check_whole("attempts", how.get("attempts", 1), 1, 100)
    check_whole("workers", workers, 1, 256)
    check_seconds("warmup", warmup, 0.0)
    check_seconds("answer_timeout", how.get("answer_timeout", 1.0), 0.1)
    check_seconds("duration", duration, 0.1)
