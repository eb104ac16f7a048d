"""A target: a system under test that exists, and how to reach it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from pytest_dsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    import psycopg

    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.connect.token import TokenSource


@final
@dataclass(frozen=True, slots=True)
class Target:
    """What `dsql_target` gives. `close` gives up whatever the target holds; nothing else may be used after it."""

    name: str  #: `local`, `attach`, or what was created
    endpoint: Endpoint
    tokens: TokenSource
    facts: Mapping[str, Any]  #: what the results file says of it: server version, dialect, ... - nothing secret
    #: The endpoints of a target in several Regions, the first one too.
    regions: Mapping[str, Endpoint] = field(repr=False, default_factory=dict)
    close: Callable[[], None] = field(repr=False, default=lambda: None)
    #: Raises DsqlError when the target may take no new work: its maximum life is over.
    may_go_on: Callable[[], None] = field(repr=False, default=lambda: None)
    engine: Any = field(repr=False, default=None)  #: the embedded engine's handle, None elsewhere
    local: Any = field(
        repr=False, default=None
    )  #: the `LocalControls` of the embedded engine's cluster, None elsewhere

    @property
    def dialect(self) -> str:
        """`dsql` or `postgresql`: which rules the target's SQL follows."""
        return self.endpoint.dialect

    def check(self) -> None:
        """Raise EngineError when the embedded engine has ended although it was held, DsqlError at its life's end."""
        self.may_go_on()
        reason = self.engine.ended() if self.engine is not None else None
        if reason is not None:
            raise EngineError(f"the embedded engine has ended: {reason}")

    def reset(self) -> None:
        """Have the embedded engine behave as the run's options say, whatever was set since; elsewhere nothing."""
        if self.local is not None:
            self.local.reset()

    def injections(self) -> int:
        """How much latency and how many faults the embedded engine has injected so far; elsewhere 0."""
        return int(self.local.injections()) if self.local is not None else 0

    def connect(self, region: str | None = None) -> psycopg.Connection[Any]:
        """Open a connection in autocommit, through the endpoint of a Region where the target has several.

        Raises ConnectionFailed, EngineError when trying again is in vain, and UsageError for a Region it isn't in.
        """
        from pytest_dsql.connect.dialer import dial
        from pytest_dsql.connect.token import TokenSource

        self.check()
        if region is None or region == self.endpoint.region:
            return dial(self.endpoint, self.tokens)[0]
        endpoint = self.regions.get(region)
        if endpoint is None:
            known = ", ".join(self.regions) or self.endpoint.region or "none that it tells"
            remedy = (
                f"; --dsql-set regions={'+'.join([*self.regions, region])} adds it" if self.engine is not None else ""
            )
            raise UsageError(f"the target is not in {region}; its Regions: {known}{remedy}")
        return dial(endpoint, TokenSource(endpoint))[0]
