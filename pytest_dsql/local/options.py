"""How an engine is to be: the one place where its options are checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, final

from pytest_dsql.errors import UsageError
from pytest_dsql.local import limits
from pytest_dsql.local.account import Kind
from pytest_dsql.local.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from pytest_dsql.local.trouble import Trouble

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
    durable: bool | None = None  #: whether a commit is on disk before it is answered; None: where `data` is kept
    asleep: bool = False  #: clusters begin INACTIVE, and wake when somebody connects
    limits: Limits = DEFAULT  #: of every cluster
    peers: tuple[str, ...] = ()  #: further Regions in which each cluster has an endpoint, as a multi-Region cluster has
    latency: str = "none"  #: a latency profile's name, or its file (an absolute path)
    faults: Path | None = None  #: a file of faults
    seed: int = 1  #: of everything random about latency and faults

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise UsageError(f"port {self.port} is not between 1 and 65535")
        for region in (*([self.region] if self.region is not None else ()), *self.peers):
            if not _REGION.fullmatch(region):
                raise UsageError(f"region {region!r} is not the name of a region, like us-east-1")
        if len({self.region or DEFAULT_REGION, *self.peers}) <= len(self.peers):
            raise UsageError("the Regions of a cluster must differ from each other")
        self.trouble()

    def trouble(self) -> Trouble:
        """Read what the latency profile and the file of faults say. Raises UsageError."""
        from pytest_dsql.local.trouble import read_trouble

        return read_trouble(self.seed, self.latency, self.faults)

    def with_settings(self, settings: Mapping[str, str]) -> EngineOptions:
        """These options, changed by `NAME=VALUE` settings. Raises UsageError for unknown names and bad values."""
        options = self
        for name, value in settings.items():
            setting = SETTINGS.get(name)
            if setting is None:
                raise UsageError(f"unknown setting {name!r}; known: {', '.join(SETTINGS)}")
            options = setting.change(options, value)
        return options

    def to_json(self) -> dict[str, Any]:
        """The options as JSON values."""
        return {
            "port": self.port,
            "data": str(self.data) if self.data is not None else None,
            "region": self.region,
            "rules": self.rules.isoformat() if self.rules is not None else None,
            "account": self.account,
            "durable": self.durable,
            "asleep": self.asleep,
            "limits": asdict(self.limits),
            "peers": list(self.peers),
            "latency": self.latency,
            "faults": str(self.faults) if self.faults is not None else None,
            "seed": self.seed,
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
            durable=values["durable"],
            asleep=values["asleep"],
            limits=Limits(**values["limits"]),
            peers=tuple(values["peers"]),
            latency=values["latency"],
            faults=Path(values["faults"]) if values["faults"] is not None else None,
            seed=values["seed"],
        )


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """One name of `--set NAME=VALUE`: `change` gives the options with this value, or raises UsageError."""

    meaning: str  #: in a few words, with the form of its values
    change: Callable[[EngineOptions, str], EngineOptions]


def _day(value: str) -> date:
    try:
        day = date.fromisoformat(value)
    except ValueError:
        raise UsageError(f"rules={value}: not a day; write it like rules=2026-07-01") from None
    if day < AVAILABLE:
        raise UsageError(f"rules={value}: the rules begin with DSQL's general availability, {AVAILABLE}")
    return day


def _switch(name: str, value: str) -> bool:
    if value not in ("on", "off"):
        raise UsageError(f"{name}={value}: write {name}=on or {name}=off")
    return value == "on"


#: Of those settings that are no limits of DSQL's: what they mean.
_OWN_TIMES: Final = {
    "job_build_s": "seconds that an asynchronous job takes ({shown}; on DSQL 5 to 60 even for an empty table)",
    "wake_s": "seconds for which a cluster that sleeps refuses connections after the first one ({shown})",
}


def _limit(name: str) -> Setting:
    value = getattr(DEFAULT, name)
    shown = value if isinstance(value, int) else f"{value:g}"
    meaning = _OWN_TIMES.get(name, "DSQL's: {shown}").format(shown=shown)
    return Setting(meaning, lambda options, text: _with_limit(options, name, text))


def _with_limit(options: EngineOptions, name: str, value: str) -> EngineOptions:
    return replace(options, limits=options.limits.changed({name: value}))


def _with_regions(options: EngineOptions, value: str) -> EngineOptions:
    first, *peers = re.split(r"[+,]", value)
    if not peers:
        raise UsageError(f"regions={value}: name two at least, like regions=us-east-1+us-east-2")
    return replace(options, region=first, peers=tuple(peers))


def _with_seed(options: EngineOptions, value: str) -> EngineOptions:
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise UsageError(f"seed={value}: a whole number, 0 or more")
    return replace(options, seed=int(value))


#: The names that `with_settings` knows. A new kind of setting is a line here and a field of EngineOptions.
SETTINGS: Final[Mapping[str, Setting]] = {
    "region": Setting(
        f"the clusters' region ({DEFAULT_REGION})", lambda options, value: replace(options, region=value)
    ),
    "rules": Setting(
        "YYYY-MM-DD: DSQL as it was on that day", lambda options, value: replace(options, rules=_day(value))
    ),
    "durable": Setting(
        "on or off: a commit is on disk before it is answered (on with --data, else off)",
        lambda options, value: replace(options, durable=_switch("durable", value)),
    ),
    "asleep": Setting(
        "on or off: clusters begin INACTIVE, and wake when somebody connects (off)",
        lambda options, value: replace(options, asleep=_switch("asleep", value)),
    ),
    "regions": Setting(
        "two Regions or more, like us-east-1+us-east-2: an endpoint in each, one data set behind them", _with_regions
    ),
    "seed": Setting("a whole number: of everything random about latency and faults (1)", _with_seed),
    **{name: _limit(name) for name in limits.NAMES},
}


def settings_help() -> str:
    """What each setting means, a line each."""
    width = max(map(len, SETTINGS))
    return "\n".join(f"  {name:{width}}  {setting.meaning}" for name, setting in SETTINGS.items())
