"""The one function that removes tokens, passwords and account ids from anything shown or stored."""

from __future__ import annotations

import re
from typing import Final

_RULES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    # A DSQL token is a presigned URL without its scheme: everything from the query on is secret.
    (re.compile(r"(?i)(/?\?Action=DbConnect)[^\s'\"]*"), r"\1<token>"),
    (re.compile(r"(?i)(X-Amz-(?:Signature|Security-Token|Credential)=)[^&\s'\"]+"), r"\1<masked>"),
    (re.compile(r"(?i)(postgres(?:ql)?://[^:/@\s]*:)[^@\s]+(@)"), r"\1<masked>\2"),
    (re.compile(r"(?i)\b((?:pg)?password\s*[=:]\s*)('(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s,;)]+)"), r"\1<masked>"),
    (re.compile(r"(?i)\b(aws_(?:secret_access_key|session_token)\s*[=:]\s*)\S+"), r"\1<masked>"),
    (re.compile(r"\b((?:AKIA|ASIA)[A-Z0-9]{4})[A-Z0-9]{8,}\b"), r"\1<masked>"),
    (re.compile(r"(arn:aws[a-z-]*:[a-z0-9-]*:[a-z0-9-]*:)\d{12}(?=:)"), r"\1<account>"),
    (re.compile(r"(?<![\w.-])\d{12}(?![\w.-])"), "<account>"),
)


def mask(text: str) -> str:
    """Return `text` without tokens, passwords, keys and AWS account ids."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
