"""The names that a client has given to prepared statements and portals, and what they stand for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import final

from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.frames import BIND, CLOSE, PARSE
from pytest_dsql.local.gateway.group import Portal, Prepared
from pytest_dsql.local.gateway.statements import Decision, Plan


@final
class Names:
    """One session's names, as PostgreSQL has them once it has answered what was sent."""

    __slots__ = ("_decide", "_parsing", "portals", "prepared")

    def __init__(self, decide: Callable[[bytes], Decision]) -> None:
        self.prepared: dict[bytes, Prepared] = {}
        self.portals: dict[bytes, Portal] = {}
        self._decide = decide
        #: Statements whose Parse is not answered yet, and what their names stood for before.
        self._parsing: deque[tuple[bytes, Prepared | None]] = deque()

    @property
    def parsing(self) -> bool:
        """Whether a Parse is not answered yet."""
        return bool(self._parsing)

    def parsed(self) -> None:
        """Hear that PostgreSQL has parsed a statement: the oldest that isn't answered."""
        if self._parsing:
            self._parsing.popleft()

    def answered(self) -> None:
        """Hear that everything is answered: what wasn't parsed has failed, or was skipped."""
        while self._parsing:
            name, before = self._parsing.pop()
            if before is None:
                self.prepared.pop(name, None)
            else:
                self.prepared[name] = before

    def note(self, kind: int, payload: bytes) -> bytes:
        """Note what a message of the extended protocol says about names; give the message to send."""
        replacement = None
        if kind == PARSE:
            replacement = self.parse(payload)
        elif kind == BIND:
            self.bind(payload)
        elif kind == CLOSE:
            self.close(payload)
        return frames.message(kind, payload) if replacement is None else replacement

    def plan_of(self, kind: int, payload: bytes) -> Plan | None:
        """The statement that a message of the extended protocol is about, once it was noted."""
        prepared: Prepared | None = None
        if kind == PARSE:
            prepared = self.prepared.get(payload.partition(b"\0")[0])
        elif kind == BIND:
            portal = self.portals.get(payload.partition(b"\0")[0])
            prepared = None if portal is None else portal.prepared
        elif kind == frames.DESCRIBE:
            name = payload[1:-1]
            portal = self.portals.get(name)
            described = None if portal is None else portal.prepared
            prepared = self.prepared.get(name) if payload[:1] == b"S" else described
        return None if prepared is None else prepared.plan

    def parse(self, payload: bytes) -> bytes | None:
        """Note a Parse; give the message to send in its place."""
        found = frames.texts(payload, 2)
        if found is None:
            return None
        (name, text), rest = found
        decision = self._decide(text)
        if not decision.single:
            # PostgreSQL has its own answer to several statements in one Parse.
            self._parsing.append((name, self.prepared.pop(name, None)))
            return None
        plan = decision.plans[0]
        before = self.prepared.get(name)
        self._parsing.append((name, before))
        for portal in self.portals.values():
            if portal.prepared is before:
                portal.renamed = True
        self.prepared[name] = Prepared(plan, payload[rest:])
        if not plan.changed:
            return None
        return frames.message(PARSE, name + b"\0" + plan.sent + b"\0" + payload[rest:])

    def bind(self, payload: bytes) -> None:
        """Note a Bind."""
        name_end = payload.find(0)
        statement_end = payload.find(0, name_end + 1)
        prepared = self.prepared.get(payload[name_end + 1 : statement_end])
        if prepared is None or name_end < 0 or statement_end < 0:
            self.portals.pop(payload[: max(name_end, 0)], None)
        else:
            self.portals[payload[:name_end]] = Portal(prepared, payload)

    def close(self, payload: bytes) -> None:
        """Note a Close."""
        if payload[:1] == b"S":
            self.prepared.pop(payload[1:-1], None)
        else:
            self.portals.pop(payload[1:-1], None)
