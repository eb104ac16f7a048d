"""The model itself: what Aurora DSQL's documentation says about conflicts, case by case."""

from __future__ import annotations

from typing import Final

import pytest

from tests.local.adjudicator.model.conflicts import Mode, conflicting
from tests.local.adjudicator.model.sessions import ABORTED, CONFLICT, STALE, Database, Failure, rows_of
from tests.local.adjudicator.model.statements import (
    Assign,
    Begin,
    Commit,
    Define,
    Delete,
    Fault,
    Insert,
    OnConflict,
    Read,
    Rollback,
    Statement,
    Update,
    Where,
)

BEGIN: Final = Begin()
COMMIT: Final = Commit()
ROLLBACK: Final = Rollback()
OC000: Final = f"40001 {CONFLICT}"
OC001: Final = f"40001 {STALE}"
DEFINE: Final = Define("CREATE TABLE side (k int)", "CREATE TABLE")
ITEM: Final = Read("item")


def key(value: int) -> Where:
    return Where("k", "=", (value,))


def add(value: int, amount: int = 1) -> Update:
    return Update("item", key(value), Assign("v", amount, add=True))


def insert(table: str, *row: int | None) -> Insert:
    return Insert(table, (row,))


class Clients:
    """Sessions a, b and c of a database that answers as the model says."""

    def __init__(self) -> None:
        self.database = Database.initial()
        for name in "abc":
            self.database.connect(name)

    def allowed(self, name: str, statement: Statement) -> list[str]:
        """The answers that are allowed, as texts."""
        found = []
        for outcome in self.database.outcomes(name, statement):
            answer = outcome.answer
            if isinstance(answer, Failure):
                found.append(f"{answer.sqlstate} {min(answer.messages)}")
            else:
                found.append(answer.tag)
        return found

    def say(self, name: str, statement: Statement, answer: str) -> None:
        """Go on as if this had been answered, which must be allowed; a beginning of the text will do."""
        allowed = self.allowed(name, statement)
        places = [place for place, text in enumerate(allowed) if text.startswith(answer)]
        assert places, f"{answer!r} is not among {allowed}"
        self.database.outcomes(name, statement)[places[0]].apply()

    def play(self, *steps: tuple[str, Statement, str]) -> None:
        """Have each step answered in the one way that is allowed."""
        for name, statement, answer in steps:
            allowed = self.allowed(name, statement)
            assert len(allowed) == 1, (name, statement, allowed)
            assert allowed[0].startswith(answer), (name, statement, allowed)
            self.database.outcomes(name, statement)[0].apply()

    def item(self, value: int) -> tuple[object, ...] | None:
        return next((row for row in rows_of(self.database, "item") if row[0] == value), None)


@pytest.fixture
def clients() -> Clients:
    return Clients()


MATRIX = [
    (Mode.STRONG, Mode.STRONG, True),
    (Mode.STRONG, Mode.NON_KEY, True),
    (Mode.STRONG, Mode.KEY_SHARE, True),
    (Mode.NON_KEY, Mode.NON_KEY, True),
    (Mode.NON_KEY, Mode.KEY_SHARE, False),
    (Mode.KEY_SHARE, Mode.KEY_SHARE, False),
    (Mode.NONE, Mode.STRONG, False),
]


@pytest.mark.parametrize(("one", "other", "expected"), MATRIX)
def test_the_matrix_is_symmetric_and_as_documented(one: Mode, other: Mode, expected: bool) -> None:
    assert conflicting(one, other) is conflicting(other, one) is expected


