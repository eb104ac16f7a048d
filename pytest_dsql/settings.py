"""One frozen Settings: what the user chose, from command line, environment and ini file, in that order.

This module is imported by every pytest run that has the plugin installed: it imports nothing but the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple, final

from pytest_dsql.errors import UsageError

#: What is measured where it is, and what is created in an AWS account, measured and removed (docs/targets.md). A
#: module's path, like `mypackage.mytarget`, is a target of one's own.
EXISTING_TARGETS: Final = ("local", "attach")
CREATED_TARGETS: Final = (
    "dsql",
    "dsql-multi-region",
    "rds-multi-az",
    "aurora-provisioned",
    "aurora-serverless",
    "rds-proxy",
)
TARGETS: Final = EXISTING_TARGETS + CREATED_TARGETS
PLANS: Final = ("quick", "full")
RUNNERS: Final = ("here", "ec2", "lambda")
SCALES: Final = ("tiny", "quick", "full")

#: Set by `pytest-dsql local -- COMMAND` for its command: the control socket of the engine that is running already.
ENGINE_VARIABLE: Final = "DSQL_LOCAL_ENGINE"


class Option(NamedTuple):
    """One setting: `--dsql-NAME` on the command line, `dsql_NAME` in the ini file, `DSQL_NAME` in the environment."""

    name: str  #: the field of Settings
    metavar: str
    help: str
    repeatable: bool = False  #: given several times on the command line; one value per line or comma elsewhere
    switch: bool = False  #: takes no value on the command line; yes or no elsewhere

    @property
    def flag(self) -> str:
        """The command line option."""
        return "--dsql-" + self.name.replace("_", "-")

    @property
    def ini(self) -> str:
        """The ini file's key."""
        return "dsql_" + self.name

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "DSQL_" + self.name.upper()


