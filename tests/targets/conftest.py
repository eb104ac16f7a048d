"""Fixtures shared with tests/aws."""

from tests.aws.conftest import account, aws_environment
from tests.aws.killing import clients_made_once

__all__ = ["account", "aws_environment", "clients_made_once"]
