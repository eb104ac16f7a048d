"""Run the cases against any server that libpq's environment leads to: `python -m tests.local.conformance`."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.local.conformance.case import CASES, PROTOCOLS, BadCase, Case, read_cases
from tests.local.conformance.running import Lane, Outcome
from tests.local.conformance.score import score_lines
from tests.local.conformance.wire import Closed, Wire


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0: all passed or the score reached --at-least, 1: not so, 2: nothing could be run."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault("PGDATABASE", "postgres")
    try:
        cases = [case for case in read_cases(options.paths) if _selected(case, options.only, options.group)]
        Wire("", options.step_timeout).close()
    except (BadCase, Closed, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if not cases:
        print("no such case", file=sys.stderr)
        return 2
    lane = Lane(str, step_s=options.step_timeout, job_s=options.job_timeout)
    lane.sweep()
    outcomes = [_run(lane, case, options) for case in cases]
    lane.sweep()
    lane.close()
    results = [(one.case.group, one.case.id, one.passed) for of_case in outcomes for one in of_case]
    print("\n".join(["", *score_lines(results)]))
    if options.json is not None:
        report = [
            {"id": one.case.id, "group": one.case.group, "protocol": one.protocol, "wrong": one.wrong, "ms": one.ms}
            for of_case in outcomes
            for one in of_case
        ]
        options.json.write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")
    good = sum(all(one.passed for one in of_case) for of_case in outcomes)
    return 0 if 100 * good >= len(cases) * options.at_least else 1


def _run(lane: Lane, case: Case, options: argparse.Namespace) -> list[Outcome]:
    outcomes = [lane.run(case, one) for one in case.protocols if options.protocol in ("both", one) or case.protocol]
    for outcome in outcomes:
        for line in outcome.wrong if options.verbose else outcome.wrong[:1]:
            print(f"FAIL {line}", flush=True)
        if options.verbose and outcome.passed:
            print(f"ok   {case.id} ({case.title}) {outcome.protocol} {outcome.ms:.0f} ms", flush=True)
    return outcomes


def _selected(case: Case, only: Sequence[str], groups: Sequence[str]) -> bool:
    named = not only or any(fnmatch.fnmatchcase(case.id, pattern) for pattern in only)
    return named and (not groups or case.group in groups)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.local.conformance", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[CASES], help="files and directories of cases")
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="these cases; occ-* works")
    parser.add_argument("--group", action="append", default=[], help="the cases of this group")
    parser.add_argument("--protocol", choices=[*PROTOCOLS, "both"], default="both")
    parser.add_argument("--step-timeout", type=float, default=10.0, metavar="S", help="what a step may take")
    parser.add_argument("--job-timeout", type=float, default=150.0, metavar="S", help="what a job may take")
    parser.add_argument("--at-least", type=float, default=100.0, metavar="PERCENT", help="the score for exit status 0")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where a report is written")
    parser.add_argument("-v", "--verbose", action="store_true", help="every difference, and what passes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
