"""How an engine is to be: the one place where its options are checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Final, cast

from pytest_dsql.errors import UsageError
from pytest_dsql.local.account import Kind

#: Where an engine pretends to be unless told otherwise.
DEFAULT_REGION: Final = "us-east-1"

#: DSQL's general availability (AWS user guide, "Release notes"); the preview before it had other rules.
AVAILABLE: Final = date(2025, 5, 27)

_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")


@dataclass(frozen=True)
class EngineOptions:
    """What can be chosen when an engine starts. Raises UsageError for what can't be meant."""

    port: int = 0  #: TCP port on 127.0.0.1; 0: any free one
    data: Path | None = None  #: a directory for data that outlives the engine; None: data that vanishes with it
    region: str | None = None  #: part of host names and tokens; None: that of the data, else `DEFAULT_REGION`
    rules: date | None = None  #: DSQL as it was on this day; None: the newest rules known
    account: Kind | None = None  #: forces the way PostgreSQL gets an account that isn't root

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise UsageError(f"port {self.port} is not between 1 and 65535")
        if self.region is not None and not _REGION.fullmatch(self.region):
            raise UsageError(f"region {self.region!r} is not the name of a region, like us-east-1")

    def with_settings(self, settings: Mapping[str, str]) -> EngineOptions:
        """These options, changed by `NAME=VALUE` settings. Raises UsageError for unknown names and bad values."""
        options = self
        for name, value in settings.items():
            if name == "region":
                options = replace(options, region=value)
            elif name == "rules":
                options = replace(options, rules=_day(value))
            else:
                raise UsageError(f"unknown setting {name!r}; known: {', '.join(SETTINGS)}")
        return options

    def to_json(self) -> dict[str, Any]:
        """The options as JSON values."""
        return {
            "port": self.port,
            "data": str(self.data) if self.data is not None else None,
            "region": self.region,
            "rules": self.rules.isoformat() if self.rules is not None else None,
            "account": self.account,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> EngineOptions:
        """The options that `to_json` wrote."""
        return cls(
            port=values["port"],
            data=Path(values["data"]) if values["data"] is not None else None,
            region=values["region"],
            rules=date.fromisoformat(values["rules"]) if values["rules"] is not None else None,
            account=cast("Kind | None", values["account"]),
        )


#: The names `with_settings` knows, for help texts.
SETTINGS: Final = ("region", "rules")


def _day(value: str) -> date:
    try:
        day = date.fromisoformat(value)
    except ValueError:
        raise UsageError(f"rules={value}: not a day; write it like rules=2026-07-01") from None
    if day < AVAILABLE:
        raise UsageError(f"rules={value}: the rules begin with DSQL's general availability, {AVAILABLE}")
    return day
