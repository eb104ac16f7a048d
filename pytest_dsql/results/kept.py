"""Keeps what whole cells measured, sample by sample, so that a resumed run takes them instead of measuring again.

One file for each cell in `cells/` beside the results file, until the run is complete: a line of JSON, then the samples,
compressed. The results file alone would not do: it has summaries, and a verdict counts samples.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import zlib
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar, final

from pytest_dsql.errors import DsqlError
from pytest_dsql.load import buckets, digest, series, stretches
from pytest_dsql.load import cost as costs
from pytest_dsql.load import measurement as measured
from pytest_dsql.load.measurement import ConnectStats, Measurement
from pytest_dsql.results.mask import masked_value
from pytest_dsql.results.whole import replace_whole

FOLDER: Final = "cells"
_FORMAT: Final = 1
#: Half of the size of the strongest, at a fifth of its time, for the mostly constant columns of a cell.
_COMPRESSION: Final = 1
_CLASS: Final = "$class"
_ARRAY: Final = "$array"
_NUMBERED: Final = "$numbered"
#: Whose data classes figures are made of.
_MODULES: Final = (measured, costs, digest, buckets, stretches, series)

#: What a cell is asked for: compared as a whole, in JSON.
Arguments: TypeAlias = Mapping[str, Any]
_Figures = TypeVar("_Figures", Measurement, ConnectStats)


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Kept(Generic[_Figures]):
    """What a file holds: the figures, and the violations of each invariant (None when the cell has none to check)."""

    figures: _Figures
    invariants: dict[str, int] | None
    simulated: bool


@final
class KeptCells:
    """The whole cells of one run.

    `whole` are the ids of the cells that this session may take: those which the interrupted one wrote to the results
    file. `taken` is told of each that is.
    """

    def __init__(
        self, run: Path, *, whole: frozenset[str] = frozenset(), taken: Callable[[str], None] = lambda _id: None
    ) -> None:
        self._folder: Final = run / FOLDER
        self._whole: Final = whole
        self._taken: Final = taken

    def keep(self, identity: str, arguments: Arguments, kept: Kept[Any]) -> None:
        """Write a cell's figures. Raises DsqlError when that fails."""
        blocks: list[bytes] = []
        head = {
            "format": _FORMAT,
            "id": masked_value(identity),
            "arguments": masked_value(arguments),
            "invariants": kept.invariants,
            "simulated": kept.simulated,
            "figures": _plain(kept.figures, blocks),
        }
        packed = zlib.compress(b"".join(blocks), _COMPRESSION)
        path = self._path(identity)
        try:
            path.parent.mkdir(exist_ok=True)
            replace_whole(path, json.dumps(head).encode() + b"\n" + packed)
        except OSError as error:
            raise DsqlError(f"can't keep the samples of a cell in {path}: {error.strerror or error}") from None

    def forget(self, identity: str) -> None:
        """Have nobody take this cell: it is being extended, and not whole until that is done."""
        with suppress(FileNotFoundError):
            self._path(identity).unlink()

    def take(self, identity: str, arguments: Arguments, kind: type[_Figures]) -> Kept[_Figures] | None:
        """Return the cell as the interrupted session measured it; None when it has to be measured now.

        That is so when it was not whole, when anything else was asked of it (`arguments`), or when another release
        kept other figures.
        """
        if masked_value(identity) not in self._whole:
            return None
        try:
            line, _, packed = self._path(identity).read_bytes().partition(b"\n")
            head = json.loads(line)
            if head["format"] != _FORMAT or head["arguments"] != json.loads(json.dumps(masked_value(arguments))):
                return None
            figures = _whole_again(head["figures"], memoryview(zlib.decompress(packed)))
        except (OSError, ValueError, KeyError, TypeError, zlib.error):
            return None
        if not isinstance(figures, kind):
            return None
        self._taken(identity)
        return Kept(figures, head["invariants"], head["simulated"])

    def _path(self, identity: str) -> Path:
        return self._folder / hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()


def forget_all(run: Path) -> None:
    """Remove the kept samples of a run that is complete."""
    folder = run / FOLDER
    with suppress(OSError):
        for one in folder.iterdir():
            one.unlink()
        folder.rmdir()


def expect_more(run: Path) -> None:
    """Mark a run that broke off, which may have kept nothing: it can be resumed, and a complete one can't."""
    (run / FOLDER).mkdir(exist_ok=True)


def _plain(value: Any, blocks: list[bytes]) -> Any:
    """Turn figures into what JSON has; arrays go to `blocks`, in little-endian order."""
    if isinstance(value, array):
        if sys.byteorder == "big":
            value = array(value.typecode, value)
            value.byteswap()
        blocks.append(value.tobytes())
        return {_ARRAY: [value.typecode, len(value)]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: _plain(getattr(value, one.name), blocks) for one in dataclasses.fields(value)}
        return {_CLASS: type(value).__name__, **fields}
    if isinstance(value, Mapping) and any(isinstance(name, int) for name in value):
        return {_NUMBERED: [[name, _plain(member, blocks)] for name, member in value.items()]}
    if isinstance(value, Mapping):
        return {str(name): _plain(member, blocks) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member, blocks) for member in value]
    return value


def _whole_again(value: Any, packed: memoryview) -> Any:
    """Turn what `_plain` made back into figures. Raises ValueError, KeyError or TypeError when it was not that."""
    place = 0

    def restored(value: Any) -> Any:
        nonlocal place
        if isinstance(value, list):
            return [restored(member) for member in value]
        if not isinstance(value, dict):
            return value
        if _ARRAY in value:
            typecode, length = value[_ARRAY]
            column = array(typecode)
            size = length * column.itemsize
            if place + size > len(packed):
                raise ValueError("samples are missing")
            column.frombytes(packed[place : place + size])
            place += size
            if sys.byteorder == "big":
                column.byteswap()
            return column
        if _NUMBERED in value:
            return {name: restored(member) for name, member in value[_NUMBERED]}
        members = {name: restored(member) for name, member in value.items()}
        return _made(members.pop(_CLASS), members) if _CLASS in members else members

    return restored(value)


def _made(name: str, fields: dict[str, Any]) -> Any:
    """Make one of the generator's own figures; nothing else is ever made of a file."""
    kind = next((found for module in _MODULES if (found := getattr(module, name, None)) is not None), None)
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        raise ValueError(f"no figures are called {name!r}")
    return kind(**fields)
