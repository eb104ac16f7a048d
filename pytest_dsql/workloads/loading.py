"""How far a load of data has come, for whoever watches it: a person, or the guard of a budget, which may end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a load has come. Who is told of it may raise: the load ends then, and the next one goes on from there."""

    rows: int  #: landed, by this load or an earlier one
    total_rows: int
    elapsed_s: float
    step: str  #: what is being done: "rows", "indexes" or "checks"