#: What the first committer and the loser do: touching the same thing, in either order.
CONFLICTS = [
    pytest.param(add(1), add(1), id="two updates"),
    pytest.param(add(1), Delete("item", key(1)), id="update, delete"),
    pytest.param(Delete("item", key(1)), Delete("item", key(1)), id="two deletes"),
    pytest.param(insert("item", 9, 9, 9), insert("item", 9, 8, 8), id="two inserts of a key"),
    pytest.param(insert("item", 8, 9, 9), insert("item", 9, 9, 9), id="two inserts of a unique value"),
    pytest.param(Update("item", key(1), Assign("u", 9)), insert("item", 9, 9, 9), id="unique value updated, inserted"),
    pytest.param(Update("item", key(1), Assign("k", 9)), add(1), id="key change, update"),
    pytest.param(Update("item", key(1), Assign("k", 9)), insert("item", 9, 9, 9), id="key change, insert"),
    pytest.param(Read("item", key(1), "UPDATE"), add(1), id="FOR UPDATE, update"),
    pytest.param(Read("item", key(1), "UPDATE"), Read("item", key(1), "UPDATE"), id="two FOR UPDATE"),
    pytest.param(Read("item", key(1), "KEY SHARE"), Delete("item", key(1)), id="KEY SHARE, delete"),
    pytest.param(Read("item", key(1), "KEY SHARE"), Read("item", key(1), "UPDATE"), id="KEY SHARE, FOR UPDATE"),
    pytest.param(
        Read("item", key(1), "KEY SHARE"), Update("item", key(1), Assign("u", 9)), id="KEY SHARE, unique column"
    ),
    pytest.param(insert("c_null", 9, 1, 0), Delete("parent", key(1)), id="child insert, parent delete"),
    pytest.param(
        insert("c_plain", 9, 1, 0), Update("parent", key(1), Assign("k", 9)), id="child insert, parent key change"
    ),
    pytest.param(Update("c_plain", key(1), Assign("p", 1)), Delete("parent", key(1)), id="child moved, parent delete"),
    pytest.param(
        insert("c_null", 9, 2, 0), Read("parent", key(2), "UPDATE"), id="child insert, parent read FOR UPDATE"
    ),
    pytest.param(
        Update("c_cascade", key(1), Assign("note", 9)), Delete("parent", key(2)), id="child write, ON DELETE CASCADE"
    ),
    pytest.param(Update("g_cascade", key(1), Assign("note", 9)), Delete("c_cascade", key(2)), id="grandchild, CASCADE"),
    pytest.param(
        Update("c_null", key(1), Assign("note", 9)), Delete("parent", key(2)), id="child write, ON DELETE SET NULL"
    ),
    pytest.param(
        Update("c_default", key(1), Assign("note", 9)), Delete("parent", key(2)), id="child write, SET DEFAULT"
    ),
    pytest.param(
        Insert("item", ((1, None, 0),), OnConflict("k", Assign("v", 1, add=True))), add(1), id="upsert, update"
    ),
    pytest.param(
        Insert("item", ((9, None, 0),), OnConflict(None)), insert("item", 9, 9, 9), id="DO NOTHING that inserts, insert"
    ),
]


@pytest.mark.parametrize(("one", "other"), CONFLICTS)
@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
def test_the_first_committer_wins(clients: Clients, one: Statement, other: Statement, swapped: bool) -> None:
    first, second = ("b", "a") if swapped else ("a", "b")
    clients.play(("a", BEGIN, "BEGIN"), ("b", BEGIN, "BEGIN"))
    for name, statement in (("a", one), ("b", other)):
        (outcome,) = clients.database.outcomes(name, statement)
        assert not isinstance(outcome.answer, Failure), outcome.answer
        outcome.apply()
    clients.play((first, COMMIT, "COMMIT"), (second, COMMIT, OC000), (second, BEGIN, "BEGIN"))


PEACEFUL = [
    pytest.param(add(1), add(2), id="other rows"),
    pytest.param(add(1), Read("item", key(1)), id="plain reads"),
    pytest.param(Read("item", key(1), "KEY SHARE"), add(1), id="KEY SHARE, update of other columns"),
    pytest.param(Read("item", key(1), "KEY SHARE"), Read("item", key(1), "KEY SHARE"), id="two KEY SHARE"),
    pytest.param(insert("item", 8, None, 1), insert("item", 9, None, 1), id="two NULLs in a unique column"),
    pytest.param(insert("c_null", 8, 1, 0), insert("c_null", 9, 1, 0), id="two children of a parent"),
    pytest.param(
        insert("c_null", 8, 1, 0), Update("parent", key(1), Assign("note", 9)), id="child, parent's other columns"
    ),
    pytest.param(Update("item", key(9), Assign("v", 1)), Delete("item", key(9)), id="statements that touch nothing"),
    pytest.param(insert("heap", 1, 1), insert("heap", 1, 1), id="equal rows of a table without a key"),
]


@pytest.mark.parametrize(("one", "other"), PEACEFUL)
@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
def test_both_commit(clients: Clients, one: Statement, other: Statement, swapped: bool) -> None:
    first, second = ("b", "a") if swapped else ("a", "b")
    clients.play(("a", BEGIN, "BEGIN"), ("b", BEGIN, "BEGIN"))
    for name, statement in (("a", one), ("b", other)):
        (outcome,) = clients.database.outcomes(name, statement)
        assert not isinstance(outcome.answer, Failure), outcome.answer
        outcome.apply()
    clients.play((first, COMMIT, "COMMIT"), (second, COMMIT, "COMMIT"))


def test_an_autocommit_write_passes_an_open_transaction(clients: Clients) -> None:
    clients.play(("a", BEGIN, "BEGIN"), ("a", add(1), "UPDATE 1"), ("b", add(1, 5), "UPDATE 1"), ("a", COMMIT, OC000))
    assert clients.item(1) == (1, 1, 15)


