"""The fixtures. Each imports what it needs when it is asked for."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, final

import pytest

from pytest_dsql.masking import mask
from pytest_dsql.settings import Settings

if TYPE_CHECKING:
    import psycopg
    from distributed import Client

    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.connect.pool import AsyncDsqlPool, DsqlPool
    from pytest_dsql.cost.books import Budget
    from pytest_dsql.experiment.cells import Load
    from pytest_dsql.experiment.plans import Plan
    from pytest_dsql.experiment.side_by_side import SideBySide
    from pytest_dsql.load.cost import Books
    from pytest_dsql.local.controls import LocalControls
    from pytest_dsql.report.progress import ProgressLine
    from pytest_dsql.results.resumption import Resumption
    from pytest_dsql.results.writer import ResultsFile
    from pytest_dsql.runner.functions import Fleet, Functions
    from pytest_dsql.runner.job import Job
    from pytest_dsql.targets.several import Targets
    from pytest_dsql.targets.target import Target
    from pytest_dsql.workloads.inserts.workload import Inserts
    from pytest_dsql.workloads.orders.workload import Orders
    from pytest_dsql.workloads.transfers.workload import Transfers


SETTINGS: Final = pytest.StashKey[Settings]()
RUN_ID: Final = pytest.StashKey[str]()
#: What this session goes on with; None in a run that begins.
RESUMPTION: Final[pytest.StashKey[Resumption | None]] = pytest.StashKey()
#: What the run may cost, on all of its targets.
BUDGET: Final = pytest.StashKey["Budget"]()
#: What this session was told on another machine than the one it was started on; None where it was started.
JOB: Final[pytest.StashKey[Job | None]] = pytest.StashKey()
#: The targets while there are any.
TARGETS: Final = pytest.StashKey["Targets"]()


def settings_of(config: pytest.Config) -> Settings:
    """Return what the user chose for this run."""
    return config.stash[SETTINGS]


def plan_of(config: pytest.Config) -> Plan:
    """Return the sizes that this run's plan has on its target: for `pytest_generate_tests` of a benchmark folder.

    Several targets get the same cells, those of the embedded engine if that is one of them.
    """
    from pytest_dsql.experiment.plans import plan_for

    settings = settings_of(config)
    return plan_for(settings.plan, "local" if "local" in settings.targets else settings.target)


def budget_of(config: pytest.Config) -> Budget:
    """Return what the run may cost, on all of its targets together."""
    from pytest_dsql.cost.books import Budget

    if BUDGET not in config.stash:
        config.stash[BUDGET] = budget = Budget(settings_of(config).budget)
        if (job := config.stash[JOB]) is not None:
            from pytest_dsql.runner.costs import count_machines

            count_machines(job.cost, budget)
    return config.stash[BUDGET]


@pytest.fixture(scope="session")
def dsql_targets(pytestconfig: pytest.Config) -> Iterator[Targets]:
    """All targets of the run by name, each made when it is first asked for."""
    from pytest_dsql.targets.several import Targets

    with terminated_like_interrupted():
        targets = Targets(
            settings_of(pytestconfig),
            run_id=pytestconfig.stash[RUN_ID],
            say=Screen(pytestconfig).say,
            open_one=_opener(pytestconfig),
        )
        pytestconfig.stash[TARGETS] = targets
        try:
            yield targets
        finally:
            del pytestconfig.stash[TARGETS]
            targets.close()


@pytest.fixture(scope="session")
def dsql_target(dsql_targets: Targets, request: pytest.FixtureRequest) -> Target:
    """What is measured: the embedded engine, or the endpoint that the options name. Made on first use.

    When `--dsql-target` names several, each test that needs this runs once for each of them.
    """
    return dsql_targets[getattr(request, "param", next(iter(dsql_targets)))]


def _opener(config: pytest.Config) -> Callable[..., Target]:
    """Return what makes a target; in a session that was sent to another machine it is there already."""
    if job := config.stash[JOB]:
        from pytest_dsql.runner.given import open_given

        return lambda *_settings, **_how: open_given(job)
    from pytest_dsql.targets import open_target

    return open_target


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Have SIGTERM and SIGHUP (a lost terminal) end the session as Ctrl-C does: what was opened is closed.

    What was measured is kept. A signal that somebody else has plans for, `nohup` for one, is left alone.
    """
    import signal
    import threading

    def interrupt(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(f"terminated by {signal.Signals(number).name}")

    ours: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        ours = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) == signal.SIG_DFL]
    for one in ours:
        signal.signal(one, interrupt)
    try:
        yield
    finally:
        for one in ours:
            signal.signal(one, signal.SIG_DFL)


