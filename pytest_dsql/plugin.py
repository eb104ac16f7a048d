"""The pytest plugin: options, markers, exit status, summary. Imports nothing that a run without us would feel."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest
from _pytest._code import Traceback  # pytest's own way to say which frames to show

from pytest_dsql.errors import BudgetReached, ConnectionFailed, DsqlError, Inconclusive, Invalid, UsageError
from pytest_dsql.fixtures import THEMES
from pytest_dsql.fixtures.screen import Screen
from pytest_dsql.fixtures.session import (
    JOB,
    RESUMPTION,
    RUN_ID,
    SETTINGS,
    TARGETS,
    budget_of,
    plan_of,
    settings_of,
    terminated_like_interrupted,
)
from pytest_dsql.settings import EXISTING_TARGETS, OPTIONS, Settings, misspelt

if TYPE_CHECKING:
    from pytest_dsql.cost.shape import CostShape
    from pytest_dsql.results.resumption import Resumption
    from pytest_dsql.runner.job import Job
    from pytest_dsql.targets.created import Guard

#: How many selected tests of this process measure cells.
_ASKED: Final = pytest.StashKey[int]()

#: Why there can be no target, as an xdist worker found out: only workers collect.
_UNFIT: Final = pytest.StashKey[str]()

#: Where code lies that no test is written in: this package, pytest, the standard library.
_OTHERS_CODE: Final = tuple(
    f"{directory}{os.sep}"
    for directory in (Path(__file__).parent, Path(pytest.__file__).parents[1], Path(os.__file__).parent)
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare every setting as `--dsql-NAME` and ini value `dsql_NAME`."""
    group = parser.getgroup("dsql", "Aurora DSQL benchmarks and fixtures")
    for option in OPTIONS:
        if option.switch:
            group.addoption(option.flag, dest=option.ini, action="store_const", const="yes", help=option.help)
        else:
            action = "append" if option.repeatable else "store"
            group.addoption(
                option.flag, dest=option.ini, metavar=option.metavar, action=action, default=None, help=option.help
            )
        kind: Literal["linelist", "string"] = "linelist" if option.repeatable else "string"
        parser.addini(option.ini, option.help, type=kind, default=[] if option.repeatable else None)


def pytest_configure(config: pytest.Config) -> None:
    """Resolve the settings, before anything is created; a wrong value is a usage error."""
    for name, meaning in (
        ("dsql", "needs a target (`--dsql-target`); select with `-m dsql`"),
        ("dsql_aws", "is meaningless on the embedded engine"),
        ("dsql_slow", "takes minutes"),
    ):
        config.addinivalue_line("markers", f"{name}: {meaning}")
    try:
        config.stash[SETTINGS] = Settings.resolve(
            command_line={option.name: config.getoption(option.ini) for option in OPTIONS},
            environment=os.environ,
            ini={option.name: config.getini(option.ini) for option in OPTIONS},
            check_set=_check_engine_settings,
        )
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    for name, meant in misspelt(os.environ).items():
        text = f"the environment variable {name} means nothing to pytest-dsql: is {meant} meant?"
        config.issue_config_time_warning(pytest.PytestConfigWarning(text), stacklevel=2)
    config.stash[JOB] = job = _job()
    if job is not None:
        config.stash[SETTINGS] = job.adjusted(settings_of(config))
    config.stash[_ASKED] = 0
    worker_input = getattr(config, "workerinput", None)
    try:
        resumption = _resumption(config, worker_input)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[RESUMPTION] = resumption
    begun = resumption or job
    config.stash[RUN_ID] = worker_input["dsql_run"] if worker_input else begun.run if begun else _new_run_id()
    if _sends_the_session(config):
        config.option.dist = "no"  # pytest-xdist works there, with the same arguments
    for theme in THEMES:
        config.pluginmanager.register(theme, f"dsql_fixtures_{theme.__name__.rpartition('.')[2]}")


def _job() -> Job | None:
    """What this session was told, when it was sent here from another machine."""
    if "DSQL_RUNNER_JOB" not in os.environ:  # looked up without importing anything
        return None
    from pytest_dsql.runner.job import Job

    return Job.here()


