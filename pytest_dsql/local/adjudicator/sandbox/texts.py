"""Editing a statement at its tokens: what isn't touched stays as the client wrote it, where the client wrote it."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TypeAlias, final

from pytest_dsql.local.dialect.libpg_query import Token, scan

#: Start, end (bytes of the text), and what takes the place of what is between.
Edit: TypeAlias = "tuple[int, int, str]"


@final
class Source:
    """One statement's text with its tokens, which are found when they are asked for: of a long text that takes long."""

    def __init__(self, sql: str) -> None:
        self.text = sql.encode()

    @functools.cached_property
    def tokens(self) -> Sequence[Token]:
        """The tokens; the semicolon at the end is none of them."""
        return [token for token in scan(self.text) if token.text != b";"]

    @functools.cached_property
    def depths(self) -> Sequence[int]:
        """In how many parentheses and brackets each token stands; its own not counted."""
        depth = 0
        found = []
        for token in self.tokens:
            if token.text in (b")", b"]"):
                depth -= 1
            found.append(depth)
            if token.text in (b"(", b"["):
                depth += 1
        return found

    @property
    def end(self) -> int:
        """Behind the last token."""
        if b"--" in self.text or b"/*" in self.text:
            return self.tokens[-1].end if self.tokens else 0
        return len(self.text.rstrip(b"; \t\n\r\f\v"))

    def number(self, offset: int) -> int:
        """The number of the first token that begins at `offset` or behind it."""
        return bisect_left(self.tokens, offset, key=attrgetter("start"))

    def find(self, words: Sequence[str], start: int = 0, depth: int = 0) -> int | None:
        """The number of the first token from number `start` on that stands so deep and is one of the words."""
        for number in range(start, len(self.tokens)):
            if self.depths[number] < depth:
                return None
            if self.depths[number] == depth and self.tokens[number].word in words:
                return number
        return None

    def relation(self, offset: int) -> tuple[int, int]:
        """Where a relation's name begins and ends, with what stands before its dots."""
        number = self.number(offset)
        while self.word(number + 1) == ".":
            number += 2
        return offset, self.tokens[number].end

    def word(self, number: int) -> str:
        """The token in capitals; empty behind the last one."""
        return self.tokens[number].word if number < len(self.tokens) else ""

    def piece(self, start: int, end: int, edits: Sequence[Edit] = ()) -> str:
        """The text from one offset to another, with those edits that lie between them."""
        text = self.text[start:end]
        for first, behind, replacement in sorted(edits, reverse=True):
            if start <= first and behind <= end:
                text = text[: first - start] + replacement.encode() + text[behind - start :]
        return text.decode()

    def locking_clauses(self) -> Iterator[tuple[int, int, int]]:
        """The locking clauses: their first token, the one behind the tables, the one behind everything."""
        number = 0
        while number < len(self.tokens):
            behind = self._behind_strength(number)
            if behind is None:
                number += 1
                continue
            if self.word(behind) == "OF":
                behind += 2
                while self.word(behind) in (",", "."):
                    behind += 2
            tables = behind
            if self.word(behind) == "NOWAIT":
                behind += 1
            elif self.word(behind) == "SKIP" and self.word(behind + 1) == "LOCKED":
                behind += 2
            yield number, tables, behind
            number = behind

    def _behind_strength(self, number: int) -> int | None:
        if self.word(number) != "FOR":
            return None
        words = tuple(self.word(number + ahead) for ahead in (1, 2, 3))
        for strength in (("UPDATE",), ("SHARE",), ("KEY", "SHARE"), ("NO", "KEY", "UPDATE")):
            if words[: len(strength)] == strength:
                return number + 1 + len(strength)
        return None

    def blank(self, first: int, behind: int) -> Edit | None:
        """The edit that puts spaces in place of the tokens from number `first` to before `behind`."""
        if first >= behind:
            return None
        start, end = self.tokens[first].start, self.tokens[behind - 1].end
        return start, end, " " * (end - start)


def identifier(name: str) -> str:
    """Quote a name."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text."""
    return "'" + text.replace("'", "''") + "'"


def listed(names: Sequence[str], source: str = "") -> str:
    """Names as a list, each of them a column of `source` when one is given."""
    return ", ".join(f"{source}.{identifier(name)}" if source else identifier(name) for name in names)
