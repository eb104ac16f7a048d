"""A file that can't be read says why, in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.results.reader import parse_results, read_results
from pytest_dsql.results.schema import inconsistencies
from tests.results.made_files import content, full_file


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return json.dumps(content(full_file(tmp_path_factory.mktemp("results"))))


def refused(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_results(text, "results.json")
    (line,) = str(caught.value).splitlines()
    return line


def changed(whole: str, change: Callable[[Any], None]) -> str:
    value = json.loads(whole)
    change(value)
    return json.dumps(value)


def test_the_file_its_run_and_the_directory_of_runs(tmp_path: Path) -> None:
    file = full_file(tmp_path)
    assert read_results(file.path) == read_results(file.path.parent) == read_results(str(tmp_path)) == content(file)


def test_without_a_link_the_newest_run(tmp_path: Path) -> None:
    file = full_file(tmp_path)
    (tmp_path / "latest").unlink()
    assert read_results(tmp_path) == read_results(file.path)


@pytest.mark.parametrize("missing", ["", "nowhere", "nowhere/results.json"])
def test_no_file(tmp_path: Path, missing: str) -> None:
    with pytest.raises(UsageError, match="there is no results file"):
        read_results(tmp_path / missing)


def test_not_text(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="can't read the results file"):
        read_results(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON at line 1, column 1"),
        ('{"schema": 1,', "not JSON at line 1"),
        ("[]", "it holds a list, not an object"),
        ("{}", "the key schema is missing"),
        ('{"schema": NaN}', "NaN is no number in JSON"),
        ('{"schema": 2}', "has schema version 2, and this pytest-dsql reads version 1"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_malformed(text: str, why: str) -> None:
    assert why in refused(text)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda one: one["cells"][0].pop("tps"), "the key cells[0].tps is missing"),
        (lambda one: one["cells"][0].update(tpm=1), "the key cells[0].tpm is unknown"),
        (lambda one: one["cells"][0].update(workers="2"), "cells[0].workers is a text, not a whole number"),
        (lambda one: one["cells"][0].update(workers=True), "cells[0].workers is true or false, not a whole number"),
        (lambda one: one["cells"][0].update(workers=None), "cells[0].workers is null"),
        (lambda one: one["cells"][0]["verdict"].update(outcome="ok"), "cells[0].verdict.outcome is 'ok', not one of"),
        (lambda one: one["cells"][0]["verdict"].update(reasons=[1]), "cells[0].verdict.reasons[0] is a whole number"),
        (lambda one: one["cells"].append(7), "cells[5] is a whole number, not an object"),
        (lambda one: one["run"].pop("id"), "the key run.id is missing"),
        (lambda one: one["targets"].append({}), "the key targets[1].name is missing"),
        (
            lambda one: one["cells"][0]["transactions"]["product_read"].pop("latency_ms"),
            "the key cells[0].transactions.product_read.latency_ms is missing",
        ),
    ],
)
def test_other_keys(whole: str, change: Callable[[Any], None], why: str) -> None:
    assert why in refused(changed(whole, change))


def _lose_a_request(value: Any) -> None:
    value["cells"][0]["transactions"]["product_read"]["outcomes"]["ok"] -= 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_lose_a_request, "the outcomes of product_read add up to 5999, its arrivals are 6000"),
        (
            lambda one: one["cells"][0]["transactions"]["product_read"]["latency_ms"].update(p95=1e9),
            "latency_ms of product_read: the percentiles don't rise",
        ),
        (
            lambda one: one["cells"][0]["transactions"]["product_read"]["wait_ms"].update(p95=None),
            "some percentiles are null",
        ),
        (lambda one: one["cells"][0]["objectives"][0].update(over=10**9), "counts 1000000000 over its limit of only"),
        (lambda one: one["cells"][4]["connect"].update(succeeded=600), "were made or refused of only 500 attempted"),
        (lambda one: one["cells"][1].update(id=one["cells"][0]["id"]), "is there twice"),
        (
            lambda one: one["cells"][4]["connect"]["phases_ms"]["total"].update(p50=9),
            "the connection phase total: the percentiles don't rise",
        ),
    ],
)
def test_contradictions(whole: str, change: Callable[[Any], None], why: str) -> None:
    line = refused(changed(whole, change))
    assert "contradicts itself" in line
    assert why in line


def test_many_faults_are_one_line(whole: str) -> None:
    def break_much(value: Any) -> None:
        for one in value["cells"]:
            one.pop("tps")

    assert "(and 4 more)" in refused(changed(whole, break_much))


def test_a_real_file_does_not_contradict_itself(whole: str) -> None:
    assert list(inconsistencies(json.loads(whole))) == []
