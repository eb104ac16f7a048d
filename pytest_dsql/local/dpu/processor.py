"""How much processor time a cluster's PostgreSQL has used: asked of the kernel, so that no statement pays for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
#: Fields behind the process's name (proc(5), /proc/pid/stat): parent, and user and system time, own and of children
#: that have ended and were waited for.
_PARENT, _OWN, _WAITED = 1, slice(11, 13), slice(13, 15)


def processor_seconds(socket_path: str) -> float | None:
    """The seconds that PostgreSQL behind this socket has computed, ended sessions included; None where /proc isn't."""
    try:
        pid = int((Path(socket_path).parent / "data" / "postmaster.pid").read_text(encoding="utf-8").split("\n")[0])
        own = _fields(pid)
        ticks = sum(map(int, (*own[_OWN], *own[_WAITED])))
    except (OSError, ValueError, IndexError):
        return None
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                fields = _fields(int(entry.name))
                if int(fields[_PARENT]) == pid:
                    ticks += sum(map(int, fields[_OWN]))
            except (OSError, ValueError, IndexError):
                continue  # it has ended meanwhile; the next time it is among those waited for
    return ticks / os.sysconf("SC_CLK_TCK")


def _fields(pid: int) -> list[str]:
    # The name is in parentheses, and may hold spaces and parentheses itself.
    return (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
