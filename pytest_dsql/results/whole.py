"""Puts a file in place whole: a reader or a crash sees the old content or the new, never a part."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def replace_whole(path: Path, content: bytes) -> None:
    """Write `content` to the disk and give it the name `path`. Raises OSError; the old content is then unchanged."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
