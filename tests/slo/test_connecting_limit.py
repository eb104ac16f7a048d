"""What limits new connections: the question that the published measurement of 120 to 135 a second left open."""

from __future__ import annotations

import pytest

from pytest_dsql.slo.connecting_limit import Connecting, Limit, what_limits_connecting


def run(
    workers: int, rate: float, cpu: float = 0.3, refused: dict[str, int] | None = None, asked: float | None = None
) -> Connecting:
    return Connecting(workers, rate, cpu, refused or {}, asked)


@pytest.mark.parametrize(
    ("runs", "limited_by"),
    [
        ([run(1, 130.0, 0.97)], "client"),
        ([run(1, 130.0, 0.95), run(4, 150.0, 0.95)], "client"),
        ([run(1, 130.0, 0.95), run(4, 480.0, 0.5)], "client"),
        ([run(1, 120.0), run(4, 125.0)], "server"),
        ([run(1, 120.0), run(4, 125.0, refused={"53400": 9})], "server rate limit"),
        ([run(1, 120.0, 0.99, refused={"53300": 1})], "server rate limit"),
        ([run(1, 40.0)], "none"),
        ([run(1, 0.0), run(2, 50.0)], "client"),
        ([run(1, 99.0, asked=100.0)], "none"),
        ([run(1, 60.0, asked=100.0)], "server"),
        ([run(1, 60.0, 0.99, asked=100.0)], "client"),
        ([run(1, 60.0, asked=1000.0), run(4, 62.0, asked=1000.0)], "server"),
        ([run(1, 60.0, asked=1000.0), run(4, 230.0, asked=1000.0)], "client"),
        ([run(1, 60.0, refused={"53400": 900}, asked=1000.0)], "server rate limit"),
    ],
)
def test_who_it_was(runs: list[Connecting], limited_by: Limit) -> None:
    found = what_limits_connecting(*runs)
    assert found.limited_by == limited_by
    assert found.reason.endswith(".")


def test_a_client_that_waits_for_cores_is_its_own_limit() -> None:
    """As many again with four times the processes, and CPU to spare by the clock: but they stood in the run queue."""
    starved = Connecting(4, 125.0, 0.2, {}, asked_per_s=1000.0, waited=0.7)
    found = what_limits_connecting(run(1, 120.0, asked=1000.0), starved)
    assert found.limited_by == "client"
    assert "waited for one for 70 % of the time" in found.reason
    assert what_limits_connecting(Connecting(4, 999.0, 0.2, {}, asked_per_s=1000.0, waited=0.7)).limited_by == "none"


def test_other_refusals_are_no_rate_limit() -> None:
    assert what_limits_connecting(run(1, 10.0, refused={"08006": 5})).limited_by == "none"


def test_the_longest_phase_is_told_where_the_server_is_the_limit() -> None:
    few = Connecting(1, 120.0, 0.3, {}, phases_ms={"tcp": 1.0, "tls": 9.0, "authentication": 8.0})
    many = Connecting(4, 125.0, 0.1, {}, phases_ms={"tcp": 1.0, "tls": 9.5, "authentication": 31.0})
    assert (
        "most of the time went into authentication: 31.0 ms, 8.0 ms with 1" in what_limits_connecting(few, many).reason
    )