@pytest.fixture(scope="session")
def dsql_endpoint(dsql_target: Target) -> Endpoint:
    """Where and how to connect: host, port, TLS, how to authenticate."""
    return dsql_target.endpoint


@pytest.fixture(scope="session")
def dsql_plan(pytestconfig: pytest.Config) -> Plan:
    """The sizes that this run's plan has on its target."""
    return plan_of(pytestconfig)


@pytest.fixture
def dsql_clean(dsql_target: Target) -> Iterator[None]:
    """Leave the embedded engine's catalog as it was found; on an attached endpoint nothing is ever dropped.

    Tables, views, sequences, functions, domains, schemas and roles that the test created are dropped when its
    connections are closed: every fixture that gives connections to one test asks for this one first, so that this one
    ends last.
    """
    if dsql_target.engine is None:
        yield
        return
    from pytest_dsql.targets.cleaning import removing_new_objects

    with removing_new_objects(dsql_target):
        yield


@pytest.fixture
def dsql_connect(dsql_target: Target, dsql_clean: None) -> Iterator[Callable[..., psycopg.Connection[Any]]]:  # noqa: ARG001
    """Return a factory of new connections; all are closed when the test ends.

    `dsql_connect(autocommit=True)`: autocommit by default, so that a forgotten transaction can't reach DSQL's
    300 s limit. `dsql_connect(region="us-east-2")`: through the endpoint of that Region, where the target has several.
    """
    with ExitStack() as connections:

        def connect(*, autocommit: bool = True, region: str | None = None) -> psycopg.Connection[Any]:
            connection = dsql_target.connect(region)
            connections.callback(connection.close)
            connection.autocommit = autocommit
            return connection

        yield connect


@pytest.fixture
def dsql_connection(dsql_target: Target, dsql_clean: None) -> Iterator[psycopg.Connection[Any]]:  # noqa: ARG001
    """A connection of the test's own, in autocommit; see `dsql_clean` for what becomes of what it made."""
    # Closed only: psycopg's own context manager would commit what the test has left open.
    with closing(dsql_target.connect()) as connection:
        yield connection


@pytest.fixture
def dsql_pool(dsql_target: Target, dsql_clean: None) -> Iterator[DsqlPool]:  # noqa: ARG001
    """An open psycopg_pool of 1 to 8 connections, with a token per connection attempt."""
    from pytest_dsql.connect.pool import open_pool

    with open_pool(dsql_target.endpoint, dsql_target.tokens, min_size=1, max_size=8) as pool:
        yield pool


@pytest.fixture
def dsql_async_pool(dsql_target: Target, dsql_clean: None) -> AsyncDsqlPool:  # noqa: ARG001
    """A psycopg_pool.AsyncConnectionPool, for the test to open in its event loop: `async with dsql_async_pool:`."""
    from pytest_dsql.connect.pool import unopened_async_pool

    return unopened_async_pool(dsql_target.endpoint, dsql_target.tokens, min_size=1, max_size=8)


@pytest.fixture
def dsql_local(dsql_target: Target, dsql_clean: None) -> Iterator[LocalControls]:  # noqa: ARG001
    """The embedded engine's levers: `.limits`, `.clock`, `.latency`, `.faults`; skips where the target is another.

    What a test sets is undone when it ends, before `dsql_clean` connects once more.
    """
    if dsql_target.local is None:
        pytest.skip(f"dsql_local is the embedded engine, and the target is {dsql_target.name}")
    controls: LocalControls = dsql_target.local
    try:
        yield controls
    finally:
        if controls.engine.ended() is None:
            controls.reset()


@pytest.fixture(scope="session")
def dsql_orders(dsql_target: Target, pytestconfig: pytest.Config) -> Orders:
    """The order workload, loaded: `.mix` is E002's mix, `.scale` the sizes of its data."""
    from pytest_dsql.report.progress import ProgressLine
    from pytest_dsql.workloads.orders.workload import Orders

    settings = settings_of(pytestconfig)
    orders = Orders(settings.scale or plan_of(pytestconfig).scale, seed=settings.seed)
    # Loading disturbs a cell as much as another cell would.
    with _one_at_a_time(pytestconfig), ProgressLine(Screen(pytestconfig)) as line:
        orders.load(dsql_target.connect, dialect=dsql_target.endpoint.dialect, progress=line.loading)
    return orders


@pytest.fixture(scope="session")
def dsql_transfers(dsql_target: Target, pytestconfig: pytest.Config) -> Transfers:
    """The transfer workload, loaded: money moved between accounts, for contention."""
    from pytest_dsql.workloads.transfers.workload import Transfers

    transfers = Transfers(settings_of(pytestconfig).scale or plan_of(pytestconfig).scale)
    with _one_at_a_time(pytestconfig):
        transfers.load(dsql_target.connect, dialect=dsql_target.endpoint.dialect)
    return transfers


