"""The signed list of cases that are known not to pass on the embedded engine."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final, final

from tests.local.conformance.case import PROTOCOLS

_FILE: Final = Path(__file__).parent / "known_failures.toml"


@final
@dataclass(frozen=True, slots=True)
class KnownFailure:
    """One case that is expected to fail."""

    id: str
    reason: str
    by: str
    since: date
    protocols: tuple[str, ...] = PROTOCOLS  #: those with which it fails


def known_failures() -> dict[str, KnownFailure]:
    """Return the list by the cases' ids."""
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8")).get("case", ())
    failures = [KnownFailure(**{**entry, "protocols": tuple(entry.get("protocols", PROTOCOLS))}) for entry in entries]
    return {failure.id: failure for failure in failures}
