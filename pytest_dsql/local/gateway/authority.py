"""The engine's own certificate authority: one root, one leaf for each host name.

Elliptic-curve keys: signing a handshake takes a tenth of the time of RSA. The root is a file of its own, a single
certificate, because libpq reads the file again for every connection.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.x509 import Certificate

#: The protocol name that PostgreSQL registered for TLS (ALPN); direct TLS connections must offer it.
ALPN: Final = "postgresql"
LOCALHOST: Final = "localhost"

_LIFE: Final = datetime.timedelta(days=365)
#: Clocks that were set back between two runs on the same data directory must not invalidate a certificate.
_SKEW: Final = datetime.timedelta(days=1)


@final
class CertificateAuthority:
    """A certificate authority that lives in memory; only its root certificate is written, for clients to trust.

    `directory` must exist; the root's place is `root_file`. Private keys are on disk only for the moment in which
    OpenSSL reads them (mode 0600, in `directory`).
    """

    def __init__(self, directory: Path) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._issue("pytest-dsql local authority", self._key.public_key(), None)
        self._contexts: dict[str, ssl.SSLContext] = {}
        #: The file that clients name in `sslrootcert`.
        self.root_file: Final = directory / "root.crt"
        self.root_file.write_bytes(self.root_pem)

    @property
    def root_pem(self) -> bytes:
        """The root certificate."""
        return _pem(self._certificate)

    def context(self, host: str) -> ssl.SSLContext:
        """Give the server context whose certificate names `host`; made once for each host."""
        context = self._contexts.get(host)
        if context is None:
            context = self._contexts[host] = self.new_context(host)
        return context

    def new_context(self, host: str) -> ssl.SSLContext:
        """Make a server context with a certificate and a key of its own for `host`."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = ec.generate_private_key(ec.SECP256R1())
        chain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain += _pem(self._issue(host, key.public_key(), host))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([ALPN])
        # No PostgreSQL client resumes a TLS session; tickets would only make each handshake longer.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        # ssl reads chains from files only.
        handle, name = tempfile.mkstemp(dir=self._directory, suffix=".pem")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(chain)
            context.load_cert_chain(name)
        finally:
            Path(name).unlink()
        return context

    def _issue(self, name: str, public_key: EllipticCurvePublicKey, host: str | None) -> Certificate:
        """Issue a certificate: a leaf for `host`, or the root itself when there is none."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
        now = datetime.datetime.now(datetime.UTC)
        root = host is None
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if root else self._certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _LIFE)
            .add_extension(x509.BasicConstraints(ca=root, path_length=0 if root else None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=not root,
                    key_cert_sign=root,
                    crl_sign=root,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
        )
        if host is not None:
            names: list[x509.GeneralName] = [x509.DNSName(host)]
            if host == LOCALHOST:
                names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = (
                builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
                .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
                .add_extension(issuer, critical=False)
            )
        return builder.sign(self._key, hashes.SHA256())


def _pem(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)
