"""Connections that are refused for the moment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsql.connect import backoff
from pytest_dsql.connect.backoff import Backoff, passes
from pytest_dsql.connect.dialer import dial, dial_async
from pytest_dsql.connect.endpoint import Endpoint, PasswordAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed
from tests.connect.conftest import error_response, hold, listening

RATE = ("53400", "Unable to accept connection, rate exceeded.")
WAKING = ("08006", "unable to accept connection, waking up cluster, please retry later")
OPEN = ("53300", "Unable to accept connection, too many open connections.")


def plain(port: int) -> Endpoint:
    return Endpoint("127.0.0.1", port=port, user="u", sslmode="disable", auth=PasswordAuth("p"), dialect="postgresql")


@contextmanager
def refusing_at_first(refusal: tuple[str, str], times: int) -> Iterator[tuple[int, list[int]]]:
    """A server that refuses so many logins and takes the next; yields its port and a list that grows with logins."""
    logins: list[int] = []

    def serve(client: socket.socket) -> None:
        client.recv(4096)
        logins.append(1)
        if len(logins) <= times:
            client.sendall(error_response(*refusal))
            client.close()
        else:
            client.sendall(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")
            hold(client)

    with listening(serve) as port:
        yield port, logins


@given(refusals=st.integers(1, 10_000), jitter=st.floats(0, 1, exclude_max=True))
def test_pauses_double_up_to_a_cap(refusals: int, jitter: float) -> None:
    pause = Backoff(0.1, 2.0).pause_s(refusals, jitter)
    assert 0 <= pause <= min(2.0, 0.1 * 2 ** min(refusals - 1, 30))


@pytest.mark.parametrize(("refusal", "expected"), [(RATE, True), (WAKING, True), (OPEN, False)])
def test_what_passes_by_itself(refusal: tuple[str, str], expected: bool) -> None:
    sqlstate, text = refusal
    assert passes(ConnectionFailed(text, phase="authentication", sqlstate=sqlstate)) is expected


@pytest.mark.parametrize("refusal", [RATE, WAKING])
def test_a_refusal_that_passes_is_waited_out(refusal: tuple[str, str]) -> None:
    with refusing_at_first(refusal, 3) as (port, logins):
        connection, _ = dial(plain(port), TokenSource(plain(port)))
        connection.close()
    assert len(logins) == 4


def test_an_asynchronous_connection_waits_likewise() -> None:
    async def run(port: int) -> None:
        connection, _ = await dial_async(
            plain(port), TokenSource(plain(port)), connection_class=psycopg.AsyncConnection
        )
        await connection.close()

    with refusing_at_first(RATE, 2) as (port, logins):
        asyncio.run(run(port))
    assert len(logins) == 3


def test_waiting_ends_with_the_time_for_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "BACKOFF", Backoff(0.01, 0.02))
    with refusing_at_first(RATE, 10_000) as (port, logins), pytest.raises(ConnectionFailed, match="rate exceeded"):
        dial(plain(port), TokenSource(plain(port)), timeout_s=0.5)
    assert len(logins) > 1


@pytest.mark.parametrize(("refusal", "patient"), [(OPEN, True), (RATE, False)])
def test_others_are_told_at_once(refusal: tuple[str, str], patient: bool) -> None:
    with refusing_at_first(refusal, 1) as (port, logins), pytest.raises(ConnectionFailed):
        dial(plain(port), TokenSource(plain(port)), patient=patient)
    assert len(logins) == 1
