"""The counts of a cell as they travel from another host: small, and no larger however many requests they stand for."""

from __future__ import annotations

import io
import pickle
import zlib
from array import array
from collections.abc import Iterable, Mapping
from itertools import accumulate
from operator import sub
from typing import Any, Final, TypeAlias, final

from pytest_dsql.load.buckets import Histogram
from pytest_dsql.load.digest import Condenser
from pytest_dsql.load.stretches import Stretches

#: Buckets in ascending order, each as its distance from the one before it, and how often they were counted: small whole
#: numbers, of which deflate leaves little more than a byte.
_Counts: TypeAlias = "tuple[array[int], array[int]]"


def pack_counts(counted: Condenser) -> bytes:
    """Return what was counted, for a host that `unpack_counts` it."""
    stream = io.BytesIO()
    _Packer(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(counted)
    return zlib.compress(stream.getbuffer())


def unpack_counts(packed: bytes) -> Condenser:
    """Return what `pack_counts` was given."""
    counted: Condenser = pickle.loads(zlib.decompress(packed))  # noqa: S301 - from a process of our own
    return counted


@final
class _Packer(pickle.Pickler):
    """Pickles counts by bucket as two columns each, and equal columns once."""

    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self._columns: Final[dict[bytes, array[int]]] = {}

    def reducer_override(self, value: Any) -> Any:
        """Say how the larger parts are pickled; all others are as usual."""
        if type(value) is Histogram:
            return _histogram, (self._counts(value.counts), value.n, value.total_ns, value.max_ns)
        if type(value) is Stretches:
            return _stretches, ([(stretch, self._counts(value[stretch])) for stretch in value],)
        return NotImplemented

    def _counts(self, counts: Mapping[int, int]) -> _Counts:
        buckets = sorted(counts)
        return self._column(map(sub, buckets, [0, *buckets])), self._column(map(counts.__getitem__, buckets))

    def _column(self, values: Iterable[int]) -> array[int]:
        """Return a column; where nothing waits or is retried, several parts of the latency have the same."""
        column = array("Q", values)
        return self._columns.setdefault(column.tobytes(), column)


def _rows(counts: _Counts) -> Iterable[tuple[int, int]]:
    distances, numbers = counts
    return zip(accumulate(distances), numbers, strict=True)


def _histogram(counts: _Counts, n: int, total_ns: int, max_ns: int) -> Histogram:
    return Histogram(dict(_rows(counts)), n, total_ns, max_ns)


def _stretches(several: Iterable[tuple[int, _Counts]]) -> Stretches:
    made = Stretches()
    for stretch, counts in several:
        for bucket, count in _rows(counts):
            made.count(stretch, bucket, count)
    made.pack()
    return made
