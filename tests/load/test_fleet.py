"""Whole cells on worker processes and a real PostgreSQL: exact counts, clear errors, nothing left running."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.errors import ConnectionFailed, TransactionError, UsageError
from pytest_dsql.load.fleet import CellInterrupted, Progress, run_cell
from pytest_dsql.load.measurement import Outcome
from pytest_dsql.load.retry import RetryPolicy
from pytest_dsql.transaction import Context, Mix, Rejected, Steps, Transaction, transaction
from tests.load.conftest import ITEMS, cell_plan


@transaction(kind="read")
def look(ctx: Context) -> Steps:
    item = yield "SELECT id, quantity FROM items WHERE id = $1", (ctx.rng.randrange(ITEMS),)
    assert item.rowcount == 1
    assert isinstance(item.one()[1], int)
    return None


@transaction(kind="write")
def take(ctx: Context) -> Steps:
    taken = yield "UPDATE items SET quantity = quantity + 1 WHERE id = $1", (ctx.rng.randrange(ITEMS),)
    assert taken.rowcount == 1
    if ctx.rng.random() < 0.1:
        return Rejected("one in ten")
    return None


def quantity(endpoint: Endpoint) -> int:
    with psycopg.connect(**endpoint.conninfo()) as connection:  # type: ignore[arg-type]  # all of them are strings
        row = connection.execute("SELECT sum(quantity)::bigint FROM items").fetchone()
        assert row is not None
        return int(row[0])


def test_what_was_counted_as_committed_is_what_the_database_has(endpoint: Endpoint) -> None:
    before = quantity(endpoint)
    mix = Mix({look: 0.5, take: 0.5})
    patient = RetryPolicy(attempts=100, deadline_s=30.0)  # however often somebody else takes the same one
    measured = run_cell(cell_plan(endpoint, mix, connections=5, workers=2, warmup_s=0.1, window_s=0.4, retry=patient))
    assert quantity(endpoint) - before == measured.committed["take"] > 0
    writes = measured.samples["take"]
    assert writes.count(Outcome.REJECTED) > 0
    assert writes.count(Outcome.FAILED) == measured.samples["look"].count(Outcome.FAILED) == 0
    assert measured.arrivals < sum(measured.committed.values()) + writes.count(Outcome.REJECTED) + 1000
    for samples in measured.samples.values():
        assert list(samples.intended_ns) == sorted(samples.intended_ns)
        assert samples.intended_ns[0] >= 0
        assert samples.intended_ns[-1] < 400_000_000
    assert measured.connect.succeeded == 5
    assert measured.workers == 2
    assert measured.interrupted is None
    assert measured.rtt_ns is not None
    assert 0 < measured.generator.cpu < 1.5


def test_progress_passes_through_the_phases(endpoint: Endpoint) -> None:
    seen: list[Progress] = []
    run_cell(cell_plan(endpoint, Mix({look: 1}), warmup_s=0.8, window_s=0.8), progress=seen.append)
    phases = list(dict.fromkeys(one.phase for one in seen))
    assert phases[:3] == ["connecting", "warm-up", "window"]
    assert seen[-1].outcomes["ok"] > 0
    assert seen[-1].connected == 4


def children() -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(os.getpid())], check=True, capture_output=True, text=True
    )
    return [int(pid) for pid in listed.stdout.split()]


def workers() -> list[int]:
    found = []
    for pid in children():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"pytest_dsql.load.worker" in command:
            found.append(pid)
    return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds its workers through /proc")


def _in_window(act: Callable[[], None]) -> Callable[[Progress], None]:
    done: list[bool] = []

    def watch(progress: Progress) -> None:
        if progress.phase == "window" and any(progress.outcomes.values()) and not done:
            done.append(True)
            act()

    return watch


@needs_proc
def test_a_killed_worker_ends_the_cell_at_once_and_what_it_reported_is_kept(endpoint: Endpoint) -> None:
    plan = cell_plan(endpoint, Mix({take: 1}), workers=2, window_s=60.0)
    measured = run_cell(plan, progress=_in_window(lambda: os.kill(workers()[0], signal.SIGKILL)))
    assert measured.interrupted is not None
    assert "was killed by SIGKILL" in measured.interrupted
    assert "into the window" in measured.interrupted
    assert measured.duration_s < 30
    assert measured.arrivals > 0
    assert workers() == []


@needs_proc
@pytest.mark.parametrize(("number", "who"), [(signal.SIGINT, "the user"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_stops_the_workers_and_keeps_what_was_measured(
    endpoint: Endpoint, number: signal.Signals, who: str
) -> None:
    assert threading.current_thread() is threading.main_thread()
    plan = cell_plan(endpoint, Mix({take: 1}), window_s=60.0)
    with pytest.raises(CellInterrupted) as caught:
        run_cell(plan, progress=_in_window(lambda: os.kill(os.getpid(), number)))
    measured = caught.value.measurement
    assert measured is not None
    assert measured.arrivals == measured.samples["take"].count(*Outcome) > 0
    assert measured.interrupted is not None
    assert f"interrupted by {who}" in measured.interrupted
    assert workers() == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@needs_proc
def test_workers_end_with_the_process_that_started_them(endpoint: Endpoint, tmp_path: Path) -> None:
    script = tmp_path / "controller.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, pickle, signal, sys
            from pytest_dsql.load.fleet import run_cell
            from tests.load.conftest import cell_plan
            from tests.load.test_fleet import look, workers
            from pytest_dsql.transaction import Mix

            def die(progress):
                if progress.phase == "window":
                    print(*workers(), flush=True)
                    os.kill(os.getpid(), signal.SIGKILL)

            endpoint = pickle.loads(sys.stdin.buffer.read())
            run_cell(cell_plan(endpoint, Mix({look: 1}), window_s=60.0), progress=die)
            """
        )
    )
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, str(script)],
        check=False,  # it kills itself
        input=pickle.dumps(endpoint),
        capture_output=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=300,
    )
    pids = [int(pid) for pid in ended.stdout.split()]
    assert pids, ended.stderr.decode()
    waited = threading.Event()
    for _ in range(100):
        if not any(Path(f"/proc/{pid}/cmdline").exists() and _alive(pid) for pid in pids):
            break
        waited.wait(0.1)
    assert not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def raises(ctx: Context) -> Steps:
    yield "SELECT 1"
    raise KeyError("postgresql://me:geheim@host/")


