"""What the dialect decides about one query string: the parts to send, and what is answered instead."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

#: What a statement does to the session's transaction, as the rules on transactions need to know it. `dml` writes rows
#: (also from a CTE, EXPLAIN ANALYZE or COPY FROM), `ddl` changes the catalog (also GRANT and REVOKE), `set` is SET and
#: RESET; `other` has no part in those rules (SHOW, ANALYZE, CALL, an empty query, a text that does not parse).
Kind: TypeAlias = Literal["ddl", "dml", "select", "begin", "commit", "rollback", "set", "other"]


@final
@dataclass(frozen=True, slots=True)
class Refusal:
    """The error that DSQL answers to a statement."""

    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Part:
    """One statement of a query string."""

    #: What to send. The parts' texts, put together, are a query string: each but the last ends with its semicolon.
    sql: str
    refusal: Refusal | None = None  #: DSQL answers this error instead
    #: A query whose analysis comes before the refusal: what it names has to be there first. None: nothing does.
    analysed: str | None = field(default=None, compare=False)
    tag: str | None = None  #: the command tag to answer in place of PostgreSQL's
    kind: Kind = "other"
    #: Tables it reads, and tables it writes, as `name` or `schema.name`, as PostgreSQL folds them.
    reads: tuple[str, ...] = field(default=(), compare=False)
    writes: tuple[str, ...] = field(default=(), compare=False)


@final
@dataclass(frozen=True, slots=True)
class Judgement:
    """What becomes of one query string. There is at least one part; an empty query is one part of kind `other`.

    Where no part is refused or rewritten, the parts' texts put together are the query string, byte for byte.
    """

    parts: tuple[Part, ...]
    unchanged: bool  #: no part is refused, rewritten or answered under another tag: the original text may be sent
