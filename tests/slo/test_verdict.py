"""What makes a cell pass, fail, stay open or say nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.slo.evidence import OUTCOME_COUNTS
from pytest_dsql.slo.objectives import Latency, Slo, ms
from pytest_dsql.slo.verdict import LEVEL, ObjectiveResult, Verdict, judge, level_of
from tests.slo.made import FAILURES, HEALTHY, P99, evidence, read, requests, spread


def only(verdict: Verdict) -> ObjectiveResult:
    (result,) = verdict.objectives
    return result


class TestCounting:
    def test_459_requests_with_none_over_pass_a_p99(self) -> None:
        assert judge(P99, evidence(read(459))).outcome == "pass"

    def test_458_are_not_enough(self) -> None:
        verdict = judge(P99, evidence(read(458)))
        assert verdict.outcome == "inconclusive"
        assert "needs about 1 more product_read samples" in verdict.reasons[0]

    def test_a_failure_rate_of_a_thousandth_needs_4603(self) -> None:
        assert judge(FAILURES, evidence(read(4602))).outcome == "inconclusive"
        assert judge(FAILURES, evidence(read(4603))).outcome == "pass"

    def test_a_request_as_long_as_the_limit_is_not_over(self) -> None:
        assert only(judge(P99, evidence(read(500, latency=ms(100))))).over == 0
        assert only(judge(P99, evidence(read(500, latency=ms(100) + 1)))).over == 500

    def test_as_many_over_as_allowed_decide_nothing(self) -> None:
        verdict = judge(P99, evidence(read(2000, slow=spread(20, 2000))))
        assert verdict.outcome == "inconclusive"
        assert "20 of 2,000 requests (1 %)" in verdict.reasons[0]
        assert "too near to tell" in verdict.reasons[0]

    def test_many_over_fail(self) -> None:
        verdict = judge(P99, evidence(read(2000, slow=spread(50, 2000))))
        assert verdict.outcome == "fail"
        assert verdict.reasons == ("product_read p99: 50 of 2,000 requests (2.5 %) took longer than 100 ms, 1 % may.",)

    def test_ten_requests_that_all_miss_are_enough_to_fail(self) -> None:
        assert judge(P99, evidence(read(10, slow=range(10)))).outcome == "fail"

    def test_each_transaction_is_judged_on_its_own(self) -> None:
        """One transaction's few slow requests would drown among those of the others."""
        slow_one = requests("rare", "read", 500, slow=spread(25, 500))
        verdict = judge(P99, evidence(read(20_000), slow_one))
        assert verdict.outcome == "fail"
        assert [one.outcome for one in verdict.objectives] == ["pass", "fail"]

    def test_a_cluster_counts_as_few_events(self) -> None:
        """The same count, spread, fails; one stall of it is one event and leaves the verdict open."""
        clustered = judge(P99, evidence(read(2000, slow=range(700, 750))))
        assert clustered.outcome == "inconclusive"
        assert only(clustered).design_effect > 20

    def test_the_result_can_be_checked_by_hand(self) -> None:
        result = only(judge(P99, evidence(read(2000, slow=spread(50, 2000)))))
        assert (result.metric, result.transaction, result.limit) == ("p99", "product_read", ms(100))
        assert (result.n, result.over, result.level, result.look) == (2000, 50, LEVEL, 1)


