"""The engine's clock: the time that tokens, ages and lifetimes are measured with. Tests move it forward."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

from pytest_dsql.local.bell import Bell


@final
class EngineClock:
    """Seconds since the epoch, plus what the clock was moved by.

    Whoever waits for a moment of this clock asks to be told of moves with `on_move`.
    """

    __slots__ = ("_moved_s", "_moves", "_told")

    def __init__(self) -> None:
        self._moved_s = 0.0
        self._moves: list[tuple[float, float]] = []  #: the machine's time, and how far the clock was moved then
        self._told = Bell()

    def now(self) -> float:
        """The engine's time, in seconds since the epoch."""
        return time.time() + self._moved_s

    def at(self, machine_time: float) -> float:
        """What this clock showed when the machine's showed `machine_time`: that is what others sign and stamp with."""
        moved_s = 0.0
        for moved_at, so_far_s in self._moves:
            if moved_at > machine_time:
                break
            moved_s = so_far_s
        return machine_time + moved_s

    @property
    def moved_s(self) -> float:
        """How far the clock is ahead of the machine's."""
        return self._moved_s

    def move(self, seconds: float) -> None:
        """Move the clock forward. Raises ValueError for a negative number: what has happened can't be undone."""
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"the clock can't be moved by {seconds} s")
        self._moves.append((time.time(), self._moved_s + seconds))
        self._set(self._moved_s + seconds)

    def reset(self) -> None:
        """Show the machine's time again."""
        self._moves.clear()
        self._set(0.0)

    def _set(self, moved_s: float) -> None:
        self._moved_s = moved_s
        self._told.ring()

    def on_move(self, tell: Callable[[], object]) -> Callable[[], None]:
        """Have `tell` called after each move; give the function that ends this."""
        return self._told.on(tell)
