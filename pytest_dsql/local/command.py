"""Runs a command while the engine runs, the way a shell would: its terminal, its signals, its exit status."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

    from pytest_dsql.local.client import Engine

#: A shell's exit status for a command that signal n ended is this plus n.
_BY_SIGNAL: Final = 128

#: What is passed on to the command. The terminal's stop and resume reach it by themselves, and us alike.
_FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

#: Python ignores these; programs expect not to.
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)


def run_command(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command in the foreground and give its exit status, 128 + n when signal n ended it.

    Raises OSError when it can't be started.
    """
    watched = {*_FORWARDED, signal.SIGCHLD}
    previous = signal.signal(signal.SIGCHLD, _nothing)  # its default is to be discarded before anybody waits for it
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = os.posix_spawnp(command[0], command, environment, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON)
        while True:
            number, forward = _next_signal(watched)
            if number != signal.SIGCHLD:
                if forward:
                    os.kill(child, number)  # it was not waited for yet, so the process id is still its own
                continue
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else _BY_SIGNAL - code
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGCHLD, previous)


def _next_signal(watched: set[signal.Signals]) -> tuple[int, bool]:
    """Wait for a signal; whether it is ours to pass on: what a key on the terminal sends reaches the command too."""
    if sys.platform == "darwin":  # no sigwaitinfo
        number = signal.sigwait(watched)
        return number, not (number in (signal.SIGINT, signal.SIGQUIT) and sys.stdin.isatty())
    information = signal.sigwaitinfo(watched)
    return information.si_signo, information.si_pid != 0


def wait_until_interrupted(engine: Engine, listening: Callable[[], object]) -> str | None:
    """Wait for SIGINT, SIGTERM or SIGHUP, or for the engine's end; give the reason of the latter.

    `listening` is called when signals are heard: who is told before may send one too early.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    wakeup = signal.set_wakeup_fd(writer)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = [signal.signal(number, _nothing) for number in numbers]
    try:
        listening()
        while True:
            ready, _, _ = select.select([reader, engine.fileno()], [], [])
            if engine.fileno() in ready and (reason := engine.ended()) is not None:
                return reason
            if reader in ready:
                return None
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(reader)
        os.close(writer)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """A handler for signals that are waited for."""
