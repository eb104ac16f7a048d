"""Latency profiles: dated data files that say how long each part of DSQL's work takes, and how far the client is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, final

from pytest_dsql.errors import UsageError
from pytest_dsql.local.documents import Document, Place
from pytest_dsql.local.latency.distribution import Constant, Distribution, LogNormal, Quantiles

_PROFILES: Final = Path(__file__).parent / "profiles"
#: Nothing is injected.
NONE: Final = "none"

#: More than this is a mistake in the unit: files say milliseconds.
_MOST_MS: Final = 600_000.0

_ZERO: Final = Constant(0.0)


@final
@dataclass(frozen=True, slots=True)
class Connecting:
    """The phases of a new connection, the round trips in them included."""

    tcp: Distribution = _ZERO
    tls: Distribution = _ZERO
    authentication: Distribution = _ZERO
    startup: Distribution = _ZERO


@final
@dataclass(frozen=True, slots=True)
class Serving:
    """What the server needs for a statement, without the way there and back."""

    begin: Distribution = _ZERO
    point_read: Distribution = _ZERO  #: by equality, neither sorted nor grouped
    read: Distribution = _ZERO
    insert: Distribution = _ZERO
    update: Distribution = _ZERO
    delete: Distribution = _ZERO
    ddl: Distribution = _ZERO
    other: Distribution = _ZERO  #: SET, SHOW, CALL, ...


@final
@dataclass(frozen=True, slots=True)
class Committing:
    """What a COMMIT needs. An autocommit statement that writes needs `writing` beside its own time."""

    reading: Distribution = _ZERO  #: nothing was written; ROLLBACK too
    writing: Distribution = _ZERO


@final
@dataclass(frozen=True, slots=True)
class Clients:
    """What holds for the clients of one Region."""

    rtt: Distribution = _ZERO
    connect: Connecting = field(default_factory=Connecting)
    statement: Serving = field(default_factory=Serving)
    commit: Committing = field(default_factory=Committing)


@final
@dataclass(frozen=True, slots=True)
class Profile:
    """A named profile. The first Region's clients get `regions[0]`, the second's `regions[1]` or else the last."""

    name: str
    about: str = ""
    measured: date | None = None
    sources: tuple[str, ...] = ()
    regions: tuple[Clients, ...] = (Clients(),)

    def region(self, number: int) -> Clients:
        """What holds for the clients of the engine's n-th Region, counted from 0."""
        return self.regions[min(number, len(self.regions) - 1)]


#: The profile that injects nothing.
OFF: Final = Profile(NONE, "the engine's own speed")


def names() -> list[str]:
    """The profiles that come with the engine."""
    return [NONE, *sorted(file.stem for file in _PROFILES.glob("*.toml"))]


def load(name: str) -> Profile:
    """The profile of this name, or the one in the TOML file of this name. Raises UsageError."""
    if name == NONE:
        return OFF
    if name.endswith(".toml"):
        return parse(Document.read(Path(name)), Path(name).stem)
    file = _PROFILES / f"{name}.toml"
    if "/" in name or "\\" in name or not file.is_file():
        raise UsageError(
            f"no latency profile {name!r}: name one of {', '.join(names())}, or a file that ends with .toml"
        )
    return parse(Document.read(file), name)


_DESCRIBING: Final = ("about", "measured", "sources", "published")
_PARTS: Final[Mapping[str, type]] = {"connect": Connecting, "statement": Serving, "commit": Committing}


def parse(document: Document, name: str) -> Profile:
    """The profile in a document. Raises UsageError with the line of what is wrong."""
    values = document.table(
        document.values, (), ("about", "measured", "sources", "published", "rtt", *_PARTS, "region")
    )
    base = _place(document, values, (), Clients())
    measured = values.get("measured")
    if not (measured is None or type(measured) is date):
        document.fail(("measured",), "expected a day, like 2026-09-29")
    regions = values.get("region", [])
    if not isinstance(regions, list):
        document.fail(("region",), "write [[region]] for each Region, the first one first")
    places = []
    for number, region in enumerate(regions):
        at: Place = ("region", number)
        places.append(_place(document, document.table(region, at, ("about", "rtt", *_PARTS)), at, base))
    return Profile(
        name=name,
        about=str(values.get("about", "")),
        measured=measured,
        sources=tuple(map(str, values.get("sources", ()))),
        regions=tuple(places) or (base,),
    )


def _place(document: Document, values: Mapping[str, Any], at: Place, base: Clients) -> Clients:
    place = base
    if "rtt" in values:
        place = replace(place, rtt=_distribution(document, values["rtt"], (*at, "rtt")))
    for part, kind in _PARTS.items():
        if part in values:
            table = document.table(values[part], (*at, part), tuple(one.name for one in fields(kind)))
            given = {key: _distribution(document, value, (*at, part, key)) for key, value in table.items()}
            place = replace(place, **{part: replace(getattr(place, part), **given)})
    return place


def _distribution(document: Document, value: Any, at: Place) -> Distribution:
    """A distribution: `1.5`, `{ p50 = 1.2, p99 = 2.4, max = 50 }`, or `{ quantiles = [[0, 1.0], [1, 9.0]] }`."""
    if isinstance(value, dict) and "quantiles" in value:
        return _quantiles(document, document.table(value, at, ("quantiles",))["quantiles"], at)
    if isinstance(value, dict):
        table = document.table(value, at, ("p50", "p99", "max"))
        if "p50" not in table or "p99" not in table:
            document.fail(at, "expected both p50 and p99")
        p50, p99 = (_ms(document, table[key], (*at, key)) for key in ("p50", "p99"))
        if not 0 < p50 <= p99:
            document.fail(at, "expected 0 < p50 <= p99")
        most = _ms(document, table["max"], (*at, "max")) if "max" in table else _MOST_MS
        if most < p99:
            document.fail((*at, "max"), "less than p99")
        return LogNormal.fitted(p50, p99, most)
    return Constant(_ms(document, value, at))


def _quantiles(document: Document, rows: Any, at: Place) -> Quantiles:
    pairs = isinstance(rows, list) and all(isinstance(row, list) and len(row) == 2 for row in rows)
    if not pairs or len(rows) < 2:
        document.fail(at, "expected quantiles as [[share, ms], ...], two at least")
    shares = tuple(float(row[0]) if _is_number(row[0]) else -1.0 for row in rows)
    values = tuple(_ms(document, row[1], at) for row in rows)
    rising = all(one < next_ for one, next_ in pairwise(shares))
    if not (rising and shares[0] == 0 and shares[-1] == 1):
        document.fail(at, "the quantiles' shares must rise from 0 to 1")
    if list(values) != sorted(values):
        document.fail(at, "the quantiles' values must not fall")
    return Quantiles(shares, values)


def _ms(document: Document, value: Any, at: Place) -> float:
    if not _is_number(value) or not 0 <= value <= _MOST_MS:
        document.fail(at, f"expected milliseconds, 0 to {_MOST_MS:,.0f}, not {value!r}")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
