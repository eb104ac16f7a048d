"""The cell that a test gets: its figures, its verdict and when it is extended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pytest_dsql.errors import BudgetReached, Inconclusive, Invalid, SloMissed
from pytest_dsql.load.cell import Cell
from pytest_dsql.load.measurement import Arrival, Measurement, Outcome
from pytest_dsql.slo.objectives import Latency, Slo, ms
from tests.load.made_cells import HEALTHY, cell, connect_stats, good_measurement, measurement, samples

SLO = Slo(reads=Latency(p95=ms(50), p99=ms(100)), writes=Latency(p95=ms(100), p99=ms(200)), max_failure_rate=0.001)
READS = Slo(reads=Latency(p99=ms(100)))


def slow_reads(share: float = 0.05) -> Measurement:
    """Return a measurement whose reads miss 100 ms in `share` of the cases, spread evenly."""
    n = 6000
    slow = dict.fromkeys(range(0, n, round(1 / share)), 400.0)
    return measurement(samples("product_read", n, slow=slow), samples("order_create", n))


class Extension:
    """Counts how often a cell was extended, and by how much."""

    def __init__(self, n: int, invariants: Mapping[str, int] | None = None) -> None:
        self.asked: list[int] = []
        self.n = n
        self.invariants: Mapping[str, int] | None = {"stock": 0, "receipts": 0} if invariants is None else invariants

    def __call__(self, windows: int) -> tuple[Measurement, Mapping[str, int] | None]:
        self.asked.append(windows)
        n = self.n * windows
        made = [samples(name, n, duration_s=8.0 * windows) for name in ("product_read", "order_create")]
        return measurement(*made, duration_s=8.0 * windows), self.invariants


class TestFigures:
    def test_success_counts_transactions_and_attempts_count_attempts(self) -> None:
        ends = [Outcome.OK, Outcome.OK_RETRIED, Outcome.REJECTED, Outcome.FAILED]
        made = cell(measurement(samples("product_read", 800, outcomes=ends)))
        assert made.tps == 50.0
        assert made.attempt_tps == 125.0

    def test_outcomes_add_up_to_the_arrivals(self) -> None:
        made = cell(measurement(samples("product_read", 803, outcomes=list(Outcome)), samples("order_create", 5)))
        assert sum(made.outcomes.values()) == made.measurement.arrivals == 808
        assert set(made.outcomes) == {one.name.lower() for one in Outcome}

    def test_latency_and_its_parts_by_transaction(self) -> None:
        made = cell(measurement(samples("product_read", 100, latencies_ms=(10.0,))))
        assert made.latency("product_read").p99_ms == 10.0
        assert made.wait("product_read").p99_ms == 1.0
        assert made.service["product_read"].p99_ms == 7.0
        assert made.backoff["product_read"].max_ms == 2.0

    def test_the_conflict_rate_is_a_share_of_the_attempts(self) -> None:
        made = cell(measurement(samples("order_create", 100, errors={"40001": 4, "40P01": 1, "57P01": 9})))
        assert made.conflict_rate == 0.05

    def test_an_empty_cell_has_no_rates(self) -> None:
        made = cell(measurement(samples("product_read", 0), duration_s=0.0))
        assert (made.tps, made.attempt_tps, made.conflict_rate) == (0.0, 0.0, 0.0)


class TestVerdict:
    def test_pass(self) -> None:
        made = cell()
        made.assert_meets(SLO)
        assert made.verdict(SLO).outcome == "pass"

    def test_fail(self) -> None:
        with pytest.raises(SloMissed) as caught:
            cell(slow_reads()).assert_meets(SLO)
        assert str(caught.value).startswith("fail: product_read p99: 300 of 6,000 requests (5 %) took longer")

    def test_inconclusive(self) -> None:
        with pytest.raises(Inconclusive, match="needs about"):
            cell(good_measurement(300)).assert_meets(READS)

    def test_invalid(self) -> None:
        busy = replace(slow_reads(), generator=replace(HEALTHY, cpu=0.95))
        with pytest.raises(Invalid, match="says nothing about the database"):
            cell(busy).assert_meets(SLO)

    def test_a_violated_invariant_fails(self) -> None:
        with pytest.raises(SloMissed, match="Invariant stock is violated"):
            cell(invariants={"stock": 2}).assert_meets(SLO)

    def test_a_violated_invariant_fails_without_being_asked(self) -> None:
        standing = cell(invariants={"stock": 2}).standing
        assert standing is not None
        assert standing.outcome == "fail"

    def test_failed_requests_count_as_over(self) -> None:
        ends = [Outcome.OK] * 19 + [Outcome.FAILED]
        verdict = cell(measurement(samples("product_read", 6000, outcomes=ends))).verdict(READS)
        assert verdict.outcome == "fail"
        assert verdict.objectives[0].over == 300

    def test_the_rate_is_judged_over_the_window(self) -> None:
        assert cell().verdict(Slo(min_tps=1400)).outcome == "pass"
        assert cell().verdict(Slo(min_tps=1600)).outcome == "fail"

    def test_an_open_loop_that_was_not_offered_is_no_miss_of_the_database(self) -> None:
        offered = replace(slow_reads(), arrival=Arrival("poisson", 3000.0))
        assert cell(offered).verdict(SLO).outcome == "invalid"

    def test_a_dead_worker_is_inconclusive(self) -> None:
        dead = replace(good_measurement(), interrupted="worker 1 died with signal 9", duration_s=4.0)
        verdict = cell(dead, window_s=8.0).verdict(SLO)
        assert verdict.outcome == "inconclusive"
        assert "after 50 % of its window (worker 1 died with signal 9)" in verdict.reasons[0]

    def test_it_is_decided_once(self) -> None:
        made = cell()
        assert made.verdict(SLO) is made.verdict(replace(SLO))

    def test_the_same_measurement_gets_the_same_verdict(self) -> None:
        assert cell(slow_reads()).verdict(SLO) == cell(slow_reads()).verdict(SLO)


class TestExtension:
    def test_a_decided_cell_is_not_extended(self) -> None:
        extend = Extension(6000)
        assert cell(extend=extend).verdict(SLO).outcome == "pass"
        assert cell(slow_reads(), extend=extend).verdict(SLO).outcome == "fail"
        assert extend.asked == []

    def test_one_further_window_then_two(self) -> None:
        """150 + 150 + 300 requests: a p99 passes at the last look, which needs 600."""
        extend = Extension(150)
        made = cell(good_measurement(150), extend=extend)
        verdict = made.verdict(READS)
        assert extend.asked == [1, 2]
        assert verdict.outcome == "pass"
        assert (made.look, verdict.look, verdict.objectives[0].n) == (3, 3, 600)
        assert made.measurement.duration_s == 32.0

    def test_the_second_look_may_be_enough(self) -> None:
        extend = Extension(400)
        made = cell(good_measurement(400), extend=extend)
        assert made.verdict(READS).outcome == "pass"
        assert extend.asked == [1]
        assert (made.look, made.measurement.look) == (2, 2)

    def test_looks_that_can_t_help_are_not_made(self) -> None:
        extend = Extension(20)
        assert cell(good_measurement(20), extend=extend).verdict(READS).outcome == "inconclusive"
        assert extend.asked == []

    def test_more_samples_are_no_cure_for_an_interruption(self) -> None:
        extend = Extension(400)
        dead = replace(good_measurement(400), interrupted="SIGINT")
        assert cell(dead, extend=extend).verdict(READS).outcome == "inconclusive"
        assert extend.asked == []

    def test_an_extension_that_is_interrupted_ends_it(self) -> None:
        def extend(_windows: int) -> tuple[Measurement, Mapping[str, int]]:
            return replace(good_measurement(400), interrupted="worker 0 died"), {"stock": 0, "receipts": 0}

        verdict = cell(good_measurement(400), extend=extend).verdict(READS)
        assert verdict.outcome == "inconclusive"
        assert "worker 0 died" in verdict.reasons[0]

    def test_a_violation_in_a_further_window_fails(self) -> None:
        made = cell(good_measurement(400), extend=Extension(400, {"stock": 2, "receipts": 0}))
        assert made.verdict(READS).outcome == "fail"
        assert made.invariants == {"stock": 2, "receipts": 0}

    def test_a_mix_without_invariants_stays_without(self) -> None:
        def extend(_windows: int) -> tuple[Measurement, None]:
            return good_measurement(400), None

        made = cell(good_measurement(400), extend=extend, invariants=None)
        assert made.verdict(READS).outcome == "pass"
        assert made.invariants is None

    def test_another_slo_is_judged_at_the_look_that_was_reached(self) -> None:
        """It spends that look's part of the level only: the earlier looks it never had stay unspent."""
        made = cell(good_measurement(400), extend=Extension(400))
        made.verdict(READS)
        other = made.verdict(Slo(writes=Latency(p99=ms(100))))
        assert other.outcome == "pass"
        assert (other.look, other.objectives[0].level) == (2, 0.0025)

    def test_a_cell_that_can_t_be_extended_spends_the_whole_level_at_once(self) -> None:
        assert cell().verdict(READS).objectives[0].level == 0.01
        assert cell(extend=Extension(1)).verdict(READS).objectives[0].level == 0.005


