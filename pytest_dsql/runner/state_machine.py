"""The state machine that fans calls out to the function: a distributed Map with bounded concurrency.

Sources: Step Functions developer guide, "Using Map state in Distributed mode" (an inline Map runs 40 iterations at once
at most), "Invoke an AWS Lambda function with Step Functions", "IAM policies for using Distributed Map states".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: What an execution may carry in and out (Step Functions developer guide, "Step Functions service quotas"), with room.
MOST_BYTES: Final = 240_000

TRUST: Final[Mapping[str, Any]] = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}


def definition(function_arn: str) -> dict[str, Any]:
    """Return the definition, in Amazon States Language.

    Its input is `{"calls": [event, ...], "concurrency": n}`, its output the list of the function's answers, in the
    calls' order. Child workflows are standard ones: express ones may run a call twice. A call is tried again only when
    it was refused for the rate (429), for then it has not begun.
    """
    call = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": function_arn, "Payload.$": "$"},
        "OutputPath": "$.Payload",
        "Retry": [
            {
                "ErrorEquals": ["Lambda.TooManyRequestsException"],
                "IntervalSeconds": 1,
                "MaxAttempts": 6,
                "BackoffRate": 2.0,
                "JitterStrategy": "FULL",
            }
        ],
        "End": True,
    }
    return {
        "Comment": "pytest-dsql: calls of one function, so many at once",
        "StartAt": "Fan out",
        "States": {
            "Fan out": {
                "Type": "Map",
                "ItemsPath": "$.calls",
                "MaxConcurrencyPath": "$.concurrency",
                "ItemProcessor": {
                    "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
                    "StartAt": "Call",
                    "States": {"Call": call},
                },
                "End": True,
            }
        },
    }


def statements(*, function_arn: str, machine_arn: str) -> list[dict[str, Any]]:
    """Return what the state machine's role may do: call the function, and run its own children."""
    executions = machine_arn.replace(":stateMachine:", ":execution:")
    return [
        {
            "Effect": "Allow",
            "Action": ["lambda:InvokeFunction"],
            "Resource": [function_arn, f"{function_arn}:*"],
        },
        {"Effect": "Allow", "Action": ["states:StartExecution"], "Resource": [machine_arn]},
        {
            "Effect": "Allow",
            "Action": ["states:DescribeExecution", "states:StopExecution"],
            "Resource": [f"{executions}:*", f"{executions}/*"],
        },
    ]
