"""The environment in which code and programs that connect by themselves find a target."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.targets.target import Target

#: What would lead libpq elsewhere, besides the variables of its parameters.
_ELSEWHERE: Final = frozenset({"PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR"})
_PASSWORDS: Final = frozenset({"PGPASSWORD", "PGPASSFILE"})


def environment_of(target: Target) -> dict[str, str]:
    """Return this process's environment, changed so that a client finds the target and nothing else.

    It has libpq's variables with a password - on Aurora DSQL a token: the embedded engine's lives 7 days, others 15
    minutes -, `DSQL_ENDPOINT` and `AWS_REGION` on DSQL, and on the embedded engine throw-away keys for the AWS SDKs.
    Raises CredentialsError where nothing can sign.
    """
    if target.local is not None:
        from pytest_dsql.connect.token import LONGEST_LIFE_S, sign_token
        from pytest_dsql.local.environment import client_variables, command_environment

        token = sign_token(target.endpoint, expires_s=LONGEST_LIFE_S)
        return command_environment(client_variables(target.engine, token, target.local.cluster))
    return _changed(target.endpoint, target.tokens.token())


def _changed(endpoint: Endpoint, password: str) -> dict[str, str]:
    """The environment with the parameters that psycopg is given: as variables every libpq takes what it knows."""
    from psycopg import pq

    told = endpoint.conninfo(password)
    names = {option.envvar.decode(): option.keyword.decode() for option in pq.Conninfo.get_defaults() if option.envvar}
    kept = frozenset() if "password" in told else _PASSWORDS  # libpq is to find the password by itself
    removed = (names.keys() | _ELSEWHERE | _PASSWORDS) - kept
    found = {name: value for name, value in os.environ.items() if name not in removed}
    found |= {name: told[keyword] for name, keyword in names.items() if told.get(keyword)}
    if endpoint.dialect == "dsql":
        found["DSQL_ENDPOINT"] = endpoint.host
    if endpoint.region is not None:
        found |= {"AWS_REGION": endpoint.region, "AWS_DEFAULT_REGION": endpoint.region}
    return found
