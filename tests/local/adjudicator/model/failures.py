"""How a statement fails."""

from __future__ import annotations

from typing import Final, final


@final
class StatementFailed(Exception):
    """A statement fails. `messages` are the texts it may fail with: which of several faults is met first is open."""

    def __init__(self, sqlstate: str, *messages: str, detail: str | None = None) -> None:
        super().__init__(f"{sqlstate} {' or '.join(messages)}")
        self.sqlstate: Final = sqlstate
        self.messages: Final = frozenset(messages)
        self.detail: Final = detail
