"""What the installed plugin loads in a pytest run that uses none of it."""

from __future__ import annotations

import subprocess
import sys

#: Apart from the standard library and the package, because pytest itself is loaded first.
LOADED = (
    "import sys, pytest, _pytest.terminal\n"
    "before = set(sys.modules)\n"
    "import pytest_dsql.plugin\n"
    "print(*set(sys.modules) - before)\n"
)


def test_the_plugin_loads_little() -> None:
    loaded = set(
        subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True).stdout.split()
    )
    ours = {name for name in loaded if name.partition(".")[0] == "pytest_dsql"}
    assert ours == {
        "pytest_dsql",
        "pytest_dsql.access",
        "pytest_dsql.errors",
        "pytest_dsql.fixtures",
        "pytest_dsql.fixtures.data",
        "pytest_dsql.fixtures.measuring",
        "pytest_dsql.fixtures.screen",
        "pytest_dsql.fixtures.session",
        "pytest_dsql.fixtures.target",
        "pytest_dsql.plugin",
        "pytest_dsql.settings",
        "pytest_dsql.transaction",
    }
    others = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names - {"pytest_dsql"}
    assert others == set()
