"""What to send to PostgreSQL for a client's text: the dialect's judgement, made ready for the wire, remembered."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final, final

from pytest_dsql.local.dialect.judgement import Judgement, Refusal
from pytest_dsql.local.gateway.disguise import failing_statement

_LOG: Final = logging.getLogger(__name__)

#: A text this long is hardly sent again, and is not worth its memory. Bytes.
_LONGEST_REMEMBERED: Final = 16_384
#: Texts in one of the two generations of the memory.
_GENERATION: Final = 4_096

Judge = Callable[[str, date], Judgement]


@final
@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one text."""

    text: bytes | None  #: to send in place of the client's; None: the client's own
    tags: Mapping[int, bytes] = field(default_factory=dict)  #: command tags to answer, by the statement's place
    single: bool = True  #: whether the text may be prepared: PostgreSQL refuses several statements in one Parse


_UNCHANGED: Final = Decision(None)
_UNCHANGED_SEVERAL: Final = Decision(None, single=False)

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
            return Decision(failing_statement(_FAULT).encode())
        single = len(judgement.parts) == 1
        if judgement.unchanged:
            return _UNCHANGED if single else _UNCHANGED_SEVERAL
        sent: list[str] = []
        tags: dict[int, bytes] = {}
        for place, part in enumerate(judgement.parts):
            if part.refusal is not None:
                # It fails where it stands, so nothing after it would run.
                sent.append(failing_statement(part.refusal))
                break
            sent.append(part.sql)
            if part.tag is not None:
                tags[place] = part.tag.encode()
        return Decision("".join(sent).encode(encoding, "replace"), tags, single)
