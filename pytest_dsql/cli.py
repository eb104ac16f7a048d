"""The command `pytest-dsql`: parses, calls, and turns errors into one line and an exit status."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pytest_dsql.errors import DsqlError, UsageError
from pytest_dsql.local.options import SETTINGS, EngineOptions, settings_help

if TYPE_CHECKING:
    from pytest_dsql.local.client import Engine

#: Exit statuses: a wrong option, an engine that failed, and what shells say of a command that isn't there.
USAGE: Final = 2
FAILED: Final = 1
ENGINE_FAILED: Final = 125
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
_INTERRUPTED: Final = 130

#: How long the token of `pytest-dsql local` lives: the longest that DSQL allows.
_TOKEN_LIFE_S: Final = 604_800

_DESCRIPTION: Final = """\
Start an embedded engine that speaks and enforces what Aurora DSQL does, on 127.0.0.1.
With a COMMAND: run it in an environment in which psql, any other libpq client and the AWS SDKs find the engine, then
stop the engine and exit with the command's status (125 when the engine failed).
Without: say how to connect, and run until interrupted.
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; give the exit status."""
    own, command = _split(sys.argv[1:] if arguments is None else arguments)
    parser, local, others = _parsers()
    chosen, unknown = parser.parse_known_args(own)
    if chosen.name is None:
        parser.error(f"say what to do: {', '.join(('local', *others))}")
    if chosen.name in others:
        return _other(others[chosen.name], chosen, [*unknown, *(("--", *command) if command is not None else ())])
    if unknown:
        local.error(f"unknown argument {unknown[0]!r}; a command goes after --")
    if command == []:
        local.error("no command after --")
    if command is not None and shutil.which(command[0]) is None:
        return _fail(f"{command[0]}: no such command", NOT_FOUND)
    try:
        return _local(_engine_options(chosen), command)
    except UsageError as error:
        local.error(str(error))
    except DsqlError as error:
        return _fail(str(error), ENGINE_FAILED)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _other(parser: argparse.ArgumentParser, chosen: argparse.Namespace, unknown: Sequence[str]) -> int:
    """Run a command that is not about the engine: `chosen.run` imports what it needs, and gives the exit status."""
    if unknown:
        parser.error(f"unknown argument {unknown[0]!r}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # targets of the user's own are modules of this folder
    try:
        status: int = chosen.run(chosen)
    except UsageError as error:
        parser.error(_by_own_names(str(error)))
    except DsqlError as error:
        sys.stderr.write(f"{parser.prog}: {_by_own_names(str(error))}\n")
        return FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _cost(chosen: argparse.Namespace) -> int:
    from pytest_dsql.aws.sessions import Clients
    from pytest_dsql.cost.reconcile import reconcile, results_of

    path = results_of(chosen.results_of_run, chosen.results)
    lines = reconcile(path, lambda: Clients(profile=chosen.profile, role=chosen.role))
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Our own arguments, and the command after `--`: argparse would take its options for ours."""
    if "--" not in arguments:
        return list(arguments), None
    place = list(arguments).index("--")
    return list(arguments[:place]), list(arguments[place + 1 :])


