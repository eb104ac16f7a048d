"""Other clients with the same work: pgbench, psycopg in threads, in asyncio tasks, and under Locust.

Each runs in a process of its own and says what it did and what CPU time it took for it, connecting left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.plain_postgres import PlainPostgres

#: Seconds before a rival's figures count.
WARM_UP = 0.5


@dataclass(frozen=True)
class Run:
    """What one run did: requests per second, and client CPU time per request."""

    rate: float
    cpu_us: float


def run_pgbench(server: PlainPostgres, scripts: Mapping[Path, int], connections: int, seconds: float) -> Run:
    """Run scripts with their weights; pgbench's rate is its own figure, what connecting costs is taken off."""
    _, connecting_s = _pgbench(server, scripts, connections, "-t", "1")
    output, cpu_s = _pgbench(server, scripts, connections, "-T", f"{seconds:.0f}")
    done = next(int(line.split(":")[1].split("/")[0]) for line in output.splitlines() if "actually processed" in line)
    rate = next(float(line.split()[2]) for line in output.splitlines() if line.startswith("tps"))
    return Run(rate, (cpu_s - connecting_s) * 1e6 / done)


def _pgbench(server: PlainPostgres, scripts: Mapping[Path, int], connections: int, *amount: str) -> tuple[str, float]:
    environment = os.environ | {
        "PGHOST": server.host,
        "PGPORT": str(server.port),
        "PGUSER": server.user,
        "PGPASSWORD": server.password,
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": str(server.sslrootcert),
    }
    files = [part for script, weight in scripts.items() for part in ("-f", f"{script}@{weight}")]
    fixed = ["pgbench", "-n", "-M", "prepared", "-c", str(connections), "-j", "1", "--max-tries=3"]
    process = subprocess.Popen(
        [*fixed, *files, *amount, server.dbname],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, output
    return output, usage.ru_utime + usage.ru_stime


#: A transaction as somebody writes it with psycopg: `statements` are (SQL, names of its parameters).
_COMMON = """
import json, random, sys, time
import psycopg
given = json.load(sys.stdin)
counts = [0] * given["connections"]
def parameters(rng):
    rows = given["rows"]
    drawn = {"first": rng.randrange(rows) + 1, "second": rng.randrange(rows) + 1, "id": rng.getrandbits(62)}
    return drawn | {"operation": str(drawn["id"])}
def report(spent, cpu, done):
    print(json.dumps({"rate": done / spent, "cpu_us": cpu * 1e6 / done}))
"""

_PLAIN = """
def transaction(connection, rng):
    values = parameters(rng)
    for sql, names in given["statements"]:
        connection.execute(sql, [values[name] for name in names], prepare=True)
"""

_THREADS = (
    _COMMON
    + _PLAIN
    + """
import threading
stop = False
def work(number):
    rng = random.Random(f"{given['seed']} {number}")
    connection = psycopg.connect(given["dsn"], autocommit=True)
    ready.wait()
    while not stop:
        transaction(connection, rng)
        counts[number] += 1
ready = threading.Barrier(given["connections"] + 1)
threads = [threading.Thread(target=work, args=(number,)) for number in range(given["connections"])]
for thread in threads: thread.start()
ready.wait()
time.sleep(given["warm_up"])
begun, cpu, before = time.perf_counter(), time.process_time(), sum(counts)
time.sleep(given["seconds"])
done, cpu, spent = sum(counts) - before, time.process_time() - cpu, time.perf_counter() - begun
stop = True
for thread in threads: thread.join()
report(spent, cpu, done)
"""
)

_ASYNC = (
    _COMMON
    + """
import asyncio
async def work(number, connection):
    rng = random.Random(f"{given['seed']} {number}")
    while True:
        values = parameters(rng)
        for sql, names in given["statements"]:
            await connection.execute(sql, [values[name] for name in names], prepare=True)
        counts[number] += 1
async def main():
    connect = psycopg.AsyncConnection.connect
    connections = [await connect(given["dsn"], autocommit=True) for _ in range(given["connections"])]
    tasks = [asyncio.create_task(work(number, one)) for number, one in enumerate(connections)]
    await asyncio.sleep(given["warm_up"])
    begun, cpu, before = time.perf_counter(), time.process_time(), sum(counts)
    await asyncio.sleep(given["seconds"])
    done, cpu, spent = sum(counts) - before, time.process_time() - cpu, time.perf_counter() - begun
    for task in tasks: task.cancel()
    failed = [one for one in await asyncio.gather(*tasks, return_exceptions=True)
              if not isinstance(one, asyncio.CancelledError)]
    assert not failed, failed
    report(spent, cpu, done)
asyncio.run(main())
"""
)

_LOCUST = (
    "from gevent import monkey; monkey.patch_all()\n"
    + _COMMON
    + _PLAIN
    + """
import gevent
from locust import User, constant, task
from locust.env import Environment
class Shop(User):
    wait_time = constant(0)
    numbers = iter(range(given["connections"]))
    def on_start(self):
        self.rng = random.Random(f"{given['seed']} {next(self.numbers)}")
        self.connection = psycopg.connect(given["dsn"], autocommit=True)
    @task
    def order(self):
        began, failure = time.perf_counter(), None
        try:
            transaction(self.connection, self.rng)
        except psycopg.Error as error:
            failure = error
        self.environment.events.request.fire(
            request_type="order", name="order", response_time=(time.perf_counter() - began) * 1e3,
            response_length=0, exception=failure, context={})
environment = Environment(user_classes=[Shop])
runner = environment.create_local_runner()
runner.start(given["connections"], spawn_rate=given["connections"])
def made():
    return environment.stats.total.num_requests  # starting makes it another object
while runner.user_count < given["connections"] or made() < given["connections"]:
    gevent.sleep(0.05)
gevent.sleep(given["warm_up"])
begun, cpu, before = time.perf_counter(), time.process_time(), made()
gevent.sleep(given["seconds"])
done, cpu, spent = made() - before, time.process_time() - cpu, time.perf_counter() - begun
assert not environment.stats.errors, dict(environment.stats.errors)
report(spent, cpu, done)
sys.stdout.flush()
import os
os._exit(0)  # users that never wait can't be told to stop in time
"""
)

PROGRAMS = {"threads": _THREADS, "async": _ASYNC, "locust": _LOCUST}


def run_program(
    name: str,
    server: PlainPostgres,
    statements: Sequence[tuple[str, Sequence[str]]],
    *,
    rows: int,
    connections: int,
    seconds: float,
    seed: str,
) -> Run:
    """Run one of `PROGRAMS`. `statements` name their parameters: `first`, `second` (rows), `id`, `operation`."""
    given = {
        "dsn": server.dsn,
        "connections": connections,
        "rows": rows,
        "statements": statements,
        "seconds": seconds,
        "warm_up": WARM_UP,
        "seed": seed,
    }
    process = subprocess.run(
        [sys.executable, "-c", PROGRAMS[name]], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return Run(**json.loads(process.stdout.splitlines()[-1]))


def shown(runs: Mapping[str, Sequence[Run]], what: str) -> dict[str, Run]:
    """Print and return the medians, with how busy the machine was."""
    result = {
        name: Run(median(one.rate for one in several), median(one.cpu_us for one in several))
        for name, several in runs.items()
    }
    print(f"\nload average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", end="")
    for name, run in result.items():
        spread = f"{min(one.rate for one in runs[name]):.0f} to {max(one.rate for one in runs[name]):.0f}"
        print(f"\n{name:8} {run.rate:9.0f} {what}/s ({spread}), {run.cpu_us:7.1f} us of client CPU each", end="")
    ours = result["driver"]
    for name, run in result.items():
        if name != "driver":
            work = run.cpu_us / ours.cpu_us
            print(f"\nof {name}: {ours.rate / run.rate:.2f} of its rate, {work:.2f} of its work per CPU-second", end="")
    print()
    return result
