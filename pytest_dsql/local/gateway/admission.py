"""Whether a statement that a client sends may go to PostgreSQL on the fast way, and what goes in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dsql.local.adjudicator.commands import BEGINNING, BEGINNING_QUERY
from pytest_dsql.local.gateway import disguise, frames
from pytest_dsql.local.gateway.group import FAILED, IDLE, Group
from pytest_dsql.local.gateway.hooks import Disconnect, Fail
from pytest_dsql.local.gateway.run import Run, failing_parse
from pytest_dsql.local.gateway.statements import Plan

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

#: In place of a message: the statement leaves the fast way.
DRIVEN: Final = b"driven"


def admit(session: Session, plan: Plan, run: Run, group: Group) -> bytes | None:
    """Ask whether a statement may go; give what goes in its place, None where it goes as it is."""
    if plan.refused or session.status == FAILED:
        session.hold(None)
        return None
    transactions = session.transactions
    statement = plan.statement
    kind = statement.kind
    sure = transactions.wants_completions and session.status == IDLE and kind in ("dml", "ddl")
    if plan.copies_in or plan.explained is not None or plan.traced or sure:
        return DRIVEN
    action = transactions.before(statement)
    run.asked = True
    session.hold(statement)
    if action is None:
        if not session.contender.plain(plan):
            return DRIVEN
        if kind == "begin" and session.status == IDLE:
            session.contender.begin()
            group.only_first = True
            return frames.query(plan.sent + BEGINNING_QUERY) if run.by_query else run.execute + BEGINNING
        return None
    if isinstance(action, Fail):
        if kind == "commit":
            run.action = action
            return DRIVEN
        failing = disguise.failing_statement(action.refusal).encode()
        return frames.query(failing) if run.by_query else failing_parse(failing)
    if action == Disconnect():
        session.abort()
        return b""
    run.action = action
    return DRIVEN
