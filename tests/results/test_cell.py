"""What the file says of a cell is what was measured."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dsql.errors import SloMissed
from pytest_dsql.load.measurement import Arrival, EngineWork, Outcome
from pytest_dsql.results.cell import cell_dict
from pytest_dsql.results.schema import OUTCOMES, VERDICTS
from pytest_dsql.slo.objectives import Latency, Slo, ms
from tests.load.made_cells import HEALTHY, cell, good_measurement, measurement, samples
from tests.results.made_files import SLO, burst


def test_the_outcomes_are_the_generators() -> None:
    assert tuple(one.name.lower() for one in Outcome) == OUTCOMES


@settings(max_examples=25, deadline=None)
@given(n=st.integers(0, 60), ends=st.lists(st.sampled_from(list(Outcome)), min_size=1, max_size=8))
def test_outcomes_add_up_and_survive_json(n: int, ends: list[Outcome]) -> None:
    measured = measurement(samples("product_read", n, outcomes=ends))
    made = cell_dict(cell(measured))
    again = json.loads(json.dumps(made, allow_nan=False))
    assert again == made
    transaction = again["transactions"]["product_read"]
    assert sum(transaction["outcomes"].values()) == transaction["count"] == n
    answered = sum(transaction["outcomes"][name] for name in ("ok", "ok_retried", "rejected"))
    assert (transaction["latency_ms"]["p99"] is None) is (answered == 0)
    assert (transaction["histogram"] is None) is (answered == 0)


def test_errors_and_what_the_database_said_of_them() -> None:
    failed = measurement(samples("product_read", 10, errors={"42P01": 3}))
    entry = cell_dict(cell(failed))["transactions"]["product_read"]
    assert (entry["errors"], entry["messages"]) == ({"42P01": 3}, {"42P01": "the message of 42P01"})


def test_limits_and_latencies_are_milliseconds() -> None:
    made = cell()
    made.verdict(SLO)
    entry = cell_dict(made)
    assert entry["transactions"]["product_read"]["latency_ms"]["p99"] == 5.0
    assert entry["transactions"]["product_read"]["wait_ms"]["max"] == 0.5
    p95, *_others, failures, rate = entry["objectives"]
    assert (p95["transaction"], p95["metric"], p95["limit"], p95["measured"]) == ("product_read", "p95", 50.0, 5.0)
    assert (failures["transaction"], failures["limit"], failures["measured"]) == (None, 0.001, 0.0)
    assert (rate["metric"], rate["limit"], rate["measured"]) == ("tps", 10, 1500.0)
    assert entry["generator"]["loop_lag_p99_ms"] == 0.2
    assert entry["rtt_ms"] == 0.2


def test_look_and_level_are_recorded() -> None:
    made = cell(extend=lambda _windows: (good_measurement(), {"stock": 0}))
    made.verdict(SLO)
    first = cell_dict(made)["objectives"][0]
    assert (first["look"], first["level"]) == (1, 0.005)


def test_the_verdict_and_its_reasons() -> None:
    made = cell(invariants={"stock": 3})
    made.verdict(SLO)
    entry = cell_dict(made)
    assert entry["verdict"]["outcome"] == "fail"
    assert entry["verdict"]["reasons"][0].startswith("Invariant stock is violated")
    assert entry["invariants"] == {"stock": 3}
    assert entry["verdict"]["outcome"] in VERDICTS


def test_an_unjudged_cell_says_so() -> None:
    assert cell_dict(cell())["verdict"]["outcome"] == "unjudged"
    assert cell_dict(cell())["generator"]["healthy"] is None


def test_a_pass_of_a_busy_generator_is_limited_by_it() -> None:
    made = cell(replace(good_measurement(), generator=replace(HEALTHY, cpu=0.9)))
    made.verdict(Slo(reads=Latency(p99=ms(100))))
    entry = cell_dict(made)
    assert (entry["verdict"]["outcome"], entry["limited_by"]) == ("pass", "generator")
    assert entry["generator"]["healthy"] is False


def test_a_pass_of_an_engine_that_others_kept_waiting_is_limited_by_the_machine() -> None:
    # A process waits all the time, and half of what keeps the cores busy is others': of 12,000 requests in 8 s.
    starved = EngineWork(
        elapsed_ns=8 * 10**9, waited_ns=8 * 10**9, cpu_ns=8 * 10**9, others_ns=8 * 10**9, busy_ns=16 * 10**9
    )
    made = cell(replace(good_measurement(), engine=starved))
    made.verdict(Slo(reads=Latency(p99=ms(100))))
    assert cell_dict(made)["limited_by"] is None  # 0.3 ms for each
    starved = replace(starved, waited_ns=60 * starved.waited_ns)
    made = cell(replace(good_measurement(), engine=starved))
    made.verdict(Slo(reads=Latency(p99=ms(100))))
    entry = cell_dict(made)
    assert (entry["verdict"]["outcome"], entry["limited_by"], entry["generator"]["healthy"]) == (
        "pass",
        "machine",
        True,
    )
    assert entry["engine"] == {
        "cpu": 1.0,
        "runqueue_wait": 60.0,
        "others_cpu": 1.0,
        "starved": 30.0,
        "gateway_starved": 0.0,
    }
    assert "other programs 1.00 cores" in entry["verdict"]["reasons"][-1]


def test_a_schedule_keeps_its_rate() -> None:
    assert cell_dict(cell(replace(good_measurement(), arrival=Arrival("poisson", 400.0))))["arrival"] == {
        "kind": "poisson",
        "rate": 400.0,
        "tasks": None,
    }


def test_a_burst() -> None:
    made = burst()
    with pytest.raises(SloMissed):
        made.assert_connected()
    entry = cell_dict(made)
    assert entry["arrival"] == {"kind": "burst", "rate": None, "tasks": None}
    assert entry["connect"]["refused"] == {"28000": 10}
    assert entry["connect"]["phases_ms"]["total"]["p99"] == 4.0
    assert entry["connect"]["rate_per_s"] == 122.5
    assert entry["connect"]["client_cpu_ms"] == 500.0
    assert entry["verdict"]["outcome"] == "fail"


def test_connecting_that_was_part_of_each_request_has_no_rate_of_its_own() -> None:
    entry = cell_dict(cell(replace(good_measurement(), arrival=Arrival("churn"))))["connect"]
    assert (entry["elapsed_ms"], entry["rate_per_s"], entry["client_cpu_ms"]) == (None, None, None)
