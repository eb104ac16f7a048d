"""When a cell says more about the generator, or its machine, than about the database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_dsql.slo.objectives import Latency, Slo, ms
from pytest_dsql.slo.verdict import Verdict, judge
from tests.slo.made import FAILURES, HEALTHY, P99, evidence, read, requests, spread


class TestGenerator:
    """A failed objective on an unhealthy generator says nothing; a pass says "at least"."""

    UNHEALTHY = (
        {"cpu": 0.86},
        {"loop_lag_p99_ns": ms(10.1)},
        {"schedule_lag_p99_ns": ms(10.1)},
        {"connection_wait_p99_ns": ms(10.1)},
        {"offered_rate": 1000.0},
        {"runqueue_wait": 0.9},
    )

    @pytest.mark.parametrize("change", UNHEALTHY, ids=lambda one: next(iter(one)))
    def test_a_miss_is_invalid(self, change: dict[str, Any]) -> None:
        # 70 requests in 10 s: 0.9 of the window in the run queue is 130 ms for each.
        # The slow ones waited for a connection, so that without their waits nothing is missed.
        slow = replace(read(70, slow=range(30)), wait_ns=[ms(995)] * 30 + [0] * 40)
        facts = evidence(slow, generator=replace(HEALTHY, **change))
        verdict = judge(P99, facts)
        assert verdict.outcome == "invalid"
        assert "says nothing about the database" in verdict.reasons[0]
        assert not verdict.healthy

    @pytest.mark.parametrize(
        "change", [one for one in UNHEALTHY if "offered_rate" not in one], ids=lambda one: next(iter(one))
    )
    def test_a_pass_says_at_least(self, change: dict[str, Any]) -> None:
        verdict = judge(P99, evidence(read(600), generator=replace(HEALTHY, **change)))
        assert verdict.outcome == "pass"
        assert any("At least" in reason for reason in verdict.reasons)

    def test_a_pass_at_a_lower_rate_is_none_at_the_rate_that_was_asked_for(self) -> None:
        verdict = judge(P99, evidence(read(600), generator=replace(HEALTHY, offered_rate=1000.0)))
        assert verdict.outcome == "invalid"
        assert "60.0 requests/s of the 1,000.0 that were planned" in verdict.reasons[1]

    @pytest.mark.parametrize(
        "change",
        [
            {"cpu": 0.85},
            {"loop_lag_p99_ns": ms(10)},
            {"schedule_lag_p99_ns": ms(10)},
            {"connection_wait_p99_ns": ms(10)},
        ],
    )
    def test_at_the_bound_it_is_healthy(self, change: dict[str, Any]) -> None:
        assert judge(P99, evidence(read(5000), generator=replace(HEALTHY, **change))).healthy

    def test_one_in_a_thousand_is_judged_by_the_lags_of_one_in_a_thousand(self) -> None:
        """Half a percent of the answers came 20 ms late: no p99 of a lag shows it, and it is five p999s' worth."""
        lagging = replace(HEALTHY, own_lag_p999_ns=ms(20.1))
        slo = Slo(reads=Latency(p999=ms(200)))
        missed = read(20_000, slow=spread(100, 20_000))
        assert judge(slo, evidence(missed)).outcome == "fail"
        verdict = judge(slo, evidence(missed, generator=lagging))
        assert verdict.outcome == "invalid"
        assert (
            "lag p999 20.1 ms, above 20 ms, a tenth of the tightest p999 limit (200 ms)" in verdict.generator_signs[0]
        )
        assert judge(slo, evidence(missed, generator=replace(HEALTHY, own_lag_p999_ns=ms(20)))).outcome == "fail"
        assert judge(P99, evidence(read(5000), generator=lagging)).healthy
        queued = replace(HEALTHY, connection_wait_p999_ns=ms(21))
        assert "connection wait p999 21.0 ms" in judge(slo, evidence(missed, generator=queued)).generator_signs[0]

    def test_the_tightest_limit_counts(self) -> None:
        slo = Slo(reads=Latency(p50=ms(20), p99=ms(100)))
        lagging = replace(HEALTHY, loop_lag_p99_ns=ms(3))
        verdict = judge(slo, evidence(read(5000), generator=lagging))
        assert "a tenth of the tightest limit (20 ms)" in verdict.generator_signs[0]

    @pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
    def test_a_busy_neighbour_never_turns_a_pass_into_anything_else(self, share: float) -> None:
        verdict = judge(P99, evidence(read(5000), generator=replace(HEALTHY, runqueue_wait=share)))
        assert verdict.outcome == "pass"

    def test_a_busy_neighbour_with_short_waits_leaves_the_generator_healthy(self) -> None:
        """A third of the window in the run queue, over 5,000 requests, is 0.7 ms for each."""
        verdict = judge(
            P99, evidence(read(5000, slow=spread(200, 5000)), generator=replace(HEALTHY, runqueue_wait=0.33))
        )
        assert verdict.outcome == "fail"

    def test_a_slow_database_is_not_excused_by_a_little_waiting(self) -> None:
        """Few requests, each over a second long: 2 % in the run queue is 2 ms of a request at its limit, not 20."""
        assert judge(P99, evidence(read(10, slow=range(10)))).outcome == "fail"

    def test_without_a_latency_limit_only_a_lag_of_10_ms_counts(self) -> None:
        assert judge(FAILURES, evidence(read(5000), generator=replace(HEALTHY, loop_lag_p99_ns=ms(9)))).healthy
        assert not judge(FAILURES, evidence(read(5000), generator=replace(HEALTHY, loop_lag_p99_ns=ms(11)))).healthy

    def test_unknown_lags_are_no_sign(self) -> None:
        unknown = replace(HEALTHY, runqueue_wait=None, loop_lag_p99_ns=None, connection_wait_p99_ns=None)
        assert judge(P99, evidence(read(5000), generator=unknown)).healthy

    def test_an_offered_rate_within_chance_is_reached(self) -> None:
        assert judge(P99, evidence(read(4900), generator=replace(HEALTHY, offered_rate=500.0))).healthy


