"""What to send to PostgreSQL for a client's text: the dialect's judgement, made ready for the wire, remembered."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Final, final

from pytest_dsql.local.dialect.judgement import Judgement, Refusal
from pytest_dsql.local.dpu.explain import PlanFormat, explains, wanted_format
from pytest_dsql.local.gateway.disguise import failing_statement
from pytest_dsql.local.gateway.hooks import Statement
from pytest_dsql.local.gateway.leftovers import Leftover, leftover

_LOG: Final = logging.getLogger(__name__)

#: A text this long is hardly sent again, and is not worth its memory. Bytes.
_LONGEST_REMEMBERED: Final = 16_384
#: Texts in one of the two generations of the memory.
_GENERATION: Final = 4_096

Judge = Callable[[str, date], Judgement]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What becomes of one statement; made once per text."""

    statement: Statement
    sent: bytes  #: to send, in place of the client's text where that differs
    changed: bool = False  #: whether it differs
    tag: bytes | None = None  #: the command tag to answer in place of PostgreSQL's
    refused: bool = False  #: what is sent fails with the dialect's refusal
    copies_in: bool = False  #: COPY ... FROM STDIN
    locks: bool = False  #: it may lock rows: FOR UPDATE, FOR KEY SHARE
    explained: PlanFormat | None = None  #: EXPLAIN ANALYZE VERBOSE: in which form the DPU estimate is added to the plan
    traced: bool = False  #: EXPLAIN ANALYZE of a statement that writes: the engine's own triggers show in its answer
    simple: bool = False  #: a SELECT or DML about which the dialect has nothing to say
    offset: int = 0  #: of its text in the query string, in characters, for the positions in errors


@final
@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one text: its statements up to the first that is refused."""

    plans: tuple[Plan, ...]
    single: bool = True  #: whether the text may be prepared: PostgreSQL refuses several statements in one Parse
    leaves: Leftover = Leftover.NOTHING  #: in PostgreSQL's session, for what follows


#: A statement of kind `dml` that begins so is COPY FROM: what is copied from a query in parentheses goes out.
_SPACE: Final = r"(?>(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*)"
_COPY: Final = re.compile(_SPACE + r"COPY\b" + _SPACE + r"(?!\()", re.IGNORECASE | re.DOTALL)

#: In a literal or a comment it does no harm but to make the statement slower.
_LOCKS: Final = re.compile(r"\bFOR\b[^;]{0,100}\b(?:UPDATE|SHARE)\b", re.IGNORECASE | re.DOTALL)

#: A fault of the engine must not end the session.
_FAULT: Final = Refusal("XX000", "the engine could not judge this statement")


@final
class Statements:
    """Decides about texts and remembers the decisions, boundedly, for each text and day of the rules.

    Two generations: when the young one is full it becomes the old one, and what is used from the old one moves up.
    A hit costs one dictionary look-up.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._one_at_a_time = threading.Lock()
        self._young: dict[tuple[bytes, date], Decision] = {}
        self._old: dict[tuple[bytes, date], Decision] = {}

    def decide(self, text: bytes, rules: date) -> Decision:
        """Decide what becomes of `text`, as it came from the client, without its closing NUL."""
        key = (text, rules)
        decision = self._young.get(key)
        if decision is None:
            decision = self._old.pop(key, None) or self._decide(text, rules)
            if len(text) <= _LONGEST_REMEMBERED:
                if len(self._young) >= _GENERATION:
                    self._old, self._young = self._young, {}
                self._young[key] = decision
        return decision

    def known(self, text: bytes, rules: date) -> Decision | None:
        """Give what was decided about a text lately."""
        return self._young.get((text, rules))

    def decide_long(self, text: bytes, rules: date) -> Decision:
        """Decide about a text that is too long to be remembered. For threads beside the loop: one works at a time."""
        with self._one_at_a_time:
            return self._decide(text, rules)

    def _decide(self, text: bytes, rules: date) -> Decision:
        # Other client encodings than UTF-8 extend ASCII; as Latin-1 each of their bytes is a letter and comes back.
        try:
            encoding, sql = "utf-8", text.decode("utf-8")
        except UnicodeDecodeError:
            encoding, sql = "latin-1", text.decode("latin-1")
        try:
            judgement = self._judge(sql, rules)
        except Exception:
            _LOG.exception("the dialect failed on a statement of %d bytes", len(text))
            failing = failing_statement(_FAULT).encode()
            return Decision((Plan(Statement("other", sql), failing, changed=True, refused=True),))
        single = len(judgement.parts) == 1
        plans: list[Plan] = []
        offset = 0
        for part in judgement.parts:
            refused = part.refusal is not None
            written = part.sql if part.refusal is None else failing_statement(part.refusal, part.analysed)
            sent = text if single and judgement.unchanged else written.encode(encoding, "replace")
            tag = None if part.tag is None else part.tag.encode()
            statement = Statement(part.kind, part.sql, part.reads, part.writes)
            copies_in = part.kind == "dml" and bool(_COPY.match(part.sql))
            locks = bool(_LOCKS.search(part.sql))
            explained = None if refused else wanted_format(part.sql)
            traced = not refused and part.kind == "dml" and explains(part.sql)
            special = refused or copies_in or traced or tag is not None or explained is not None
            simple = part.kind in ("select", "dml") and not special
            plans.append(
                Plan(statement, sent, sent != text, tag, refused, copies_in, locks, explained, traced, simple, offset)
            )
            if refused:
                # It fails where it stands, so nothing after it would run.
                break
            offset += len(written)
        left = [leftover(plan.statement.kind, plan.statement.sql) for plan in plans if not plan.refused]
        leaves = max(left, default=Leftover.NOTHING)
        return Decision(tuple(plans), single, leaves)
