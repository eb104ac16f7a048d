"""DSQL's rules on what may stand beside what in a transaction, and on how old it may become.

How much it may write is counted inside PostgreSQL (`row_limits`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.dialect.judgement import Kind, Refusal
from pytest_dsql.local.gateway.ages import too_old
from pytest_dsql.local.gateway.hooks import Action, Fail, Statement, TransactionState

if TYPE_CHECKING:
    from pytest_dsql.local.cluster import Cluster

# AWS user guide, "DDL and distributed transactions in Aurora DSQL"; both texts as seen on clusters in September 2026.
# These rules are as old as DSQL, so no day of the rules is without them.
_SECOND_DDL: Final = Fail(Refusal("0A000", "multiple ddl statements not supported in a transaction"))
_DDL_AND_DML: Final = Fail(Refusal("0A000", "ddl and dml are not supported in the same transaction"))

# AWS user guide, "Systems tables and commands". The text is PostgreSQL's for VACUUM.
_ANALYZE_IN_BLOCK: Final = Fail(Refusal("25001", "ANALYZE cannot run inside a transaction block"))
_ANALYZE: Final = re.compile(r"(?>(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*)ANALY[SZ]E\b", re.IGNORECASE | re.DOTALL)

#: Statements that PostgreSQL hears of at any age: what they end, or begin, is over or new.
_AGELESS: Final[frozenset[Kind]] = frozenset({"begin", "rollback"})


@final
class TransactionRules:
    """One session's hook."""

    __slots__ = ("_cluster",)

    wary: Final = False
    wants_completions: Final = False

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def minds(self, transaction: TransactionState | None) -> bool:
        """Whether the transaction has DDL, or is too old."""
        if transaction is None:
            return False
        cluster = self._cluster
        return transaction.ddl > 0 or cluster.clock.now() - transaction.began_at > cluster.limits.transaction_age_s

    def before(self, statement: Statement, transaction: TransactionState) -> Action | None:
        """Refuse a second DDL statement, DDL beside DML, and whatever comes too late.

        A statement that is running when the transaction becomes too old runs to its end: the next one is refused. So
        ANALYZE, which is refused in a transaction block, is never too old.
        """
        kind = statement.kind
        if kind not in _AGELESS:
            limit_s = self._cluster.limits.transaction_age_s
            age_s = self._cluster.clock.now() - transaction.began_at
            if age_s > limit_s:
                return Fail(too_old(age_s, limit_s))
        if kind == "ddl":
            if transaction.dml:
                return _DDL_AND_DML
            if transaction.ddl:
                return _SECOND_DDL
        elif kind == "dml":
            if transaction.ddl:
                return _DDL_AND_DML
        elif kind == "other" and transaction.explicit and _ANALYZE.match(statement.sql):
            return _ANALYZE_IN_BLOCK
        return None

    def completed(self, statement: Statement, transaction: TransactionState, rows: int) -> Refusal | None:  # noqa: ARG002
        """Nothing: the rows are counted where they are written."""
        return None

    def ended(self, transaction: TransactionState, *, committed: bool) -> None:
        """Nothing is kept from one transaction to the next."""


def transaction_rules(cluster: Cluster, user: str) -> TransactionRules:  # noqa: ARG001
    """Make the hook of a new session."""
    return TransactionRules(cluster)
