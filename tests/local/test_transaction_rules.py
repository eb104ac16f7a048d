"""What a transaction may hold side by side, and how old it may become."""

from __future__ import annotations

from datetime import date

import pytest

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.dialect.judgement import Kind, Refusal
from pytest_dsql.local.gateway.hooks import Fail, Statement, TransactionState
from pytest_dsql.local.limits import Limits
from pytest_dsql.local.transaction_rules import transaction_rules

MULTIPLE = Refusal("0A000", "multiple ddl statements not supported in a transaction")
MIXED = Refusal("0A000", "ddl and dml are not supported in the same transaction")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster("a" * 26, "us-east-1", "nowhere", (), date(2026, 11, 1))


def refusal(
    cluster: Cluster, kind: Kind, *, ddl: int = 0, dml: int = 0, age_s: float = 0, explicit: bool = True
) -> Refusal | None:
    transaction = TransactionState(cluster.clock.now(), explicit, ddl=ddl, dml=dml)
    cluster.clock.move(age_s)
    action = transaction_rules(cluster, "admin").before(Statement(kind, "as it was written"), transaction)
    assert action is None or isinstance(action, Fail)
    return None if action is None else action.refusal


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize(
    ("ddl", "dml", "kind", "expected"),
    [
        (0, 0, "ddl", None),
        (0, 9, "dml", None),
        (1, 0, "select", None),
        (0, 1, "select", None),
        (1, 0, "set", None),
        (1, 0, "commit", None),
        (1, 0, "ddl", MULTIPLE),
        (0, 1, "ddl", MIXED),
        (1, 0, "dml", MIXED),
    ],
)
def test_one_ddl_statement_and_none_beside_dml(
    cluster: Cluster, ddl: int, dml: int, kind: Kind, expected: Refusal | None, explicit: bool
) -> None:
    assert refusal(cluster, kind, ddl=ddl, dml=dml, explicit=explicit) == expected


@pytest.mark.parametrize("kind", ["select", "dml", "ddl", "set", "other", "commit"])
def test_an_old_transaction_is_refused_whatever_comes_next(cluster: Cluster, kind: Kind) -> None:
    assert refusal(cluster, kind, age_s=312.5) == Refusal(
        "54000", "transaction age limit of 300s exceeded", "Current transaction age 312s exceeds 300s"
    )


def test_an_old_transaction_can_be_rolled_back(cluster: Cluster) -> None:
    assert refusal(cluster, "rollback", age_s=999) is None


def test_a_transaction_may_be_as_old_as_the_limit(cluster: Cluster) -> None:
    assert refusal(cluster, "select", age_s=299) is None


def test_the_age_can_be_set(cluster: Cluster) -> None:
    cluster.limits = Limits(transaction_age_s=2.5)
    assert refusal(cluster, "commit", age_s=3) == Refusal(
        "54000", "transaction age limit of 2.5s exceeded", "Current transaction age 3s exceeds 2.5s"
    )


@pytest.mark.parametrize(
    ("sql", "explicit", "refused"),
    [
        ("ANALYZE t", True, True),
        ("/* now */ -- then\n analyze", True, True),
        ("ANALYZE t", False, False),
        ("SHOW analyze", True, False),
    ],
)
def test_no_analyze_in_a_block(cluster: Cluster, sql: str, explicit: bool, refused: bool) -> None:
    transaction = TransactionState(cluster.clock.now(), explicit)
    action = transaction_rules(cluster, "admin").before(Statement("other", sql), transaction)
    expected = Refusal("25001", "ANALYZE cannot run inside a transaction block")
    assert action == (Fail(expected) if refused else None)