def _sends_the_session(config: pytest.Config) -> bool:
    """Tell whether the tests run on another machine."""
    return settings_of(config).runner == "ec2" and not config.option.collectonly


def _resumption(config: pytest.Config, worker_input: Mapping[str, Any] | None) -> Resumption | None:
    """What this session goes on with. Raises UsageError when the user named no run that can be resumed."""
    settings = settings_of(config)
    if settings.resume is None:
        return None
    from pytest_dsql.results.resumption import GoingOn, Resumption

    if worker_input is not None:
        return Resumption(*worker_input["dsql_resumption"])
    directory = Path(config.invocation_params.dir, settings.results)
    resumption = Resumption.of(directory, settings.resume, plan=settings.plan, seed=settings.seed)
    config.add_cleanup(GoingOn.alone(directory / resumption.run).close)
    return resumption


def _check_engine_settings(settings: Mapping[str, str]) -> None:
    from pytest_dsql.local.options import EngineOptions

    EngineOptions().with_settings(settings)


def _new_run_id() -> str:
    from datetime import UTC, datetime

    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.urandom(3).hex()}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the run's id to an xdist worker, so that all write one results file and share one engine."""
    from pytest_dsql.targets.created import Guard, shared_of

    config = node.config
    node.workerinput["dsql_run"] = config.stash[RUN_ID]
    if _GUARD not in config.stash and config.stash[JOB] is None and shared_of(settings_of(config)):
        # The workers end when this process does: killed at once, they would have no time to remove anything.
        signals = ExitStack()
        signals.enter_context(terminated_like_interrupted())
        config.add_cleanup(signals.close)
        config.stash[_GUARD] = Guard(settings_of(config), config.stash[RUN_ID], Screen(config).say)
    resumption = node.config.stash[RESUMPTION]
    node.workerinput["dsql_resumption"] = resumption and (resumption.run, resumption.at, resumption.whole)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ARG001 - the hook's signature
    """Learn from an xdist worker how many of its tests measure cells, and whether there can be a target for them."""
    output = getattr(node, "workeroutput", {})
    # Every worker collects the same tests; they run once altogether.
    node.config.stash[_ASKED] = max(node.config.stash[_ASKED], output.get("dsql_asked", 0))
    if output.get("dsql_unfit"):
        node.config.stash[_UNFIT] = output["dsql_unfit"]


#: What measures cells.
_MEASURING: Final = ("dsql_load", "dsql_side_by_side")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have each test that needs the target run once for each, when there are several."""
    targets = settings_of(metafunc.config).targets
    if len(targets) > 1 and "dsql_target" in metafunc.fixturenames:
        metafunc.parametrize("dsql_target", targets, indirect=True, scope="session")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the target can't run, and measure a cell on one target right after the other."""
    targets = settings_of(config).targets
    for item in items:
        if item.get_closest_marker("dsql_aws") and (_target_of(item) or targets[0]) == "local":
            item.add_marker(pytest.mark.skip(reason="meaningless on the embedded engine (dsql_aws)"))
    if len(targets) > 1:
        _interleave(items)


def _target_of(item: pytest.Item) -> str | None:
    """Which of several targets a test is to use; None when there is one, or it uses all or none."""
    return getattr(getattr(item, "callspec", None), "params", {}).get("dsql_target")


