"""The engine against the model: random interleavings of one to five sessions, every answer compared."""

from __future__ import annotations

import os
from typing import Final

from tests.local.adjudicator.machine import run_interleavings
from tests.local.adjudicator.served import Served

#: The whole of it: 10,000 interleavings, some 25 minutes. `DSQL_INTERLEAVINGS=10000 pytest tests/local/adjudicator`.
EXAMPLES: Final = int(os.environ.get("DSQL_INTERLEAVINGS", "200"))
#: Other interleavings than those of every run: `DSQL_INTERLEAVINGS_SEED=7`.
SEED: Final = int(os.environ["DSQL_INTERLEAVINGS_SEED"]) if "DSQL_INTERLEAVINGS_SEED" in os.environ else None
#: Whether a script that fails is made short, which takes minutes.
SHRINK: Final = os.environ.get("DSQL_SHRINK") == "1"

#: Nobody waits: an answer takes milliseconds. Far more than that is allowed here, for machines that are busy; one that
#: stands still for longer does not do so for one answer in a thousand. None may take ten seconds (`Wire`).
SLOWEST_S: Final = 1.0


def test_one_session_is_answered_as_by_postgresql(served: Served) -> None:
    run_interleavings(served, EXAMPLES // 4, fewest=1, most=1, shrink=SHRINK, seed=SEED)


def test_several_sessions_are_answered_as_by_dsql(served: Served) -> None:
    seconds = run_interleavings(served, EXAMPLES, shrink=SHRINK, seed=SEED)
    slow_s = seconds[-1 - len(seconds) // 1_000]
    print(f"\n{EXAMPLES} interleavings, slowest answer {seconds[-1] * 1000:.0f} ms, 99.9 % in {slow_s * 1000:.0f} ms")
    assert slow_s < SLOWEST_S
