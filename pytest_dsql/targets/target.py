"""A target: a system under test that exists, and how to reach it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from pytest_dsql.errors import EngineError

if TYPE_CHECKING:
    import psycopg

    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.connect.token import TokenSource


@final
@dataclass(frozen=True, slots=True)
class Target:
    """What `dsql_target` gives. `close` gives up whatever the target holds; nothing else may be used after it."""

    name: str  #: `local` or `attach`
    endpoint: Endpoint
    tokens: TokenSource
    facts: Mapping[str, Any]  #: what the results file says of it: server version, dialect, ... - nothing secret
    close: Callable[[], None] = field(repr=False, default=lambda: None)
    engine: Any = field(repr=False, default=None)  #: the embedded engine's handle, None elsewhere
    local: Any = field(
        repr=False, default=None
    )  #: the `LocalControls` of the embedded engine's cluster, None elsewhere

    @property
    def dialect(self) -> str:
        """`dsql` or `postgresql`: which rules the target's SQL follows."""
        return self.endpoint.dialect

    def check(self) -> None:
        """Raise EngineError, with the reason, when the embedded engine has ended although it was held."""
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

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection in autocommit. Raises ConnectionFailed, and EngineError when trying again is in vain."""
        from pytest_dsql.connect.dialer import dial

        self.check()
        return dial(self.endpoint, self.tokens)[0]
