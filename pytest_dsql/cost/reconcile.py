"""Compares a run's estimate with what CloudWatch and the bill say later: `pytest-dsql cost RUN`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_dsql.aws.failures import AwsError
from pytest_dsql.cost.bill import ask_bill, complete_at
from pytest_dsql.cost.books import costs_by_cell
from pytest_dsql.cost.meters import AwsMeter, CellUse
from pytest_dsql.cost.price_list import PriceList
from pytest_dsql.cost.prices import Prices
from pytest_dsql.cost.shape import CostShape
from pytest_dsql.errors import CredentialsError, UsageError
from pytest_dsql.results.reader import read_results
from pytest_dsql.results.revising import revise

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_dsql.cost.price_list import Caller
    from pytest_dsql.load.cost import Cost

#: CloudWatch keeps data by the minute so long (CloudWatch user guide, "Metrics retention").
_MINUTES_KEPT: Final = timedelta(days=15)


def results_of(run: str, directory: Path) -> Path:
    """Find the results file of a run, named by its id, its directory or its file. Raises UsageError."""
    from pytest_dsql.results.reader import FILE_NAME

    for candidate in (directory / run / FILE_NAME, Path(run) / FILE_NAME, Path(run)):
        if candidate.is_file():
            return candidate
    raise UsageError(f"there are no results of a run {run!r} in {directory}: name its id, its directory or its file")


def reconcile(path: Path, clients: Callable[[], Caller], *, now: Callable[[], float] = time.time) -> list[str]:
    """Compare, write what is known better into the results file, and give the comparison as lines of text.

    `clients` is called only when somebody has to be asked. Raises UsageError for a file that is none.
    """
    results = read_results(path)
    run = results["run"]
    lines = [f"run {run['id']}, {run['started_at']} to {run['finished_at'] or '(it did not end)'}"]
    started = datetime.fromisoformat(run["started_at"])
    shapes: list[CostShape] = []
    for target in results["targets"]:
        cells = [one for one in results["cells"] if one["target"] == target["name"] and one["cost"] is not None]
        lines += ["", f"{target['name']}"]
        if target.get("estimate_usd") is not None:
            lines.append(
                f"  estimate before  {_usd(target['estimate_usd'])} of a budget of {_usd(target['budget_usd'])}"
            )
        lines.append(f"  during the run   {_used(target.get('cost_dpu'), target.get('cost_usd'))}{_marks(target)}")
        shape = _shape(target)
        if shape is None:
            why = "the embedded engine costs nothing" if target["name"] == "local" else "nothing of it is known to be"
            lines.append(f"  {why} billed by AWS")
            continue
        shapes.append(shape)
        lines += _metered(path, target, shape, cells, started, _ended(results), clients, now)
    if shapes:
        lines += ["", *_billed(run["id"], shapes, started, _ended(results), clients, now)]
    return lines


def _shape(target: Mapping[str, Any]) -> CostShape | None:
    text = target.get("cost_shape")
    if not isinstance(text, str):
        return None
    try:
        return CostShape.from_json(text)
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"the results have no sound cost_shape of {target['name']}") from None


def _ended(results: Mapping[str, Any]) -> datetime:
    """When the run ended; for one that was killed, its last cell."""
    known = [one["cost"]["ended_at"] for one in results["cells"] if one["cost"] is not None]
    finished = results["run"]["finished_at"]
    return max(datetime.fromisoformat(one) for one in (finished or results["run"]["started_at"], *known))


def _metered(
    path: Path,
    target: Mapping[str, Any],
    shape: CostShape,
    cells: list[Mapping[str, Any]],
    started: datetime,
    ended: datetime,
    clients: Callable[[], Caller],
    now: Callable[[], float],
) -> list[str]:
    """Ask CloudWatch again, and write the cells that it knows into the results."""
    if datetime.fromtimestamp(now(), UTC) - started > _MINUTES_KEPT:
        return ["  CloudWatch       it no longer has the run's minutes (it keeps them for 15 days)"]
    try:
        caller = clients()
    except CredentialsError as error:
        return [f"  CloudWatch       can't be asked: {error}"]
    prices = Prices(PriceList(caller), assume=True)  # as during the run
    # Until the end of the run: what was there later, if anything, was another one's.
    meter = AwsMeter(shape, prices, caller, began_s=started.timestamp(), now=lambda: min(now(), _settled(ended)))
    for cell in cells:
        cost = cell["cost"]
        began, stopped = (datetime.fromisoformat(cost[one]).timestamp() for one in ("began_at", "ended_at"))
        meter.add(CellUse(cell["id"], began, stopped, cost["dpu"] or 0.0))
    meter.read(at_once=True)
    if meter.refusal is not None:
        return [f"  CloudWatch       can't be asked: {meter.refusal}"]
    if meter.silent:
        silent = " and ".join(meter.silent)
        why = "the results stay as they are: is this the account of the run (--profile, --role)?"
        return [f"  CloudWatch       it tells nothing of {silent}, and {why}"]
    costs: dict[str, Cost] = costs_by_cell(meter)
    usd = meter.usd(until_s=ended.timestamp())
    revise(path, costs, {target["name"]: _better(meter, prices, usd)})
    dpu = meter.dpu() if shape.dsql is not None else None
    known = f"{len(costs)} of {len(cells)} cells"
    return [f"  CloudWatch       {_used(dpu, usd)} ({known}, now in the results; prices: {prices.describe()})"]


def _settled(ended: datetime) -> float:
    from pytest_dsql.cost.meters import SETTLED_AFTER_S

    return ended.timestamp() + SETTLED_AFTER_S + 60


def _better(meter: AwsMeter, prices: Prices, usd: float) -> dict[str, Any]:
    facts: dict[str, Any] = {"cost_usd": round(usd, 6), "cost_prices": prices.describe(), "cost_note": None}
    facts["cost_estimated"] = not all(meter.measures(cell) for cell in meter.cells)
    if meter.shape.dsql is not None:
        facts["cost_dpu"] = round(meter.dpu(), 3)
    return facts


def _billed(
    run: str,
    shapes: list[CostShape],
    started: datetime,
    ended: datetime,
    clients: Callable[[], Caller],
    now: Callable[[], float],
) -> list[str]:
    ready = complete_at(ended)
    if datetime.fromtimestamp(now(), UTC) < ready:
        return [
            f"bill: Cost Explorer is complete about a day after the run; ask again after {ready:%Y-%m-%d %H:%M} UTC"
        ]
    items = [item for shape in shapes for item in shape.items]
    try:
        bill = ask_bill(clients(), run, started, ended, items)
    except (AwsError, CredentialsError) as error:
        return [f"bill: Cost Explorer can't be asked: {error}"]
    days = f"{bill.first} to {bill.last}" if bill.first != bill.last else f"{bill.first}"
    lines = [f"bill: {_usd(bill.usd)} on {days} (UTC){', still an estimate of AWS' if bill.estimated else ''}"]
    if bill.by_tag:
        lines.append("  of this run alone, by the tag pytest-dsql:run")
    else:
        lines.append(
            "  of the whole account: the tag pytest-dsql:run is not active as a cost allocation tag, so nobody can "
            "tell this run's part (Billing, Cost allocation tags; it counts from then on)"
        )
    lines += [
        f"  {one.service}  {one.usage_type}  {one.quantity:,.3f} {one.unit}  {_usd(one.usd)}" for one in bill.lines
    ]
    if not bill.lines:
        lines.append("  nothing: it was less than a cent, within a free tier, or is not there yet")
    return lines


def _used(dpu: float | None, usd: float | None) -> str:
    parts = [f"{dpu:,.1f} DPU"] if dpu is not None else []
    parts += [_usd(usd)] if usd is not None else []
    return ", ".join(parts) or "unknown"


def _usd(value: float) -> str:
    return f"${value:,.{2 if value >= 1 else 4}f}"


def _marks(target: Mapping[str, Any]) -> str:
    marks = ["estimated"] if target.get("cost_estimated") else []
    marks += [f"prices: {target['cost_prices']}"] if target.get("cost_prices") else []
    marks += [str(target["cost_note"])] if target.get("cost_note") else []
    return f" ({'; '.join(marks)})" if marks else ""
