"""Kills a process at every step at which something is created, removed or written down, and sees what is left.

Each death is one of a fork of the test's process: what takes time - reading botocore's models, making clients - has
been done before it, once. The account is in another process, which survives.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import botocore.client
import pytest

from pytest_dsql.aws.inventory import Inventory
from pytest_dsql.aws.sessions import Clients

#: Calls that change nothing: being killed at one is being killed after the step before.
_READING: Final = ("Get", "List", "Describe", "Head", "Lookup", "Search")
Moment = Literal["before", "after"]


class Steps:
    """Counts steps in this process, and kills it right before or right after one.

    A step is a changing call to AWS, or with `writes` a line of the inventory, too.
    """

    def __init__(self, kill_at: int = 0, moment: Moment = "before", *, writes: bool = True) -> None:
        self.names: list[str] = []
        self._kill_at = kill_at
        self._moment = moment
        self._writes = writes

    def install(self) -> None:
        """Watch this process from now on."""
        call, write = botocore.client.BaseClient._make_api_call, Inventory._write

        def watched_call(client: Any, operation: str, parameters: Any) -> Any:
            if operation.startswith(_READING) or operation == "AssumeRole":
                return call(client, operation, parameters)
            return self._step(operation, lambda: call(client, operation, parameters))

        def watched_write(inventory: Inventory, **line: Any) -> None:
            self._step(f"writing {line['event']}", lambda: write(inventory, **line))

        botocore.client.BaseClient._make_api_call = watched_call
        if self._writes:
            Inventory._write = watched_write  # type: ignore[method-assign, assignment]

    def _step(self, name: str, work: Callable[[], Any]) -> Any:
        self.names.append(name)
        due = len(self.names) == self._kill_at
        if due and self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return work()
        finally:  # a refusal is an answer, too
            if due:
                os.kill(os.getpid(), signal.SIGKILL)


_SHARED: Final[dict[tuple[str | None, ...], Any]] = {}


@pytest.fixture
def clients_made_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have all `Clients` of a test, also in forks, share botocore's: making one takes longer than what it is asked."""
    real = Clients.of

    def of(self: Clients, service: str, region: str) -> Any:
        key = (service, region, self.profile, self.role, os.environ.get("AWS_ENDPOINT_URL"))
        if key not in _SHARED:
            _SHARED[key] = real(self, service, region)
        return _SHARED[key]

    monkeypatch.setattr(Clients, "of", of)
    yield
    _hang_up()
    _SHARED.clear()


def _hang_up() -> None:
    """Close the clients' connections: two processes on one connection would read each other's answers."""
    for client in _SHARED.values():
        client.close()


def in_a_child(work: Callable[[], object], steps: Steps | None = None) -> tuple[int, list[str]]:
    """Run `work` in a forked process; return its exit status, negative for a signal, and the steps that it made."""
    _hang_up()
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(heard)
            steps = steps or Steps()
            steps.install()
            work()
            os.write(told, json.dumps(steps.names).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(255)
    os.close(told)
    with os.fdopen(heard, "rb") as file:
        names = file.read()
    _pid, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), json.loads(names or b"[]")


def killed(work: Callable[[], object], kill_at: int, moment: Moment = "before", *, writes: bool = True) -> None:
    """Run `work` in a forked process that is killed at a step."""
    status, _names = in_a_child(work, Steps(kill_at, moment, writes=writes))
    assert status == -signal.SIGKILL, f"step {kill_at}: exit status {status}"


def kills(
    work: Callable[[], object], moments: tuple[Moment, ...] = ("before",), *, writes: bool = True
) -> Iterator[str]:
    """Run `work` once undisturbed, then once for each step and moment with a SIGKILL there; give each one's name.

    With `writes`, before a step is after the one before it: nothing that lasts happens between. The consumer cleans up
    and looks around each time.
    """
    work()  # what is imported, read or made at the first time is there for all that follow
    status, names = in_a_child(work, Steps(writes=writes))
    assert status == 0, "the undisturbed run failed: see its traceback"
    assert names
    yield "undisturbed"
    for number, name in enumerate(names, 1):
        for moment in moments:
            killed(work, number, moment, writes=writes)
            yield f"{moment} step {number}, {name}"
