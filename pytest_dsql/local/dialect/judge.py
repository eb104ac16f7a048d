"""The judge: a query string becomes parts, each passed, rewritten or refused, by its parse tree."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from operator import attrgetter
from typing import Any, Final

from pytest_dsql.local.dialect import matchers
from pytest_dsql.local.dialect.extensions import Masked, mask
from pytest_dsql.local.dialect.functions import written_statements
from pytest_dsql.local.dialect.hiding import names_catalog
from pytest_dsql.local.dialect.judgement import Judgement, Kind, Part, Refusal
from pytest_dsql.local.dialect.libpg_query import ParseError, Token, parse, scan
from pytest_dsql.local.dialect.rewriting import Rewritten, Source, aws_iam, rewrite
from pytest_dsql.local.dialect.rulebook import Rule, in_force
from pytest_dsql.local.dialect.tables import tables
from pytest_dsql.local.dialect.tree import STATEMENT, Body, Statement, integer, only, raw_statements, string, walk


def judge(sql: str, rules: date) -> Judgement:
    """Decide what DSQL, as it was on the day `rules`, makes of a query string. Never raises on any text.

    A text that does not parse passes unchanged: PostgreSQL answers its own syntax error. So do texts that can't be
    sent at all (null characters, lone surrogates).
    """
    try:
        text = sql.encode()
    except UnicodeEncodeError:
        return _passed(sql, "other")
    if b"\0" in text:
        return _passed(sql, "other")
    try:
        tree = parse(text)
    except ParseError:
        tree = b""
    masked, written = None, text
    # `CREATE INDEX ASYNC ON t (v)` parses, as an index with that name.
    if not tree or b'"idxname":"async"' in tree:
        masked = mask(text)
    if masked:
        text = masked.text
        try:
            tree = parse(text)
        except ParseError:
            # PostgreSQL's syntax error about the text as DSQL's grammar sees it.
            return Judgement((Part(text.decode()),), unchanged=False)
    if not tree:
        return _passed(sql, "other")
    simple = None if masked else _simple_query(tree, rules)
    if simple:
        reads, writes = tables(tree)
        return Judgement((Part(sql, kind=simple, reads=reads, writes=writes),), unchanged=True)
    parts = tuple(_parts(written, text, tree, masked, in_force(rules)))
    trees = tree.split(STATEMENT)[1:]
    if len(trees) == len(parts):
        parts = tuple(_with_tables(part, tree) for part, tree in zip(parts, trees, strict=True))
    if not parts:
        return _passed(sql, "other")
    unchanged = masked is None and not any(part.refusal or part.tag for part in parts)
    return Judgement(parts, unchanged and "".join(part.sql for part in parts) == sql)


def _passed(sql: str, kind: Kind) -> Judgement:
    return Judgement((Part(sql, kind=kind),), unchanged=True)


def _with_tables(part: Part, tree: bytes) -> Part:
    reads, writes = tables(tree)
    return replace(part, reads=reads, writes=writes) if reads or writes else part


# The shortcut for the bulk of all texts: one query, in whose tree no node is present that a rule looks at. Searching
# the serialised tree takes a tenth of the time of decoding it, and does not mind how deep it is. A double quote inside
# a literal is escaped in JSON, so these patterns only ever meet nodes.

_FIRST: Final = re.compile(rb'\{"version":\d+,"stmts":\[\{"stmt":\{"(\w+)":')
_WRITES: Final = re.compile(rb'"(?:InsertStmt|UpdateStmt|DeleteStmt|MergeStmt)":')
_QUERIES: Final[Mapping[bytes, Kind]] = {
    b"SelectStmt": "select",
    b"InsertStmt": "dml",
    b"UpdateStmt": "dml",
    b"DeleteStmt": "dml",
}

#: What a tree must hold for the rules on a node inside queries to apply; and then which of the rules' own words.
QUERY_MARKS: Final[Mapping[str, Mapping[bytes, tuple[str, str] | None]]] = {
    "MergeStmt": {b'"MergeStmt":': None},
    "RangeTableSample": {b'"RangeTableSample":': None},
    "SelectStmt": {b'"intoClause":': None, b'"lockingClause":': ("strength", "strengths")},
    "FuncCall": {b'"FuncCall":': ("sval", "functions"), b'"sval":"pytest_dsql_engine': None},
    "TypeCast": {b'"TypeCast":': ("sval", "types")},
    "ColumnRef": {b'"ColumnRef":': ("sval", "columns")},
    "RangeVar": {b'"schemaname":"pytest_dsql_engine': None, b'"relname":"pytest_dsql_engine': None},
}


@functools.lru_cache(maxsize=16)
def _marks(rules: date) -> tuple[tuple[bytes, re.Pattern[bytes] | None], ...]:
    marks = []
    for node, found in QUERY_MARKS.items():
        for mark, words in found.items():
            key, name = words or ("", "")
            known = {word for rule in in_force(rules).get(node, ()) for word in rule.options.get(name, ())}
            any_of = "|".join(sorted(known))
            marks.append((mark, re.compile(f'"{key}":"(?:{any_of})"'.encode()) if words else None))
    return tuple(marks)


def _meets_a_rule(tree: bytes, rules: date) -> bool:
    return any(mark in tree and (words is None or words.search(tree)) for mark, words in _marks(rules))


def _simple_query(tree: bytes, rules: date) -> Kind | None:
    first = _FIRST.match(tree)
    kind = _QUERIES.get(first[1]) if first else None
    if kind is None or tree.count(STATEMENT) != 1 or _meets_a_rule(tree, rules) or names_catalog(tree):
        return None
    return "dml" if kind == "select" and _WRITES.search(tree) else kind


def _parts(
    written: bytes,
    text: bytes,
    tree: bytes,
    masked: Masked | None,
    book: Mapping[str, tuple[Rule, ...]],
) -> Iterator[Part]:
    tokens = functools.cache(functools.partial(scan, text))

    def between(start: int, end: int) -> list[Token]:
        first, behind = (bisect_left(tokens(), place, key=attrgetter("start")) for place in (start, end))
        return tokens()[first:behind]

    asyncs = sorted(masked.asyncs) if masked else []
    count = tree.count(STATEMENT)
    begin = 0  # the slices leave nothing out: comments and spaces belong to the statement behind them
    for number, raw in enumerate(raw_statements(tree), start=1):
        start = raw.get("stmt_location", 0)
        end = start + raw["stmt_len"] if raw.get("stmt_len") else len(text)
        last = number == count
        until = len(text) if last else end + 1
        name, body = only(raw["stmt"])
        is_async = bisect_left(asyncs, start) < bisect_left(asyncs, end)
        statement = Statement(name, body, functools.partial(between, start, end), is_async)
        original = written[begin:until].decode()
        yield _judge_statement(statement, Source(text, start, end), original, "" if last else ";", masked, book)
        begin = until


def _judge_statement(
    statement: Statement,
    source: Source,
    original: str,
    semicolon: str,
    masked: Masked | None,
    book: Mapping[str, tuple[Rule, ...]],
) -> Part:
    rewritten: Rewritten | None
    for tokens in masked.iam if masked else ():
        if source.start <= tokens[0].start < source.end:
            rewritten = aws_iam(tokens)
            if rewritten:
                return Part(rewritten.sql + semicolon, tag=rewritten.tag, kind="ddl")
            return Part(original)
    kind = _kind(statement)
    refused = _refusal(statement, book)
    if refused:
        refusal, rule = refused
        late = rule.options.get("analysed") and statement.name == "SelectStmt" and kind == "select"
        return Part(original, refusal, source.edited(()) if late else None, kind=kind)
    rewritten = rewrite(statement, source)
    if rewritten:
        return Part(rewritten.sql + semicolon, tag=rewritten.tag, kind=kind)
    return Part(original, kind=kind)


def _refusal(statement: Statement, book: Mapping[str, tuple[Rule, ...]]) -> tuple[Refusal, Rule] | None:
    for name, body in walk(statement):
        if name == "CreateFunctionStmt":
            for inner in written_statements(body):
                # A function in a function is refused by its kind; following them inwards would have no end.
                refused = _refusal(inner, book) if inner.name != "CreateFunctionStmt" else None
                if refused:
                    return refused
        fault = _first_fault(book.get(name, ()), body, statement)
        if fault:
            rule, fields = fault
            message = rule.message.format_map({"statement": name.removesuffix("Stmt"), **fields})
            return Refusal(rule.sqlstate, message, rule.detail), rule
    return None


def _first_fault(rules: Sequence[Rule], body: Body, statement: Statement) -> tuple[Rule, matchers.Fields] | None:
    """The first rule that refuses a node; of those that look at one column after the other, the first column's."""
    first: tuple[Rule, matchers.Fields] | None = None
    for rule in rules:
        fields = matchers.match(rule, body, statement)
        if fields is None:
            continue
        if "place" not in fields:
            return first or (rule, fields)
        if first is None or fields["place"] < first[1]["place"]:
            first = rule, fields
    return first


