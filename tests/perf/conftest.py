"""Benchmarks of our own code: collected only when named, as in `pytest tests/perf -s`."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave this folder out unless the command line names it: its figures need a quiet machine."""
    here = Path(__file__).parent
    named = (Path(config.invocation_params.dir, arg.partition("::")[0]).resolve() for arg in config.args)
    return None if any(one == here or here in one.parents for one in named) else True
