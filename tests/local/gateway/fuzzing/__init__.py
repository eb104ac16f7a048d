"""Hostile clients: inputs made from seeds, valid ones bent as well as nonsense. The same seed makes the same inputs."""

from __future__ import annotations

import os
from typing import Final

#: Inputs in process, all tests together. The whole of it: `DSQL_FUZZ=200000 pytest tests/local/gateway -k fuzz`.
INPUTS: Final = int(os.environ.get("DSQL_FUZZ", "20000"))


def share(part: float) -> range:
    """The seeds of a test that gets this part of all inputs."""
    return range(max(1, int(INPUTS * part)))
