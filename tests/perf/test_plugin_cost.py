"""What the installed plugin costs a pytest run that uses none of it: at most 30 ms."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

RUNS = 15
#: CPU seconds; wall time on a shared machine says more about the neighbours.
LIMIT_S = 0.030


def environment(directory: Path) -> dict[str, str]:
    """An installed package has its bytecode, whatever this checkout has; other plugins would blur the difference."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(directory / "bytecode"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def cpu_of(arguments: list[str], directory: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=directory,
        env=environment(directory),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_the_plugin_adds_at_most_30_ms(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    loaded, plain = [], []
    cpu_of(["-p", "pytest_dsql.plugin"], tmp_path)  # bytecode is compiled once
    for _ in range(RUNS):
        plain.append(cpu_of([], tmp_path))
        loaded.append(cpu_of(["-p", "pytest_dsql.plugin"], tmp_path))
    added = statistics.median(loaded) - statistics.median(plain)
    print(
        f"\npytest without the plugin {statistics.median(plain) * 1e3:.0f} ms, with it "
        f"{statistics.median(loaded) * 1e3:.0f} ms: {added * 1e3:+.1f} ms (medians of {RUNS}, CPU)"
    )
    assert added <= LIMIT_S
