"""Where this host is: the address that a database sees connections come from."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final
from urllib.request import urlopen

from pytest_dsql.errors import UsageError

#: Amazon's own page that answers with the caller's address (VPC user guide, "Security group rules").
PAGE: Final = "https://checkip.amazonaws.com"
_TIMEOUT_S: Final = 10.0
_REMEDY: Final = "name it with --dsql-target-option generator=ADDRESS"


def public_address(page: str = PAGE) -> str:
    """Return the IPv4 address under which this host appears outside. Raises UsageError."""
    try:
        with urlopen(page, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - a constant, and https
            text = answer.read(100).decode("ascii", "replace").strip()
    except OSError as error:
        raise UsageError(f"this host's public address could not be asked of {page} ({error}): {_REMEDY}") from None
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise UsageError(f"{page} answered with no IPv4 address: {_REMEDY}") from None


def local_address() -> str:
    """Return the IPv4 address from which this host's connections start. Raises UsageError."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only picks the way out (RFC 5737's test network)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UsageError(f"this host has no IPv4 address to connect from ({error.strerror}): {_REMEDY}") from None
