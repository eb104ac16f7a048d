"""How much memory a process has: what held connections cost the generator."""

from __future__ import annotations

import os
from pathlib import Path


def resident_bytes() -> int | None:
    """Return the resident memory of this process; None where the kernel does not say (it does on Linux)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
