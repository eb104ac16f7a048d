import math

import pytest

from pytest_dsql.local.clock import EngineClock
from pytest_dsql.local.dialect.judgement import Kind, Refusal
from pytest_dsql.local.faults.fault import Fault
from pytest_dsql.local.faults.injector import CONFLICT, SCHEMA_CHANGE, UNAVAILABLE, ConnectFault, Faults
from pytest_dsql.local.gateway.hooks import (
    Action,
    Disconnect,
    Fail,
    FailAfter,
    Silence,
    Stall,
    Statement,
    TransactionState,
)

READ = Statement("select", "SELECT * FROM t WHERE id = 1", reads=("t",))
WRITE = Statement("dml", "UPDATE shop.stock SET n = 1", writes=("shop.stock",))
BEGIN = Statement("begin", "BEGIN")
COMMIT = Statement("commit", "COMMIT")


class Client:
    """A session's statements, as the gateway would ask about them."""

    def __init__(self, *faults: Fault, seed: int = 1) -> None:
        self.clock = EngineClock()
        self.faults = Faults(self.clock, seed)
        for fault in faults:
            self.faults.add(fault)

    def alone(self, statement: Statement) -> Action | None:
        """An autocommit statement."""
        return self.faults.at_statement(statement, TransactionState(0.0, explicit=False))

    def transaction(self, *statements: Statement) -> list[Action | None]:
        state = TransactionState(0.0, explicit=True)
        answers = []
        for statement in (BEGIN, *statements, COMMIT):
            answers.append(self.faults.at_statement(statement, state))
            state.dml += statement.kind == "dml"
        return answers


@pytest.mark.parametrize(
    ("fault", "action"),
    [
        (Fault.schema_change(), Fail(SCHEMA_CHANGE)),
        (Fault.unavailable(), Fail(UNAVAILABLE)),
        (Fault.unavailable(after=True), FailAfter(UNAVAILABLE)),
        (Fault.error("54000", "too much"), Fail(Refusal("54000", "too much"))),
        (Fault.disconnect(), Disconnect(after=False)),
        (Fault.disconnect(after=True), Disconnect(after=True)),
        (Fault.silence(), Silence(after=False)),
        (Fault.stall(ms=250), Stall(0.25)),
    ],
)
def test_what_happens_to_a_statement(fault: Fault, action: Action) -> None:
    assert Client(fault).alone(READ) == action


def test_a_conflict_comes_at_the_commit_of_a_transaction_that_wrote() -> None:
    assert Client(Fault.conflict()).transaction(WRITE) == [None, None, Fail(CONFLICT)]


def test_a_transaction_that_only_read_meets_no_conflict() -> None:
    assert Client(Fault.conflict()).transaction(READ) == [None, None, None]


def test_an_autocommit_write_is_a_commit_too() -> None:
    client = Client(Fault.conflict())
    assert client.alone(WRITE) == Fail(CONFLICT)
    assert client.alone(READ) is None


PLACES: list[tuple[str, Kind, str, bool]] = [
    ("select", "select", "SELECT 1", True),
    ("select", "dml", "INSERT INTO t VALUES (1)", False),
    ("insert", "dml", "INSERT INTO t VALUES (1)", True),
    ("insert", "dml", "UPDATE t SET a = 1", False),
    ("dml", "dml", "DELETE FROM t", True),
    ("ddl", "ddl", "CREATE TABLE t (a int)", True),
    ("statement", "ddl", "CREATE TABLE t (a int)", True),
    ("statement", "begin", "BEGIN", False),
    ("begin", "begin", "BEGIN", True),
    ("rollback", "rollback", "ROLLBACK", True),
    ("commit", "rollback", "ROLLBACK", False),
]


@pytest.mark.parametrize(("on", "kind", "sql", "met"), PLACES)
def test_where(on: str, kind: Kind, sql: str, met: bool) -> None:
    fault = Fault.from_json({"what": "unavailable", "on": on})
    assert (Client(fault).alone(Statement(kind, sql)) is not None) == met


@pytest.mark.parametrize(("table", "met"), [("stock", True), ("shop.stock", True), ("x.stock", False), ("t", False)])
def test_a_table_is_meant_with_or_without_its_schema(table: str, met: bool) -> None:
    assert (Client(Fault.unavailable(on="dml", table=table)).alone(WRITE) is not None) == met


