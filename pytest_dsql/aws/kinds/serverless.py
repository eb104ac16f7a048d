"""Functions and state machines. Source: botocore's `lambda` (2015-03-31) and `stepfunctions` (2016-11-23) models."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, final

from pytest_dsql.aws.failures import AwsError, Failure, not_found_is_fine
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.resources import RUN_TAG, tagged, tags_of
from pytest_dsql.aws.sessions import Clients

#: What all our names begin with: lists have no tags.
PREFIX: Final = "pytest-dsql-"


@final
class LambdaFunction:
    """A function. Names are unique in an account and Region. Without permission to log it leaves no logs."""

    kind: Final = "lambda-function"
    rank: Final = 60

    def find(self, clients: Clients, entry: Entry) -> str | None:
        """By its name, when it has our tag."""
        found = _function(clients, entry.region, entry.name)
        if found is None or tags_of(found.get("Tags")).get(RUN_TAG) != entry.run:
            return None
        return str(found["Configuration"]["FunctionArn"])

    def delete(self, clients: Clients, entry: Entry) -> None:
        """Remove it; calls that it works on are cut."""
        with not_found_is_fine():
            clients.call("lambda", entry.region, "delete_function", FunctionName=entry.name)

    def gone(self, clients: Clients, entry: Entry) -> bool:
        """Gone when Lambda knows no such function any more."""
        return _function(clients, entry.region, entry.name) is None

    def scan(self, clients: Clients, region: str) -> list[Entry]:
        """Our functions in the Region."""
        found = []
        for one in list(clients.pages("lambda", region, "list_functions", "Functions")):
            name = one["FunctionName"]
            if not name.startswith(PREFIX):
                continue
            described = _function(clients, region, name) or {}
            tags = tags_of(described.get("Tags"))
            if entry := tagged(self.kind, region, arn=one["FunctionArn"], name=name, tags=tags):
                found.append(entry)
        return found


def _function(clients: Clients, region: str, name: str) -> dict[str, Any] | None:
    try:
        return clients.call("lambda", region, "get_function", FunctionName=name)
    except AwsError as error:
        if error.failure is Failure.NOT_FOUND:
            return None
        raise


@final
class StateMachine:
    """A state machine with its executions. Names are unique in an account and Region."""

    kind: Final = "state-machine"
    rank: Final = 70

    def find(self, clients: Clients, entry: Entry) -> str | None:
        """By its name, when it has our tag."""
        for one in self._all(clients, entry.region):
            if one["name"] == entry.name and self._tags(clients, entry.region, one).get(RUN_TAG) == entry.run:
                return str(one["stateMachineArn"])
        return None

    def delete(self, clients: Clients, entry: Entry) -> None:
        """Stop its executions, then remove it: it would wait for them."""
        region, arn = entry.region, entry.arn
        with not_found_is_fine():
            running = clients.pages(
                "stepfunctions", region, "list_executions", "executions", stateMachineArn=arn, statusFilter="RUNNING"
            )
            for one in list(running):
                with not_found_is_fine():
                    clients.call("stepfunctions", region, "stop_execution", executionArn=one["executionArn"])
            clients.call("stepfunctions", region, "delete_state_machine", stateMachineArn=arn)

    def gone(self, clients: Clients, entry: Entry) -> bool:
        """Gone when Step Functions knows no such machine any more; until then it is DELETING."""
        with suppress(AwsError):
            clients.call("stepfunctions", entry.region, "describe_state_machine", stateMachineArn=entry.arn)
            return False
        return not any(one["name"] == entry.name for one in self._all(clients, entry.region))

    def scan(self, clients: Clients, region: str) -> list[Entry]:
        """Our state machines in the Region."""
        found = []
        for one in self._all(clients, region):
            arn, name = str(one["stateMachineArn"]), str(one["name"])
            if entry := tagged(self.kind, region, arn=arn, name=name, tags=self._tags(clients, region, one)):
                found.append(entry)
        return found

    def _all(self, clients: Clients, region: str) -> list[dict[str, Any]]:
        machines = clients.pages("stepfunctions", region, "list_state_machines", "stateMachines")
        return [one for one in machines if str(one["name"]).startswith(PREFIX)]

    def _tags(self, clients: Clients, region: str, one: dict[str, Any]) -> dict[str, str]:
        with not_found_is_fine():
            arn = one["stateMachineArn"]
            return tags_of(clients.call("stepfunctions", region, "list_tags_for_resource", resourceArn=arn)["tags"])
        return {}
