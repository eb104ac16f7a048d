"""What the machines of a run are made of: bucket, role, profile, security group, instance. Everything is a run's own.

Sources: EC2 API reference (RunInstances), Systems Manager user guide ("Instance permissions required for Systems
Manager", "Calling AMI public parameters"), EC2 user guide ("Configure the Instance Metadata Service options").
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from pytest_dsql.aws.creating import Made
from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.kinds.iam_role import PATH, REGION_TAG
from pytest_dsql.aws.reaper import reap
from pytest_dsql.aws.run import AwsRun
from pytest_dsql.errors import DsqlError, UsageError
from pytest_dsql.runner.options import Ec2Options

_BOOTSTRAP: Final = Path(__file__).with_name("bootstrap.sh")
#: Where the newest image of Amazon Linux 2023 is named, for every Region.
_IMAGE: Final = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{architecture}"
#: Lets the instance's agent take commands; there is no way in from outside.
_SSM_POLICY: Final = "arn:{partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"
#: What was just made may be unknown to another service for a while: IAM's answers and EC2's ("Eventual consistency").
_SETTLES: Final = frozenset({Failure.NOT_FOUND})
#: How long a call that completes what was created may be throttled, unanswered or too early.
_STEP_S: Final = 120.0
_PROFILE_SETTLES: Final = frozenset({Failure.NOT_FOUND, Failure.INVALID})
_TRUST: Final = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}


@final
@dataclass(frozen=True, slots=True)
class Place:
    """Where an instance may be."""

    subnet: str
    vpc: str
    zone: str


def bucket(run: AwsRun) -> Entry:
    """Make the bucket of the run."""

    def call(entry: Entry) -> Made:
        where: dict[str, Any] = {}
        if run.region != "us-east-1":  # which has no name there (CreateBucket)
            where = {"CreateBucketConfiguration": {"LocationConstraint": run.region}}
        run.clients.call("s3", run.region, "create_bucket", Bucket=entry.name, **where)
        return Made(entry.name)

    entry = run.create("s3-bucket", run.name("runner"), call, again_on=_SETTLES)
    tags = {"TagSet": run.tag_list(entry)}
    _then(run, entry, "s3", "put_bucket_tagging", Bucket=entry.name, Tagging=tags)
    return entry


def role(run: AwsRun, statements: Iterable[dict[str, Any]]) -> Entry:
    """Make the role of the instances, which may do what `statements` say and take commands."""
    entry = iam_role(run, "runner", _TRUST, statements)
    policy = _SSM_POLICY.format(partition=run.clients.partition(run.region))
    _then(run, entry, "iam", "attach_role_policy", RoleName=entry.name, PolicyArn=policy)
    return entry


def iam_role(run: AwsRun, what: str, trust: Mapping[str, Any], statements: Iterable[dict[str, Any]]) -> Entry:
    """Make a role and write its policy into it."""
    entry = run.create_by(
        "iam",
        "create_role",
        "iam-role",
        run.name(what),
        lambda entry: {
            "RoleName": entry.name,
            "Path": PATH,
            "AssumeRolePolicyDocument": json.dumps(trust),
            "Tags": _with_region(run, entry),
        },
        ("Role", "Arn"),
        again_on=_SETTLES,
    )
    document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    _then(run, entry, "iam", "put_role_policy", RoleName=entry.name, PolicyName="pytest-dsql", PolicyDocument=document)
    return entry


def instance_profile(run: AwsRun, of: Entry) -> Entry:
    """Make what hands the role to the instances."""
    entry = run.create_by(
        "iam",
        "create_instance_profile",
        "instance-profile",
        run.name("runner"),
        lambda entry: {"InstanceProfileName": entry.name, "Path": PATH, "Tags": _with_region(run, entry)},
        ("InstanceProfile", "Arn"),
        again_on=_SETTLES,
    )

    def filled() -> bool:
        found = run.clients.call("iam", run.region, "get_instance_profile", InstanceProfileName=entry.name)
        if not found["InstanceProfile"]["Roles"]:
            names = {"InstanceProfileName": entry.name, "RoleName": of.name}
            run.clients.call("iam", run.region, "add_role_to_instance_profile", **names)
        return True

    run.wait(filled, what=f"giving {entry} its role", limit_s=_STEP_S)
    return entry


def _then(run: AwsRun, entry: Entry, service: str, operation: str, **parameters: Any) -> None:
    """Make a call that what was created needs after it, and that may be repeated."""

    def done() -> bool:
        run.clients.call(service, run.region, operation, **parameters)
        return True

    run.wait(done, what=f"{operation} for {entry}", limit_s=_STEP_S)


def _with_region(run: AwsRun, entry: Entry) -> list[dict[str, str]]:
    return [*run.tag_list(entry), {"Key": REGION_TAG, "Value": run.region}]


def security_group(run: AwsRun, vpc: str) -> Entry:
    """Make the instances' group: nobody may connect to them."""

    def call(entry: Entry) -> Made:
        made = run.clients.call(
            "ec2",
            run.region,
            "create_security_group",
            GroupName=entry.name,
            Description="pytest-dsql: load generators, no inbound port",
            VpcId=vpc,
            TagSpecifications=_tagged(run, entry, "security-group"),
        )
        return Made(made["GroupId"], {"vpc": vpc})

    return run.create("security-group", run.name("runner"), call, again_on=_SETTLES)


