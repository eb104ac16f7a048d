"""Objectives are validated where they are made, and expand to one promise per transaction."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from pytest_dsql.slo.objectives import Kind, Latency, Objective, Slo, ms

READS = Latency(p95=ms(50), p99=ms(100))
WRITES = Latency(p95=ms(100), p99=ms(200))
MIX: list[tuple[str, Kind]] = [("product_read", "read"), ("order_history", "read"), ("order_create", "write")]


@pytest.mark.parametrize(("given", "expected"), [(50, 50_000_000), (0.5, 500_000), (1e-6, 1), (0.0000004, 0)])
def test_ms_is_nanoseconds(given: float, expected: object) -> None:
    assert ms(given) == expected


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_ms_refuses_what_is_no_duration(wrong: Any) -> None:
    with pytest.raises(ValueError, match="finite"):
        ms(wrong)


@pytest.mark.parametrize("wrong", ["50", None, True])
def test_ms_refuses_what_is_no_number(wrong: Any) -> None:
    with pytest.raises(TypeError, match="number of milliseconds"):
        ms(wrong)


def test_latency_needs_a_limit() -> None:
    with pytest.raises(ValueError, match="at least one limit"):
        Latency()


@pytest.mark.parametrize("wrong", [0, -1])
def test_limits_are_positive(wrong: Any) -> None:
    with pytest.raises(ValueError, match="p99 must be above 0"):
        Latency(p99=wrong)


@pytest.mark.parametrize("wrong", [0.2, "200", True])
def test_limits_are_whole_nanoseconds(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"write ms\(\.\.\.\)"):
        Latency(p99=wrong)


@pytest.mark.parametrize(
    "wrong", [{"p50": 2, "p95": 1}, {"p95": 2, "p99": 1}, {"p99": 2, "p999": 1}, {"p50": 2, "p999": 1}]
)
def test_a_higher_percentile_has_no_lower_limit(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must not be above"):
        Latency(**{name: ms(limit) for name, limit in wrong.items()})


@pytest.mark.parametrize("forgotten", [1, 50, 999])
def test_a_number_of_milliseconds_without_ms_is_refused(forgotten: int) -> None:
    with pytest.raises(ValueError, match=rf"p95={forgotten} is {forgotten} ns.*write p95=ms\({forgotten}\)"):
        Latency(p95=forgotten)


def test_equal_limits_are_allowed() -> None:
    assert Latency(p95=1_000, p99=1_000).limits == {"p95": 1_000, "p99": 1_000}


@pytest.mark.parametrize("wrong", [0, 1, -0.1, 1.5, float("nan")])
def test_failure_rate_is_a_share(wrong: Any) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Slo(max_failure_rate=wrong)


@pytest.mark.parametrize("wrong", ["0.5", True, ms])
@pytest.mark.parametrize("name", ["max_failure_rate", "min_tps"])
def test_shares_and_rates_are_numbers(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a number"):
        Slo(**{name: wrong})


@pytest.mark.parametrize("wrong", [0, -5, float("inf"), float("nan")])
def test_min_tps_is_positive(wrong: Any) -> None:
    with pytest.raises(ValueError, match="min_tps"):
        Slo(min_tps=wrong)


def test_an_slo_needs_an_objective() -> None:
    with pytest.raises(ValueError, match="at least one objective"):
        Slo()


def test_an_slo_takes_latencies_only() -> None:
    with pytest.raises(TypeError, match="reads must be a Latency"):
        Slo(reads=ms(50))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="transactions must map"):
        Slo(transactions={"order_create": ms(50)})  # type: ignore[dict-item]


def test_each_transaction_is_judged_on_its_own() -> None:
    slo = Slo(reads=READS, writes=WRITES, max_failure_rate=0.001, min_tps=10)
    assert slo.expand(MIX) == [
        Objective("p95", "product_read", ms(50)),
        Objective("p99", "product_read", ms(100)),
        Objective("p95", "order_history", ms(50)),
        Objective("p99", "order_history", ms(100)),
        Objective("p95", "order_create", ms(100)),
        Objective("p99", "order_create", ms(200)),
        Objective("failure_rate", None, 0.001),
        Objective("tps", None, 10),
    ]


def test_limits_of_one_transaction_replace_those_of_its_kind() -> None:
    slo = Slo(reads=READS, transactions={"order_history": Latency(p50=ms(5))})
    assert slo.expand(MIX)[2:] == [Objective("p50", "order_history", ms(5))]


def test_a_transaction_that_the_cell_lacks_keeps_its_objective() -> None:
    slo = Slo(transactions={"order_crate": WRITES})
    assert [one.transaction for one in slo.expand(MIX)] == ["order_crate", "order_crate"]


def test_a_kind_that_the_mix_lacks_has_no_objective() -> None:
    assert Slo(reads=READS, writes=WRITES).expand(MIX[:1]) == Slo(reads=READS).expand(MIX[:1])


def test_equal_slos_are_equal_and_hashable() -> None:
    one, same = (Slo(reads=READS, transactions={"a": WRITES}) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert pickle.loads(pickle.dumps(one)) == one


def test_changing_the_dictionary_later_changes_no_promise() -> None:
    limits = {"a": WRITES}
    slo = Slo(transactions=limits)
    limits.clear()
    assert slo.transactions == {"a": WRITES}