def yields_a_number(ctx: Context) -> Steps:
    yield 7  # type: ignore[misc]  # the mistake under test
    return None


def wrong_parameter(ctx: Context) -> Steps:
    yield "SELECT $1", (object(),)
    return None


def too_few_parameters(ctx: Context) -> Steps:
    yield "SELECT $1::int", ()
    return None


def parameters_as_text(ctx: Context) -> Steps:
    yield "SELECT $1", "abc"
    return None


def copies(ctx: Context) -> Steps:
    yield "COPY items TO STDOUT"
    return None


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (raises, r"transaction raises raised KeyError: .*<masked>@host.* \(line \d+, in raises\)"),
        (yields_a_number, "transaction yields_a_number yielded int; it must yield SQL"),
        (wrong_parameter, "transaction wrong_parameter: a parameter of 'SELECT \\$1' cannot be sent: cannot adapt"),
        (too_few_parameters, "transaction too_few_parameters: .* supplies 0 parameters"),
        (parameters_as_text, "transaction parameters_as_text: the parameters of .* must be a tuple or list, not str"),
        (copies, "transaction copies: COPY is no statement"),
    ],
)
def test_a_fault_in_a_transaction_ends_the_cell_and_names_it(
    endpoint: Endpoint, function: Callable[[Context], Steps], text: str
) -> None:
    wrong = Transaction(function, "read", function.__name__)
    with pytest.raises(TransactionError, match=text) as caught:
        run_cell(cell_plan(endpoint, Mix({wrong: 1}), window_s=60.0))
    assert caught.value.transaction == function.__name__
    assert "geheim" not in str(caught.value) + caught.value.details


def two(ctx: Context) -> Steps:
    yield "SELECT 1"
    yield "SELECT 2"
    return None


def two_at_once(ctx: Context) -> Steps:
    yield ["SELECT 1", "SELECT 2"]
    return None


def none(ctx: Context) -> Steps:
    if ctx is None:
        yield "SELECT 1"
    return None


@pytest.mark.parametrize("function", [two, two_at_once, none])
def test_another_number_of_statements_in_a_transaction_without_a_block_is_a_fault(
    endpoint: Endpoint, function: Callable[[Context], Steps]
) -> None:
    wrong = Transaction(function, "read", function.__name__, block=False)
    with pytest.raises(TransactionError, match="block=False and must yield exactly one statement"):
        run_cell(cell_plan(endpoint, Mix({wrong: 1}), window_s=60.0))


