"""Which principals may be which of a cluster's roles: asked at login, and again at the start of each transaction.

`AWS IAM GRANT role TO 'arn'` lets a principal be a role other than `admin` (AWS user guide, "Using database roles and
IAM authentication"). The mappings are in PostgreSQL (dialect/roles.sql); known of them here are those of the roles that
have logged in, kept up to date by the committed statements of all sessions.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.cluster import ADMIN, Principal
from pytest_dsql.local.dialect.extensions import IamStatement
from pytest_dsql.local.dialect.judgement import Kind, Refusal
from pytest_dsql.local.dialect.rewriting import iam_statement, literal
from pytest_dsql.local.gateway.hooks import Action, Fail, Statement, TransactionState
from pytest_dsql.local.gateway.superuser import SuperuserConnection

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.hooks import Hook

#: DSQL's refusals of a connection begin alike and tell the reason in the hint (AWS user guide, "Troubleshooting").
DENIED: Final = ("08006", "unable to accept connection, access denied")

_NOTE: Final = "iam"
_ENDS: Final[frozenset[Kind]] = frozenset({"commit", "rollback"})

#: `assumed-role/<name>/<session>`: a session of the role `role/<path>/<name>`, whose path it doesn't tell.
_SESSION: Final = re.compile(r"(arn:[a-z-]+):sts::(\d*):assumed-role/([^/]+)/.+")
_ROLE: Final = re.compile(r"(arn:[a-z-]+):iam::(\d*):role/(?:.+/)?([^/]+)")


def covers(granted: str, principal: str) -> bool:
    """Tell whether a grant to one ARN is one to a principal: the same, or a session of that role."""
    if granted == principal:
        return True
    session, role = _SESSION.fullmatch(principal), _ROLE.fullmatch(granted)
    return session is not None and role is not None and session.groups() == role.groups()


def no_access(principal: Principal) -> Refusal:
    """The refusal of a principal that a role was not granted to, or taken from; or of a role that there isn't."""
    return Refusal(*DENIED, hint=f"User: {principal.arn} is not authorized to access this resource")


def no_action(principal: Principal, user: str, resource: str) -> Refusal | None:
    """The refusal of a principal whose policy doesn't let it log in as `user`; None when it does.

    AWS's own wording of such denials; that DSQL passes it on whole is an inference.
    """
    action = "DbConnectAdmin" if user == ADMIN else "DbConnect"
    if action in principal.actions:
        return None
    hint = (
        f"User: {principal.arn} is not authorized to perform: dsql:{action} on resource: {resource} "
        f"because no identity-based policy allows the dsql:{action} action"
    )
    return Refusal(*DENIED, hint=hint)


@final
class Trust:
    """What is known of a cluster's mappings. For the gateway's event loop only."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._connection: SuperuserConnection | None = None
        self._one_at_a_time = asyncio.Lock()
        self._arns: dict[str, set[str]] = {}  #: by the roles that have logged in
        self._revision = 0  #: counts the changes

    async def admits(self, role: str, principal: Principal) -> bool:
        """Look up whether a principal may log in as a role. Raises OSError or BackendRefused without PostgreSQL."""
        async with self._one_at_a_time:
            while True:
                revision = self._revision
                arns = await self._look_up(role)
                if revision == self._revision:
                    break
        self._arns[role] = arns
        return self.trusts(role, principal)

    async def _look_up(self, role: str) -> set[str]:
        sql = f"SELECT arn FROM sys.iam_pg_role_mappings WHERE pg_role_name = {literal(role)}"
        if self._connection is not None and not self._connection.lost:
            try:
                return {arn for (arn,) in await self._connection.query(sql)}
            except ConnectionResetError:
                pass
        self._connection = await SuperuserConnection.open(self._socket_path, application_name="roles")
        return {arn for (arn,) in await self._connection.query(sql)}

    def trusts(self, role: str, principal: Principal) -> bool:
        """Tell whether a principal that has logged in as a role may still be it."""
        return any(covers(arn, principal.arn) for arn in self._arns.get(role, ()))

    def changed(self, statement: IamStatement) -> None:
        """Note a committed AWS IAM statement."""
        self._revision += 1
        arns = self._arns.get(statement.role)
        if arns is not None and statement.grants:
            arns.add(statement.arn)
        elif arns is not None:
            arns.discard(statement.arn)

    def hook(self, user: str, principal: Principal) -> Hook:
        """The hook of a new session of a principal that has logged in as `user`."""
        return _Observer(self, user, principal if user != ADMIN else None)


@final
class _Observer:
    """A session's hook: hears of AWS IAM statements, and asks whether a role other than `admin` is still granted."""

    __slots__ = ("_principal", "_trust", "_user")

    wants_completions: Final = False
    delays: Final = False

    def __init__(self, trust: Trust, user: str, principal: Principal | None) -> None:
        self._trust = trust
        self._user = user
        self._principal = principal

    @property
    def wary(self) -> bool:
        """Whether the role could be revoked."""
        return self._principal is not None

    def minds(self, transaction: TransactionState | None) -> bool:  # noqa: ARG002
        """Whether the role could be revoked."""
        return self._principal is not None

    def before(self, statement: Statement, transaction: TransactionState) -> Action | None:
        """Refuse a transaction of a role that was revoked; remember an AWS IAM statement."""
        principal = self._principal
        if (
            principal is not None
            and not transaction.statements
            and statement.kind not in _ENDS
            and not self._trust.trusts(self._user, principal)
        ):
            # As in the documentation of DSQL's preview, trust is checked anew when a transaction begins. In which
            # words, and whether the session lives on, is not on record.
            return Fail(no_access(principal))
        if statement.kind == "ddl" and (found := iam_statement(statement.sql)) is not None:
            noted = transaction.notes.setdefault(_NOTE, [])
            assert isinstance(noted, list)
            noted.append(found)
        return None

    def completed(self, statement: Statement, transaction: TransactionState, rows: int) -> Refusal | None:  # noqa: ARG002
        """Nothing to refuse afterwards."""
        return None

    def delay_s(self, statement: Statement, transaction: TransactionState) -> float:  # noqa: ARG002
        """No delay."""
        return 0.0

    def ended(self, transaction: TransactionState, *, committed: bool) -> None:
        """What was committed holds for all sessions."""
        noted = transaction.notes.get(_NOTE)
        if committed and isinstance(noted, list):
            for statement in noted:
                self._trust.changed(statement)