def _interleave(items: list[pytest.Item]) -> None:
    """Bring the runs of a test that measures together: pytest puts all tests of one target first, hours apart."""
    from pytest_dsql.results.names import id_without

    together: dict[str, list[pytest.Item]] = {}
    for item in items:
        target = _target_of(item)
        measures = target is not None and any(one in getattr(item, "fixturenames", ()) for one in _MEASURING)
        together.setdefault(id_without(item.nodeid, target) if target and measures else item.nodeid, []).append(item)
    items[:] = [item for several in together.values() for item in several]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the selected tests that measure cells, and say what would keep the target from being made."""
    config = session.config
    names = [set(getattr(one, "fixturenames", ())) for one in session.items]
    config.stash[_ASKED] = sum(any(fixture in one for fixture in _MEASURING) for one in names)
    if config.option.collectonly or config.stash[JOB] or not any("dsql_targets" in one for one in names):
        return
    from pytest_dsql.targets import preflight

    try:
        preflight(settings_of(config), results=any("dsql_results" in one for one in names))
        _compare_with_budget(session)
    except DsqlError as error:
        if not hasattr(config, "workerinput"):
            raise pytest.UsageError(str(error)) from None
        config.stash[_UNFIT] = str(error)


def _compare_with_budget(session: pytest.Session) -> None:
    """Reckon what the run will cost where something is created, and say it. Raises UsageError beyond the budget."""
    config = session.config
    settings = settings_of(config)
    if not any(one not in EXISTING_TARGETS for one in settings.targets) and settings.runner == "here":
        return
    from pytest_dsql.cost.work import PlannedTest
    from pytest_dsql.runner.costs import shape_of_runner
    from pytest_dsql.targets.costs import check_budget

    def tests(target: str) -> Iterator[PlannedTest]:
        for item in session.items:
            if (_target_of(item) or target) == target:
                name = getattr(item, "originalname", None) or item.name
                parameters = getattr(getattr(item, "callspec", None), "params", {})
                yield PlannedTest(name, frozenset(getattr(item, "fixturenames", ())), parameters)

    plan = plan_of(config)

    def runner(region: str) -> CostShape | None:
        return shape_of_runner(settings, plan, tests(settings.target), region)

    estimates, said = check_budget(settings, plan, tests, runner)
    budget_of(config).estimates = {name: round(one.usd, 6) for name, one in estimates.items()}
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if said and reporter is not None and not hasattr(config, "workerinput"):
        reporter.write_line(f"dsql: {said}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Have the session run on an instance near the target, where the options say so."""
    config = session.config
    if not _sends_the_session(config) or session.testsfailed or not session.items:
        return None
    from pytest_dsql.runner.ec2 import measure_on_ec2

    settings = settings_of(config)
    screen = Screen(config)
    try:
        with terminated_like_interrupted():
            config.stash[_STATUS] = measure_on_ec2(
                settings,
                run_id=config.stash[RUN_ID],
                arguments=config.invocation_params.args,
                collected=config.args,
                root=config.rootpath,
                where=config.invocation_params.dir,
                results=Path(config.invocation_params.dir, settings.results, config.stash[RUN_ID]),
                estimates=budget_of(config).estimates,
                say=screen.say,
                show=screen.write,
            )
        _forget_kept_cells(config)
    except DsqlError as error:
        usage = isinstance(error, UsageError)
        config.stash[_STATUS] = pytest.ExitCode.USAGE_ERROR if usage else pytest.ExitCode.TESTS_FAILED
        screen.say("\n".join([str(error), *getattr(error, "__notes__", ())]))
    return True


