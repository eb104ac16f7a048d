"""What a transaction is: the decorator, the mix, the rejection and the context - the leaf that everybody shares."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, TypeAlias, final

from pytest_dsql.access import UNIFORM, Access, Pick

Kind: TypeAlias = Literal["read", "write"]
Statement: TypeAlias = "tuple[str, Sequence[Any]] | str"
Yielded: TypeAlias = "Statement | list[Statement]"


class Result(Protocol):
    """What a statement answered."""

    @property
    def rowcount(self) -> int:
        """Rows selected or changed, from the command tag."""

    @property
    def rows(self) -> Sequence[tuple[Any, ...]]:
        """The rows, decoded when first asked for."""

    def one(self) -> tuple[Any, ...] | None:
        """The first row, or None when there is none."""


Steps: TypeAlias = "Generator[Yielded, Any, Rejected | None]"


@final
@dataclass(frozen=True, slots=True)
class Rejected:
    """A business "no" (out of stock): the transaction is rolled back and counted apart from failures."""

    reason: str


@final
class Last(list["Statement"]):
    """The last statements of a transaction: independent of one another, and committed whatever they answer.

    `yield Last([...])` sends them in one pipeline with the COMMIT behind them. After that the transaction can only end.
    """


@final
class Transaction:
    """One named business operation: a generator function that yields statements and receives their results."""

    __slots__ = ("__wrapped__", "block", "function", "kind", "name")

    def __init__(self, function: Callable[[Context], Steps], kind: Kind, name: str, block: bool = True) -> None:
        self.function: Final = function
        self.kind: Final = kind
        self.name: Final = name
        self.block: Final = block  #: False: one statement on its own, without BEGIN and COMMIT around it
        self.__wrapped__ = function

    def __call__(self, ctx: Context) -> Steps:
        """Start the transaction's steps for one request."""
        return self.function(ctx)

    def __repr__(self) -> str:
        return f"<transaction {self.name} ({self.kind})>"

    def definition(self) -> tuple[str, bool, str]:
        """Return what tells this transaction from another of its name: kind, block, and a digest of its code."""
        import hashlib
        import inspect

        try:
            code = inspect.getsource(self.function)
        except (OSError, TypeError):  # made without a file
            code = self.function.__code__.co_code.hex() + repr(self.function.__code__.co_consts)
        return self.kind, self.block, hashlib.blake2b(code.encode(), digest_size=16).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        # The module attribute of that name is this object, so the function itself travels by value (cloudpickle).
        return Transaction, (self.function, self.kind, self.name, self.block)


def transaction(
    *, kind: Kind, name: str | None = None, block: bool = True
) -> Callable[[Callable[[Context], Any]], Transaction]:
    """Make a transaction of a generator function that takes a `Context`.

    `kind` says which objectives apply; `read` also promises that the transaction changes nothing, so that it may be
    run again when its connection is lost during COMMIT. `name` defaults to the function's.

    Every transaction runs between `BEGIN ISOLATION LEVEL REPEATABLE READ` and `COMMIT`. With `block=False` it runs
    without them: it must then yield exactly one statement, which commits by itself - and has already done so when the
    transaction returns `Rejected`.

    Raises ValueError for another kind, TypeError when the function is no generator function.
    """
    if kind not in ("read", "write"):
        raise ValueError(f"kind must be 'read' or 'write', not {kind!r}")

    def decorate(function: Callable[[Context], Any]) -> Transaction:
        import inspect

        if not inspect.isgeneratorfunction(function):
            raise TypeError(f"{function.__qualname__} must yield its statements (no `yield` in it)")
        return Transaction(function, kind, name or function.__name__, block)

    return decorate


class CellWorkload(Protocol):
    """What a mix's workload does around a cell: hand out ids before it, check the data after it.

    Both are called by the controller, never in a worker. `connect` opens a new psycopg connection to the target.
    """

    @property
    def scale(self) -> Any:
        """The sizes of the loaded data: what transactions see as `ctx.scale`."""

    def begin_cell(
        self,
        connect: Callable[[], Any],
        *,
        cell: str,
        slots: int,
        requests_hint: int,
        shares: Mapping[str, float] | None = None,
    ) -> CellRun:
        """Claim an id range and an operation-id prefix for one run of a cell, and remember the starting state.

        `requests_hint` is how many requests the run makes at most, about; `shares` the share of each transaction by
        name (None: the workload's own mix): both size the set-aside rows.
        """

    def check_cell(self, connect: Callable[[], Any], run: CellRun, tally: Tally) -> dict[str, int]:
        """Count the violations of every invariant over the rows of this run.

        Of an incomplete tally nothing may be concluded from there being more in the database than was counted.
        """