def let_in(run: AwsRun, group: str, generators: Entry, port: int) -> Entry:
    """Let the instances connect to what is in the target's security group."""

    def call(entry: Entry) -> Made:
        made = run.clients.call(
            "ec2",
            run.region,
            "authorize_security_group_ingress",
            GroupId=group,
            IpPermissions=[
                {
                    "IpProtocol": "tcp",
                    "FromPort": port,
                    "ToPort": port,
                    "UserIdGroupPairs": [{"GroupId": generators.arn, "Description": "pytest-dsql: load generators"}],
                }
            ],
            TagSpecifications=_tagged(run, entry, "security-group-rule"),
        )
        return Made(made["SecurityGroupRules"][0]["SecurityGroupRuleId"], {"group": group})

    return run.create("security-group-rule", run.name("runner-rule"), call, again_on=_SETTLES)


def places(run: AwsRun, options: Ec2Options, near: str | None) -> list[Place]:
    """Return the subnets to try, in order: the named one, else the target's own, else the default ones.

    Raises UsageError when there is none in a zone that has the instance type.
    """
    wanted = options.subnet or near
    asked: dict[str, Any] = (
        {"SubnetIds": [wanted]} if wanted else {"Filters": [{"Name": "default-for-az", "Values": ["true"]}]}
    )
    subnets = list(run.clients.pages("ec2", run.region, "describe_subnets", "Subnets", **asked))
    if not subnets:
        raise UsageError(
            f"{run.region} has no default subnet to start the load generator in: --dsql-runner-option subnet=ID"
        )
    offered = {
        one["Location"]
        for one in run.clients.pages(
            "ec2",
            run.region,
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": [options.type]}],
        )
    }
    fit = [Place(one["SubnetId"], one["VpcId"], one["AvailabilityZone"]) for one in subnets]
    fit = sorted((one for one in fit if one.zone in offered), key=lambda one: one.zone)
    if not fit:
        where = ", ".join(sorted({one["AvailabilityZone"] for one in subnets}))
        raise UsageError(f"there is no {options.type} in {where}: --dsql-runner-option type=TYPE or subnet=ID")
    return fit


def image(run: AwsRun, options: Ec2Options) -> str:
    """Return the newest image for the instance type's architecture."""
    types = run.clients.call("ec2", run.region, "describe_instance_types", InstanceTypes=[options.type])
    architectures = types["InstanceTypes"][0]["ProcessorInfo"]["SupportedArchitectures"]
    architecture = "arm64" if "arm64" in architectures else "x86_64"
    name = _IMAGE.format(architecture=architecture)
    return str(run.clients.call("ssm", run.region, "get_parameter", Name=name)["Parameter"]["Value"])


