"""What the experiments share: cells sized by the plan and the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pytest_dsql.errors import MissingExtra
from pytest_dsql.fixtures import plan_of, settings_of
from pytest_dsql.results.writer import ResultsFile
from pytest_dsql.targets.target import Target


class _InsteadOfPytestBenchmark:
    """Says what to install to whoever asks for pytest-benchmark's fixture where that is missing."""

    @pytest.fixture
    def benchmark(self) -> None:
        pytest.skip(str(MissingExtra("pytest-benchmark's table", "report")))


def pytest_configure(config: pytest.Config) -> None:
    """Let the benchmarks run from an installed package, whose extras may be missing."""
    if not config.pluginmanager.hasplugin("benchmark"):
        config.pluginmanager.register(_InsteadOfPytestBenchmark(), "dsql_without_pytest_benchmark")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give arguments of these names the values that the plan has for the target."""
    plan = plan_of(metafunc.config)
    values = {
        "connections": plan.closed_loop_connections,
        "burst": plan.bursts,
        "pilot_rate": plan.pilot_rates,
        "rate": plan.open_loop_rates,
        "tasks": plan.pool_tasks,
        "pool": plan.pool_sizes,
        "rivals": plan.contention_connections,
    }
    for name in values.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, values[name])


@pytest.fixture
def note(
    dsql_target: Target, dsql_results: ResultsFile, pytestconfig: pytest.Config
) -> Callable[[str, Mapping[str, Any]], None]:
    """Keep figures that are no cell's, under a name and of the target."""
    several = len(settings_of(pytestconfig).targets) > 1

    def put(name: str, figures: Mapping[str, Any]) -> None:
        on = f" on {dsql_target.name}" if several else ""
        dsql_results.put_experiment(f"{name}{on}", {"target": dsql_target.name, **figures})

    return put
