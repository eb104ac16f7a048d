"""Random interleavings of a few sessions, as a Hypothesis state machine: every answer is compared with the model's."""

from __future__ import annotations

from typing import ClassVar, Final
from zlib import crc32

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.local.adjudicator.judge import Judge
from tests.local.adjudicator.model.sessions import Database
from tests.local.adjudicator.model.statements import Rollback
from tests.local.adjudicator.pools import POOLS
from tests.local.adjudicator.targets import PROTOCOLS, Target

NAMES: Final = ("a", "b", "c", "d", "e")
_DRAWN: Final = st.integers(0, 999)
#: One step in so many breaks its session's connection.
_BREAKS: Final = 150


class Interleavings(RuleBasedStateMachine):
    """Two to five sessions (or as many as `fewest` and `most` say). Subclasses say what they talk to."""

    target: ClassVar[Target]
    fewest: ClassVar[int] = 2
    most: ClassVar[int] = len(NAMES)
    seconds: ClassVar[list[float]]

    @initialize(sessions=st.integers(0, 59), subject=st.integers(0, len(POOLS) - 1), seed=st.integers(0, 9_999))
    def begin_example(self, sessions: int, subject: int, seed: int) -> None:
        self.names = NAMES[: self.fewest + sessions % (self.most - self.fewest + 1)]
        self.pool = POOLS[subject]
        self.seed = seed
        self.target.reset(self.names)
        self.judge = Judge(self.target, Database.initial())
        for name in self.names:
            self.judge.database.connect(name)

    @rule(session=_DRAWN, number=_DRAWN, variant=_DRAWN)
    def step(self, session: int, number: int, variant: int) -> None:
        name = self.names[self._scattered("session", session) % len(self.names)]
        variant = self._scattered("variant", variant)
        status = self.judge.database.clients[name].status
        if variant % _BREAKS == 0:
            self.judge.disconnect(name)
        elif status == "E" and variant % 4:
            # A failed transaction has little to tell; it ends soon, so that examples don't consist of them.
            self.judge.run(name, Rollback())
        else:
            pool = self.pool.outside if status == "I" else self.pool.inside
            statement = pool[self._scattered("statement", number) % len(pool)]
            self.judge.run(name, statement, PROTOCOLS[variant % len(PROTOCOLS)])

    def _scattered(self, what: str, drawn: int) -> int:
        """Hypothesis likes small numbers; here every number stands for something else in every example."""
        return crc32(f"{self.seed} {what} {drawn}".encode())

    def teardown(self) -> None:
        if hasattr(self, "judge"):
            self.seconds.extend(self.judge.seconds)
            if not self.judge.broken:
                self.judge.check_contents()


def run_interleavings(
    target: Target,
    examples: int,
    *,
    steps: int = 40,
    fewest: int = 2,
    most: int = len(NAMES),
    shrink: bool = True,
    seed: int | None = None,
) -> list[float]:
    """Run examples, the same ones for a seed; give the times of all answers in order, in seconds. Raises Mismatch."""

    class Machine(Interleavings):
        seconds: ClassVar[list[float]] = []

    Machine.target, Machine.fewest, Machine.most = target, fewest, most
    if seed is not None:
        seeded(seed)(Machine)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=seed is None,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    return sorted(Machine.seconds)