def instance(
    run: AwsRun, options: Ec2Options, *, number: int, tries: list[Place], image: str, profile: Entry, group: Entry
) -> Entry:
    """Start the run's instance `number`, in the first of the places that has one to give.

    Raises DsqlError when none has, AwsError for anything else.
    """
    without: list[str] = []
    for place in tries:
        try:
            return _instance(run, options, f"runner-{number}-{place.zone}", place, image, profile, group)
        except AwsError as error:
            if error.failure is not Failure.CAPACITY:
                raise
            without.append(f"{place.zone} ({error.code})")
    hint = ", or market=on-demand" if options.market == "spot" else ""
    raise DsqlError(
        f"AWS has no {options.type} ({options.market}) to give now in {', '.join(without)}: another "
        f"--dsql-runner-option type=TYPE{hint}"
    )


def _instance(
    run: AwsRun, options: Ec2Options, what: str, place: Place, image: str, profile: Entry, group: Entry
) -> Entry:
    minutes = max(1, int((run.inventory.expires_at - run.clock.now()).total_seconds() // 60))
    # Whatever happens to the run and its inventory: at the end of its life the machine ends itself.
    user_data = f"#!/bin/sh\nshutdown -h +{minutes}\n"
    market: dict[str, Any] = {}
    if options.market == "spot":
        spot = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        market = {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": spot}}

    def call(entry: Entry) -> Made:
        made = run.clients.call(
            "ec2",
            run.region,
            "run_instances",
            ClientToken=entry.token,
            ImageId=image,
            InstanceType=options.type,
            MinCount=1,
            MaxCount=1,
            IamInstanceProfile={"Name": profile.name},
            InstanceInitiatedShutdownBehavior="terminate",
            MetadataOptions={"HttpTokens": "required", "HttpEndpoint": "enabled"},
            NetworkInterfaces=[
                {
                    "DeviceIndex": 0,
                    "SubnetId": place.subnet,
                    "Groups": [group.arn],
                    "AssociatePublicIpAddress": True,
                    "DeleteOnTermination": True,
                }
            ],
            TagSpecifications=_tagged(run, entry, "instance", "volume", "network-interface"),
            UserData=user_data,
            **market,
        )
        return Made(made["Instances"][0]["InstanceId"])

    # A profile that was just made is "invalid" to EC2 until it is known there.
    return run.create("ec2-instance", run.name(what), call, again_on=_PROFILE_SETTLES, zone=place.zone)


def commands(bucket: str, region: str, prefix: str, directory: str) -> list[str]:
    """Return the lines of the script that makes a machine ready and runs the session."""
    script = _BOOTSTRAP.read_text(encoding="utf-8")
    variables = {"BUCKET": bucket, "REGION": region, "PREFIX": prefix, "DIRECTORY": directory}
    head, _, rest = script.partition("\n")
    lines = [f"{name}='{value}'" for name, value in variables.items()]
    return [head, *lines, *rest.splitlines()]


def _tagged(run: AwsRun, entry: Entry, *kinds: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": run.tag_list(entry)} for kind in kinds]


def reap_the_dead(say: Callable[[str], None]) -> None:
    """Remove what killed runs have left behind: a start is when somebody is there to pay for it."""
    for entry, reason in reap(say=say).remaining:
        say(f"left by run {entry.run}, and not removed: {entry}: {reason}")


def remove_all(run: AwsRun) -> None:
    """Remove what a runner created, unless other processes of the run still use it: the last one removes it.

    Raises DsqlError that names what remains; `reap` is the next to try.
    """
    try:
        if not run.hold.last():
            return
        removal = run.remove()
    finally:
        run.close()
    if removal.remaining:
        what = "; ".join(f"{entry}: {reason}" for entry, reason in removal.remaining)
        raise DsqlError(f"run {run.inventory.run} left {len(removal.remaining)} behind ({what}): pytest-dsql reap")
    run.say(f"removed all of {run.owner}: {len(removal.removed)}, remaining: 0")
