"""What a worker notes of every request, sent on in batches; and how the batches become one cell's samples."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import sub
from typing import Final, TypeAlias, final

from pytest_dsql.load.health import WorkerHealth
from pytest_dsql.load.measurement import ConnectStats, Kind, Outcome, Samples
from pytest_dsql.transaction import Transaction

_COLUMNS: Final = ("intended_ns", "latency_ns", "wait_ns", "service_ns", "backoff_ns", "outcome", "attempts")
_COMMITTED: Final = (int(Outcome.OK), int(Outcome.OK_RETRIED))


#: Intended starts and ends of requests, by the clock; in open loop also how long each waited before it was sent (the
#: third array is empty in closed loop, where none waits).
Clean: TypeAlias = "tuple[array[int], array[int], array[int]]"


@final
@dataclass(slots=True)
class Batch:
    """What happened since the last batch, of one worker: plain data that pickles fast."""

    #: one per transaction of the mix: the requests that committed at the first attempt
    clean: list[Clean]
    samples: list[Samples]  #: one per transaction of the mix: the other requests of the window
    committed: list[int]  #: per transaction, warm-up and drain included
    ambiguous: list[int]  #: likewise; a cancelled request whose COMMIT was under way counts here
    outcomes: list[int]  #: requests by `Outcome`, warm-up and drain included
    errors: dict[str, int]  #: failed attempts by SQLSTATE, warm-up and drain included


@final
@dataclass(frozen=True, slots=True)
class Done:
    """A worker's last word about a cell."""

    connect: ConnectStats
    health: WorkerHealth | None  #: None when the window never opened
    arrivals: int  #: requests begun, warm-up included: as many as outcomes were reported


@final
class Recorder:
    """The requests of one worker: samples of the window, and counts of everything."""

    __slots__ = ("_batch", "_kinds", "_names", "_window", "clean", "recorded")

    def __init__(self, transactions: Sequence[Transaction], *, window_start_ns: int, window_end_ns: int) -> None:
        self._names = [one.name for one in transactions]
        self._kinds = [one.kind for one in transactions]
        self._window = (window_start_ns, window_end_ns)
        self.recorded = 0  #: requests that ended and were taken
        #: Per transaction, the requests that committed at once. Sessions append to them directly: two appends are all
        #: that the usual request costs (three in open loop); everything else about it follows.
        self.clean: Final[tuple[Clean, ...]] = tuple((array("q"), array("q"), array("q")) for _ in transactions)
        self._batch = self._empty()

    def _empty(self) -> Batch:
        count = len(self._names)
        return Batch(
            clean=[],
            samples=[Samples(name, kind) for name, kind in zip(self._names, self._kinds, strict=True)],
            committed=[0] * count,
            ambiguous=[0] * count,
            outcomes=[0] * len(Outcome),
            errors={},
        )

    def error(self, transaction: int, intended_ns: int, key: str, message: str) -> None:
        """Count a failed attempt under its SQLSTATE."""
        batch = self._batch
        batch.errors[key] = batch.errors.get(key, 0) + 1
        start, end = self._window
        if start <= intended_ns < end:
            samples = batch.samples[transaction]
            samples.errors[key] = samples.errors.get(key, 0) + 1
            samples.messages.setdefault(key, message)

    def ended(
        self,
        transaction: int,
        outcome: int,
        *,
        intended_ns: int,
        end_ns: int,
        backoff_ns: int,
        attempts: int,
        wait_ns: int = 0,
        in_doubt: bool = False,
    ) -> None:
        """Note the end of a request that did not commit at once. `in_doubt`: it may have committed all the same."""
        batch = self._batch
        batch.outcomes[outcome] += 1
        if outcome in _COMMITTED:
            batch.committed[transaction] += 1
        elif in_doubt:
            batch.ambiguous[transaction] += 1
        start, end = self._window
        if start <= intended_ns < end:
            samples = batch.samples[transaction]
            latency_ns = end_ns - intended_ns
            samples.intended_ns.append(intended_ns - start)
            samples.latency_ns.append(latency_ns)
            samples.wait_ns.append(wait_ns)
            samples.service_ns.append(latency_ns - wait_ns - backoff_ns)
            samples.backoff_ns.append(backoff_ns)
            samples.outcome.append(outcome)
            samples.attempts.append(attempts)

    def take(self) -> Batch:
        """Return what was noted since the last call."""
        batch, self._batch = self._batch, self._empty()
        for index, (starts, ends, waits) in enumerate(self.clean):
            batch.clean.append((starts[:], ends[:], waits[:]))
            batch.committed[index] += len(starts)
            batch.outcomes[Outcome.OK] += len(starts)
            del starts[:], ends[:], waits[:]
        self.recorded += sum(batch.outcomes)
        return batch


