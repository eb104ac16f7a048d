"""Cells in tests: the verdict is the test's, its text a table, its figures a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.conftest import CELL, VOID

PASSES = (
    CELL
    + """
@pytest.mark.dsql
def test_cell(dsql_load):
    cell = dsql_load.closed(MIX, connections=2, warmup=0.1, duration=1.0)
    cell.assert_meets(Slo(reads=Latency(p95=ms(5000))))
"""
)
#: Far over its limit, and with a limit far from what the generator itself could be the cause of.
MISSES = (
    PASSES.replace("SELECT $1::bigint", "SELECT pg_sleep(0.6), $1::bigint")
    .replace("ms(5000)", "ms(500)")
    .replace("duration=1.0", "duration=1.5")
)
#: However fast this machine is, its requests are too few.
UNDECIDED = (
    PASSES.replace("SELECT $1::bigint", "SELECT pg_sleep(0.02), $1::bigint")
    .replace("reads=Latency(p95=ms(5000))", "reads=Latency(p999=ms(5000))")
    .replace("duration=1.0", "duration=0.1")
)


def results(pytester: pytest.Pytester) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((pytester.path / ".dsql/latest/results.json").read_text())
    return content


def test_a_cell_that_meets_its_slo_passes(attached: pytest.Pytester) -> None:
    attached.makepyfile(PASSES)
    result = attached.runpytest_subprocess("-m", "dsql")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*= dsql =*", "*closed *pass*", "1 cell: 1 pass"])
    [cell] = results(attached)["cells"]
    assert cell["verdict"]["outcome"] == "pass"
    assert sum(cell["transactions"]["one"]["outcomes"].values()) == cell["transactions"]["one"]["count"] > 0


@pytest.mark.parametrize("arguments", [(), ("-q",), ("-n", "1")])
def test_a_missed_slo_fails_with_a_table(attached: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    attached.makepyfile(MISSES)
    result = attached.runpytest_subprocess(*arguments)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["*transaction *metric *limit *measured *verdict*", "*one *p95 *fail*", "*verdict *fail*"]
    )
    assert results(attached)["cells"][0]["verdict"]["outcome"] == "fail"


def test_too_little_evidence_fails(attached: pytest.Pytester) -> None:
    attached.makepyfile(UNDECIDED)
    result = attached.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*Inconclusive*"])


def test_undecided_cells_can_be_skipped_but_a_run_without_a_decision_does_not_pass(attached: pytest.Pytester) -> None:
    attached.makepyfile(UNDECIDED)
    result = attached.runpytest_subprocess("--dsql-inconclusive", "skip", "-rs")
    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["dsql: this run asked for cells and decided none of them*", "SKIPPED *inconclusive: *"]
    )


def test_a_cell_that_nobody_judges_does_not_pass_the_run(attached: pytest.Pytester) -> None:
    attached.makepyfile(PASSES.replace("    cell.assert_meets", "    # cell.assert_meets"))
    result = attached.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_void_cell_fails_whether_nothing_is_asserted_or_the_next_is_undecided_and_skipped_for_that(
    attached: pytest.Pytester,
) -> None:
    attached.makepyfile(
        VOID
        + """
def test_nothing_asserted(dsql_load):
    dsql_load.closed(BROKEN, connections=1, warmup=0, duration=0.2)

@transaction(kind="read")
def slow(ctx):
    yield "SELECT pg_sleep(0.02), $1::bigint", (1,)

def test_next_undecided(dsql_load):
    dsql_load.closed(BROKEN, connections=1, warmup=0, duration=0.2)
    few = dsql_load.closed(Mix({slow: 1.0}), connections=1, warmup=0, duration=0.1)
    few.assert_meets(Slo(reads=Latency(p999=ms(5000))))