def test_a_rollback_frees_the_rival(clients: Clients) -> None:
    clients.play(("a", BEGIN, "BEGIN"), ("b", BEGIN, "BEGIN"), ("a", add(1), "UPDATE 1"), ("b", add(1, 5), "UPDATE 1"))
    clients.play(("a", ROLLBACK, "ROLLBACK"), ("b", COMMIT, "COMMIT"))
    assert clients.item(1) == (1, 1, 15)


def test_a_loser_frees_the_rival_too(clients: Clients) -> None:
    clients.play(("a", BEGIN, "BEGIN"), ("b", BEGIN, "BEGIN"), ("c", add(2), "UPDATE 1"))
    clients.play(("a", add(1), "UPDATE 1"), ("a", add(2), "UPDATE 1"), ("b", add(1), "UPDATE 1"))
    clients.play(("a", COMMIT, OC000), ("b", COMMIT, "COMMIT"))


def test_the_snapshot_is_that_of_begin(clients: Clients) -> None:
    clients.play(("a", BEGIN, "BEGIN"), ("b", insert("item", 9, 9, 9), "INSERT 0 1"), ("a", ITEM, "SELECT 4"))
    clients.play(("a", insert("item", 9, 8, 8), "INSERT 0 1"), ("a", ITEM, "SELECT 5"), ("a", COMMIT, OC000))


def test_a_key_that_a_rival_has_freed_is_taken_in_the_snapshot(clients: Clients) -> None:
    clients.play(("a", BEGIN, "BEGIN"), ("b", Delete("item", key(1)), "DELETE 1"))
    clients.play(("a", insert("item", 1, 9, 9), "23505 duplicate key"), ("a", COMMIT, "ROLLBACK"))


def test_a_key_that_was_inserted_and_deleted_meanwhile_conflicts(clients: Clients) -> None:
    clients.play(("a", BEGIN, "BEGIN"), ("b", insert("item", 9, 9, 9), "INSERT 0 1"))
    clients.play(("b", Delete("item", key(9)), "DELETE 1"), ("a", insert("item", 9, 9, 9), "INSERT 0 1"))
    clients.play(("a", COMMIT, OC000))


def test_a_lock_that_has_committed_conflicts_with_an_older_snapshot(clients: Clients) -> None:
    clients.play(("b", BEGIN, "BEGIN"), ("a", Read("item", key(1), "UPDATE"), "SELECT 1"), ("b", add(1), "UPDATE 1"))
    clients.play(("b", COMMIT, OC000))


def test_a_transaction_that_began_later_does_not_conflict(clients: Clients) -> None:
    clients.play(("a", add(1), "UPDATE 1"), ("b", BEGIN, "BEGIN"), ("b", add(1), "UPDATE 1"), ("b", COMMIT, "COMMIT"))


def test_a_reader_never_loses(clients: Clients) -> None:
    clients.play(("a", Begin(read_only=True), "BEGIN"), ("a", ITEM, "SELECT 4"), ("b", add(1), "UPDATE 1"))
    clients.play(("a", ITEM, "SELECT 4"), ("a", COMMIT, "COMMIT"))


@pytest.mark.parametrize(
    ("statement", "words"),
    [(add(1), "UPDATE"), (Delete("item", key(1)), "DELETE"), (Read("item", key(1), "UPDATE"), "SELECT FOR UPDATE")],
)
def test_a_read_only_transaction_refuses_writes(clients: Clients, statement: Statement, words: str) -> None:
    clients.play(("a", Begin(read_only=True), "BEGIN"))
    clients.play(("a", statement, f"25006 cannot execute {words} in a read-only transaction"), ("a", ITEM, "25P02"))


def test_a_failed_transaction_ends_with_rollback(clients: Clients) -> None:
    clients.play(("a", BEGIN, "BEGIN"), ("a", add(1), "UPDATE 1"), ("a", Fault(), "22012 division by zero"))
    clients.play(("a", ITEM, f"25P02 {ABORTED}"), ("a", COMMIT, "ROLLBACK"))
    assert clients.item(1) == (1, 1, 10)


CONSTRAINTS = [
    (insert("item", 1, 9, 9), '23505 duplicate key value violates unique constraint "item_pkey"'),
    (insert("item", 9, 1, 9), '23505 duplicate key value violates unique constraint "item_u_key"'),
    (insert("item", 9, 9, None), '23502 null value in column "v" of relation "item" violates not-null constraint'),
    (add(1, -11), '23514 new row for relation "item" violates check constraint "item_v_check"'),
    (insert("c_plain", 9, 9, 0), '23503 insert or update on table "c_plain" violates foreign key constraint'),
    (Delete("parent", key(3)), '23503 update or delete on table "parent" violates foreign key constraint'),
    (Update("parent", key(3), Assign("code", 9)), '23503 update or delete on table "parent" violates'),
    (
        Insert("item", ((9, None, 1), (9, None, 2)), OnConflict("k", Assign("v", 1))),
        "21000 ON CONFLICT DO UPDATE command cannot affect row a second time",
    ),
]


