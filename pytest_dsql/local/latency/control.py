"""The latency of one cluster: which profile holds, and the hook that tells how long answers are held back."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.forms import form_of
from pytest_dsql.local.latency.profile import OFF, Clients, Connecting, Profile
from pytest_dsql.local.streams import stream

if TYPE_CHECKING:
    from pytest_dsql.local.dialect.judgement import Refusal
    from pytest_dsql.local.gateway.hooks import Action, Statement, TransactionState


@final
class Latency:
    """Which profile a cluster has. `base` is the one from the start, and the one that `reset` comes back to."""

    def __init__(self, seed: int = 1, base: Profile = OFF) -> None:
        self._seed = seed
        self._base = base
        self._made = 0  #: random streams since the last reset
        self.injected = 0  #: answers and phases that were held back since the engine started; never falls
        self.profile = base

    @property
    def active(self) -> bool:
        """Whether anything is held back."""
        return self.profile is not OFF

    def use(self, profile: Profile) -> None:
        """Let a profile hold, for sessions that are open too."""
        self.profile = profile

    def reset(self) -> None:
        """Go back to the start: its profile, all random streams anew."""
        self.profile = self._base
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
class LatencyHook:
    """Tells how long the answers of one session are held back.

    The server's time counts from a statement's arrival, or from when the server was done with the one before; what
    PostgreSQL took itself is part of it. So a profile says what a client sees, not what is added, as long as this
    machine is faster.
    """

    __slots__ = ("_arrived", "_free_at", "_latency", "_region", "_rng")

    wants_completions: Final = False

    def __init__(self, latency: Latency, region: int) -> None:
        self._latency = latency
        self._region = region
        self._rng: random.Random | None = None  # 2.5 KB: made when there is something to draw
        self._arrived = 0.0
        self._free_at = 0.0

    @property
    def delays(self) -> bool:
        """Whether there is a profile."""
        return self._latency.active

    def rtt_s(self) -> float:
        """Draw how long an answer travels."""
        if not self._latency.active:
            return 0.0
        return self._latency.clients(self._region).rtt.sample_ms(self._stream()) / 1000

    def _stream(self) -> random.Random:
        if self._rng is None:
            self._rng = self._latency.stream()
        return self._rng

    def before(self, statement: Statement, transaction: TransactionState) -> Action | None:  # noqa: ARG002
        """Note when the statement came."""
        self._arrived = time.monotonic()
        return None

    def completed(self, statement: Statement, transaction: TransactionState, rows: int) -> Refusal | None:  # noqa: ARG002
        """Nothing to object to."""
        return None

    def delay_s(self, statement: Statement, transaction: TransactionState) -> float:
        """How long the answer to a statement that PostgreSQL has just completed is held back still."""
        latency = self._latency
        clients = latency.clients(self._region)
        rng = self._stream()
        form = form_of(statement.sql, statement.kind)
        if form == "commit" and transaction.dml:
            taken_ms = clients.commit.writing.sample_ms(rng)
        elif form in ("commit", "rollback"):
            taken_ms = clients.commit.reading.sample_ms(rng)
        else:
            taken_ms = getattr(clients.statement, form).sample_ms(rng)
            if statement.kind == "dml" and not transaction.explicit:
                taken_ms += clients.commit.writing.sample_ms(rng)
        now = time.monotonic()
        end = max(self._arrived, self._free_at) + taken_ms / 1000
        self._free_at = max(end, now)
        if end <= now:
            return 0.0
        latency.injected += 1
        return end - now

    def ended(self, transaction: TransactionState, *, committed: bool) -> None:
        """Nothing to remember."""
