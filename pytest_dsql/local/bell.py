"""Tells those who asked for it that something has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import final


@final
class Bell:
    """A list of functions to call."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: list[Callable[[], object]] = []

    def on(self, tell: Callable[[], object]) -> Callable[[], None]:
        """Have `tell` called at each ring; give the function that ends this."""
        self._told.append(tell)

        def forget() -> None:
            if tell in self._told:
                self._told.remove(tell)

        return forget

    def ring(self) -> None:
        """Call them, in the order in which they asked."""
        for tell in tuple(self._told):
            tell()
