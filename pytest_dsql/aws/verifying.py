"""What is left in the account: inventories and tags against what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, final

from pytest_dsql.aws.failures import AwsError, Failure, one_line
from pytest_dsql.aws.inventory import Entry, Inventory, inventories, regions_used
from pytest_dsql.aws.reaper import Removal, other_account, reap, remove
from pytest_dsql.aws.resources import KINDS, resource
from pytest_dsql.aws.run import is_region
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.aws.waiting import SETTLING_S, Clock
from pytest_dsql.errors import DsqlError, MissingExtra, UsageError

RUNNING: Final = "its run goes on"
KEPT: Final = "kept"
LEFT: Final = "left behind"
EXPIRED: Final = "its maximum life is over"
ELSEWHERE: Final = "of a run that was started elsewhere, or whose inventory is lost"


@final
@dataclass(frozen=True, slots=True)
class Found:
    """Something of ours that exists."""

    entry: Entry
    state: str  #: one of the constants above

    def __str__(self) -> str:
        return f"{self.entry}, run {self.entry.run}: {self.state}"


@final
@dataclass(slots=True)
class Survey:
    """What `verify` found."""

    found: list[Found] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)  #: what could not be looked at although a run has used it
    #: By Region and error code: kinds that could not be looked for, and that no run here has used.
    unseen: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    regions: set[str] = field(default_factory=set)  #: where things with our tag were looked for

    @property
    def remaining(self) -> list[Found]:
        """What exists although no run of this user on this machine is using it."""
        return [one for one in self.found if one.state != RUNNING]


def survey(
    *,
    profile: str | None = None,
    role: str | None = None,
    regions: Iterable[str] = (),
    run: str | None = None,
    directory: Path | None = None,
    clock: Clock | None = None,
) -> Survey:
    """Compare what inventories and tags say with the account, in every Region that a run of this user has used.

    `regions` are looked through as well. Raises MissingExtra, and UsageError for what is no Region; what can't be
    looked at is in the answer.
    """
    regions = _checked(regions)
    clock = clock or Clock()
    result = Survey()
    kinds: set[str] = set()
    known_runs: set[str] = set()
    wanted = set(regions) | regions_used(directory)
    for path in inventories(directory):
        try:
            inventory = Inventory.read(path)
        except FileNotFoundError:
            continue
        known_runs.add(inventory.run)
        wanted.update(one.region for one in inventory.entries)
        kinds.update(one.kind for one in inventory.entries)
        if run in (None, inventory.run):
            _look_at_entries(inventory, profile, role, clock, result)
    clients = Clients(profile=profile, role=role)
    if not _on_aws(clients, wanted, result):
        return result
    if run is not None and not wanted and run not in known_runs:
        result.doubts.append(f"run {run}: it has no inventory here; say where its Region is, --region")
    result.regions = wanted
    known = {one.entry.arn for one in result.found}
    for entry in _scan(clients, sorted(wanted), kinds, result):
        if entry.arn not in known and run in (None, entry.run):
            known.add(entry.arn)
            result.found.append(Found(entry, _state_of_tagged(entry, directory, clock)))
    return result


def _checked(regions: Iterable[str]) -> tuple[str, ...]:
    """Return Regions that a person names: one that is misspelt would be looked through in vain."""
    named = tuple(regions)
    for one in named:
        if not is_region(one):
            raise UsageError(f"--region: {one!r} is not an AWS Region such as eu-central-1")
    return named


def _on_aws(clients: Clients, wanted: set[str], result: Survey) -> bool:
    """Add the user's default Region to those to look through; False where nobody can: without boto3 or credentials.

    One line says so, instead of one for each thing that can't be looked at.
    """
    wanted -= {one for one in wanted if not is_region(one)}  # another provider's
    try:
        if clients.default_region:
            wanted.add(clients.default_region)
        if wanted:
            _ = clients.account
    except MissingExtra as error:
        if wanted:
            result.doubts.append(str(error))
        return False
    except DsqlError as error:  # a profile that isn't there, or no credentials where there is something to look at
        result.doubts.append(f"the account: {error}")
        return False
    return True


def _look_at_entries(inventory: Inventory, profile: str | None, role: str | None, clock: Clock, result: Survey) -> None:
    if not inventory.remaining:
        return
    try:
        clients = Clients(profile=profile or inventory.profile, role=role or inventory.role)
        reason = other_account(clients, inventory)
    except DsqlError as error:
        reason = str(error)
    if reason is not None:
        result.doubts.append(f"run {inventory.run}: {reason}")
        return
    for entry in inventory.remaining:
        try:
            knows = resource(entry.kind)
            arn = knows.find(clients, entry)
            if arn is not None:
                result.found.append(Found(replace(entry, arn=arn), _state_of(inventory, entry.owner, clock)))
        except Exception as error:  # of another provider's kind, or a database's
            result.doubts.append(f"{entry}, run {inventory.run}: {one_line(str(error))}")


def _state_of(inventory: Inventory, owner: str | None, clock: Clock) -> str:
    if inventory.expired(clock.now()):
        return EXPIRED
    if inventory.held():
        return RUNNING
    return KEPT if owner in inventory.kept else LEFT


def _state_of_tagged(entry: Entry, directory: Path | None, clock: Clock) -> str:
    for path in inventories(directory):
        if path.name == f"{entry.run}.jsonl":
            inventory = Inventory.read(path)
            owner = next(
                (one.owner for one in inventory.remaining if (one.kind, one.name) == (entry.kind, entry.name)), None
            )
            return _state_of(inventory, owner, clock)
    return EXPIRED if tag_expired(entry, clock.now()) else ELSEWHERE


def tag_expired(entry: Entry, now: datetime) -> bool:
    """Tell whether the tag of something says that its maximum life is over."""
    try:
        expires = datetime.fromisoformat(str(entry.details["expires"]))
    except (KeyError, ValueError):
        return False  # it doesn't say
    return now >= (expires if expires.tzinfo else expires.replace(tzinfo=UTC))


def _scan(clients: Clients, regions: Iterable[str], used: set[str], result: Survey) -> list[Entry]:
    """Return everything with our tag; kinds that may not be listed are noted."""
    found: list[Entry] = []
    for region in regions:
        for kind in sorted({*KINDS, *used}):
            try:
                found += resource(kind).scan(clients, region)
            except AwsError as error:
                if kind in used:
                    result.doubts.append(f"{kind} in {region}: {error}")
                else:
                    result.unseen.setdefault((region, error.code), []).append(kind)
                if error.failure is Failure.CREDENTIALS:
                    return found  # the same for all others
            except Exception as error:
                result.doubts.append(f"{kind} in {region}: {one_line(str(error))}")
    return found


def reap_all(
    *,
    profile: str | None = None,
    role: str | None = None,
    regions: Iterable[str] = (),
    run: str | None = None,
    lost: bool = False,
    directory: Path | None = None,
    clock: Clock | None = None,
    settling_s: float = SETTLING_S,
    say: Callable[[str], None] = lambda _text: None,
) -> tuple[Removal, Survey]:
    """Remove what inventories name (see `reaper.reap`), and what has our tag and has expired.

    With `lost`, what has the tag of `run` goes before it has expired: its process and its inventory are gone. Returns
    what was removed, and what is there now.
    """
    clock, regions = clock or Clock(), _checked(regions)
    where = {"profile": profile, "role": role, "directory": directory, "run": run}
    removal = reap(**where, clock=clock, settling_s=settling_s, say=say)  # type: ignore[arg-type]
    before = survey(**where, regions=regions, clock=clock)  # type: ignore[arg-type]
    ownerless = [
        one.entry
        for one in before.found
        if one.state == EXPIRED or (one.state == ELSEWHERE and lost and one.entry.run == run)
    ]
    if not ownerless:
        return removal, before
    clients = Clients(profile=profile, role=role)
    for name in sorted({one.run for one in ownerless}):
        inventory = Inventory.create(name, account=clients.account, profile=profile, role=role, directory=directory)
        try:
            listed = {one.arn for one in inventory.remaining}
            for entry in ownerless:
                if entry.run == name and entry.arn not in listed:
                    intent = inventory.intend(entry.kind, entry.region, entry.name, owner=entry.owner)
                    inventory.created(intent, entry.arn)
            removal.add(remove(clients, inventory, clock=clock, settling_s=settling_s, say=say))
        finally:
            inventory.close()
    return removal, survey(**where, regions=regions, clock=clock)  # type: ignore[arg-type]
