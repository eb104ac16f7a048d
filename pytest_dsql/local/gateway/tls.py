"""Which host a client named in its TLS handshake, and the certificate it gets for that."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final, final

from pytest_dsql.local.gateway.authority import LOCALHOST, CertificateAuthority
from pytest_dsql.local.gateway.directory import ClusterDirectory


@final
@dataclass(frozen=True, slots=True)
class ServerName:
    """What the handshake said about the host (SNI)."""

    host: str | None  #: a cluster's host name or `localhost`; None when no name was given, or one we don't serve
    received: bool  #: whether a name was given


_NOT_RECEIVED: Final = ServerName(None, received=False)
_UNKNOWN: Final = ServerName(None, received=True)


@final
class ServerNames:
    """Selects a certificate by SNI, and remembers by it which name was given.

    A handshake without a name, or with an unknown one, succeeds here with the certificate of `localhost`: the client
    is told why it is refused in the protocol it understands, once it has sent its startup packet.
    """

    def __init__(self, directory: ClusterDirectory, authority: CertificateAuthority) -> None:
        self._directory = directory
        self._authority = authority
        #: The context to start a handshake with.
        self.context: Final = authority.new_context(LOCALHOST)
        self.context.sni_callback = self._select
        self._unknown = authority.new_context(LOCALHOST)
        self._names: dict[ssl.SSLContext, ServerName] = {self.context: _NOT_RECEIVED, self._unknown: _UNKNOWN}

    def name_of(self, connection: ssl.SSLObject) -> ServerName:
        """The name that the client of this connection gave."""
        return self._names[connection.context]

    def _select(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        if name is None:
            return
        host = name.lower()
        if host == LOCALHOST or self._directory.by_host(host) is not None:
            connection.context = self._authority.context(host)
            self._names.setdefault(connection.context, ServerName(host, received=True))
        else:
            connection.context = self._unknown
