"""Fixtures shared with tests/aws."""

from tests.aws.conftest import account, aws_environment, server

__all__ = ["account", "aws_environment", "server"]
