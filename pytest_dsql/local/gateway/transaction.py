"""What a session's transaction has done so far, and what its hooks and the catalog say about its next statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, final

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway.hooks import Action, Fail, Hook, Statement, TransactionState

#: AWS user guide, "Concurrency control in Aurora DSQL"; the text as seen on clusters in October 2026.
SCHEMA_CHANGED: Final = Refusal("40001", "schema has been updated by another transaction (OC001)")

#: Statements that meet the catalog. BEGIN doesn't, as seen on clusters in October 2026.
_CATALOG: Final = frozenset({"select", "dml", "ddl"})

_BOUNDARIES: Final = frozenset({"begin", "commit", "rollback"})

#: The last of several counts.
_ACCESS: Final = re.compile(r"\bREAD\s+(ONLY|WRITE)\b", re.IGNORECASE)
_SESSION: Final = re.compile(r"\bSESSION\s+CHARACTERISTICS\b", re.IGNORECASE)

#: Command tags that end with the number of rows written (PostgreSQL documentation, "Message Formats").
_ROWS: Final = re.compile(rb"(?:INSERT \d+|UPDATE|DELETE|MERGE|COPY) (\d+)$")


def rows_written(tag: bytes) -> int:
    """How many rows a statement that writes has modified, by its command tag."""
    found = _ROWS.match(tag)
    return int(found[1]) if found else 0


@final
class Transactions:
    """The transactions of one session, one after the other."""

    __slots__ = ("_cluster", "_hooks", "_listening", "_read_only", "_seen", "_wary", "current", "wants_completions")

    def __init__(self, cluster: Cluster, hooks: Sequence[Hook]) -> None:
        self.current: TransactionState | None = None
        self.wants_completions = any(hook.wants_completions for hook in hooks)
        self._cluster = cluster
        self._hooks = tuple(hooks)
        self._wary = tuple(hook for hook in hooks if hook.wary)
        self._listening = tuple(hook for hook in hooks if hook.wants_completions)
        self._seen = cluster.catalog_version
        self._read_only = False

    def begin(self, *, explicit: bool) -> TransactionState:
        """Begin a transaction: of BEGIN, or around what a client sends without one."""
        current = TransactionState(self._cluster.clock.now(), explicit, read_only=self._read_only)
        self.current = current
        return current

    def minds(self) -> bool:
        """Whether there may be something to say about a SELECT or DML that comes next."""
        if self._seen != self._cluster.catalog_version:
            return True
        current = self.current
        for hook in self._hooks if current is not None else self._wary:  # noqa: SIM110 - a generator costs more
            if hook.minds(current):
                return True
        return False

    def count(self, statement: Statement) -> None:
        """Count a SELECT or DML that is sent without asking, as nobody minds it."""
        self._count(statement.kind, self.current or self.begin(explicit=False))

    def before(self, statement: Statement) -> Action | None:
        """Say what shall become of a statement that is about to be sent, and count it when it is."""
        current = self.current
        kind = statement.kind
        if current is None:
            current = self.begin(explicit=kind == "begin")
        if kind == "begin" and (found := _ACCESS.findall(statement.sql)):
            current.read_only = found[-1].upper() == "ONLY"
        if self._seen != self._cluster.catalog_version and self._meets_catalog(kind, current):
            self._seen = self._cluster.catalog_version
            return Fail(SCHEMA_CHANGED)
        for hook in self._hooks:
            action = hook.before(statement, current)
            if action is not None:
                if not isinstance(action, Fail):
                    self._count(kind, current)
                return action
        self._count(kind, current)
        return None

    @staticmethod
    def _meets_catalog(kind: str, current: TransactionState) -> bool:
        # The COMMIT of a transaction that wrote nothing has nothing to check.
        return kind in _CATALOG or (kind == "commit" and current.explicit and current.dml + current.ddl > 0)

    @staticmethod
    def _count(kind: str, current: TransactionState) -> None:
        if kind not in _BOUNDARIES:
            current.statements += 1
            if kind == "dml":
                current.dml += 1
            elif kind == "ddl":
                current.ddl += 1

    def completed(self, statement: Statement, tag: bytes) -> Refusal | None:
        """Hear that a statement has succeeded; give the refusal that takes the place of its answer."""
        current = self.current
        kind = statement.kind
        if current is None or kind in _BOUNDARIES:
            return None
        if kind == "set" and _SESSION.search(statement.sql) and (found := _ACCESS.findall(statement.sql)):
            self._read_only = found[-1].upper() == "ONLY"
        if kind == "select" or kind == "dml":
            current.answers.append((statement, tag))
        rows = rows_written(tag) if kind == "dml" else 0
        current.rows += rows
        for hook in self._listening:
            refusal = hook.completed(statement, current, rows)
            if refusal is not None:
                return refusal
        return None

    def end(self, *, committed: bool) -> None:
        """Hear that the transaction has ended."""
        current = self.current
        if current is None:
            return
        self.current = None
        if committed and current.ddl:
            up_to_date = self._seen == self._cluster.catalog_version
            self._cluster.catalog_changed()
            if up_to_date:
                # Its own change is no surprise to a session.
                self._seen = self._cluster.catalog_version
        if current.answers:
            self._cluster.dpu.count(current.answers, committed=committed)
        for hook in self._hooks:
            hook.ended(current, committed=committed)
