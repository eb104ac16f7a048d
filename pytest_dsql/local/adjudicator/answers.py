"""Answers to texts that stand in for the client's: what is ours in them is taken out. No I/O."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pytest_dsql.local.adjudicator.sandbox.plans import Text
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.frames import COMMAND_COMPLETE, DATA_ROW, HEADER_SIZE, ROW_DESCRIPTION

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.group import Group

_SELECT: Final = b"SELECT "


def stripped(reply: Group, text: Text) -> None:
    """Leave in an answer what the client's own statement would have answered; keep what was ours in `reply`."""
    if text.last == "client" and text.rows and not text.insert and text.tag is None:
        return
    kept: list[bytes] = []
    for message in reply.collected:
        kind = message[0]
        payload = message[HEADER_SIZE:]
        if kind == DATA_ROW:
            if text.last != "client":
                row, last = _split(payload)
                _keep(reply, text, last)
                payload = row
            if text.rows:
                kept.append(frames.message(DATA_ROW, payload))
        elif kind == ROW_DESCRIPTION:
            if text.rows:
                kept.append(frames.message(kind, payload if text.last == "client" else _without_last(payload)))
        elif kind == COMMAND_COMPLETE and text.tag is not None:
            reply.tag = text.tag.encode()
            kept.append(frames.message(kind, reply.tag + b"\0"))
        elif kind == COMMAND_COMPLETE and text.insert and payload.startswith(_SELECT):
            tag = b"INSERT 0 " + payload[len(_SELECT) :]
            reply.tag = tag[:-1]
            kept.append(frames.message(kind, tag))
        else:
            kept.append(message)
    reply.collected = kept


def _keep(reply: Group, text: Text, last: bytes | None) -> None:
    if last is None:
        return
    if text.last == "captured":
        reply.captured.append(last)
        return
    # In its binary form a jsonb value begins with its version, 1.
    told = json.loads(last.removeprefix(b"\x01"))
    reply.locked.update(key for key in told["locked"] if key is not None)
    reply.shared.update(key for key in told["shared"] if key is not None)


def _split(payload: bytes) -> tuple[bytes, bytes | None]:
    count = int.from_bytes(payload[:2], "big")
    place = 2
    for _ in range(count - 1):
        length = int.from_bytes(payload[place : place + 4], "big", signed=True)
        place += 4 + max(length, 0)
    length = int.from_bytes(payload[place : place + 4], "big", signed=True)
    last = None if length < 0 else payload[place + 4 : place + 4 + length]
    return (count - 1).to_bytes(2, "big") + payload[2:place], last


def _without_last(payload: bytes) -> bytes:
    count = int.from_bytes(payload[:2], "big")
    place = 2
    for _ in range(count - 1):
        place = payload.index(0, place) + 1 + 18  # table, column, type, size, modifier, format
    return (count - 1).to_bytes(2, "big") + payload[2:place]
