#!/bin/sh
# Makes a machine ready that has nothing but Python or dnf (Amazon Linux 2023), and runs one pytest session on it.
# Needs BUCKET, REGION, PREFIX (of this machine's objects in the bucket) and DIRECTORY.
set -eu
umask 077
# As many connections as the kernel lets this process open.
ulimit -n "$(ulimit -Hn)" 2>/dev/null || :
mkdir -p "$DIRECTORY"
cd "$DIRECTORY"
for version in 3.13 3.12 3.11; do
  [ -x venv/bin/python ] && break
  command -v "python$version" >/dev/null || dnf install -y -q "python$version" >/dev/null 2>&1 || continue
  "python$version" -m venv venv >/dev/null 2>&1 || rm -rf venv
done
[ -x venv/bin/python ] || { echo "no Python 3.11 or newer is here, and none could be installed" >&2; exit 70; }
export PIP_DISABLE_PIP_VERSION_CHECK=1
venv/bin/python -m pip install -q boto3
venv/bin/python - "$BUCKET" "$REGION" <<'FETCH'
import sys

import boto3

bucket, region = sys.argv[1:]
s3 = boto3.client("s3", region_name=region)
for one in s3.list_objects_v2(Bucket=bucket, Prefix="package/")["Contents"]:
    s3.download_file(bucket, one["Key"], one["Key"].rpartition("/")[2])
FETCH
for wheel in "$PWD"/pytest_dsql-*.whl; do
  venv/bin/python -m pip install -q "$wheel[aws,report]"
done
exec venv/bin/python -m pytest_dsql.runner.there "$BUCKET" "$REGION" "$PREFIX" "$DIRECTORY"
