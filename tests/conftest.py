"""Which tests may run beside others: `pytest -n 2 --dist loadfile -m "not alone"`, then `pytest -m alone`.

And how Hypothesis looks for examples: always for the same ones, so that a run says something about the change before it
and nothing else does; `DSQL_SEARCH=1` has it look for others. How long an example takes says nothing here.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

_HERE: Final = Path(__file__).parent
#: What makes real load, whose figures or verdicts another test on the same cores would change.
_ALONE: Final = (
    "cost/test_whole_run.py",
    "load",
    "perf",
    "plugin/test_attach.py",
    "plugin/test_cells.py",
    "plugin/test_costs.py",
    "plugin/test_live_progress.py",
    "plugin/test_readme.py",
    "plugin/test_regions.py",
    "plugin/test_resume.py",
    "plugin/test_several_targets.py",
    "plugin/test_signals.py",
    "plugin/test_simulated.py",
    "plugin/test_trouble_options.py",
    "runner",
    "targets/rds/test_whole_run.py",
    "targets/test_whole_run.py",
    "workloads/test_orders_on_engine.py",
    "workloads/test_orders_pipelined.py",
)

settings.register_profile(
    "project",
    deadline=None,
    derandomize=os.environ.get("DSQL_SEARCH") != "1",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("project")  # before any test is decorated; `--hypothesis-profile` still has the last word


def pytest_configure() -> None:
    """Have the processes of the tests hear the signals that tests send, also under `nohup` or behind a shell's `&`."""
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what must not run beside other tests."""
    alone = [_HERE / name for name in _ALONE]
    for item in items:
        if any(item.path == one or one in item.path.parents for one in alone):
            item.add_marker(pytest.mark.alone)
