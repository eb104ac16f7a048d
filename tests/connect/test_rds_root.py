"""The roots of RDS: one certificate per file, of the Region that the name says, self-signed, far from its end."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509

from pytest_dsql.connect import rds_root as module
from pytest_dsql.connect.rds_root import rds_root
from pytest_dsql.errors import UsageError

FILES = sorted((Path(module.__file__).with_name("rds_roots")).glob("*.pem"))


def test_the_regions_of_the_published_experiments_have_one() -> None:
    assert {"ap-northeast-1", "ap-northeast-2", "us-west-2"} <= {file.stem for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_file_is_the_root_of_its_region(file: Path) -> None:
    [root] = x509.load_pem_x509_certificates(rds_root(file.stem).read_bytes())
    [name] = root.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert name.value == f"Amazon RDS {file.stem} Root CA RSA2048 G1"
    root.verify_directly_issued_by(root)
    assert root.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert root.not_valid_after_utc > datetime.datetime(2060, 1, 1, tzinfo=datetime.UTC)


def test_a_region_without_one_is_told_what_to_do() -> None:
    with pytest.raises(UsageError, match="sslrootcert=FILE"):
        rds_root("xx-north-1")
