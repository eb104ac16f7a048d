"""Checks IAM tokens in place of RDS: PostgreSQL hands the password to a directory server, and this is one.

RDS hands it to PAM; with LDAP the test changes nothing on the machine. Only the bind of RFC 4511 is spoken.
"""

from __future__ import annotations

import socketserver
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_BIND, _UNBIND = 0x60, 0x42
_SUCCESS, _INVALID_CREDENTIALS = 0, 49


class TokenChecker:
    """Whether tokens are good: signed with these keys, for this host, port and role, and of now."""

    def __init__(self, access_key: str, secret_key: str, region: str, host: str) -> None:
        self._keys = Credentials(access_key, secret_key)
        self._region = region
        self.host = host  #: with its port, as the token must name it
        self.accepted = 0

    def good(self, role: str, token: str) -> bool:
        """Tell whether `role` may log in with `token`. Source: SigV4, "query string authentication"."""
        url, _, signature = token.partition("&X-Amz-Signature=")
        parts = urllib.parse.urlsplit(f"https://{url}")
        query = dict(urllib.parse.parse_qsl(parts.query))
        if (parts.netloc, query.get("Action"), query.get("DBUser")) != (self.host, "connect", role):
            return False
        signed = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if not timedelta(0) <= datetime.now(UTC) - signed < timedelta(seconds=int(query["X-Amz-Expires"])):
            return False
        request = AWSRequest("GET", f"https://{url}", headers={"host": self.host})
        request.context["timestamp"] = query["X-Amz-Date"]
        signer = SigV4QueryAuth(self._keys, "rds-db", self._region)
        expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
        self.accepted += signature == expected
        return bool(signature == expected)

    @contextmanager
    def served(self) -> Iterator[int]:
        """Serve on 127.0.0.1; yield the port."""
        checker = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while (message := _element(self.rfile)) is not None:
                    tag, content = message
                    assert tag == 0x30
                    number, request = _elements(content)[:2]
                    if request[0] != _BIND:
                        return
                    _version, name, password = _elements(request[1])[:3]
                    good = checker.good(name[1].decode(), password[1].decode())
                    code = _SUCCESS if good else _INVALID_CREDENTIALS
                    answer = bytes([0x0A, 1, code, 0x04, 0, 0x04, 0])
                    body = bytes([number[0], len(number[1])]) + number[1] + bytes([0x61, len(answer)]) + answer
                    self.wfile.write(bytes([0x30, len(body)]) + body)

        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield int(server.server_address[1])
            finally:
                server.shutdown()
                thread.join()


def _element(stream: object) -> tuple[int, bytes] | None:
    """Read one element of BER (X.690): tag, length, content."""
    read = stream.read  # type: ignore[attr-defined]
    head = read(2)
    if len(head) < 2:
        return None
    length = head[1]
    if length & 0x80:
        length = int.from_bytes(read(length & 0x7F), "big")
    return head[0], read(length)


def _elements(content: bytes) -> list[tuple[int, bytes]]:
    import io

    stream = io.BytesIO(content)
    found = []
    while (one := _element(stream)) is not None:
        found.append(one)
    return found
