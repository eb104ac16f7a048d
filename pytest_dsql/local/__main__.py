"""`python -m pytest_dsql.local`: the engine's process, started by `pytest_dsql.local.client`, never by people."""

from __future__ import annotations

import os
import stat
import sys

from pytest_dsql.local.engine import main
from pytest_dsql.local.spawn import CONNECTION_DESCRIPTOR

if not stat.S_ISSOCK(os.fstat(CONNECTION_DESCRIPTOR).st_mode):
    sys.exit("this is the engine's own process; start one with: pytest-dsql local")
sys.exit(main())
