"""DSQL's limits on what is written and on how many objects there are, enforced inside PostgreSQL.

`rows.sql` counts what a transaction writes, `tables.sql` gives each table the triggers that do so, `objects.sql` looks
at what DDL has made; all are run when the template is made. Here is what the gateway adds: the limits' values.

A transaction's rows and bytes are one setting, local to the transaction, so that rolling back to a savepoint takes back
what was counted since, and running the statements again counts them anew. Of the engine's own writes, an update that
only locks rows is put between `pytest_dsql_engine_limits.pause()` and `go_on()`; rows that are written past the tables'
own triggers are counted by `count_row()`. The size is checked by a deferred trigger, which fails the COMMIT with 54000:
that error is the client's, whoever has sent the COMMIT.
"""

from pytest_dsql.local.row_limits.values import apply_limits, are_made, limits_sql

__all__ = ["apply_limits", "are_made", "limits_sql"]
