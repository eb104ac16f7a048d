"""Ways to bend bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

_NUMBERS: Final = (0, 1, 3, 4, 5, 7, 8, 127, 128, 255, 256, 32_767, 32_768, 65_535, 2**31 - 1, 2**31, 2**32 - 1)
_WORDS: Final = (
    b"\0",
    b"\0\0",
    b"\xff",
    b"%00",
    b"%",
    b"&",
    b"=",
    b"?",
    b"'",
    b"\\",
    b"\n",
    b"user",
    b"\xc3\x28",
    b"\xf0",
)


def bent(data: bytes, r: random.Random, most: int = 4) -> bytes:
    """Bend a few places of the data."""
    changed = bytearray(data)
    for _ in range(r.randint(1, most)):
        _bend(changed, r)
    return bytes(changed)


def _bend(data: bytearray, r: random.Random) -> None:
    place = r.randint(0, len(data))
    kind = r.randrange(8)
    if kind == 0 and data:
        data[place % len(data)] ^= 1 << r.randrange(8)
    elif kind == 1 and data:
        data[place % len(data)] = r.choice((0, 1, 127, 128, 255, r.randrange(256)))
    elif kind == 2:
        del data[place : place + r.choice((1, 1, 2, 4, 8, 64))]
    elif kind == 3:
        data[place:place] = r.choice(_WORDS)
    elif kind == 4:
        data[place:place] = data[r.randint(0, len(data)) :][: r.choice((1, 2, 4, 16, 64))]
    elif kind == 5:
        number = r.choice(_NUMBERS)
        size = r.choice((2, 4))
        data[place : place + size] = (number % (1 << 8 * size)).to_bytes(size, "big")
    elif kind == 6:
        del data[place:]
    else:
        data[place:place] = r.randbytes(r.choice((1, 2, 4, 16, 200)))


def chopped(data: bytes, r: random.Random) -> Iterator[bytes]:
    """Cut data into the pieces in which it arrives: whole, in a few pieces, or byte by byte."""
    kind = r.random()
    if kind < 0.4 or not data:
        yield data
        return
    size = 1 if kind < 0.5 and len(data) < 600 else max(1, len(data) // r.randint(2, 9))
    for start in range(0, len(data), size):
        yield data[start : start + size]


def spliced(parts: Sequence[bytes], r: random.Random) -> list[bytes]:
    """Leave out, repeat and exchange parts."""
    found = list(parts)
    for _ in range(r.randint(0, 2)):
        if not found:
            break
        place = r.randrange(len(found))
        kind = r.randrange(3)
        if kind == 0:
            del found[place]
        elif kind == 1:
            found.insert(place, found[place])
        else:
            other = r.randrange(len(found))
            found[place], found[other] = found[other], found[place]
    return found