@final
@dataclass(frozen=True, slots=True)
class Tally:
    """What the generator counted in one run of a cell, warm-up and drain included, for the invariants."""

    committed: Mapping[str, int]  #: transaction name -> committed (ok and ok after retries)
    ambiguous: Mapping[str, int]  #: transaction name -> outcome unknown
    complete: bool = True  #: False when a generator process died: it may have committed more than it told


@final
@dataclass(frozen=True, slots=True)
class CellRun:
    """What one run of a cell may use: its own ids and operation ids, and its share of set-aside rows. Picklable."""

    number: int  #: the claimed number of this run, unique in the target's database
    operation_prefix: str  #: operation ids start with it
    slots: int  #: connection slots over all workers; each draws ids and set-aside rows of its own
    pools: Mapping[str, range] = field(default_factory=dict)  #: set-aside rows by name
    snapshot: Any = None  #: the workload's own note of the starting state
    #: SQL that answers a row when the operation id `$1` has a receipt; None: a lost COMMIT stays ambiguous
    receipt_sql: str | None = None

    def id_range(self) -> range:
        """All ids that this run can make."""
        return range(self.number << ID_BITS, (self.number + 1) << ID_BITS)


#: An id is (run number, slot, counter), scrambled within the run: 24 + 39 bits of a bigint.
ID_BITS: Final = 39
#: 16,384 connections: DSQL allows 10,000 (AWS user guide, "Cluster quotas and database limits").
SLOT_BITS: Final = 14
_COUNTER_BITS: Final = ID_BITS - SLOT_BITS
_ID_MASK: Final = (1 << ID_BITS) - 1
# An odd multiplier is a bijection modulo 2**39: neighbours land far apart, as DSQL advises for keys
# (AWS user guide, "Primary keys in Aurora DSQL": avoid increasing keys).
_ID_SPREAD: Final = 0x4F1BBCDCBF | 1
_MASK64: Final = (1 << 64) - 1


