"""The estimate below a plan: read from the plan as PostgreSQL writes it."""

import json

import pytest

from pytest_dsql.local.dpu import explain, plans
from pytest_dsql.local.dpu.formulas import Dpu
from pytest_dsql.local.dpu.tables import Table

#: The user guide's examples, in PostgreSQL's words for the nodes.
SELECT = """\
Index Only Scan using test_table_pkey on public.test_table  (cost=125.05..171.05 rows=1000 width=36) \
(actual time=2.973..4.482 rows=120 loops=1)
  Output: id, context
  Rows Removed by Filter: 30
Planning Time: 11.415 ms
Execution Time: 4.528 ms"""
INSERT = """\
Insert on public.test_table  (cost=0.00..0.04 rows=0 width=0) (actual time=0.055..0.056 rows=0 loops=1)
  ->  Values Scan on "*VALUES*"  (cost=0.00..0.04 rows=3 width=122) (actual time=0.003..0.008 rows=3 loops=1)
        Output: "*VALUES*".column1, "*VALUES*".column2
Planning Time: 0.068 ms
Execution Time: 0.543 ms"""
NESTED = """\
Nested Loop  (cost=0.30..16.34 rows=1 width=200) (actual time=0.020..0.040 rows=2 loops=1)
  ->  Seq Scan on shop."odd name" a  (cost=0.15..8.17 rows=1 width=150) (actual time=0.010..0.011 rows=2 loops=1)
        Filter: (a.x = '(actual rows=7 loops=7)'::text)
        Rows Removed by Filter: 3
  ->  Index Scan Backward using b_pkey on shop.b  (cost=0.15..8.17 rows=1 width=50) (actual rows=4 loops=2)
  ->  Seq Scan on shop.c  (cost=0.00..1.00 rows=1 width=8) (never executed)"""


def read(text: str) -> plans.Executed:
    return plans.read_text(text.splitlines())


def test_a_select_reads_the_rows_of_its_scans_and_those_left_out() -> None:
    dpu = explain.estimate(read(SELECT), {})
    assert (dpu.compute, dpu.read, dpu.write) == pytest.approx((0.015943, 150 * 128 * 0.00000183105, 0.0))


def test_an_insert_writes_its_rows_and_index_entries() -> None:
    tables = {"public.test_table": Table(200.0, (frozenset({"a"}), frozenset({"b", "c"})))}
    assert explain.written_tables(read(INSERT)) == {"public.test_table"}
    assert explain.estimate(read(INSERT), tables).write == pytest.approx(3 * (200 + 2 * 128) * 0.00004883)
    assert explain.estimate(read(INSERT), {}).write == pytest.approx(0.01875, abs=5e-6)


def test_what_loops_is_multiplied_and_what_never_ran_is_nothing() -> None:
    expected = (2 + 3) * 150 + 4 * 2 * 128
    executed = read(NESTED)
    assert [node.table for node in executed.nodes()] == ["", "shop.odd name", "shop.b", "shop.c"]
    assert explain.estimate(executed, {}).read == pytest.approx(expected * 0.00000183105)
    assert executed.seconds == pytest.approx(0.04e-3), "without a summary the topmost node tells it"


def test_what_the_engine_looks_up_for_itself_is_not_counted() -> None:
    text = SELECT.replace("on public.test_table", "on pytest_dsql_engine_sandbox.gone")
    assert explain.estimate(read(text), {}).read == 0


def test_an_update_writes_the_index_entries_of_the_columns_that_it_sets() -> None:
    text = INSERT.replace("Insert on", "Update on").replace(
        'Values Scan on "*VALUES*"', "Seq Scan on public.test_table"
    )
    tables = {"public.test_table": Table(128.0, (frozenset({"a"}), frozenset({"b"})))}
    one = explain.estimate(read(text), tables, frozenset({"a", "n"})).write
    none = explain.estimate(read(text), tables, frozenset({"n"})).write
    assert (one, none) == pytest.approx((3 * 256 * 0.00004883, 3 * 128 * 0.00004883))


def test_rows_that_met_a_conflict_are_not_written() -> None:
    text = INSERT.replace("  ->  Values", "  Conflict Resolution: NOTHING\n  Conflicting Tuples: 2\n  ->  Values")
    assert explain.estimate(read(text), {}).write == pytest.approx(128 * 0.00004883)


def test_json_tells_the_same() -> None:
    answer = [
        {
            "Plan": {
                "Node Type": "ModifyTable",
                "Operation": "Insert",
                "Relation Name": "t",
                "Schema": "public",
                "Actual Rows": 0,
                "Actual Loops": 1,
                "Plans": [{"Node Type": "Result", "Actual Rows": 3, "Actual Loops": 1, "Plan Width": 36}],
            },
            "Planning Time": 1.0,
            "Execution Time": 2.0,
        }
    ]
    rows = [json.dumps(answer).encode()]
    executed = explain.read_plan(rows, "json")
    dpu = explain.estimate(executed, {"public.t": Table()}, multi_region=True)
    assert dpu.write == pytest.approx(3 * 128 * 0.00004883)
    [added] = explain.added(rows, "json", dpu, multi_region=True)
    block = json.loads(added)[0]["Statement DPU Estimate"]
    assert list(block) == ["Compute", "Read", "Write", "MultiRegionWrite", "Total"]
    assert block["Compute"] == 0.003


def test_the_lines_are_dsqls() -> None:
    lines = explain.text_lines(Dpu(compute=0.0155, read=0.00307, write=0.01875))
    assert lines == [
        "Statement DPU Estimate:",
        "  Compute: 0.01550 DPU",
        "  Read: 0.00307 DPU (Transaction minimum: 0.00375)",
        "  Write: 0.01875 DPU (Transaction minimum: 0.05000)",
        "  Total: 0.03732 DPU",
    ]
    assert explain.text_lines(Dpu(compute=0.01607, read=0.04312))[2:4] == [
        "  Read: 0.04312 DPU",
        "  Write: 0.00000 DPU",
    ]


@pytest.mark.parametrize(
    ("sql", "form"),
    [
        ("EXPLAIN ANALYZE VERBOSE SELECT 1", "text"),
        ("/* why */ explain (verbose, analyze) select 1", "text"),
        ("EXPLAIN (ANALYZE on, VERBOSE true, FORMAT JSON) SELECT 1", "json"),
        ("EXPLAIN (ANALYZE 1, VERBOSE 1) SELECT 1", "text"),
        ("EXPLAIN (ANALYZE, VERBOSE, FORMAT YAML) SELECT 1", None),
        ("EXPLAIN (ANALYZE, VERBOSE off) SELECT 1", None),
        ("EXPLAIN (ANALYZE 0, VERBOSE) SELECT 1", None),
        ("EXPLAIN ANALYZE SELECT 1", None),
        ("EXPLAIN VERBOSE SELECT 1", None),
        ("SELECT 'EXPLAIN ANALYZE VERBOSE'", None),
        ("EXPLAIN ANALYZE VERBOSE", None),
    ],
)
def test_both_options_are_needed(sql: str, form: str | None) -> None:
    assert explain.wanted_format(sql) == form


def test_the_columns_that_updates_set() -> None:
    sql = "EXPLAIN ANALYZE WITH x AS (UPDATE t SET a = 1, b = 2 RETURNING 1) UPDATE u SET c = 3"
    assert explain.set_columns(sql) == {"a", "b", "c"}
