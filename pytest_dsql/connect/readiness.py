"""Waiting until a socket can be read or written, in a thread or in an event loop."""

from __future__ import annotations

import asyncio
import selectors

EVENT_READ = selectors.EVENT_READ
EVENT_WRITE = selectors.EVENT_WRITE

# poll() needs no descriptor of its own, and unlike select() it takes descriptors above 1,023.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


def wait_ready(descriptor: int, events: int, timeout_s: float) -> bool:
    """Wait until `descriptor` is ready for one of `events`; False when `timeout_s` seconds passed first."""
    with _Selector() as selector:
        selector.register(descriptor, events)
        return bool(selector.select(max(0.0, timeout_s)))


async def wait_ready_async(descriptor: int, events: int, timeout_s: float) -> bool:
    """Wait likewise without blocking the running event loop."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    if events & EVENT_READ:
        loop.add_reader(descriptor, ready.set)
    if events & EVENT_WRITE:
        loop.add_writer(descriptor, ready.set)
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
        loop.remove_writer(descriptor)
    return True
