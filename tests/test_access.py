"""Which keys requests touch."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from pytest_dsql.access import HOT, UNIFORM, ZIPF, Access, HotSet, Zipf
from pytest_dsql.transaction import CellRun, Context, StreamRandom

DRAWS = 40_000
RUN = CellRun(number=1, operation_prefix="a-", slots=1)


def drawn(access: Access, n: int) -> Counter[int]:
    pick = access.picker(StreamRandom(5))
    return Counter(pick(n) for _ in range(DRAWS))


@pytest.mark.parametrize("access", [UNIFORM, HOT, ZIPF, Zipf(1.0), Zipf(2.5)])
@pytest.mark.parametrize("n", [1, 2, 3, 64, 1000])
def test_keys_are_within_the_range_and_all_of_them_can_come(access: Access, n: int) -> None:
    counts = drawn(access, n)
    assert set(counts) <= set(range(n))
    if n <= 3:
        assert len(counts) == n


def test_four_fifths_of_the_requests_meet_one_key_in_a_hundred() -> None:
    hottest = drawn(HOT, 1000).most_common(10)
    assert sum(count for _, count in hottest) / DRAWS == pytest.approx(0.8, abs=0.01)


def test_the_keys_of_a_hot_set_are_alike() -> None:
    counts = [count for _, count in drawn(HotSet(requests=0.9, keys=0.1), 100).most_common(10)]
    assert max(counts) < 1.2 * min(counts)


@pytest.mark.parametrize("exponent", [0.5, 0.99, 1.0, 2.0])
def test_frequencies_follow_zipfs_law(exponent: float) -> None:
    n = 50
    total = sum(k**-exponent for k in range(1, n + 1))
    counts = [count for _, count in drawn(Zipf(exponent), n).most_common()]
    for k in (1, 2, 5, 10):
        expected = DRAWS * k**-exponent / total
        assert counts[k - 1] == pytest.approx(expected, abs=5 * expected**0.5)


@pytest.mark.parametrize("access", [HOT, ZIPF])
@pytest.mark.parametrize("n", [1000, 1024, 100_000])
def test_frequent_keys_are_no_neighbours(access: Access, n: int) -> None:
    hottest = sorted(key for key, _ in drawn(access, n).most_common(5))
    assert min(second - first for first, second in itertools.pairwise(hottest)) > n // 100


def test_a_retry_draws_the_same_keys() -> None:
    ctx = Context(seed=1, run=RUN, access=ZIPF)
    ctx.next_request()
    first = [ctx.pick(1000) for _ in range(20)]
    ctx.rewind()
    assert [ctx.pick(1000) for _ in range(20)] == first


def test_even_access_draws_what_the_random_numbers_say() -> None:
    one, other = Context(seed=1, run=RUN), Context(seed=1, run=RUN)
    assert [one.pick(1000) for _ in range(20)] == [other.rng.randrange(1000) for _ in range(20)]


def test_patterns_that_cannot_be_are_refused() -> None:
    for requests, keys in ((0.0, 0.5), (1.0, 0.5), (0.5, 0.0), (0.5, 1.0)):
        with pytest.raises(ValueError, match="shares between 0 and 1"):
            HotSet(requests, keys)
    for exponent in (0.0, -1.0, 10.0, float("nan")):
        with pytest.raises(ValueError, match="exponent"):
            Zipf(exponent)


@pytest.mark.parametrize(
    ("access", "words"),
    [(UNIFORM, "uniform"), (HOT, "hot set (80% of requests on 1% of keys)"), (ZIPF, "zipf 0.99")],
)
def test_patterns_describe_themselves(access: Access, words: str) -> None:
    assert access.describe() == words
