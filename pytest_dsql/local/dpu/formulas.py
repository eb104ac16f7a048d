"""The published formulas: from seconds and bytes to DPU.

AWS user guide, "How billing works in Aurora DSQL" and "Understanding DPUs in EXPLAIN ANALYZE" (September 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

#: DPU per byte.
WRITE: Final = 0.00004883
READ: Final = 0.00000183105
#: What a transaction is charged at least for, where it writes or reads at all. Bytes.
LEAST_WRITTEN: Final = 1024
LEAST_READ: Final = 2048
#: A row, and an index entry, counts at least so many bytes.
LEAST_ENTRY: Final = 128
#: The minimums as EXPLAIN shows them. DPU.
WRITE_MINIMUM: Final = 0.05
READ_MINIMUM: Final = 0.00375


@final
@dataclass(frozen=True, slots=True)
class Dpu:
    """An amount of work, in DPU."""

    compute: float = 0.0  #: seconds of processing
    read: float = 0.0
    write: float = 0.0
    multi_region_write: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.compute + self.read + self.write + self.multi_region_write


def statement(seconds: float, read_bytes: float, written_bytes: float, *, multi_region: bool) -> Dpu:
    """What a statement costs by itself: without the minimums, which are its transaction's."""
    write = written_bytes * WRITE
    return Dpu(seconds, read_bytes * READ, write, write if multi_region else 0.0)


def transaction_read(read_bytes: float) -> float:
    """What a transaction's reading costs, in DPU."""
    return max(read_bytes, LEAST_READ) * READ if read_bytes else 0.0


def transaction_write(written_bytes: float) -> float:
    """What a transaction's writing costs, in DPU."""
    return max(written_bytes, LEAST_WRITTEN) * WRITE if written_bytes else 0.0