def _parsers() -> tuple[_Parser, argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser, that of `local`, and those of the other commands by name."""
    parser = _Parser(
        prog="pytest-dsql", description="Database benchmarks as tests for Amazon Aurora DSQL.", allow_abbrev=False
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="say which version this is")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND", parser_class=_Parser)
    local = commands.add_parser(
        "local",
        usage="pytest-dsql local [--port N] [--data DIR] [--latency PROFILE] [--faults FILE] [--set NAME=VALUE ...] "
        "[-- COMMAND ...]",
        description=_DESCRIPTION,
        epilog=f"settings (NAME, and what it is without --set):\n{settings_help()}",
        help="start the embedded engine, for a command or until interrupted",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    local.add_argument("--port", type=_port, default=0, metavar="N", help="TCP port on 127.0.0.1 (default: a free one)")
    local.add_argument(
        "--data", type=Path, metavar="DIR", help="keep the data in DIR (default: it goes with the engine)"
    )
    local.add_argument(
        "--latency", default="none", metavar="PROFILE", help="a latency profile, by name or TOML file (default: none)"
    )
    local.add_argument("--faults", type=Path, metavar="FILE", help="faults to inject: a TOML file")
    local.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help="a setting of the engine; any of DSQL's limits can have another value",
    )
    cost = commands.add_parser(
        "cost",
        usage="pytest-dsql cost RUN [--results DIR] [--profile NAME] [--role ARN]",
        description="Compare what a run was estimated to cost with what CloudWatch and, a day later, the bill say "
        "(docs/cost.md). What is known better is written into the run's results.",
        help="compare a run's estimated cost with CloudWatch and the bill",
        allow_abbrev=False,
    )
    cost.add_argument("results_of_run", metavar="RUN", help="a run's id, or its directory or results file")
    cost.add_argument(
        "--results", type=Path, default=Path(".dsql"), metavar="DIR", help="where the runs are (default: .dsql)"
    )
    cost.add_argument("--profile", metavar="NAME", help="AWS profile to ask with")
    cost.add_argument("--role", metavar="ARN", help="IAM role to assume for it")
    cost.set_defaults(run=_cost)
    return parser, local, {"cost": cost, **_account_commands(commands)}


def _account_commands(commands: Any) -> dict[str, argparse.ArgumentParser]:
    """Parsers of the commands that are about an AWS account."""

    def command(
        name: str, usage: str, description: str, short: str, run: Callable[..., int]
    ) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = commands.add_parser(
            name, usage=f"pytest-dsql {name} {usage}", description=description, help=short, allow_abbrev=False
        )
        one.set_defaults(run=run)
        return one

    def account(parser: argparse.ArgumentParser, default: str) -> None:
        parser.add_argument("--profile", metavar="NAME", help=f"AWS profile to ask with (default: {default})")
        parser.add_argument("--role", metavar="ARN", help="IAM role to assume for it")

    verify = command(
        "verify",
        "[RUN] [--region REGION ...] [--profile NAME] [--role ARN]",
        "Compare what runs have created, by their inventories and by tags, with the account, in every Region that a "
        "run of this user has used. Exits with 1 while anything remains.",
        "list what earlier runs left in the account",
        _verify,
    )
    reap = command(
        "reap",
        "[RUN [--lost]] [--region REGION ...] [--profile NAME] [--role ARN]",
        "Remove what runs left behind whose processes are gone, and what has reached its maximum life; what is kept "
        "goes when RUN names it. Exits with 1 while anything remains.",
        "remove what earlier runs left in the account",
        _reap,
    )
    for one in (verify, reap):
        one.add_argument("only_run", nargs="?", metavar="RUN", help="of this run only")
        account(one, "each run's own")
        one.add_argument(
            "--region", action="append", default=[], metavar="REGION", help="look there as well; may be repeated"
        )
    reap.add_argument(
        "--lost",
        action="store_true",
        help="RUN was started on another machine, or its inventory is lost, and its processes are gone",
    )
    policy = command(
        "policy",
        "TARGET",
        "Print the IAM policy that a target needs, and no more.",
        "print the IAM policy that a target needs",
        _policy,
    )
    policy.add_argument("target", metavar="TARGET", help="a target, attach, a module's path; or a runner: ec2, lambda")
    doctor = command(
        "doctor",
        "[--region REGION] [--profile NAME] [--role ARN]",
        "Say what of the engine and of an AWS account can be used from here. Exits with 1 when something can't.",
        "say what can be used from here",
        _doctor,
    )
    account(doctor, "AWS_PROFILE, or none")
    doctor.add_argument("--region", metavar="REGION", help="where Aurora DSQL is to answer (default: the profile's)")
    return {"verify": verify, "reap": reap, "policy": policy, "doctor": doctor}


def _say(text: str) -> None:
    sys.stdout.write(f"{_by_own_names(text)}\n")
    sys.stdout.flush()


def _by_own_names(text: str) -> str:
    """Name options as these commands have them: messages speak of pytest's, `--dsql-profile` for `--profile`."""
    return re.sub(r"--dsql-(profile|role|region)\b", r"--\1", text)


def _verify(chosen: argparse.Namespace) -> int:
    from pytest_dsql.targets.commands import verify

    return verify(profile=chosen.profile, role=chosen.role, regions=chosen.region, run=chosen.only_run, say=_say)


def _reap(chosen: argparse.Namespace) -> int:
    from pytest_dsql.targets.commands import reap

    return reap(
        profile=chosen.profile,
        role=chosen.role,
        regions=chosen.region,
        run=chosen.only_run,
        lost=chosen.lost,
        say=_say,
    )


def _policy(chosen: argparse.Namespace) -> int:
    if chosen.target in ("ec2", "lambda"):
        from pytest_dsql.runner.grants import policy_of

        _say(policy_of(chosen.target))
        return 0
    from pytest_dsql.targets.commands import policy

    return policy(chosen.target, _say)


def _doctor(chosen: argparse.Namespace) -> int:
    from pytest_dsql.targets.commands import doctor

    return doctor(profile=chosen.profile, role=chosen.role, region=chosen.region, say=_say)


class _Version(argparse.Action):
    """Prints the version; looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_arguments: Any, **_options: Any) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"pytest-dsql {version('pytest-dsql')}\n")
        parser.exit()


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (1 to 65535)")
    return int(text)


def _engine_options(chosen: argparse.Namespace) -> EngineOptions:
    settings: dict[str, str] = {}
    for setting in chosen.settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: write NAME=VALUE; known names: {', '.join(SETTINGS)}")
        settings[name] = value
    data = chosen.data.absolute() if chosen.data is not None else None
    latency = chosen.latency
    return EngineOptions(
        port=chosen.port,
        data=data,
        latency=str(Path(latency).absolute()) if latency.endswith(".toml") else latency,
        faults=chosen.faults.absolute() if chosen.faults is not None else None,
    ).with_settings(settings)


def _local(options: EngineOptions, command: list[str] | None) -> int:
    from pytest_dsql.local.client import Engine
    from pytest_dsql.local.command import run_command, wait_until_interrupted
    from pytest_dsql.local.environment import client_variables, command_environment, write_environment_file

    with Engine.start_or_attach(options=options) as engine:
        variables = client_variables(engine, _token(engine))
        if command is None:
            file = write_environment_file(engine.control.parent, variables)
            failure = wait_until_interrupted(engine, lambda: _say_how(engine, file))
            status = 0
        else:
            try:
                status = run_command(command, command_environment(variables))
            except OSError as error:
                return _fail(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE)
            failure = engine.ended()
    return status if failure is None else _fail(failure, ENGINE_FAILED)


def _token(engine: Engine) -> str:
    from pytest_dsql.connect.endpoint import Endpoint, IamAuth
    from pytest_dsql.connect.token import sign_token

    keys = engine.credentials
    auth = IamAuth(access_key_id=keys.access_key_id, secret_access_key=keys.secret_access_key)
    endpoint = Endpoint(host=engine.cluster.host, region=engine.cluster.region, auth=auth)
    return sign_token(endpoint, expires_s=_TOKEN_LIFE_S)


def _say_how(engine: Engine, environment_file: Path) -> None:
    hosts = "\n                    ".join(endpoint.host for endpoint in engine.cluster.endpoints)
    text = f"""\
The engine runs: {engine.postgresql}
  host              {hosts} at 127.0.0.1, or localhost
  port              {engine.port}
  root certificate  {engine.ca_file}
In another terminal:
  . {environment_file} && psql
Interrupt (Ctrl-C) to stop it.
"""
    sys.stdout.write(text)
    sys.stdout.flush()


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"pytest-dsql local: {message}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
