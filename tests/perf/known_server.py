"""A server whose answer times are known: it answers a `/*known*/` statement after a while, and notes how long it took.

`python -m tests.perf.known_server SEED STALL_AT STALL_MS`: prints its port; blocks altogether once, for STALL_MS, when
request number STALL_AT arrives (0: never). When its input closes, it prints what it noted as JSON and ends.

What it notes is the truth that a generator is compared with. So it runs from the moment at which the kernel had the
request (by its own stamp: SO_TIMESTAMPNS) to the one at which it had taken the whole answer: how late this process
wakes up, and what it does meanwhile, is part of it. As coroutines on streams it noted 0.2 ms less than its clients had
waited: it stamped a request once it was parsed, and an answer before it was written.
"""

from __future__ import annotations

import heapq
import json
import random
import select
import socket
import struct
import sys
import time
from typing import Final, final

from tests.load.fake_server import frame

READY: Final = frame(b"Z", b"I")
ROW: Final = frame(b"D", b"\0\1\0\0\0\2ok") + frame(b"C", b"SELECT 1\0")
GREETING: Final = (
    frame(b"R", struct.pack("!I", 0))
    + b"".join(
        frame(b"S", f"{name}\0{value}\0".encode())
        for name, value in (("server_version", "16.0"), ("client_encoding", "UTF8"), ("DateStyle", "ISO"))
    )
    + frame(b"K", struct.pack("!II", 1, 1))
    + READY
)
DESCRIPTION: Final = frame(b"T", struct.pack("!H", 1) + b"v\0" + struct.pack("!IHIHIH", 0, 0, 25, 65535, 0, 0))
SSL_REQUEST: Final = 80877103
GSS_REQUEST: Final = 80877104
#: Of Linux's asm-generic/socket.h: the option, and the message that comes with what is read.
SO_TIMESTAMPNS: Final = 35


@final
class Client:
    """One connection: what has arrived on it, and the answer that it is owed."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.incoming = bytearray()
        self.outgoing = b""
        self.greeted = False
        self.statements: dict[bytes, bytes] = {}
        self.bound = b""
        self.owed = 0  #: statements of known duration that were asked for


@final
class Known:
    """The server: one thread, one epoll."""

    def __init__(self, seed: int, stall_at: int, stall_s: float) -> None:
        self.rng = random.Random(seed)
        self.stall_at, self.stall_s = stall_at, stall_s
        self.took_ns: list[int] = []
        self.stalls_ns: list[int] = []
        self.clients: dict[int, Client] = {}
        self.due: list[tuple[int, int, int, Client]] = []  #: when to answer, number, when it arrived, whom

    def serve(self, listener: socket.socket) -> None:
        """Serve until the standard input closes."""
        epoll = select.epoll()
        epoll.register(listener, select.EPOLLIN)
        epoll.register(sys.stdin, select.EPOLLIN)
        while True:
            if self.due:  # to the microsecond: epoll's own timeout is in milliseconds
                select.select([epoll], (), (), max(0.0, (self.due[0][0] - time.perf_counter_ns()) / 1e9))
            ready = epoll.poll(0 if self.due else None)
            for number, _mask in ready:
                if number == sys.stdin.fileno():
                    return
                if number == listener.fileno():
                    sock, _ = listener.accept()
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                    self.clients[sock.fileno()] = Client(sock)
                    epoll.register(sock, select.EPOLLIN)
                elif not self.hear(self.clients[number]):
                    epoll.unregister(number)
                    self.clients.pop(number).sock.close()
            while self.due and self.due[0][0] <= time.perf_counter_ns():
                _, number, arrived_ns, client = heapq.heappop(self.due)
                client.sock.sendall(client.outgoing + ROW + READY)
                self.took_ns[number] = time.perf_counter_ns() - arrived_ns
                client.outgoing = b""

    def hear(self, client: Client) -> bool:
        """Read what has arrived and answer it, or make out when; False when the client is gone."""
        try:
            data, notes, _flags, _address = client.sock.recvmsg(1 << 16, 64)
        except ConnectionError:
            return False
        arrived_ns = _stamp_of(notes)
        incoming = client.incoming
        incoming += data
        while client.greeted and len(incoming) >= 5:
            (length,) = struct.unpack_from("!I", incoming, 1)
            if len(incoming) <= length:
                break
            kind, body = bytes(incoming[:1]), bytes(incoming[5 : length + 1])
            del incoming[: length + 1]
            if kind == b"X":
                return False
            self.act(client, kind, body)
            if kind == b"S" and client.owed:
                self.promise(client, arrived_ns)
            elif kind in (b"S", b"Q"):
                client.sock.sendall(client.outgoing + READY)
                client.outgoing = b""
        while not client.greeted and len(incoming) >= 8:
            length, code = struct.unpack_from("!II", incoming)
            if len(incoming) < length:
                break
            del incoming[:length]
            client.greeted = code not in (SSL_REQUEST, GSS_REQUEST)
            client.sock.sendall(GREETING if client.greeted else b"N")
        return bool(data)

    def act(self, client: Client, kind: bytes, body: bytes) -> None:
        """Take one message of the extended or the simple protocol."""
        if kind == b"P":
            name, sql, _ = body.split(b"\0", 2)
            client.statements[name] = sql
            client.outgoing += frame(b"1")
        elif kind == b"B":
            client.bound = client.statements[body.split(b"\0", 2)[1]]
            client.outgoing += frame(b"2")
        elif kind == b"D":
            client.outgoing += frame(b"t", struct.pack("!H", 0)) + frame(b"n") if body[:1] == b"S" else DESCRIPTION
        elif kind == b"E" and b"/*known*/" in client.bound:
            client.owed += 1
        elif kind in (b"E", b"Q"):
            client.outgoing += frame(b"C", b"SELECT 1\0")

    def promise(self, client: Client, arrived_ns: int) -> None:
        """Draw how long the answer takes: a few ms, with a tail; the 99.9th percentile is some ten times the median."""
        assert client.owed == 1
        client.owed = 0
        number = len(self.took_ns)
        self.took_ns.append(0)
        if number + 1 == self.stall_at:
            time.sleep(self.stall_s)  # nobody is served meanwhile: that is what a stall is
            self.stalls_ns.append(time.perf_counter_ns() - arrived_ns)
        wait_ns = int((0.002 + self.rng.lognormvariate(-6.5, 0.8)) * 1e9)
        heapq.heappush(self.due, (time.perf_counter_ns() + wait_ns, number, arrived_ns, client))


def _stamp_of(notes: list[tuple[int, int, bytes]]) -> int:
    """Return when the kernel had what was read, by `perf_counter_ns`; now where it does not say."""
    now_ns, wall_ns = time.perf_counter_ns(), time.time_ns()
    for level, kind, value in notes:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = (int(part) for part in struct.unpack("@qq", value))
            return now_ns - (wall_ns - seconds * 1_000_000_000 - nanoseconds)
    return now_ns


def main() -> None:
    seed, stall_at, stall_ms = sys.argv[1:]
    known = Known(int(seed), int(stall_at), int(stall_ms) / 1000)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        print(listener.getsockname()[1], flush=True)
        known.serve(listener)
    print(json.dumps({"took_ns": known.took_ns, "stalls_ns": known.stalls_ns}), flush=True)


if __name__ == "__main__":
    main()
