"""What the experiments share: cells sized by the plan and the target."""

from __future__ import annotations

import pytest

from pytest_dsql.errors import MissingExtra
from pytest_dsql.fixtures import plan_of


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
        "rate": plan.open_loop_rates,
        "rivals": plan.contention_connections,
    }
    for name in values.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, values[name])
