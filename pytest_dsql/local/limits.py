"""DSQL's limits, each of which an engine can be given another value for.

The defaults are DSQL's: AWS user guide, "Cluster quotas and database limits in Amazon Aurora DSQL" (September 2026)
unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, final

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
    schemas: int = 10
    tables: int = 1_000
    views: int = 5_000
    sequences: int = 5_000
    job_build_s: float = 0.5  #: from a job's start to its end. DSQL takes 5 to 60 s even for an empty table
    wake_s: float = 0.0  #: how long the cluster sleeps on after the first connection that would wake it

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value >= 0 and value < float("inf")):
                raise ValueError(f"{field.name}={value}: a limit is a finite number, 0 or more")


#: What DSQL has.
DEFAULT: Final = Limits()