OPTIONS: Final = (
    Option(
        "target",
        "NAME[,NAME]",
        "what is measured: local (the embedded engine, default), attach (an existing endpoint), or what is created and "
        f"removed: {', '.join(CREATED_TARGETS)}; several are measured side by side",
    ),
    Option("endpoint", "HOST_OR_CLUSTER_ID", "attach to this Aurora DSQL cluster: host name, id or ARN"),
    Option("dsn", "DSN", "attach to any PostgreSQL: a libpq URI or key=value string"),
    Option("region", "REGION", "AWS Region of the cluster, where its host name does not tell"),
    Option("user", "ROLE", "database role to connect as (default: admin)"),
    Option("profile", "NAME", "AWS profile whose credentials sign the tokens"),
    Option("role", "ARN", "IAM role to assume with them"),
    Option("target_option", "KEY=VALUE", "how a target that is created is to be: docs/targets.md", repeatable=True),
    Option("budget", "USD", "what a run may cost at most; required where something is created or started on AWS"),
    Option("keep", "", "keep what was created, and say how to attach to it and how to remove it", switch=True),
    Option("plan", "quick|full", "seconds per cell for a laptop and CI, or the published experiment's windows"),
    Option("scale", "tiny|quick|full", "size of the loaded data (default: the plan's)"),
    Option("seed", "N", "seed of the data and of every random stream (default: 1)"),
    Option("scheduler", "ADDRESS", "a Dask scheduler whose workers make the load, like tcp://10.0.0.5:8786"),
    Option("runner", "here|ec2|lambda", "where the load is made: docs/runners.md (default: here)"),
    Option("runner_option", "KEY=VALUE", "how the machines are that make it: docs/runners.md", repeatable=True),
    Option("workers", "N", "load generator processes (default: 1 on local, one per core elsewhere)"),
    Option("results", "DIR", "where results are written (default: .dsql)"),
    Option("resume", "RUN", "go on with an interrupted run: its id, or latest; cells that are whole are not run again"),
    Option("inconclusive", "fail|skip", "what an inconclusive or invalid cell does to its test (default: fail)"),
    Option(
        "set", "NAME=VALUE", "a setting of the embedded engine; `pytest-dsql local --help` lists them", repeatable=True
    ),
    Option("latency", "PROFILE", "a latency profile of the embedded engine, by name or TOML file (default: none)"),
    Option("faults", "FILE", "faults that the embedded engine injects: a TOML file"),
)


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """What the user chose. Made by `resolve`, which validates every value."""

    target: str = "local"  #: the first of `targets`
    targets: tuple[
        str, ...
    ] = ()  #: what is measured, side by side when there are several; () stands for `target` alone
    endpoint: str | None = field(default=None, repr=False)  #: host name, id or ARN of the cluster to attach to
    dsn: str | None = field(default=None, repr=False)  #: may hold a password
    region: str | None = None
    user: str = "admin"
    profile: str | None = None
    role: str | None = field(default=None, repr=False)  #: holds the account's id
    target_option: Mapping[str, str] = field(default_factory=dict)
    budget: float | None = None  #: USD
    keep: bool = False
    plan: str = "quick"
    scale: str | None = None  #: None: the plan's
    seed: int = 1
    scheduler: str | None = None  #: None: the load is made on this host
    runner: str = "here"
    runner_option: Mapping[str, str] = field(default_factory=dict)
    workers: int | None = None  #: None: 1 on local, one per core elsewhere
    results: str = ".dsql"
    resume: str | None = None  #: a run's id; None: a new run
    inconclusive: str = "fail"
    set: Mapping[str, str] = field(default_factory=dict)
    latency: str | None = None  #: of the embedded engine; None: its own speed
    faults: str | None = None  #: a file, for the embedded engine
    engine: str | None = None  #: control socket of an engine that is running already

    @classmethod
    def resolve(
        cls,
        *,
        command_line: Mapping[str, Any],
        environment: Mapping[str, str],
        ini: Mapping[str, Any],
        check_set: Callable[[Mapping[str, str]], object],
    ) -> Settings:
        """Merge the three sources (command line over environment over ini) and validate.

        `command_line` and `ini` are keyed by option name; a missing or None value was not given. `check_set` is the
        engine's own word on its settings: it raises UsageError for a wrong name or value. Raises UsageError, one line
        that names the option, for the first wrong value.
        """
        chosen: dict[str, Any] = {}
        where: dict[str, str] = {}
        for option in OPTIONS:
            for value, source in (
                (command_line.get(option.name), option.flag),
                (environment.get(option.variable), f"environment variable {option.variable}"),
                (ini.get(option.name), f"ini value {option.ini}"),
            ):
                if value not in (None, "", []):
                    chosen[option.name] = value
                    where[option.name] = source
                    break
        engine = environment.get(ENGINE_VARIABLE) or None
        if engine and where.get("endpoint", "").startswith("environment"):
            # `pytest-dsql local -- COMMAND` names its engine in DSQL_ENDPOINT too, for programs that know only that.
            del chosen["endpoint"], where["endpoint"]
        values: dict[str, Any] = {}
        for name, value in chosen.items():
            parse: Callable[[Any, str], Any] = _PARSERS.get(name, _text)
            values[name] = parse(value, where[name])
        if "target" in values:
            values["targets"] = values["target"]
            values["target"] = values["targets"][0]
        elif "endpoint" in values or "dsn" in values:
            values["target"] = "attach"
        settings = cls(**values, engine=engine)._checked(where)._with_checked_runner(where)
        if settings.set:
            try:
                check_set(settings.set)
            except UsageError as error:
                raise UsageError(f"{where['set']}: {error}") from None
        return settings

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", self.targets or (self.target,))

    def for_target(self, name: str) -> Settings:
        """Return what of this concerns one of the targets, which is then the only one."""
        from dataclasses import replace

        chosen = replace(self, target=name, targets=(name,))
        if name != "attach":
            chosen = replace(chosen, endpoint=None, dsn=None)
        return chosen if name == "local" else replace(chosen, engine=None)

    def _with_checked_runner(self, where: Mapping[str, str]) -> Settings:
        if self.runner == "here":
            _refuse_flags(where, "runner_option", because="the load is made here", of="--dsql-runner")
            return self
        chosen = f"{where['runner']} {self.runner}"
        if len(self.targets) > 1:
            raise UsageError(f"{chosen} measures one target in a run, not {', '.join(self.targets)}")
        if self.target == "local":
            raise UsageError(f"{chosen} makes the load in AWS, where the embedded engine can't be reached")
        if self.dsn:
            raise UsageError(f"{chosen} sends no password of a DSN away from here")
        if self.scheduler:
            raise UsageError(f"{chosen} and {where['scheduler']} exclude each other: one of them makes the load")
        if self.budget is None:
            raise UsageError(f"{chosen} starts what costs money: say how much at most, --dsql-budget USD")
        return self

    def _checked(self, where: Mapping[str, str]) -> Settings:
        from dataclasses import replace

        if self.endpoint and self.dsn:
            raise UsageError(f"{where['endpoint']} and {where['dsn']} exclude each other: name one thing to attach to")
        attached = where.get("endpoint") or where.get("dsn")
        if attached and "attach" not in self.targets:
            raise UsageError(
                f"{attached} attaches to an endpoint, but {where['target']} says {','.join(self.targets)!r}"
            )
        if attached and "local" not in self.targets:
            for name in _OF_THE_ENGINE:
                if name in where:
                    raise UsageError(f"{where[name]} is a setting of the embedded engine; it means nothing on attach")
        if "attach" in self.targets and not attached:
            raise UsageError("target 'attach' needs --dsql-endpoint HOST_OR_CLUSTER_ID or --dsql-dsn DSN")
        created = [name for name in self.targets if name not in EXISTING_TARGETS]
        if created:
            for name in () if attached else ("user",):
                if where.get(name, "").startswith("--"):
                    raise UsageError(f"{where[name]} means nothing on {created[0]}, which is created for this run")
            if self.budget is None:
                raise UsageError(f"target {created[0]!r} costs money: say how much at most, --dsql-budget USD")
        else:
            if self.dsn or not attached:
                _refuse_flags(
                    where,
                    "region",
                    "user",
                    "profile",
                    "role",
                    because="a DSN says by itself who connects where" if self.dsn else "the local engine has its own",
                )
            _refuse_created(where, self.target)
        if "local" not in self.targets:
            for name in _OF_THE_ENGINE if not attached else ():
                if where.get(name, "").startswith("--"):
                    raise UsageError(f"{where[name]} means nothing on {self.target}, which is created for this run")
            return replace(self, engine=None)
        for name, form in _OF_THE_ENGINE.items():
            if self.engine and name in where:
                raise UsageError(
                    f"{where[name]} comes too late for an engine that runs: pytest-dsql local --{name} {form} -- ..."
                )
        return self


