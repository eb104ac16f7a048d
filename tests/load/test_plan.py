from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.load.measurement import Arrival
from pytest_dsql.load.plan import LONG_FROM_S, long_from_s
from pytest_dsql.transaction import CellRun, Context, Mix, Steps, transaction
from tests.load.conftest import cell_plan, fake_endpoint


@transaction(kind="read")
def look(ctx: Context) -> Steps:
    yield "SELECT 1"
    return None


@given(connections=st.integers(1, 300), workers=st.integers(1, 20))
def test_connections_are_split_evenly_and_every_slot_is_used_once(connections: int, workers: int) -> None:
    shares = cell_plan(fake_endpoint(5432), Mix({look: 1}), connections=connections, workers=workers).shares()
    counts = [share.connections for share in shares]
    assert max(counts) - min(counts) <= 1
    assert min(counts) >= 1
    assert len(shares) == min(connections, workers)
    slots = [slot for share in shares for slot in range(share.first_slot, share.first_slot + share.connections)]
    assert slots == list(range(connections))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"connections": 0}, "at least one connection"),
        ({"workers": 0}, "at least one worker"),
        ({"window_s": 0.0}, "longer than 0 s"),
        ({"warmup_s": -1.0}, "longer than 0 s"),
        ({"arrival": Arrival("poisson")}, "need a rate"),
        ({"arrival": Arrival("closed", 10.0)}, "have no rate"),
        ({"arrival": Arrival("constant", 0.0)}, "positive number"),
        ({"run": CellRun(1, "x", slots=1)}, "need as many slots"),
    ],
)
def test_parts_that_do_not_fit_are_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        cell_plan(fake_endpoint(5432), Mix({look: 1}), **wrong)


@pytest.mark.parametrize("window_s", [1.0, 449.0, 450.0, 451.0, 899.0, 900.0, 901.0, 4000.0])
def test_all_stretches_of_a_cell_are_counted_or_none_is(window_s: float) -> None:
    facts = {"long_from_s": long_from_s(window_s)}
    plans = [cell_plan(fake_endpoint(5432), Mix({look: 1}), window_s=window_s * many, **facts) for many in (1, 1, 2)]
    assert len({plan.is_long for plan in plans}) == 1
    assert plans[-1].is_long == (2 * window_s > LONG_FROM_S)
