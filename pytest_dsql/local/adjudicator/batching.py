"""The log of a transaction in as few statements as certainly do the same. No I/O.

Statements of one text, each of which writes one row of its own (`sandbox/batches`), become one, and change places with
others of that kind. Two that are known to write the same row never do. A row must be missing to be inserted, and there
to be updated or deleted; so where another order matters otherwise (the row of an INSERT isn't always told, it may refer
to one that comes later, or have a key that is deleted first) something fails, or writes fewer rows. Who runs this does
the log again as it is then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

from pytest_dsql.local.adjudicator.sandbox.batches import Batch
from pytest_dsql.local.adjudicator.work import Entry
from pytest_dsql.local.gateway.run import NO_PARAMETERS

#: Fewer executions of a text aren't worth it.
MANY: Final = 16

#: The types of parameters that may be put into arrays, and these arrays' types: OIDs (PostgreSQL's pg_type.dat).
_ARRAYS: Final = {
    16: 1000,  # boolean
    17: 1001,  # bytea
    20: 1016,  # bigint
    21: 1005,  # smallint
    23: 1007,  # integer
    25: 1009,  # text
    114: 199,  # json
    700: 1021,  # real
    701: 1022,  # double precision
    1042: 1014,  # char
    1043: 1015,  # varchar
    1082: 1182,  # date
    1083: 1183,  # time
    1114: 1115,  # timestamp
    1184: 1185,  # timestamptz
    1186: 1187,  # interval
    1700: 1231,  # numeric
    2950: 2951,  # uuid
    3802: 3807,  # jsonb
}
_INTEGERS: Final = frozenset({20, 21, 23})
_TEXTS: Final = frozenset({25, 1043})
_UUID: Final = 2950
_NO_DIGITS: Final = str.maketrans("", "", "{}-")

#: A client's text, and the types that its Parse message gives to the parameters.
Parsed: TypeAlias = "tuple[bytes, bytes]"


@final
@dataclass(slots=True)
class Step:
    """Statements that follow each other. With a batch they are of one text, and no two of them write the same row."""

    whole: bool = False  #: one that has written many rows
    batch: Batch | None = None
    types: tuple[int, ...] = ()  #: of the batch's parameters
    formats: tuple[int, ...] = ()
    entries: list[Entry] = field(default_factory=list)
    values: list[list[bytes | None]] = field(default_factory=list)

    @property
    def at_once(self) -> bool:
        """Whether it is done as one statement."""
        return self.whole or len(self.values) >= MANY

    @property
    def by_index(self) -> bool:
        """Whether each row is to be looked up, however large the table is."""
        return not self.whole

    @property
    def rows(self) -> int:
        """How many rows that one statement has to write."""
        return sum(entry.rows or 0 for entry in self.entries)

    def execution(self) -> tuple[bytes, bytes, bytes]:
        """That one statement, as `Entry.execution` gives it."""
        if self.whole:
            many = self.entries[0].of_many_rows()
            assert many is not None
            return many
        assert self.batch is not None
        count = len(self.types).to_bytes(2, "big")
        types = count + b"".join(_ARRAYS[oid].to_bytes(4, "big") for oid in self.types)
        bound = [count, *(form.to_bytes(2, "big") for form in self.formats), count]
        for place, (oid, form) in enumerate(zip(self.types, self.formats, strict=True)):
            column = [values[place] for values in self.values]
            array = _binary_array(oid, column) if form else _text_array(column)
            bound += (len(array).to_bytes(4, "big"), array)
        return self.batch.text().encode(), types, b"".join(bound) + NO_PARAMETERS


def undescribed(log: Sequence[Entry]) -> dict[Parsed, bytes]:
    """The texts that are worth a batch, and don't say what all of their parameters' types are.

    With each goes what to ask PostgreSQL about in its place, in the sandbox.
    """
    counted: Counter[Parsed] = Counter()
    first: dict[Parsed, tuple[Entry, Batch]] = {}
    for entry in log:
        batch = _batch(entry)
        if batch is not None:
            parsed = (entry.sql, entry.types)
            counted[parsed] += 1
            if counted[parsed] == 1:
                first[parsed] = (entry, batch)
    return {
        parsed: entry.execution(sandbox=True)[0]
        for parsed, (entry, batch) in first.items()
        if counted[parsed] >= MANY and 0 in _types(entry.types, batch)
    }


def steps(
    log: Sequence[Entry], described: Mapping[Parsed, tuple[int, ...]], stand_ins: Sequence[Entry] = ()
) -> list[Step]:
    """The log, with the parameters' types where they had to be asked for.

    `stand_ins` are statements that do the same, one for each, and of which more are alike.
    """
    originals, log = log, stand_ins or log
    upserted = {batch.table.oid for entry in log if (batch := _batch(entry)) is not None and batch.upserts}
    made: list[Step] = []
    slots: dict[Hashable, _Slots | None] = {}
    opened: dict[Hashable, int] = {}  #: the last step of each text, by its number
    of_row: dict[Hashable, int] = {}  #: the last step that writes a row
    for entry, original in zip(log, originals, strict=True):
        batch = _batch(entry)
        found = values = row = None
        if batch is not None:
            text = (id(batch), entry.types, entry.bound[: 2 + 2 * int.from_bytes(entry.bound[:2], "big")])
            if text not in slots:
                slots[text] = _slots(entry, batch, described)
            found = slots[text]
            values = None if found is None else _values(entry.bound)
            row = None if found is None or values is None else found.row(values)
        if batch is None or found is None or values is None or not (row or _fails_if_misplaced(batch, upserted)):
            opened, of_row = {}, {}
            made.append(Step(_is_large(original), entries=[original]))
            continue
        number = opened.get(text, -1)
        if number < 0 or (row is not None and of_row.get(row, -1) >= number):
            number = opened[text] = len(made)
            made.append(Step(False, batch, found.types, found.formats))
        made[number].entries.append(original)
        made[number].values.append([values[place] for place in found.places])
        if row is not None:
            of_row[row] = number
    return made


def _is_large(entry: Entry) -> bool:
    return (entry.rows or 0) >= MANY and entry.of_many_rows() is not None


def _fails_if_misplaced(batch: Batch, upserted: AbstractSet[int]) -> bool:
    """Whether a statement whose row isn't known fails, or another one does, where the order matters."""
    return batch.inserts and batch.table.oid not in upserted


