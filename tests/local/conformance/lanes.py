"""Several lanes at work beside each other: what many clusters, or one, make of many cases."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeAlias, final

from tests.local.conformance.case import Case, Protocol
from tests.local.conformance.running import Lane, Outcome

Job: TypeAlias = "tuple[Case, Protocol]"


@final
class Lanes:
    """Runs cases on as many lanes as there are, each with a thread of its own. A context manager.

    `ask` gives a case's outcome; a case that was not queued before is run then.
    """

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._queue: queue.SimpleQueue[tuple[Job, Future[Outcome]] | None] = queue.SimpleQueue()
        self._outcomes: dict[tuple[str, Protocol], Future[Outcome]] = {}
        self._threads = [threading.Thread(target=self._work, args=(lane,), daemon=True) for lane in lanes]
        for thread in self._threads:
            thread.start()

    def queue(self, case: Case, protocol: Protocol) -> Future[Outcome]:
        """Have a case run by the next lane that is free."""
        outcome = self._outcomes.get((case.id, protocol))
        if outcome is None:
            outcome = self._outcomes[case.id, protocol] = Future()
            self._queue.put(((case, protocol), outcome))
        return outcome

    def ask(self, case: Case, protocol: Protocol) -> Outcome:
        """Wait for a case's outcome."""
        return self.queue(case, protocol).result()

    def close(self) -> None:
        """Drop what was not begun, and wait for what was."""
        for outcome in self._outcomes.values():
            outcome.cancel()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, lane: Lane) -> None:
        ready = _guarded(lane.sweep)
        try:
            while (item := self._queue.get()) is not None:
                (case, protocol), outcome = item
                if not outcome.set_running_or_notify_cancel():
                    continue
                if ready is not None:
                    outcome.set_exception(ready)
                    continue
                try:
                    outcome.set_result(lane.run(case, protocol))
                except Exception as error:  # raised by whoever asks for the outcome
                    outcome.set_exception(error)
        finally:
            lane.close()


def _guarded(action: Callable[[], None]) -> Exception | None:
    try:
        action()
    except Exception as error:
        return error
    return None
