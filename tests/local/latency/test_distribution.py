import math

import pytest

from pytest_dsql.local.latency.distribution import Constant, Distribution, LogNormal, Quantiles
from pytest_dsql.local.streams import stream

TABLE = Quantiles((0.0, 0.5, 0.95, 1.0), (1.0, 2.0, 20.0, 100.0))


def drawn(distribution: Distribution, q: float, name: str = "test") -> float:
    rng = stream(1, name)
    samples = sorted(distribution.sample_ms(rng) for _ in range(20_000))
    return samples[int(q * len(samples))]


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("distribution", [Constant(3.0), LogNormal.fitted(2.0, 9.0), TABLE])
def test_what_is_drawn_has_the_quantiles_that_are_told(distribution: Distribution, q: float) -> None:
    assert drawn(distribution, q) == pytest.approx(distribution.quantile_ms(q), rel=0.1)


def test_a_log_normal_has_the_percentiles_that_it_was_fitted_to() -> None:
    fitted = LogNormal.fitted(5.2, 7.4)
    assert (fitted.quantile_ms(0.5), fitted.quantile_ms(0.99)) == pytest.approx((5.2, 7.4))


def test_a_log_normals_tail_can_be_cut() -> None:
    assert drawn(LogNormal.fitted(1.0, 100.0, 120.0), 0.9999) <= 120.0


def test_a_table_is_straight_between_its_quantiles() -> None:
    assert TABLE.quantile_ms(0.25) == pytest.approx(1.5)
    assert TABLE.quantile_ms(0.975) == pytest.approx(60.0)


@pytest.mark.parametrize("q", [0.0, 1.0])
def test_a_tables_ends_are_its_own(q: float) -> None:
    assert TABLE.quantile_ms(q) == TABLE.values_ms[0 if q == 0 else -1]


def test_streams_of_one_name_are_alike_and_of_two_names_are_not() -> None:
    assert [stream(7, "a").random() for _ in range(2)] == [stream(7, "a").random()] * 2
    assert len({stream(7, "a").random(), stream(7, "b").random(), stream(8, "a").random()}) == 3
    assert math.isfinite(stream(7, "a").random())
