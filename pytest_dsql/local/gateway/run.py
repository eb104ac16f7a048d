"""One execution of a statement: what was asked for, and the messages that ask PostgreSQL for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.disguise import INTERNAL_PREFIX
from pytest_dsql.local.gateway.frames import BIND, CLOSE, EXECUTE, PARSE, SYNC_MESSAGE
from pytest_dsql.local.gateway.group import Portal
from pytest_dsql.local.gateway.hooks import Action
from pytest_dsql.local.gateway.statements import Plan

#: The name of the engine's own prepared statement and portal in a client's session.
OWN: Final = INTERNAL_PREFIX.encode()

_EXECUTE_UNNAMED: Final = frames.message(EXECUTE, b"\0" + bytes(4))
#: So many texts are remembered as parsed.
_PARSED: Final = 32

#: No types of parameters, no formats, no parameters: each is counted by two bytes.
NO_PARAMETERS: Final = b"\0\0"
#: What comes behind the names in a Bind message without parameters.
NOTHING_BOUND: Final = NO_PARAMETERS * 3


def failing_parse(sql: bytes) -> bytes:
    """A message that takes an Execute's place and fails as `sql` does at parse analysis."""
    return frames.message(PARSE, OWN + b"\0" + sql + b"\0" + NO_PARAMETERS)


def own_statement(sql: bytes) -> bytes:
    """Messages that parse and run a statement of the engine's own, without touching the client's unnamed ones."""
    return own_execution(sql, NO_PARAMETERS, NOTHING_BOUND) + SYNC_MESSAGE


def own_execution(sql: bytes, types: bytes, bound: bytes) -> bytes:
    """Messages that parse and run a statement under the engine's own name, without a Sync."""
    return b"".join(
        (
            frames.message(CLOSE, b"S" + OWN + b"\0"),
            frames.message(CLOSE, b"P" + OWN + b"\0"),
            frames.message(PARSE, OWN + b"\0" + sql + b"\0" + types),
            frames.message(BIND, OWN + b"\0" + OWN + b"\0" + bound),
            frames.message(EXECUTE, OWN + b"\0" + bytes(4)),
        )
    )


def bound_of(bind: bytes | None) -> bytes:
    """What comes behind the names in the payload of a Bind message; None: nothing is bound."""
    if bind is None:
        return NOTHING_BOUND
    return bind[bind.index(0, bind.index(0) + 1) + 1 :]


@final
class Executions:
    """Messages that run statements of the engine's own, one after the other: a text that comes again is parsed once.

    Not between the client's messages: the unnamed portal is used.
    """

    __slots__ = ("_messages", "_names")

    def __init__(self) -> None:
        self._messages: list[bytes] = []
        self._names: dict[tuple[bytes, bytes], bytes] = {}

    def add(self, messages: bytes) -> None:
        """Add messages as they are."""
        self._messages.append(messages)

    def execute(self, sql: bytes, types: bytes, bound: bytes) -> None:
        """Add a statement."""
        name = self._names.get((sql, types))
        if name is None:
            name = OWN + b"_" + str(len(self._names) % _PARSED).encode()
            self._names = {key: known for key, known in self._names.items() if known != name}
            self._names[sql, types] = name
            self._messages += (
                frames.message(CLOSE, b"S" + name + b"\0"),
                frames.message(PARSE, name + b"\0" + sql + b"\0" + types),
            )
        self._messages += (frames.message(BIND, b"\0" + name + b"\0" + bound), _EXECUTE_UNNAMED)

    def take(self) -> bytes:
        """Give the messages up to a ReadyForQuery, and begin anew."""
        messages, self._messages = b"".join(self._messages) + SYNC_MESSAGE, []
        return messages


def description(sql: bytes, types: bytes) -> bytes:
    """Messages that ask what types a statement's parameters have, without a Sync."""
    return b"".join(
        (
            frames.message(CLOSE, b"S" + OWN + b"\0"),
            frames.message(PARSE, OWN + b"\0" + sql + b"\0" + types),
            frames.message(frames.DESCRIBE, b"S" + OWN + b"\0"),
        )
    )


def described_types(messages: Sequence[bytes]) -> list[tuple[int, ...]]:
    """What the answers to these say: the OIDs of each statement's types."""
    found = []
    for message in messages:
        if message[0] == frames.PARAMETER_DESCRIPTION:
            payload = message[frames.HEADER_SIZE :]
            found.append(tuple(int.from_bytes(payload[at : at + 4], "big") for at in range(2, len(payload), 4)))
    return found


def before_execute(messages: bytes) -> bytes:
    """What comes before an Execute."""
    end = 0
    while messages[end] != EXECUTE:
        end += 1 + frames.HEADER.unpack_from(messages, end)[1]
    return messages[:end]


@final
class Run:
    """A query string's statements, or one Execute of a portal."""

    __slots__ = ("action", "asked", "copied", "execute", "name", "plans", "portal", "whole")

    def __init__(self, plans: Sequence[Plan], name: bytes, portal: Portal | None, execute: bytes) -> None:
        self.plans = plans  #: of an Execute: one, or none when PostgreSQL doesn't know the portal either
        self.name = name
        self.portal = portal
        self.execute = execute  #: the client's Execute message; empty for a query string
        self.asked = False  #: whether the hooks have been asked about the first statement
        self.action: Action | None = None  #: what they said
        self.whole = b""  #: everything that came with it, when nothing of that has been answered
        self.copied: bytes | None = None  #: the data of COPY FROM STDIN

    @staticmethod
    def of_query(plans: Sequence[Plan]) -> Run:
        """A query string."""
        return Run(plans, b"", None, b"")

    @staticmethod
    def of_portal(name: bytes, portal: Portal | None, execute: bytes) -> Run:
        """An Execute."""
        return Run(() if portal is None else (portal.prepared.plan,), name, portal, execute)

    @property
    def by_query(self) -> bool:
        """Whether it came in a Query message."""
        return not self.execute

    def again(self) -> None:
        """Let what failed be run once more from its beginning."""
        if self.portal is not None:
            self.portal.executed = False

    def messages(self, plan: Plan) -> bytes:
        """The messages that run one of its statements, up to a ReadyForQuery."""
        if self.whole:
            return self.whole
        if self.by_query or plan.copies_in:
            return frames.query(plan.sent)
        portal = self.portal
        if portal is None or portal.executed:
            # A portal that has given some of its rows goes on.
            return self.execute + SYNC_MESSAGE
        if portal.renamed:
            return own_execution(plan.sent, portal.prepared.rest, bound_of(portal.bind)) + SYNC_MESSAGE
        # The portal is bound anew: a Sync outside of a transaction has closed it.
        portal.executed = True
        closing = frames.message(CLOSE, b"P" + self.name + b"\0")
        return closing + frames.message(BIND, portal.bind) + self.execute + SYNC_MESSAGE