class TestOutcomes:
    """The table: which outcomes count over, and which as failures."""

    @pytest.mark.parametrize("outcome", sorted(OUTCOME_COUNTS))
    def test_every_outcome_has_a_row(self, outcome: str) -> None:
        slo = Slo(reads=Latency(p99=ms(100)), max_failure_rate=0.001)
        positions = dict.fromkeys(spread(100, 5000), outcome)
        latency, failures = judge(slo, evidence(read(5000, outcomes=positions))).objectives
        failed = outcome in ("failed", "skipped", "dropped", "ambiguous")
        assert latency.over == failures.over == (100 if failed else 0)
        assert latency.unfinished == failures.unfinished == (100 if outcome == "cancelled" else 0)
        assert latency.n == failures.n == (4900 if outcome == "cancelled" else 5000)

    @pytest.mark.parametrize("outcome", ["ok_retried", "rejected"])
    def test_the_latency_of_retried_and_rejected_requests_counts(self, outcome: str) -> None:
        slow = spread(100, 5000)
        result = only(judge(P99, evidence(read(5000, slow=slow, outcomes=dict.fromkeys(slow, outcome)))))
        assert result.over == 100

    def test_a_failed_request_counts_once_however_slow(self) -> None:
        slow = spread(10, 5000)
        assert only(judge(P99, evidence(read(5000, slow=slow, outcomes=dict.fromkeys(slow, "failed"))))).over == 10

    def test_failures_are_named_in_the_reason(self) -> None:
        positions = dict.fromkeys(spread(100, 2000), "failed")
        assert "100 of them failed" in judge(P99, evidence(read(2000, outcomes=positions))).reasons[0]

    def test_an_unfinished_request_past_the_limit_is_over(self) -> None:
        slow = spread(50, 2000)
        result = only(judge(P99, evidence(read(2000, slow=slow, outcomes=dict.fromkeys(slow, "cancelled")))))
        assert (result.over, result.unfinished, result.n, result.outcome) == (50, 0, 2000, "fail")

    def test_a_thousandth_unfinished_is_tolerated(self) -> None:
        assert judge(P99, evidence(read(3000, outcomes=dict.fromkeys((5, 6, 7), "cancelled")))).outcome == "pass"

    def test_more_than_a_thousandth_unfinished_is_inconclusive(self) -> None:
        verdict = judge(P99, evidence(read(3000, outcomes=dict.fromkeys((5, 6, 7, 8), "cancelled"))), looks=3)
        assert verdict.outcome == "inconclusive"
        assert "4 of 3,000 requests (0.13 %) were still running" in verdict.reasons[0]
        assert not verdict.wants_samples

    def test_a_pass_holds_even_if_what_was_still_running_had_failed(self) -> None:
        """Nobody knows how the three would have ended: 3 of 5,000 that failed would be too many to pass."""
        three = dict.fromkeys((5, 6, 4_990), "cancelled")
        verdict = judge(FAILURES, evidence(read(5000, outcomes=three)), looks=3)
        assert verdict.outcome == "inconclusive"
        assert "none of 4,997 requests failed and 3 more were still running" in verdict.reasons[0]
        assert verdict.wants_samples
        assert judge(FAILURES, evidence(read(20_000, outcomes=three))).outcome == "pass"

    def test_failures_of_all_transactions_are_counted_together(self) -> None:
        first = read(5000, outcomes=dict.fromkeys(spread(10, 5000), "failed"))
        second = requests("order_create", "write", 5000, outcomes=dict.fromkeys(spread(10, 5000), "skipped"))
        result = only(judge(FAILURES, evidence(first, second)))
        assert (result.n, result.over, result.measured) == (10_000, 20, 0.002)

    def test_failures_at_the_same_time_are_one_cluster_whatever_their_transaction(self) -> None:
        burst = dict.fromkeys(range(1000, 1020), "failed")
        first, second = read(5000, outcomes=burst), requests("order_create", "write", 5000, outcomes=burst)
        assert only(judge(FAILURES, evidence(first, second))).design_effect > 10


