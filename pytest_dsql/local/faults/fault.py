"""A fault: what goes wrong, where, and when. Made in Python by its class methods, or read from a file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, final, get_args

#: What goes wrong.
What: TypeAlias = Literal[
    "conflict", "schema-change", "unavailable", "error", "disconnect", "silence", "stall", "refuse", "slow"
]
#: Where. `select` also holds for COPY ... TO and EXPLAIN, `dml` for insert, update and delete, `statement` for all but
#: BEGIN, COMMIT and ROLLBACK. An autocommit statement that writes rows is a commit too.
On: TypeAlias = Literal[
    "select", "insert", "update", "delete", "dml", "ddl", "statement", "begin", "commit", "rollback", "connect"
]

WHATS: Final[tuple[str, ...]] = get_args(What)
PLACES: Final[tuple[str, ...]] = get_args(On)

#: The refusals of new connections that DSQL knows (AWS user guide, "Troubleshooting issues in Aurora DSQL").
REFUSALS: Final[Mapping[str, tuple[str, str | None]]] = {
    "53300": ("Unable to accept connection, too many open connections.", None),
    "53400": ("Unable to accept connection, rate exceeded.", None),
    "08006": ("unable to accept connection, access denied", "The security token included in the request has expired"),
}

_DEFAULT_PLACE: Final[Mapping[str, tuple[On, ...]]] = {
    "conflict": ("commit",),
    "schema-change": ("statement",),
    "unavailable": ("statement", "commit"),
    "error": ("statement",),
    "disconnect": ("statement", "commit"),
    "silence": ("statement", "commit"),
    "stall": ("statement", "commit"),
    "refuse": ("connect",),
    "slow": ("connect",),
}
#: What can happen to a connection that is being made.
_AT_CONNECT: Final = frozenset({"refuse", "slow", "disconnect", "silence"})
_ONLY_AT_CONNECT: Final = frozenset({"refuse", "slow"})
_CAN_COME_AFTER: Final = frozenset({"unavailable", "error", "disconnect", "silence"})
_TAKES_TIME: Final = frozenset({"stall", "slow"})
_MOST_MS: Final = 3_600_000.0


class When(TypedDict, total=False):
    """When a fault happens, and what it is called."""

    every: int
    probability: float
    first: int
    between: tuple[float, float]
    name: str


class Rule(When, total=False):
    """Where and when a fault happens, and what it is called."""

    on: tuple[On, ...] | On
    table: str
    sql: str


class FaultError(ValueError):
    """A fault that can't be meant; `key` is the part of it that is wrong."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One rule. Make it with a class method: `Fault.conflict(table="accounts", every=3)`.

    Where: `on`, and `table` (a table that the statement, or for a commit its transaction, reads or writes; with or
    without its schema) and `sql` (a regular expression to be found in the text as the client wrote it).

    When: of what fits, `every` n-th or each with a `probability`; of that only the `first` k; and only `between` two
    moments, in seconds of the engine's clock since the rule was added.

    Raises FaultError (a ValueError) for what can't be meant.
    """

    what: What
    on: tuple[On, ...] | On = ()  #: empty: where such a fault is usual
    table: str | None = None
    sql: str | None = None
    every: int | None = None
    probability: float | None = None
    first: int | None = None
    between: tuple[float, float] | None = None
    after: bool = False  #: the statement, or COMMIT, takes effect, and only its answer is lost or an error
    ms: float | None = None  #: how long a stall or a slow connection takes
    cluster: bool = False  #: a stall of everybody, not of one session
    sqlstate: str | None = None
    message: str | None = None
    name: str | None = None  #: as it is counted; None: what and where

    def __post_init__(self) -> None:
        """Fill in the usual place, and check everything."""
        if self.what not in WHATS:
            raise FaultError("what", f"{self.what!r} is not one of {', '.join(WHATS)}")
        on: Any = (self.on,) if isinstance(self.on, str) else tuple(self.on)
        object.__setattr__(self, "on", on or _DEFAULT_PLACE[self.what])
        for place in self.on:
            if place not in PLACES:
                raise FaultError("on", f"{place!r} is not one of {', '.join(PLACES)}")
        self._check_place()
        self._check_moment()
        self._check_effect()

    def _check_place(self) -> None:
        connects = "connect" in self.on
        if connects and self.on != ("connect",):
            raise FaultError("on", "connect stands alone: write a rule for it and another for the rest")
        if connects and self.what not in _AT_CONNECT:
            raise FaultError("on", f"a connection can't meet {self.what!r}, only {', '.join(sorted(_AT_CONNECT))}")
        if not connects and self.what in _ONLY_AT_CONNECT:
            raise FaultError("on", f"{self.what!r} happens to connections only")
        if connects and (self.table or self.sql):
            raise FaultError("table" if self.table else "sql", "a connection has none")
        if self.sql is not None:
            try:
                re.compile(self.sql)
            except re.error as error:
                raise FaultError("sql", f"not a regular expression: {error}") from None

    def _check_moment(self) -> None:
        if self.every is not None and self.probability is not None:
            raise FaultError("probability", "say either every or probability")
        for key in ("every", "first"):
            value = getattr(self, key)
            if value is not None and not (type(value) is int and value >= 1):
                raise FaultError(key, f"expected a whole number, 1 or more, not {value!r}")
        if self.probability is not None and not (_is_number(self.probability) and 0 <= self.probability <= 1):
            raise FaultError("probability", f"expected a number from 0 to 1, not {self.probability!r}")
        if self.between is not None:
            pair: Any = self.between
            if not (isinstance(pair, Sequence) and len(pair) == 2 and all(map(_is_number, pair))):
                raise FaultError("between", "expected two numbers of seconds, like [10, 20]")
            if not 0 <= pair[0] < pair[1]:
                raise FaultError("between", "expected 0 <= begin < end")
            object.__setattr__(self, "between", (float(pair[0]), float(pair[1])))

    def _check_effect(self) -> None:
        if self.what in _TAKES_TIME:
            if not (_is_number(self.ms) and self.ms is not None and 0 <= self.ms <= _MOST_MS):
                raise FaultError("ms", f"expected milliseconds, 0 to {_MOST_MS:,.0f}, not {self.ms!r}")
        elif self.ms is not None:
            raise FaultError("ms", f"{self.what!r} takes no time; a stall does")
        if self.after and (self.what not in _CAN_COME_AFTER or self.on == ("connect",)):
            raise FaultError("after", f"{self.what!r} can't come after the effect")
        if self.cluster and self.what != "stall":
            raise FaultError("cluster", "only a stall can be everybody's")
        if self.what == "refuse":
            if self.sqlstate not in REFUSALS and self.message is None:
                raise FaultError(
                    "sqlstate", f"{self.sqlstate!r} is not one of {', '.join(REFUSALS)}; or give a message"
                )
        elif self.what == "error":
            if not self.message:
                raise FaultError("message", "an error needs one")
        else:
            for key in ("sqlstate", "message"):
                if getattr(self, key) is not None:
                    raise FaultError(key, f"{self.what!r} has DSQL's own; write what = 'error' for another")
        if self.sqlstate is not None and not re.fullmatch(r"[0-9A-Z]{5}", self.sqlstate):
            raise FaultError("sqlstate", f"expected five digits or capital letters, not {self.sqlstate!r}")

    @property
    def label(self) -> str:
        """The name that its injections are counted under."""
        return self.name or f"{self.what} on {' or '.join(self.on)}"

    @classmethod
    def conflict(cls, **rule: Unpack[Rule]) -> Fault:
        """OC000 at the COMMIT of a transaction that wrote rows, or at an autocommit statement that does."""
        return cls(what="conflict", **rule)

    @classmethod
    def schema_change(cls, **rule: Unpack[Rule]) -> Fault:
        """OC001, at a statement (reads too) or a COMMIT."""
        return cls(what="schema-change", **rule)

    @classmethod
    def unavailable(cls, *, after: bool = False, **rule: Unpack[Rule]) -> Fault:
        """XX000 `server unavailable`; the connection stays usable. `after`: what was sent took effect all the same."""
        return cls(what="unavailable", after=after, **rule)

    @classmethod
    def error(cls, sqlstate: str, message: str, *, after: bool = False, **rule: Unpack[Rule]) -> Fault:
        """Any other error of a statement."""
        return cls(what="error", sqlstate=sqlstate, message=message, after=after, **rule)

    @classmethod
    def disconnect(cls, *, after: bool = False, **rule: Unpack[Rule]) -> Fault:
        """The connection is cut before what was sent takes effect, or `after` it, without an answer."""
        return cls(what="disconnect", after=after, **rule)

    @classmethod
    def silence(cls, *, after: bool = False, **rule: Unpack[Rule]) -> Fault:
        """The connection stays open, and nothing comes any more: half-open, as after a lost network path."""
        return cls(what="silence", after=after, **rule)

    @classmethod
    def stall(cls, *, ms: float, cluster: bool = False, **rule: Unpack[Rule]) -> Fault:
        """A statement, or with `cluster` every statement of everybody, waits so long before it runs."""
        return cls(what="stall", ms=ms, cluster=cluster, **rule)

    @classmethod
    def refuse(cls, sqlstate: str = "53400", *, message: str | None = None, **rule: Unpack[When]) -> Fault:
        """New connections are refused with 53300, 53400 or 08006 and DSQL's text, or another."""
        return cls(what="refuse", sqlstate=sqlstate, message=message, **rule)

    @classmethod
    def slow_connect(cls, *, ms: float, **rule: Unpack[When]) -> Fault:
        """New connections take so much longer to authenticate."""
        return cls(what="slow", ms=ms, **rule)

    def to_json(self) -> dict[str, Any]:
        """The fault as JSON values; what was left to its default is left out."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {key: value for key, value in values.items() if value not in (None, False, ())}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Fault:
        """The fault that `to_json` wrote, or that a file says. Raises FaultError."""
        known = {one.name for one in fields(cls)}
        for key, value in values.items():
            if key not in known:
                raise FaultError(key, f"unknown key; known: {', '.join(sorted(known))}")
            if not _fits(key, value):
                raise FaultError(key, f"expected {_EXPECTED.get(key, 'a text')}, not {value!r}")
        if "what" not in values:
            raise FaultError("what", f"say what goes wrong: {', '.join(WHATS)}")
        checked: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        return cls(**checked)


_EXPECTED: Final = {
    "on": "a text or a list of texts",
    "every": "a whole number",
    "first": "a whole number",
    "probability": "a number from 0 to 1",
    "between": "two numbers of seconds",
    "ms": "milliseconds",
    "after": "true or false",
    "cluster": "true or false",
}


def _fits(key: str, value: Any) -> bool:
    expected = _EXPECTED.get(key)
    if expected == "true or false":
        return isinstance(value, bool)
    if key == "on":
        return isinstance(value, str) or (
            isinstance(value, list | tuple) and bool(value) and all(isinstance(one, str) for one in value)
        )
    return expected is not None or (isinstance(value, str) and bool(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
