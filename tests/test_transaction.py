from __future__ import annotations

import random
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.transaction import (
    ID_BITS,
    SLOT_BITS,
    CellRun,
    Context,
    Mix,
    Steps,
    StreamRandom,
    stream_seed,
    transaction,
)

RUN = CellRun(number=5, operation_prefix="r5-", slots=4, pools={"open": range(100, 120)})


@transaction(kind="read")
def look(ctx: Context) -> Steps:
    yield "SELECT 1"
    return None


@transaction(kind="write", name="renamed", block=False)
def change(ctx: Context) -> Steps:
    yield "UPDATE x"
    return None


def draw(ctx: Context, what: str) -> Any:
    match what:
        case "random":
            return ctx.rng.random()
        case "randrange":
            return ctx.rng.randrange(1000)
        case "id":
            return ctx.new_id()
        case "pool":
            return ctx.draw("open")
        case "operation":
            return ctx.operation_id
    raise AssertionError(what)


draws = st.lists(st.sampled_from(["random", "randrange", "id", "pool", "operation"]), max_size=12)


@given(requests=st.lists(st.tuples(draws, st.integers(0, 12)), min_size=1, max_size=5), seed=st.integers(0, 2**32))
def test_a_rewound_request_draws_the_same_again(requests: list[tuple[list[str], int]], seed: int) -> None:
    ctx = Context(seed=seed, run=RUN, slot=1)
    for wanted, broken_off_after in requests:
        ctx.next_request()
        first = [draw(ctx, what) for what in wanted]
        ctx.rewind()
        partly = [draw(ctx, what) for what in wanted[:broken_off_after]]
        assert partly == first[:broken_off_after]
        ctx.rewind()
        assert [draw(ctx, what) for what in wanted] == first


@given(retried=st.lists(st.booleans(), min_size=1, max_size=20))
def test_retries_leave_no_trace_in_later_requests(retried: list[bool]) -> None:
    plain, rewound = Context(seed=3, run=RUN, slot=2), Context(seed=3, run=RUN, slot=2)
    for again in retried:
        for ctx in (plain, rewound):
            ctx.next_request()
        expected = [draw(plain, what) for what in ("id", "random", "pool", "operation")]
        got = [draw(rewound, what) for what in ("id", "random", "pool", "operation")]
        if again:
            rewound.rewind()
            got = [draw(rewound, what) for what in ("id", "random", "pool", "operation")]
        assert got == expected


@given(
    slots=st.lists(st.integers(0, (1 << SLOT_BITS) - 1), min_size=1, max_size=8, unique=True),
    numbers=st.lists(st.integers(0, (1 << 24) - 1), min_size=1, max_size=3, unique=True),
    count=st.integers(1, 50),
)
def test_ids_are_unique_over_slots_and_runs_and_lie_in_their_runs_range(
    slots: list[int], numbers: list[int], count: int
) -> None:
    seen: set[int] = set()
    for number in numbers:
        run = CellRun(number=number, operation_prefix="", slots=1 << SLOT_BITS)
        for slot in slots:
            ctx = Context(seed=1, run=run, slot=slot)
            ids = [ctx.new_id() for _ in range(count)]
            assert all(one in run.id_range() for one in ids)
            seen.update(ids)
    assert len(seen) == len(slots) * len(numbers) * count
    assert max(seen) < 1 << (24 + ID_BITS) <= 1 << 63


def test_operation_ids_differ_by_request_and_slot() -> None:
    ids = set()
    for slot in range(3):
        ctx = Context(seed=1, run=RUN, slot=slot)
        for _ in range(3):
            ctx.next_request()
            ids.add(ctx.operation_id)
    assert len(ids) == 9
    assert all(one.startswith("r5-") for one in ids)


def test_slots_share_a_pool_without_overlap_until_it_runs_out() -> None:
    drawn: list[int] = []
    for slot in range(RUN.slots):
        ctx = Context(seed=1, run=RUN, slot=slot)
        while (row := ctx.draw("open")) is not None:
            drawn.append(row)
    assert sorted(drawn) == list(RUN.pools["open"])


@pytest.mark.parametrize("slot", [-1, 1 << SLOT_BITS])
def test_a_slot_out_of_range_is_refused(slot: int) -> None:
    with pytest.raises(ValueError, match="slot must be in"):
        Context(seed=1, run=RUN, slot=slot)


@given(seed=st.integers(0, 2**64 - 1), stop=st.integers(1, 2**70))
def test_randrange_stays_in_range(seed: int, stop: int) -> None:
    rng = StreamRandom(seed)
    assert all(0 <= rng.randrange(stop) < stop for _ in range(5))
    assert all(7 <= rng.randrange(7, 7 + stop) < 7 + stop for _ in range(5))


def test_randrange_refuses_an_empty_range_like_random() -> None:
    for stop in (0, -1):
        with pytest.raises(ValueError, match="empty range"):
            StreamRandom(1).randrange(stop)


def test_randrange_is_even() -> None:
    rng = StreamRandom(stream_seed(1, "even"))
    counts = [0] * 16
    for _ in range(16_000):
        counts[rng.randrange(16)] += 1
    # Chi-squared with 15 degrees of freedom: above 37.7 once in a thousand streams; this one is fixed.
    assert sum((count - 1000) ** 2 / 1000 for count in counts) < 37.7


def test_streams_of_different_names_differ() -> None:
    seeds = {stream_seed(seed, name, slot) for seed in (1, 2) for name in ("mix", "backoff") for slot in (0, 1)}
    assert len(seeds) == 8


def test_a_mix_travels_with_its_transactions() -> None:
    mix = cloudpickle.loads(cloudpickle.dumps(Mix({look: 3, change: 1})))
    assert dict(mix.weights) == {"look": 0.75, "renamed": 0.25}
    assert [(one.name, one.kind, one.block) for one in mix] == [("look", "read", True), ("renamed", "write", False)]


def test_a_mix_draws_by_weight() -> None:
    mix, rng = Mix({look: 3, change: 1}), random.Random(1)
    drawn = [mix.choose(rng).name for _ in range(4000)]
    assert 2800 < drawn.count("look") < 3200


def test_a_function_that_yields_nothing_is_no_transaction() -> None:
    with pytest.raises(TypeError, match="must yield its statements"):
        transaction(kind="read")(lambda ctx: None)


def test_a_transaction_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="kind must be"):
        transaction(kind="other")  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize("weight", [0, -1, float("inf"), float("nan")])
def test_a_weight_that_is_no_positive_number_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="weight of look"):
        Mix({look: weight})


def test_two_transactions_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        Mix({look: 1, transaction(kind="read", name="look")(change.function): 1})


@pytest.mark.parametrize("weight", ["1", True, None])
def test_a_weight_that_is_no_number_is_refused(weight: Any) -> None:
    with pytest.raises(TypeError, match="weight of look must be a number"):
        Mix({look: weight})
