"""Random streams: each from the run's seed and a name, so that a run can be repeated and no stream disturbs another."""

from __future__ import annotations

import random


def stream(seed: int, name: str) -> random.Random:
    """Give the stream of this name: the same numbers for the same seed, on every machine."""
    return random.Random(f"{seed}/{name}")