def parts(made: Sequence[Step]) -> Iterator[Step | Entry]:
    """What is done at once, and the statements that are done one by one."""
    for step in made:
        if step.at_once:
            yield step
        else:
            yield from step.entries


def _batch(entry: Entry) -> Batch | None:
    if entry.texts is None or entry.copied is not None or entry.captured is not None or not entry.rows:
        return None
    return entry.texts.batch


@final
@dataclass(frozen=True, slots=True)
class _Slots:
    """What the parameters of a batch are, in all executions that have them in the same formats."""

    places: tuple[int, ...]  #: of those that the text names, among the values that are bound
    types: tuple[int, ...]
    formats: tuple[int, ...]
    table: int
    key: tuple[tuple[int, int, int], ...] | None  #: place, type and format of the primary key's columns

    def row(self, values: Sequence[bytes | None]) -> Hashable | None:
        """What is the same exactly if two executions name the same row; None: it isn't known which one."""
        if self.key is None:
            return None
        row = tuple(_canonical(oid, form, values[place]) for place, oid, form in self.key)
        return None if None in row else (self.table, row)


def _slots(entry: Entry, batch: Batch, described: Mapping[Parsed, tuple[int, ...]]) -> _Slots | None:
    """The same for an entry of the log; None where the parameters can't be put into arrays."""
    given = described.get((entry.sql, entry.types)) or _types(entry.types, batch)
    values = _values(entry.bound)
    places = tuple(number - 1 for number in batch.numbers)
    if min(len(given), len(values)) <= places[-1] or not all(given[place] in _ARRAYS for place in places):
        return None
    count = int.from_bytes(entry.bound[:2], "big")
    formats = [int.from_bytes(entry.bound[at : at + 2], "big") for at in range(2, 2 + 2 * count, 2)]
    if count <= 1:
        # None stands for texts, one for all.
        formats = (formats or [0]) * len(values)
    key = None
    if batch.key is not None:
        key = tuple((number - 1, given[number - 1], formats[number - 1]) for number in batch.key)
    types = tuple(given[place] for place in places)
    return _Slots(places, types, tuple(formats[place] for place in places), batch.table.oid, key)


def _canonical(oid: int, form: int, value: bytes | None) -> Hashable | None:
    if value is None:
        return None
    if oid in _INTEGERS:
        return int.from_bytes(value, "big", signed=True) if form else _integer(value)
    if oid in _TEXTS:
        return value
    if oid == _UUID:
        return value.hex() if form else value.decode().lower().translate(_NO_DIGITS)
    return None


def _integer(text: bytes) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None  # PostgreSQL knows more ways to write one


def _types(types: bytes, batch: Batch) -> tuple[int, ...]:
    """The types that a Parse message gives to a batch's parameters, and 0 where it gives none."""
    count = int.from_bytes(types[:2], "big")
    given = tuple(int.from_bytes(types[place : place + 4], "big") for place in range(2, 2 + 4 * count, 4))
    return given + (0,) * (batch.numbers[-1] - count)


def _values(bound: bytes) -> list[bytes | None]:
    """The values of a Bind message."""
    place = 2 + 2 * int.from_bytes(bound[:2], "big")
    values: list[bytes | None] = []
    number = int.from_bytes(bound[place : place + 2], "big")
    place += 2
    for _ in range(number):
        length = int.from_bytes(bound[place : place + 4], "big", signed=True)
        place += 4
        values.append(None if length < 0 else bound[place : place + length])
        place += max(length, 0)
    return values


def _text_array(values: Sequence[bytes | None]) -> bytes:
    return b"{" + b",".join(map(_quoted, values)) + b"}"


def _quoted(value: bytes | None) -> bytes:
    return b"NULL" if value is None else b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _binary_array(oid: int, values: Sequence[bytes | None]) -> bytes:
    """One dimension that begins at 1, in the form of PostgreSQL's `array_recv`."""
    heading = (1, int(None in values), oid, len(values), 1)
    return b"".join((*(number.to_bytes(4, "big") for number in heading), *_elements(values)))


def _elements(values: Sequence[bytes | None]) -> Iterator[bytes]:
    for value in values:
        yield b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value
