"""Kills a process at every step at which something is created, removed or written down, and sees what is left."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Final

import botocore.client

#: Calls that change nothing: being killed at one is being killed after the step before.
_READING: Final = ("Get", "List", "Describe", "Head", "Lookup", "Search")


class Steps:
    """Counts steps in this process, and kills it at one. A step is a changing call to AWS, or a write to disk."""

    def __init__(self, kill_at: int) -> None:
        self.count = 0
        self.names: list[str] = []
        self._kill_at = kill_at

    def install(self) -> None:
        """Watch this process from now on."""
        call, sync = botocore.client.BaseClient._make_api_call, os.fsync

        def watched_call(client: Any, operation: str, parameters: Any) -> Any:
            if operation.startswith(_READING) or operation == "AssumeRole":
                return call(client, operation, parameters)
            return self._step(operation, lambda: call(client, operation, parameters))

        botocore.client.BaseClient._make_api_call = watched_call
        os.fsync = lambda file: self._step("fsync", lambda: sync(file))  # type: ignore[assignment]

    def _step(self, name: str, work: Callable[[], Any]) -> Any:
        self.count += 1
        self.names.append(name)
        if self.count == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return work()


def in_a_child(work: Callable[[], object], kill_at: int = 0) -> int:
    """Run `work` in a forked process; return how many steps it made, or -9 when it was killed."""
    child = os.fork()
    if child == 0:
        try:
            steps = Steps(kill_at)
            steps.install()
            work()
            sys.stderr.write(" ".join(steps.names) + "\n")
            os._exit(steps.count)
        except BaseException:
            traceback.print_exc()
            os._exit(255)
    _pid, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def kills(work: Callable[[], object]) -> Iterator[str]:
    """Run `work` once undisturbed, then once for each step with a SIGKILL before it; give each one's name.

    Before a step is after the one before it: nothing that lasts happens between. The consumer cleans up and looks
    around each time.
    """
    steps = in_a_child(work)
    assert 0 < steps < 255, "the undisturbed run failed: see its traceback"
    yield "undisturbed"
    for step in range(1, steps + 1):
        status = in_a_child(work, step)
        assert status == -signal.SIGKILL, f"step {step}: exit status {status}"
        yield f"before step {step}"
