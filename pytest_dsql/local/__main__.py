"""`python -m pytest_dsql.local`: the engine's process, started by `pytest_dsql.local.client`, never by people."""

from __future__ import annotations

import sys

from pytest_dsql.local.engine import main

sys.exit(main())