class TestWaitingForAConnection:
    """In open loop a full pool can be the database's doing or the generator's."""

    def queued(self, *, service: int, wait: int, outcome: str = "ok", n: int = 2_000, **health: object) -> Verdict:
        half = n // 2
        made = requests("t", "read", n, slow=range(half, n), latency=service, slow_latency=service + wait)
        if outcome != "ok":
            # Never sent: all they did was wait.
            made = requests(
                "t",
                "read",
                n,
                slow=range(half, n),
                latency=service,
                slow_latency=wait,
                outcomes=dict.fromkeys(range(half, n), outcome),
            )
        made = replace(made, wait_ns=[0] * half + [wait] * half)
        generator = replace(HEALTHY, connection_wait_p99_ns=wait, schedule_lag_p99_ns=0, **health)  # type: ignore[arg-type]
        return judge(Slo(reads=Latency(p99=ms(100)), max_failure_rate=0.001), evidence(made, generator=generator))

    def test_a_database_that_is_slow_by_itself_fails(self) -> None:
        verdict = self.queued(service=ms(150), wait=ms(500))
        assert verdict.outcome == "fail"
        assert any("Without the time that requests waited for a connection" in reason for reason in verdict.reasons)

    def test_too_few_connections_say_nothing_about_the_database(self) -> None:
        verdict = self.queued(service=ms(20), wait=ms(500))
        assert verdict.outcome == "invalid"
        assert "more connections would tell" in verdict.reasons[1]

    def test_skipped_requests_were_never_the_databases(self) -> None:
        assert self.queued(service=ms(20), wait=ms(2_000), outcome="skipped").outcome == "invalid"

    def test_skipped_requests_are_counted_when_the_others_took_too_long(self) -> None:
        verdict = self.queued(service=ms(150), wait=ms(2_000), outcome="skipped")
        assert verdict.outcome == "fail"
        assert [one.over for one in verdict.objectives] == [2_000, 1_000]

    def test_failed_requests_that_were_sent_are_the_databases(self) -> None:
        made = requests("t", "read", 2_000, latency=ms(500), outcomes=dict.fromkeys(range(1_000), "failed"))
        made = replace(made, wait_ns=[ms(480)] * 2_000)
        generator = replace(HEALTHY, connection_wait_p99_ns=ms(480))
        assert judge(Slo(max_failure_rate=0.001), evidence(made, generator=generator)).outcome == "fail"

    def test_another_sign_beside_it_makes_it_invalid(self) -> None:
        assert self.queued(service=ms(150), wait=ms(500), cpu=0.95).outcome == "invalid"