@pytest.fixture(scope="session")
def dsql_inserts(dsql_target: Target, pytestconfig: pytest.Config) -> Inserts:
    """The insert workload, loaded: one table, single-statement transactions."""
    from pytest_dsql.workloads.inserts.workload import Inserts

    inserts = Inserts()
    with _one_at_a_time(pytestconfig):
        inserts.load(dsql_target.connect, dialect=dsql_target.endpoint.dialect)
    return inserts


@pytest.fixture(scope="session")
def _dsql_fleet(dsql_target: Target, dsql_inserts: Inserts, pytestconfig: pytest.Config) -> Iterator[Fleet]:  # noqa: ARG001
    """Where functions run: in Lambda with `--dsql-runner lambda`, else as threads here."""
    settings = settings_of(pytestconfig)
    if settings.runner == "lambda":
        from pytest_dsql.runner.lambda_fleet import deployed

        with deployed(settings, dsql_target, run_id=pytestconfig.stash[RUN_ID], say=Screen(pytestconfig).say) as fleet:
            yield fleet
        return
    from pytest_dsql.runner.functions import Here

    here = Here(dsql_target.regions or {str(dsql_target.endpoint.region): dsql_target.endpoint})
    try:
        yield here
    finally:
        here.close()


@pytest.fixture
def dsql_functions(
    _dsql_fleet: Fleet, dsql_target: Target, dsql_inserts: Inserts, request: pytest.FixtureRequest
) -> Functions:
    """Functions that insert and read single rows: `.call("insert", calls=, concurrency=, times=, keep=)`."""
    from pytest_dsql.runner.functions import Functions

    seed = settings_of(request.config).seed
    return Functions(_dsql_fleet, dsql_inserts, dsql_target.connect, seed, request.node.nodeid)


@pytest.fixture(scope="session")
def dsql_results(dsql_targets: Targets, pytestconfig: pytest.Config) -> Iterator[ResultsFile]:
    """The results file of this run."""
    from pytest_dsql.results.run import RunInfo
    from pytest_dsql.results.writer import ResultsFile

    settings = settings_of(pytestconfig)
    directory = Path(pytestconfig.invocation_params.dir, settings.results)
    scale = settings.scale or plan_of(pytestconfig).scale
    run = RunInfo.collect(id=pytestconfig.stash[RUN_ID], plan=settings.plan, seed=settings.seed, scale=scale)
    results = ResultsFile(directory, run, resumption=pytestconfig.stash[RESUMPTION])
    dsql_targets.tell(lambda target: results.put_target(target.name, **target.facts))
    yield results
    results.finish()


@pytest.fixture(scope="session")
def dsql_books(dsql_results: ResultsFile, pytestconfig: pytest.Config) -> Iterator[Callable[[Target], Books]]:
    """What each target costs: lets cells begin while the budget allows it, and tells what each has used."""
    from pytest_dsql.targets.costs import open_books

    job = pytestconfig.stash[JOB]
    known = None
    if job is not None:
        from pytest_dsql.runner.costs import target_of

        known = target_of(job.cost)
    settings = settings_of(pytestconfig)
    opened: dict[str, Books] = {}

    def of(target: Target) -> Books:
        if target.name not in opened:
            opened[target.name] = open_books(
                settings.for_target(target.name),
                target,
                budget_of(pytestconfig),
                run_id=pytestconfig.stash[RUN_ID],
                processes=int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
                known=known,
            )
        return opened[target.name]

    try:
        yield of
    finally:
        for name, books in opened.items():
            dsql_results.put_costs(books.close())
            if books.shared:
                dsql_results.put_target(name, **books.facts())
            else:
                dsql_results.add_cost(name, books.facts())


@pytest.fixture(scope="session")
def dsql_scheduler(pytestconfig: pytest.Config) -> Iterator[Client | None]:
    """The Dask scheduler whose workers make the load (`--dsql-scheduler`), None when this host makes it."""
    address = settings_of(pytestconfig).scheduler
    if address is None:
        yield None
        return
    from pytest_dsql.load.hosts import open_scheduler

    client = open_scheduler(address)
    try:
        yield client
    finally:
        client.close()  # type: ignore[no-untyped-call]  # distributed is not typed throughout


