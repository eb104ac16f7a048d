"""A pytest plugin (`-p tests.runner.agent_here`) that has machines be processes of this host: see `Agent`.

For sessions in processes of their own, which find in the environment where the machines' directories belong.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.runner.agent import Agent

DIRECTORY = "PYTEST_DSQL_TEST_MACHINES"
#: Of a session on such a machine, which starts no machines.
JOB = "DSQL_RUNNER_JOB"


def pytest_configure(config: pytest.Config) -> None:
    """Answer for Systems Manager in this process until it ends."""
    if JOB in os.environ:
        return
    agent, patch = Agent(Path(os.environ[DIRECTORY])), pytest.MonkeyPatch()
    agent.install(patch)
    config.add_cleanup(agent.close)
    config.add_cleanup(patch.undo)
