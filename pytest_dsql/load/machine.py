"""Who used the cores during a cell: the embedded engine, the rest of the run, or others that kept the engine waiting.

The engine's processes are ours to look at, as those of a database elsewhere are not. Linux's /proc tells how much each
process ran and how long it stood in the run queue (proc(5); the kernel's sched-stats.rst for `schedstat`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Final, final

from pytest_dsql.load.measurement import EngineWork

_PROC: Final = Path("/proc")
#: Of the line `cpu` in /proc/stat, in ticks: user, nice, system; and what the hypervisor gave to others.
_BUSY: Final = (0, 1, 2, 7)
_IRQ: Final = 5
_SOFTIRQ: Final = 6


@final
@dataclass(frozen=True, slots=True)
class _Reading:
    """What /proc says at one moment; nanoseconds since the machine or the process began."""

    at_ns: int  #: by perf_counter_ns
    waited_ns: Mapping[int, int]  #: by process of the engine
    engine_ns: int  #: CPU of the engine's processes
    run_ns: int  #: CPU of this process and those that it started, the engine apart
    busy_ns: int  #: CPU of all processes of the machine, and what the hypervisor gave to other machines


@final
class MachineWatch:
    """Looks at the machine twice: before the load begins, and when the window closes.

    Looking at 200 processes took 18 ms of CPU, which is too much for the window's own beginning.
    """

    def __init__(self, engine: int) -> None:
        """Watch the engine whose process has this id, and those that it started."""
        self._engine = engine
        self._opened: _Reading | None = None
        self._work: EngineWork | None = None

    def open(self) -> None:
        """Look for the first time."""
        self._opened = _read(self._engine)

    def close(self) -> None:
        """Look for the second time; another call changes nothing."""
        before, self._opened = self._opened, None
        after = None if before is None else _read(self._engine)
        if before is None or after is None:
            return
        # A process that has come meanwhile has waited since then; of one that has gone nobody knows any more.
        waited = {pid: ns - before.waited_ns.get(pid, 0) for pid, ns in after.waited_ns.items()}
        busy = max(0, after.busy_ns - before.busy_ns)
        engine = max(0, after.engine_ns - before.engine_ns)
        run = max(0, after.run_ns - before.run_ns)
        self._work = EngineWork(
            elapsed_ns=after.at_ns - before.at_ns,
            waited_ns=sum(waited.values()),
            gateway_waited_ns=waited.get(self._engine, 0),
            cpu_ns=engine,
            others_ns=max(0, busy - engine - run),
            busy_ns=busy,
        )

    @property
    def work(self) -> EngineWork | None:
        """What was seen; None where the system doesn't tell, and before `close`."""
        return self._work


def _read(engine: int) -> _Reading | None:
    """Look at the machine; None where it has no such files, or the engine is gone."""
    at_ns = perf_counter_ns()
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    try:
        totals = [int(one) for one in (_PROC / "stat").read_text().split(maxsplit=9)[1:9]]
    except (OSError, ValueError):
        return None
    parents: dict[int, int] = {}
    cpu: dict[int, int] = {}
    for pid in [int(one.name) for one in _PROC.iterdir() if one.name.isdigit()]:
        try:
            # After the command's name, which may hold anything, in parentheses: state, parent, ...
            fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        parents[pid] = int(fields[1])
        # Its own, and that of its children that have ended: so their part of a window is not lost.
        cpu[pid] = sum(int(one) for one in fields[11:15]) * tick_ns
    if engine not in parents:
        return None
    family = _family(engine, parents)
    run = _family(os.getpid(), parents) - family
    waited: dict[int, int] = {}
    for pid in family:
        try:
            ran, waits, _slices = (_PROC / str(pid) / "schedstat").read_text().split()
        except (OSError, ValueError):
            continue
        if int(ran):  # sandboxed kernels offer the file without keeping the figures
            waited[pid] = int(waits)
    if not waited:
        return None
    engine_ns, run_ns = sum(cpu[one] for one in family), sum(cpu[one] for one in run)
    return _Reading(at_ns, waited, engine_ns, run_ns, _busy_ticks(totals) * tick_ns)


def _busy_ticks(totals: Sequence[int]) -> int:
    """Return what processes used, as far as it is a part of their own times, and what was stolen.

    What arrives over the network is worked off in interrupts, the run's own on the loopback as well. A kernel that
    times interrupts (CONFIG_IRQ_TIME_ACCOUNTING) charges no process for them, so that they would pass for the work of
    other programs. One that does not finds soft interrupts at its ticks, counts them as such and for the process that
    they met - and hard ones never, as the tick is one itself (kernel/sched/cputime.c, account_system_time).
    """
    counted = sum(totals[place] for place in _BUSY)
    return counted if totals[_IRQ] else counted + totals[_SOFTIRQ]


def _family(root: int, parents: Mapping[int, int]) -> set[int]:
    """Return a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    left = [root]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left.extend(children.get(one, ()))
    return found
