"""The matchers that the rules name, a module for each file of rules. Each looks at one node and says what it found."""

from pytest_dsql.local.dialect.matchers import alter_table, indexes, queries, sequences, settings, statements, tables
from pytest_dsql.local.dialect.matchers.registry import MATCHERS, Fields, match

__all__ = [
    "MATCHERS",
    "Fields",
    "alter_table",
    "indexes",
    "match",
    "queries",
    "sequences",
    "settings",
    "statements",
    "tables",
]
