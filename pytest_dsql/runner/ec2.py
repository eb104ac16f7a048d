"""`--dsql-runner ec2`: the whole pytest session runs on an instance near the target, and its results come back.

The target is made here and stays for the whole run; instances come and go. Commands reach them through Systems Manager
(Run Command), files through a bucket; no port of theirs is open. Sources: Systems Manager user guide, "AWS Systems
Manager Run Command"; EC2 user guide, "Spot Instance interruptions".
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, final

from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.kinds.compute import instances
from pytest_dsql.aws.run import SHARED, AwsRun, life_of
from pytest_dsql.aws.waiting import WaitedInVain
from pytest_dsql.connect.endpoint import IamAuth, PasswordAuth
from pytest_dsql.errors import DsqlError, UsageError
from pytest_dsql.masking import mask
from pytest_dsql.results.kept import FOLDER
from pytest_dsql.results.writer import link_latest
from pytest_dsql.runner import machines
from pytest_dsql.runner.bundle import bundle
from pytest_dsql.runner.costs import told
from pytest_dsql.runner.grants import machine_statements
from pytest_dsql.runner.job import Job, job_of
from pytest_dsql.runner.options import Ec2Options
from pytest_dsql.runner.store import JOB, PACKAGE, RESULTS, TESTS, Store
from pytest_dsql.runner.there import LOG, STATUS
from pytest_dsql.runner.wheel import build_wheel
from pytest_dsql.settings import Settings
from pytest_dsql.targets import open_target
from pytest_dsql.targets.costs import created_shape
from pytest_dsql.targets.target import Target

OWNER: Final = "runner-ec2"
#: How long an instance may take until its agent takes commands: a minute or two is usual.
_ONLINE_S: Final = 600.0
#: How often is asked what has become of the session.
_POLL_S: Final = 5.0
#: How long the bucket may take to say how a session ended whose command has ended.
_LAST_WORDS_S: Final = 60.0
#: For how long AWS may not tell what has become of the session.
_UNSEEN_S: Final = 900.0
_ENDED: Final = frozenset({"Success", "Cancelled", "TimedOut", "Failed"})
_GOING: Final = frozenset({"shutting-down", "terminated", "stopping", "stopped"})
#: Run Command's own limits of a command's delivery and duration (SendCommand; AWS-RunShellScript).
_DELIVERY_S: Final = 600
_LONGEST_S: Final = 172_800
_SHOWN: Final = 2_000

T = TypeVar("T")


class MachineLost(Exception):
    """The instance was taken away, or ended without a word."""


@final
@dataclass(slots=True)
class Ec2Session:
    """One pytest session on instances, one after the other until it is whole."""

    run: AwsRun
    options: Ec2Options
    settings: Settings
    target: Target
    results: Path  #: where the run's results belong here: its own directory
    show: Callable[[str], object]  #: is given what the session prints there, as it comes
    directory: str = "/var/lib/pytest-dsql"  #: on the instance
    poll_s: float = _POLL_S
    cost: Mapping[str, Any] | None = None  #: what the session's budget has to know: `runner.costs.told`
    _shown: int = field(default=0, init=False)

    def measure(self, arguments: Sequence[str], *, collected: Sequence[str] = (), root: Path, where: Path) -> int:
        """Run the session with pytest's `arguments`, and return its exit status. Results are here when it returns.

        `root` is pytest's root directory, `where` the one in which the arguments were given, `collected` where pytest
        looks for tests. Raises UsageError,
        AwsError, WaitedInVain or DsqlError; what had been measured by then is here all the same.
        """
        run = self.run
        secret = self._secret()
        # What can be found wrong is found before anything is created.
        places = machines.places(run, self.options, self._near())
        image = machines.image(run, self.options)
        with tempfile.TemporaryDirectory() as name:
            packed = bundle(arguments, collected=collected, root=root, directory=where, into=Path(name))
            job = job_of(
                self.settings,
                self.target,
                run=run.inventory.run,
                arguments=packed.arguments,
                directory=packed.directory,
                secret=secret,
                resume=self.results.is_dir(),
                cost=self.cost,
            )
            wheel = build_wheel(Path(name))
            store = Store(run.clients, run.region, machines.bucket(run).name)
            store.put(TESTS, packed.path.read_bytes())
            store.put(f"{PACKAGE}{wheel.name}", wheel.read_bytes())
        store.put(JOB, job.to_json().encode())
        if self.results.is_dir():
            store.send(self.results, RESULTS)
        profile, group, places = self._admitted(store, job, secret, places)
        try:
            return self._until_whole(store, places, image, profile, group)
        except BaseException:
            with suppress(DsqlError):
                self._fetch(store, whole=False)
            raise

    def _admitted(
        self, store: Store, job: Job, secret: str | None, places: list[machines.Place]
    ) -> tuple[Entry, Entry, list[machines.Place]]:
        """Make what lets an instance in: the role's profile, and its group in the target's network."""
        run = self.run
        endpoints = [self.target.endpoint, *self.target.regions.values()]
        statements = machine_statements(
            bucket=store.bucket,
            endpoints=endpoints,
            secret=secret,
            account=run.clients.account,
            partition=run.clients.partition(run.region),
        )
        profile = machines.instance_profile(run, machines.role(run, statements))
        vpc = places[0].vpc
        group = machines.security_group(run, vpc)
        for one in self._of_target("security-group"):
            assert one.arn is not None
            machines.let_in(run, one.arn, group, int(job.target["endpoint"]["port"]))
        return profile, group, [one for one in places if one.vpc == vpc]

    def _until_whole(self, store: Store, places: list[machines.Place], image: str, profile: Entry, group: Entry) -> int:
        run = self.run
        for number in range(1, self.options.restarts + 2):
            run.check()
            entry = machines.instance(
                run, self.options, number=number, tries=places, image=image, profile=profile, group=group
            )
            assert entry.arn is not None
            run.say(f"{entry.arn} ({self.options.type}, {self.options.market}) starts in {entry.details['zone']}")
            prefix = f"machine-{number}/"
            self._shown = 0
            try:
                status = self._one(store, entry, prefix)
            except MachineLost as lost:
                run.say(f"{entry.arn} is lost: {lost}")
            else:
                if status["state"] == "finished":
                    self._fetch(store, whole=True)
                    return int(status["exit"])
                run.say(f"{entry.arn} is being taken away; what it measured is kept")
            self._terminate(entry)
        raise DsqlError(
            f"{self.options.restarts + 1} instances were taken away before the run was whole; what they measured is "
            f"here: --dsql-resume {run.inventory.run}, or --dsql-runner-option market=on-demand"
        )

    def _one(self, store: Store, entry: Entry, prefix: str) -> dict[str, Any]:
        """Have one instance run the session; return what it said last. Raises MachineLost."""
        self._wait_online(entry)
        command = self._send(store, entry, prefix)
        try:
            return self._follow(store, entry, prefix, command)
        except BaseException:
            with suppress(DsqlError):
                self.run.clients.call("ssm", self.run.region, "cancel_command", CommandId=command)
            raise

    def _wait_online(self, entry: Entry) -> None:
        run = self.run

        def online() -> bool | None:
            self._raise_if_lost(entry)
            answer = run.clients.call(
                "ssm",
                run.region,
                "describe_instance_information",
                Filters=[{"Key": "InstanceIds", "Values": [str(entry.arn)]}],
            )
            return any(one["PingStatus"] == "Online" for one in answer["InstanceInformationList"]) or None

        try:
            run.wait(online, what=f"{entry.arn} becoming reachable through Systems Manager", limit_s=_ONLINE_S)
        except WaitedInVain as error:
            raise DsqlError(
                f"{error}; its subnet needs a way to Systems Manager and S3: an internet gateway, a NAT gateway or "
                "endpoints (--dsql-runner-option subnet=ID)"
            ) from None

    def _send(self, store: Store, entry: Entry, prefix: str) -> str:
        run = self.run
        seconds = int((run.inventory.expires_at - run.clock.now()).total_seconds())
        try:
            answer = run.clients.call(
                "ssm",
                run.region,
                "send_command",
                DocumentName="AWS-RunShellScript",
                InstanceIds=[entry.arn],
                TimeoutSeconds=_DELIVERY_S,
                Parameters={
                    "commands": machines.commands(store.bucket, run.region, prefix, self.directory),
                    "executionTimeout": [str(min(max(seconds, 60), _LONGEST_S))],
                },
            )
        except AwsError as error:
            if not error.passing:
                raise
            # The command may have been sent all the same, and a second one would measure beside it.
            raise MachineLost(f"its command got no answer: {error}") from None
        return str(answer["Command"]["CommandId"])

    def _follow(self, store: Store, entry: Entry, prefix: str, command: str) -> dict[str, Any]:
        """Look at the session until it has ended. Failures of AWS that pass are sat out: it goes on meanwhile."""
        run = self.run
        ended_at: float | None = None
        unseen_since: float | None = None
        while True:
            try:
                status, said = self._look(store, entry, prefix, command)
                unseen_since = None
            except AwsError as error:
                status = said = None
                unseen_since = run.clock.monotonic() if unseen_since is None else unseen_since
                if not error.passing or run.clock.monotonic() - unseen_since > _UNSEEN_S:
                    raise
            if status is not None:
                return status
            if said is not None:
                ended_at = run.clock.monotonic() if ended_at is None else ended_at
                # A machine that goes down ends its commands a moment before it is seen to go down.
                if run.clock.monotonic() - ended_at > _LAST_WORDS_S:
                    if said["Status"] != "Success" and store.get(f"{prefix}{LOG}") is None:
                        raise DsqlError(f"{entry.arn} could not be made ready: {_tail(said)}")
                    raise DsqlError(f"the session on {entry.arn} broke off ({said['Status']}): {_tail(said)}")
            run.check()
            run.clock.sleep(self.poll_s)

    def _look(
        self, store: Store, entry: Entry, prefix: str, command: str
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Show what is new; return how the session has ended, and the command that has ended without saying so."""
        status = store.get_json(f"{prefix}{STATUS}")
        self._show(store, prefix, all_of_it=status is not None)
        if status is not None:
            return dict(status), None
        self._raise_if_lost(entry)
        said = self._invocation(entry, command)
        if said is None or said["Status"] not in _ENDED:
            return None, None
        return None, said

    def _invocation(self, entry: Entry, command: str) -> dict[str, Any] | None:
        try:
            return self.run.clients.call(
                "ssm", self.run.region, "get_command_invocation", CommandId=command, InstanceId=entry.arn
            )
        except AwsError as error:
            if error.failure is Failure.NOT_FOUND:  # not known yet
                return None
            raise

    def _raise_if_lost(self, entry: Entry) -> None:
        found = instances(self.run.clients, self.run.region, {"instance-id": str(entry.arn)}, terminated=True)
        states = [str(one["State"]["Name"]) for one in found]
        if any(one in _GOING for one in states):
            raise MachineLost(f"it is {', '.join(states)}")
        # Right after its start it may not be seen yet; long after its end it isn't any more.
        age_s = (self.run.clock.now() - entry.intended_at).total_seconds()
        if not states and age_s > _LAST_WORDS_S:
            raise MachineLost("AWS knows nothing of it any more")

    def _show(self, store: Store, prefix: str, *, all_of_it: bool) -> None:
        """Show what the session has printed since the last time, in whole lines: what is secret is masked in them."""
        new = store.get(f"{prefix}{LOG}", after=self._shown) or b""
        if not all_of_it:
            new = new[: new.rfind(b"\n") + 1]
        if new:
            self._shown += len(new)
            self.show(mask(new.decode(errors="replace")))

    def _terminate(self, entry: Entry) -> None:
        from pytest_dsql.aws.kinds.compute import Ec2Instance

        self._patiently(lambda: Ec2Instance().delete(self.run.clients, entry), f"the end of {entry.arn}")

    def _fetch(self, store: Store, *, whole: bool) -> None:
        """Fetch the results; with the samples of whole cells only when the run has to be gone on with."""
        but = {"but": f"{FOLDER}/"} if whole else {}

        def fetch() -> bool:
            return bool(store.fetch(RESULTS, self.results, **but))

        if self._patiently(fetch, "fetching the results") if whole else fetch():
            link_latest(self.results.parent, self.results.name)

    def _patiently(self, do: Callable[[], T], what: str) -> T:
        """Do what can be done again, until AWS carries it out."""
        return self.run.wait(lambda: (do(),), what=what, limit_s=_UNSEEN_S)[0]

    def _of_target(self, *kinds: str) -> list[Entry]:
        """What of these kinds belongs to the target of this run: there is one in it."""
        self.run.inventory.reload()
        remaining = self.run.inventory.remaining
        return [one for one in remaining if one.owner in (self.target.name, SHARED) and one.kind in kinds and one.arn]

    def _near(self) -> str | None:
        """A subnet of the target's own, when it has one: it leads to the internet."""
        found = self._of_target("subnet")
        return found[0].arn if found else None

    def _secret(self) -> str | None:
        """Where the target's password is kept; None for a target with tokens. Raises UsageError."""
        auth = self.target.endpoint.auth
        if isinstance(auth, IamAuth) or not isinstance(auth, PasswordAuth):
            return None
        described = {"db-cluster": ("describe_db_clusters", "DBClusters", "DBClusterIdentifier")}
        described["db-instance"] = ("describe_db_instances", "DBInstances", "DBInstanceIdentifier")
        for entry in self._of_target(*described):
            operation, key, name = described[entry.kind]
            found = self.run.clients.call("rds", self.run.region, operation, **{name: entry.name})[key][0]
            if arn := found.get("MasterUserSecret", {}).get("SecretArn"):
                # The ARN ends with a hyphen and six characters of the service's own.
                return str(arn).rpartition(":secret:")[2].rpartition("-")[0]
        raise UsageError(
            "--dsql-runner ec2 sends no password to another machine: it works with IAM tokens, and with passwords that "
            "RDS keeps in Secrets Manager"
        )