"""
    )
    result = attached.runpytest_subprocess("--dsql-inconclusive", "skip")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*nothing_lost*3*", "*nothing_lost*3*"])


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds the worker through /proc")
def test_a_worker_that_dies_makes_its_cell_inconclusive(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        """
        import os, pathlib, signal, threading
        from pytest_dsql import Latency, Slo, ms

        def receipts(connection):
            return connection.execute("SELECT count(*) FROM pytest_dsql_orders.operation_receipts").fetchone()[0]

        def kill_the_worker_at_work(connection, before):
            while receipts(connection) == before:  # earlier runs on the same engine left some
                pass
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    ours = int((process / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()
                    if ours and b"pytest_dsql.load.worker" in (process / "cmdline").read_bytes():
                        os.kill(int(process.name), signal.SIGKILL)
                except OSError:
                    pass

        def test_cell(dsql_load, dsql_orders, dsql_connect):
            connection = dsql_connect()
            arguments = (connection, receipts(connection))
            killer = threading.Thread(target=kill_the_worker_at_work, args=arguments, daemon=True)
            killer.start()
            cell = dsql_load.closed(dsql_orders.mix, connections=2, warmup=0, duration=60)
            killer.join()
            cell.assert_meets(Slo(reads=Latency(p95=ms(5000)), writes=Latency(p95=ms(5000))))
        """
    )
    result = attached.runpytest_subprocess("--dsql-scale", "tiny", timeout=300)
    result.assert_outcomes(failed=1)
    [cell] = results(attached)["cells"]
    assert (cell["verdict"]["outcome"], set(cell["invariants"].values())) == ("inconclusive", {0})
    assert "was killed by SIGKILL" in cell["interrupted"]


def test_an_error_in_a_transaction_names_it(attached: pytest.Pytester) -> None:
    attached.makepyfile(CELL.replace("ctx.rng.randrange(100)", "ctx.nothing") + PASSES.replace(CELL, ""))
    result = attached.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*TransactionError: *one*"])


WRONG_ARGUMENTS = {
    "closed(MIX, connections=0)": "connections must be a whole number from 1 to 16384, not 0",
    "closed(MIX, connections=2.5)": "connections must be a whole number from 1 to 16384, not 2.5",
    "closed(MIX, connections=1, duration=0)": "duration must be seconds, at least 0.1, not 0",
    "closed(MIX, connections=1, warmup=-1)": "warmup must be seconds, at least 0, not -1",
    "closed(one, connections=1)": "dsql_load takes a Mix of transactions, not Transaction",
    "connect_burst(0)": "n must be a whole number from 1 to 10000, not 0",
}


def test_a_wrong_argument_is_one_clear_line(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        CELL + "".join(f"def test_{n}(dsql_load): dsql_load.{call}\n" for n, call in enumerate(WRONG_ARGUMENTS))
    )
    result = attached.runpytest_subprocess()
    result.assert_outcomes(failed=len(WRONG_ARGUMENTS))
    result.stdout.fnmatch_lines([f"E *UsageError: {message}" for message in WRONG_ARGUMENTS.values()])


def test_connections_made_at_once_and_one_after_the_other(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        """
        def test_them(dsql_load):
            burst = dsql_load.connect_burst(20)
            burst.assert_connected()
            assert burst.succeeded == 20 and burst.tokens_signed == 2
            assert dsql_load.connect_burst(1).workers == 1
            dsql_load.sequential_connects(3).assert_connected()
        """
    )
    result = attached.runpytest_subprocess("--dsql-workers", "2")
    assert result.ret == pytest.ExitCode.OK
    assert [cell["arrival"]["kind"] for cell in results(attached)["cells"]] == ["burst", "burst", "sequential"]


def test_results_that_cannot_be_written_are_said_before_anything_is_made(attached: pytest.Pytester) -> None:
    attached.makepyfile(PASSES)
    Path(attached.path / "file").touch()
    result = attached.runpytest_subprocess("--dsql-results", "file")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: can't write results to *: * is not a directory; choose another *"])


def test_results_that_nobody_writes_may_be_impossible(attached: pytest.Pytester) -> None:
    attached.makepyfile("def test_it(dsql_connection): pass")
    Path(attached.path / "file").touch()
    attached.runpytest_subprocess("--dsql-results", "file").assert_outcomes(passed=1)


def test_xdist_workers_write_one_file(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        PASSES.replace("def test_cell(dsql_load)", "def test_cell(dsql_load, number)").replace(
            "@pytest.mark.dsql", '@pytest.mark.dsql\n@pytest.mark.parametrize("number", range(4))'
        )
    )
    result = attached.runpytest_subprocess("-n", "2")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["4 cells: 4 pass"])
    assert len(results(attached)["cells"]) == 4