class TestRecording:
    def test_after_each_verdict(self) -> None:
        recorded: list[str | None] = []

        def record(made: Cell) -> None:
            recorded.append(made.standing.outcome if made.standing else None)

        made = cell(record=record)
        made.verdict(SLO)
        made.verdict(SLO)
        assert recorded == ["pass"]
        with pytest.raises(SloMissed):
            made.assert_meets(Slo(reads=Latency(p99=ms(4))))
        assert recorded == ["pass", "fail"]

    def test_a_later_pass_does_not_hide_a_miss(self) -> None:
        made = cell()
        with pytest.raises(SloMissed):
            made.assert_meets(Slo(reads=Latency(p99=ms(4))))
        made.assert_meets(SLO)
        assert made.standing is not None
        assert made.standing.outcome == "fail"
        assert {one.outcome for one in made.standing.objectives} == {"pass", "fail"}

    def test_an_unjudged_cell_has_no_verdict(self) -> None:
        assert cell().standing is None


class TestConnected:
    def test_all_connections_made(self) -> None:
        made = cell()
        made.assert_connected()
        assert made.standing is not None
        assert made.standing.outcome == "pass"

    def test_an_unexplained_refusal(self) -> None:
        refused = replace(good_measurement(), connect=connect_stats(100, {"28000": 1}))
        with pytest.raises(SloMissed, match="refused with 28000"):
            cell(refused).assert_connected()

    def test_a_violated_invariant_fails_here_too(self) -> None:
        with pytest.raises(SloMissed, match=r"Violated invariants: stock \(1\)"):
            cell(invariants={"stock": 1}).assert_connected()

    def test_an_interrupted_cell_never_passes(self) -> None:
        with pytest.raises(Inconclusive, match="ended early"):
            cell(replace(good_measurement(), interrupted="SIGINT")).assert_connected()


