"""One line of live progress on a terminal, which leaves no trace; nothing at all elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from pytest_dsql.load.fleet import Progress
    from pytest_dsql.workloads.loading import LoadProgress

#: Faster than this is flicker, and time taken from the load.
_INTERVAL_S: Final = 0.1
#: Makes sure that there is a line below the cursor, which scrolls when it is on the last one and keeps its column.
_ROOM: Final = "\x1bD\x1b[A"
#: The line is the one below the cursor: what pytest has written of its own line so far stays. `_BACK` returns to it.
_BELOW: Final = "\x1b7\x1b[B\r\x1b[K"
_BACK: Final = "\x1b8"


class Stream(Protocol):
    """What a progress line needs of a stream."""

    def isatty(self) -> bool:
        """Whether a terminal shows it."""

    def columns(self) -> int:
        """How wide the terminal is."""

    def write(self, text: str, /) -> int:
        """Write text."""

    def flush(self) -> None:
        """Show what was written."""


@final
class ProgressLine:
    """A line below the cursor that overwrites itself: `with ProgressLine(stream) as line: ... line.show("...")`.

    Gone when it closes, and before anything else is written: who shows something on it clears it.
    """

    def __init__(self, stream: Stream, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown_at = float("-inf")
        self._visible = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Show `text` in place of what was there, unless the last was only just shown."""
        now = self._clock()
        if not self._live or now - self._shown_at < _INTERVAL_S:
            return
        self._shown_at = now
        self._visible = True
        # The last column stays free: some terminals go to the next line after it.
        self._stream.write(f"{_ROOM}{_BELOW}{text[: self._stream.columns() - 1]}{_BACK}")
        self._stream.flush()

    def clear(self) -> None:
        """Erase the line."""
        if self._visible:
            self._stream.write(_BELOW + _BACK)
            self._stream.flush()
            self._visible = False
            self._shown_at = float("-inf")

    @contextmanager
    def cell(self, name: str) -> Iterator[Callable[[Progress], None]]:
        """Give what shows the progress of the cell `name`; the line is gone afterwards."""
        short = name.rpartition("/")[2]

        def show(progress: Progress) -> None:
            planned = "" if progress.phase_s is None else f"/{progress.phase_s:.0f}"
            connected = f", {progress.connected:,}/{progress.connections:,} connections"
            requests = sum(progress.outcomes.values())
            figures = f", {requests:,} requests, {progress.tps:,.0f}/s" if requests else connected
            errors = ", ".join(f"{state} {count:,}" for state, count in progress.errors.items() if count)
            self.show(
                f"{short}: {progress.phase} {progress.elapsed_s:.0f}{planned} s{figures}"
                f"{f', errors: {errors}' if errors else ''}"
            )

        with self:
            yield show

    def loading(self, progress: LoadProgress) -> None:
        """Show how far a load of data is."""
        share = progress.rows / progress.total_rows if progress.total_rows else 1.0
        rate = progress.rows / progress.elapsed_s if progress.elapsed_s > 0 else 0.0
        self.show(
            f"loading {progress.step}: {progress.rows:,} of {progress.total_rows:,} rows ({share:.0%}), {rate:,.0f}/s"
        )