class TestNoData:
    def test_a_transaction_without_requests_never_passes(self) -> None:
        verdict = judge(P99, evidence(read(0)), looks=3)
        assert verdict.outcome == "inconclusive"
        assert "no product_read request was measured" in verdict.reasons[0]
        assert not verdict.wants_samples

    def test_a_name_that_the_cell_lacks_never_passes(self) -> None:
        verdict = judge(Slo(transactions={"product_raed": Latency(p99=ms(100))}), evidence(read(5000)))
        assert verdict.outcome == "inconclusive"
        assert "no transaction of that name (it has: product_read)" in verdict.reasons[0]

    def test_an_slo_that_applies_to_nothing_never_passes(self) -> None:
        verdict = judge(Slo(writes=Latency(p99=ms(100))), evidence(read(5000)))
        assert verdict.outcome == "inconclusive"
        assert "No objective applies" in verdict.reasons[0]

    def test_a_cell_without_a_window_has_no_rate(self) -> None:
        verdict = judge(Slo(min_tps=1), evidence(read(0), duration_s=0.0, successes=[]))
        assert verdict.outcome == "inconclusive"

    def test_no_checked_invariant_never_passes(self) -> None:
        verdict = judge(P99, evidence(read(5000), invariants={}))
        assert verdict.outcome == "inconclusive"
        assert "No invariant was checked" in verdict.reasons[0]

    def test_a_mix_without_invariants_passes(self) -> None:
        assert judge(P99, evidence(read(5000), invariants=None)).outcome == "pass"

    def test_a_transaction_that_never_commits_says_nothing(self) -> None:
        verdict = judge(P99, evidence(read(5000, every="rejected")))
        assert verdict.outcome == "inconclusive"
        assert "none of 5,000 requests committed" in verdict.reasons[0]

    def test_so_few_that_commit_that_all_of_them_may_be_slow_say_nothing(self) -> None:
        """Fifty of 5,000 may be over a p99, so fifty commits that all are slow would pass beside quick refusals."""
        some = {n: dict.fromkeys(spread(n, 5000), "ok") for n in (50, 51)}
        few, enough = (read(5000, every="rejected", outcomes=one) for one in some.values())
        verdict = judge(P99, evidence(few), looks=3)
        assert verdict.outcome == "inconclusive"
        assert "only 50 of 5,000 requests committed" in verdict.reasons[0]
        assert not verdict.wants_samples
        assert judge(P99, evidence(enough)).outcome == "pass"


class TestRate:
    def test_reached(self) -> None:
        assert judge(Slo(min_tps=400), evidence(read(5000))).outcome == "pass"

    def test_missed(self) -> None:
        verdict = judge(Slo(min_tps=600), evidence(read(5000)))
        assert verdict.outcome == "fail"
        assert verdict.reasons[0].startswith("success rate: 500.0/s")

    def test_a_queue_that_is_worked_off_after_the_window_is_no_throughput(self) -> None:
        """5,000 arrived in 10 s and all committed in the end, 1,500 of them when the window had closed: 350/s."""
        late = {"successes": [249, 251] * 10, "spill": 1_500}
        assert judge(Slo(min_tps=450), evidence(read(5000), successes=[249, 251] * 10)).outcome == "pass"
        verdict = judge(Slo(min_tps=450), evidence(read(5000), **late))
        assert verdict.outcome == "fail"
        assert verdict.reasons[0].startswith("success rate: 350.0/s")
        assert judge(Slo(min_tps=340), evidence(read(5000), **late)).outcome == "pass"

    def test_too_near_to_tell_wants_samples(self) -> None:
        verdict = judge(Slo(min_tps=500), evidence(read(5000), successes=[200, 300] * 10), looks=3)
        assert verdict.outcome == "inconclusive"
        assert verdict.wants_samples


class TestInvariants:
    def test_a_violation_fails_whatever_the_latency(self) -> None:
        verdict = judge(P99, evidence(read(5000), invariants={"stock": 0, "receipts": 3}))
        assert verdict.outcome == "fail"
        assert verdict.reasons == (
            "Invariant receipts is violated (3 violations): the cell is void whatever its latency.",
        )

    def test_a_violation_fails_whatever_the_generator(self) -> None:
        busy = replace(HEALTHY, cpu=0.99)
        assert judge(P99, evidence(read(5000), invariants={"stock": 1}, generator=busy)).outcome == "fail"


class TestInterrupted:
    def test_an_interrupted_cell_never_passes(self) -> None:
        facts = evidence(read(5000), interrupted="worker 2 died", complete=0.5)
        verdict = judge(P99, facts, looks=3)
        assert verdict.outcome == "inconclusive"
        assert (
            verdict.reasons[0]
            == "The cell ended early after 50 % of its window (worker 2 died); running it again would settle it."
        )
        assert not verdict.wants_samples

    def test_it_fails_early_only_with_the_failing_count_of_the_planned_window(self) -> None:
        """21 of 1,000 fail at 1 %, but 21 of the planned 2,000 would not."""
        enough, few = (read(1000, slow=spread(k, 1000)) for k in (40, 21))
        assert judge(P99, evidence(few)).outcome == "fail"
        assert judge(P99, evidence(few, interrupted="SIGINT", complete=0.5)).outcome == "inconclusive"
        assert judge(P99, evidence(enough, interrupted="SIGINT", complete=0.5)).outcome == "fail"

    def test_a_rate_missed_early_is_no_fail(self) -> None:
        facts = evidence(read(5000), interrupted="SIGINT", complete=0.5)
        assert judge(Slo(min_tps=600), facts).outcome == "inconclusive"

    def test_without_a_known_plan_it_never_fails(self) -> None:
        facts = evidence(read(1000, slow=range(1000)), interrupted="SIGINT", complete=None)
        assert judge(P99, facts).outcome == "inconclusive"

    @pytest.mark.parametrize("wrong", [0, -0.5, 1.1])
    def test_complete_is_a_share(self, wrong: Any) -> None:
        with pytest.raises(ValueError, match="complete"):
            evidence(read(5), complete=wrong)


