"""Targets that are created for a run and removed after it: one small module each.

A module has `OPTIONS` (what `--dsql-target-option` may say, with a line of help each), `ACTIONS` (what it asks of AWS:
nothing where it is another provider's), `check(settings)` (what can be found wrong before anything is created) and
`open(settings, run)`; it may have `ask(clients, settings, region)`, which sees whether the service answers there, and
changes nothing. `open` makes everything through `run.create`, so that it is removed whatever happens, and may be called
again by other processes of the run: what one has created is not created again. docs/targets.md has an example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast, final

from pytest_dsql.errors import DsqlError, UsageError
from pytest_dsql.settings import EXISTING_TARGETS

if TYPE_CHECKING:
    from pytest_dsql.aws.policies import Grant
    from pytest_dsql.aws.reaper import Removal
    from pytest_dsql.aws.run import AwsRun
    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target

#: name -> module. Other targets are named by their module's path.
MODULES: Final[Mapping[str, str]] = {
    "dsql": "pytest_dsql.targets.dsql",
    "dsql-multi-region": "pytest_dsql.targets.dsql_multi_region",
    "rds-multi-az": "pytest_dsql.targets.rds_multi_az",
    "aurora-provisioned": "pytest_dsql.targets.aurora_provisioned",
    "aurora-serverless": "pytest_dsql.targets.aurora_serverless",
    "rds-proxy": "pytest_dsql.targets.rds_proxy",
}
#: What `--dsql-target-option` may say of each of them.
COMMON_OPTIONS: Final[Mapping[str, str]] = {
    "life": "hours after which what the run created takes no new work and anybody's reap removes it (12)",
}
#: How long a worker that was told to end may hold the inventory.
_WORKERS_END_S: Final = 30.0


class TargetModule(Protocol):
    """What a module of a target has."""

    OPTIONS: Mapping[str, str]
    ACTIONS: tuple[Grant, ...]

    def check(self, settings: Settings) -> None:
        """Raise UsageError for what is wrong with the settings. Calls nothing."""

    def open(self, settings: Settings, run: AwsRun) -> Target:
        """Create what there is not yet, wait until it can be connected to, and return it."""


def module_of(name: str) -> TargetModule:
    """Return the module of a target. Raises UsageError."""
    path = MODULES.get(name, name)
    try:
        module = import_module(path)
    except ImportError as error:
        raise UsageError(f"target {name!r}: can't import {path}: {error}") from None
    missing = [one for one in ("OPTIONS", "ACTIONS", "check", "open") if not hasattr(module, one)]
    if missing:
        raise UsageError(f"target {name!r}: the module {path} has no {', '.join(missing)} (docs/targets.md)")
    return cast(TargetModule, module)


def options_of(settings: Settings) -> Mapping[str, str]:
    """Return the options that are this target's: `KEY=VALUE`, and `TARGET.KEY=VALUE`, which beats it.

    What another target of the run knows is left out; `check_options` has seen that one of them does.
    """
    known = {**COMMON_OPTIONS, **module_of(settings.target).OPTIONS}
    given = settings.target_option
    own = {key.rpartition(".")[2]: value for key, value in given.items() if key.rpartition(".")[0] == settings.target}
    everybodys = {key: value for key, value in given.items() if key in known}
    return {**everybodys, **own}


def check_options(settings: Settings) -> None:
    """See that one of the run's targets knows each option. Raises UsageError."""
    known = {
        name: {**COMMON_OPTIONS, **module_of(name).OPTIONS} for name in settings.targets if name not in EXISTING_TARGETS
    }
    for key in settings.target_option:
        owner, dot, own = key.rpartition(".")
        if dot and owner not in known:
            raise UsageError(f"--dsql-target-option {key}: no target {owner!r} is created by this run")
        if not any(own in options for name, options in known.items() if not dot or name == owner):
            raise UsageError(
                f"--dsql-target-option {key}: no such option; "
                + "; ".join(f"{name} has {', '.join(sorted(options))}" for name, options in known.items())
            )


