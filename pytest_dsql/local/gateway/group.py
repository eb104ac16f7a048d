"""What PostgreSQL was sent and has not yet answered with a ReadyForQuery, and what is known of its answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.statements import Plan

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.run import Run

#: Transaction states of a ReadyForQuery message.
IDLE: Final = ord("I")
IN_TRANSACTION: Final = ord("T")
FAILED: Final = ord("E")


@final
class Prepared:
    """A prepared statement of the client."""

    __slots__ = ("plan", "rest")

    def __init__(self, plan: Plan, rest: bytes) -> None:
        self.plan = plan
        self.rest = rest  #: of the Parse message: the parameters' types


@final
class Portal:
    """A portal of the client."""

    __slots__ = ("bind", "executed", "prepared", "renamed")

    def __init__(self, prepared: Prepared, bind: bytes) -> None:
        self.prepared = prepared
        self.bind = bind  #: the payload of its Bind message
        self.executed = False
        self.renamed = False  #: its statement's name stands for another one by now


@final
class Group:
    """Everything that ends with one ReadyForQuery.

    The answer goes straight on to the client, unless somebody has asked for it (`asked`): then its messages are
    collected, and the asker is told at the end.
    """

    __slots__ = (
        "answering",
        "asked",
        "captured",
        "collected",
        "contested",
        "error",
        "locked",
        "muted",
        "only_first",
        "plan",
        "refusal",
        "relays_rows",
        "run",
        "sent",
        "shared",
        "tag",
        "tags",
        "until_copy",
    )

    def __init__(
        self,
        plan: Plan | None = None,
        *,
        asked: asyncio.Future[None] | None = None,
        relays_rows: bool = False,
        until_copy: bool = False,
    ) -> None:
        self.plan = plan  #: of the one statement that it holds, if it holds one
        self.asked = asked
        self.relays_rows = relays_rows  #: rows go on to the client as they come, and what came before them
        self.until_copy = until_copy  #: the answer also ends with a CopyInResponse
        self.collected: list[bytes] = []  #: whole messages, without ReadyForQuery
        self.error: dict[str, bytes] | None = None  #: the fields of its ErrorResponse
        self.tag: bytes | None = None  #: of the last statement that was completed
        self.tags: list[bytes] = []  #: of all of them, where the answer was asked for
        self.refusal: Refusal | None = None  #: takes the place of the answer
        self.only_first = False  #: nothing after the first command tag is for the client
        self.muted = False  #: the rest of the answer is not for the client
        self.contested = False  #: the statement failed, perhaps because of a rival, and is run another way
        self.run: Run | None = None  #: what the client asked for, on the fast way
        self.sent = b""  #: the messages as they were sent, on the fast way
        self.answering = False  #: something of the answer has gone to the client
        self.captured: list[bytes] = []  #: rows as they were written, as text
        self.locked: set[str] = set()  #: keys of rows that it locked FOR UPDATE
        self.shared: set[str] = set()  #: keys of rows that it locked FOR KEY SHARE

    def rows(self) -> list[list[bytes | None]]:
        """The values of the rows that were collected."""
        return [frames.values(message[frames.HEADER_SIZE :]) for message in self.collected if message[0] == ord("D")]
