from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.connect.backoff import BACKOFF
from pytest_dsql.load.retry import RETRY, RetryPolicy

jitters = st.floats(0, 1, exclude_max=True)
moments = st.integers(0, 10**15)


@given(attempts_made=st.integers(1, 10), jitter=jitters)
def test_a_pause_lies_between_nothing_and_the_doubled_base(attempts_made: int, jitter: float) -> None:
    pause = RETRY.pause_ns(attempts_made, jitter)
    assert 0 <= pause <= 10_000_000 * 2 ** (attempts_made - 1)


@given(jitter=jitters)
def test_pauses_double_with_every_attempt(jitter: float) -> None:
    pauses = [Fraction(RETRY.pause_ns(made, jitter)) for made in (1, 2, 3)]
    assert abs(pauses[1] - 2 * pauses[0]) <= 2
    assert abs(pauses[2] - 4 * pauses[0]) <= 4


@given(intended=moments, spent=st.integers(0, 5 * 10**9), made=st.integers(1, 5), jitter=jitters)
def test_no_attempt_begins_late_or_beyond_the_number(intended: int, spent: int, made: int, jitter: float) -> None:
    now = intended + spent
    start = RETRY.next_start_ns(attempts_made=made, intended_ns=intended, now_ns=now, jitter=jitter)
    if made >= 3:
        assert start is None
    elif start is None:
        assert now + RETRY.pause_ns(made, jitter) > intended + 2_000_000_000
    else:
        assert now <= start <= intended + 2_000_000_000


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"deadline_s": -1.0}, {"base_s": -0.1}])
def test_a_policy_without_attempts_or_with_negative_times_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="retry policy"):
        RetryPolicy(**wrong)  # type: ignore[arg-type]  # wrong values are the point


@given(refusals=st.integers(1, 100), spent=st.integers(0, 5 * 10**9), jitter=jitters)
def test_refused_connections_are_asked_for_again_while_there_is_time(refusals: int, spent: int, jitter: float) -> None:
    start = RETRY.next_connect_ns(refusals=refusals, intended_ns=7, now_ns=7 + spent, jitter=jitter)
    pause = BACKOFF.pause_s(refusals, jitter) * 1e9
    assert start == (7 + spent + int(pause) if spent + int(pause) <= 2_000_000_000 else None)