def check_created(settings: Settings) -> None:
    """See what would keep a target from being created: options, credentials, Region. Creates nothing.

    Raises UsageError, MissingExtra, CredentialsError or AwsError.
    """
    from pytest_dsql.aws.run import life_of, region_for
    from pytest_dsql.aws.sessions import Clients

    module = module_of(settings.target)
    life_of(settings.target_option, settings.runner_option)
    module.check(settings)
    if not module.ACTIONS:
        return  # another provider's
    clients = Clients(profile=settings.profile, role=settings.role)
    region = region_for(clients, settings.region, settings.target)
    _ = clients.account  # the first call: credentials that AWS doesn't accept are found out here
    ask = getattr(module, "ask", None)
    if ask is not None:
        ask(clients, settings, region)


def begin(settings: Settings, *, run_id: str, say: Callable[[str], None]) -> AwsRun:
    """Begin a target's part of the run; creates nothing. Who holds it keeps what other processes create from going."""
    from pytest_dsql.aws.run import AwsRun, life_of

    return AwsRun.begin(
        run_id,
        settings.target,
        region=settings.region,
        profile=settings.profile,
        role=settings.role,
        life=life_of(settings.target_option, settings.runner_option),
        on_aws=bool(module_of(settings.target).ACTIONS),
        say=say,
    )


def open_created(settings: Settings, *, run_id: str, say: Callable[[str], None] = lambda _text: None) -> Target:
    """Create the target, or join the process of this run that has created it. `say` is told what goes on.

    What is created goes again when this fails, when the last process of the run closes it, and after a kill with the
    next start. Raises UsageError, AwsError, WaitedInVain or ConnectionFailed.
    """
    module = module_of(settings.target)
    _reap_the_dead(say)
    run = begin(settings, run_id=run_id, say=say)
    noted = f"creation of {settings.target}"
    try:
        with run.inventory.alone(f"opening-{settings.target}"):
            start = run.clock.monotonic()
            target = module.open(settings, run)
            if run.inventory.noted(noted) is None:
                took_s = round(run.clock.monotonic() - start, 3)
                run.inventory.note(noted, took_s)
                say(f"created {settings.target} in {run.region}: {took_s:.1f} s until it answered")
    except BaseException as error:
        with suppress(DsqlError):
            _end(run, keep=False)
        left = [str(one) for one in run.inventory.remaining if one.owner == run.owner]
        if left:
            error.add_note(f"not removed yet: {', '.join(left)}; pytest-dsql reap removes it")
        raise

    def close() -> None:
        _end(run, keep=settings.keep, target=target)

    facts = {**target.facts, "region": run.region, "creation_s": run.inventory.noted(noted)}
    return replace(target, facts=facts, close=close, may_go_on=run.check)


def _reap_the_dead(say: Callable[[str], None]) -> None:
    """Remove what killed runs have left behind: a start is when somebody is there to pay for it."""
    from pytest_dsql.aws.reaper import reap

    removal = reap(say=say)
    for entry, reason in removal.remaining:
        say(f"left by run {entry.run}, and not removed: {entry}: {reason}")


def _end(run: AwsRun, *, keep: bool, target: Target | None = None) -> None:
    """Remove what this target created, unless others still use it or the user keeps it. Raises DsqlError."""
    try:
        if keep:
            run.keep()
            if target is not None:
                _say_how_to_use(run, target)
        elif run.hold.last():
            removal = run.remove()
            if removal.remaining:
                raise DsqlError(_what_remains(run, removal))
            if removal.removed:
                run.say(f"removed all of {run.owner}: {len(removal.removed)}, remaining: 0")
    except KeyboardInterrupt:
        run.say(f"the removal was interrupted; `pytest-dsql reap` removes what is left of run {run.inventory.run}")
        raise
    finally:
        run.close()