@pytest.mark.parametrize(("statement", "answer"), CONSTRAINTS)
def test_constraints_are_postgresqls(clients: Clients, statement: Statement, answer: str) -> None:
    clients.play(("a", statement, answer))


def test_actions_reach_children_and_grandchildren(clients: Clients) -> None:
    clients.play(("a", Delete("c_plain", Where()), "DELETE 1"), ("a", Delete("c_code", Where()), "DELETE 1"))
    clients.play(("a", Delete("parent", Where("k", "IN", (2, 3))), "DELETE 2"))
    left = {name: rows_of(clients.database, name) for name in ("c_cascade", "g_cascade", "c_null", "c_default")}
    assert left == {"c_cascade": [], "g_cascade": [], "c_null": [(1, None, 0)], "c_default": [(1, 0, 0)]}


def test_the_default_parent_must_be_there(clients: Clients) -> None:
    clients.play(("a", Delete("parent", key(0)), "DELETE 1"), ("a", Delete("parent", key(2)), "23503 "))


def test_a_catalog_change_is_told_once_at_the_next_statement(clients: Clients) -> None:
    clients.play(("a", DEFINE, "CREATE TABLE"), ("b", ITEM, OC001), ("b", ITEM, "SELECT 4"), ("a", ITEM, "SELECT 4"))


def test_several_catalog_changes_are_told_once(clients: Clients) -> None:
    clients.play(("a", DEFINE, "CREATE TABLE"), ("a", DEFINE, "CREATE TABLE"), ("b", add(1), OC001))
    clients.play(("b", add(1), "UPDATE 1"))


def test_a_catalog_change_before_begin_is_told_at_the_first_statement(clients: Clients) -> None:
    clients.play(("a", DEFINE, "CREATE TABLE"), ("b", Begin(read_only=True), "BEGIN"), ("b", ITEM, OC001))
    clients.play(("b", ITEM, "25P02"), ("b", COMMIT, "ROLLBACK"), ("b", ITEM, "SELECT 4"))


def test_a_catalog_change_in_between_fails_the_transaction_sooner_or_later(clients: Clients) -> None:
    clients.play(("b", BEGIN, "BEGIN"), ("b", add(1), "UPDATE 1"), ("a", DEFINE, "CREATE TABLE"))
    assert clients.allowed("b", ITEM) == ["SELECT 4", OC001]
    clients.say("b", ITEM, "SELECT 4")
    clients.play(("b", COMMIT, OC001), ("b", ITEM, "SELECT 4"))


def test_a_reader_may_commit_past_a_catalog_change_and_is_told_then(clients: Clients) -> None:
    clients.play(("b", BEGIN, "BEGIN"), ("b", ITEM, "SELECT 4"), ("a", DEFINE, "CREATE TABLE"))
    assert clients.allowed("b", COMMIT) == ["COMMIT", OC001]
    clients.say("b", COMMIT, "COMMIT")
    clients.play(("b", ITEM, OC001))


def test_a_catalog_change_that_is_rolled_back_is_none(clients: Clients) -> None:
    clients.play(("a", BEGIN, "BEGIN"), ("a", DEFINE, "CREATE TABLE"), ("a", ROLLBACK, "ROLLBACK"))
    clients.play(("b", ITEM, "SELECT 4"))


def test_a_catalog_change_counts_when_it_commits(clients: Clients) -> None:
    clients.play(("a", BEGIN, "BEGIN"), ("a", DEFINE, "CREATE TABLE"), ("b", ITEM, "SELECT 4"), ("a", COMMIT, "COMMIT"))
    clients.play(("b", ITEM, OC001))


def test_what_the_documentation_leaves_open_is_open(clients: Clients) -> None:
    clients.play(("a", BEGIN, "BEGIN"), ("a", Update("item", key(1), Assign("u", 1)), "UPDATE 1"))
    clients.play(("b", Read("item", key(1), "KEY SHARE"), "SELECT 1"))
    assert clients.allowed("a", COMMIT) == ["COMMIT", OC000]


def test_whether_do_nothing_that_does_nothing_conflicts_is_open(clients: Clients) -> None:
    clients.play(("a", BEGIN, "BEGIN"), ("a", Insert("item", ((1, None, 0),), OnConflict(None)), "INSERT 0 0"))
    clients.play(("b", add(1), "UPDATE 1"))
    assert clients.allowed("a", COMMIT) == ["COMMIT", OC000]
