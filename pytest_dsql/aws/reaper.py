"""Removes what runs created: in dependency order, past failures, and only what an inventory or our tag owns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, final

from pytest_dsql.aws.failures import AwsError, Failure, one_line
from pytest_dsql.aws.inventory import Entry, Inventory, inventories
from pytest_dsql.aws.resources import Resource, resource
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.aws.waiting import SETTLING_S, Clock
from pytest_dsql.errors import DsqlError

#: How long one rank may take to go: a Multi-AZ instance takes about ten minutes.
PATIENCE_S: Final = 1800.0
#: Failures of a removal that pass: what depends on it may be gone by the next try.
_AGAIN: Final = frozenset({Failure.CONFLICT, Failure.THROTTLED, Failure.UNREACHABLE, Failure.SERVICE})
#: How often all that is left is tried from the top.
_ROUNDS: Final = 3


@final
@dataclass(slots=True)
class Removal:
    """What became of a removal."""

    removed: list[Entry] = field(default_factory=list)
    remaining: list[tuple[Entry, str]] = field(default_factory=list)  #: with the reason, one line

    def add(self, other: Removal) -> None:
        """Take over what another removal did."""
        self.removed += other.removed
        self.remaining += other.remaining


def remove(
    clients: Clients,
    inventory: Inventory,
    *,
    owner: str | None = None,
    spare: Collection[str] = (),
    clock: Clock | None = None,
    patience_s: float = PATIENCE_S,
    settling_s: float = SETTLING_S,
    say: Callable[[str], None] = lambda _text: None,
) -> Removal:
    """Remove everything of a run (or what one target or runner of it owns), and wait until it is gone.

    What belongs to the owners in `spare` is left alone.
    `patience_s` is each rank's. What can't be removed now remains in the inventory; raises nothing for it.
    """
    inventory.reload()
    entries = [one for one in inventory.remaining if owner in (None, one.owner) and one.owner not in spare]
    done = _Removing(clients, inventory, clock or Clock(), settling_s, say)
    for _round in range(_ROUNDS):
        done.failed.clear()
        for group in _by_rank(entries, done.failed):
            done.remove_together(group, patience_s)
        entries = [one for one in entries if one.number in done.failed]
        if not any(again for _reason, again in done.failed.values()):
            break
    removal = Removal(removed=done.removed)
    removal.remaining = [(inventory.entry(one.number), done.failed[one.number][0]) for one in entries]
    return removal


def _by_rank(entries: Iterable[Entry], failed: dict[int, tuple[str, bool]]) -> list[list[tuple[Entry, Resource]]]:
    groups: dict[int, list[tuple[Entry, Resource]]] = defaultdict(list)
    for entry in entries:
        try:
            knows = resource(entry.kind)
        except DsqlError as error:
            failed[entry.number] = (str(error), False)
            continue
        groups[knows.rank].append((entry, knows))
    return [groups[rank] for rank in sorted(groups, reverse=True)]


@final
class _Removing:
    """The removal of one run's entries."""

    def __init__(
        self, clients: Clients, inventory: Inventory, clock: Clock, settling_s: float, say: Callable[[str], None]
    ) -> None:
        self._clients = clients
        self._inventory = inventory
        self._clock = clock
        self._settling = timedelta(seconds=settling_s)
        self._say = say
        self._start = clock.monotonic()
        self._asked: set[int] = set()
        self.removed: list[Entry] = []
        self.failed: dict[int, tuple[str, bool]] = {}  #: by number: why, and whether another try may help

    def remove_together(self, group: list[tuple[Entry, Resource]], patience_s: float) -> None:
        """Ask for the removal of all, then wait for all."""
        start = self._clock.monotonic()
        pause = 1.0
        left = dict(group_of(group))
        while left:
            for number, knows in list(left.items()):
                entry = self._inventory.entry(number)
                try:
                    gone = self._step(entry, knows)
                    reason, again, now = "it is not gone yet", True, True
                except AwsError as error:
                    gone, reason = False, str(error)
                    again = now = error.failure in _AGAIN
                except Exception as error:
                    # What isn't AWS's answer (a database that takes no connections) isn't waited for: what it belongs
                    # to goes next, and it may go with that.
                    gone, reason, again, now = False, _said(error), True, False
                if gone:
                    self._inventory.removed(entry)
                    self.failed.pop(number, None)
                    self.removed.append(entry)
                    self._say(f"removed {entry}")
                    del left[number]
                else:
                    self.failed[number] = (reason, again)
                    if not now:
                        del left[number]
            spent = self._clock.monotonic() - start
            if not left or spent >= patience_s:
                return
            self._clock.sleep(min(pause, patience_s - spent))
            pause = min(pause * 1.5, 15.0)

    def _step(self, entry: Entry, knows: Resource) -> bool:
        """Bring an entry one step nearer to its end; tell whether it is there."""
        if entry.arn is None or (entry.number not in self._asked and not self._settled(entry)):
            found = knows.find(self._clients, entry)
            if found is None:
                # It may have been asked for a moment ago, and not be seen yet: "there is none" proves nothing.
                return self._settled(entry)
            if entry.arn is None:
                entry = self._inventory.created(entry, found)
        if entry.number not in self._asked:
            knows.delete(self._clients, entry)
            self._asked.add(entry.number)
        return knows.gone(self._clients, entry)

    def _settled(self, entry: Entry) -> bool:
        """Tell whether its creation lies so far back that everybody sees it, if it exists.

        By the day's time, which other processes wrote down, or by how long this removal goes on: a clock may be set.
        """
        since = timedelta(seconds=self._clock.monotonic() - self._start)
        return max(since, self._clock.now() - (entry.tried_at or entry.intended_at)) >= self._settling


