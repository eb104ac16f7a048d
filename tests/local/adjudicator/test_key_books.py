"""The books of keys: what is newer than whose snapshot, and that nothing is kept for nobody."""

from __future__ import annotations

import pytest

from pytest_dsql.local.adjudicator.books import Books, Keys


def freed(*keys: str, table: str = "t") -> Keys:
    return Keys(freed=set(keys), tables={table})


def test_a_key_that_was_freed_after_the_snapshot_conflicts_with_its_insertion() -> None:
    books = Books()
    older = books.snapshot()
    books.record(freed("1|a"))
    newer = books.snapshot()
    assert books.conflict(Keys(), {"1|a"}, older)
    assert not books.conflict(Keys(), {"1|b"}, older)
    assert not books.conflict(Keys(), {"1|a"}, newer)


def test_frees_are_known_by_table() -> None:
    books = Books()
    snapshot = books.snapshot()
    assert not books.frees_newer({"t"}, snapshot)
    books.record(freed("1|a"))
    assert books.frees_newer({"t", "other"}, snapshot)
    assert not books.frees_newer({"other"}, snapshot)


@pytest.mark.parametrize(
    ("first", "second", "conflict"),
    [
        (Keys(shared={"k"}), Keys(freed={"k"}), True),
        (Keys(shared={"k"}), Keys(locked={"k"}), True),
        (Keys(locked={"k"}), Keys(shared={"k"}), True),
        (Keys(freed={"k"}), Keys(shared={"k"}), True),
        (Keys(shared={"k"}), Keys(shared={"k"}), False),
        (Keys(shared={"k"}), Keys(freed={"other"}), False),
    ],
)
def test_locks_of_committed_transactions_conflict_as_the_matrix_says(first: Keys, second: Keys, conflict: bool) -> None:
    books = Books()
    snapshot = books.snapshot()
    books.record(first)
    assert books.conflict(second, (), snapshot) is conflict


def test_a_commit_in_flight_is_newer_than_every_snapshot() -> None:
    books = Books()
    with books.commit(freed("1|a")) as outcome:
        snapshot = books.snapshot()
        assert books.conflict(Keys(), {"1|a"}, snapshot)
        outcome.append(True)
    assert books.conflict(Keys(), {"1|a"}, snapshot)


def test_a_commit_that_failed_has_done_nothing() -> None:
    books = Books()
    snapshot = books.snapshot()
    with books.commit(freed("1|a")) as outcome:
        outcome.append(False)
    assert not books.conflict(Keys(), {"1|a"}, snapshot)


def test_who_went_away_while_committing_may_have_committed() -> None:
    books = Books()
    snapshot = books.snapshot()
    with pytest.raises(RuntimeError), books.commit(freed("1|a")):
        raise RuntimeError
    assert books.conflict(Keys(), {"1|a"}, snapshot)


def test_what_nobody_can_meet_any_more_is_forgotten() -> None:
    books = Books()
    first, second = books.snapshot(), books.snapshot()
    books.record(freed("1|a"))
    third = books.snapshot()
    books.record(freed("1|b"))
    books.release(first)
    assert books.entries == 3  # two keys and their table
    books.release(second)
    assert books.conflict(Keys(), {"1|b"}, third)
    assert books.entries == 2
    books.release(third)
    assert books.entries == 0
    books.record(freed("1|c"))
    assert books.entries == 0
