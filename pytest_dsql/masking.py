"""The one function that removes tokens, passwords and account ids from anything shown or stored.

A secret that gets through is worse than a word too many that is masked, so every rule takes the longest reading of
where a secret ends. Plain numbers of a report survive: a run of twelve digits is taken for an account id only where a
number would look different (no unit behind it, no `name=` or `"name": ` before it).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

# Between a name and its value, in code, JSON (also JSON inside a JSON string), ini files, environments.
_ASSIGNED: Final = r"\\*[\"']?\s*(?:=>|[=:])\s*"
# A quoted value ends at its own quote, or at the end of the text where that was cut off (a shell's goes on after
# '"'"'); an unquoted one ends at white space.
_SINGLE_QUOTED: Final = r"'(?:[^'\\]|\\.)*(?:'(?:(?:\"'\"|\\')'[^']*(?:'|\Z))*(?:[\"'\\][^\s,;:)\]}]\S*)?|\Z)"
_VALUE: Final = (
    r"(?P<value>\\+\"(?:[^\"\\]|\\(?!\")[^\"])*(?:\\+\"|\Z)"
    rf"|[a-z]?{_SINGLE_QUOTED}"
    r"|[a-z]?\"(?:[^\"\\]|\\.)*(?:\"|\Z)"
    r"|(?!<masked>)(?:\\.|[^\s\\])+)"
)
_OPENING_QUOTE: Final = re.compile(r"(?i)\\+\"|[a-z]?['\"]")


def _mask_value(match: re.Match[str]) -> str:
    """Replace the value alone, so that JSON stays JSON."""
    opening = _OPENING_QUOTE.match(match["value"])
    quote = opening[0] if opening else ""
    return f"{match['name']}{quote}<masked>{quote.lstrip('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ')}"


# `?`, `=` and `&` as they are, or percent-encoded once or more (a token in a URI, a URI in a log).
_PERCENT: Final = r"%(?:25)*"
_EQUALS: Final = rf"(?:=|{_PERCENT}3D)"

_RULES: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    # A password in a URI, up to the last `@` of the word: an unencoded password may hold one itself.
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^:/@\s]*:)[^\s'\"<>]+(@)"), r"\1<masked>\2"),
    # A token of DSQL or RDS is a presigned URL without its scheme: everything from the action on is secret, and no part
    # of it holds white space, quotes or brackets.
    (
        re.compile(rf"(?i)((?:\?|{_PERCENT}3F)Action{_EQUALS}(?:Db)?Connect)[^\s'\"`<>()\[\]{{}}|]*(?:<token>)?"),
        r"\1<token>",
    ),
    # The parts of one whose beginning was cut off.
    (
        re.compile(
            rf"(?i)(X-Amz-(?:Signature|Security-Token|Credential){_EQUALS})"
            rf"(?:(?!{_PERCENT}26)[^&\s'\"`<>()\[\]{{}}|\\])+"
        ),
        r"\1<masked>",
    ),
    (re.compile(rf"(?is)\b(?P<name>(?:pg|ssl)?pass(?:word|wd){_ASSIGNED}){_VALUE}"), _mask_value),
    (re.compile(rf"(?is)\b(?P<name>password\s+)(?P<value>e?{_SINGLE_QUOTED})"), _mask_value),
    (
        re.compile(
            r"(?is)\b(?P<name>(?:aws_?)?(?:secret_?access_?key|secret_?key|session_?token|security_?token)"
            rf"{_ASSIGNED}){_VALUE}"
        ),
        _mask_value,
    ),
    # What the values look like without a name: STS session tokens, and secret keys (40 characters of base64; a commit's
    # hash is hexadecimal, so it lacks the capitals).
    (re.compile(r"\b(?:IQoJb3JpZ2lu|F[wQ]oGZXIvYXdz)[\w+/=%-]*"), "<masked>"),
    (
        re.compile(r"(?<![\w+/=.-])(?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z])(?=[A-Za-z+/]*\d)[\w+/]{40}(?![\w+/=.-])"),
        "<masked>",
    ),
    (re.compile(r"\b((?:AKIA|ASIA)[A-Z0-9]{4})[A-Z0-9]{8,}\b"), r"\1<masked>"),
    # Account ids: in an ARN (plain or percent-encoded), behind the word, in names that end with one, and alone.
    (re.compile(r"(?i)(arn(?::|%3A)aws[a-z-]*(?:(?::|%3A)[a-z0-9-]*?){2}(?::|%3A))\d{12}(?!\d)"), r"\1<account>"),
    (re.compile(r"(?i)(account[\w-]{0,12}\\*[\"']?\s{0,3}[=:#(]?\s{0,3}\\*[\"']?)\d{12}(?!\d)"), r"\1<account>"),
    (re.compile(r"(?i)(?<=[a-z]-)(?<![0-9a-f]{4}-)\d{12}(?![\w.])"), "<account>"),
    (
        re.compile(
            r"(?<![\w.,+-])(?<![=:(\[,]\s)(?<![=:(\[])\d{12}"
            r"(?![\w+-]|[.,]\d|\s*(?:%|[kMGTP]i?B\b|[nmuµ]?s\b|(?:nano|micro|milli)?seconds?\b|bytes?\b|rows?\b|B\b))"
        ),
        "<account>",
    ),
)


def mask(text: str) -> str:
    """Return `text` without tokens, passwords, keys and AWS account ids. Masking twice changes nothing more."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
