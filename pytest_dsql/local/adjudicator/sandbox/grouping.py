"""GROUP BY a primary key stands for all of its table's columns; a view has no primary key, so they are named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_dsql.local.adjudicator.sandbox.catalog import Catalog
from pytest_dsql.local.adjudicator.sandbox.forms import Form
from pytest_dsql.local.adjudicator.sandbox.sources import tables_of
from pytest_dsql.local.adjudicator.sandbox.texts import Edit, Source, identifier
from pytest_dsql.local.dialect.tree import only, strings

_BEHIND = ("HAVING", "WINDOW", "UNION", "INTERSECT", "EXCEPT", "ORDER", "LIMIT", "OFFSET", "FETCH", "FOR", "RETURNING")


def grouped(form: Form, catalog: Catalog, schemas: Sequence[str], source: Source) -> Iterator[Edit]:
    """The edits that add the columns that depend on a GROUP BY's primary keys."""
    for select in form.groups:
        items = [only(item) for item in select["groupClause"]]
        named = [strings(body["fields"]) for kind, body in items if kind == "ColumnRef"]
        if len(named) != len(items):
            continue
        more: list[str] = []
        for alias, table in tables_of(select, catalog, schemas):
            given = {name[-1] for name in named if len(name) == 1 or name[-2] == alias}
            key = table.identity
            if key is not None and given.issuperset(key.columns):
                more += [
                    f"{identifier(alias)}.{identifier(column)}"
                    for column in table.columns
                    if column not in given and column not in table.ungroupable
                ]
        if more:
            number = source.number(items[-1][1]["location"])
            depth = source.depths[number]
            while number < len(source.tokens) and source.depths[number] >= depth:
                if source.depths[number] == depth and source.word(number) in _BEHIND:
                    break
                number += 1
            end = source.tokens[number - 1].end
            yield end, end, ", " + ", ".join(more)
