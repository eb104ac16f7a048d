"""The formulas against the figures of the documentation."""

import pytest

from pytest_dsql.local.dpu import formulas


def test_a_row_of_the_least_size_is_written_for_what_explain_shows() -> None:
    # Three rows: 0.01875 in the user guide's example; one row: 0.00625 on a live cluster.
    assert formulas.statement(0.0, 0.0, 3 * 128, multi_region=False).write == pytest.approx(0.01875, abs=5e-6)


def test_a_multi_region_cluster_writes_twice() -> None:
    dpu = formulas.statement(0.01, 100, 1000, multi_region=True)
    assert dpu.multi_region_write == dpu.write > 0
    assert dpu.total == pytest.approx(dpu.compute + dpu.read + 2 * dpu.write)


def test_the_minimums_are_those_that_explain_shows() -> None:
    assert formulas.transaction_write(1) == pytest.approx(formulas.WRITE_MINIMUM, rel=1e-3)
    assert formulas.transaction_read(1) == pytest.approx(formulas.READ_MINIMUM, rel=1e-3)


def test_a_transaction_that_does_nothing_costs_nothing() -> None:
    assert formulas.transaction_read(0) == formulas.transaction_write(0) == 0


def test_a_megabyte_is_written_for_as_much_as_was_measured() -> None:
    assert formulas.transaction_write(1024 * 1024) == pytest.approx(51.2, rel=0.01)