def _said(error: Exception) -> str:
    said = one_line(str(error))
    return said if isinstance(error, DsqlError) else f"{type(error).__name__}: {said}"


def group_of(group: list[tuple[Entry, Resource]]) -> list[tuple[int, Resource]]:
    """Return a group by the entries' numbers: the inventory knows the entries as they are now."""
    return [(entry.number, knows) for entry, knows in group]


def reap(
    *,
    profile: str | None = None,
    role: str | None = None,
    directory: Path | None = None,
    run: str | None = None,
    even_kept: bool | None = None,
    clock: Clock | None = None,
    settling_s: float = SETTLING_S,
    say: Callable[[str], None] = lambda _text: None,
) -> Removal:
    """Remove what runs of this user left behind: those whose processes are gone, and those that have expired.

    Each with the profile and role that it ran with, unless others are given. What is kept is left until it expires,
    unless `run` names its run, or as `even_kept` says; what else its run has left behind goes. Runs that go on are left
    alone.
    """
    clock = clock or Clock()
    total = Removal()
    for path in inventories(directory):
        if run is not None and path.name != f"{run}.jsonl":
            continue
        held = _take_over(path, clock)
        if held is None:
            continue
        also_kept = (run is not None if even_kept is None else even_kept) or held.expired(clock.now())
        spare = () if also_kept else held.kept
        try:
            total.add(_reap_one(held, profile, role, spare, clock, settling_s, say))
        finally:
            held.close()
    return total


def _take_over(path: Path, clock: Clock) -> Inventory | None:
    try:
        seen = Inventory.read(path)
    except FileNotFoundError:
        return None
    return Inventory.abandoned(path, even_if_held=seen.expired(clock.now()))


def _reap_one(
    inventory: Inventory,
    profile: str | None,
    role: str | None,
    spare: Collection[str],
    clock: Clock,
    settling_s: float,
    say: Callable[[str], None],
) -> Removal:
    doomed = [one for one in inventory.remaining if one.owner not in spare]
    if not doomed:
        return Removal()
    try:
        clients = Clients(profile=profile or inventory.profile, role=role or inventory.role)
        reason = other_account(clients, inventory)
    except DsqlError as error:
        reason = str(error)
    if reason is not None:
        return Removal(remaining=[(one, reason) for one in doomed])
    return remove(clients, inventory, spare=spare, clock=clock, settling_s=settling_s, say=say)


def other_account(clients: Clients, inventory: Inventory) -> str | None:
    """Say so when the credentials are of another account: there, nothing of the run would be found. Raises AwsError."""
    if inventory.account is None or clients.account == inventory.account:
        return None
    return (
        f"run {inventory.run} was made in another AWS account than these credentials are for: name its profile "
        "(--profile) or sign in there"
    )
