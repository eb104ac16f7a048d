"""What `pytest-dsql verify`, `reap`, `policy` and `doctor` say: lines, and an exit status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pytest_dsql.errors import DsqlError, MissingExtra, UsageError
from pytest_dsql.masking import mask

if TYPE_CHECKING:
    from pytest_dsql.aws.verifying import Survey

Say = Callable[[str], None]

#: Connections and files that a worker of the load generator may have open (docs/load.md).
_OPEN_FILES: Final = 4_096


def verify(*, profile: str | None, role: str | None, regions: list[str], run: str | None, say: Say) -> int:
    """List what is left in the account; 0 when nothing is."""
    from pytest_dsql.aws.verifying import survey

    return _tell(survey(profile=profile, role=role, regions=regions, run=run), say)


def reap(*, profile: str | None, role: str | None, regions: list[str], run: str | None, lost: bool, say: Say) -> int:
    """Remove what is left in the account; 0 when nothing remains."""
    from pytest_dsql.aws.verifying import reap_all

    if lost and run is None:
        raise UsageError("--lost needs the run whose process is gone: pytest-dsql reap RUN --lost")
    removal, after = reap_all(profile=profile, role=role, regions=regions, run=run, lost=lost, say=say)
    say(f"removed: {len(removal.removed)}")
    for entry, reason in removal.remaining:
        say(mask(f"{entry}, run {entry.run}: not removed: {reason}"))
    status = _tell(after, say)
    return 1 if removal.remaining else status


def _tell(survey: Survey, say: Say) -> int:
    from pytest_dsql.aws.verifying import ELSEWHERE

    for found in survey.found:
        say(mask(str(found)))
    if any(found.state == ELSEWHERE for found in survey.found):
        say("what another machine's run has left, once its processes are gone: pytest-dsql reap RUN --lost removes it")
    for doubt in survey.doubts:
        say(mask(f"could not look at {doubt}"))
    for (region, code), kinds in survey.unseen.items():
        say(f"could not look in {region} ({code}) for what no run here has used: {', '.join(kinds)}")
    if not (survey.regions or survey.found or survey.doubts):
        say("looked nowhere: no run of this user has used a Region, and neither --region nor AWS_REGION names one")
    in_use = len(survey.found) - len(survey.remaining)
    if in_use:
        say(f"in use: {in_use}")
    say(f"remaining: {len(survey.remaining)}{' at least' if survey.doubts else ''}")
    return 1 if survey.remaining or survey.doubts else 0


def policy(target: str, say: Say) -> int:
    """Print the least policy that a target needs: for creating, measuring, paying for, removing and verifying."""
    from pytest_dsql.aws.policies import policy as document
    from pytest_dsql.cost.grants import ACTIONS as COST
    from pytest_dsql.targets.created import module_of

    if target == "attach":
        from pytest_dsql.targets.attach import ACTIONS

        say(json.dumps(document(ACTIONS), indent=2))
        return 0
    if target == "local":
        raise UsageError("the target 'local' asks nothing of AWS")
    say(json.dumps(document((*module_of(target).ACTIONS, *COST)), indent=2))
    return 0


def doctor(*, profile: str | None, role: str | None, region: str | None, say: Say) -> int:
    """Say what works here: the engine's parts, credentials, Region, the account's leftovers; 0 when all does."""
    status = 0
    for name, good, text in _findings(profile, role, region):
        say(f"{'ok  ' if good else 'FAIL'}  {name}: {mask(text)}")
        status = status if good else 1
    return status


def _findings(profile: str | None, role: str | None, region: str | None) -> Iterator[tuple[str, bool, str]]:
    from importlib.metadata import version

    yield "pytest-dsql", True, f"{version('pytest-dsql')}, Python {sys.version.split()[0]}, {os.cpu_count()} cores"
    yield _asked("embedded engine", _engine)
    yield _open_files()
    asked = _asked("boto3", _boto3)
    yield asked
    if not asked[1]:
        return
    clients = _clients(profile, role)
    configured = _asked("AWS configuration", lambda: clients.default_region or "")
    if not configured[1]:
        yield configured
        return
    signed_in = _asked("AWS credentials", lambda: "accepted" if clients.account else "")
    yield signed_in
    region = region or clients.default_region
    if region is None:
        yield "AWS Region", False, "none: give --region, or set AWS_REGION"
        return
    if signed_in[1]:
        yield _asked(f"Aurora DSQL in {region}", lambda: _clusters(clients, region))
    from pytest_dsql.aws.holding import state_directory
    from pytest_dsql.aws.inventory import inventories

    left = len(inventories())
    yield "inventories", True, f"{left} in {state_directory()}; `pytest-dsql verify` compares them with the account"


def _asked(name: str, what: Callable[[], str]) -> tuple[str, bool, str]:
    try:
        return name, True, what()
    except DsqlError as error:
        return name, False, str(error)


def _clients(profile: str | None, role: str | None) -> Any:
    from pytest_dsql.aws.sessions import Clients

    return Clients(profile=profile, role=role)


def _boto3() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("boto3")
    except PackageNotFoundError:
        raise MissingExtra("an AWS account", "aws") from None


def _engine() -> str:
    from pytest_dsql.local.installation import find_installation
    from pytest_dsql.targets.local import check_installed

    check_installed()
    installation = find_installation()
    return f"PostgreSQL {installation.version} of {installation.origin}"


def _clusters(clients: Any, region: str) -> str:
    there = sum(1 for _one in clients.pages("dsql", region, "list_clusters", "clusters"))
    return f"answers; {there} clusters there (20 of one Region and 5 of several are allowed unless raised)"


def _open_files() -> tuple[str, bool, str]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= _OPEN_FILES
    return (
        "open files",
        enough,
        f"{soft} of at most {hard}" + ("" if enough else f": raise it to {_OPEN_FILES} at least"),
    )
