from __future__ import annotations

import socket
from typing import Any

from pytest_dsql.load.channel import Channel
from pytest_dsql.load.loop import Loop


def ends(loop: Loop, received: list[Any], closed: list[str]) -> tuple[Channel, Channel]:
    ours, theirs = socket.socketpair()

    def take(message: Any) -> None:
        received.append(message)
        loop.stop()

    def end() -> None:
        closed.append("closed")
        loop.stop()

    return (
        Channel(loop, ours, received=take, closed=end),
        Channel(loop, theirs, received=take, closed=end),
    )


def test_messages_of_any_size_arrive_whole_and_in_order() -> None:
    loop = Loop()
    received: list[Any] = []
    ours, theirs = ends(loop, received, [])
    sent = [("small", 1), ("large", b"x" * 3_000_000), ("last", None)]
    for message in sent:
        ours.send(message)
    while len(received) < len(sent):
        loop.run()
    assert received == sent
    for end in (ours, theirs):
        end.close()
    loop.close()


def test_the_other_sides_end_is_noticed_and_sending_on_is_harmless() -> None:
    loop = Loop()
    closed: list[str] = []
    ours, theirs = ends(loop, [], closed)
    theirs.close()
    loop.run()
    assert closed == ["closed"]
    ours.send("too late")
    loop.close()
