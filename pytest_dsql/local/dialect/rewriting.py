"""What PostgreSQL is sent instead of a statement that DSQL understands in its own way.

The functions named here are in the SQL files of this directory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from pytest_dsql.local.dialect.extensions import IamStatement, read_iam
from pytest_dsql.local.dialect.hiding import hidden
from pytest_dsql.local.dialect.libpg_query import Token
from pytest_dsql.local.dialect.tree import Body, Statement, bodies, columns, strings, system_name


@final
@dataclass(frozen=True, slots=True)
class Source:
    """Where a statement stands in its query string."""

    text: bytes  #: the query string, without DSQL's own words
    start: int  #: its first byte
    end: int  #: behind its last byte, the semicolon not included

    def edited(self, edits: Iterable[tuple[int, int, bytes]]) -> str:
        """Return the statement with `(start, end, replacement)` edits done; places count from the query string."""
        text = self.text[self.start : self.end]
        for start, end, replacement in sorted(edits, reverse=True):
            text = text[: start - self.start] + replacement + text[end - self.start :]
        return text.decode()


@final
@dataclass(frozen=True, slots=True)
class Rewritten:
    """What to send in place of a statement, and the command tag to answer; None: PostgreSQL's own is right."""

    sql: str
    tag: str | None = None


#: What `Source.edited` takes.
Edit = tuple[int, int, bytes]

Rewrite = Callable[[Statement, Source], "Rewritten | None"]


def rewrite(statement: Statement, source: Source) -> Rewritten | None:
    """Return what to send in place of the statement, None when it goes as it is."""
    rewriter = _REWRITES.get(statement.name)
    return rewriter(statement, source) if rewriter else None


def aws_iam(tokens: Sequence[Token]) -> Rewritten | None:
    """Return what to send for `AWS IAM GRANT role TO 'arn'` and `AWS IAM REVOKE role FROM 'arn'`.

    None for anything else that begins with these words: PostgreSQL's syntax error then answers it.
    """
    found = read_iam(tokens)
    if found is None:
        return None
    procedure, tag = ("map_iam_role", "GRANT") if found.grants else ("unmap_iam_role", "REVOKE")
    call = f"CALL pytest_dsql_engine.{procedure}({literal(found.role)}, {literal(found.arn)})"
    return Rewritten(call, f"AWS IAM {tag}")


#: What `aws_iam` writes.
_IAM_CALL: Final = re.compile(r"CALL pytest_dsql_engine\.(un)?map_iam_role\('((?:[^']|'')*)', '((?:[^']|'')*)'\);?")


def iam_statement(sent: str) -> IamStatement | None:
    """Read what `aws_iam` gave to send; None for anything else."""
    found = _IAM_CALL.fullmatch(sent)
    if found is None:
        return None
    revokes, role, arn = found.groups()
    return IamStatement(revokes is None, role.replace("''", "'"), arn.replace("''", "'"))


def literal(text: str) -> str:
    """Quote a text; backslashes are plain characters, as standard_conforming_strings can't be switched off."""
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _relation(relation: Body) -> str:
    names = (relation.get("schemaname"), relation["relname"])
    return literal(".".join(_identifier(name) for name in names if name))


def _names(names: Iterable[str]) -> str:
    return "ARRAY[" + ", ".join(literal(name) for name in names) + "]::text[]"


def _index(statement: Statement, source: Source) -> Rewritten:
    body = statement.body
    build = literal(source.edited(()))
    relation = _relation(body["relation"])
    keys = _names(key["name"] for key in bodies(body.get("indexParams"), "IndexElem") if "name" in key)
    if not statement.is_async:
        return Rewritten(f"CALL pytest_dsql_engine.create_index({build}, {relation}, {keys})", "CREATE INDEX")
    fallback = "NULL"
    if body.get("unique"):
        unique = next(token for token in statement.scan() if token.word == "UNIQUE")
        fallback = literal(source.edited([(unique.start, unique.end, b"")]))
    return Rewritten(
        f"SELECT pytest_dsql_engine.submit_index({build}, {fallback}, {relation}, {keys}) AS job_id", "CREATE INDEX"
    )


