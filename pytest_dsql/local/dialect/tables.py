"""Which tables a statement names: those it writes and those it reads, found in its serialised parse tree."""

from __future__ import annotations

import json
import re
from typing import Final

_TEXT: Final = rb'"((?:[^"\\]|\\.)*)"'
_RELATION: Final = rb'(?:"catalogname":"[^"]*",)?(?:"schemaname":' + _TEXT + rb',)?"relname":' + _TEXT
#: A double quote inside a literal is escaped in JSON, so these patterns only ever meet nodes.
_READ: Final = re.compile(rb'"RangeVar":\{' + _RELATION)
_WRITTEN: Final = re.compile(
    rb'"(?:InsertStmt|UpdateStmt|DeleteStmt|MergeStmt|CopyStmt|IndexStmt|AlterTableStmt|CreateStmt)":\{'
    rb'(?:"idxname":"[^"]*",)?"relation":\{' + _RELATION
)
_COPIED_OUT: Final = re.compile(rb'"CopyStmt":\{(?:(?!"is_from":true).)*$', re.DOTALL)
_COMMON: Final = re.compile(rb'"ctename":' + _TEXT)


def tables(tree: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the tables that a statement reads, and those it writes, each once and in the order of their first place.

    `tree` is libpg_query's JSON of the one statement. Names are as PostgreSQL folds them, `name` or `schema.name`.
    """
    common = set(_COMMON.findall(tree))
    reads = [found for found in _READ.findall(tree) if found[0] or found[1] not in common]
    writes = _WRITTEN.findall(tree)
    if writes and b'"CopyStmt":{' in tree and _COPIED_OUT.search(tree):
        reads, writes = reads + writes, []
    return _names(reads), _names(writes)


def _names(found: list[tuple[bytes, bytes]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(".".join(_text(part) for part in pair if part) for pair in found))


def _text(escaped: bytes) -> str:
    return str(json.loads(b'"' + escaped + b'"')) if b"\\" in escaped else escaped.decode("utf-8", "replace")