@final
@dataclass(slots=True)
class Tallies:
    """The batches of all workers, added up by transaction."""

    names: list[str]
    kinds: list[Kind]
    clean: list[Clean] = field(default_factory=list)
    parts: list[list[Samples]] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    ambiguous: list[int] = field(default_factory=list)
    outcomes: list[int] = field(default_factory=lambda: [0] * len(Outcome))
    errors: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, transactions: Sequence[Transaction]) -> Tallies:
        """Return empty tallies for a mix."""
        count = len(transactions)
        return cls(
            names=[one.name for one in transactions],
            kinds=[one.kind for one in transactions],
            clean=[(array("q"), array("q"), array("q")) for _ in range(count)],
            parts=[[] for _ in range(count)],
            committed=[0] * count,
            ambiguous=[0] * count,
        )

    def add(self, batch: Batch) -> None:
        """Add one worker's batch."""
        for columns, more in zip(self.clean, batch.clean, strict=True):
            for column, values in zip(columns, more, strict=True):
                column.extend(values)
        for index, samples in enumerate(batch.samples):
            if len(samples) or samples.errors:
                self.parts[index].append(samples)
            self.committed[index] += batch.committed[index]
            self.ambiguous[index] += batch.ambiguous[index]
        for outcome, count in enumerate(batch.outcomes):
            self.outcomes[outcome] += count
        for key, count in batch.errors.items():
            self.errors[key] = self.errors.get(key, 0) + count

    def samples(self, window_start_ns: int, window_end_ns: int) -> dict[str, Samples]:
        """Return the requests of the window: one `Samples` per transaction, merged in order of intended start."""
        merged = {}
        for name, kind, clean, parts in zip(self.names, self.kinds, self.clean, self.parts, strict=True):
            at_once = Samples(name, kind)
            fill_clean(at_once, clean, window_start_ns, window_end_ns)
            merged[name] = merge(Samples(name, kind), [at_once, *parts])
        return merged

    def spill(self, window_start_ns: int, window_end_ns: int) -> int:
        """Return how much more of what was to start in the window has committed than did so while it was open."""
        length_ns = window_end_ns - window_start_ns
        return sum(spilled(clean, window_start_ns, window_end_ns) for clean in self.clean) + sum(
            outcome in _COMMITTED and start + latency > length_ns
            for part in self.parts
            for one in part
            for start, latency, outcome in zip(one.intended_ns, one.latency_ns, one.outcome, strict=True)
        )


def spilled(clean: Clean, window_start_ns: int, window_end_ns: int) -> int:
    """Count requests that were to start in the window and committed after it, less earlier ones that did so in it."""
    starts, ends, _ = clean
    if not starts or (min(starts) >= window_start_ns and max(ends) <= window_end_ns):
        return 0
    late = early = 0
    for start, end in zip(starts, ends, strict=True):
        if start < window_start_ns:
            early += window_start_ns <= end <= window_end_ns
        elif end > window_end_ns:
            late += start < window_end_ns
    return late - early


def fill_clean(into: Samples, clean: Clean, window_start_ns: int, window_end_ns: int) -> None:
    """Add requests that committed at their first attempt, unless they were to start outside the window."""
    starts, ends, waits = clean
    inside = [window_start_ns <= start < window_end_ns for start in starts]
    starts = array("q", compress(starts, inside))
    count = len(starts)
    latencies = array("q", map(sub, compress(ends, inside), starts))
    waited = array("q", compress(waits, inside)) if waits else array("q", bytes(8 * count))
    into.intended_ns.extend(array("q", (start - window_start_ns for start in starts)))
    into.latency_ns.extend(latencies)
    into.wait_ns.extend(waited)
    into.service_ns.extend(array("q", map(sub, latencies, waited)))
    into.backoff_ns.extend(array("q", bytes(8 * count)))
    into.outcome.extend(array("B", bytes([Outcome.OK]) * count))
    into.attempts.extend(array("H", [1]) * count)


def merge(into: Samples, parts: Iterable[Samples]) -> Samples:
    """Fill `into` with the requests of `parts` in order of intended start, and return it."""
    columns: dict[str, array[int]] = {name: array(getattr(into, name).typecode) for name in _COLUMNS}
    for part in parts:
        for name in _COLUMNS:
            columns[name].extend(getattr(part, name))
        for key, count in part.errors.items():
            into.errors[key] = into.errors.get(key, 0) + count
        for key, message in part.messages.items():
            into.messages.setdefault(key, message)
    intended = columns["intended_ns"]
    order = sorted(range(len(intended)), key=intended.__getitem__)
    for name in _COLUMNS:
        column = columns[name]
        getattr(into, name).extend(array(column.typecode, map(column.__getitem__, order)))
    return into
