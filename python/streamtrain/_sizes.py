"""Sizes as the commands take them: 8G, 512M, 64KiB, or a number of bytes."""

from __future__ import annotations

import re

from ._errors import RequestError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)(?:([KMGT])(?:iB)?)?", re.IGNORECASE)


def parse_size(value: int | str | None, what: str) -> int:
    """Bytes; 0 for None. K, M, G and T are binary: 1K is 1024."""
    if value is None:
        return 0
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise RequestError(f"{what}: {value!r} is no size; examples: '512M', '8G', 1048576")
        unit = match[2]
        size = float(match[1]) if "." in match[1] else int(match[1])
        value = int(size * 1024 ** (" KMGT".index(unit.upper()) if unit else 0))
    value = int(value)
    if not 0 < value < 1 << 63:
        raise RequestError(f"{what}: {value} bytes are no possible size")
    return value
