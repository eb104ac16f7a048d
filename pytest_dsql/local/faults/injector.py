"""What decides, for each statement and each new connection of a cluster, whether something goes wrong with it."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.clock import EngineClock
from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.faults.fault import REFUSALS, Fault
from pytest_dsql.local.forms import Form, form_of
from pytest_dsql.local.gateway.hooks import Action, Disconnect, Fail, FailAfter, Silence, Stall, Statement
from pytest_dsql.local.streams import stream

if TYPE_CHECKING:
    from pytest_dsql.local.cluster import Cluster
    from pytest_dsql.local.gateway.hooks import TransactionState

#: AWS user guide, "Concurrency control in Aurora DSQL" and "Troubleshooting issues in Aurora DSQL"; the texts as seen
#: on clusters in September 2026.
CONFLICT: Final = Refusal("40001", "change conflicts with another transaction (OC000)")
SCHEMA_CHANGE: Final = Refusal("40001", "schema has been updated by another transaction (OC001)")
UNAVAILABLE: Final = Refusal("XX000", "server unavailable")

_DML: Final = frozenset({"insert", "update", "delete"})
_NOTE: Final = "faults: tables"


@final
@dataclass(frozen=True, slots=True)
class ConnectFault:
    """What becomes of a connection whose token was verified: at most one of these."""

    refusal: Refusal | None = None  #: it is refused
    delay_s: float = 0.0  #: it waits so long; math.inf: without end
    cut: bool = False  #: it is closed without a word


@final
class _Rule:
    """A fault in force, with what it has seen and done."""

    __slots__ = ("began_at", "fault", "injected", "label", "matched", "pattern", "places", "rng")

    def __init__(self, fault: Fault, label: str, began_at: float, rng: random.Random) -> None:
        self.fault = fault
        self.label = label
        self.began_at = began_at
        self.rng = rng
        self.places = frozenset(fault.on)
        self.pattern = re.compile(fault.sql) if fault.sql is not None else None
        self.matched = 0
        self.injected = 0

    def is_due(self, now: float) -> bool:
        """Count something that fits, and tell whether it goes wrong."""
        fault = self.fault
        if fault.between is not None:
            begin, end = fault.between
            if not begin <= now - self.began_at < end:
                return False
        self.matched += 1
        if fault.first is not None and self.matched > fault.first:
            return False
        if fault.every is not None:
            due = self.matched % fault.every == 0
        elif fault.probability is not None:
            due = self.rng.random() < fault.probability
        else:
            due = True
        self.injected += due
        return due


@final
class Faults:
    """The faults of one cluster. Rules are asked in their order, and the first that is due decides.

    `base` are rules that hold from the start, and that `reset` comes back to; `seed` makes probabilities repeatable.
    """

    def __init__(self, clock: EngineClock, seed: int = 1, base: Iterable[Fault] = ()) -> None:
        self._clock = clock
        self._seed = seed
        self._base = tuple(base)
        self._rules: list[_Rule] = []
        self._injected_before = 0  #: by rules that are gone
        self._counts: dict[str, int] = {}  #: of rules that were removed since the last reset
        self._stalled_until = -math.inf  #: of time.monotonic
        self._watches_tables = False
        self.quiet = True  #: nothing can go wrong now
        self.reset()

    @property
    def injected(self) -> int:
        """How often something went wrong since the engine started; never falls."""
        return self._injected_before + sum(rule.injected for rule in self._rules)

    def counts(self) -> dict[str, int]:
        """Name of each rule since the last reset -> how often it went off."""
        return self._counts | {rule.label: rule.injected for rule in self._rules}

    def add(self, fault: Fault) -> str:
        """Put a fault in force; give the name that it is counted under, which is its own unless that is taken."""
        label = fault.label
        taken = self.counts()
        number = 1
        while label in taken:
            number += 1
            label = f"{fault.label} ({number})"
        # A rule that is added again draws again what it drew before.
        self._rules.append(_Rule(fault, label, self._clock.now(), stream(self._seed, f"fault {label}")))
        self._note_rules()
        return label

    def remove(self, label: str) -> int:
        """Take a fault back; give how often it went off. Raises KeyError when there is none of this name."""
        for rule in self._rules:
            if rule.label == label:
                self._rules.remove(rule)
                self._injected_before += rule.injected
                self._counts[label] = rule.injected
                self._note_rules()
                return rule.injected
        raise KeyError(label)

    def clear(self) -> None:
        """Take all faults back, those from the start too. What was counted stays."""
        for rule in tuple(self._rules):
            self.remove(rule.label)
        self._stalled_until = -math.inf
        self._note_rules()

    def reset(self) -> None:
        """Go back to the start: its rules, all counts zero, all random streams anew."""
        self.clear()
        self._counts = {}
        for fault in self._base:
            self.add(fault)

    def _note_rules(self) -> None:
        self.quiet = not self._rules and self._stalled_until < time.monotonic()
        self._watches_tables = any(rule.fault.table and "commit" in rule.places for rule in self._rules)

    def at_connect(self) -> ConnectFault | None:
        """Say what becomes of a new connection."""
        rule = self._due(frozenset({"connect"}), (), "", wrote=False) if self._rules else None
        if rule is None:
            return None
        fault = rule.fault
        if fault.what == "refuse":
            sqlstate = fault.sqlstate or "53400"
            message, hint = REFUSALS.get(sqlstate, ("", None))
            return ConnectFault(Refusal(sqlstate, fault.message or message, hint=hint if not fault.message else None))
        if fault.what == "slow":
            return ConnectFault(delay_s=(fault.ms or 0.0) / 1000)
        return ConnectFault(cut=True) if fault.what == "disconnect" else ConnectFault(delay_s=math.inf)

    def at_statement(self, statement: Statement, transaction: TransactionState) -> Action | None:
        """Say what becomes of a statement that is about to be sent."""
        stalled_s = self._stalled_until - time.monotonic()
        if stalled_s > 0:
            return Stall(stalled_s)
        if not self._rules:
            self._note_rules()
            return None
        tables: tuple[str, ...] = statement.reads + statement.writes
        if self._watches_tables and tables:
            noted = transaction.notes.setdefault(_NOTE, set())
            assert isinstance(noted, set)
            noted.update(tables)
        form = form_of(statement.sql, statement.kind)
        if form == "commit":
            noted = transaction.notes.get(_NOTE, ())
            tables = tuple(noted) if isinstance(noted, set) else ()
        commits = not transaction.explicit and statement.kind == "dml"
        wrote = commits or transaction.dml > 0
        rule = self._due(_places(form, commits=commits), tables, statement.sql, wrote=wrote)
        return None if rule is None else self._action(rule.fault)

    def _due(self, places: frozenset[str], tables: tuple[str, ...], sql: str, *, wrote: bool) -> _Rule | None:
        now = self._clock.now()
        for rule in self._rules:
            fault = rule.fault
            if rule.places.isdisjoint(places):
                continue
            # DSQL never answers OC000 to a transaction that wrote nothing.
            if fault.what == "conflict" and not wrote:
                continue
            if fault.table is not None and not _touches(tables, fault.table):
                continue
            if rule.pattern is not None and rule.pattern.search(sql) is None:
                continue
            if rule.is_due(now):
                return rule
        return None

    def _action(self, fault: Fault) -> Action:
        match fault.what:
            case "disconnect":
                return Disconnect(after=fault.after)
            case "silence":
                return Silence(after=fault.after)
            case "stall":
                seconds = (fault.ms or 0.0) / 1000
                if fault.cluster:
                    self._stalled_until = time.monotonic() + seconds
                return Stall(seconds)
        refusal = _ERRORS.get(fault.what) or Refusal(fault.sqlstate or "XX000", fault.message or "")
        return FailAfter(refusal) if fault.after else Fail(refusal)


_ERRORS: Final[Mapping[str, Refusal]] = {
    "conflict": CONFLICT,
    "schema-change": SCHEMA_CHANGE,
    "unavailable": UNAVAILABLE,
}


def _places(form: Form, *, commits: bool) -> frozenset[str]:
    if form in ("begin", "commit", "rollback"):
        return frozenset({form})
    if form in ("point_read", "read"):
        return _READ
    places = {form, "statement"} | ({"dml"} if form in _DML else set())
    return frozenset(places | {"commit"} if commits else places)


_READ: Final = frozenset({"select", "statement"})


def _touches(tables: tuple[str, ...], wanted: str) -> bool:
    """Whether one of the tables is meant; a name without a schema means that table in any schema."""
    if "." in wanted:
        return wanted in tables
    return any(table == wanted or table.endswith(f".{wanted}") for table in tables)


@final
class FaultHook:
    """What the faults of a cluster have to say about one session."""

    __slots__ = ("_faults",)

    wary: Final = True
    wants_completions: Final = False

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def minds(self, transaction: TransactionState | None) -> bool:  # noqa: ARG002
        """Whether something can go wrong."""
        return not self._faults.quiet

    def before(self, statement: Statement, transaction: TransactionState) -> Action | None:
        """Say what becomes of a statement."""
        faults = self._faults
        return None if faults.quiet else faults.at_statement(statement, transaction)

    def completed(self, statement: Statement, transaction: TransactionState, rows: int) -> Refusal | None:  # noqa: ARG002
        """Nothing: faults are decided about before."""
        return None

    def ended(self, transaction: TransactionState, *, committed: bool) -> None:
        """Nothing to remember."""


def fault_hook(cluster: Cluster, _user: str) -> FaultHook:
    """What a new session of a cluster asks about faults."""
    return FaultHook(cluster.faults)
