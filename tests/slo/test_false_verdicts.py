"""How often a verdict is wrong at the edge, simulated: no more often than its level promises.

The system is exactly at its limit: its true share of slow requests is what the objective allows. A pass and a fail are
then equally false. Slow requests come alone, or in runs, as a stall makes them. The seeds are fixed.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from typing import Any

import pytest

from pytest_dsql.slo.design_effect import design_effect
from pytest_dsql.slo.evidence import Evidence, Generator, Requests
from pytest_dsql.slo.objectives import Latency, Slo, ms
from pytest_dsql.slo.verdict import LEVEL, judge

ALLOWED = {"p95": 0.05, "p99": 0.01}
_LIMIT = ms(100)
_QUIET = Generator(cpu=0.1)


def slow_positions(rng: random.Random, n: int, share: float, run: int) -> list[int]:
    """Return positions of slow requests in runs of `run`, such that each request is slow with probability `share`."""
    begin = share / run / (1 - share + share / run)
    positions: list[int] = []
    at = 0
    if rng.random() < share:  # the window may open in the middle of a run
        at = rng.randrange(1, run + 1)
        positions.extend(range(at))
    while True:
        at += int(math.log(1 - rng.random()) / math.log1p(-begin))
        if at >= n:
            return positions
        end = min(n, at + run)
        positions.extend(range(at, end))
        at = end


def decide(positions: list[int], n: int, metric: str, *, look: int = 1, looks: int = 1) -> str:
    latency = [1] * n
    for position in positions:
        latency[position] = _LIMIT + 1
    requests = Requests("t", "read", range(n), latency, bytes(n), n)
    evidence = Evidence((requests,), 1.0, (1,) * 20, _QUIET)
    return judge(Slo(reads=Latency(**{metric: _LIMIT})), evidence, look=look, looks=looks).objectives[0].outcome


@pytest.mark.parametrize("run", [1, 5, 20])
@pytest.mark.parametrize(("metric", "n"), [("p95", 4_000), ("p99", 20_000)])
def test_one_look_is_wrong_at_most_about_twice_the_level(metric: Any, n: int, run: int) -> None:
    rng = random.Random(f"{metric}-{n}-{run}")
    trials = 300
    outcomes = [decide(slow_positions(rng, n, ALLOWED[metric], run), n, metric) for _ in range(trials)]
    # Twice the level, and what chance adds to that in so many trials.
    most = 2 * LEVEL + 2 * math.sqrt(2 * LEVEL / trials)
    assert outcomes.count("pass") / trials <= most
    assert outcomes.count("fail") / trials <= most


@pytest.mark.parametrize("run", [1, 5])
def test_three_looks_are_wrong_no_more_often_than_one(run: int) -> None:
    """Each trial looks after n, 2n and 4n and stops at the first decision, as a cell does."""
    rng = random.Random(f"looks-{run}")
    trials, n = 200, 2_000
    outcomes = []
    for _ in range(trials):
        positions = slow_positions(rng, 4 * n, ALLOWED["p95"], run)
        outcome = "inconclusive"
        for look, windows in enumerate((1, 2, 4), start=1):
            until = bisect_right(positions, windows * n - 1)
            outcome = decide(positions[:until], windows * n, "p95", look=look, looks=3)
            if outcome != "inconclusive":
                break
        outcomes.append(outcome)
    most = 2 * LEVEL + 2 * math.sqrt(2 * LEVEL / trials)
    assert outcomes.count("pass") / trials <= most
    assert outcomes.count("fail") / trials <= most


def test_without_the_design_effect_clusters_would_pass_far_too_often() -> None:
    """Why it is there: the same trials judged as if requests were independent."""
    from pytest_dsql.slo.binomial import passes

    rng = random.Random("without")
    trials, n = 150, 20_000
    counts = [slow_positions(rng, n, 0.01, 20) for _ in range(trials)]
    assert sum(passes(len(one), n, 0.01, LEVEL) for one in counts) / trials > 0.2
    assert all(design_effect(one, n).effect >= 1 for one in counts)


@pytest.mark.parametrize(("share", "expected"), [(0.002, "pass"), (0.03, "fail")])
def test_a_system_well_away_from_its_limit_is_decided(share: float, expected: str) -> None:
    rng = random.Random(f"power-{share}")
    outcomes = [decide(slow_positions(rng, 20_000, share, 5), 20_000, "p99") for _ in range(100)]
    assert outcomes.count(expected) >= 95


def drifting_positions(rng: random.Random, n: int, share: float) -> list[int]:
    """Return positions of slow requests that are seldom at first and frequent at the end; `share` of all on average."""
    return [position for position in range(n) if rng.random() < 2 * share * position / n]


@pytest.mark.parametrize(("metric", "n"), [("p95", 4_000), ("p99", 10_000)])
def test_a_system_that_drifts_over_its_limit_is_not_decided_by_chance(metric: Any, n: int) -> None:
    """Half of the window is better than the limit and half worse: neither verdict would be right."""
    rng = random.Random(f"drift-{metric}")
    trials = 300
    outcomes = [decide(drifting_positions(rng, n, ALLOWED[metric]), n, metric) for _ in range(trials)]
    most = 2 * LEVEL + 2 * math.sqrt(2 * LEVEL / trials)
    assert outcomes.count("pass") / trials <= most
    assert outcomes.count("fail") / trials <= most


def test_one_mode_beyond_the_limit_counts_like_any_other_slow_request() -> None:
    """Bimodal: 1 % of the requests take a hundred times as long. Percentiles jump there; counts do not."""
    rng = random.Random("bimodal")
    trials, n = 300, 10_000
    outcomes = [decide([at for at in range(n) if rng.random() < 0.01], n, "p99") for _ in range(trials)]
    most = 2 * LEVEL + 2 * math.sqrt(2 * LEVEL / trials)
    assert outcomes.count("pass") / trials <= most
    assert outcomes.count("fail") / trials <= most


def uneven_positions(rng: random.Random, n: int, share: float, mean: float) -> list[int]:
    """Return positions of slow requests in runs of unequal lengths, as stalls are: log-normal, of this mean."""
    positions: list[int] = []
    gap = mean * (1 - share) / share
    at = -int(10 * gap)  # so long before the window that it may open anywhere
    while at < n:
        at += 1 + int(math.log(1 - rng.random()) / math.log1p(-1 / gap))
        length = mean * math.exp(rng.gauss(0, 1) - 0.5)
        end = at + int(length) + (rng.random() < length % 1)
        positions.extend(range(max(0, at), min(n, end)))
        at = end
    return positions


def test_few_stalls_of_unequal_lengths_do_not_pass_for_short_ones() -> None:
    """Ten stalls a cell are expected. A cell that met three short ones has seen none of those that matter."""
    rng = random.Random("uneven")
    trials, n = 600, 4_000
    outcomes = [decide(uneven_positions(rng, n, 0.05, 20), n, "p95") for _ in range(trials)]
    most = 2 * LEVEL + 2 * math.sqrt(2 * LEVEL / trials)
    assert outcomes.count("pass") / trials <= most
    assert outcomes.count("fail") / trials <= most


def test_a_stall_in_a_handful_of_requests_is_no_fail() -> None:
    rng = random.Random("handful")
    trials, n = 1_500, 20
    outcomes = [decide(uneven_positions(rng, n, 0.05, 5), n, "p95") for _ in range(trials)]
    assert outcomes.count("fail") / trials <= 2 * LEVEL + 2 * math.sqrt(2 * LEVEL / trials)
