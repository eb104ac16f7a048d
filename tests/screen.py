"""What a terminal shows of what was written to it, as far as pytest and the progress line use one."""

from __future__ import annotations

import re

_PART = re.compile(r"\x1b[78DM]|\x1b\[[?]?[0-9;]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\r\n]|[^\x1b\r\n]+|\x1b")


class Screen:
    """A screen of `rows` lines; a line feed is also a carriage return, as the terminal driver makes it."""

    def __init__(self, rows: int = 24) -> None:
        self.lines = [""] * rows
        self._row = self._column = 0
        self._saved = (0, 0)

    @property
    def text(self) -> str:
        """The lines that are not empty, without what is blank at their ends."""
        return "\n".join(line.rstrip() for line in self.lines if line.strip())

    def _down(self) -> None:
        if self._row == len(self.lines) - 1:
            self.lines = [*self.lines[1:], ""]
        else:
            self._row += 1

    def feed(self, text: str) -> None:
        """Show what `text` does."""
        for part in _PART.findall(text):
            match part:
                case "\r":
                    self._column = 0
                case "\n":
                    self._down()
                    self._column = 0
                case "\x1bD":
                    self._down()
                case "\x1b7":
                    self._saved = (self._row, self._column)
                case "\x1b8":
                    self._row, self._column = self._saved
                case "\x1b[A":
                    self._row = max(0, self._row - 1)
                case "\x1b[B":
                    self._row = min(len(self.lines) - 1, self._row + 1)
                case "\x1b[K":
                    self.lines[self._row] = self.lines[self._row][: self._column]
                case _ if part.startswith(("\x1b]", "\x1b[")):
                    pass  # titles and colours
                case _:
                    line = self.lines[self._row].ljust(self._column)
                    self.lines[self._row] = line[: self._column] + part + line[self._column + len(part) :]
                    self._column += len(part)
