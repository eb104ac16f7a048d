"""The startup packet: protocol version, user, database, and the settings a connection may ask for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, final

from pytest_dsql.local.cluster import DATABASE
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.disguise import INTERNAL_PREFIX

#: PostgreSQL's own limit for a startup packet, in bytes (MAX_STARTUP_PACKET_LENGTH).
MAX_PACKET: Final = 10_000

#: `length, code`: how every packet before authentication begins.
PREFIX: Final = Struct(">II")
CANCEL_REQUEST: Final = 80877102
SSL_REQUEST: Final = 80877103
GSSENC_REQUEST: Final = 80877104
PROTOCOL_3_0: Final = 3 << 16

#: What a connection may set (AWS user guide, "Accessing Aurora DSQL", and seen on clusters in October 2026).
SETTABLE: Final = frozenset(
    {
        "application_name",
        "client_encoding",
        "datestyle",
        "extra_float_digits",
        "intervalstyle",
        "timezone",
        "search_path",
        "enable_bitmapscan",
        "enable_hashjoin",
        "enable_indexonlyscan",
        "enable_indexscan",
        "enable_material",
        "enable_mergejoin",
        "enable_nestloop",
        "enable_seqscan",
        "dsql.enable_batched_nestloop",
        "disable_sync_create_index",
    }
)
#: Settable on DSQL, unknown to PostgreSQL: accepted, and without effect there.
_ONLY_DSQL: Final = frozenset({"disable_sync_create_index"})

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_OPTION: Final = re.compile(r"(?:\\.|[^\\\s])+", re.DOTALL)


class StartupRefused(Exception):
    """The connection can't start. Carries what the client is told."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message


@final
@dataclass(frozen=True, slots=True)
class Startup:
    """What a client asks for when it connects."""

    user: str
    database: str
    settings: tuple[tuple[str, str], ...]  #: in the order in which they apply
    negotiation: bytes  #: the NegotiateProtocolVersion message to send first; empty when none is needed

    def check(self) -> None:
        """Refuse another database than the only one, and settings that DSQL refuses; raises StartupRefused."""
        if self.database != DATABASE:
            # PostgreSQL's own text; what DSQL says is not on record.
            raise StartupRefused("3D000", f'database "{self.database}" does not exist')
        for name, value in self.settings:
            if name.lower() not in SETTABLE:
                raise StartupRefused("0A000", f'setting configuration parameter "{name}" not supported')
            if name.lower() == "search_path" and INTERNAL_PREFIX in value.lower():
                raise StartupRefused("22023", f'invalid value for parameter "search_path": "{value}"')

    def packet(self, own: Sequence[tuple[str, str]] = ()) -> bytes:
        """The startup packet for PostgreSQL, with settings of the engine's own."""
        wanted = [("user", self.user), ("database", self.database)]
        wanted += own
        wanted += [(name, value) for name, value in self.settings if name.lower() not in _ONLY_DSQL]
        payload = b"".join(text.encode("utf-8", "surrogateescape") + b"\0" for pair in wanted for text in pair)
        return frames.packet(PROTOCOL_3_0.to_bytes(4, "big") + payload + b"\0")


def read(packet: bytes) -> Startup:
    """Read a startup packet, its length field included. Raises StartupRefused."""
    _, version = PREFIX.unpack_from(packet)
    major, minor = version >> 16, version & 0xFFFF
    if major != 3:
        raise StartupRefused("0A000", f"unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0")
    settings: dict[str, str] = {}
    unknown: list[bytes] = []
    place = PREFIX.size
    while packet[place:] != b"\0" and (pair := frames.texts(packet, 2, place)):
        (name, value), following = pair
        if not name:
            break
        if name.startswith(b"_pq_."):
            unknown.append(name)
        else:
            settings[_text(name)] = _text(value)
        place = following
    # The list of pairs ends with one more NUL, and the packet with that.
    if packet[place:] != b"\0":
        raise StartupRefused("08P01", "invalid startup packet layout: expected terminator as last byte")
    user = settings.pop("user", "")
    if not user:
        raise StartupRefused("28000", "no PostgreSQL user name specified in startup packet")
    database = settings.pop("database", "") or user
    ordered = _options(settings.pop("options", ""))
    ordered += settings.items()
    negotiation = b""
    if minor or unknown:
        listed = b"".join(name + b"\0" for name in unknown)
        payload = PROTOCOL_3_0.to_bytes(4, "big") + len(unknown).to_bytes(4, "big") + listed
        negotiation = frames.message(frames.NEGOTIATE_PROTOCOL_VERSION, payload)
    return Startup(user, database, tuple(ordered), negotiation)


def _options(text: str) -> list[tuple[str, str]]:
    """Read the settings of an `options` parameter, as PostgreSQL does: `-c name=value`, `--name=value`."""
    words = [_ESCAPED.sub(r"\1", word) for word in _OPTION.findall(text)]
    found: list[tuple[str, str]] = []
    while words:
        word = words.pop(0)
        if word == "-c" and words:
            assignment = words.pop(0)
        elif word.startswith(("-c", "--")) and len(word) > 2:
            assignment = word[2:]
        else:
            raise StartupRefused("0A000", f'setting configuration parameter "{word}" not supported')
        name, separator, value = assignment.partition("=")
        if not separator:
            raise StartupRefused("42601", f"-c {assignment} requires a value")
        found.append((name.replace("-", "_"), value))
    return found


def _text(value: bytes) -> str:
    # Before a client encoding is agreed on, bytes are passed on as they came.
    return value.decode("utf-8", "surrogateescape")
