"""The sandbox: where a contested transaction goes on, on its own snapshot, without a lock.

For each table PostgreSQL holds helpers in hidden schemas (`helpers.sql`): a view of the same name, whose rows are the
table's without those that the transaction has removed, and with those that it has written. Statements run there by a
`search_path` that begins with the hidden schemas, and by the texts of a `Plan`. What was written there is always rolled
back. Here live the helpers, what is known of the tables (`catalog`), and the forms of statements; nothing here decides
about a transaction.
"""

from pytest_dsql.local.adjudicator.sandbox.captures import Capture
from pytest_dsql.local.adjudicator.sandbox.catalog import CATALOG_QUERY, Catalog, ForeignKey, Key, Table
from pytest_dsql.local.adjudicator.sandbox.forms import Form, form
from pytest_dsql.local.adjudicator.sandbox.names import ENTER, PREFIX, WRITTEN_KEYS, hidden_schema
from pytest_dsql.local.adjudicator.sandbox.plans import Plan, Text, plan

__all__ = [
    "CATALOG_QUERY",
    "ENTER",
    "PREFIX",
    "WRITTEN_KEYS",
    "Capture",
    "Catalog",
    "ForeignKey",
    "Form",
    "Key",
    "Plan",
    "Table",
    "Text",
    "form",
    "hidden_schema",
    "plan",
]
