"""One PostgreSQL server: made with initdb, started on a unix socket, watched, stopped."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pytest_dsql.errors import EngineError
from pytest_dsql.local.account import Account
from pytest_dsql.local.installation import Installation
from pytest_dsql.masking import mask

#: The bootstrap superuser. Clients never see it: they log in as roles of the cluster.
SUPERUSER: Final = "pytest_dsql_engine"

#: PostgreSQL names its socket file after its port; the directory is the server's own, so the port is a constant.
SOCKET_NAME: Final = ".s.PGSQL.5432"

#: Socket paths have a limit: 108 bytes with the closing zero on Linux, 104 on macOS.
SOCKET_PATH_LIMIT: Final = 103

_READY_POLL_S: Final = 0.002
_TAIL_LINES: Final = 12


class Postgres:
    """A PostgreSQL server process in a data directory. Not thread-safe; `wait` may run in a thread of its own."""

    def __init__(
        self,
        installation: Installation,
        account: Account,
        data: Path,
        socket_directory: Path,
        log: Path,
    ) -> None:
        self.installation = installation
        self.data = data
        self.socket_path = socket_directory / SOCKET_NAME
        self._account = account
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, settings: Mapping[str, str]) -> None:
        """Start the server with `settings` and return at once; `wait_ready` says when it answers.

        Raises EngineError when the program can't be started at all.
        """
        write_settings(self.data, settings, self._account)
        # The log is opened here, so that the server's account need not be able to reach its directory.
        with self._log.open("ab") as log:
            self._process = run_program(
                self._account,
                [self.installation.program("postgres"), "-D", str(self.data)],
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        """The process id of the server's parent process."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Return when the server accepts connections. Raises EngineError with the end of its log when it doesn't."""
        assert self._process is not None, "the server was not started"
        deadline = time.monotonic() + timeout_s
        while not self._says_ready():
            if self._process.poll() is not None:
                raise EngineError(f"PostgreSQL did not start ({self.ending()}): {self.log_tail()}")
            if time.monotonic() > deadline:
                raise EngineError(f"PostgreSQL was not ready within {timeout_s:.0f} s: {self.log_tail()}")
            time.sleep(_READY_POLL_S)

    def _says_ready(self) -> bool:
        # Line 8 of postmaster.pid is the server's status (miscadmin.h, LOCK_FILE_LINE_PM_STATUS); line 1 its process.
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def wait(self) -> int:
        """Wait until the server has ended, and return its exit status as subprocess does."""
        assert self._process is not None, "the server was not started"
        return self._process.wait()

    @property
    def running(self) -> bool:
        """Whether the server was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop the server, whatever its clients are doing; harder after half of `timeout_s` and again at its end."""
        if self._process is None:
            return
        for hurry, patience_s in ((signal.SIGINT, timeout_s / 2), (signal.SIGQUIT, timeout_s / 2)):
            self._signal(hurry)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
                return
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def ending(self) -> str:
        """How the server ended, for people."""
        status = self._process.returncode if self._process is not None else None
        if status is None:
            return "still running"
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"

    def log_tail(self) -> str:
        """The last lines of the server's log in one line, masked."""
        return log_tail(self._log)


def run_program(
    account: Account, arguments: list[str], *, stdout: int | object, stderr: int | object, stdin: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a program of PostgreSQL under `account`, in an environment that nothing of the user's reaches.

    Raises EngineError when it can't be started.
    """
    try:
        return subprocess.Popen(
            account.command(arguments),
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout,  # type: ignore[arg-type]  # subprocess's own type for "a file" is not exported
            stderr=stderr,  # type: ignore[arg-type]  # likewise
            env=_environment(),
            cwd="/",
            **account.options,
        )
    except OSError as error:
        raise EngineError(f"{arguments[0]} can't be started: {error.strerror or error}") from error


def _environment() -> dict[str, str]:
    # PGDATA, PGPORT, PGOPTIONS, LC_* and TZ of the user would change the server.
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"LC_ALL": "C", "TZ": "UTC"}


def initdb(installation: Installation, account: Account, data: Path, *options: str) -> None:
    """Make a new data directory: UTF-8, C collation, superuser `SUPERUSER`. Raises EngineError with initdb's words."""
    process = run_program(
        account,
        [
            installation.program("initdb"),
            f"--pgdata={data}",
            f"--username={SUPERUSER}",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = process.communicate()
    if process.returncode != 0:
        raise EngineError(f"initdb failed: {one_line(output.decode(errors='replace'))}")


def write_settings(data: Path, settings: Mapping[str, str], account: Account) -> None:
    """Write the server's configuration file: these settings and no others."""
    lines = (f"{name} = '{_quoted(value)}'\n" for name, value in settings.items())
    path = data / "postgresql.conf"
    path.write_text("".join(lines))
    account.own(path)


def _quoted(value: str) -> str:
    return re.sub(r"(['\\])", r"\1\1", value)


def log_tail(log: Path) -> str:
    """The last lines of a log in one line, masked; says so when there are none."""
    try:
        return one_line(log.read_text(errors="replace"))
    except OSError:
        return "its log can't be read"


def one_line(text: str) -> str:
    """The last lines of a program's words in one line, masked."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return mask(" | ".join(lines[-_TAIL_LINES:])) or "it said nothing"