class TestStarvedEngine:
    """A miss of the embedded engine that other programs kept waiting says nothing; without such a wait it is one."""

    def test_a_miss_is_invalid(self) -> None:
        # 5,000 requests in 10 s, and 6 processes waiting all the time: 12 ms for each.
        facts = evidence(read(5000, slow=spread(200, 5000)), engine_starved=6.0)
        verdict = judge(P99, facts)
        assert verdict.outcome == "invalid"
        assert verdict.reasons[0].startswith("An objective was missed while other programs kept the embedded engine")
        assert "about 12.0 ms for cores that other programs used" in verdict.reasons[1]
        assert verdict.healthy  # it is not the generator that was near its limit
        assert len(verdict.engine_signs) == 1

    def test_a_pass_says_at_least(self) -> None:
        verdict = judge(P99, evidence(read(5000), engine_starved=6.0))
        assert verdict.outcome == "pass"
        assert any("At least: other programs" in reason for reason in verdict.reasons)

    @pytest.mark.parametrize("starved", [None, 0.0, 4.9])
    def test_little_or_no_waiting_excuses_nothing(self, starved: float | None) -> None:
        verdict = judge(P99, evidence(read(5000, slow=spread(200, 5000)), engine_starved=starved))
        assert (verdict.outcome, verdict.engine_signs) == ("fail", ())

    def test_few_slow_requests_are_not_excused_by_what_the_engine_waits_for_anyway(self) -> None:
        """Spread over ten requests a twentieth of a process is 50 ms; but of a request at its limit it is 5."""
        assert judge(P99, evidence(read(10, slow=range(10)), engine_starved=0.05)).outcome == "fail"

    def test_while_the_gateway_waits_every_request_does(self) -> None:
        """A third of the time; spread over 7,000 requests that would be 0.5 ms for each, but each is held up by it."""
        fast = read(7000, slow=spread(400, 7000))
        facts = evidence(fast, engine_starved=0.34, gateway_starved=0.33, others_share=0.6)
        verdict = judge(P99, facts)
        assert verdict.outcome == "invalid"
        assert "about 33.0 ms" in verdict.reasons[1]
        assert judge(P99, replace(facts, gateway_starved=0.0)).outcome == "fail"
        assert judge(P99, replace(facts, gateway_starved=0.09)).outcome == "fail"

    def test_a_run_that_saturates_itself_beside_a_little_load_fails(self) -> None:
        """60 processes wait, and others have 4 % of the CPU: 2.4 of the 60 are theirs, and those are no excuse."""
        saturated = read(500, slow=range(400))  # in 10 s: 48 ms of its second are theirs
        facts = evidence(saturated, engine_starved=2.4, others_share=0.04)
        verdict = judge(P99, facts)
        assert verdict.outcome == "fail"
        assert "4 % of the CPU" in verdict.reasons[1]
        assert len(verdict.engine_signs) == 1
        few = evidence(read(500, slow=spread(200, 500)), engine_starved=2.4, others_share=0.04)
        much = evidence(saturated, engine_starved=2.4, others_share=0.11)
        opened = replace(facts, generator=replace(HEALTHY, offered_rate=50.0))
        busy = replace(facts, generator=replace(HEALTHY, cpu=0.9))
        assert [judge(P99, one).outcome for one in (few, much, opened, busy)] == ["invalid"] * 4

    def test_a_generator_at_its_limit_is_named_first(self) -> None:
        facts = evidence(read(5000, slow=spread(200, 5000)), engine_starved=6.0, generator=replace(HEALTHY, cpu=0.9))
        verdict = judge(P99, facts)
        assert verdict.outcome == "invalid"
        assert "while the generator was at its limit" in verdict.reasons[0]
        assert any(reason.startswith("The embedded engine was starved") for reason in verdict.reasons)

    def test_connections_that_were_too_few_do_not_make_a_starved_engine_fail(self) -> None:
        waiting = replace(HEALTHY, connection_wait_p99_ns=ms(50))
        slow = read(5000, slow=spread(200, 5000))
        assert judge(P99, evidence(slow, generator=waiting)).outcome == "fail"
        assert judge(P99, evidence(slow, generator=waiting, engine_starved=6.0)).outcome == "invalid"
