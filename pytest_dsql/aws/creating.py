"""The one way to create something on AWS: written down, called, written down again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, final

from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.inventory import Entry, Inventory
from pytest_dsql.aws.resources import Resource, resource
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.aws.waiting import Clock, WaitedInVain, until

#: How long a create call may be throttled, unanswered, or refused for an earlier step that isn't seen everywhere yet (a
#: role just created).
PATIENCE_S: Final = 300.0


@final
class Made(NamedTuple):
    """What a create call answered: the ARN or id, and what else is worth keeping in the inventory (JSON)."""

    arn: str
    details: Mapping[str, Any] = {}


def create(
    clients: Clients,
    inventory: Inventory,
    kind: str,
    region: str,
    name: str,
    call: Callable[[Entry], Made],
    *,
    owner: str,
    again_on: frozenset[Failure] = frozenset(),
    clock: Clock | None = None,
    **details: Any,
) -> Entry:
    """Create one thing, and return its entry with `arn`; what another process of the run has created is returned as is.

    `call` makes one API call, with `entry.token` where the API takes a client token and with `entry.name` and our tags
    where it doesn't: it may be called several times, and the service must not create several things. A name that is
    taken by what has our run's tag is the answer of an earlier try; any other is left alone. `again_on` names failures
    that pass by themselves for this kind (a role that isn't known everywhere yet). What else the thing needs is done
    after this, in calls that may be repeated.

    The entry is struck out only when the service has refused every try and knows of no such thing; after an answer that
    was lost it stays, for the reaper to look for. Raises AwsError, WaitedInVain.
    """
    knows = resource(kind)
    begun = _begun(inventory, kind, region, name, owner)
    entry = begun or inventory.intend(kind, region, name, owner=owner, **details)
    if entry.arn:
        return entry
    clock = clock or Clock()
    tries = 0
    in_doubt = begun is not None  # whether an earlier try, by whichever process, may have been carried out
    last: list[AwsError] = []

    def attempt() -> Made | None:
        nonlocal tries, in_doubt
        tries += 1
        if tries > 1:
            inventory.tried(entry, clock.now())
        try:
            return call(entry)
        except AwsError as error:
            in_doubt = in_doubt or error.outcome_unknown
            if error.failure is Failure.TAKEN:
                if found := knows.find(clients, entry):
                    return Made(found)
                raise AwsError(
                    f"{error}; it isn't this run's, so it is left alone: remove or rename it",
                    failure=Failure.TAKEN,
                    code=error.code,
                    action=error.action,
                    region=region,
                ) from None
            if error.failure in again_on:
                last.append(error)
                return None
            raise

    try:
        made = until(attempt, what=f"creating {entry}", limit_s=PATIENCE_S, clock=clock, settling_s=0.0)
    except (AwsError, WaitedInVain) as error:
        refusal = last[-1] if isinstance(error, WaitedInVain) and last else error
        if in_doubt or isinstance(refusal, WaitedInVain):
            inventory.tried(entry, clock.now())
        elif _none_there(knows, clients, entry):
            inventory.removed(entry)
        raise refusal from None
    return inventory.created(entry, made.arn, **made.details)


def _none_there(knows: Resource, clients: Clients, entry: Entry) -> bool:
    """Tell whether a refused call has left nothing: it may have consisted of several, and the first have worked.

    Where that can't be seen now, the entry stays for the reaper.
    """
    try:
        return knows.find(clients, entry) is None
    except Exception:  # of whichever kind: all that matters is that nobody knows
        return False


def _begun(inventory: Inventory, kind: str, region: str, name: str, owner: str) -> Entry | None:
    """Return the entry of an earlier call for the same thing, by any process of this run."""
    inventory.reload()
    wanted = (kind, region, name, owner)
    same = (one for one in inventory.remaining if (one.kind, one.region, one.name, one.owner) == wanted)
    return next(same, None)
