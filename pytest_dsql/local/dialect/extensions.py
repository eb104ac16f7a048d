"""DSQL's own words (INDEX ASYNC, ALTER TABLE ASYNC, AWS IAM), found on tokens before the text is parsed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from pytest_dsql.local.dialect.libpg_query import ParseError, Token, scan


@final
@dataclass(frozen=True, slots=True)
class Masked:
    """A query string without DSQL's own words, byte for byte as long as it was, so that offsets stay true."""

    text: bytes
    asyncs: frozenset[int]  #: where an ASYNC stood
    iam: tuple[tuple[Token, ...], ...]  #: the tokens of the AWS IAM statements; `SELECT` stands in their place


@final
@dataclass(frozen=True, slots=True)
class IamStatement:
    """`AWS IAM GRANT role TO 'arn'` or `AWS IAM REVOKE role FROM 'arn'`."""

    grants: bool
    role: str
    arn: str


def read_iam(tokens: Sequence[Token]) -> IamStatement | None:
    """Read the tokens of a statement that begins with AWS IAM; None when it is neither of the two."""
    words = [token.word for token in tokens]
    form = " ".join(words[2:5:2])
    if form not in ("GRANT TO", "REVOKE FROM") or len(tokens) != 6:
        return None
    role, arn = tokens[3].text.decode(), tokens[5].text.decode()
    if not (arn.startswith("'") and arn.endswith("'")):
        return None
    role = role[1:-1].replace('""', '"') if role.startswith('"') else role.lower()
    return IamStatement(form == "GRANT TO", role, arn[1:-1].replace("''", "'"))


def mask(text: bytes) -> Masked | None:
    """Take DSQL's own words out of a query string; None when it has none of them."""
    lower = text.lower()
    if b"async" not in lower and b"iam" not in lower:
        return None
    try:
        tokens = scan(text)
    except ParseError:
        return None
    masked = bytearray(text)
    asyncs, iam = set(), []
    for statement in _statements(tokens):
        words = [token.word for token in statement]
        place = _async_place(words)
        if place is not None:
            token = statement[place]
            masked[token.start : token.end] = b" " * (token.end - token.start)
            asyncs.add(token.start)
        elif words[:2] == ["AWS", "IAM"]:
            start, end = statement[0].start, statement[-1].end
            masked[start:end] = b"SELECT".ljust(end - start)
            iam.append(tuple(statement))
    return Masked(bytes(masked), frozenset(asyncs), tuple(iam)) if asyncs or iam else None


def _async_place(words: Sequence[str]) -> int | None:
    index = 2 if words[1:2] == ["UNIQUE"] else 1
    if words[:1] == ["CREATE"] and words[index : index + 2] == ["INDEX", "ASYNC"]:
        return index + 1
    if words[:3] == ["ALTER", "TABLE", "ASYNC"]:
        # A table may be called async. ALTER TABLE ASYNC is followed by the table's name and VALIDATE.
        place = 3
        if words[place : place + 2] == ["IF", "EXISTS"]:
            place += 2
        if words[place : place + 1] == ["ONLY"]:
            place += 1
        while words[place + 1 : place + 2] == ["."]:
            place += 2
        place += 1
        if words[place : place + 1] == ["*"]:
            place += 1
        if words[place : place + 1] == ["VALIDATE"]:
            return 2
    return None


def _statements(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    statement: list[Token] = []
    depth = 0
    for token in tokens:
        if token.text == b";" and depth == 0:
            if statement:
                yield statement
            statement = []
            continue
        depth = max(0, depth + {b"(": 1, b")": -1}.get(token.text, 0))
        statement.append(token)
    if statement:
        yield statement
