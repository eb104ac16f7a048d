"""The cases as tests: which of them, on which lanes, and the score at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from typing import Final

import pytest
from psycopg.conninfo import make_conninfo

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.fixtures import settings_of
from pytest_dsql.targets.target import Target
from tests.local.conformance.case import Case, Protocol, read_cases
from tests.local.conformance.known import known_failures
from tests.local.conformance.lanes import Lanes
from tests.local.conformance.running import Lane
from tests.local.conformance.score import score_lines

#: Clusters of the embedded engine among which the cases are divided: most cases wait for something most of the time.
_LANES: Final = 4
#: The embedded engine answers at once; a service far away may take its time.
_LOCAL_STEP_S: Final = 5.0

_PROPERTY: Final = "conformance group"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each case and protocol."""
    if {"case", "protocol"} <= set(metafunc.fixturenames):
        local = settings_of(metafunc.config).target == "local"
        metafunc.parametrize(
            ("case", "protocol"),
            [_parameters(case, protocol, local) for case in read_cases() for protocol in case.protocols],
        )


def _parameters(case: Case, protocol: Protocol, local: bool) -> object:
    known = known_failures().get(case.id) if local else None
    marks = (
        [pytest.mark.xfail(reason=f"{known.reason} ({known.by}, {known.since})", strict=True)]
        if known is not None and protocol in known.protocols
        else []
    )
    return pytest.param(case, protocol, id=f"{case.group}/{case.id}/{protocol}", marks=marks)


@pytest.fixture(scope="session")
def conformance_lanes(request: pytest.FixtureRequest, dsql_target: Target) -> Iterator[Lanes]:
    """The lanes, already busy with the cases that this run has selected."""
    with ExitStack() as stack:
        lanes = Lanes([_lane(endpoint, local=dsql_target.engine is not None) for endpoint in _endpoints(dsql_target)])
        stack.callback(lanes.close)
        if not hasattr(request.config, "workerinput"):  # a worker of pytest-xdist runs some of them only
            day = _day(request.config)
            for item in request.session.items:
                spec = getattr(item, "callspec", None)
                case = spec.params.get("case") if spec is not None else None
                if spec is not None and isinstance(case, Case) and not is_later(case, day):
                    lanes.queue(case, spec.params["protocol"])
        yield lanes


@pytest.fixture
def rules_day(pytestconfig: pytest.Config) -> date | None:
    """The day whose rules the engine follows; None: the newest."""
    return _day(pytestconfig)


def is_later(case: Case, day: date | None) -> bool:
    """Tell whether the behaviour came to DSQL after the day whose rules are followed."""
    return day is not None and case.since is not None and case.since > day


def _day(config: pytest.Config) -> date | None:
    rules = settings_of(config).set.get("rules")
    return date.fromisoformat(rules) if rules else None


def _endpoints(target: Target) -> list[Endpoint]:
    if target.engine is None:
        return [target.endpoint]
    from dataclasses import replace

    return [replace(target.endpoint, host=target.engine.new_cluster().host) for _ in range(_LANES)]


def _lane(endpoint: Endpoint, *, local: bool) -> Lane:
    tokens = TokenSource(endpoint)

    def conninfo() -> str:
        return make_conninfo(**endpoint.conninfo(tokens.token()))

    return Lane(conninfo, step_s=_LOCAL_STEP_S) if local else Lane(conninfo)


@pytest.fixture
def noted_group(request: pytest.FixtureRequest, case: Case) -> None:
    """Have the test's report say which group's score it counts for."""
    request.node.user_properties.append((_PROPERTY, [case.group, case.id]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the score."""
    results = [
        (*dict(report.user_properties)[_PROPERTY], outcome == "passed" or "[XPASS(strict)]" in str(report.longrepr))
        for outcome in ("passed", "failed", "xfailed", "xpassed")
        for report in terminalreporter.stats.get(outcome, ())
        if _PROPERTY in dict(getattr(report, "user_properties", ()))
    ]
    lines = score_lines(results)
    if lines:
        terminalreporter.section("conformance")
        for line in lines:
            terminalreporter.write_line(line)