#: How the session ended that ran on another machine.
_STATUS: Final = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Run nothing in an xdist worker that can't make its target, and stop the run: its end says why, once."""
    if _UNFIT not in item.config.stash:
        return None
    item.session.shouldstop = item.config.stash[_UNFIT]
    return True


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test with a void cell even if it asserts nothing; skip an undecided one where the user asked for that.

    A test whose cell was not started for want of budget is skipped: it says nothing about the database.
    """
    result: object = None
    undecided: AssertionError | BudgetReached | None = None
    try:
        result = yield
    except (Inconclusive, Invalid) as error:
        if settings_of(pyfuncitem.config).inconclusive != "skip":
            raise
        undecided = error
    except BudgetReached as error:
        undecided = error
    for fixture in _MEASURING:
        load: Any = pyfuncitem.funcargs.get(fixture)
        if load is not None:
            load.raise_if_void()
    if undecided is not None:
        raise pytest.skip.Exception(str(undecided).strip().partition("\n")[0], _use_item_location=True)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a test the target as the options made it, or fail it at once when the engine that it would use has ended."""
    if TARGETS not in item.config.stash or "dsql_targets" not in getattr(item, "fixturenames", ()):
        return
    wanted = _target_of(item)
    for name, target in item.config.stash[TARGETS].opened.items():
        if wanted in (None, name):
            target.check()
            target.reset()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show our own errors where the test met them, without the way through this package; else by their one line."""
    error = call.excinfo.value if call.excinfo is not None else None
    if call.excinfo is None or not isinstance(error, DsqlError):
        return (yield)
    error.__context__ = error.__cause__ = None  # how it came about is inside of the package too
    if isinstance(error, ConnectionFailed) and (gone := _why_gone(item.config)):
        error.add_note(gone)
    shown: TracebackType | None = None
    for entry in reversed(call.excinfo.traceback):
        if not str(entry.path).startswith(_OTHERS_CODE):
            raw = entry._rawentry
            shown = TracebackType(shown, raw.tb_frame, raw.tb_lasti, raw.tb_lineno)
    if shown is not None:
        call.excinfo.traceback = Traceback(shown)
        return (yield)
    report = yield
    report.longrepr = "\n".join([str(error), *getattr(error, "__notes__", ())])
    return report


def _why_gone(config: pytest.Config) -> str:
    """Why there is a target no more; empty when all that were made are there."""
    try:
        for target in config.stash[TARGETS].opened.values() if TARGETS in config.stash else ():
            target.check()
    except DsqlError as error:
        return str(error)
    return ""


def _cells_of(config: pytest.Config) -> dict[str, Any] | None:
    """Return this run's results, or None when it wrote none."""
    path = Path(config.invocation_params.dir, settings_of(config).results, config.stash[RUN_ID], "results.json")
    if not path.exists():
        return None
    from pytest_dsql.results.reader import read_results

    return read_results(path)


def _forget_kept_cells(config: pytest.Config) -> None:
    """A run that is complete is not resumed, so what it kept for that can go."""
    run = Path(config.invocation_params.dir, settings_of(config).results, config.stash[RUN_ID])
    if run.is_dir():
        from pytest_dsql.results.kept import forget_all

        forget_all(run)


def _expect_more_cells(config: pytest.Config) -> None:
    """A run that broke off, even within its first cell, can be resumed."""
    run = Path(config.invocation_params.dir, settings_of(config).results, config.stash[RUN_ID])
    if run.is_dir():
        from pytest_dsql.results.kept import expect_more

        expect_more(run)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run that asked for cells and decided none of them does not pass."""
    config = session.config
    if SETTINGS not in config.stash:
        return
    if hasattr(config, "workerinput"):
        config.workeroutput["dsql_asked"] = config.stash[_ASKED]  # type: ignore[attr-defined] # xdist's attribute
        config.workeroutput["dsql_unfit"] = config.stash.get(_UNFIT, None)  # type: ignore[attr-defined] # likewise
        return
    if _GUARD in config.stash and config.stash[_GUARD].close():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if _UNFIT in config.stash:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
        return
    if _sends_the_session(config):
        session.exitstatus = config.stash.get(_STATUS, exitstatus)
        return
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not (
        session.shouldstop or session.shouldfail
    ):
        _forget_kept_cells(config)
    else:
        _expect_more_cells(config)
    if exitstatus != pytest.ExitCode.OK or config.option.collectonly or not config.stash[_ASKED]:
        return
    results = _cells_of(config)
    outcomes = [cell["verdict"]["outcome"] for cell in results["cells"]] if results else []
    if not any(one in ("pass", "fail") for one in outcomes):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        config.stash[_UNDECIDED] = True


_UNDECIDED: Final = pytest.StashKey[bool]()

#: Of a process that starts others: keeps what one of them creates until all are done.
_GUARD: Final[pytest.StashKey[Guard]] = pytest.StashKey()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table of cells."""
    if config.option.collectonly or SETTINGS not in config.stash:
        return
    results = _cells_of(config)
    if results and (results["cells"] or results["experiments"]):
        from pytest_dsql.report.terminal import summary_lines

        terminalreporter.section("dsql")
        writer = terminalreporter._tw
        for line in summary_lines(results, width=writer.fullwidth, colour=writer.hasmarkup):
            terminalreporter.write_line(line)
    if config.stash.get(_UNDECIDED, False):
        terminalreporter.write_line(
            "dsql: this run asked for cells and decided none of them, so it does not pass", red=True, bold=True
        )
