"""One target's (or runner's) part of a run on AWS: what it needs to create things, and to remove exactly those."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, TypeVar, final

from pytest_dsql.aws import creating, reaper
from pytest_dsql.aws.creating import Made
from pytest_dsql.aws.failures import Failure
from pytest_dsql.aws.holding import Hold
from pytest_dsql.aws.inventory import LIFE, Entry, Inventory
from pytest_dsql.aws.resources import CREATED_TAG, EXPIRES_TAG, IN_A_NETWORK, RUN_TAG
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.aws.waiting import Clock, until
from pytest_dsql.errors import DsqlError, UsageError

T = TypeVar("T")

#: Owns what several targets of a run use, such as a network: it goes with the last of them.
SHARED: Final = "shared"

#: `life=HOURS`, as an option of a target that is created or of a runner.
_LONGEST_LIFE_H: Final = 72


@final
@dataclass(slots=True)
class AwsRun:
    """What a target that is created works with. Made by `begin`."""

    owner: str  #: the target's or runner's name: what `remove` removes
    region: str
    clients: Clients
    inventory: Inventory
    hold: Hold  #: of the processes that use this target
    clock: Clock = field(default_factory=Clock)
    say: Callable[[str], None] = lambda _text: None
    _shared: AwsRun | None = field(default=None, repr=False)

    @classmethod
    def begin(
        cls,
        run_id: str,
        owner: str,
        *,
        region: str | None,
        profile: str | None = None,
        role: str | None = None,
        life: timedelta = LIFE,
        on_aws: bool = True,
        say: Callable[[str], None] = lambda _text: None,
    ) -> AwsRun:
        """Look up who we are, and begin (or join) the run's inventory. Creates nothing in the account.

        Without `on_aws` (another provider's service) nobody is asked, and `region` is only a name. Raises UsageError
        without a Region, MissingExtra, CredentialsError, AwsError.
        """
        clients = Clients(profile=profile, role=role)
        region = region_for(clients, region, owner) if on_aws else region or "elsewhere"
        inventory = Inventory.create(
            run_id, account=clients.account if on_aws else None, profile=profile, role=role, life=life
        )
        hold = inventory.hold(f"using-{owner}")
        return cls(owner=owner, region=region, clients=clients, inventory=inventory, hold=hold, say=say)

    def tags(self, entry: Entry | None = None) -> dict[str, str]:
        """Return the tags of everything that the run creates; with the entry's name where the kind has none itself."""
        tags = {
            RUN_TAG: self.inventory.run,
            CREATED_TAG: f"{self.inventory.created_at:%Y-%m-%dT%H:%M:%S+00:00}",
            EXPIRES_TAG: f"{self.inventory.expires_at:%Y-%m-%dT%H:%M:%S+00:00}",
        }
        return {"Name": entry.name, **tags} if entry is not None else tags

    def tag_list(self, entry: Entry | None = None) -> list[dict[str, str]]:
        """Return the tags in the shape of RDS, EC2 and most others: Key and Value."""
        return [{"Key": key, "Value": value} for key, value in self.tags(entry).items()]

    def name(self, what: str) -> str:
        """Return a name of ours: the same for the same run and `what`; letters, digits, hyphens, at most 63."""
        run = re.sub(r"[^a-z0-9]+", "-", self.inventory.run.lower()).strip("-")
        name = f"pytest-dsql-{run}-{what}"
        if len(name) > 63:
            raise UsageError(f"the run's id {self.inventory.run!r} is too long for names on AWS")
        return name

    def create(
        self,
        kind: str,
        name: str,
        call: Callable[[Entry], Made],
        *,
        region: str | None = None,
        again_on: frozenset[Failure] = frozenset(),
        **details: Any,
    ) -> Entry:
        """Create one thing of this target: see `creating.create`."""
        self.check()
        return creating.create(
            self.clients,
            self.inventory,
            kind,
            region or self.region,
            name,
            call,
            owner=self.owner,
            again_on=again_on,
            clock=self.clock,
            **details,
        )

    def create_by(
        self,
        service: str,
        operation: str,
        kind: str,
        name: str,
        parameters: Callable[[Entry], Mapping[str, Any]],
        answer: tuple[str, ...],
        *,
        again_on: frozenset[Failure] = frozenset(),
        **details: Any,
    ) -> Entry:
        """Create one thing of this target by one call, in the run's Region.

        `parameters` are the call's, `answer` the keys under which its answer has the ARN or id. The rest is as in
        `create`.
        """

        def call(entry: Entry) -> Made:
            found: Any = self.clients.call(service, self.region, operation, **parameters(entry))
            for key in answer:
                found = found[key]
            return Made(str(found))

        return self.create(kind, name, call, again_on=again_on, **details)

    def wait(self, probe: Callable[[], T | None], *, what: str, limit_s: float, **pace: float) -> T:
        """Wait until `probe` returns something: see `waiting.until`."""
        return until(probe, what=what, limit_s=limit_s, clock=self.clock, **pace)

    def check(self) -> None:
        """Raise DsqlError when the maximum life of what the run created is over: it takes no new work then."""
        if self.inventory.expired(self.clock.now()):
            raise DsqlError(
                f"run {self.inventory.run} has reached its maximum life ({self.inventory.expires_at:%Y-%m-%dT%H:%MZ}): "
                "it does no new work on AWS (--dsql-target-option life=HOURS allows more)"
            )

    def shared(self) -> AwsRun:
        """Return the part of the run in which its targets make what they share. It is in use until `close`."""
        if self._shared is None:
            hold = self.inventory.hold(f"using-{SHARED}")
            self._shared = replace(self, owner=SHARED, hold=hold, _shared=None)
        return self._shared

    def keep(self) -> None:
        """Leave alone what this target created, and what it shares with others."""
        self.inventory.keep(self.owner)
        self.inventory.reload()
        if any(one.owner == SHARED for one in self.inventory.remaining):
            self.inventory.keep(SHARED)

    def remove(self) -> reaper.Removal:
        """Remove what this target or runner created, and wait until it is gone. Raises nothing for what remains.

        What targets share goes as well where this one was the last that used it.
        """
        removal = reaper.remove(self.clients, self.inventory, owner=self.owner, clock=self.clock, say=self.say)
        if not removal.remaining and self._shares_with_nobody():
            removal.add(
                reaper.remove(self.clients, self.inventory, owner=SHARED, clock=self.clock, say=self.say),
            )
        return removal

    def _shares_with_nobody(self) -> bool:
        self.inventory.reload()
        remaining = self.inventory.remaining
        if SHARED in self.inventory.kept or not any(one.owner == SHARED for one in remaining):
            return False
        # What could not be removed from a network keeps it, too: no use in waiting for that.
        if any(one.owner != SHARED and one.kind in IN_A_NETWORK for one in remaining):
            return False
        return self.shared().hold.last()

    def close(self) -> None:
        """Let go of the inventory, which goes when nothing of the run is left. Removes nothing."""
        if self._shared is not None:
            self._shared.hold.close()
        self.hold.close()
        self.inventory.close()


def region_for(clients: Clients, region: str | None, owner: str) -> str:
    """Return the Region to create in: the option's, else the environment's or profile's. Raises UsageError."""
    region = region or clients.default_region
    if region is None:
        raise UsageError(f"target {owner!r} needs an AWS Region to be created in: give --dsql-region")
    if not is_region(region):
        raise UsageError(f"--dsql-region: {region!r} is not an AWS Region such as eu-central-1")
    return region


def is_region(text: str) -> bool:
    """Tell whether a text has the form of a Region's name."""
    return re.fullmatch(r"[a-z]{2,}(?:-[a-z]+)+-\d{1,2}", text) is not None


def life_of(target_options: Mapping[str, str], runner_options: Mapping[str, str] | None = None) -> timedelta:
    """Return the maximum life that `life=HOURS` asks for: one for all that a run creates, as it has one inventory.

    `target_options` are all targets': `life` and `TARGET.life`. Raises UsageError, also where they differ.
    """
    given = {f"--dsql-target-option {key}": hours for key, hours in target_options.items()}
    given |= {f"--dsql-runner-option {key}": hours for key, hours in (runner_options or {}).items()}
    given = {option: hours for option, hours in given.items() if re.search(r"[ .]life$", option)}
    for option, text in given.items():
        if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= _LONGEST_LIFE_H:
            raise UsageError(f"{option}: whole hours from 1 to {_LONGEST_LIFE_H}, not {text!r}")
    hours = {int(text) for text in given.values()}
    if len(hours) > 1:
        said = ", ".join(f"{option}={text}" for option, text in given.items())
        raise UsageError(f"all that a run creates has one life, not {said}")
    return timedelta(hours=hours.pop()) if hours else LIFE
