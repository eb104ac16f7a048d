"""Connecting to a cluster that is still on its way: it wakes up, or its host name isn't known everywhere yet."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from pytest_dsql.errors import ConnectionFailed

if TYPE_CHECKING:
    import psycopg

    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.connect.token import TokenSource

#: How long an INACTIVE cluster may take to wake up: the service says that it depends on the cluster's size (AWS user
#: guide, "Aurora DSQL cluster lifecycle"), and no figure is published.
WAKING_S: Final = 180.0
_WAKING: Final = "waking up cluster"


def dial_patiently(
    endpoint: Endpoint, tokens: TokenSource, *, new: bool = False, limit_s: float = WAKING_S
) -> psycopg.Connection[Any]:
    """Connect, asking again for as long as the cluster says that it is waking up.

    `new`: it was just created, so that a host name nobody knows or a port that nobody listens on pass as well. Raises
    ConnectionFailed, CredentialsError.
    """
    from pytest_dsql.connect.dialer import dial

    end = time.monotonic() + limit_s
    while True:
        try:
            return dial(endpoint, tokens)[0]  # waits out a waking cluster itself, for ten seconds
        except ConnectionFailed as failure:
            passing = _WAKING in str(failure) or (new and failure.phase in ("resolve", "tcp", "tls"))
            if not passing or time.monotonic() >= end:
                raise
        time.sleep(1.0)
