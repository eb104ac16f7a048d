"""DSQL's limits, each of which an engine can be given another value for.

The defaults are DSQL's: AWS user guide, "Cluster quotas and database limits in Amazon Aurora DSQL" (September 2026)
unless said otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, final

from pytest_dsql.errors import UsageError

_MIB: Final = 1024 * 1024


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one cluster. Names end with their unit where it isn't a count."""

    connections: int = 10_000  #: open at the same time
    connect_rate_per_s: float = 100.0  #: new connections, as the token bucket is refilled
    connect_burst: int = 1_000  #: the token bucket's size
    session_s: float = 3_600.0  #: a connection's life
    session_grace_s: float = 300.0  #: for a transaction that is running when the life ends
    transaction_age_s: float = 300.0
    transaction_rows: int = 3_000  #: modified rows
    transaction_bytes: int = 10 * _MIB  #: written, index entries included
    message_bytes: int = 10 * _MIB  #: of one message of a client
    value_bytes: int = _MIB  #: of one text, bytea or json value
    row_bytes: int = 2 * _MIB
    #: Of an index's key with the primary key's: seen on clusters in October 2026, where the user guide says 1 KiB.
    key_bytes: int = 1_981
    declared_key_bytes: int = (
        2_000  #: what the columns of a key are declared to take, as seen on clusters in October 2026
    )
    storage_bytes: int = 10 * 1024 * 1024 * _MIB  #: of the cluster; checked only where it is less than this
    schemas: int = 10
    tables: int = 1_000
    views: int = 5_000
    sequences: int = 5_000
    columns: int = 256  #: of a table, as seen on clusters in October 2026, where the user guide says 255
    indexes: int = 24  #: of a table, the primary key's included
    statistics: int = 5  #: extended ones of a table
    view_bytes: int = 512 * 1024  #: a view's definition, as seen on clusters in October 2026; the user guide says 2 MiB
    job_build_s: float = 0.5  #: from a job's start to its end. DSQL takes 5 to 60 s even for an empty table
    wake_s: float = 0.0  #: how long the cluster sleeps on after the first connection that would wake it

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value >= 0 and value < float("inf")):
                raise ValueError(f"{field.name}={value}: a limit is a finite number, 0 or more")

    def changed(self, values: Mapping[str, object]) -> Limits:
        """These limits with other values, numbers or their texts. Raises UsageError for a wrong name or value."""
        for name in values:
            if name not in NAMES:
                raise UsageError(f"{name!r} is no limit; known: {', '.join(NAMES)}")
        try:
            numbers: dict[str, Any] = {name: _number(name, value) for name, value in values.items()}
            return replace(self, **numbers)
        except ValueError as error:
            raise UsageError(str(error)) from None


#: What DSQL has.
DEFAULT: Final = Limits()

#: The limits' names.
NAMES: Final = tuple(field.name for field in fields(Limits))

_COUNT: Final = re.compile(r"[0-9]{1,18}")
_DECIMAL: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")


def _number(name: str, value: object) -> float:
    """Read a limit's value: a whole number where the limit counts, seconds and rates may have decimals."""
    whole = isinstance(getattr(DEFAULT, name), int)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if whole and not (value == value and abs(value) < 10**18 and value == int(value)):
            raise ValueError(f"{name}={value}: a whole number, 0 or more")
        return int(value) if whole else float(value)
    text = str(value)
    if not (_COUNT if whole else _DECIMAL).fullmatch(text):
        raise ValueError(f"{name}={text}: {'a whole number' if whole else 'a number'}, 0 or more")
    return int(text) if whole else float(text)