def _alter_table(statement: Statement, source: Source) -> Rewritten | None:
    body = statement.body
    relation = _relation(body["relation"])
    if statement.is_async:
        (validation,) = bodies(body["cmds"], "AlterTableCmd")
        arguments = f"{relation}, {literal(validation['name'])}, {str(bool(body.get('missing_ok'))).lower()}"
        return Rewritten(f"SELECT pytest_dsql_engine.submit_validation({arguments}) AS job_id", "ALTER TABLE")
    triggers = [one for one in bodies(body.get("cmds"), "AlterTableCmd") if one["subtype"] in _TRIGGER_ACTIONS]
    if triggers:
        return _triggers(statement, source, triggers)
    return _alter_columns(statement, source, ())


def _alter_columns(statement: Statement, source: Source, cuts: Sequence[Edit]) -> Rewritten | None:
    """Do the actions of an ALTER TABLE but those that are cut out of it."""
    body = statement.body
    relation = _relation(body["relation"])
    sql = _with_numeric_scale(statement, source, cuts)
    dropped: dict[str, list[str]] = {"AT_DropColumn": [], "AT_DropConstraint": []}
    for command in bodies(body.get("cmds"), "AlterTableCmd"):
        if command["subtype"] in dropped:
            dropped[command["subtype"]].append(command["name"])
    if body.get("objtype") == "OBJECT_TABLE" and any(dropped.values()):
        names = ", ".join(_names(found) for found in dropped.values())
        return Rewritten(
            f"CALL pytest_dsql_engine.alter_table({literal(sql or source.edited(()))}, {relation}, {names})",
            "ALTER TABLE",
        )
    return Rewritten(sql) if sql else None


#: ALTER TABLE {ENABLE | DISABLE} TRIGGER: clients have no triggers, and the engine's own are to stay as they are.
_TRIGGER_ACTIONS: Final = frozenset(
    f"AT_{action}"
    for action in (
        *("EnableTrig", "EnableAlwaysTrig", "EnableReplicaTrig", "DisableTrig"),
        *("EnableTrigAll", "EnableTrigUser", "DisableTrigAll", "DisableTrigUser"),
    )
)


def _triggers(statement: Statement, source: Source, actions: Sequence[Body]) -> Rewritten:
    """Look for the triggers that actions of an ALTER TABLE name, and do its other actions."""
    body = statement.body
    rest = "NULL"
    if len(actions) < len(body["cmds"]):
        others = _alter_columns(statement, source, _trigger_cuts(statement.scan()))
        rest = literal(others.sql if others else "")
    named = _names(action["name"] for action in actions if "name" in action)
    arguments = f"{rest}, {_relation(body['relation'])}, {str(bool(body.get('missing_ok'))).lower()}, {named}"
    return Rewritten(f"CALL pytest_dsql_engine.alter_triggers({arguments})", "ALTER TABLE")


#: Behind these, the words of an action are names.
_BEFORE_NAMES: Final = frozenset({"ADD", "ALTER", "COLUMN", "DROP", "EXISTS", "TABLE"})


def _trigger_cuts(tokens: Sequence[Token]) -> list[Edit]:
    """The edits that take the actions on triggers out of an ALTER TABLE, with a comma for each."""
    cuts: list[Edit] = []
    commas: list[Token] = []  #: in front of the actions but the first
    cut: list[bool] = [False]  #: which actions go
    depth = 0
    for place, token in enumerate(tokens):
        depth += {b"(": 1, b")": -1}.get(token.text, 0)
        if depth:
            continue
        if token.text == b",":
            commas.append(token)
            cut.append(False)
        elif token.word in ("ENABLE", "DISABLE") and tokens[place - 1].word not in _BEFORE_NAMES:
            last = place + 2 + (tokens[place + 1].word in ("ALWAYS", "REPLICA"))
            if tokens[last - 1].word == "TRIGGER":
                cuts.append((token.start, tokens[last].end, b""))
                cut[-1] = True
    goes = [comma for comma, action in zip(commas, cut[1:], strict=True) if action]
    if cut[0]:
        goes.append(next(comma for comma, action in zip(commas, cut[1:], strict=True) if not action))
    return cuts + [(comma.start, comma.end, b"") for comma in goes]