def test_steps_of_every_form_are_prepared_once(endpoint: Endpoint) -> None:
    def forms(ctx: Context) -> Steps:
        for _ in range(3):
            yield "SELECT 1"
            yield "SELECT $1::int", [1]
            yield "SELECT $1::int + 1", (1,)
            yield ["SELECT 2", ("SELECT $1::int", [2]), ("SELECT $1::int + 2", (2,))]
        return None

    def first_fails(ctx: Context) -> Steps:
        # Its first text stays prepared while the second can't be: later names must be none of theirs.
        yield ["SELECT 3", "SELECT * FROM no_such_table", "SELECT 4"]
        return None

    mix = Mix({Transaction(forms, "read", "forms"): 1, Transaction(first_fails, "read", "first_fails"): 1})
    measured = run_cell(cell_plan(endpoint, mix, connections=1, window_s=0.5))
    forms_made, failed = measured.samples["forms"], measured.samples["first_fails"]
    assert forms_made.errors == {}
    assert forms_made.count(Outcome.OK) == len(forms_made) > 1
    assert set(failed.errors) == {"42P01"}


def test_a_statement_that_always_fails_is_a_rate_with_a_message(endpoint: Endpoint) -> None:
    def missing(ctx: Context) -> Steps:
        yield "SELECT * FROM no_such_table"
        return None

    measured = run_cell(cell_plan(endpoint, Mix({Transaction(missing, "read", "missing"): 1})))
    samples = measured.samples["missing"]
    assert samples.count(Outcome.FAILED) == len(samples) > 0
    assert samples.messages == {"42P01": 'relation "no_such_table" does not exist'}


def test_an_unreachable_endpoint_is_one_clear_line(endpoint: Endpoint) -> None:
    with pytest.raises(ConnectionFailed, match=r"could not connect to .*:1: .*") as caught:
        run_cell(cell_plan(replace(endpoint, port=1), Mix({look: 1})))
    assert "\n" not in str(caught.value)


def test_what_does_not_pickle_is_named(endpoint: Endpoint) -> None:
    lock = threading.Lock()

    def locked(ctx: Context) -> Steps:
        with lock:
            yield "SELECT 1"
        return None

    with pytest.raises(UsageError, match=r"cannot be sent to a worker process: .*lock"):
        run_cell(cell_plan(endpoint, Mix({Transaction(locked, "read", "locked"): 1})))


def test_transactions_of_a_module_that_workers_cannot_import_travel_by_value(endpoint: Endpoint) -> None:
    import types

    module = types.ModuleType("module_of_no_file")
    module.__file__ = "/nowhere/module_of_no_file.py"
    sys.modules[module.__name__] = module
    try:
        exec(  # a module such as pytest's importlib mode makes: importable by nobody else
            textwrap.dedent(
                """
                def helper(ctx):
                    return "SELECT 1"

                def steps(ctx):
                    yield helper(ctx)
                """
            ),
            module.__dict__,
        )
        measured = run_cell(cell_plan(endpoint, Mix({Transaction(module.steps, "read", "steps"): 1})))
    finally:
        del sys.modules[module.__name__]
    assert measured.samples["steps"].count(Outcome.OK) > 0


def test_all_kinds_of_parameters_arrive_as_they_were(endpoint: Endpoint) -> None:
    def kinds(ctx: Context) -> Steps:
        import datetime
        import decimal
        import uuid

        sent = (
            -7,
            "grün",
            None,
            True,
            b"\x00\xff\\",
            1.5,
            decimal.Decimal("1.20"),
            datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
            uuid.UUID(int=5),
            [1, None, 3],
        )
        types = "bigint|text|int|bool|bytea|float8|numeric|timestamptz|uuid|int[]"
        sql = "SELECT " + ", ".join(f"${n}::{kind}" for n, kind in enumerate(types.split("|"), 1))
        got = yield sql, sent
        assert got.one() == sent, (got.one(), sent)
        several = yield [(sql, sent), "SELECT 2", (sql, list(sent))]
        assert [one.one() for one in several] == [sent, (2,), sent]
        return None

    measured = run_cell(cell_plan(endpoint, Mix({Transaction(kinds, "read", "kinds"): 1})))
    samples = measured.samples["kinds"]
    assert samples.count(Outcome.OK) == len(samples) > 0