class TestLooks:
    def test_one_look_spends_the_whole_level(self) -> None:
        assert level_of(1, 1) == LEVEL

    @pytest.mark.parametrize("looks", [1, 2, 3, 4])
    def test_looks_spend_the_level_between_them(self, looks: int) -> None:
        assert sum(level_of(look, looks) for look in range(1, looks + 1)) == pytest.approx(LEVEL)

    @pytest.mark.parametrize("look", [0, 4])
    def test_there_are_no_other_looks(self, look: int) -> None:
        with pytest.raises(ValueError, match=r"1\.\.3"):
            level_of(look, 3)

    def test_want_of_samples_is_said_while_a_look_is_left(self) -> None:
        facts = evidence(read(400))
        assert judge(P99, facts, look=1, looks=3).wants_samples
        assert judge(P99, facts, look=2, looks=3).wants_samples
        assert not judge(P99, facts, look=3, looks=3).wants_samples

    def test_looks_that_can_t_reach_the_minimum_are_not_asked_for(self) -> None:
        """30 requests become 120: a p99 needs 600 at the last look."""
        verdict = judge(P99, evidence(read(30)), look=1, looks=3)
        assert verdict.outcome == "inconclusive"
        assert not verdict.wants_samples
        assert "Even 4 times as many would be too few, so the cell was not extended" in verdict.reasons[0]

    def test_a_later_look_is_recorded(self) -> None:
        result = only(judge(P99, evidence(read(5000)), look=2, looks=3))
        assert (result.look, result.level) == (2, LEVEL / 4)


class TestSentences:
    def test_the_advice_is_in_samples_of_that_transaction(self) -> None:
        verdict = judge(P99, evidence(read(900, slow=spread(4, 900))))
        assert verdict.outcome == "inconclusive"
        assert "more product_read samples if the share stays." in verdict.reasons[0]

    def test_a_share_on_the_limit_says_that_no_size_settles_it(self) -> None:
        verdict = judge(FAILURES, evidence(read(1000, outcomes={500: "failed"})))
        assert "not even 10,000,000 requests would settle it" in verdict.reasons[0]

    def test_a_pass_names_the_nearest_objective(self) -> None:
        facts = evidence(read(5000), requests("order_history", "read", 5000, slow=spread(5, 5000)))
        (reason,) = judge(P99, facts).reasons
        assert reason == (
            "All 2 objectives are met; the nearest: order_history p99: 5 of 5,000 requests (0.1 %) took longer than "
            "100 ms, 1 % may."
        )

    @given(
        n=st.integers(0, 3000),
        share=st.floats(0, 1),
        end=st.sampled_from(sorted(OUTCOME_COUNTS)),
        look=st.integers(1, 3),
        complete=st.sampled_from([1.0, 0.3, None]),
    )
    def test_every_verdict_has_sentences(
        self, n: int, share: float, end: str, look: int, complete: float | None
    ) -> None:
        slow = spread(int(n * share), n) if n else ()
        facts = evidence(
            read(n, slow=slow, outcomes=dict.fromkeys(slow, end)),
            interrupted=None if complete == 1.0 else "SIGINT",
            complete=complete,
        )
        slo = Slo(reads=Latency(p50=ms(10), p999=ms(100)), max_failure_rate=0.01, min_tps=10)
        verdict = judge(slo, facts, look=look, looks=3)
        assert verdict.reasons
        assert all(reason.endswith(".") and "nan" not in reason and "inf" not in reason for reason in verdict.reasons)
        assert all(0 <= one.over <= one.n for one in verdict.objectives)
        if verdict.outcome == "pass":
            assert n
            assert all(one.outcome == "pass" for one in verdict.objectives)
