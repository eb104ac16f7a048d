"""Measured unit costs, from `unit_costs.toml`: what estimates before a run are made of."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Final, final

_TABLE: Final = Path(__file__).parent / "unit_costs.toml"


@final
@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What each piece of work costs; the file says who measured it, when, and what is an assumption."""

    dpu_per_attempt: float
    dpu_per_connection: float  #: that is new
    dpu_per_loaded_row: float
    bytes_per_loaded_row: float
    dsql_tps_per_connection: float  #: attempts per second of one connection in closed loop
    most_tps: float  #: that any number of connections reaches
    loaded_rows_per_s: float
    seconds_between_cells: float
    aurora_io_per_attempt: float


@cache
def unit_costs() -> UnitCosts:
    """Read the file."""
    content = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return UnitCosts(**{one.name: float(content[one.name]["value"]) for one in fields(UnitCosts)})