_KINDS: Final[Mapping[str, Kind]] = {
    **{name.decode(): kind for name, kind in _QUERIES.items()},
    "MergeStmt": "dml",
    "CopyStmt": "select",
    "ExplainStmt": "select",
    "VariableSetStmt": "set",
    "ConstraintsSetStmt": "set",
    **dict.fromkeys(
        ("VariableShowStmt", "VacuumStmt", "CallStmt", "DeallocateStmt", "PrepareStmt", "ExecuteStmt", "DiscardStmt"),
        "other",
    ),
    **dict.fromkeys(("DoStmt", "ListenStmt", "NotifyStmt", "UnlistenStmt", "LockStmt", "TransactionStmt"), "other"),
    **dict.fromkeys(("DeclareCursorStmt", "FetchStmt", "ClosePortalStmt", "CheckPointStmt", "LoadStmt"), "other"),
}

_TRANSACTION_KINDS: Final[Mapping[str, Kind]] = {
    "TRANS_STMT_BEGIN": "begin",
    "TRANS_STMT_START": "begin",
    "TRANS_STMT_COMMIT": "commit",
    "TRANS_STMT_ROLLBACK": "rollback",
}


def _kind_by_name(name: str) -> Kind:
    return _KINDS.get(name, "ddl")


def _kind(statement: Statement) -> Kind:
    body = statement.body
    match statement.name:
        case "TransactionStmt":
            return _TRANSACTION_KINDS.get(body["kind"], "other")
        case "CopyStmt" if body.get("is_from"):
            return "dml"
        case "ExplainStmt" if not _analyzes(body):
            return "select"
        case "SelectStmt" | "CopyStmt" | "ExplainStmt":
            writes = any(_KINDS.get(name) == "dml" for name, _ in walk(statement))
            return "dml" if writes else "select"
    return _kind_by_name(statement.name)


def _analyzes(explain: dict[str, Any]) -> bool:
    for element in explain.get("options", ()):
        element = element["DefElem"]
        if element["defname"] == "analyze":
            argument = element.get("arg")
            return argument is None or (string(argument) or "").lower() in ("on", "true") or integer(argument) == 1
    return False
