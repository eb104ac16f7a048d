"""Histograms can be read back with HdrHistogram's own reader."""

from __future__ import annotations

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dsql.results.histogram import HIGHEST, encode


@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.integers(1_000, 10**11), min_size=1, max_size=200))
def test_counts_and_percentiles_survive(values: list[int]) -> None:
    text = encode([(value, 1) for value in values])
    assert text is not None
    decoded = HdrHistogram.decode(text.encode())
    assert decoded.get_total_count() == len(values)
    assert decoded.get_max_value() == pytest.approx(max(values) / 1000, rel=0.002, abs=1)
    assert decoded.get_min_value() == pytest.approx(min(values) / 1000, rel=0.002, abs=1)


def test_values_outside_the_range_are_not_lost() -> None:
    text = encode([(0, 1), (10**15, 1)])
    assert text is not None
    decoded = HdrHistogram.decode(text.encode())
    assert decoded.get_total_count() == 2
    assert decoded.get_max_value() == pytest.approx(HIGHEST, rel=0.002)


def test_no_values_have_no_histogram() -> None:
    assert encode([]) is None