def _drop(statement: Statement, _: Source) -> Rewritten | None:
    body = statement.body
    if body.get("removeType") != "OBJECT_TRIGGER":
        return None
    *schema, table, trigger = strings(body["objects"][0]["List"]["items"])
    relation = _relation({"schemaname": schema[-1] if schema else None, "relname": table})
    missing_ok = str(bool(body.get("missing_ok"))).lower()
    return Rewritten(
        f"CALL pytest_dsql_engine.drop_trigger({literal(trigger)}, {relation}, {missing_ok})", "DROP TRIGGER"
    )


def _numeric(statement: Statement, source: Source) -> Rewritten | None:
    sql = _with_numeric_scale(statement, source)
    return Rewritten(sql) if sql else None


def _creations(body: Body) -> Iterator[Body]:
    yield body
    yield from bodies(body.get("schemaElts"), "CreateStmt")


def _with_numeric_scale(statement: Statement, source: Source, edits: Sequence[Edit] = ()) -> str | None:
    # DSQL stores `numeric` without precision as numeric(18,6) (AWS user guide, "Supported data types").
    places = [
        type_["location"]
        for type_ in (column.get("typeName", {}) for body in _creations(statement.body) for column in columns(body))
        if system_name(type_.get("names")) == "numeric" and not type_.get("typmods")
    ]
    if not places:
        return source.edited(edits) if edits else None
    tokens = statement.scan()
    numbers = {token.start: number for number, token in enumerate(tokens)}
    scales = []
    for place in places:
        number = numbers[place]
        if tokens[number + 1 : number + 2] and tokens[number + 1].text == b".":
            number += 2  # pg_catalog.numeric
        scales.append((tokens[number].end, tokens[number].end, b"(18,6)"))
    return source.edited([*edits, *scales])


#: Parameters that PostgreSQL does not know, or knows with another value than DSQL.
_SHOWN: Final = (
    *("server_version", "server_version_num", "default_toast_compression", "disable_sync_create_index", "lock_timeout"),
    *("max_connections", "work_mem", "search_path"),
)
_SHOW_ALL: Final = (
    "SELECT name, pg_catalog.current_setting(name, true) AS setting, short_desc AS description"
    " FROM pg_catalog.pg_settings ORDER BY pg_catalog.lower(name)"
)


def _show(statement: Statement, _: Source) -> Rewritten | None:
    name = str(statement.body["name"]).lower()
    if name == "all":
        return Rewritten(_SHOW_ALL, "SHOW")
    if name not in _SHOWN:
        return None
    return Rewritten(f"SELECT pg_catalog.current_setting('{name}') AS {name}", "SHOW")


def _set(statement: Statement, source: Source) -> Rewritten | None:
    if statement.body["kind"] == "VAR_RESET_ALL":
        # What the engine keeps in settings is none of the client's.
        return Rewritten("CALL pytest_dsql_engine_limits.reset_all()", "RESET")
    name = str(statement.body.get("name", "")).lower()
    if name != "disable_sync_create_index":
        return None
    # A parameter of DSQL that PostgreSQL does not know: kept under a prefix, as PostgreSQL's custom parameters are.
    token = next(token for token in statement.scan() if token.word.strip('"').lower() == name)
    return Rewritten(source.edited([(token.start, token.start, b"dsql.")]))


def _query(statement: Statement, source: Source) -> Rewritten | None:
    edits = hidden(statement)
    return Rewritten(source.edited(edits)) if edits else None


_REWRITES: Final[dict[str, Rewrite]] = {
    **dict.fromkeys(("SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "CopyStmt"), _query),
    "IndexStmt": _index,
    "AlterTableStmt": _alter_table,
    "DropStmt": _drop,
    "CreateStmt": _numeric,
    "CreateDomainStmt": _numeric,
    "CreateSchemaStmt": _numeric,
    "VariableShowStmt": _show,
    "VariableSetStmt": _set,
}
