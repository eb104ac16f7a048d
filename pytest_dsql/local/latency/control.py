"""The latency of one cluster: which profile holds, and for each session when its answers are due."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, final

from pytest_dsql.local.forms import form_of
from pytest_dsql.local.latency.profile import OFF, Clients, Connecting, Profile
from pytest_dsql.local.streams import stream

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.hooks import Statement, TransactionState


@final
class Latency:
    """Which profile a cluster has. `base` is the one from the start, and the one that `reset` comes back to."""

    __slots__ = ("_base", "_made", "_seed", "active", "injected", "profile")

    def __init__(self, seed: int = 1, base: Profile = OFF) -> None:
        self._seed = seed
        self._base = base
        self.injected = 0  #: answers and logins that were held back since the engine started; never falls
        self.reset()

    def use(self, profile: Profile) -> None:
        """Let a profile hold, for sessions that are open too."""
        self.profile = profile
        self.active = profile is not OFF  #: whether anything is held back

    def reset(self) -> None:
        """Go back to the start: its profile, and the streams of new connections anew."""
        self.use(self._base)
        self._made = 0

    def clients(self, region: int) -> Clients:
        """What holds now for clients of the n-th Region."""
        return self.profile.region(region)

    def stream(self) -> random.Random:
        """The random stream of the next connection."""
        self._made += 1
        return stream(self._seed, f"latency {self._made}")


@final
class ConnectDelays:
    """How long the phases of one new connection take."""

    __slots__ = ("authentication_s", "startup_s", "tls_s")

    def __init__(self, latency: Latency, region: int) -> None:
        rng = latency.stream()
        phases: Connecting = latency.clients(region).connect
        # The kernel answers a client's SYN before anybody here hears of it: TCP's time is spent before the handshake.
        self.tls_s = (phases.tcp.sample_ms(rng) + phases.tls.sample_ms(rng)) / 1000
        self.authentication_s = phases.authentication.sample_ms(rng) / 1000
        self.startup_s = phases.startup.sample_ms(rng) / 1000
        latency.injected += 1


@final
class Pace:
    """Tells when the answers of one session are due.

    The server's time counts from a statement's arrival, or from when the server was done with the one before; what
    PostgreSQL takes itself is part of it. So a profile says what a client sees, not what is added, as long as this
    machine is faster. The way to the client comes behind it, so that statements sent without waiting pay it once.
    """

    __slots__ = ("_free_at", "_latency", "_region", "_rng")

    def __init__(self, latency: Latency, region: int) -> None:
        self._latency = latency
        self._region = region
        self._rng: random.Random | None = None  # 2.5 KB: made when there is something to draw
        self._free_at = 0.0

    @property
    def active(self) -> bool:
        """Whether there is a profile."""
        return self._latency.active

    def due(self, statement: Statement, transaction: TransactionState | None) -> float:
        """When the answer to a statement that has come now is due, on time.monotonic."""
        latency = self._latency
        clients = latency.clients(self._region)
        rng = self._stream()
        form = form_of(statement.sql, statement.kind)
        if form == "commit" and transaction is not None and transaction.dml:
            taken_ms = clients.commit.writing.sample_ms(rng)
        elif form in ("commit", "rollback"):
            taken_ms = clients.commit.reading.sample_ms(rng)
        else:
            taken_ms = getattr(clients.statement, form).sample_ms(rng)
            if statement.kind == "dml" and transaction is not None and not transaction.explicit:
                taken_ms += clients.commit.writing.sample_ms(rng)
        return self._due(taken_ms, clients, rng)

    def due_without_statement(self) -> float:
        """When the answer to something else is due: a Parse, a Sync alone, a statement that is refused at once."""
        return self._due(0.0, self._latency.clients(self._region), self._stream())

    def _due(self, taken_ms: float, clients: Clients, rng: random.Random) -> float:
        self._latency.injected += 1
        self._free_at = max(self._free_at, time.monotonic()) + taken_ms / 1000
        return self._free_at + clients.rtt.sample_ms(rng) / 1000

    def _stream(self) -> random.Random:
        if self._rng is None:
            self._rng = self._latency.stream()
        return self._rng