class TestConsistency:
    def test_invariants_that_hold_pass(self) -> None:
        made = cell(invariants={"stock": 0, "ledger": 0})
        made.assert_consistent()
        assert made.standing is not None
        assert made.standing.reasons[0].startswith("All 2 invariants hold after ")

    def test_a_violated_invariant_fails(self) -> None:
        with pytest.raises(SloMissed, match=r"Violated invariants: stock \(1\)"):
            cell(invariants={"stock": 1}).assert_consistent()

    @pytest.mark.parametrize(
        ("changed", "invariants", "why"),
        [
            ({"interrupted": "SIGINT"}, {"stock": 0}, "ended early"),
            ({"samples": {}}, {"stock": 0}, "No transaction committed"),
            ({}, {}, "No invariant was checked"),
            ({}, None, "No invariant was checked"),
        ],
    )
    def test_no_data_never_passes(self, changed: dict[str, Any], invariants: dict[str, int] | None, why: str) -> None:
        with pytest.raises(Inconclusive, match=why):
            cell(replace(good_measurement(), **changed), invariants=invariants).assert_consistent()


class TestTable:
    def test_a_line_per_objective(self) -> None:
        made = cell(slow_reads())
        made.verdict(SLO)
        lines = [" ".join(line.split()) for line in made.table().splitlines()]
        assert "product_read p95 50 ms 5.00 ms 6,000 300 inconclusive" in lines
        assert "product_read p99 100 ms 400.00 ms 6,000 300 fail" in lines
        assert "order_create p99 200 ms 5.00 ms 6,000 0 pass" in lines
        assert "all failures 0.1 % 0 % 12,000 0 pass" in lines

    def test_what_surrounds_the_objectives(self) -> None:
        ends = [Outcome.OK, Outcome.OK, Outcome.REJECTED]
        made = cell(measurement(samples("product_read", 6000, outcomes=ends, errors={"40001": 7})))
        text = " ".join(made.table().split())
        assert "outcomes ok 4,000, rejected 2,000" in text
        assert "errors 40001 7 " in text
        assert "CPU 30 %, run-queue wait 2 %, loop lag p99 0.20 ms" in text
        assert "invariants 2 checked, none violated" in text
        assert "closed loop, 4 connections, 1 worker, 8.0 s, look 1" in text

    def test_what_the_database_said_of_each_kind_of_error(self) -> None:
        made = cell(
            measurement(
                samples("product_read", 10, errors={"42P01": 7}),
                samples("order_create", 10, errors={"42P01": 1, "23505": 2}),
            )
        )
        text = " ".join(made.table().split())
        assert "errors 42P01 8, 23505 2 42P01: the message of 42P01 23505: the message of 23505 generator" in text

    def test_a_long_message_is_cut(self) -> None:
        wordy = samples("product_read", 10, errors={"42601": 1})
        wordy.messages["42601"] = "syntax error " * 100
        assert cell(measurement(wordy)).table().count("syntax error") < 15

    def test_it_fits_a_hundred_columns_with_pytests_margin(self) -> None:
        name = "a_transaction_whose_name_is_much_longer_than_any_column_of_a_table"
        made = cell(
            measurement(samples(name, 900, slow={1: 500.0}), generator=replace(HEALTHY, cpu=0.99)),
            id="tests/" + "a_long_path/" * 20 + "test_shop.py::test_orders[4]",
        )
        with pytest.raises(Inconclusive) as caught:
            made.assert_meets(SLO)
        headline, *table = str(caught.value).splitlines()
        assert headline.startswith("inconclusive: ")
        assert max(map(len, table)) <= 92

    def test_an_unjudged_cell_shows_what_it_measured(self) -> None:
        lines = [" ".join(line.split()) for line in cell().table().splitlines()]
        assert "product_read p95 - 5.00 ms 6,000 - -" in lines

    def test_nothing_secret_is_shown(self) -> None:
        dead = replace(good_measurement(), interrupted="postgresql://admin:hunter2@host/postgres broke")
        with pytest.raises(Inconclusive) as caught:
            cell(dead).assert_meets(SLO)
        assert "hunter2" not in str(caught.value)


def test_a_cell_that_can_have_no_more_samples_for_want_of_budget_stays_inconclusive() -> None:
    def refuse(_windows: int) -> tuple[Measurement, dict[str, int] | None]:
        raise BudgetReached("test_orders was not started: $9.10 of the budget of $10.00 are used")

    made = cell(measurement(samples("product_read", 2000), samples("order_create", 2000)), extend=refuse)
    verdict = made.verdict(SLO)
    assert verdict.outcome == "inconclusive"
    assert (
        "It can't have more samples: test_orders was not started" in verdict.reasons[-2]
    )  # the last one tells of the generator