def _what_remains(run: AwsRun, removal: Removal) -> str:
    what = "; ".join(f"{entry}: {reason}" for entry, reason in removal.remaining)
    return f"run {run.inventory.run} left {len(removal.remaining)} behind, which cost money ({what}); pytest-dsql reap"


def _say_how_to_use(run: AwsRun, target: Target) -> None:
    attach = _how_to_attach(target.endpoint)
    run.say(
        f"kept {run.owner} until {run.inventory.expires_at:%Y-%m-%dT%H:%MZ}: attach with {attach}, "
        f"remove with `pytest-dsql reap {run.inventory.run}`"
    )


@final
class Guard:
    """Keeps what one process of a run has created until all are done: for the process that starts the others.

    Without it, the worker that is done first would remove the target, and the next one would create it anew. Also
    removes what a worker has left that was killed.
    """

    def __init__(self, settings: Settings, run_id: str, say: Callable[[str], None]) -> None:
        from pytest_dsql.aws.holding import STARTED, Hold

        self._settings = settings
        self._run_id = run_id
        self._say = say
        self._holds = [Hold.of(run_id, one) for one in (STARTED, *(f"using-{name}" for name in shared_of(settings)))]

    def close(self) -> int:
        """Let go, and remove what the run's processes have created. Returns how many things remain."""
        from pytest_dsql.aws.reaper import reap

        for hold in self._holds:
            hold.clear()
        self._wait_for_the_others()
        removal = reap(run=self._run_id, even_kept=False, say=self._say)
        for entry, reason in removal.remaining:
            self._say(f"{entry} was not removed: {reason}; pytest-dsql reap")
        if removal.removed:
            self._say(f"removed all that workers created: {len(removal.removed)}, remaining: {len(removal.remaining)}")
        return len(removal.remaining)

    def _wait_for_the_others(self) -> None:
        """Wait until no worker holds the inventory any more: one that was killed a moment ago still may."""
        from pytest_dsql.aws.holding import state_directory
        from pytest_dsql.aws.inventory import Inventory
        from pytest_dsql.aws.waiting import WaitedInVain, until

        def free() -> bool | None:
            try:
                return not Inventory.read(state_directory() / f"{self._run_id}.jsonl").held() or None
            except FileNotFoundError:
                return True

        try:
            until(free, what="the workers' end", limit_s=_WORKERS_END_S, first_s=0.1)
        except WaitedInVain:
            self._say(f"a worker of run {self._run_id} still goes on; what it leaves behind is for pytest-dsql reap")


def created_of(settings: Settings) -> list[str]:
    """Return those targets of a run that are created for it."""
    return [name for name in settings.targets if name not in EXISTING_TARGETS]


def shared_of(settings: Settings) -> list[str]:
    """Return the owners of what the processes of a run share: its created targets, their network, the functions."""
    from pytest_dsql.aws.run import SHARED

    created = created_of(settings)
    return [*created, *([SHARED] if created else []), *(["runner-lambda"] if settings.runner == "lambda" else [])]


def _how_to_attach(endpoint: Endpoint) -> str:
    """Return the option that attaches to it. Nothing secret: of a password it says who keeps it."""
    from pytest_dsql.connect.endpoint import IamAuth

    if endpoint.dialect == "dsql":
        return f"--dsql-endpoint {endpoint.host}"
    parts = {
        "host": endpoint.host,
        "port": endpoint.port,
        "dbname": endpoint.dbname,
        "user": endpoint.user,
        "sslmode": endpoint.sslmode,
        "sslrootcert": endpoint.sslrootcert,
    }
    dsn = " ".join(f"{name}={value}" for name, value in parts.items() if value is not None)
    secret = "a token (aws rds generate-db-auth-token)" if isinstance(endpoint.auth, IamAuth) else "its password"
    return f"--dsql-dsn '{dsn}' and {secret} in PGPASSWORD"
