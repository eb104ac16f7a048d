"""What a cluster refuses about the function's database role is one line, without the account's id."""

from __future__ import annotations

import traceback
from typing import Any

import psycopg
import pytest

from pytest_dsql.aws.inventory import Inventory
from pytest_dsql.errors import DsqlError
from pytest_dsql.runner import database_role
from pytest_dsql.runner.database_role import DatabaseRole, grant

ACCOUNT = "1234" * 3
ROLE = f"arn:aws:iam::{ACCOUNT}:role/pytest-dsql/x"


class Refusing:
    """A connection whose cluster refuses statements that begin so: the engine takes every ARN that has the form.

    psycopg's own messages show the line of the statement.
    """

    def __init__(self, beginning: str, error: type[psycopg.Error], *, known: bool) -> None:
        self.beginning = beginning
        self.error = error
        self.known = known
        self.refused = 0

    def execute(self, statement: bytes, _parameters: Any = None) -> Refusing:
        text = statement.decode()
        self.asked = text
        if text.startswith(self.beginning):
            self.refused += 1
            raise self.error(f'IAM role "{ROLE}" is refused\nLINE 1: {text}\n        ^')
        return self

    def fetchone(self) -> tuple[int] | None:
        return (1,) if self.known and "pg_roles" in self.asked else None

    def fetchall(self) -> list[tuple[str]]:
        return [(ROLE,)]


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("beginning", ["AWS IAM GRANT", "CREATE ROLE", "GRANT", "SELECT 1 FROM sys."])
def test_a_refused_grant(beginning: str) -> None:
    admin: Any = Refusing(beginning, psycopg.errors.InsufficientPrivilege, known=False)
    with pytest.raises(DsqlError, match=r"database role failed: .* is refused \(SQLSTATE 42501\)$") as caught:
        grant(admin, "the_function", ROLE)
    assert beginning in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ACCOUNT not in shown(caught.value)
    assert admin.refused == 1


@pytest.mark.parametrize("beginning", ["AWS IAM REVOKE", "DROP ROLE"])
def test_a_refused_removal(beginning: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from contextlib import nullcontext

    admin = Refusing(beginning, psycopg.errors.InsufficientPrivilege, known=True)
    monkeypatch.setattr(database_role, "_admin", lambda *_arguments: nullcontext(admin))
    monkeypatch.setattr(database_role, "_cluster_is_gone", lambda *_arguments: False)
    entry = Inventory.create("run", directory=tmp_path).intend(
        DatabaseRole.kind, "us-east-1", "the_function", owner="runner-lambda"
    )
    clients: Any = None
    with pytest.raises(DsqlError) as caught:
        DatabaseRole().delete(clients, entry)
    assert beginning in str(caught.value)
    assert ACCOUNT not in shown(caught.value)


def test_a_catalog_that_keeps_changing_is_one_line_too() -> None:
    admin: Any = Refusing("AWS IAM GRANT", psycopg.errors.SerializationFailure, known=False)
    with pytest.raises(DsqlError, match="SQLSTATE 40001"):
        grant(admin, "the_function", ROLE)
    assert admin.refused == database_role._TRIES
