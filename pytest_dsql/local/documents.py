"""TOML files that people write: read with their lines at hand, so that an error can say where it is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, final

from pytest_dsql.errors import UsageError

#: A place in a document: names of tables and keys, and numbers of entries in lists of tables.
Place: TypeAlias = "tuple[str | int, ...]"

_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
_NAME: Final = r"(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')"
_KEY: Final = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_PART: Final = re.compile(_NAME)


@final
class Document:
    """A parsed TOML file, its values, and `fail` for what is wrong with them. Raises UsageError when it is no TOML."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name  #: as errors call it
        try:
            self.values: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{name}: not TOML: {error}") from None
        self._lines = _lines(text)

    @classmethod
    def read(cls, file: Path) -> Document:
        """Read a file. Raises UsageError when it can't be read."""
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{file}: not UTF-8") from None
        return cls(text, str(file))

    def fail(self, place: Place, problem: str) -> NoReturn:
        """Raise UsageError about the value at `place`, with its line."""
        shown = ".".join(str(part) if isinstance(part, str) else f"#{part + 1}" for part in place)
        while place and place not in self._lines:
            place = place[:-1]
        line = f":{self._lines[place]}" if place else ""
        raise UsageError(f"{self.name}{line}: {shown}: {problem}" if shown else f"{self.name}{line}: {problem}")

    def table(self, value: Any, place: Place, known: Collection[str]) -> Mapping[str, Any]:
        """See that a value is a table with no other keys than the known ones, and give it."""
        if not isinstance(value, dict):
            self.fail(place, "expected a table")
        for key in value:
            if key not in known:
                self.fail((*place, key), f"unknown key; known: {', '.join(known)}")
        table: dict[str, Any] = value
        return table


def _lines(text: str) -> dict[Place, int]:
    """The line of each table and key. Keys of an inline table count as being on the line where it begins."""
    found: dict[Place, int] = {}
    counts: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _with_numbers(_parts(header[2]), counts)
            if header[1] == "[[":
                found.setdefault(table, number)
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            found[table] = number
        elif key := _KEY.match(line):
            found.setdefault((*table, *_parts(key[1])), number)
    return found


def _parts(dotted: str) -> Place:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _with_numbers(parts: Place, counts: Mapping[Place, int]) -> Place:
    """A header's path inside the newest entries of the lists of tables it goes through."""
    path: Place = ()
    for part in parts[:-1]:
        path = (*path, part)
        if path in counts:
            path = (*path, counts[path])
    return (*path, *parts[-1:])
