"""Counts travel between hosts whole, in a form whose size the rate hardly moves."""

from __future__ import annotations

import pickle

import pytest

from pytest_dsql.load.digest import Condenser
from pytest_dsql.load.measurement import Outcome
from pytest_dsql.load.recorder import Batch
from pytest_dsql.load.wire import pack_counts, unpack_counts
from tests.load.test_digest import MIX, OPENS, SECOND, batches

SECONDS = 20


def empty(opens_ns: int = OPENS) -> Condenser:
    return Condenser(MIX, window_start_ns=opens_ns, window_end_ns=opens_ns + SECONDS * SECOND)


def counted(several: list[Batch]) -> Condenser:
    made = empty()
    for batch in several:
        made.add(batch)
    return made


@pytest.mark.parametrize("waiting", [False, True])
def test_counts_of_two_hosts_second_by_second_are_those_of_all_batches(waiting: bool) -> None:
    hosts = [list(batches(SECONDS, 400, seed=seed, waiting=waiting)) for seed in (1, 2)]
    # The controller's clock is another one: counts are by the time since the window opened.
    received = empty(opens_ns=OPENS + 12_345 * SECOND)
    for second in range(SECONDS):
        for batch in hosts:
            received.include(unpack_counts(pack_counts(counted(batch[4 * second : 4 * second + 4]))))
    whole = counted([*hosts[0], *hosts[1]])
    assert (received.committed, received.ambiguous) == (whole.committed, whole.ambiguous)
    assert (received.outcomes, received.errors) == (whole.outcomes, whole.errors)
    got, expected = received.result(float(SECONDS)), whole.result(float(SECONDS))
    assert got.series == expected.series
    assert got.successes == expected.successes
    assert sum(got.successes) == sum(received.committed)
    for name, digest in expected.digests.items():
        other = got.digests[name]
        assert [len(digest), *digest.outcomes] == [len(other), *other.outcomes]
        for part in ("latency", "wait", "service", "backoff", "served", "unfinished", "unfinished_served"):
            assert getattr(other, part) == getattr(digest, part)
        for part in ("latencies", "servings", "pending"):
            mine, theirs = getattr(digest, part), getattr(other, part)
            assert {stretch: mine[stretch] for stretch in mine} == {stretch: theirs[stretch] for stretch in theirs}
        assert (other.failures, other.failed_sent) == (digest.failures, digest.failed_sent)
        assert (other.errors, other.messages, other.attempts) == (digest.errors, digest.messages, digest.attempts)


def test_ten_times_the_rate_is_not_ten_times_the_size() -> None:
    sizes = {}
    for rate in (1_000, 10_000):
        second = list(batches(1, rate))
        raw = sum(len(pickle.dumps(batch, protocol=pickle.HIGHEST_PROTOCOL)) for batch in second)
        sizes[rate] = raw, len(pack_counts(counted(second)))
    assert sizes[10_000][0] > 8 * sizes[1_000][0]
    assert sizes[10_000][1] < 4 * sizes[1_000][1]
    assert sizes[10_000][1] < sizes[10_000][0] / 8


def test_where_every_duration_has_been_seen_more_requests_add_nothing() -> None:
    second = list(batches(1, 1_000))
    once, often = len(pack_counts(counted(second))), len(pack_counts(counted(second * 50)))
    assert often < 1.3 * once  # counts of three digits instead of one


def test_what_is_sent_holds_no_single_request() -> None:
    outcomes = [0] * len(Outcome)
    assert unpack_counts(pack_counts(empty())).outcomes == outcomes
    assert len(pack_counts(empty())) < 2_000
