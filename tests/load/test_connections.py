"""A burst of connections as its test sees it."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_dsql.errors import Inconclusive, Invalid, SloMissed
from pytest_dsql.load.connections import Connections
from pytest_dsql.load.measurement import ConnectStats
from tests.load.made_cells import connect_stats


def connections(stats: ConnectStats | None = None, **changes: Any) -> Connections:
    facts: dict[str, Any] = {"id": "burst", "test": "t", "target": "local", "kind": "burst", "requested": 500}
    return Connections(stats or connect_stats(500), **(facts | changes))


def test_figures() -> None:
    made = connections(connect_stats(400, {"53400": 100}), workers=2)
    assert (made.attempted, made.succeeded, made.refused) == (500, 400, {"53400": 100})
    assert made.rate_per_s == 100.0
    assert made.client_cpu_ms_per_connection == 1.0
    assert made.client_cpu_share == 0.0625
    assert made.phases("total").p99_ms == 4.0
    assert made.tokens_signed == 1


def test_all_made_passes_and_is_recorded() -> None:
    recorded: list[str] = []
    made = connections(record=lambda one: recorded.append(one.standing.outcome if one.standing else "none"))
    made.assert_connected()
    assert recorded == ["pass"]


def test_a_refusal_at_a_limit_is_explained() -> None:
    connections(connect_stats(490, {"53400": 10})).assert_connected()


def test_the_caller_may_explain_others() -> None:
    made = connections(connect_stats(490, {"57P03": 10}))
    with pytest.raises(SloMissed, match="10 of 500 connections were refused with 57P03: unable to accept connection"):
        made.assert_connected()
    made.assert_connected(allowed=("57P03",))


def test_none_attempted_is_inconclusive() -> None:
    with pytest.raises(Inconclusive, match="No connection was attempted"):
        connections(ConnectStats()).assert_connected()


def test_no_answer_to_a_busy_generator_is_invalid() -> None:
    stats = connect_stats(490, {"connection": 10})
    stats.client_cpu_ns = stats.elapsed_ns
    with pytest.raises(Invalid, match="its own limit"):
        connections(stats).assert_connected()


def test_one_after_the_other_has_no_limit_of_the_generator() -> None:
    stats = connect_stats(500)
    stats.client_cpu_ns = stats.elapsed_ns
    made = connections(stats, kind="sequential")
    made.assert_connected()
    assert made.standing is not None
    assert made.standing.healthy


def test_the_table() -> None:
    made = connections(connect_stats(400, {"53400": 100}))
    text = made.table()
    flat = [" ".join(line.split()) for line in text.splitlines()]
    assert "tls 2.00 ms 2.00 ms 2.00 ms 2.00 ms 400" in flat
    assert "made 400 of 500 in 4.00 s: 100.0/s, 1 token signed" in flat
    assert "refused 53400 100" in flat
    assert max(map(len, text.splitlines())) <= 92