@final
class StreamRandom(random.Random):
    """A `random.Random` whose whole state is one integer, so that a retry can rewind it at no cost.

    The generator is SplitMix64 (Steele, Lea, Flood 2014).
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._state = seed & _MASK64

    def _next64(self) -> int:
        self._state = state = (self._state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return state ^ (state >> 31)

    def random(self) -> float:
        """Return the next float in [0, 1)."""
        return (self._next64() >> 11) * 1.1102230246251565e-16

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Return a random element of `range(start, stop, step)`."""
        # Transactions draw keys with one argument on the hot path: a multiplication in place of the base class's
        # rejection loop, written out (0.6 us against 1.2). A range of n is biased by at most n / 2**64.
        if stop is None and type(start) is int and 0 < start <= _MASK64:
            self._state = state = (self._state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
            state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
            state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
            return (state ^ (state >> 31)) * start >> 64
        return super().randrange(start, stop, step)

    def getrandbits(self, k: int) -> int:
        """Return a non-negative integer of `k` random bits."""
        if k <= 64:
            return self._next64() >> (64 - k) if k else 0
        value = 0
        for _ in range((k + 63) // 64):
            value = (value << 64) | self._next64()
        return value >> (-k % 64)

    def seed(self, a: Any = None, version: int = 2) -> None:  # noqa: ARG002 - random.Random's signature
        """Restart the stream at an integer seed (called by `random.Random.__init__` without one)."""
        if isinstance(a, int):
            self._state = a & _MASK64

    def getstate(self) -> Any:
        """Return the state: one integer."""
        return self._state

    def setstate(self, state: Any) -> None:
        """Return to a state that `getstate` gave."""
        self._state = int(state)


def stream_seed(seed: int, *names: object) -> int:
    """Derive the seed of a named random stream from the run's seed, the same on every machine."""
    import hashlib

    digest = hashlib.blake2b(repr((seed, *names)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


@final
class Context:
    """What a transaction may draw on for one request; rewound to the same values when the request is retried."""

    __slots__ = (
        "_counter",
        "_drawn",
        "_mark_counter",
        "_mark_drawn",
        "_mark_rng",
        "_operation",
        "_run",
        "_slot",
        "pick",
        "rng",
        "scale",
    )

    def __init__(self, *, seed: int, run: CellRun, slot: int = 0, scale: Any = None, access: Access = UNIFORM) -> None:
        if not 0 <= slot < 1 << SLOT_BITS:
            raise ValueError(f"slot must be in 0..{(1 << SLOT_BITS) - 1}, not {slot}")
        self.rng: Final = StreamRandom(stream_seed(seed, "request", slot))  #: the request's random numbers
        #: `ctx.pick(n)` draws a key from 0 to n - 1 as the cell's access pattern has it: evenly, or some more often
        self.pick: Final[Pick] = access.picker(self.rng)
        self.scale: Final = scale  #: the workload's sizes
        self._run = run
        self._slot = slot
        self._counter = 0
        self._operation = 0
        self._drawn: dict[str, int] = {}
        self._mark_rng: int = self.rng.getstate()
        self._mark_counter = 0
        self._mark_drawn: dict[str, int] | None = None

    def next_request(self) -> None:
        """Begin a new request: a new operation id; a later `rewind` returns to this point."""
        self._operation += 1
        self._mark_rng = self.rng._state
        self._mark_counter = self._counter
        self._mark_drawn = None

    def rewind(self) -> None:
        """Return to the beginning of the request: the same random numbers, ids, rows and operation id again."""
        self.rng._state = self._mark_rng
        self._counter = self._mark_counter
        if self._mark_drawn is not None:
            self._drawn = dict(self._mark_drawn)

    @property
    def receipt_sql(self) -> str | None:
        """SQL that answers a row when the operation id `$1` has a receipt; None when the workload keeps none."""
        return self._run.receipt_sql

    @property
    def operation_id(self) -> str:
        """The id of this request, the same for all its attempts: the key of its receipt."""
        return f"{self._run.operation_prefix}{self._slot}-{self._operation}"

    def new_id(self) -> int:
        """Return a bigint that no other request in this database has got; not in any order."""
        self._counter = counter = self._counter + 1
        if counter >> _COUNTER_BITS:
            raise OverflowError(f"more than {1 << _COUNTER_BITS} ids in one connection slot of one cell")
        local = (self._slot << _COUNTER_BITS) | counter
        return (self._run.number << ID_BITS) | (local * _ID_SPREAD & _ID_MASK)

    def draw(self, pool: str) -> int | None:
        """Take the next row that was set aside for this cell under the name `pool`; None when they ran out."""
        if self._mark_drawn is None:
            self._mark_drawn = dict(self._drawn)
        index = self._slot + self._drawn.get(pool, 0) * self._run.slots
        rows = self._run.pools[pool]
        if index >= len(rows):
            return None
        self._drawn[pool] = self._drawn.get(pool, 0) + 1
        return rows[index]


@final
class Mix:
    """Transactions with weights. Weights are relative; names must differ.

    `workload` is what surrounds a cell of this mix (ids, set-aside rows, invariants); None for a mix without one.
    """

    __slots__ = ("_cumulative", "transactions", "weights", "workload")

    def __init__(self, weights: Mapping[Transaction, float], *, workload: CellWorkload | None = None) -> None:
        if not weights:
            raise ValueError("a mix needs at least one transaction")
        for one, weight in weights.items():
            if not isinstance(one, Transaction):
                raise TypeError(f"a mix takes functions decorated with @transaction, not {one!r}")
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                raise TypeError(f"the weight of {one.name} must be a number, not {weight!r}")
            if not 0 < weight < float("inf"):
                raise ValueError(f"the weight of {one.name} must be a positive number, not {weight!r}")
        names = [one.name for one in weights]
        if len(set(names)) != len(names):
            raise ValueError(f"two transactions of a mix have the same name: {sorted(names)}")
        self.transactions: Final = tuple(weights)  #: in the order given
        total = sum(weights.values())
        #: name -> share, adding up to 1
        self.weights: Final = MappingProxyType({one.name: weight / total for one, weight in weights.items()})
        self.workload: Final = workload
        running = 0.0
        cumulative = []
        for one in self.transactions:
            running += self.weights[one.name]
            cumulative.append(running)
        cumulative[-1] = 1.0
        self._cumulative = cumulative

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self.transactions)

    def choose(self, rng: random.Random) -> Transaction:
        """Draw a transaction by weight."""
        return self.transactions[bisect_right(self._cumulative, rng.random())]

    def __reduce__(self) -> tuple[Any, ...]:
        return _mix, ({one: self.weights[one.name] for one in self.transactions}, self.workload)

    def without_workload(self) -> Mix:
        """Return the same mix without its workload: what travels to a worker."""
        return Mix({one: self.weights[one.name] for one in self.transactions})


def _mix(weights: dict[Transaction, float], workload: CellWorkload | None) -> Mix:
    return Mix(weights, workload=workload)
