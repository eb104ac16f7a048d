"""What functions have cost: counted by their answers, and by CloudWatch; the larger of both counts."""

from __future__ import annotations

import pytest

from pytest_dsql.aws.sessions import Clients
from pytest_dsql.cost.books import AwsBooks, Budget
from pytest_dsql.cost.functions import FunctionMeter, Work
from pytest_dsql.cost.meters import AwsMeter
from pytest_dsql.cost.prices import Prices
from pytest_dsql.errors import BudgetReached
from pytest_dsql.load.cost import Operations
from tests.cost.conftest import refusal
from tests.cost.metrics import REGION, START, put
from tests.cost.test_meters import SHAPE, Clock

NAME = "pytest-dsql-run-1-function"
#: us-east-1's, which stand for every Region: a GB-second, a request, a transition.
GB_S, REQUEST, TRANSITION = 0.0000133334, 0.20e-6, 25e-6
GB = 1769 / 1024


def meter(clients: Clients | None, clock: Clock, *, processes: int = 1) -> FunctionMeter:
    return FunctionMeter(
        "runner-lambda",
        region=REGION,
        function=NAME,
        memory_mb=1769,
        prices=Prices(assume=True),
        clients=clients,
        began_s=START,
        processes=processes,
        now=clock,
    )


def told(clients: Clients, calls: float, busy_s: float, refused: float = 0.0) -> None:
    """As Lambda publishes it: Duration in milliseconds."""
    for metric, value in (("Invocations", calls), ("Duration", busy_s * 1000), ("Throttles", refused)):
        put(clients, "AWS/Lambda", metric, {"FunctionName": NAME}, {START: value})


def test_right_after_a_call_its_answers_count() -> None:
    one = meter(None, Clock(START))
    one.add(Work(calls=100, busy_s=50.0, starts=10))
    one.add(Work(calls=100, busy_s=50.0))
    assert one.usd() == pytest.approx(GB_S * GB * (100 + 10) + REQUEST * 200 + TRANSITION * 3 * 200, rel=1e-3)
    facts = one.facts()
    assert (facts["runner_calls"], facts["runner_source"]) == (200, "unit costs")
    assert facts["runner_gb_s"] == pytest.approx(110 * GB, rel=1e-3)
    assert facts["runner_usd"] == pytest.approx(one.usd(), abs=1e-6)


def test_what_cloudwatch_knows_more_counts(clients: Clients) -> None:
    """Calls whose answers were lost, and those that were refused and made again."""
    clock = Clock(START + 120)
    one = meter(clients, clock)
    one.add(Work(calls=100, busy_s=50.0))
    before = one.usd()
    told(clients, calls=300, busy_s=200.0, refused=40)
    assert one.usd() == before, "it was asked a moment ago"
    clock.at += 31
    assert one.usd() == pytest.approx(GB_S * GB * 200 + REQUEST * 300 + TRANSITION * (3 * 300 + 40), rel=1e-3)
    assert one.facts()["runner_source"] == "cloudwatch"


def test_what_cloudwatch_can_not_know_yet_counts(clients: Clients) -> None:
    told(clients, calls=10, busy_s=5.0)
    one = meter(clients, Clock(START + 120))
    one.add(Work(calls=100, busy_s=50.0))
    assert one.work == Work(calls=100, busy_s=50.0)
    assert one.facts()["runner_source"] == "unit costs"


def test_other_processes_call_as_much_until_cloudwatch_tells(clients: Clients) -> None:
    one = meter(clients, Clock(START + 120), processes=2)
    one.add(Work(calls=100, busy_s=50.0, starts=1))
    one.read()
    assert one.work == Work(calls=200, busy_s=100.0, starts=2)


def test_without_the_permission_it_is_asked_once(clients: Clients, answering: object) -> None:
    calls = answering({"GetMetricData": refusal("AccessDenied", 403)})  # type: ignore[operator]
    clock = Clock(START)
    one = meter(clients, clock)
    one.add(Work(calls=1))
    for _ in range(3):
        clock.at += 60
        one.read()
    assert len(calls) == 1
    assert one.refusal is not None
    assert one.refusal.startswith("some:Thing is not allowed")
    assert one.work.calls == 1


def test_the_guard_counts_them_and_the_results_say_so() -> None:
    clock = Clock(START)
    budget = Budget(0.01)
    functions = meter(None, clock)
    budget.count_maker(functions)
    books = AwsBooks(AwsMeter(SHAPE, Prices(), None, began_s=START, now=clock), Prices(), budget, now=clock)
    functions.add(Work(calls=100, busy_s=10.0))
    books.admit("test_a")
    functions.add(Work(calls=20, busy_s=2.0))
    with pytest.raises(BudgetReached, match="test_b was not started"):
        books.admit("test_b")
    facts = books.facts()
    assert facts["cost_usd"] == 0, "a target costs the same wherever its load is made"
    assert facts["runner_usd"] == pytest.approx(functions.usd(), abs=1e-6)


def test_what_functions_do_to_the_database_is_reckoned() -> None:
    clock = Clock(START)
    books = AwsBooks(AwsMeter(SHAPE, Prices(), None, began_s=START, now=clock), Prices(), Budget(None), now=clock)
    before = books.begin()
    clock.at += 9
    cost = books.end(before, "calls", Operations(attempts=1000, connections=10))
    assert cost is not None
    assert cost.dpu == pytest.approx(1000 * 0.0375 + 10 * 0.23)