def test_a_commits_tables_are_its_transactions() -> None:
    client = Client(Fault.conflict(table="stock"))
    other = Statement("dml", "DELETE FROM u", writes=("u",))
    assert client.transaction(other)[-1] is None
    assert client.transaction(other, WRITE)[-1] == Fail(CONFLICT)


def test_a_pattern_is_searched_in_the_text() -> None:
    client = Client(Fault.unavailable(sql=r"id\s*=\s*1"))
    assert client.alone(READ) is not None
    assert client.alone(Statement("select", "SELECT 2")) is None


def met(client: Client, times: int) -> list[bool]:
    return [client.alone(READ) is not None for _ in range(times)]


def test_every_nth() -> None:
    assert met(Client(Fault.unavailable(every=3)), 7) == [False, False, True, False, False, True, False]


def test_the_first_ones() -> None:
    assert met(Client(Fault.unavailable(first=2)), 4) == [True, True, False, False]


def test_every_nth_of_the_first_ones() -> None:
    assert met(Client(Fault.unavailable(every=2, first=3)), 6) == [False, True, False, False, False, False]


def test_a_probability_repeats_with_its_seed() -> None:
    fault = Fault.unavailable(probability=0.3)
    once = met(Client(fault), 500)
    assert once == met(Client(fault), 500)
    assert once != met(Client(fault, seed=2), 500)
    assert 100 < sum(once) < 200


def test_between_two_moments_of_the_engines_clock() -> None:
    client = Client(Fault.unavailable(between=(10, 20)))
    assert met(client, 1) == [False]
    client.clock.move(15)
    assert met(client, 1) == [True]
    client.clock.move(10)
    assert met(client, 1) == [False]


def test_the_first_rule_that_is_due_decides() -> None:
    client = Client(Fault.unavailable(every=2), Fault.schema_change())
    assert [client.alone(READ), client.alone(READ)] == [Fail(SCHEMA_CHANGE), Fail(UNAVAILABLE)]
    assert client.faults.counts() == {"unavailable on statement or commit": 1, "schema-change on statement": 1}


def test_a_stall_of_the_cluster_is_everybodys() -> None:
    client = Client(Fault.stall(ms=60_000, cluster=True, on="insert", first=1))
    assert client.alone(READ) is None
    assert client.alone(Statement("dml", "INSERT INTO t VALUES (1)")) == Stall(60.0)
    others = client.alone(READ)
    assert isinstance(others, Stall)
    assert 0 < others.seconds <= 60.0
    client.faults.clear()
    assert client.alone(READ) is None


@pytest.mark.parametrize(
    ("fault", "met"),
    [
        (Fault.slow_connect(ms=200), ConnectFault(delay_s=0.2)),
        (Fault.disconnect(on="connect"), ConnectFault(cut=True)),
        (Fault.silence(on="connect"), ConnectFault(delay_s=math.inf)),
        (
            Fault.refuse(),
            ConnectFault(Refusal("53400", "Unable to accept connection, rate exceeded.")),
        ),
        (Fault.refuse("57P03", message="not now"), ConnectFault(Refusal("57P03", "not now"))),
        (Fault.disconnect(), None),
    ],
)
def test_what_happens_to_a_connection(fault: Fault, met: ConnectFault | None) -> None:
    assert Client(fault).faults.at_connect() == met


def test_names_are_made_to_differ_and_counts_outlive_their_rule() -> None:
    client = Client()
    names = [client.faults.add(Fault.unavailable(first=1)) for _ in range(2)]
    assert names == ["unavailable on statement or commit", "unavailable on statement or commit (2)"]
    met(client, 3)
    assert client.faults.remove(names[0]) == 1
    assert client.faults.counts() == {names[0]: 1, names[1]: 1}
    assert client.faults.injected == 2
    with pytest.raises(KeyError):
        client.faults.remove(names[0])


def test_a_reset_brings_the_rules_of_the_start_back_as_new() -> None:
    faults = Faults(EngineClock(), 1, [Fault.refuse(first=1)])
    assert faults.at_connect() is not None
    faults.add(Fault.slow_connect(ms=1))
    faults.reset()
    assert faults.counts() == {"refuse on connect": 0}
    assert faults.at_connect() is not None
    assert faults.at_connect() is None
    assert faults.injected == 2