@pytest.fixture(scope="session")
def dsql_load_on(
    dsql_results: ResultsFile,
    dsql_books: Callable[[Target], Books],
    dsql_scheduler: Client | None,
    pytestconfig: pytest.Config,
) -> Callable[..., Load]:
    """Return what makes a `Load` for one test on one target: `dsql_load` and `dsql_side_by_side` are made by it."""
    from pytest_dsql.experiment.cells import Load
    from pytest_dsql.results.kept import KeptCells
    from pytest_dsql.targets.identity import identity_of

    settings = settings_of(pytestconfig)
    resumption = pytestconfig.stash[RESUMPTION]
    kept = KeptCells(
        dsql_results.path.parent,
        whole=frozenset() if resumption is None else resumption.whole,
        taken=dsql_results.took,
    )

    def load_on(target: Target, test: str, line: ProgressLine, *, name: str = "") -> Load:
        return Load(
            endpoint=target.endpoint,
            connect=target.connect,
            plan=plan_of(pytestconfig),
            target=target.name,
            test=test,
            name=name,
            regions=target.regions,
            seed=settings.seed,
            workers=settings.workers or _workers(settings, dsql_scheduler),
            exclusive=lambda: _one_at_a_time(pytestconfig),
            record=dsql_results.put,
            injections=target.injections,
            progress=line.cell,
            note=dsql_results.put_experiment,
            scheduler=dsql_scheduler,
            kept=kept,
            about={"plan": settings.plan, "seed": settings.seed, "target": identity_of(settings, target)},
            books=dsql_books(target),
        )

    return load_on


@pytest.fixture
def dsql_load(dsql_target: Target, dsql_load_on: Callable[..., Load], request: pytest.FixtureRequest) -> Iterator[Load]:
    """Measure cells: `.closed(mix, connections=)`, `.open(mix, rate=, connections=)`, `.capacity(mix, slo, start=)`."""
    from pytest_dsql.report.progress import ProgressLine

    with ProgressLine(Screen(request.config)) as line:
        yield dsql_load_on(dsql_target, request.node.nodeid, line)


@pytest.fixture
def dsql_side_by_side(
    dsql_targets: Targets, dsql_load_on: Callable[..., Load], request: pytest.FixtureRequest
) -> Iterator[SideBySide]:
    """Measure the same cells on all targets of the run in turn: `.measure(lambda load: load.closed(mix, ...))`.

    What `load` is there, `dsql_load` is for one target.
    """
    from pytest_dsql.experiment.side_by_side import SideBySide
    from pytest_dsql.report.progress import ProgressLine
    from pytest_dsql.results.names import id_on

    test: str = request.node.nodeid
    with ProgressLine(Screen(request.config)) as line:
        yield SideBySide(
            {
                name: dsql_load_on(target, test, line, name=id_on(test, name) if len(dsql_targets) > 1 else "")
                for name, target in dsql_targets.items()
            }
        )


def _workers(settings: Settings, scheduler: Client | None) -> int:
    """How many processes make the load unless the user says otherwise: the same on all targets of a run."""
    if scheduler is not None:
        from pytest_dsql.load.hosts import workers_of

        return len(workers_of(scheduler))
    # The embedded engine needs the other cores itself.
    return 1 if "local" in settings.targets else os.cpu_count() or 1


@contextmanager
def _one_at_a_time(config: pytest.Config) -> Iterator[None]:
    """Keep the run's other processes from loading the machine meanwhile (pytest-xdist)."""
    if not hasattr(config, "workerinput"):
        yield
        return
    import fcntl

    directory = Path(config.invocation_params.dir, settings_of(config).results, config.stash[RUN_ID])
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".load.lock").open("w") as lock:
        # The kernel frees the lock of a process that dies.
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@final
class Screen(io.TextIOBase):
    """The terminal that pytest reports to, past its capture; no terminal at all where it reports to none."""

    def __init__(self, config: pytest.Config) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        self._file: TextIO | None = getattr(getattr(reporter, "_tw", None), "_file", None)
        self._capture = config.pluginmanager.get_plugin("capturemanager")

    def _uncaptured(self) -> AbstractContextManager[None]:
        """While pytest captures, the file's descriptor is a file of its own, no terminal."""
        return self._capture.global_and_fixture_disabled() if self._capture else nullcontext()

    def isatty(self) -> bool:
        """Tell whether a person may be watching."""
        with self._uncaptured():
            return self._file is not None and self._file.isatty()

    def columns(self) -> int:
        """Tell how wide the terminal is."""
        with self._uncaptured():
            return shutil.get_terminal_size().columns

    def write(self, text: str) -> int:
        """Write at once, not into the test's captured output."""
        if self._file is None:
            return 0
        with self._uncaptured():
            try:
                written = self._file.write(text)
                self._file.flush()
            except OSError:  # the terminal is gone; what is being done goes on, also without anybody to tell
                self._file = None
                return 0
        return written

    def say(self, text: str) -> None:
        """Write one line of what takes a while: what is created, and what is removed."""
        self.write(f"\ndsql: {mask(text)}\n")
