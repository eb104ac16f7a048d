"""What targets cost: the shape that a module declares, the check of the budget before anything is created, the books.

A module of a target that is created may have `cost_shape(settings, region) -> CostShape`: what of it will be paid for,
without ids. The ids come from the inventory, once there are some. Of a module without one nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_dsql.errors import MissingExtra
from pytest_dsql.load.cost import NO_BOOKS, Books
from pytest_dsql.settings import EXISTING_TARGETS

if TYPE_CHECKING:
    from pytest_dsql.aws.inventory import Entry
    from pytest_dsql.aws.sessions import Clients
    from pytest_dsql.cost.books import Budget
    from pytest_dsql.cost.estimate import Estimate
    from pytest_dsql.cost.price_list import Caller
    from pytest_dsql.cost.shape import CostShape
    from pytest_dsql.cost.work import PlannedTest
    from pytest_dsql.experiment.plans import Plan
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target

#: Kinds of the inventory that the meters ask about.
_CLUSTER: Final = "dsql-cluster"
_DB_CLUSTER: Final = "db-cluster"
_DB_INSTANCE: Final = "db-instance"


def is_created(name: str) -> bool:
    """Tell whether a target is one that is created, and paid for."""
    return name not in EXISTING_TARGETS


def declared_by(name: str) -> Callable[[Settings, str], CostShape] | None:
    """Return what a target's module has to say of its cost; None when it says nothing, and may be no AWS's at all."""
    from pytest_dsql.targets.created import module_of

    return getattr(module_of(name), "cost_shape", None)


def check_budget(
    settings: Settings,
    plan: Plan,
    tests: Callable[[str], Iterable[PlannedTest]],
    runner: Callable[[str], CostShape | None] = lambda _region: None,
) -> tuple[Mapping[str, Estimate], str]:
    """Reckon what the run will cost on the targets that are created, and compare it with the budget.

    `tests` gives the selected tests of a target, `runner` what makes the load in a Region and is paid for. Returns the
    estimates and the comparison in one line; nothing when no module says what its target costs, and no runner. Raises
    UsageError when they exceed it, NoPrice, CredentialsError.
    """
    from pytest_dsql.aws.run import region_for
    from pytest_dsql.aws.sessions import Clients
    from pytest_dsql.cost.estimate import check_budget as compared
    from pytest_dsql.cost.estimate import estimate
    from pytest_dsql.cost.price_list import PriceList
    from pytest_dsql.cost.prices import Prices
    from pytest_dsql.cost.work import work_of

    shapes: dict[str, tuple[CostShape, Clients]] = {}
    for name in settings.targets:
        shape_of = declared_by(name) if is_created(name) else None
        if shape_of is not None:
            own = settings.for_target(name)
            clients = Clients(profile=own.profile, role=own.role)
            shapes[name] = shape_of(own, region_for(clients, own.region, name)), clients
    maker = None
    if settings.runner != "here":  # there is one target then
        clients = Clients(profile=settings.profile, role=settings.role)
        maker = runner(_region_of(settings, clients))
    if not shapes and maker is None:
        return {}, ""
    assert settings.budget is not None, "what is created needs a budget"
    # Their cells run in turn, and what one creates lives to the end of the run: each waits for all the others.
    works = {
        name: work_of(tests(name), plan, settings.scale or plan.scale, targets=len(settings.targets))
        for name in settings.targets
    }
    all_s = sum(one.seconds for one in works.values()) + sum(shape.coming_s for shape, _ in shapes.values())
    all_s += maker.coming_s if maker is not None else 0.0
    estimates = {
        name: estimate(
            shape,
            works[name],
            Prices(PriceList(clients), assume=True),
            others_s=all_s - works[name].seconds - shape.coming_s,
        )
        for name, (shape, clients) in shapes.items()
    }
    if maker is not None:
        estimates[maker.target] = estimate(maker, works[settings.target], Prices(PriceList(clients), assume=True))
    return estimates, compared(list(estimates.values()), settings.budget)


def _region_of(settings: Settings, clients: Clients) -> str:
    """The Region of a run's one target."""
    from pytest_dsql.aws.run import region_for
    from pytest_dsql.targets.attach import endpoint_of

    own = settings.for_target(settings.target)
    if not is_created(settings.target):
        return str(endpoint_of(own).region)
    return region_for(clients, own.region, settings.target)


def open_books(
    settings: Settings,
    target: Target,
    budget: Budget,
    *,
    run_id: str,
    processes: int = 1,
    known: tuple[CostShape, float] | None = None,
) -> Books:
    """Open the books of a target; `settings` are its own, `processes` is how many of the run there are.

    `known`: what `created_shape` has told where a target was created, for a session that was sent elsewhere.
    """
    from pytest_dsql.cost.opening import attached_books, aws_books, engine_books

    if target.local is not None:
        return engine_books(target.local)
    if not is_created(settings.target):
        return attached_books(target.endpoint, _clients(settings), budget, processes=processes)
    from pytest_dsql.aws.sessions import Clients

    known = known or created_shape(settings, target, run_id)
    if known is None:
        return NO_BOOKS
    shape, began_s = known
    clients = Clients(profile=settings.profile, role=settings.role)
    estimate_usd = budget.estimates.get(target.name)
    return aws_books(shape, clients, budget, began_s=began_s, processes=processes, estimate_usd=estimate_usd)


def created_shape(settings: Settings, target: Target, run_id: str) -> tuple[CostShape, float] | None:
    """Return what of a created target is paid for, with ids, and since when, in seconds since the epoch.

    None for a target that was there before, and for one whose module says nothing of its cost.
    """
    shape_of = declared_by(settings.target) if is_created(settings.target) else None
    entries = _entries(run_id, settings.target)
    if not entries or shape_of is None:
        return None
    shape = identified(shape_of(settings, str(target.facts["region"])), entries)
    return shape, min(entry.intended_at for entry in entries).timestamp()


def identified(shape: CostShape, entries: Sequence[Entry]) -> CostShape:
    """Give a shape the ids of what was created."""
    clusters = {one.region: str(one.details["identifier"]) for one in entries if one.kind == _CLUSTER and one.arn}
    dsql, acu, io = shape.dsql, shape.acu, shape.io
    if dsql is not None:
        peers = tuple((region, clusters.get(region)) for region, _ in dsql.peers)
        dsql = replace(dsql, cluster=clusters.get(dsql.region), peers=peers)
    if acu is not None:
        acu = replace(acu, instances=tuple(one.name for one in entries if one.kind == _DB_INSTANCE))
    if io is not None:
        io = replace(io, cluster=next((one.name for one in entries if one.kind == _DB_CLUSTER), None))
    return replace(shape, dsql=dsql, acu=acu, io=io)


def _entries(run_id: str, owner: str) -> list[Entry]:
    from pytest_dsql.aws.holding import state_directory
    from pytest_dsql.aws.inventory import Inventory

    try:
        inventory = Inventory.read(state_directory() / f"{run_id}.jsonl")
    except OSError:
        return []
    return [one for one in inventory.entries if one.owner == owner]


def _clients(settings: Settings) -> Caller | None:
    """Who asks AWS about an endpoint that was there before: nobody, unless the user sets a budget.

    Attaching needs no permission but to connect; CloudWatch needs one of its own.
    """
    from pytest_dsql.aws.sessions import Clients

    if settings.budget is None:
        return None
    try:
        return Clients(profile=settings.profile, role=settings.role)
    except MissingExtra:
        return None
