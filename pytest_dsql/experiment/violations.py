"""What a workload's check of the data may answer."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import isfinite

from pytest_dsql.errors import UsageError


def whole_violations(found: object, workload: object) -> dict[str, int]:
    """Return what a workload's `check_cell` found as whole numbers: PostgreSQL's `sum(bigint)` comes as a Decimal.

    Raises UsageError for anything that is no number of violations by the invariant's name.
    """
    if not isinstance(found, Mapping):
        raise UsageError(
            f"{type(workload).__name__}.check_cell must return the number of violations by the name of the invariant, "
            f"not {found!r}"
        )
    counts: dict[str, int] = {}
    for name, count in found.items():
        if not isinstance(count, (int, float, Decimal)) or not isfinite(count) or count % 1 != 0:
            raise UsageError(
                f"{type(workload).__name__}.check_cell: "
                f"the number of violations of {name!r} is no whole number: {count!r}"
            )
        counts[str(name)] = int(count)
    return counts