#: What is said when the embedded engine starts.
_OF_THE_ENGINE: Final[Mapping[str, str]] = {"set": "NAME=VALUE", "latency": "PROFILE", "faults": "FILE"}


def _refuse_flags(where: Mapping[str, str], *names: str, because: str, of: str = "--dsql-endpoint") -> None:
    """Refuse options of another that were given on the command line; elsewhere they may be meant for others."""
    for name in names:
        if where.get(name, "").startswith("--"):
            raise UsageError(f"{where[name]} goes with {of}; {because}")


def _refuse_created(where: Mapping[str, str], target: str) -> None:
    """Refuse options of what is created on a target that exists."""
    for name in ("keep", "target_option"):
        if where.get(name, "").startswith("--"):
            raise UsageError(f"{where[name]} goes with a target that is created; {target} is there already")


#: Variables of ours that are no options.
_OTHER_VARIABLES: Final = frozenset({ENGINE_VARIABLE, "DSQL_ENDPOINTS", "DSQL_RUNNER_JOB"})


def misspelt(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that are probably meant for options, with the option's: `DSQL_TARGT` would measure the default.

    Others that begin with `DSQL_` are the user's own.
    """
    known = {option.variable for option in OPTIONS}
    unknown = [name for name in environment if name.startswith("DSQL_") and name not in known | _OTHER_VARIABLES]
    if not unknown:
        return {}
    from difflib import get_close_matches

    alike = {name: get_close_matches(name, known, n=1, cutoff=0.9) for name in sorted(unknown)}
    return {name: found[0] for name, found in alike.items() if found}


def _text(value: Any, source: str) -> str:
    text = str(value).strip()
    if not text or "\0" in text or "\n" in text:
        raise UsageError(f"{source}: expected one line of text")
    return text


def _choice(*allowed: str) -> Callable[[Any, str], str]:
    def parse(value: Any, source: str) -> str:
        text = _text(value, source)
        if text not in allowed:
            raise UsageError(f"{source}: {text!r} is not one of {', '.join(allowed)}")
        return text

    return parse


def _targets(value: Any, source: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in _text(value, source).split(","))
    for name in names:
        if name not in TARGETS and not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name):
            raise UsageError(f"{source}: {name!r} is not one of {', '.join(TARGETS)}, nor the path of a module")
    if len(set(names)) < len(names):
        raise UsageError(f"{source}: {','.join(names)!r} names a target twice")
    return names


def _whole(low: int, high: int) -> Callable[[Any, str], int]:
    def parse(value: Any, source: str) -> int:
        text = _text(value, source)
        # isdecimal() also holds for other scripts' digits, which int() would take silently.
        if not re.fullmatch(r"[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise UsageError(f"{source}: expected a whole number from {low} to {high}, not {text!r}")
        return int(text)

    return parse


def _switch(value: Any, source: str) -> bool:
    text = str(value).strip().lower()
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise UsageError(f"{source}: expected yes or no, not {value!r}")


def _dollars(value: Any, source: str) -> float:
    text = _text(value, source)
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text) or not float(text):
        raise UsageError(f"{source}: expected an amount in USD such as 25 or 2.50, not {text!r}")
    return float(text)


def _role(value: Any, source: str) -> str:
    text = _text(value, source)
    if not re.fullmatch(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+", text):
        # Not repeated: it may hold an account's id.
        raise UsageError(f"{source}: expected the ARN of an IAM role, arn:aws:iam::ACCOUNT:role/NAME")
    return text


def _named_lists(value: Any, source: str) -> dict[str, str]:
    """Like `_named_values`, where a value may have commas itself: `subnets=a,b,class=c` names two."""
    items = value if isinstance(value, list | tuple) else re.split(r"\n|,(?=[^,=\n]*=)", str(value))
    return _named_values(items, source)


def _named_values(value: Any, source: str) -> dict[str, str]:
    items = value if isinstance(value, list | tuple) else re.split(r"[,\n]", str(value))
    chosen = {}
    for item in (str(one).strip() for one in items):
        if not item:
            continue
        name, separator, text = item.partition("=")
        if not separator or not text:
            raise UsageError(f"{source}: expected NAME=VALUE, not {item!r}")
        chosen[name] = text
    return chosen


_PARSERS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "target": _targets,
    "plan": _choice(*PLANS),
    "scale": _choice(*SCALES),
    "seed": _whole(0, 2**63 - 1),
    "runner": _choice(*RUNNERS),
    "runner_option": _named_lists,
    "workers": _whole(1, 256),
    "inconclusive": _choice("fail", "skip"),
    "set": _named_values,
    "target_option": _named_lists,
    "budget": _dollars,
    "keep": _switch,
    "role": _role,
}

if {one.name for one in OPTIONS} - {one.name for one in fields(Settings)}:
    raise AssertionError("every option is a field of Settings")