def _tail(said: dict[str, Any]) -> str:
    text = str(said.get("StandardErrorContent") or said.get("StandardOutputContent") or said["Status"])
    return mask(" ".join(text.split())[-_SHOWN:])


def measure_on_ec2(
    settings: Settings,
    *,
    run_id: str,
    arguments: Sequence[str],
    collected: Sequence[str],
    root: Path,
    where: Path,
    results: Path,
    estimates: Mapping[str, float],
    say: Callable[[str], None],
    show: Callable[[str], object],
) -> int:
    """Make the target, run the session beside it, remove everything, and return the session's exit status.

    For the parameters see `Ec2Session`; `estimates` are those of the targets and of the runner, in USD. Raises
    UsageError, AwsError and DsqlError, each one clear line; also for what could not be removed.
    """
    options = Ec2Options.of(settings.runner_option, plan=settings.plan)
    life = life_of(settings.target_option, settings.runner_option)
    machines.reap_the_dead(say)
    target = open_target(settings.for_target(settings.target), run_id=run_id, say=say)
    try:
        run = AwsRun.begin(
            run_id,
            OWNER,
            region=target.endpoint.region,
            profile=settings.profile,
            role=settings.role,
            life=life,
            say=say,
        )
        try:
            own = settings.for_target(settings.target)
            cost = told(settings, run.region, created_shape(own, target, run_id), estimates)
            session = Ec2Session(run, options, settings, target, results, show, cost=cost)
            return session.measure(arguments, collected=collected, root=root, where=where)
        finally:
            machines.remove_all(run)
    finally:
        target.close()
